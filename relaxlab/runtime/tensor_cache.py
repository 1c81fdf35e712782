"""Tensor cache folders: weights in shards of raw bytes with a JSON index, in TVM's format.

A folder holds ``tensor-cache.json`` and shards; float32 weights may be stored as their upper half
(bfloat16). What TVM writes we read, and what we write is what TVM writes, to the byte. A folder is
written as a whole or not at all, and read with suspicion. Counterpart:
``tvm.contrib.tvmjs.dump_tensor_cache`` and ``load_tensor_cache``.

Examples
--------
>>> import tempfile
>>> folder = tempfile.mkdtemp()
>>> dump_tensor_cache({"w": np.ones(3, "float32")}, folder, meta_data={"from": "docs"})
>>> params, metadata = load_tensor_cache(folder)
>>> params["w"].numpy().tolist(), metadata
([1.0, 1.0, 1.0], {'from': 'docs'})
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.device import Device
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.staged_files import StagedFiles
from relaxlab.runtime.tensor import Tensor, require_cpu, tensor

__all__ = ["bfloat16_bits", "dump_tensor_cache", "load_tensor_cache"]

_INDEX: Final = "tensor-cache.json"
_HALF_INDEX: Final = "tensor-cache-b16.json"
_HALVES: Final = "f32-to-bf16"
_FORMATS: Final = ("raw", _HALVES)
_MEGABYTE: Final = 2**20
_LARGEST_BFLOAT16: Final = 0x7F7F0000

Params = Mapping[str, Any] | Iterable[tuple[str, Any]]


# ---- writing ----------------------------------------------------------------------------------


def dump_tensor_cache(
    params: Params,
    cache_dir: str | os.PathLike[str],
    encode_format: str | Mapping[str, str] = _HALVES,
    meta_data: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    shard_cap_mb: int = 32,
    show_progress: bool = True,
    update_if_exists: bool = False,
) -> None:
    """Write weights to a folder.

    Parameters
    ----------
    params
        Name to tensor or array: a mapping, or pairs, which may be made one at a time.
    cache_dir
        The folder; it is made if need be.
    encode_format
        ``"raw"``, or ``"f32-to-bf16"`` to keep the upper half of float32 weights, rounded; or one
        of them for each name.
    meta_data
        What the index says about the whole; any JSON. Or a function that returns it at the end.
    shard_cap_mb
        Size from which a shard is closed, in units of 2**20 bytes.
    show_progress
        Accepted for compatibility; nothing is printed.
    update_if_exists
        Whether weights that the folder has already are overwritten in place, and others added.

    Raises
    ------
    ValueError
        For an unknown format, two weights of one name, or an update that changes the size, shape
        or dtype of a weight. The folder is left as it was.
    TypeError
        For an array whose elements no tensor can hold.
    """
    folder = Path(cache_dir)
    pairs = params.items() if isinstance(params, Mapping) else params
    _require_format(encode_format if isinstance(encode_format, str) else "raw", None)
    folder.mkdir(parents=True, exist_ok=True)
    with StagedFiles() as files:
        writer = _Writer(folder, files, shard_cap_mb * _MEGABYTE)
        if update_if_exists and (folder / _INDEX).exists():
            writer.begin_with(_read_index(folder / _INDEX))
        for name, value in pairs:
            form = encode_format if isinstance(encode_format, str) else encode_format.get(name)
            writer.add(name, _as_array(value, name), _require_format(form, name))
        writer.finish(meta_data() if callable(meta_data) else meta_data)


class _Writer:
    """Collects weights into shards."""

    def __init__(self, folder: Path, files: StagedFiles, cap: int) -> None:
        self.folder = folder
        self.files = files
        self.cap = cap
        self.metadata: Any = {}
        self.shards: list[dict[str, Any]] = []
        self.known: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self.fresh: set[str] = set()
        self.changed: dict[str, bytearray] = {}
        self.pending: list[dict[str, Any]] = []
        self.pending_data = bytearray()

    def begin_with(self, index: dict[str, Any]) -> None:
        """Continue a folder that exists."""
        self.metadata = index.get("metadata", {})
        self.shards = index["records"]
        for shard in self.shards:
            for record in shard["records"]:
                self.known[record["name"]] = shard, record

    def add(self, name: str, array: NDArray[Any], form: str) -> None:
        if name in self.fresh:
            raise ValueError(f"dump_tensor_cache: two weights are called {name!r}")
        self.fresh.add(name)
        dtype = str(Tensor(array).dtype)
        halves = dtype == "float32" and form == _HALVES
        data = bfloat16_bits(array).tobytes() if halves else array.tobytes()
        record: dict[str, Any] = {
            "name": name,
            "shape": list(array.shape),
            "dtype": dtype,
            "format": form,
            "nbytes": len(data),
        }
        if name in self.known:
            self._overwrite(record, data)
        else:
            self._append(record, data)

    def _overwrite(self, record: dict[str, Any], data: bytes) -> None:
        shard, old = self.known[record["name"]]
        stays = ("shape", "dtype", "format", "nbytes")
        if any(old[key] != record[key] for key in stays):
            before, after = ([one[key] for key in stays] for one in (old, record))
            raise ValueError(
                f"cannot update {record['name']!r} in place: the folder has shape, dtype, format "
                f"and size {before}, got {after}; write the folder anew"
            )
        name = shard["dataPath"]
        if name not in self.changed:
            self.changed[name] = bytearray((self.folder / name).read_bytes())
        start = old["byteOffset"]
        self.changed[name][start : start + len(data)] = data
        shard["md5sum"] = _md5(self.changed[name])

    def _append(self, record: dict[str, Any], data: bytes) -> None:
        if len(self.pending_data) + len(data) >= self.cap:
            if 2 * len(data) >= self.cap:
                self._close_shard([{**record, "byteOffset": 0}], data)
                return
            self._flush()
        self.pending.append({**record, "byteOffset": len(self.pending_data)})
        self.pending_data += data

    def _flush(self) -> None:
        if self.pending:
            self._close_shard(self.pending, self.pending_data)
            self.pending, self.pending_data = [], bytearray()

    def _close_shard(self, records: list[dict[str, Any]], data: bytes | bytearray) -> None:
        number, taken = len(self.shards), {shard["dataPath"] for shard in self.shards}
        while (name := f"params_shard_{number}.bin") in taken:
            number += 1
        self.files.write(self.folder / name, data)
        self.shards.append(
            {
                "dataPath": name,
                "format": "raw-shard",
                "nbytes": len(data),
                "records": records,
                "md5sum": _md5(data),
            }
        )

    def finish(self, metadata: Mapping[str, Any] | None) -> None:
        """Write what is left and the index."""
        self._flush()
        for name, data in self.changed.items():
            self.files.write(self.folder / name, data)
        self._write_index(_INDEX, metadata, self.shards)
        records = [record for shard in self.shards for record in shard["records"]]
        if any(_is_halved(record) for record in records):
            shards = [
                {**shard, "records": [_as_halves(record) for record in shard["records"]]}
                for shard in self.shards
            ]
            self._write_index(_HALF_INDEX, metadata, shards)

    def _write_index(
        self, name: str, metadata: Mapping[str, Any] | None, shards: list[dict[str, Any]]
    ) -> None:
        index = {"metadata": self.metadata if metadata is None else metadata, "records": shards}
        self.files.write(self.folder / name, json.dumps(index, indent=4).encode())


def _require_format(form: Any, name: str | None) -> str:
    if form not in _FORMATS:
        where = "" if name is None else f" for parameter {name!r}"
        raise ValueError(f"encode_format{where}: expected 'raw' or 'f32-to-bf16', got {form!r}")
    return str(form)


def _as_array(value: Any, name: Any) -> NDArray[Any]:
    if not isinstance(name, str):
        raise TypeError(f"the name of a weight must be a string, got {type(name).__name__}")
    try:
        array = (value if isinstance(value, Tensor) else tensor(value)).array
    except (TypeError, ValueError) as error:
        raise TypeError(f"weight {name!r}: {error}") from None
    return np.asarray(array, order="C")


def _is_halved(record: dict[str, Any]) -> bool:
    return bool(record["dtype"] == "float32" and record["format"] == _HALVES)


def _as_halves(record: dict[str, Any]) -> dict[str, Any]:
    return {**record, "dtype": "bfloat16", "format": "raw"} if _is_halved(record) else record


def _md5(data: bytes | bytearray) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def bfloat16_bits(array: NDArray[Any]) -> NDArray[np.uint16]:
    """Return float32 values rounded to bfloat16, to nearest even, as the bits of it.

    Values from the largest finite bfloat16 on, infinities and NaN are cut off instead.
    """
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32).reshape(array.shape)
    finite = (bits & 0x7FFFFFFF) < _LARGEST_BFLOAT16
    rounded = bits + (((bits >> 16) & 1) + 0x7FFF) * finite.astype(np.uint32)
    return (rounded >> 16).astype("<u2")


# ---- reading ----------------------------------------------------------------------------------


def load_tensor_cache(
    cachepath: str | os.PathLike[str], device: Device | None = None
) -> tuple[dict[str, Tensor], Any]:
    """Return the weights that a folder holds, and what its index says about the whole.

    Parameters
    ----------
    cachepath
        The folder, or an index in it such as ``tensor-cache-b16.json``.
    device
        Where the weights shall be; the CPU when omitted.

    Raises
    ------
    InternalError
        If the index is missing or no JSON, a shard is missing, or a size does not fit.
    ValueError
        If an entry of the index is of the wrong kind, a shard has another size or format than
        stated or is not in the folder.
    KeyError
        If the index lacks a required entry; the message names it.
    """
    path = Path(cachepath)
    if path.suffix != ".json" or path.is_dir():
        path /= _INDEX
    index = _read_index(path)
    found: dict[str, Tensor] = {}
    for shard in index["records"]:
        found.update(_read_shard(path.parent, shard, str(path)))
    if device is not None:
        where = require_cpu(device)
        found = {name: Tensor(one.array, one.dtype, where) for name, one in found.items()}
    return found, index.get("metadata", {})


def _read_index(path: Path) -> dict[str, Any]:
    """Read an index and check that everything in it is of the right kind."""
    try:
        index = json.loads(path.read_bytes())
    except OSError as error:
        raise InternalError(f"cannot read {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        raise InternalError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(index, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(index).__name__}")
    for number, shard in enumerate(_entry(index, "records", list, str(path))):
        where = f"{path}, shard {number}"
        name = _entry(shard, "dataPath", str, where)
        where = f"{path}, shard {name!r}"
        form = _entry(shard, "format", str, where)
        if form != "raw-shard":
            raise ValueError(f"{where}: expected format 'raw-shard', got {form!r}")
        if ".." in PurePosixPath(name).parts or not _is_inside(name):
            raise ValueError(f"{where}: a shard must be a file in the folder of the index")
        _entry(shard, "nbytes", int, where)
        for record in _entry(shard, "records", list, where):
            _check_record(record, where)
    return index


def _check_record(record: Any, where: str) -> None:
    name = _entry(record, "name", str, where)
    where = f"{where}, parameter {name!r}"
    for dim in _entry(record, "shape", list, where):
        if type(dim) is not int or not 0 <= dim < 2**62:
            raise ValueError(f"{where}: an extent must be an integer from 0, got {dim!r}")
    for key, kind in (("dtype", str), ("format", str), ("nbytes", int), ("byteOffset", int)):
        _entry(record, key, kind, where)


def _is_inside(name: str) -> bool:
    return bool(name) and "\0" not in name and ":" not in name and name[0] not in "/\\"


def _read_shard(folder: Path, shard: dict[str, Any], where: str) -> Iterator[tuple[str, Tensor]]:
    name = shard["dataPath"]
    try:
        data = memoryview((folder / name).read_bytes())
    except OSError as error:
        raise InternalError(f"cannot read shard {folder / name}: {error}") from error
    if len(data) != shard["nbytes"]:
        raise ValueError(
            f"shard {name}: expected {shard['nbytes']} bytes as stated, got {len(data)}"
        )
    for record in shard["records"]:
        key = record["name"]
        yield key, _read_record(data, record, f"{where}, shard {name}, parameter {key!r}")


def _read_record(data: memoryview, record: dict[str, Any], where: str) -> Tensor:
    nbytes, offset = record["nbytes"], record["byteOffset"]
    if not 0 <= offset <= offset + nbytes <= len(data):
        raise InternalError(
            f"{where}: bytes {offset} to {offset + nbytes} are outside the shard of {len(data)}"
        )
    raw = bytes(data[offset : offset + nbytes])
    try:
        dtype = DataType(record["dtype"])
        if _is_halved(record):
            halves = np.frombuffer(raw[: len(raw) // 2 * 2], "<u2")
            raw = (halves.astype("<u4") << 16).tobytes()
        return Tensor.from_bytes(raw, ShapeTuple(record["shape"]), dtype)
    except (TypeError, ValueError) as error:
        raise InternalError(f"{where}: {error}") from None


def _entry(record: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(record, dict):
        raise ValueError(f"{where}: expected a JSON object, got {type(record).__name__}")
    if key not in record:
        raise KeyError(f"{where}: {key!r} is missing")
    value = record[key]
    if type(value) is not kind:
        raise ValueError(f"{where}: {key!r} must be {kind.__name__}, got {type(value).__name__}")
    return value
