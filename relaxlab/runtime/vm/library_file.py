"""Every form in which an executable comes: told apart by content, never by file name.

====================  ==========================================================================
bytes                 what is read
====================  ==========================================================================
executable            the program; its kernels must come from elsewhere
library blob          the program, and which modules it imports (``library_blob.py``)
ELF, Mach-O, PE       the same, from a shared library that TVM exported (``object_file.py``);
                      the kernels in it are known by name and refuse to run
zip                   a saved library with its kernels (``saved_library.py``)
====================  ==========================================================================

Nothing is loaded into the process or executed. Counterpart: ``tvm.runtime.load_module``.

Examples
--------
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> read_library(VMExecutable().save_to_bytes(), "m.bin").imports
()
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from relaxlab.errors import InternalError
from relaxlab.runtime.vm.archive import ARCHIVE_MAGIC
from relaxlab.runtime.vm.foreign_library import ForeignLibrary
from relaxlab.runtime.vm.library_blob import LIBRARY_KIND, BlobModule, looks_like_blob, read_blob
from relaxlab.runtime.vm.object_file import (
    LIBRARY_SYMBOL,
    OLD_LIBRARY_SYMBOL,
    ObjectFile,
    object_format,
    read_object,
)
from relaxlab.runtime.vm.saved_library import read_saved_library
from relaxlab.runtime.vm.serialize import (
    MAGIC_V1,
    MAGIC_V2,
    Sections,
    as_view,
    read_executable,
)
from relaxlab.runtime.vm.source_map import SourceMap

if TYPE_CHECKING:
    from relaxlab.runtime.vm.executable import KernelLibrary

__all__ = ["Contents", "NAMELESS", "read_library"]

NAMELESS: Final = "the data"
"""What bytes are called in messages when nobody says where they came from."""

_ROOT: Final = "relax.VMExecutable"
_OLD_ROOTS: Final = ("relax.Executable", "relax.vm.Executable")
"""What the executable was called under TVM's old loader."""

_MOST_GUESSES: Final = 16
_CONSTANTS: Final = "const_loader"
_NO_KERNELS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Contents:
    """A program and the kernels that come with it.

    Attributes
    ----------
    form
        What the bytes are: ``"executable"``, ``"library blob"``, ``"ELF"``, ``"Mach-O"``, ``"PE"``
        or ``"saved library"``.
    sections
        The program, unverified.
    raw
        The bytes of the program alone.
    at
        Their offset in the file; in a saved library, in their member.
    imports
        Kernel libraries.
    source_map
        Which lines its instructions run; empty when the file does not say.
    """

    form: str
    sections: Sections
    raw: memoryview
    at: int
    imports: "tuple[KernelLibrary, ...]" = ()
    source_map: SourceMap = field(default_factory=SourceMap)


def read_library(data: bytes | bytearray | memoryview, origin: str) -> Contents:
    """Read an executable from bytes of any known form.

    Parameters
    ----------
    data
        The file.
    origin
        Its name, for messages.

    Raises
    ------
    InternalError
        If it is of no known form, or altered; the message says what was found and expected.
    TypeError
        If ``data`` is not bytes.
    """
    try:
        return _read(data, origin)
    except InternalError as error:
        if origin in (NAMELESS, "") or origin in str(error):
            raise
        raise InternalError(f"{origin}: {error}") from error


def _read(data: bytes | bytearray | memoryview, origin: str) -> Contents:
    view = as_view(data, "an executable")
    if object_format(view) is not None:
        return _from_object(view, origin)
    if bytes(view[:4]) == ARCHIVE_MAGIC:
        program = read_saved_library(data, origin)
        raw = memoryview(program.executable)
        sections = read_executable(raw)
        return Contents("saved library", sections, raw, 0, program.imports, program.source_map)
    if looks_like_blob(view):
        return _from_blob(view, 0, "library blob", origin, None)
    return Contents("executable", read_executable(view), view, 0)


def _from_blob(
    view: memoryview, at: int, form: str, origin: str, kernels: frozenset[str] | None
) -> Contents:
    """Read the blob at byte ``at``; ``kernels`` are those of the machine code, if known."""
    root, *others = read_blob(view[at:], at)
    if root.kind != _ROOT:
        raise InternalError(_wrong_root(root, origin))
    sections = read_executable(root.payload, root.at)
    names = {LIBRARY_KIND: kernels, _CONSTANTS: _NO_KERNELS}
    imports = tuple(
        ForeignLibrary(module.kind, origin, names.get(module.kind)) for module in others
    )
    return Contents(form, sections, root.payload, root.at, imports)


def _wrong_root(root: BlobModule, origin: str) -> str:
    if root.kind in _OLD_ROOTS:
        return (
            f"{origin} was made by an older TVM: it holds a module of kind {root.kind!r}, which is "
            f"the name under the old loader, expected {_ROOT!r}; compile the module again with a "
            "newer TVM, such as 0.27"
        )
    return (
        f"{origin} is a library, but not a Relax library: its first module is of kind "
        f"{root.kind!r}, expected {_ROOT!r}; was only the kernel part compiled?"
    )


def _from_object(view: memoryview, origin: str) -> Contents:
    found = read_object(view)
    if found.blob is not None:
        return _from_blob(view, found.blob, found.form, origin, found.kernels)
    guessed = _search(view, found, origin)
    if guessed is not None:
        return guessed
    if found.is_old:
        raise InternalError(
            f"{origin} was made by an older TVM: it has the symbol {OLD_LIBRARY_SYMBOL} of the old "
            f"loader, expected {LIBRARY_SYMBOL}; compile the module again with a newer TVM, such "
            "as 0.27"
        )
    raise InternalError(
        f"{origin} is an {found.form} library, but not a Relax library: no symbol ends in "
        f"{LIBRARY_SYMBOL}, and the magic number of an executable is nowhere in it; expected "
        "what TVM's export_library wrote"
    )


def _search(view: memoryview, found: ObjectFile, origin: str) -> Contents | None:
    """Find the executable by its first bytes: the last resort for libraries without symbols."""
    data = bytes(view)
    refusal: InternalError | None = None
    for magic in (MAGIC_V2, MAGIC_V1):
        pattern = magic.to_bytes(8, "little")
        at = data.find(pattern)
        for _ in range(_MOST_GUESSES):
            if at < 0:
                break
            try:
                sections = read_executable(view[at:], at, exact=False)
            except InternalError as error:
                refusal = refusal or error
            else:
                library = ForeignLibrary(LIBRARY_KIND, origin, found.kernels or None)
                return Contents(found.form, sections, view[at:], at, (library,))
            at = data.find(pattern, at + 1)
    if refusal is not None:
        raise refusal
    return None
