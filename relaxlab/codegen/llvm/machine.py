r"""From LLVM IR text to machine code in memory, through llvmlite.

Everything that touches llvmlite is here. A module is compiled to an object file, which can be
kept, and an object file is linked into the process. Only functions marked ``alwaysinline`` are
inlined; no other pass runs, since the IR is written the way it shall be. Counterpart: the end of
TVM's LLVM back end.

Examples
--------
>>> code = machine().compile("define i64 @three() {\n ret i64 3\n}\n")
>>> linked = machine().link(code, ("three",))
>>> import ctypes
>>> ctypes.CFUNCTYPE(ctypes.c_int64)(linked.addresses["three"])()
3
"""

import itertools
import platform
import threading
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from relaxlab.codegen.llvm.host import Host, describe_host

__all__ = ["Linked", "Machine", "machine"]


@dataclass(frozen=True, slots=True)
class Linked:
    """Machine code in memory, as long as this object lives.

    Attributes
    ----------
    addresses
        Where each exported function starts.
    """

    addresses: dict[str, int]
    _tracker: Any = field(repr=False)


class Machine:
    """A compiler for one processor, and the process as a place to link to.

    Parameters
    ----------
    host
        The processor; this one when omitted.
    """

    def __init__(self, host: Host | None = None) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.host = host or _this_host()
        self.version = f"llvmlite {llvmlite.__version__} llvm {llvm.llvm_version_info}"
        target = llvm.Target.from_default_triple()
        self._target_machine = target.create_target_machine(
            cpu=self.host.cpu, features=self.host.features, opt=2, reloc="pic"
        )
        self._linker = llvm.create_lljit_compiler(self._target_machine)
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    def compile(self, text: str) -> bytes:
        """Return an object file for a module of LLVM IR.

        Raises
        ------
        RuntimeError
            If it is no valid IR.
        """
        with self._lock:
            code: bytes = self._target_machine.emit_object(self._module(text))
        return code

    def assembly(self, text: str) -> str:
        """Return the assembly text for a module of LLVM IR."""
        with self._lock:
            listing: str = self._target_machine.emit_assembly(self._module(text))
        return listing

    def _module(self, text: str) -> Any:
        module = llvm.parse_assembly(text)
        # the parser lets through what makes LLVM end the process
        module.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=0)
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.add_global_dead_code_eliminate_pass()
        passes.run(module, llvm.create_pass_builder(self._target_machine, options))
        return module

    def link(self, code: bytes, names: tuple[str, ...]) -> Linked:
        """Load an object file and return where its functions are.

        Raises
        ------
        RuntimeError
            If a function that it needs is not in this process.
        """
        library = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in names:
            library.export_symbol(name)
        with self._lock:
            tracker = library.link(self._linker, f"kernel-{next(self._numbers)}")
        return Linked({name: tracker[name] for name in names}, tracker)


def _this_host() -> Host:
    return describe_host(
        llvm.get_host_cpu_name(), dict(llvm.get_host_cpu_features()), platform.machine().lower()
    )


@cache
def machine(host: Host | None = None) -> Machine:
    """Return the compiler of this process for a host, made when first asked for."""
    return Machine(host)
