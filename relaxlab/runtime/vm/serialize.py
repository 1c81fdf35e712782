"""Executable to bytes and back: TVM's file format, read with suspicion.

Saving writes what TVM writes (format V2), to the byte. Loading believes nothing: every count and
length is compared with what is left before anything is allocated, so altered bytes give one clear
error that names the section and the byte offset, never a hang or a huge allocation. Counterpart:
``VMExecutable::SaveToBytes`` and ``LoadFromBytes``; TVM overlooks some truncated payloads and
trailing bytes, we refuse them.

Examples
--------
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> write_executable(VMExecutable())[:8].hex()
'1e1514422fde25d2'
"""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.bytecode import INT64_MAX, INT64_MIN, VMFuncInfo

if TYPE_CHECKING:
    from relaxlab.runtime.vm.executable import VMExecutable

__all__ = [
    "ByteReader",
    "ConstantKind",
    "MAGIC_V1",
    "MAGIC_V2",
    "Sections",
    "TENSOR_MAGIC",
    "VERSION",
    "as_view",
    "read_executable",
    "read_sections",
    "read_tensor",
    "write_executable",
    "write_tensor",
]

MAGIC_V1: Final = 0xD225DE2F4214151D
"""Files without a section of memory scopes; read, never written."""

MAGIC_V2: Final = 0xD225DE2F4214151E
VERSION: Final = "0.14"
TENSOR_MAGIC: Final = 0xDD5E40F096B4A13F

_CPU: Final = 1
_MAX_NDIM: Final = 32
_MIN_FUNC_BYTES: Final = 52
_MIN_CONSTANT_BYTES: Final = 8
_MIN_SCOPE_BYTES: Final = 16


class ConstantKind(IntEnum):
    """The number in front of a constant: its FFI type index."""

    INT = 1
    FLOAT = 3
    DTYPE = 5
    STRING = 65
    SHAPE = 69
    TENSOR = 70


@dataclass(frozen=True, slots=True)
class Sections:
    """What the bytes hold, before anybody trusts it."""

    func_table: tuple[VMFuncInfo, ...]
    memory_scopes: dict[int, str]
    constants: tuple[Any, ...]
    instr_offset: NDArray[np.int64]
    instr_data: NDArray[np.int64]


class ByteReader:
    """A cursor over untrusted bytes; every refusal names a section and an offset.

    Parameters
    ----------
    data
        The bytes.
    what
        What they claim to be, for messages.
    base
        Offset of ``data`` in the file, added to the offsets in messages.
    """

    def __init__(self, data: memoryview, what: str = "executable", base: int = 0) -> None:
        self.data = data
        self.what = what
        self.base = base
        self.at = 0
        self.section = "header"

    @property
    def left(self) -> int:
        """Bytes that were not read yet."""
        return len(self.data) - self.at

    def error(self, message: str, at: int | None = None) -> InternalError:
        """Return (not raise) an error at byte ``at``, by default the current one."""
        offset = self.base + (self.at if at is None else at)
        return InternalError(f"{self.what}, section '{self.section}', byte {offset}: {message}")

    def take(self, count: int, what: str) -> memoryview:
        """Return the next ``count`` bytes."""
        if count > self.left:
            raise self.error(f"expected {count} bytes of {what}, got {self.left}: the data is cut")
        start = self.at
        self.at += count
        return self.data[start : self.at]

    def number(self, form: str, what: str) -> Any:
        """Return one little-endian number of a ``struct`` format character."""
        (value,) = struct.unpack(f"<{form}", self.take(struct.calcsize(f"<{form}"), what))
        return value

    def count(self, what: str, least: int) -> int:
        """Return a count of items of at least ``least`` bytes each; all must fit what is left."""
        start = self.at
        value: int = self.number("Q", f"the number of {what}")
        if value * least > self.left:
            raise self.error(
                f"{value} {what} need at least {value * least} bytes, {self.left} are left", start
            )
        return value

    def string(self, what: str) -> str:
        """Return a string: its length in bytes, then UTF-8."""
        length = self.count(f"bytes of {what}", 1)
        start = self.at
        try:
            return str(self.take(length, what), "utf-8")
        except UnicodeDecodeError as error:
            raise self.error(f"{what} is not UTF-8: {error.reason}", start + error.start) from None

    def words(self, what: str) -> NDArray[np.int64]:
        """Return a vector of signed 64-bit words."""
        count = self.count(what, 8)
        return np.frombuffer(self.take(8 * count, what), dtype="<i8").astype(np.int64)

    def finish(self) -> None:
        """Refuse bytes that are left over."""
        if self.left:
            raise self.error(f"expected the end, {self.left} more bytes follow")


