"""A library that TVM exported, under our machine, with its real compiled kernels.

Our machine runs and steps the bytecode, the kernels are the machine code in the library, and each
kernel call shows its inputs and outputs like any other. Only the small package ``apache-tvm-ffi``
is needed. The bytecode is read and verified before the library is loaded; machine code cannot be
verified, so load only libraries that you trust. A library that is broken, or made for another
version of ``tvm_ffi``, can end the process. Counterpart: ``tvm.runtime.load_module``.

Examples
--------
::

    ex = load_module("model.so")
    vm = VirtualMachine(ex, cpu())
"""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.interop.c_backend import PROVIDED, register_backend
from relaxlab.interop.ffi_values import ffi_package, returning_ours
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.foreign_library import ForeignLibrary
from relaxlab.runtime.vm.library_blob import LIBRARY_KIND
from relaxlab.runtime.vm.object_file import object_format, read_object

__all__ = ["FFILibrary", "is_installed", "load_module", "open_program"]

_LOADER: Final = "ffi.Module.load_from_bytes.relax.VMExecutable"
"""What ``tvm_ffi`` calls for the executable in a library; TVM's own runtime registers it."""

_PREFIX: Final = "__relaxlab__"
"""Names an empty system library: the module that stands in for the executable."""


class FFILibrary:
    """Kernels of a module of ``tvm_ffi``.

    Parameters
    ----------
    module
        The module; modules that it imports are searched too.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self.imports: list[Any] = []

    @property
    def kind(self) -> str:
        """What the module calls itself, such as ``"library"``."""
        return str(self.module.kind)

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """Return the kernel called ``name``, taking our tensors; None if there is none."""
        if not self.module.implements_function(name, query_imports=True):
            return None
        return returning_ours(self.module.get_function(name, query_imports=True))

    def __repr__(self) -> str:
        return f"FFILibrary({self.kind})"


def is_installed() -> bool:
    """Whether ``tvm_ffi`` can be imported."""
    return find_spec("tvm_ffi") is not None


def load_module(path: str | os.PathLike[str], verify: bool = True) -> VMExecutable:
    """Read the program of a shared library, and load the library for its kernels.

    Parameters
    ----------
    path
        What TVM's ``export_library`` wrote for this kind of machine.
    verify
        Whether to check that the bytecode can run safely.

    Returns
    -------
    VMExecutable
        The program; it imports the kernels.

    Raises
    ------
    InternalError
        If the file is no such library, the bytecode is refused, or the library cannot be loaded.
    ModuleNotFoundError
        If ``tvm_ffi`` is not installed.
    """
    ffi = ffi_package()
    path = Path(path).resolve()
    data = path.read_bytes()
    ex = VMExecutable.load_from_bytes(data, verify, origin=path.name)
    if object_format(data) is None:
        raise InternalError(f"{path.name} is no shared library: it has no machine code to load")
    runtime_is_here = ffi.get_global_func(_LOADER, allow_missing=True) is not None
    if not runtime_is_here:
        _require_nothing_of_tvm(ex, data, path.name)
        register_backend(ffi.LIB)
    try:
        modules = _load(ffi, str(path), runtime_is_here)
    except (RuntimeError, OSError, ValueError) as error:
        reason = str(error).strip().rpartition("\n")[2]
        raise InternalError(f"cannot load the machine code of {path.name}: {reason}") from error
    ex.imports[:] = map(FFILibrary, modules)
    return ex


def open_program(path: str | os.PathLike[str]) -> VMExecutable:
    """Read a program of any form, with the machine code of its kernels where that can run.

    Where it cannot, because ``tvm_ffi`` is missing or the library is for another machine, the
    program can still be stepped up to the first kernel, whose error says why.

    Raises
    ------
    InternalError
        If the file holds no program, or one that is not safe to run.
    """
    ex = VMExecutable.load_from_file(path)
    foreign = [library for library in ex.imports if isinstance(library, ForeignLibrary)]
    if not foreign or not is_installed() or object_format(Path(path).read_bytes()) is None:
        return ex
    try:
        return load_module(path)
    except InternalError as error:
        for library in foreign:
            library.reason = str(error)
        return ex


def _require_nothing_of_tvm(ex: VMExecutable, data: bytes, name: str) -> None:
    """Refuse what would end the process: calls through pointers that nobody fills."""
    others = {one.kind for one in ex.imports} - {LIBRARY_KIND}
    missing = read_object(memoryview(data)).backend - set(PROVIDED)
    if others or missing:
        what = ", ".join(sorted(others | missing))
        raise InternalError(
            f"{name} needs {what} of TVM's own runtime: python -m pip install 'relaxlab[tvm]', "
            "and import tvm before the library is loaded"
        )


def _load(ffi: Any, path: str, runtime_is_here: bool) -> list[Any]:
    """Return the modules with the kernels."""
    if runtime_is_here:
        return list(ffi.load_module(path).imports)
    # The executable is ours already; the loader gets an empty module in its place, to which it
    # attaches the machine code. TVM may be imported later, so its name is taken only meanwhile.
    ffi.register_global_func(_LOADER, lambda _: ffi.system_lib(_PREFIX))
    try:
        stand_in = ffi.load_module(path)
    finally:
        ffi.remove_global_func(_LOADER)
    modules = list(stand_in.imports)
    stand_in.clear_imports()  # the stand-in is one and the same for every library
    return modules
