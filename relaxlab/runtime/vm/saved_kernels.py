"""Kernels as data: how a saved library keeps them, and how they come back.

A saved library holds kernels as text, never as machine code or pickled objects. The runtime does
not know the text's language: who does registers a :class:`KernelFormat`, and the text is compiled
when a kernel is first asked for. So a library can be loaded, read and verified without a compiler.
Counterpart: none; TVM saves machine code.

Examples
--------
>>> library = SavedLibrary(SavedKernels("tvmscript", "numpy", ("add",), "..."), "model.rlx")
>>> library.get_function("mul") is None
True
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from relaxlab.errors import InternalError
from relaxlab.registry import Registry

if TYPE_CHECKING:
    from relaxlab.runtime.vm.executable import KernelLibrary

__all__ = ["KERNEL_FORMATS", "KernelFormat", "SavedKernels", "SavedLibrary", "save_kernels"]

_COMPILER: Final = "relaxlab.script"
"""What registers the formats of this project. It is above the runtime and optional to it, so it is
imported by name, and only when kernels have to be compiled or written."""


_BROKEN: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class SavedKernels:
    """One kernel library as data.

    Attributes
    ----------
    form
        Name of the :class:`KernelFormat` that the text is in.
    target
        What the kernels were compiled for, such as ``"llvm"``.
    names
        The kernels, in order.
    text
        All of them.
    """

    form: str
    target: str
    names: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True)
class KernelFormat:
    """A language for kernels.

    Attributes
    ----------
    save
        Returns a library as data, or None for a library that it does not know.
    load
        Compiles what ``save`` returned; an ``InternalError`` for a text that holds other kernels
        than it says.
    """

    save: "Callable[[Any], SavedKernels | None]"
    load: "Callable[[SavedKernels], KernelLibrary]"


KERNEL_FORMATS: Final[Registry[KernelFormat]] = Registry("kernel format")


class SavedLibrary:
    """A kernel library that is compiled when the first kernel is asked for.

    Parameters
    ----------
    saved
        The kernels.
    origin
        Name of the file, for messages.
    """

    def __init__(self, saved: SavedKernels, origin: str) -> None:
        self.saved = saved
        self.kind = saved.target
        self.imports: list[Any] = []
        self._origin = origin
        self._compiled: KernelLibrary | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all kernels, in order."""
        return self.saved.names

    def get_function(self, name: str) -> Callable[..., Any] | None:
        """Return the kernel called ``name``; None if there is none.

        Raises
        ------
        InternalError
            If the kernels cannot be compiled here; it says what to do.
        DiagnosticError
            If their text cannot be read; it shows the place.
        """
        if name not in self.saved.names:
            return None
        try:
            return self.compiled(name).get_function(name)
        except _BROKEN as error:
            # a compiler may rely on what its own programs have in common, a stranger's may not
            what = f"{type(error).__name__}: {error}"
            raise InternalError(
                f"kernel {name!r} of {self._origin} cannot be compiled: {what}"
            ) from error

    def forgets_arguments(self, name: str) -> bool:
        """Whether the kernel called ``name`` keeps nothing of its arguments, if that is known."""
        forgets = getattr(self.compiled(name), "forgets_arguments", None)
        return forgets is not None and bool(forgets(name))

    def compiled(self, name: str) -> "KernelLibrary":
        """Return the compiled library; ``name`` is the kernel that is wanted, for messages."""
        if self._compiled is None:
            form = _format(self.saved.form)
            if form is None:
                raise InternalError(
                    f"kernel {name!r} of {self._origin} is kept as {self.saved.form!r}, which "
                    "nothing in this process can compile: install the whole of relaxlab, or "
                    f"import a library that has {name!r} before this one"
                )
            self._compiled = form.load(self.saved)
        return self._compiled

    def __repr__(self) -> str:
        return f"SavedLibrary({self.kind}: {', '.join(self.names) or 'empty'})"


def save_kernels(library: "KernelLibrary") -> SavedKernels:
    """Return a library as data.

    Raises
    ------
    InternalError
        If it is of a kind whose kernels exist only as code.
    """
    if isinstance(library, SavedLibrary):
        return library.saved
    _import_compiler()
    for name in KERNEL_FORMATS.names():
        saved = KERNEL_FORMATS.get(name).save(library)
        if saved is not None:
            return saved
    raise InternalError(
        f"cannot save the imported library of kind {library.kind!r}: its kernels exist only as "
        "code, expected a library that relaxlab compiled; register its functions with "
        "register_global_func instead of importing it"
    )


def _format(name: str) -> KernelFormat | None:
    if name not in KERNEL_FORMATS:
        _import_compiler()
    return KERNEL_FORMATS.find(name)


def _import_compiler() -> None:
    try:
        import_module(_COMPILER)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("relaxlab"):
            raise
