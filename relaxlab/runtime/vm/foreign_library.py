"""Kernels that exist, but not as something this process can call.

A library that TVM exported holds its kernels as machine code. Its bytecode can still be read,
verified and stepped: each kernel is found by name, and calling it says why it cannot run and what
to do. Counterpart: none; TVM loads such a library into the process.

Examples
--------
>>> library = ForeignLibrary("_lib", "model.so", frozenset(["add"]))
>>> library.get_function("mul") is None
True
>>> library.get_function("add")(1, 2)
Traceback (most recent call last):
relaxlab.errors.InternalError: kernel 'add' is machine code inside model.so, ...
"""

from collections.abc import Callable
from typing import Any, NoReturn

from relaxlab.errors import InternalError
from relaxlab.runtime.packed_func import GLOBAL_FUNCTIONS

__all__ = ["ForeignLibrary"]


class ForeignLibrary:
    """A library that was read as data.

    Parameters
    ----------
    kind
        What the file calls it: ``"_lib"`` for the machine code of the file itself.
    origin
        Name of the file, for messages.
    names
        The kernels inside; None if they cannot be known, then every name that nobody else
        offers is taken to be one.

    Attributes
    ----------
    reason : str
        Why the kernels cannot run; part of the message.
    """

    def __init__(self, kind: str, origin: str, names: frozenset[str] | None) -> None:
        self.kind = kind
        self.origin = origin
        self.names = names
        self.imports: list[Any] = []
        self.reason = "the file was read as data"

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """Return a function that refuses to run, or None if the kernel is not in here."""
        if name in GLOBAL_FUNCTIONS if self.names is None else name not in self.names:
            return None

        def refuse(*_args: Any) -> NoReturn:
            raise InternalError(
                f"kernel {name!r} is machine code inside {self.origin}, and {self.reason}; to run "
                "it, install relaxlab[tvmffi] and load the file with relaxlab.interop.tvm_ffi (as "
                f"`relaxlab step` does by itself), or import a library that has {name!r} before "
                "this one"
            )

        return refuse

    def __repr__(self) -> str:
        count = "unknown kernels" if self.names is None else f"{len(self.names)} kernels"
        return f"ForeignLibrary({self.kind}: {count})"
