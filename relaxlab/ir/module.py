"""A module: named functions of both languages, and what is known about the whole.

Counterpart: ``tvm.IRModule``. Passes never change the module they are given; they work on a
:meth:`IRModule.clone` and return the module itself when nothing changed.

Examples
--------
>>> IRModule().functions
{}
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from relaxlab.ir.attrs import DictAttrs
from relaxlab.ir.expr import Expr, GlobalVar
from relaxlab.ir.global_info import GlobalInfo
from relaxlab.ir.node import DEFINES, Node, replace, structural_equal
from relaxlab.ir.type import PRINTERS

__all__ = ["BaseFunc", "IRModule"]

#: The size from which TVM's map moves an updated entry to the end (smaller ones keep places).
_MOVES_FROM = 4


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class BaseFunc(Expr):
    """Base of functions; ``attrs`` is a field of every subclass."""

    @property
    def func_attrs(self) -> DictAttrs:
        """The function's attributes, an empty map when it has none."""
        attrs = getattr(self, "attrs", None)
        return attrs if attrs is not None else DictAttrs()

    def with_attr(self, key: str | Mapping[str, Any], value: Any = None) -> Any:
        """Return a copy with one attribute (or, given a map, several) set."""
        pairs = dict(key) if isinstance(key, Mapping) else {key: value}
        return replace(self, attrs=DictAttrs({**self.func_attrs.fields, **pairs}))

    def without_attr(self, key: str) -> Any:
        """Return a copy without one attribute; itself if it has none of that name."""
        if key not in self.func_attrs:
            return self
        return replace(self, attrs=self.func_attrs.without_attr(key))

    def script(
        self,
        *,
        name: str | None = None,
        show_meta: bool = False,
        extra_config: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the function as TVMScript; see :meth:`IRModule.script`."""
        return PRINTERS.get("script")(
            self, name=name, show_meta=show_meta, extra_config=extra_config
        )

    def show(self) -> None:
        """Print the function as TVMScript."""
        print(self.script())  # noqa: T201  # showing is what it is for


class IRModule:
    """Functions by global variable, in order of insertion, with attributes and global infos.

    Parameters
    ----------
    functions
        Map from :class:`GlobalVar` (or name) to function.
    attrs
        Module attributes.
    global_infos
        Lists of :class:`GlobalInfo` by kind, such as ``"vdevice"``.
    """

    __slots__ = ("_by_name", "_moves", "attrs", "functions", "global_infos")

    def __init__(
        self,
        functions: Mapping[Any, BaseFunc] | None = None,
        attrs: Mapping[str, Any] | None = None,
        global_infos: Mapping[str, list[GlobalInfo] | tuple[GlobalInfo, ...]] | None = None,
    ) -> None:
        self.functions: dict[GlobalVar, BaseFunc] = {}
        self._by_name: dict[str, GlobalVar] = {}
        self._moves = False
        self.attrs: dict[str, Any] = dict(attrs or {})
        self.global_infos: dict[str, tuple[GlobalInfo, ...]] = {
            key: tuple(value) for key, value in (global_infos or {}).items()
        }
        for gvar, func in (functions or {}).items():
            self.add(GlobalVar(gvar) if isinstance(gvar, str) else gvar, func)

    @staticmethod
    def from_expr(func: BaseFunc, functions: Mapping[Any, BaseFunc] | None = None) -> "IRModule":
        """Return a module of one function, called as its symbol says (``main`` without one)."""
        mod = IRModule(functions)
        mod.add(GlobalVar(str(func.func_attrs.get("global_symbol", "main"))), func)
        return mod

    def add(self, gvar: GlobalVar, func: BaseFunc) -> None:
        """Add a function under a new global variable.

        A variable without a type takes over that of the function. One that has a type keeps it, as
        in TVM: other modules may hold it. A function of another type needs another variable.

        Raises
        ------
        ValueError
            If another function has the name.
        """
        taken = self._by_name.get(gvar.name_hint)
        if taken is not None and taken is not gvar:
            raise ValueError(f"the module already has a function called {gvar.name_hint!r}")
        self._by_name[gvar.name_hint] = gvar
        if self._moves:
            self.functions.pop(gvar, None)
        self.functions[gvar] = func
        # as in TVM, also when functions are removed later
        self._moves = self._moves or len(self.functions) >= _MOVES_FROM
        # a variable may belong to other modules too: what it says of their functions stays
        if gvar.ty is None and func.ty is not None:
            gvar.set_ty(func.ty)

    def update_func(self, gvar: GlobalVar, func: BaseFunc) -> None:
        """Replace (or add) the function of ``gvar``.

        In a module of four functions or more it goes to the end, as in TVM: bytecode lists
        functions in this order, so disassemblies agree only if the order does.
        """
        self.add(gvar, func)

    def remove(self, gvar: GlobalVar) -> None:
        """Drop a function; KeyError if it is not in the module."""
        del self.functions[gvar]
        del self._by_name[gvar.name_hint]

    def update_global_info(self, name: str, global_infos: Iterable[GlobalInfo]) -> None:
        """Set the global infos of one kind, such as ``"vdevice"``, in place of those before.

        Raises
        ------
        TypeError
            If one is no :class:`GlobalInfo`.
        """
        infos = tuple(global_infos)
        for info in infos:
            if not isinstance(info, GlobalInfo):
                raise TypeError(f"expected a GlobalInfo, got {type(info).__name__}")
        self.global_infos[name] = infos

    def __getitem__(self, key: str | GlobalVar) -> Any:
        return self.functions[self.get_global_var(key) if isinstance(key, str) else key]

    def __setitem__(self, key: str | GlobalVar, func: BaseFunc) -> None:
        if isinstance(key, str):
            key = self._by_name.get(key, GlobalVar(key))
        self.add(key, func)

    def __delitem__(self, key: str | GlobalVar) -> None:
        self.remove(self.get_global_var(key) if isinstance(key, str) else key)

    def __contains__(self, key: object) -> bool:
        return key in self._by_name if isinstance(key, str) else key in self.functions

    def __iter__(self) -> Iterator[GlobalVar]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def get_global_var(self, name: str) -> GlobalVar:
        """Return the global variable called ``name``; ValueError naming what exists if none."""
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(self._by_name) or "none"
            raise ValueError(f"the module has no function {name!r}; it has: {known}") from None

    def get_global_vars(self) -> list[GlobalVar]:
        """All global variables in order."""
        return list(self.functions)

    def functions_items(self) -> list[tuple[GlobalVar, BaseFunc]]:
        """All (global variable, function) pairs, sorted by name as in TVM."""
        return sorted(self.functions.items(), key=lambda item: item[0].name_hint)

    def clone(self) -> "IRModule":
        """Return a module with the same functions that can be changed independently."""
        copy = IRModule.__new__(IRModule)
        copy.functions = dict(self.functions)
        copy._by_name = dict(self._by_name)
        copy._moves = self._moves
        copy.attrs = dict(self.attrs)
        copy.global_infos = dict(self.global_infos)
        return copy

    def with_functions(self, changed: Mapping[GlobalVar, BaseFunc]) -> "IRModule":
        """Return a module with some functions replaced, in the order of ``changed``.

        As in TVM, those that stay as they are move with the others (see :meth:`update_func`). The
        module itself when nothing differs, the order of its functions neither.
        """
        copy = self.clone()
        for gvar, func in changed.items():
            copy.add(gvar, func)
        same = all(
            a is c and b is d
            for (a, b), (c, d) in zip(copy.functions.items(), self.functions.items(), strict=False)
        )
        return self if same and len(copy) == len(self) else copy

    def with_attr(self, key: str, value: Any) -> "IRModule":
        """Return a copy with one module attribute set."""
        copy = self.clone()
        copy.attrs[key] = value
        return copy

    def structural_equal(self, other: "IRModule", map_free_vars: bool = False) -> bool:
        """Compare function by function, by name; global variables match by name."""
        if set(self._by_name) != set(other._by_name):
            return False
        if self.attrs != other.attrs or set(self.global_infos) != set(other.global_infos):
            return False
        names = sorted(self._by_name)
        # one tuple, so that the references between functions are matched by the same map
        left = (tuple(self._by_name[n] for n in names), tuple(self[n] for n in names))
        right = (tuple(other._by_name[n] for n in names), tuple(other[n] for n in names))
        return structural_equal(_Module(*left), _Module(*right), map_free_vars)

    def script(
        self,
        *,
        name: str = "Module",
        show_meta: bool = False,
        extra_config: Mapping[str, Any] | None = None,
    ) -> str:
        """Return the module as TVMScript.

        Parameters
        ----------
        name
            Name of the class.
        show_meta
            Whether constants without a text of their own are written out, in front.
        extra_config
            More options of the printer: ``{"script.use_pep695": True}``.
        """
        return PRINTERS.get("script")(
            self, name=name, show_meta=show_meta, extra_config=extra_config
        )

    def show(self) -> None:
        """Print the module as TVMScript."""
        print(self.script())  # noqa: T201  # showing is what it is for

    def __str__(self) -> str:
        return self.script()

    def __repr__(self) -> str:
        return f"IRModule({', '.join(self._by_name)})"


@dataclass(frozen=True, eq=False, slots=True)
class _Module(Node):
    """A module seen as one node whose global variables are defined by it."""

    gvars: tuple[GlobalVar, ...] = field(metadata=DEFINES)
    functions: tuple[BaseFunc, ...]
