"""The executable: function table, constants and bytecode of one compiled module.

It is plain data with a few doors: bytes in and out, three text forms, and the list of imported
kernel libraries. Running it is the business of the virtual machine. Counterpart: TVM's
``VMExecutable``; ours is wrapper and module in one (``ex.mod`` is ``ex``), and saving, printing or
running never changes it.

Examples
--------
>>> ex = VMExecutable()
>>> len(ex.save_to_bytes()), VMExecutable.load_from_bytes(ex.save_to_bytes()).as_text()
(60, '')
"""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from relaxlab.errors import InternalError
from relaxlab.registry import Registry
from relaxlab.runtime.staged_files import write_whole
from relaxlab.runtime.vm.bytecode import Instruction, VMFuncInfo, VMFuncKind, decode
from relaxlab.runtime.vm.disassemble import as_python, as_text, stats
from relaxlab.runtime.vm.library_file import NAMELESS, read_library
from relaxlab.runtime.vm.saved_library import write_saved_library
from relaxlab.runtime.vm.serialize import write_executable
from relaxlab.runtime.vm.source_map import SourceMap
from relaxlab.runtime.vm.verify import verify_executable

__all__ = [
    "KernelLibrary",
    "MODULE_FUNCTIONS",
    "VMExecutable",
    "VMFuncInfo",
    "VMFuncKind",
    "load_module",
]


@runtime_checkable
class KernelLibrary(Protocol):
    """What an executable imports: compiled kernels found by name."""

    @property
    def kind(self) -> str:
        """Short word for the kind of library, such as ``"numpy"``."""

    @property
    def imports(self) -> "list[KernelLibrary]":
        """Libraries to search when this one lacks a name."""

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """Return the kernel called ``name``, or None."""


