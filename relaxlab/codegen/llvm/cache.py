"""Compiled kernels on disk, found again by what they are made from.

Machine code is kept under the hash of its IR text, the processor and the compiler's version;
the plan of a kernel, with its IR, under the hash of the kernel itself and of the code that
translated it. An entry carries its own hash and is written beside its place first, so that a
broken or half-written one is never used, whoever else is writing. Without a writable folder
nothing is kept. Counterpart: none in TVM; ccache is the idea.

Examples
--------
>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     store = KernelStore(Path(folder))
...     store.put("code", "ab12", b"machine code")
...     store.get("code", "ab12"), store.get("code", "cd34")
(b'machine code', None)
"""

import hashlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any, Final

import platformdirs

from relaxlab.ir.expr import Var
from relaxlab.ir.node import Node
from relaxlab.ir.op import Op
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.function import PrimFunc

__all__ = ["KernelStore", "default_store", "digest", "kernel_digest"]

_MAGIC: Final = b"relaxlab kernel 1\n"
#: Entries from which on the oldest quarter makes room.
_MOST: Final = 8000


def digest(*parts: str | bytes) -> str:
    """Return a hash of some texts, in hexadecimal."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(str(len(data)).encode() + b":" + data)
    return total.hexdigest()


class KernelStore:
    """A folder of entries.

    Parameters
    ----------
    folder
        Where they are; made when the first is written. None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._counted = False

    def _path(self, kind: str, key: str) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / key[:2] / f"{key[2:]}.{kind}"

    def get(self, kind: str, key: str) -> bytes | None:
        """Return an entry; None if there is none or it is damaged."""
        path = self._path(kind, key)
        if path is None:
            return None
        try:
            data = path.read_bytes()
        except OSError:
            return None
        payload = data[len(_MAGIC) + 32 :]
        if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) :][:32] != _check(payload, kind, key):
            return None
        return payload

    def put(self, kind: str, key: str, payload: bytes) -> None:
        """Keep an entry, if the folder can be written to."""
        path = self._path(kind, key)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._make_room()
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + _check(payload, kind, key) + payload)
            Path(name).replace(path)
        except OSError:
            # a full disk or a read-only folder costs time, nothing else
            return

    def _make_room(self) -> None:
        if self._counted or self.folder is None:
            return
        self._counted = True
        entries = [p for p in self.folder.glob("*/*") if p.is_file()]
        if len(entries) < _MOST:
            return
        for path in sorted(entries, key=lambda p: p.stat().st_mtime)[: len(entries) // 4]:
            path.unlink(missing_ok=True)


def _check(payload: bytes, kind: str, key: str) -> bytes:
    return hashlib.sha256(f"{kind}:{key}:".encode() + payload).digest()


def default_store() -> KernelStore:
    """Return the store in ``$RELAXLAB_HOME``, else in the platform's cache folder."""
    chosen = os.environ.get("RELAXLAB_HOME")
    home = Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("relaxlab"))
    return _store(home / "kernels")


@cache
def _store(folder: Path) -> KernelStore:
    return KernelStore(folder)


# ------------------------------------------------------------------ what a kernel is


@cache
def _translator() -> str:
    """Return a hash of the code that turns kernels into IR."""
    root = Path(__file__).parents[2]
    files = [p for part in ("codegen", "ir", "tirx") for p in sorted((root / part).rglob("*.py"))]
    return digest(*(p.read_bytes() for p in files))


def kernel_digest(func: PrimFunc, *context: str) -> str:
    """Return a hash of a kernel with all that its translation depends on.

    Parameters
    ----------
    func
        The kernel. Names count: they are in messages.
    context
        What else decides: name, processor, compiler.
    """
    return digest(_translator(), *context, "\x00".join(_text_of(func)))


#: Annotations, which mean nothing.
_SKIPPED: Final = frozenset({"span", "reads", "writes", "annotations"})


def _find_fields(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind) if f.name not in _SKIPPED)


#: Asked for once per class, not once per node.
_fields_of: Callable[[type], tuple[str, ...]] = cache(_find_fields)


def _text_of(root: Any) -> list[str]:
    """Return nodes as text, each variable as the place where it was first met."""
    parts: list[str] = []
    seen: dict[int, int] = {}
    pending: list[Any] = [root]
    while pending:
        value = pending.pop()
        if isinstance(value, Node):
            if isinstance(value, Op):
                parts.append(value.name)
                continue
            if isinstance(value, Var):
                number = seen.get(id(value))
                if number is not None:
                    parts.append(f"v{number}")
                    continue
                seen[id(value)] = len(seen)
            kind = type(value)
            parts.append(kind.__name__)
            pending += [getattr(value, name) for name in reversed(_fields_of(kind))]
        elif isinstance(value, tuple | list):
            parts.append(f"[{len(value)}")
            pending += reversed(value)
        elif isinstance(value, dict):
            parts.append("{" + ",".join(map(str, sorted(value))))
            pending += [value[key] for key in sorted(value, reverse=True)]
        elif isinstance(value, DataType):
            parts.append(str(value))
        else:
            parts.append(repr(value))
    return parts
