"""What the printer knows while it walks a program.

One object is handed down through the functions of all three languages: names, which language
marks the page has used, constants moved to the metadata section, and the function being printed.

A variable that nobody defined is declared: a scalar at the head of the function (that is how
match_cast variables print), anything else before the block that uses it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from relaxlab.ir.expr import Var
from relaxlab.ir.module import IRModule
from relaxlab.runtime.dtype import DataType
from relaxlab.script.printer.names import Names
from relaxlab.tirx.stmt import For

__all__ = ["FunctionFrame", "Printing"]

_INT32 = DataType("int32")
_INT64 = DataType("int64")


@dataclass(slots=True)
class FunctionFrame:
    """The function being printed.

    Attributes
    ----------
    is_s_tir
        Whether it is a kernel of the block dialect.
    params, shown
        Its parameters, and those of them that have been printed.
    declarations
        Lines for its head, in order of first use: ``m = T.int64()``, ``cls = Module``.
    type_vars
        Symbolic variables that its signature shows, by identity.
    """

    is_s_tir: bool = False
    params: set[Var] = field(default_factory=set)
    shown: set[Var] = field(default_factory=set)
    declarations: list[str] = field(default_factory=list)
    type_vars: set[Var] = field(default_factory=set)

    def declare_once(self, line: str) -> None:
        """Add a line to the head unless it is there."""
        if line not in self.declarations:
            self.declarations.append(line)


@dataclass(slots=True)
class Printing:
    """State of one call of the printer.

    Attributes
    ----------
    module, module_name
        The module being printed, if it is one, and its class name.
    use_pep695
        Print ``def main[n](...)`` instead of ``n = TypeVar("n")``.
    languages
        Which of ``I``, ``R``, ``T`` the page has used so far.
    type_var_names
        Names declared as TypeVars, in order.
    metadata
        Objects that have no text of their own, by kind, in order of first use.
    bare
        The integer dtype whose literals print bare: int64 in Relax, int32 in kernels.
    in_signature
        Whether a function's signature is being printed: compound dimensions become strings.
    pending
        Declarations that go before the current block.
    ahead
        Declarations that go before the current statement of a kernel.
    functions, loops
        What encloses the place being printed, outermost first.
    """

    module: IRModule | None = None
    module_name: str = "Module"
    use_pep695: bool = False
    names: Names = field(default_factory=Names)
    languages: set[str] = field(default_factory=set)
    type_var_names: dict[str, None] = field(default_factory=dict)
    metadata: dict[str, list[Any]] = field(default_factory=dict)
    metadata_index: dict[int, int] = field(default_factory=dict)
    bare: DataType = _INT32
    in_signature: bool = False
    pending: list[str] = field(default_factory=list)
    ahead: list[str] = field(default_factory=list)
    functions: list[FunctionFrame] = field(default_factory=list)
    loops: list[For] = field(default_factory=list)

    @property
    def in_relax(self) -> bool:
        """Whether scalars print as Relax prints them."""
        return self.bare is _INT64

    def mark(self, language: str) -> str:
        """Note that the page needs a language; returns it, to be put into the text."""
        self.languages.add(language)
        return language

    @contextmanager
    def relax(self) -> Iterator[None]:
        """Print scalars as Relax does: int64 literals bare."""
        before, self.bare = self.bare, _INT64
        try:
            yield
        finally:
            self.bare = before

    @contextmanager
    def kernel(self) -> Iterator[None]:
        """Print scalars as kernels do: int32 literals bare."""
        before, self.bare = self.bare, _INT32
        try:
            yield
        finally:
            self.bare = before

    @contextmanager
    def signature(self) -> Iterator[None]:
        """Define symbolic variables where they are met, and quote what Python cannot compute."""
        before, self.in_signature = self.in_signature, True
        try:
            yield
        finally:
            self.in_signature = before

    @contextmanager
    def function(self) -> Iterator[FunctionFrame]:
        """Open the scope of a function."""
        frame = FunctionFrame()
        self.functions.append(frame)
        pending, self.pending = self.pending, []
        try:
            with self.names.scope():
                yield frame
        finally:
            self.functions.pop()
            self.pending = pending

    def variable(self, var: Var, declare: Callable[["Printing", Var], tuple[bool, str]]) -> str:
        """Return the name of a variable; one that is not defined is declared.

        ``declare`` gives the text behind the name, and whether it belongs to the head of the
        function (True) or before the current block (False).
        """
        name = self.names.find(var)
        if name is None:
            name = self.names.define(var, var.name)
            at_head, text = declare(self, var)
            if text:
                if at_head and self.functions:
                    self.functions[-1].declarations.append(name + text)
                else:
                    self.pending.append(name + text)
        return name

    def take_pending(self) -> list[str]:
        """Return the declarations that go before the current block, and forget them."""
        lines, self.pending = self.pending, []
        return lines

    def metadata_reference(self, kind: str, value: Any) -> str:
        """Return the text that stands for an object shown in the metadata section."""
        items = self.metadata.setdefault(kind, [])
        index = self.metadata_index.get(id(value))
        if index is None:
            index = self.metadata_index[id(value)] = len(items)
            items.append(value)
        return f'metadata["{kind}"][{index}]'
