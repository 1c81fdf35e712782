"""The data type of a tensor element: code, bits and lanes.

One value class is used from files to kernels, so a dtype prints, compares and converts in one
way. Counterpart: ``tvm.DataType`` / DLPack's ``DLDataType``; the codes and spellings are theirs.

Examples
--------
>>> DataType("float32x4")
DataType("float32x4")
>>> DataType("bfloat16").bits, DataType("int64") == "int64"
(16, True)
"""

import re
from functools import cache
from typing import Any, ClassVar, Final, Union

import ml_dtypes
import numpy as np

__all__ = ["DataType", "DataTypeCode", "dtype_of"]


class DataTypeCode:
    """The numbers DLPack gives to kinds of element."""

    INT: Final = 0
    UINT: Final = 1
    FLOAT: Final = 2
    HANDLE: Final = 3
    BFLOAT: Final = 4
    COMPLEX: Final = 5
    BOOL: Final = 6


_NAMES: Final = {
    0: "int",
    1: "uint",
    2: "float",
    3: "handle",
    4: "bfloat",
    5: "complex",
    6: "bool",
    7: "float8_e3m4",
    8: "float8_e4m3",
    9: "float8_e4m3b11fnuz",
    10: "float8_e4m3fn",
    11: "float8_e4m3fnuz",
    12: "float8_e5m2",
    13: "float8_e5m2fnuz",
    14: "float8_e8m0fnu",
    15: "float6_e2m3fn",
    16: "float6_e3m2fn",
    17: "float4_e2m1fn",
}
_CODES: Final = {name: code for code, name in _NAMES.items()}
_SMALL_FLOAT_BITS: Final = dict.fromkeys(range(7, 15), 8) | {15: 6, 16: 6, 17: 4}
_DEFAULT_BITS: Final = {"int": 32, "uint": 32, "float": 32, "handle": 64, "bfloat": 16, "bool": 8}
_PATTERN: Final = re.compile(
    r"(float8_e\w+?|float6_e\w+?|float4_e\w+?|int|uint|float|bfloat|handle|bool)(\d*)"
    r"(?:x(\d+)|xvscalex(\d+))?"
)
_SMALL_FLOAT_PATTERN: Final = re.compile(
    "("
    + "|".join(_NAMES[code] for code in sorted(range(7, 18), key=lambda c: -len(_NAMES[c])))
    + r")(?:x(\d+)|xvscalex(\d+))?"
)


class DataType:
    """An element type; immutable, hashable, equal to its own spelling.

    Parameters
    ----------
    spelling
        A name such as ``"float32"``, ``"int8x4"``, ``"bool"``, ``"handle"``, ``"void"``, or
        another ``DataType``, or a NumPy dtype or scalar type.

    Raises
    ------
    ValueError
        If the spelling names no type.
    """

    __slots__ = ("_text", "bits", "code", "lanes")
    code: int
    bits: int
    lanes: int
    _text: str

    _interned: ClassVar[dict[tuple[int, int, int], "DataType"]] = {}

    def __new__(  # noqa: PYI034  # instances are interned, subclasses make no sense
        cls, spelling: Union[str, "DataType", np.dtype[Any], type]
    ) -> "DataType":
        """Return the one object of that type."""
        if isinstance(spelling, DataType):
            return spelling
        if not isinstance(spelling, str):
            spelling = str(np.dtype(spelling))
        return cls.make(*_parse(spelling))

    @classmethod
    def make(cls, code: int, bits: int, lanes: int = 1) -> "DataType":
        """Build from DLPack's three numbers; the same numbers give the same object."""
        key = (code, bits, lanes)
        found = cls._interned.get(key)
        if found is None:
            found = object.__new__(cls)
            object.__setattr__(found, "code", code)
            object.__setattr__(found, "bits", bits)
            object.__setattr__(found, "lanes", lanes)
            object.__setattr__(found, "_text", _spell(code, bits, lanes))
            # setdefault, so that two threads agree on one object
            found = cls._interned.setdefault(key, found)
        return found

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("DataType is immutable")

    def __reduce__(self) -> tuple[object, tuple[int, int, int]]:
        return (DataType.make, (self.code, self.bits, self.lanes))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f'DataType("{self._text}")'

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, str):
            try:
                return DataType(other) is self
            except ValueError:
                return False
        return False

    def __hash__(self) -> int:
        return hash(self._text)

    @property
    def itemsize(self) -> int:
        """Bytes of one element, rounded up; all lanes counted."""
        return (self.bits * self.lanes + 7) // 8

    @property
    def is_int(self) -> bool:
        """Whether it is a signed integer."""
        return self.code == DataTypeCode.INT

    @property
    def is_uint(self) -> bool:
        """Whether it is an unsigned integer; bool is not."""
        return self.code == DataTypeCode.UINT

    @property
    def is_float(self) -> bool:
        """Whether it is any floating point kind, bfloat16 and the 8-bit ones included."""
        return self.code in (2, 4) or 7 <= self.code <= 17

    @property
    def is_bool(self) -> bool:
        """Whether it is a boolean."""
        return self.code == DataTypeCode.BOOL

    @property
    def is_handle(self) -> bool:
        """Whether it is a pointer."""
        return self.code == DataTypeCode.HANDLE and not self.is_void

    @property
    def is_void(self) -> bool:
        """Whether it is the type of no value."""
        return (self.code, self.bits, self.lanes) == (3, 0, 0)

    def with_lanes(self, lanes: int) -> "DataType":
        """Return the vector type of ``lanes`` such elements."""
        return DataType.make(self.code, self.bits, lanes)

    def numpy(self) -> np.dtype[Any]:
        """Return the NumPy dtype of one element (``ml_dtypes`` supplies the narrow floats).

        Raises
        ------
        TypeError
            If NumPy has no such element: vectors and handles.
        """
        return _numpy_dtype(self)


