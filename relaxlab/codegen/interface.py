"""What every code generator offers: kernels in, callables by name out.

A generator makes one :class:`Kernel` of one PrimFunc. The library around them is the same for
all: it finds kernels by name, compiles each when it is first asked for, shows the text it
generated, and keeps the kernels as TIR, which is what gets saved. Counterpart:
``tvm.tirx.build`` and the runtime module it returns.

Examples
--------
>>> from relaxlab.codegen import build
>>> from relaxlab.ir import IRModule
>>> build(IRModule(), "numpy").names
()
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.ir import Call, IRModule, Op, Target
from relaxlab.ir.prim_functor import post_order_visit
from relaxlab.registry import Registry
from relaxlab.tirx.function import PrimFunc

__all__ = ["GENERATORS", "Generator", "Kernel", "Library", "build", "default_target"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compiled kernel.

    Attributes
    ----------
    function
        Called with tensors, arrays and numbers; results are written into the output arguments.
    source
        The text that was generated for it, in the generator's language.
    assembly
        Returns the machine's instructions as text; None where there are none.
    """

    function: Callable[..., Any]
    source: str
    assembly: Callable[[], str] | None = None


Generator = Callable[[PrimFunc, str], Kernel]

#: How to compile a kernel, by target kind.
GENERATORS: Final[Registry[Generator]] = Registry("code generator")


class Library:
    """Kernels found by name.

    Parameters
    ----------
    kind
        Word for the kind of library: the target kind.
    kernels
        The PrimFuncs by name.
    generator
        What compiles them.
    """

    def __init__(self, kind: str, kernels: Mapping[str, PrimFunc], generator: Generator) -> None:
        self.kind = kind
        self.imports: list[Any] = []
        self.kernels = dict(kernels)
        self._generator = generator
        self._compiled: dict[str, Kernel] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all kernels, in order."""
        return tuple(self.kernels)

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """Return the kernel called ``name``, compiling it if need be; None if there is none."""
        return self._kernel(name).function if name in self.kernels else None

    def forgets_arguments(self, name: str) -> bool:
        """Whether the kernel called ``name`` keeps nothing that it was given when it returns.

        Generated code keeps nothing; a function that a kernel calls by name may.
        """
        calls: list[str] = []

        def look(node: object) -> None:
            if isinstance(node, Call) and isinstance(node.op, Op):
                calls.append(node.op.name)

        func = self.kernels.get(name)
        if func is None:
            return False
        post_order_visit(func.body, look)
        return not any("packed" in call or "extern" in call for call in calls)

    def source(self, name: str) -> str:
        """Return the text generated for a kernel; KeyError naming what exists if there is none."""
        return self._kernel(name).source

    def assembly(self, name: str) -> str:
        """Return the machine's instructions for a kernel as text.

        Raises
        ------
        KeyError
            If there is no such kernel; the message names what exists.
        InternalError
            If it was not compiled to machine code.
        """
        listing = self._kernel(name).assembly
        if listing is None:
            raise InternalError(
                f"kernel {name!r} of this {self.kind} library is not machine code; "
                "build it for the target 'llvm', or look at its source"
            )
        return listing()

    def __getitem__(self, name: str) -> Callable[..., Any]:
        return self._kernel(name).function

    def __contains__(self, name: object) -> bool:
        return name in self.kernels

    def __repr__(self) -> str:
        return f"Library({self.kind}: {', '.join(self.kernels) or 'empty'})"

    def _kernel(self, name: str) -> Kernel:
        compiled = self._compiled.get(name)
        if compiled is None:
            func = self.kernels.get(name)
            if func is None:
                known = ", ".join(self.kernels) or "none"
                raise KeyError(f"no kernel {name!r} in this library; it has: {known}")
            compiled = self._compiled[name] = self._generator(func, name)
        return compiled


def build(mod: IRModule | PrimFunc, target: Target | str | None = None) -> Library:
    """Compile the kernels of a module.

    Parameters
    ----------
    mod
        A module, of which the PrimFuncs are taken, or one PrimFunc.
    target
        What to compile for; the default target when omitted. A CPU target without a generator of
        its own gets portable kernels.

    Raises
    ------
    InternalError
        If no generator of this installation compiles for the target, or two kernels have one
        name.
    """
    chosen = default_target() if target is None else Target(target)
    kind = _generator_kind(chosen)
    functions = {"main": mod} if isinstance(mod, PrimFunc) else _named(mod)
    return Library(kind, dict(_unique(functions.items())), GENERATORS.get(kind))


def _generator_kind(target: Target) -> str:
    """Return which generator serves a target: its own, or on a CPU the portable one."""
    kind = target.kind.name
    if kind in GENERATORS:
        return kind
    if "cpu" in target.keys:
        return "numpy"
    known = ", ".join(sorted(GENERATORS.names()))
    raise InternalError(f"no code generator for target {kind!r} is installed; available: {known}")


def _named(mod: IRModule) -> dict[str, PrimFunc]:
    return {g.name_hint: f for g, f in mod.functions_items() if isinstance(f, PrimFunc)}


def _unique(functions: Iterable[tuple[str, PrimFunc]]) -> Iterable[tuple[str, PrimFunc]]:
    """Yield each kernel under its public name, which bytecode calls it by, or its own."""
    seen: set[str] = set()
    for own_name, func in functions:
        name = str(func.func_attrs.get("global_symbol", own_name))
        if name in seen:
            raise InternalError(f"two kernels are called {name!r}; global symbols must differ")
        seen.add(name)
        yield name, func


def default_target() -> Target:
    """Return the best target that this installation compiles for on the CPU."""
    return Target("llvm" if "llvm" in GENERATORS else "numpy")
