"""Named pieces of bytes in one file: a zip with everything left out that zips can do.

The members of a saved library are stored, not compressed: the same content gives the same bytes on
every machine whatever its zlib, the file can be opened with any zip tool, and reading one never
needs more memory than the file is long. Times and permissions are constants. Counterpart: none.

Examples
--------
>>> data = write_archive({"a": b"1", "b": b"22"})
>>> read_archive(data) == {"a": b"1", "b": b"22"} and data == write_archive(read_archive(data))
True
"""

import io
import struct
import zipfile
from collections.abc import Mapping
from typing import Final

from relaxlab.errors import InternalError

__all__ = ["ARCHIVE_MAGIC", "read_archive", "write_archive"]

ARCHIVE_MAGIC: Final = b"PK\3\4"

_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
_PERMISSIONS: Final = 0o100644 << 16
_MOST_MEMBERS: Final = 4096

# What `zipfile` raises for altered bytes; it documents only the first.
_REFUSALS: Final = (
    zipfile.BadZipFile,
    zipfile.LargeZipFile,
    EOFError,
    LookupError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    ValueError,
    struct.error,
)


def write_archive(members: Mapping[str, bytes]) -> bytes:
    """Return a file that holds ``members`` in their order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name, _NO_TIME)
            info.create_system = _UNIX
            info.external_attr = _PERMISSIONS
            archive.writestr(info, content)
    return buffer.getvalue()


def read_archive(data: bytes | bytearray | memoryview) -> dict[str, bytes]:
    """Return the members of a file that :func:`write_archive` made.

    Raises
    ------
    InternalError
        For altered or cut bytes, compressed or encrypted members, two members of one name, and
        members that together are longer than the file.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            infos = archive.infolist()
            _check(infos, len(data))
            return {info.filename: archive.read(info) for info in infos}
    except InternalError:
        raise
    except _REFUSALS as error:
        raise InternalError(f"the archive is cut or altered: {error}") from None


def _check(infos: list[zipfile.ZipInfo], size: int) -> None:
    if len(infos) > _MOST_MEMBERS:
        raise InternalError(
            f"the archive has {len(infos)} members, expected at most {_MOST_MEMBERS}"
        )
    seen: set[str] = set()
    for info in infos:
        if info.filename in seen:
            raise InternalError(f"the archive has two members called {info.filename!r}")
        seen.add(info.filename)
        if info.flag_bits & 1:
            raise InternalError(f"member {info.filename!r} is encrypted")
        if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
            raise InternalError(
                f"member {info.filename!r} is compressed: the members of a saved library are "
                "stored, so that reading one needs no more memory than the file; save it again"
            )
    total = sum(info.file_size for info in infos)
    if total > size:
        raise InternalError(
            f"the members have {total} bytes together, the whole archive has {size}: they overlap"
        )
