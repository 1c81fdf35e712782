"""Passes: what they are, how they are sequenced, and who may watch.

A pass is a frozen dataclass with one verb; its options are its fields::

    @dataclass(frozen=True)
    class AttachGlobalSymbol(ModulePass):
        def transform_module(self, mod, ctx): ...

Calling it runs it: ``AttachGlobalSymbol()(mod)``. A pass never changes the module it is given
and returns that same module when there was nothing to do. Counterpart: ``tvm.transform`` and
``tvm.instrument``.

Examples
--------
>>> @module_pass(opt_level=0, name="Same")
... def same(mod, ctx):
...     return mod
>>> same.info.name
'Same'
"""

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, ClassVar, Self, final

from relaxlab.ir.module import IRModule
from relaxlab.registry import Registry

__all__ = [
    "ModulePass",
    "Pass",
    "PassContext",
    "PassInfo",
    "PassInstrument",
    "Sequential",
    "config_option",
    "module_pass",
]

#: Options that a :class:`PassContext` accepts: name to the type a value must have.
_CONFIG_OPTIONS: Registry[type] = Registry("pass option")


def config_option(name: str, kind: type) -> str:
    """Declare an option that passes read from ``PassContext.config``; returns its name."""
    _CONFIG_OPTIONS.register(name, kind)
    return name


def _option_kind(name: str) -> type | None:
    """Return the type of an option's values; None if no pass declares it."""
    if _CONFIG_OPTIONS.find(name) is None:
        # options are declared by the passes that read them, which may not have been needed yet
        import_module("relaxlab.relax.transform")
    return _CONFIG_OPTIONS.find(name)


@dataclass(frozen=True, slots=True)
class PassInfo:
    """Name, optimization level and prerequisites of a pass."""

    name: str
    opt_level: int = 0
    required: tuple[str, ...] = ()
    traceable: bool = False

    def __repr__(self) -> str:
        return (
            f'transform.PassInfo(opt_level={self.opt_level}, name="{self.name}", '
            f"required={self.required!r}, traceable={self.traceable})"
        )


class PassInstrument:
    """Something that watches passes; override what you need.

    ``should_run`` may return False to skip a pass. Passes inside passes are seen too.
    """

    def enter_pass_ctx(self) -> None:
        """Run when a :class:`PassContext` is entered."""

    def exit_pass_ctx(self) -> None:
        """Run when a :class:`PassContext` is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Say whether the pass should run."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Run before a pass, with the module it is given."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Run after a pass, with the module it returned."""

    def pass_failed(self, mod: IRModule, info: PassInfo, error: BaseException) -> None:
        """Run when a pass raised, with the module it was given; TVM tells nobody."""


class PassContext:
    """Settings that passes read: level, lists of names, instruments, options.

    Parameters
    ----------
    opt_level
        A :class:`Sequential` skips members above it.
    required_pass, disabled_pass
        Names that always, or never, run inside a Sequential.
    instruments
        Watchers, called in order.
    config
        Options by name; unknown names are an AttributeError.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Iterable[str] | None = None,
        disabled_pass: Iterable[str] | None = None,
        instruments: Iterable[PassInstrument] | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.opt_level = opt_level
        self.required_pass = tuple(required_pass or ())
        self.disabled_pass = tuple(disabled_pass or ())
        self.instruments = list(instruments or ())
        self.config = dict(config or {})
        for key, value in self.config.items():
            kind = _option_kind(key)
            if kind is None:
                raise AttributeError(
                    f"Invalid config option {key!r} candidates are: "
                    f"{', '.join(sorted(_CONFIG_OPTIONS.names()))}"
                )
            if not isinstance(value, kind):
                raise TypeError(
                    f"pass option {key!r} must be {kind.__name__}, got {type(value).__name__}"
                )

    @staticmethod
    def current() -> "PassContext":
        """Return the innermost context, or the default one."""
        active = _CONTEXTS.get()
        return active[-1] if active else _DEFAULT_CONTEXT

    def pass_enabled(self, info: PassInfo) -> bool:
        """Say whether a Sequential should run such a pass."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or info.opt_level <= self.opt_level

    @staticmethod
    def list_configs() -> dict[str, dict[str, str]]:
        """Return the options that passes read, with the type of each."""
        import_module("relaxlab.relax.transform")
        kinds = {name: _CONFIG_OPTIONS.get(name) for name in _CONFIG_OPTIONS.names()}
        return {name: {"type": kind.__name__} for name, kind in sorted(kinds.items())}

    def override_instruments(self, instruments: Iterable[PassInstrument] | None) -> None:
        """Leave the instruments there are, and enter others in their place."""
        for instrument in self.instruments:
            instrument.exit_pass_ctx()
        self.instruments = list(instruments or ())
        for instrument in self.instruments:
            instrument.enter_pass_ctx()

    def __enter__(self) -> Self:
        _CONTEXTS.set((*_CONTEXTS.get(), self))
        for instrument in self.instruments:
            instrument.enter_pass_ctx()
        return self

    def __exit__(self, *exc: object) -> None:
        _CONTEXTS.set(_CONTEXTS.get()[:-1])
        for instrument in self.instruments:
            instrument.exit_pass_ctx()


