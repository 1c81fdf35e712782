"""Functions found by name: what bytecode calls when no kernel library has the name.

Hosts register Python functions, and the machine's builtins are registered the same way, so a
program, a test and a reader reach both through one door. Counterpart:
``tvm.register_global_func`` and ``tvm.get_global_func``.

Examples
--------
>>> @register_global_func("docs.twice", override=True)
... def twice(x):
...     return 2 * x
>>> get_global_func("docs.twice")(4)
8
>>> remove_global_func("docs.twice")
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, overload

from relaxlab.registry import Registry

__all__ = [
    "GLOBAL_FUNCTIONS",
    "PackedFunc",
    "get_global_func",
    "list_global_func_names",
    "register_global_func",
    "remove_global_func",
]

PackedFunc = Callable[..., Any]

GLOBAL_FUNCTIONS: Final[Registry[PackedFunc]] = Registry("global function")

F = TypeVar("F", bound=PackedFunc)


@overload
def register_global_func(name: F, f: None = None, override: bool = False) -> F: ...
@overload
def register_global_func(name: str, f: F, override: bool = False) -> F: ...
@overload
def register_global_func(name: str, f: None = None, override: bool = False) -> Callable[[F], F]: ...
def register_global_func(name: Any, f: Any = None, override: bool = False) -> Any:
    """Make a Python function known under a name; also usable as a decorator.

    Parameters
    ----------
    name
        The name, or the function itself to register it under its own ``__name__``.
    f
        The function; when omitted, a decorator is returned.
    override
        Whether a function of that name may be replaced. Machines that exist keep the old one.

    Raises
    ------
    RuntimeError
        If the name is taken.
    TypeError
        If ``f`` cannot be called.
    """
    if callable(name):
        return register_global_func(name.__name__, name, override)

    def register(function: Any) -> Any:
        if not callable(function):
            raise TypeError(
                f"global function {name!r}: expected a callable, got {type(function).__name__}"
            )
        if not override and name in GLOBAL_FUNCTIONS:
            raise RuntimeError(
                f"global function {name!r} is already registered; pass override=True to replace it"
            )
        return GLOBAL_FUNCTIONS.register(name, function, override=True)

    return register if f is None else register(f)


@overload
def get_global_func(name: str) -> PackedFunc: ...
@overload
def get_global_func(name: str, allow_missing: bool) -> PackedFunc | None: ...
def get_global_func(name: str, allow_missing: bool = False) -> PackedFunc | None:
    """Return the global function called ``name``.

    Raises
    ------
    ValueError
        If there is none and ``allow_missing`` is false; the message has the nearest names.
    """
    return GLOBAL_FUNCTIONS.find(name) if allow_missing else GLOBAL_FUNCTIONS.get(name)


def remove_global_func(name: str) -> None:
    """Forget a global function; a missing one is a ``ValueError``."""
    GLOBAL_FUNCTIONS.remove(name)


def list_global_func_names() -> list[str]:
    """Return every registered name, in order of registration."""
    return GLOBAL_FUNCTIONS.names()
