r"""Shared libraries as data: find the program that TVM puts into a ``.so`` without loading it.

Loading a library runs its code; reading it as bytes does not. TVM's ``export_library`` adds one
symbol whose name ends in ``__tvm_ffi__library_bin``, and one function ``__tvm_ffi_<name>`` for each
kernel. This module finds them in ELF, Mach-O and PE files, believing none of the numbers in there.
Counterpart: ``dlopen`` and ``dlsym`` in TVM's library module.

Examples
--------
>>> object_format(b"\x7fELF..."), object_format(b"MZ.."), object_format(b"plain text") is None
('ELF', 'PE', True)
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.errors import InternalError

__all__ = ["LIBRARY_SYMBOL", "OLD_LIBRARY_SYMBOL", "ObjectFile", "object_format", "read_object"]

LIBRARY_SYMBOL: Final = "__tvm_ffi__library_bin"
"""How the name of the symbol ends; in front of it stands the prefix of a system library."""

OLD_LIBRARY_SYMBOL: Final = "__tvm_dev_mblob"
"""What TVM before its FFI called it; the content had another layout."""

_KERNEL_PREFIX: Final = "__tvm_ffi_"
_BACKEND_PREFIX: Final = "__TVMBackend"
_LONGEST_NAME: Final = 4096

_FORMATS: Final = {
    b"\x7fELF": "ELF",
    b"\xcf\xfa\xed\xfe": "Mach-O",
    b"\xce\xfa\xed\xfe": "Mach-O",  # 32 bits
    b"\xfe\xed\xfa\xcf": "Mach-O",  # big-endian
    b"\xfe\xed\xfa\xce": "Mach-O",
    b"\xca\xfe\xba\xbe": "Mach-O",  # several architectures in one file
    b"\xca\xfe\xba\xbf": "Mach-O",
}


@dataclass(frozen=True, slots=True)
class ObjectFile:
    """What a shared library says about the program inside.

    Attributes
    ----------
    form
        ``"ELF"``, ``"Mach-O"`` or ``"PE"``.
    blob
        Offset in the file of the library blob, or None if no symbol leads to it.
    kernels
        Names of the kernels that the library exports.
    backend
        The pointers to functions of TVM's own runtime that its kernels call through.
    is_old
        Whether it has the symbol of TVM's old loader.
    """

    form: str
    blob: int | None
    kernels: frozenset[str]
    backend: frozenset[str]
    is_old: bool


def object_format(data: bytes | bytearray | memoryview) -> str | None:
    """Return ``"ELF"``, ``"Mach-O"`` or ``"PE"`` by the first bytes, or None."""
    head = bytes(data[:4])
    return "PE" if head[:2] == b"MZ" else _FORMATS.get(head)


def read_object(view: memoryview) -> ObjectFile:
    """Read the symbols of a shared library.

    Raises
    ------
    InternalError
        For a library of another word size or byte order than 64 bits little-endian, and for one
        whose tables lead out of the file.
    """
    form = object_format(view)
    match form:
        case "ELF":
            found = _elf(_Bytes(view, "ELF file"))
        case "Mach-O":
            found = _mach(_Bytes(view, "Mach-O file"))
        case "PE":
            found = _pe(_Bytes(view, "PE file"))
        case _:
            raise InternalError("expected an ELF, Mach-O or PE file")
    return _interpret(form, found)


@dataclass(frozen=True, slots=True)
class _Found:
    """Symbols that matter, by name, and how an address becomes an offset in the file."""

    symbols: dict[str, Any]
    offset_of: Any


def _interpret(form: str, found: _Found) -> ObjectFile:
    blob: int | None = None
    prefix = ""
    for name, address in found.symbols.items():
        if name.endswith(LIBRARY_SYMBOL):
            blob, prefix = found.offset_of(address), name.removesuffix(LIBRARY_SYMBOL)
            break
    kernels = set()
    for name in found.symbols:
        if name.startswith(_KERNEL_PREFIX) and not name.startswith("__tvm_ffi__library"):
            kernel = name.removeprefix(_KERNEL_PREFIX)
            # the functions of a system library carry its prefix, the bytecode does not
            kernels |= {kernel, kernel.removeprefix(prefix)}
    backend = frozenset(name for name in found.symbols if name.startswith(_BACKEND_PREFIX))
    is_old = OLD_LIBRARY_SYMBOL in found.symbols
    return ObjectFile(form, blob, frozenset(kernels), backend, is_old)


def _matters(name: str) -> bool:
    return name.startswith((_KERNEL_PREFIX, _BACKEND_PREFIX)) or name.endswith(
        (LIBRARY_SYMBOL, OLD_LIBRARY_SYMBOL)
    )


class _Bytes:
    """Bytes that are read by position; every position is checked."""

    def __init__(self, view: memoryview, what: str) -> None:
        self.view = view
        self.what = what

    def part(self, offset: int, size: int, what: str) -> memoryview:
        if offset + size > len(self.view):
            raise InternalError(
                f"{self.what}: {what} at bytes {offset} to {offset + size} is outside the file of "
                f"{len(self.view)} bytes: the file is cut or altered"
            )
        return self.view[offset : offset + size]

    def record(self, form: str, offset: int, what: str, order: str = "<") -> tuple[Any, ...]:
        form = order + form
        return struct.unpack(form, self.part(offset, struct.calcsize(form), what))

    def table(self, form: str, offset: int, count: int, what: str) -> Iterator[tuple[Any, ...]]:
        form = f"<{form}"
        return struct.iter_unpack(form, self.part(offset, count * struct.calcsize(form), what))


def _text(strings: bytes, start: int) -> str:
    """Return the zero-terminated text at ``start``, or nothing for one that is not sound."""
    end = strings.find(b"\0", start, start + _LONGEST_NAME)
    return strings[start:end].decode("utf-8", "replace") if end >= 0 else ""


# ---- ELF --------------------------------------------------------------------------------------

_SYMTAB: Final = 2
_DYNSYM: Final = 11


def _elf(file: _Bytes) -> _Found:
    word_size, order = file.record("2B", 4, "the header")
    if (word_size, order) != (2, 1):
        raise InternalError(
            f"the library is ELF{ {1: '32', 2: '64'}.get(word_size, ' of unknown size') }, "
            f"{ {1: 'little', 2: 'big'}.get(order, 'unknown') }-endian: expected ELF64 "
            "little-endian, such as x86-64 or aarch64 Linux; export it for such a machine"
        )
    (start,) = file.record("Q", 40, "the header")
    size, count = file.record("2H", 58, "the header")
    if count and size != 64:
        raise InternalError(f"ELF file: section headers of {size} bytes, expected 64")
    sections = list(file.table("2I4Q2I2Q", start, count, "the section table"))
    # a library keeps its dynamic symbols when it is stripped; an object file has only the others
    for kind in (_DYNSYM, _SYMTAB):
        table = next((one for one in sections if one[1] == kind), None)
        if table is not None:
            return _elf_symbols(file, sections, table)
    return _Found({}, None)


def _elf_symbols(file: _Bytes, sections: list[tuple[Any, ...]], table: tuple[Any, ...]) -> _Found:
    *_, offset, size, link, _info, _align, _entry = table
    if link >= len(sections):
        raise InternalError(f"ELF file: the symbols name section {link}, which does not exist")
    strings = bytes(file.part(sections[link][4], sections[link][5], "the symbol names"))
    symbols: dict[str, Any] = {}
    for name_at, _kind, _other, section, value, _size in file.table(
        "IBBHQQ", offset, size // 24, "the symbols"
    ):
        if section:  # 0: defined elsewhere
            name = _text(strings, name_at)
            if _matters(name):
                symbols.setdefault(name, (section, value))

    def offset_of(symbol: tuple[int, int]) -> int | None:
        section, value = symbol
        if section >= len(sections):
            return None
        _name, _kind, _flags, address, start, *_ = sections[section]
        return int(value - address + start) if value >= address else None

    return _Found(symbols, offset_of)


# ---- Mach-O -----------------------------------------------------------------------------------

_SEGMENT_64: Final = 0x19
_LOAD_SYMTAB: Final = 2
_MOST_SLICES: Final = 16


def _mach(file: _Bytes) -> _Found:
    (magic,) = file.record("I", 0, "the header", ">")
    if magic in (0xCAFEBABE, 0xCAFEBABF):
        return _mach_slices(file, "5I" if magic == 0xCAFEBABE else "2I2Q2I")
    return _mach_symbols(file, 0)


def _mach_slices(file: _Bytes, form: str) -> _Found:
    """Return the symbols of the first architecture that can be read."""
    (count,) = file.record("I", 4, "the header", ">")
    if count > _MOST_SLICES:
        raise InternalError(f"Mach-O file: {count} architectures, expected at most {_MOST_SLICES}")
    refusal: InternalError | None = None
    for index in range(count):
        at = 8 + index * struct.calcsize(f">{form}")
        _cpu, _subtype, start, size, *_ = file.record(form, at, "the architectures", ">")
        try:
            inner = _mach_symbols(_Bytes(file.part(start, size, "an architecture"), file.what), 0)
        except InternalError as error:
            refusal = error
            continue

        def offset_of(address: int, start: int = start, inner: _Found = inner) -> int | None:
            offset = inner.offset_of(address)
            return None if offset is None else int(start + offset)

        return _Found(inner.symbols, offset_of)
    raise refusal or InternalError("Mach-O file: it holds no architecture")


def _mach_symbols(file: _Bytes, start: int) -> _Found:
    (magic,) = file.record("I", start, "the header")
    if magic != 0xFEEDFACF:
        raise InternalError(
            f"the library is Mach-O with magic number {magic:#010x}: expected 64 bits "
            "little-endian (0xfeedfacf), such as x86-64 or arm64 macOS"
        )
    count, _size = file.record("2I", 16, "the header")
    segments: list[tuple[int, int, int]] = []
    table: tuple[Any, ...] | None = None
    at = 32
    for _ in range(count):
        command, size = file.record("2I", at, "a load command")
        if size < 8:
            raise InternalError(f"Mach-O file: a load command of {size} bytes at byte {at}")
        if command == _SEGMENT_64:
            address, _memory, offset, length = file.record("4Q", at + 24, "a segment")
            segments.append((address, offset, length))
        elif command == _LOAD_SYMTAB:
            table = file.record("4I", at + 8, "the symbol command")
        at += size
    if table is None:
        return _Found({}, None)
    offset, number, strings_at, strings_size = table
    strings = bytes(file.part(strings_at, strings_size, "the symbol names"))
    symbols: dict[str, Any] = {}
    for name_at, _kind, section, _flags, value in file.table(
        "IBBHQ", offset, number, "the symbols"
    ):
        if section:
            name = _text(strings, name_at).removeprefix("_")  # what C compilers put in front
            if _matters(name):
                symbols.setdefault(name, value)

    def offset_of(address: int) -> int | None:
        for start, offset, length in segments:
            if start <= address < start + length:
                return int(address - start + offset)
        return None

    return _Found(symbols, offset_of)


# ---- PE ---------------------------------------------------------------------------------------

_MOST_SECTIONS: Final = 96  # what Windows loads


def _pe(file: _Bytes) -> _Found:
    (header,) = file.record("I", 0x3C, "the header")
    if bytes(file.part(header, 4, "the PE header")) != b"PE\0\0":
        raise InternalError("the file starts as a Windows program, but has no PE header")
    _machine, count, *_, optional_size, _flags = file.record("2H3I2H", header + 4, "the header")
    if count > _MOST_SECTIONS:
        raise InternalError(f"PE file: {count} sections, expected at most {_MOST_SECTIONS}")
    optional = header + 24
    (magic,) = file.record("H", optional, "the optional header")
    if magic != 0x20B:
        raise InternalError(
            f"the library is PE with magic number {magic:#x}: expected 64 bits (0x20b)"
        )
    directories, exports = file.record("2I", optional + 108, "the directories")
    if not directories or not exports:
        return _Found({}, None)
    sections = [
        file.record("4I", optional + optional_size + 40 * index + 8, "a section")
        for index in range(count)
    ]

    def offset_of(address: int) -> int | None:
        for memory, start, size, offset in sections:
            if start <= address < start + max(memory, size):
                return int(address - start + offset)
        return None

    def place(address: int, what: str) -> int:
        offset = offset_of(address)
        if offset is None:
            raise InternalError(f"PE file: {what} at address {address:#x} is in no section")
        return offset

    # functions, names, and the tables of addresses, names and ordinals
    numbers = file.record("5I", place(exports, "the exports") + 20, "the exports")
    functions, names, *tables = numbers
    if not functions or not names:
        return _Found({}, offset_of)
    address_at, name_at, ordinal_at = (place(one, "a table of exports") for one in tables)
    addresses = [one[0] for one in file.table("I", address_at, functions, "exported addresses")]
    ordinals = file.table("H", ordinal_at, names, "exported ordinals")
    symbols: dict[str, Any] = {}
    for (name_address,), (ordinal,) in zip(
        file.table("I", name_at, names, "exported names"), ordinals, strict=True
    ):
        start = offset_of(name_address)
        if start is None or ordinal >= len(addresses):
            continue
        name = _text(bytes(file.view[start : start + _LONGEST_NAME]), 0)
        if _matters(name):
            symbols.setdefault(name, addresses[ordinal])
    return _Found(symbols, offset_of)