_CONTEXTS: ContextVar[tuple[PassContext, ...]] = ContextVar("pass contexts", default=())
_DEFAULT_CONTEXT = PassContext()


@dataclass(frozen=True)
class Pass:
    """Base of all passes.

    Subclasses set ``opt_level`` (and ``pass_name`` where it differs from the class name) and
    implement :meth:`run`.
    """

    opt_level: ClassVar[int] = 0
    pass_name: ClassVar[str] = ""

    @property
    def info(self) -> PassInfo:
        """Name and level."""
        return PassInfo(self.pass_name or type(self).__name__, self.opt_level)

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Do the work; called by ``self(mod)`` between the instruments."""
        raise TypeError(f"{type(self).__name__} does not say what it does: it needs `run`")

    @final
    def __call__(self, mod: IRModule) -> IRModule:
        """Run the pass on a module; the module given is not changed."""
        ctx = PassContext.current()
        info = self.info
        wanted = [instrument.should_run(mod, info) for instrument in ctx.instruments]  # ask all
        if not all(wanted):
            return mod
        for instrument in ctx.instruments:
            instrument.run_before_pass(mod, info)
        try:
            result = self.run(mod, ctx)
            if not isinstance(result, IRModule):
                raise TypeError(
                    f"pass {info.name} returned {type(result).__name__}, not an IRModule"
                )
        except BaseException as error:
            for instrument in ctx.instruments:
                instrument.pass_failed(mod, info, error)
            raise
        for instrument in ctx.instruments:
            instrument.run_after_pass(result, info)
        return result


@dataclass(frozen=True)
class ModulePass(Pass):
    """A pass over a whole module."""

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the transformed module, or ``mod`` itself."""
        raise TypeError(f"{type(self).__name__} needs `transform_module`")

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Call :meth:`transform_module`."""
        return self.transform_module(mod, ctx)


@dataclass(frozen=True, init=False)
class Sequential(Pass):
    """Passes one after the other; those above the context's level are skipped.

    Parameters
    ----------
    passes
        The members.
    opt_level, name, required
        Of the sequence itself.
    """

    passes: tuple[Pass, ...]
    level: int
    name: str
    required: tuple[str, ...]

    def __init__(
        self,
        passes: Iterable[Pass] = (),
        opt_level: int = 0,
        name: str = "sequential",
        required: Iterable[str] = (),
    ) -> None:
        # written out, since the level is a class variable of other passes
        object.__setattr__(self, "passes", tuple(passes))
        object.__setattr__(self, "level", opt_level)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "required", tuple(required))

    @property
    def info(self) -> PassInfo:
        """Name and level of this sequence."""
        return PassInfo(self.name, self.level, self.required)

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Run the enabled members in order."""
        for member in self.passes:
            if ctx.pass_enabled(member.info):
                mod = member(mod)
        return mod


@dataclass(frozen=True)
class _Wrapped(ModulePass):
    """A pass made from a plain function by :func:`module_pass`."""

    function: Callable[[IRModule, PassContext], IRModule]
    info_: PassInfo = field(default_factory=lambda: PassInfo("module_pass"))

    @property
    def info(self) -> PassInfo:
        return self.info_

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        return self.function(mod, ctx)


def module_pass(
    pass_func: Any = None,
    opt_level: int = 0,
    name: str | None = None,
    required: Iterable[str] = (),
) -> Any:
    """Make a pass of a function ``f(mod, ctx)``, or of a class with ``transform_module``.

    Decorating a class gives a factory: calling it with the class's arguments gives the pass.
    """

    def decorate(target: Any) -> Any:
        info = PassInfo(name or target.__name__, opt_level, tuple(required))
        if isinstance(target, type):

            def factory(*args: Any, **kwargs: Any) -> Pass:
                return _Wrapped(target(*args, **kwargs).transform_module, info)

            return factory
        return _Wrapped(target, info)

    return decorate if pass_func is None else decorate(pass_func)
