"""The saved library, ``model.rlx``: bytecode, kernels as text, and what they must hash to.

Members of the archive, in order:

``manifest.json``
    Format version, who wrote it, and for each other member its length and SHA-256; for each kernel
    library its target, its language, the names of its kernels and the library that imports it.
``executable.bin``
    The executable in TVM's format, so TVM can run it too.
``kernels/0.txt``, ...
    The kernels of one library.
``source_map.json``
    Which lines of the program the instructions run; absent when it is not known.

Everything is data: nothing is executed, unpickled or written to disk while loading, and names of
members are never used as paths. The same executable gives the same bytes. Counterpart: the shared
library that TVM's ``export_library`` links.

Examples
--------
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> data = write_saved_library(VMExecutable())
>>> read_saved_library(data, "empty.rlx").executable == VMExecutable().save_to_bytes()
True
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from relaxlab.errors import InternalError
from relaxlab.runtime.vm.archive import read_archive, write_archive
from relaxlab.runtime.vm.saved_kernels import SavedKernels, SavedLibrary, save_kernels
from relaxlab.runtime.vm.source_map import SourceMap

if TYPE_CHECKING:
    from relaxlab.runtime.vm.executable import KernelLibrary, VMExecutable

__all__ = ["FORMAT_VERSION", "SavedProgram", "read_saved_library", "write_saved_library"]

FORMAT_VERSION: Final = 1

_FORMAT: Final = "relaxlab library"
_MANIFEST: Final = "manifest.json"
_EXECUTABLE: Final = "executable.bin"
_SOURCE_MAP: Final = "source_map.json"
_MOST_LIBRARIES: Final = 256


@dataclass(frozen=True, slots=True)
class SavedProgram:
    """What a saved library holds.

    Attributes
    ----------
    executable
        Bytes in TVM's format, which nobody has looked at yet.
    imports
        The kernel libraries.
    source_map
        Which lines the instructions run.
    """

    executable: bytes
    imports: tuple[SavedLibrary, ...]
    source_map: SourceMap


# ---- writing ----------------------------------------------------------------------------------


def write_saved_library(ex: "VMExecutable") -> bytes:
    """Return the file content for an executable and the kernels it imports.

    Raises
    ------
    InternalError
        If a constant has no place in the format, or an imported library exists only as code.
    """
    members: dict[str, bytes] = {_MANIFEST: b"", _EXECUTABLE: ex.save_to_bytes()}
    libraries = []
    for index, (library, parent) in enumerate(list(_all_imports(ex.imports))):
        saved = save_kernels(library)
        name = f"kernels/{index}.txt"
        members[name] = saved.text.encode()
        libraries.append(
            {
                "target": saved.target,
                "form": saved.form,
                "kernels": list(saved.names),
                "imported_by": parent,
                **_fingerprint(name, members[name]),
            }
        )
    manifest = {
        "format": _FORMAT,
        "version": FORMAT_VERSION,
        "relaxlab": sys.modules["relaxlab"].__version__,
        "executable": _fingerprint(_EXECUTABLE, members[_EXECUTABLE]),
        "libraries": libraries,
    }
    if ex.source_map:
        members[_SOURCE_MAP] = ex.source_map.to_json().encode()
        manifest["source_map"] = _fingerprint(_SOURCE_MAP, members[_SOURCE_MAP])
    members[_MANIFEST] = (json.dumps(manifest, indent=2) + "\n").encode()
    return write_archive(members)


def _all_imports(imports: "list[KernelLibrary]") -> "Iterator[tuple[KernelLibrary, int | None]]":
    """Yield every library with the number of the one that imports it, importers first."""
    pending: list[tuple[KernelLibrary, int | None]] = [(one, None) for one in imports]
    for index, (library, parent) in enumerate(pending):
        if index >= _MOST_LIBRARIES:
            raise InternalError(
                f"cannot save more than {_MOST_LIBRARIES} kernel libraries; do they import "
                "each other in a circle?"
            )
        yield library, parent
        pending += [(one, index) for one in library.imports]


def _fingerprint(name: str, content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"member": name, "bytes": len(content), "sha256": digest}


# ---- reading ----------------------------------------------------------------------------------


def read_saved_library(data: bytes | bytearray | memoryview, origin: str) -> SavedProgram:
    """Read what :func:`write_saved_library` returned.

    Parameters
    ----------
    data
        The file.
    origin
        Its name, for messages.

    Raises
    ------
    InternalError
        For anything else: another format or version, a member that is missing, altered or not
        mentioned in the manifest.
    """
    members = read_archive(data)
    manifest = _manifest(members)
    executable = _member(manifest.get("executable"), members, "the executable")
    entries = manifest.get("libraries")
    if not isinstance(entries, list) or len(entries) > _MOST_LIBRARIES:
        raise InternalError(
            f"{_MANIFEST}: 'libraries' must be a list of at most {_MOST_LIBRARIES} entries"
        )
    libraries: list[SavedLibrary] = []
    roots: list[SavedLibrary] = []
    for index, entry in enumerate(entries):
        library = SavedLibrary(_kernels(entry, members, index), origin)
        parent = entry.get("imported_by")
        if parent is None:
            roots.append(library)
        elif type(parent) is int and 0 <= parent < index:
            libraries[parent].imports.append(library)
        else:
            raise InternalError(
                f"{_MANIFEST}: library {index} is imported by {parent!r}, expected null or a "
                "library before it"
            )
        libraries.append(library)
    source_map = SourceMap()
    if "source_map" in manifest:
        entry = manifest["source_map"]
        source_map = SourceMap.from_json(_member(entry, members, "the source map"))
    if members:
        raise InternalError(
            f"the archive has a member that is not in the manifest: {_shown(min(members))}"
        )
    return SavedProgram(executable, tuple(roots), source_map)


def _manifest(members: dict[str, bytes]) -> dict[str, Any]:
    if _MANIFEST not in members:
        raise InternalError(
            f"the file is a zip archive without {_MANIFEST}: expected a library that "
            "VMExecutable.export_library wrote"
        )
    try:
        manifest = json.loads(members.pop(_MANIFEST))
    except (ValueError, RecursionError) as error:
        raise InternalError(f"{_MANIFEST} is not valid JSON: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise InternalError(f"{_MANIFEST}: expected an object whose 'format' is {_FORMAT!r}")
    version = manifest.get("version")
    if version != FORMAT_VERSION or isinstance(version, bool):
        raise InternalError(
            f"{_MANIFEST}: found version {_shown(version)} of the library format, written by "
            f"relaxlab {_shown(manifest.get('relaxlab'))}; expected version {FORMAT_VERSION}: "
            "update relaxlab, or export the library again"
        )
    return manifest


def _member(entry: Any, members: dict[str, bytes], what: str) -> bytes:
    """Take the member that an entry describes out of ``members``."""
    if not isinstance(entry, dict) or not isinstance(entry.get("member"), str):
        raise InternalError(f"{_MANIFEST}: {what} has no entry with the name of its member")
    name = entry["member"]
    content = members.pop(name, None)
    if content is None:
        raise InternalError(f"{_MANIFEST}: {what} is in member {_shown(name)}, which is missing")
    for key, found in _fingerprint(name, content).items():
        if entry.get(key) != found:
            raise InternalError(
                f"member {_shown(name)} was altered: the manifest says {key} "
                f"{_shown(entry.get(key))}, found {_shown(found)}"
            )
    return content


def _kernels(entry: Any, members: dict[str, bytes], index: int) -> SavedKernels:
    what = f"kernel library {index}"
    content = _member(entry, members, what)
    form, target, names = (entry.get(key) for key in ("form", "target", "kernels"))
    if not isinstance(form, str) or not isinstance(target, str):
        raise InternalError(f"{_MANIFEST}: {what} needs a 'form' and a 'target', both text")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InternalError(f"{_MANIFEST}: {what} needs 'kernels', a list of names")
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InternalError(f"{what} is not UTF-8: {error}") from None
    return SavedKernels(form, target, tuple(names), text)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