class VMExecutable:
    """A compiled Relax module.

    Parameters
    ----------
    func_table
        Entries in order of declaration.
    constants
        Pool of values: tensors, shapes, strings, integers, floats, dtypes, ...
    memory_scopes
        Scope string of constants placed on a virtual device, by constant index.
    instr_offset, instr_data
        Word offset of each instruction, and all words.
    imports
        Kernel libraries, searched in order.

    Attributes
    ----------
    source_map
        Which lines of the program each instruction runs; empty when it is not known.
    """

    kind: Final = "relax.VMExecutable"

    def __init__(
        self,
        func_table: Iterable[VMFuncInfo] = (),
        constants: Iterable[Any] = (),
        memory_scopes: Mapping[int, str] | None = None,
        instr_offset: "Iterable[int] | NDArray[np.int64]" = (),
        instr_data: "Iterable[int] | NDArray[np.int64]" = (),
        imports: Iterable[KernelLibrary] = (),
    ) -> None:
        self.func_table: list[VMFuncInfo] = list(func_table)
        self.constants: list[Any] = list(constants)
        self.memory_scopes: dict[int, str] = dict(memory_scopes or {})
        self.instr_offset: NDArray[np.int64] = _words(instr_offset)
        self.instr_data: NDArray[np.int64] = _words(instr_data)
        self.imports: list[KernelLibrary] = list(imports)
        self.source_map = SourceMap()

    # ---- looking in -------------------------------------------------------------------------

    @property
    def mod(self) -> "VMExecutable":
        """The executable as a module; TVM keeps two objects, here it is the same one."""
        return self

    @property
    def func_map(self) -> dict[str, int]:
        """Index into ``func_table`` by name; of two entries with one name the later wins."""
        return {info.name: index for index, info in enumerate(self.func_table)}

    @property
    def num_instructions(self) -> int:
        """Number of instructions of all functions together."""
        return len(self.instr_offset)

    def instruction(self, index: int) -> Instruction:
        """Decode instruction ``index``; an unknown opcode or index is an ``InternalError``."""
        if not 0 <= index < len(self.instr_offset):
            raise InternalError(
                f"instruction index {index} is out of range: "
                f"the executable has {len(self.instr_offset)} instructions"
            )
        return decode(self.instr_data, int(self.instr_offset[index]))

    def function_at(self, index: int) -> VMFuncInfo | None:
        """Return the bytecode function whose range holds instruction ``index``, or None."""
        for info in self.func_table:
            if info.kind == VMFuncKind.VM_FUNC and info.start_instr <= index < info.end_instr:
                return info
        return None

    def has_function(self, name: str) -> bool:
        """Whether the table has an entry of that name; packed functions count too."""
        return any(info.name == name for info in self.func_table)

    def as_text(self) -> str:
        """Return the disassembly, to the byte what TVM prints."""
        return as_text(self)

    def as_python(self) -> str:
        """Return a program of builder calls, to the byte what TVM prints."""
        return as_python(self)

    def stats(self) -> str:
        """Return three lines on constants and functions."""
        return stats(self)

    # ---- modules ----------------------------------------------------------------------------

    def import_module(self, library: KernelLibrary) -> None:
        """Append a kernel library; what is not one is a ``TypeError``."""
        if not isinstance(library, KernelLibrary):
            raise TypeError(
                "expected a kernel library with kind, imports and get_function, "
                f"got {type(library).__name__}"
            )
        self.imports.append(library)

    def jit(self) -> "VMExecutable":
        """Return itself: kernels are compiled when they are imported."""
        return self

    def __getitem__(self, name: str) -> Callable[..., Any]:
        """Return a module function: ``stats``, ``as_text``, ``as_python``, ``has_function``, ..."""
        function = MODULE_FUNCTIONS.find(name)
        if function is None:
            hint = (
                "; it is in the function table: call it through a VirtualMachine"
                if self.has_function(name)
                else ""
            )
            raise AttributeError(f"an executable has no module function {name!r}{hint}")

        def bound(*args: Any) -> Any:
            return function(self, *args)

        return bound

    # ---- bytes ------------------------------------------------------------------------------

    def save_to_bytes(self) -> bytes:
        """Return the file content, byte for byte what TVM writes (format V2).

        Raises
        ------
        InternalError
            If a constant is of a kind that the format cannot hold; it names index and kind.
        """
        return write_executable(self)

    def write_to_file(self, path: str | os.PathLike[str]) -> None:
        """Write ``save_to_bytes()`` to ``path``; the old file stays until the new one is whole."""
        write_whole(path, self.save_to_bytes())

    def export_library(self, path: str | os.PathLike[str]) -> None:
        """Write the program with its kernels to one file, ``model.rlx``.

        The file is data: bytecode in TVM's format, kernels as text, the source map if there is
        one, and what they hash to. It is a zip archive, with the same bytes for the same program.
        The old file stays until the new one is whole.

        Raises
        ------
        InternalError
            If a constant has no place in the format, or an imported library exists only as code.
        """
        write_whole(path, write_saved_library(self))

    @classmethod
    def load_from_bytes(
        cls,
        data: bytes | bytearray | memoryview,
        verify: bool = True,
        *,
        origin: str = NAMELESS,
    ) -> "VMExecutable":
        """Read an executable from bytes; their content says what they are.

        Parameters
        ----------
        data
            An executable (format V1 or V2), a library blob whose root is one, a saved library, or
            a shared library that TVM exported. Kernels in machine code are known by name, and
            refuse to run.
        verify
            Whether to check that the program can run safely (see ``verify.py``).
        origin
            What messages call the data.

        Raises
        ------
        InternalError
            For altered, cut or unknown bytes (section and byte offset), and, with ``verify``,
            for an unsafe program (function, instruction, word and rule).
        """
        found = read_library(data, origin)
        sections = found.sections
        ex = cls(
            sections.func_table,
            sections.constants,
            sections.memory_scopes,
            sections.instr_offset,
            sections.instr_data,
            found.imports,
        )
        ex.source_map = found.source_map
        if verify:
            verify_executable(ex)
        return ex

    @classmethod
    def load_from_file(cls, path: str | os.PathLike[str], verify: bool = True) -> "VMExecutable":
        """Read a file of any form that :meth:`load_from_bytes` knows."""
        path = Path(path)
        return cls.load_from_bytes(path.read_bytes(), verify, origin=path.name)

    def __repr__(self) -> str:
        return (
            f"VMExecutable({len(self.func_table)} functions, {len(self.constants)} constants, "
            f"{self.num_instructions} instructions)"
        )


def load_module(path: str | os.PathLike[str], verify: bool = True) -> VMExecutable:
    """Read a program and its kernels from a file; TVM's name for ``VMExecutable.load_from_file``.

    Parameters
    ----------
    path
        What ``export_library`` wrote, here or in TVM, or the bytes of an executable.
    verify
        Whether to check that the program can run safely.

    Raises
    ------
    InternalError
        If the file is none of these, was altered, or holds an unsafe program.
    """
    return VMExecutable.load_from_file(path, verify)


def _words(values: "Iterable[int] | NDArray[np.int64]") -> NDArray[np.int64]:
    if not isinstance(values, np.ndarray):
        values = np.array(list(values), dtype=np.int64)
    return np.ascontiguousarray(values, dtype=np.int64)


MODULE_FUNCTIONS: Final[Registry[Callable[..., Any]]] = Registry("executable function")
"""What ``ex[name]`` finds; the virtual machine adds ``vm_load_executable``."""

MODULE_FUNCTIONS.register("stats", VMExecutable.stats)
MODULE_FUNCTIONS.register("as_text", VMExecutable.as_text)
MODULE_FUNCTIONS.register("as_python", VMExecutable.as_python)
MODULE_FUNCTIONS.register("has_function", VMExecutable.has_function)