def read_executable(
    data: bytes | bytearray | memoryview, base: int = 0, *, exact: bool = True
) -> Sections:
    """Read the bytes of an executable.

    Parameters
    ----------
    data
        Format V1 or V2.
    base
        Offset of ``data`` in its file, for messages.
    exact
        Whether bytes behind the last section are refused.

    Raises
    ------
    InternalError
        For anything but a complete file of a known version; names section and byte offset.
    TypeError
        If ``data`` is not bytes.
    """
    reader = ByteReader(as_view(data, "an executable"), base=base)
    magic = reader.number("Q", "the magic number")
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise reader.error(
            f"unknown magic number {magic:#018x}, expected {MAGIC_V2:#018x} (V2) or "
            f"{MAGIC_V1:#018x} (V1): this is not a Relax executable",
            0,
        )
    sections = read_sections(reader, has_scopes=magic == MAGIC_V2)
    if exact:
        reader.finish()
    return sections


def as_view(data: bytes | bytearray | memoryview, what: str) -> memoryview:
    """Return the bytes without a copy; a ``TypeError`` for anything else."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"expected the bytes of {what}, got {type(data).__name__}")
    return memoryview(data).cast("B")


def read_sections(reader: ByteReader, *, has_scopes: bool) -> Sections:
    """Read everything behind the magic number; V1 has no memory scopes."""
    reader.section = "version"
    start = reader.at
    version = reader.string("the version")
    if version != VERSION:
        raise reader.error(
            f"found version {version!r}, expected {VERSION!r}: compile the module again with a "
            f"compiler that writes {VERSION}, such as relaxlab or TVM 0.27",
            start,
        )
    reader.section = "function table"
    funcs = tuple(_read_function(reader) for _ in range(reader.count("functions", _MIN_FUNC_BYTES)))
    scopes: dict[int, str] = {}
    if has_scopes:
        reader.section = "memory scopes"
        for _ in range(reader.count("memory scopes", _MIN_SCOPE_BYTES)):
            index = reader.number("q", "a constant index")
            scopes[index] = reader.string("a memory scope")
    reader.section = "constants"
    constants = tuple(
        _read_constant(reader) for _ in range(reader.count("constants", _MIN_CONSTANT_BYTES))
    )
    reader.section = "instruction offsets"
    instr_offset = reader.words("instruction offsets")
    reader.section = "instruction data"
    instr_data = reader.words("words of instructions")
    return Sections(funcs, scopes, constants, instr_offset, instr_data)


def _read_function(reader: ByteReader) -> VMFuncInfo:
    kind = reader.number("i", "a function kind")
    name = reader.string("a function name")
    start, end, num_args, size = struct.unpack("<4q", reader.take(32, f"the numbers of {name!r}"))
    names = tuple(
        reader.string(f"a parameter name of {name!r}")
        for _ in range(reader.count(f"parameter names of {name!r}", 8))
    )
    return VMFuncInfo(kind, name, start, end, num_args, size, names)


def _read_constant(reader: ByteReader) -> Any:
    start = reader.at
    kind = reader.number("i", "a constant kind")
    match kind:
        case ConstantKind.INT:
            return reader.number("q", "an int constant")
        case ConstantKind.FLOAT:
            return reader.number("d", "a float constant")
        case ConstantKind.DTYPE:
            return _read_dtype(reader)
        case ConstantKind.STRING:
            return reader.string("a string constant")
        case ConstantKind.SHAPE:
            return ShapeTuple(reader.words("extents of a shape constant").tolist())
        case ConstantKind.TENSOR:
            return read_tensor(reader)
        case _:
            known = ", ".join(f"{one.value} ({one.name.lower()})" for one in ConstantKind)
            raise reader.error(f"unknown constant kind {kind}, expected one of {known}", start)


def _read_dtype(reader: ByteReader) -> DataType:
    code, bits, lanes = struct.unpack("<BBH", reader.take(4, "a dtype"))
    return DataType.make(code, bits, lanes - 65536 if lanes > 32767 else lanes)


def read_tensor(reader: ByteReader) -> Tensor:
    """Read one tensor record (also used by parameter files).

    Raises
    ------
    InternalError
        For a wrong magic number, another device than the CPU, a dtype that memory cannot hold, or
        a size that does not match the shape.
    """
    start = reader.at
    magic = reader.number("Q", "a tensor's magic number")
    if magic != TENSOR_MAGIC:
        raise reader.error(
            f"unknown tensor magic {magic:#018x}, expected {TENSOR_MAGIC:#018x}", start
        )
    reader.number("Q", "a tensor's reserved word")
    start = reader.at
    device_type, _device_id, ndim = struct.unpack("<3i", reader.take(12, "a tensor header"))
    if device_type != _CPU:
        raise reader.error(f"tensor on device type {device_type}, expected 1 (cpu)", start)
    if not 0 <= ndim <= _MAX_NDIM:
        raise reader.error(f"tensor of rank {ndim}, expected 0 to {_MAX_NDIM}", start + 8)
    start = reader.at
    dtype = _read_dtype(reader)
    try:
        element = dtype.numpy()
    except TypeError:
        raise reader.error(
            f"cannot hold a tensor of dtype (code {dtype.code}, {dtype.bits} bits, "
            f"{dtype.lanes} lanes)",
            start,
        ) from None
    start = reader.at
    shape = struct.unpack(f"<{ndim}q", reader.take(8 * ndim, "a tensor's shape"))
    if any(extent < 0 for extent in shape):
        raise reader.error(f"tensor shape {shape} has a negative extent", start)
    count = 1
    for extent in shape:
        count *= extent
    size = (dtype.bits + 7) // 8 * count
    start = reader.at
    stated = reader.number("q", "a tensor's size")
    if stated != size:
        raise reader.error(
            f"a {dtype} tensor of shape {shape} has {size} bytes, the file says {stated}", start
        )
    raw = reader.take(size, "a tensor's data")
    try:
        array = np.frombuffer(raw, element).reshape(shape).copy()
    except ValueError as error:  # a zero extent beside an enormous one
        raise reader.error(f"cannot hold a tensor of shape {shape}: {error}", start) from None
    return Tensor(array, dtype)


# ---- writing --------------------------------------------------------------------------------


def write_executable(ex: "VMExecutable") -> bytes:
    """Return the bytes of an executable in format V2.

    Raises
    ------
    InternalError
        For a constant that the format cannot hold; names its index and kind.
    """
    parts = [struct.pack("<Q", MAGIC_V2), _string(VERSION), struct.pack("<Q", len(ex.func_table))]
    for info in ex.func_table:
        parts += [struct.pack("<i", info.kind), _string(info.name)]
        parts.append(
            struct.pack(
                "<4qQ",
                info.start_instr,
                info.end_instr,
                info.num_args,
                info.register_file_size,
                len(info.param_names),
            )
        )
        parts += map(_string, info.param_names)
    parts.append(struct.pack("<Q", len(ex.memory_scopes)))
    for index, scope in ex.memory_scopes.items():
        parts += [struct.pack("<q", index), _string(scope)]
    parts.append(struct.pack("<Q", len(ex.constants)))
    parts += [_constant(index, value) for index, value in enumerate(ex.constants)]
    for words in (ex.instr_offset, ex.instr_data):
        parts += [struct.pack("<Q", len(words)), words.astype("<i8").tobytes()]
    return b"".join(parts)


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _constant(index: int, value: Any) -> bytes:
    match value:
        case bool():
            pass  # a bool is an int to Python, but not to the format
        case Tensor():
            try:
                return struct.pack("<i", ConstantKind.TENSOR) + write_tensor(value)
            except InternalError as error:
                raise InternalError(f"cannot save constant {index}: {error}") from None
        case ShapeTuple():
            return struct.pack(f"<iQ{len(value)}q", ConstantKind.SHAPE, len(value), *value)
        case str():
            return struct.pack("<i", ConstantKind.STRING) + _string(value)
        case int() if INT64_MIN <= value <= INT64_MAX:
            return struct.pack("<iq", ConstantKind.INT, value)
        case float():
            return struct.pack("<id", ConstantKind.FLOAT, value)
        case DataType():
            return struct.pack("<i", ConstantKind.DTYPE) + _dtype(value)
        case _:
            pass
    kinds = ", ".join(one.name.lower() for one in ConstantKind)
    raise InternalError(
        f"cannot save constant {index}: a value of type {type(value).__name__} has no place in the "
        f"file format, expected one of {kinds}"
    )


def _dtype(dtype: DataType) -> bytes:
    return struct.pack("<BBH", dtype.code, dtype.bits, dtype.lanes & 0xFFFF)


def write_tensor(value: Tensor) -> bytes:
    """Return one tensor record: header, shape, size, compact row-major data.

    Raises
    ------
    InternalError
        For a vector dtype: the format has room for one lane only, TVM writes it cut off.
    """
    dtype = value.dtype
    if dtype.lanes != 1:
        raise InternalError(f"the file format cannot hold a tensor of vector dtype {dtype}")
    shape = tuple(int(extent) for extent in value.shape)
    raw = value.array.tobytes()
    header = struct.pack("<QQ3i", TENSOR_MAGIC, 0, _CPU, 0, len(shape))
    extents = struct.pack(f"<{len(shape)}q", *shape)
    return header + _dtype(dtype) + extents + struct.pack("<q", len(raw)) + raw
