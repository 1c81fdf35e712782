"""Kernels of a saved library as TVMScript: how they are written, and how they come back.

The runtime keeps kernels as text in a language it does not know; this is that language. A text is
written only if it reads back as the same kernels, and is never executed: the parser reads it, and
a code generator compiles the kernels it finds. Counterpart: none; TVM saves machine code.

Examples
--------
>>> from relaxlab.codegen import build
>>> from relaxlab.ir import IRModule
>>> save_kernels(build(IRModule(), "numpy")).names
()
"""

import keyword
from typing import Any, Final

from relaxlab.codegen import GENERATORS, Library, build
from relaxlab.errors import InternalError
from relaxlab.ir.module import IRModule
from relaxlab.ir.node import structural_equal
from relaxlab.runtime.vm.saved_kernels import KERNEL_FORMATS, KernelFormat, SavedKernels
from relaxlab.script import ir, relax, tirx
from relaxlab.script.parser.entry import parse_text
from relaxlab.tirx.function import PrimFunc

__all__ = ["FORM", "keys_of", "load_kernels", "save_kernels"]

FORM: Final = "tvmscript"

_LONGEST_NAME: Final = 1024
_TAKEN: Final = frozenset(["I", "R", "T", "TypeVar", "cls", "metadata", "Module"])


def save_kernels(library: Any) -> SavedKernels | None:
    """Return a library of compiled kernels as text; None for any other library.

    Raises
    ------
    InternalError
        If a kernel has no text that reads back as the same kernel.
    """
    if not isinstance(library, Library):
        return None
    names = library.names
    kernels = dict(zip(_keys(names), library.kernels.values(), strict=True))
    text = IRModule(kernels).script(show_meta=True) + "\n" if kernels else ""
    saved = SavedKernels(FORM, library.kind, names, text)
    read = _parse(saved)
    for name, kernel in library.kernels.items():
        if not structural_equal(kernel, read[name]):
            raise InternalError(
                f"cannot save kernel {name!r}: its text does not read back as the same kernel, "
                f"so it would compute something else:\n{kernel.script()}"
            )
    return saved


def load_kernels(saved: SavedKernels) -> Library:
    """Return the kernels of a text as a library, for the target it names or the nearest.

    Raises
    ------
    InternalError
        If the text holds other kernels than it says, or nothing here compiles for the target.
    DiagnosticError
        If it is no program.
    """
    kernels = _parse(saved)
    kind = saved.target
    if kind not in GENERATORS:
        try:
            kind = build(IRModule(), kind).kind
        except (InternalError, TypeError, ValueError) as error:
            raise InternalError(
                f"the kernels were saved for target {saved.target!r}, which this installation "
                f"cannot compile for: {error}"
            ) from None
    return Library(kind, kernels, GENERATORS.get(kind))


def keys_of(names: tuple[str, ...]) -> dict[str, str]:
    """Return the kernels' names by what the text calls them."""
    return dict(zip(_keys(names), names, strict=True))


def _parse(saved: SavedKernels) -> dict[str, PrimFunc]:
    """Return the kernels by name, in the order of the names."""
    names = saved.names
    if len(set(names)) != len(names) or not all(map(_is_sound, names)):
        raise InternalError(
            "the names of saved kernels must be different and printable, of 1 to "
            f"{_LONGEST_NAME} characters"
        )
    if not names and not saved.text:
        return {}
    program = parse_text(saved.text, {"I": ir, "R": relax, "T": tirx}, "<saved kernels>")
    if not isinstance(program, IRModule):
        raise InternalError("saved kernels must be a module, the text holds a single function")
    found = {gvar.name_hint: function for gvar, function in program.functions_items()}
    keys = _keys(names)
    if set(found) != set(keys):
        raise InternalError(
            f"the text holds the functions {sorted(found)}, expected {sorted(keys)}"
        )
    kernels: dict[str, PrimFunc] = {}
    for name, key in zip(names, keys, strict=True):
        function = found[key]
        if not isinstance(function, PrimFunc):
            raise InternalError(f"{name!r} is no kernel: expected a T.prim_func")
        kernels[name] = function
    return kernels


def _is_sound(name: str) -> bool:
    """Whether a name can go into messages and generated text."""
    return 0 < len(name) <= _LONGEST_NAME and name.isprintable()


def _keys(names: tuple[str, ...]) -> list[str]:
    """Return what each kernel is called in the text: its name, if a function can have it."""
    return [name if _is_free(name) else _stand_in(index, names) for index, name in enumerate(names)]


def _is_free(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name) and name not in _TAKEN


def _stand_in(index: int, names: tuple[str, ...]) -> str:
    key = f"kernel_{index}"
    while key in names:
        key += "_"
    return key


KERNEL_FORMATS.register(FORM, KernelFormat(save_kernels, load_kernels))