@cache
def _parse(text: str) -> tuple[int, int, int]:
    if text in ("", "void"):
        return (3, 0, 0)
    small = _SMALL_FLOAT_PATTERN.fullmatch(text)
    if small:
        name, fixed, scalable = small.groups()
        code = _CODES[name]
        bits = _SMALL_FLOAT_BITS[code]
    else:
        match = _PATTERN.fullmatch(text)
        if match is None or match.group(1) not in _CODES:
            raise ValueError(
                f"unknown dtype {text!r}: expected a name such as 'float32', 'int64', 'bool'"
            )
        name, digits, fixed, scalable = match.groups()
        code = _CODES[name]
        if name == "handle" and digits:
            raise ValueError(f"unknown dtype {text!r}: 'handle' takes no width")
        bits = int(digits) if digits else _DEFAULT_BITS[name]
    lanes = int(fixed) if fixed else -int(scalable) if scalable else 1
    if not 0 < bits <= 255 or not -32768 <= lanes <= 32767 or lanes == 0:
        raise ValueError(f"unknown dtype {text!r}: width or lane count out of range")
    return (code, bits, lanes)


def _spell(code: int, bits: int, lanes: int) -> str:
    if (code, bits, lanes) == (3, 0, 0):
        return ""
    if code == DataTypeCode.HANDLE:
        return "handle"
    if code == DataTypeCode.BOOL and (bits, lanes) == (8, 1):
        return "bool"
    text = _NAMES.get(code, f"custom[{code}]")
    if code < 7 and not (code == DataTypeCode.BOOL and bits == 8):
        text += str(bits)
    if lanes > 1:
        text += f"x{lanes}"
    elif lanes < -1:
        text += f"xvscalex{-lanes}"
    return text


@cache
def _numpy_dtype(dtype: DataType) -> np.dtype[Any]:
    if dtype.lanes == 1:
        if dtype.code == DataTypeCode.BOOL:
            return np.dtype(np.bool_)
        narrow = getattr(ml_dtypes, str(dtype), None)
        if narrow is not None:
            element: np.dtype[Any] = np.dtype(narrow)
            return element
        if dtype.code in (0, 1, 2) and dtype.bits in (8, 16, 32, 64):
            return np.dtype(str(dtype))
        if dtype.code == DataTypeCode.UINT and dtype.bits == 1:
            return np.dtype(np.bool_)
    raise TypeError(f"dtype {str(dtype)!r} has no NumPy element type")


@cache
def dtype_of(dtype: np.dtype[Any]) -> DataType:
    """Return the data type of a NumPy array's elements."""
    return DataType(dtype.name)
