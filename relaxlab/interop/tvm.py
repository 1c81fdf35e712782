"""Programs between the TVM of this process and our machine, in both directions.

:func:`to_tvm` gives TVM our bytecode, with our kernels compiled by TVM from their text;
:func:`from_tvm` gives our machine TVM's bytecode, with TVM's compiled kernels. Functions that only
one side knows by name are lent to the other. So the two machines can be run side by side on the
same program, and a difference can be traced to bytecode or to a kernel.

TVM checks less than we do: a program that is refused here may end the process there. Counterpart:
none.

Examples
--------
::

    vm = tvm.relax.VirtualMachine(to_tvm(ex), tvm.cpu())  # our program, TVM's machine
    vm = VirtualMachine(from_tvm(theirs), cpu())          # TVM's program, our machine
"""

import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.interop.ffi_values import returning_ours, returning_theirs
from relaxlab.interop.tvm_ffi import FFILibrary
from relaxlab.registry import Registry
from relaxlab.runtime.packed_func import GLOBAL_FUNCTIONS
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.bytecode import VMFuncKind
from relaxlab.runtime.vm.executable import KernelLibrary
from relaxlab.runtime.vm.linker import find_host
from relaxlab.runtime.vm.saved_kernels import save_kernels
from relaxlab.runtime.vm.verify import verify_executable
from relaxlab.script import kernel_text

__all__ = ["LENT_FUNCTIONS", "TVMGlobals", "from_tvm", "to_tvm"]

_LOAD: Final = "ffi.Module.load_from_bytes.relax.VMExecutable"
_KIND: Final = "relax.VMExecutable"

LENT_FUNCTIONS: Final[Registry[Callable[..., Any]]] = Registry("function lent to TVM")
"""Host functions of ours that TVM's registry has, because a program needed them there."""


class TVMGlobals:
    """The global functions of TVM, for names that ours lack."""

    kind: Final = "tvm.globals"

    def __init__(self) -> None:
        self.imports: list[Any] = []

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """Return TVM's function, taking our values; None where we have one of that name."""
        if name in GLOBAL_FUNCTIONS:
            return None
        found = _tvm().get_global_func(name, allow_missing=True)
        return None if found is None else returning_ours(found)

    def __repr__(self) -> str:
        return "TVMGlobals()"


def to_tvm(ex: VMExecutable) -> Any:
    """Return a program of ours as a module that ``tvm.relax.VirtualMachine`` runs.

    Kernels that relaxlab compiled are compiled again, by TVM, from their text. Functions that are
    known here only are registered with TVM under their names, and stay so.

    Parameters
    ----------
    ex
        The program; it is verified first, since TVM does not.

    Raises
    ------
    InternalError
        If it is not safe to run, a constant has no place in the file format, or TVM does not
        compile a kernel.
    ModuleNotFoundError
        If TVM is not installed.
    """
    tvm = _tvm()
    verify_executable(ex)
    module = tvm.get_global_func(_LOAD)(ex.save_to_bytes())
    for library in _all_libraries(ex.imports):
        try:
            saved = save_kernels(library)
        except InternalError:
            continue  # its functions exist only as code: they are lent below
        if saved.form == kernel_text.FORM and saved.names:
            module.import_module(_compile(tvm, saved.text, kernel_text.keys_of(saved.names)))
    for info in ex.func_table:
        if info.kind == VMFuncKind.PACKED_FUNC and _is_missing(tvm, module, info.name):
            function = find_host(ex, info.name)
            if function is not None:
                LENT_FUNCTIONS.register(info.name, function, override=True)
                tvm.register_global_func(info.name, returning_theirs(function), override=True)
    return module


def from_tvm(module: Any, verify: bool = True) -> VMExecutable:
    """Return a program of TVM as one that our machine runs, with TVM's compiled kernels.

    Parameters
    ----------
    module
        What ``tvm.relax.build`` or ``tvm.runtime.load_module`` returned.
    verify
        Whether to check that the bytecode can run safely.

    Raises
    ------
    TypeError
        If it is no executable of TVM.
    InternalError
        If the bytecode is refused.
    ModuleNotFoundError
        If TVM is not installed.
    """
    tvm = _tvm()
    if isinstance(module, tvm.relax.VMExecutable):
        runnable = all(library.is_runnable() for library in module.mod.imports)
        # libraries that are source text so far are compiled by jit()
        imports = (module.mod if runnable else module.jit()).imports
        module = module.mod
    elif isinstance(module, tvm.runtime.Module) and module.kind == _KIND:
        imports = module.imports
    else:
        what = getattr(module, "kind", type(module).__name__)
        raise TypeError(f"expected a tvm.relax.VMExecutable or its module, got {what}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "executable.bin"
        module.write_to_file(str(path))
        ex = VMExecutable.load_from_bytes(path.read_bytes(), verify, origin="TVM's executable")
    ex.imports += [*map(FFILibrary, imports), TVMGlobals()]
    return ex


def _tvm() -> Any:
    try:
        import_module("tvm.relax")
        return import_module("tvm")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "this needs the package apache-tvm: python -m pip install 'relaxlab[tvm]'",
            name=error.name,
        ) from None


def _all_libraries(imports: list[KernelLibrary]) -> list[KernelLibrary]:
    found: list[KernelLibrary] = []
    for library in imports:
        found += [library, *_all_libraries(library.imports)]
    return found


def _compile(tvm: Any, text: str, keys: dict[str, str]) -> Any:
    """Return TVM's library of the kernels in a text, under the names of ``keys``."""
    module = tvm.script.from_source(text)
    renamed = {
        var: function.with_attr("global_symbol", keys[var.name_hint])
        for var, function in module.functions.items()
    }
    try:
        return tvm.compile(tvm.IRModule(renamed), target="llvm").mod
    except (RuntimeError, TypeError, ValueError) as error:
        raise InternalError(f"TVM does not compile the kernels: {error}") from error


def _is_missing(tvm: Any, module: Any, name: str) -> bool:
    """Whether TVM would not find a function, or would find what we lent for another program."""
    if any(library.implements_function(name, query_imports=True) for library in module.imports):
        return False
    return name in LENT_FUNCTIONS or tvm.get_global_func(name, allow_missing=True) is None
