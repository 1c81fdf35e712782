"""The text of one kernel while it is written: lines, names, constants, and what buffers hold.

Counterpart: the state of TVM's code generators.

Examples
--------
>>> writer = Writer("twice")
>>> writer.fresh("x"), writer.fresh("x"), writer.fresh("lambda")
('x', 'x_1', 'lambda_1')
"""

import keyword
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from relaxlab.codegen.numpy import routines, special
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.sym import Analyzer
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.buffer import buffer_type

_RESERVED: Final = (
    "Tensor",
    "memory_of",
    "bool",
    "float",
    "int",
    "max",
    "min",
    "range",
    "refuse",
    "restore",
    "silence",
    "warnings",
)

__all__ = ["BufferState", "Unsupported", "Writer", "dtype_code"]

#: ``array`` owns its memory, ``view`` shares it or is read-only, ``nothing`` is not there yet.
Holds = Literal["array", "view", "nothing"]


class Unsupported(Exception):  # noqa: N818  # control flow: another way is tried
    """A way of writing a statement does not fit it."""


@dataclass(slots=True)
class BufferState:
    """What a buffer's name stands for at this point of the text."""

    code: str
    shape: tuple[Expr, ...]
    dtype: DataType
    holds: Holds


def dtype_code(dtype: DataType) -> str:
    """Return a NumPy dtype as text for readers; the namespace has it under this name."""
    return f"_{dtype}"


class Writer:
    """Collects the lines of one function.

    Parameters
    ----------
    name
        The kernel's name, for messages.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[str] = []
        self.depth = 1
        self.header: list[str] = []
        self.namespace: dict[str, Any] = {"np": np}
        self.buffers: dict[Var, BufferState] = {}
        self.scalars: dict[Var, str] = {}
        self.analyzer = Analyzer()
        #: Whether no two parameters share memory, so that outputs may hold intermediate values.
        self.no_alias = False
        #: Local buffers that nothing reads or writes after the present statement.
        self.dying: set[Var] = set()
        #: Buffers that share memory with another one, which must not be overwritten early.
        self.shared: set[Var] = set()
        # what the text may call keeps its name, whatever buffers are called
        self._taken: set[str] = {"np", *_RESERVED, *routines.__all__, *special.__all__}
        self._constants: dict[Any, str] = {}

    # ------------------------------------------------------------ names and lines

    def fresh(self, hint: str) -> str:
        """Return a name like ``hint`` that nothing else has."""
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in hint) or "v"
        if base[0].isdigit() or keyword.iskeyword(base) or base.startswith("_"):
            base = f"{base.lstrip('_') or 'v'}"
            base = f"v{base}" if base[0].isdigit() else base
        name, count = base, 0
        while name in self._taken or keyword.iskeyword(name):
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name

    def line(self, text: str) -> None:
        """Add one line at the current depth."""
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Add a compound statement; lines inside ``with`` are its body."""
        self.line(opening)
        self.depth += 1
        start = len(self.lines)
        try:
            yield
        finally:
            if len(self.lines) == start:
                self.line("pass")
            self.depth -= 1

    @contextmanager
    def attempt(self) -> Iterator[None]:
        """Undo what was written inside ``with`` if it turns out :class:`Unsupported`."""
        lines, depth = len(self.lines), self.depth
        buffers = {
            var: BufferState(s.code, s.shape, s.dtype, s.holds) for var, s in self.buffers.items()
        }
        scalars = dict(self.scalars)
        try:
            yield
        except Unsupported:
            del self.lines[lines:]
            self.depth, self.buffers, self.scalars = depth, buffers, scalars
            raise

    # ------------------------------------------------------------ what the text may use

    def use(self, name: str) -> str:
        """Return the name of a helper function, making it known to the text."""
        if name not in self.namespace:
            home: Any = special if hasattr(special, name) else routines
            self.namespace[name] = getattr(home, name)
        return name

    def dtype(self, dtype: DataType) -> str:
        """Return text for a NumPy dtype."""
        name = dtype_code(dtype)
        if name not in self.namespace:
            self.namespace[name] = dtype.numpy()
            self.header.append(f"{name} = np.dtype({str(dtype)!r})")
        return name

    def constant(self, value: Any, text: str) -> str:
        """Return a name for an object that is made once; ``text`` shows readers what it is."""
        name = self._constants.get(text)
        if name is None:
            name = self._constants[text] = self.fresh(f"c{len(self._constants)}")
            self.namespace[name] = value
            self.header.append(f"{name} = {text}")
        return name

    def literal(self, value: Any, dtype: DataType) -> str:
        """Return a name for a 0-d array holding a literal: NumPy takes it fastest."""
        array = np.asarray(value, dtype.numpy())
        array.setflags(write=False)
        shown = repr(bool(value)) if dtype.is_bool else repr(value)
        shown = f'float("{value}")' if shown in ("inf", "-inf", "nan") else shown
        return self.constant(array, f"np.array({shown}, {str(dtype)!r})")

    # ------------------------------------------------------------ buffers

    def declare(self, buffer: Var, holds: Holds, code: str | None = None) -> BufferState:
        """Introduce a buffer."""
        ty = buffer_type(buffer)
        if ty.dtype.lanes != 1 or ty.strides:
            raise Unsupported
        if isinstance(ty.elem_offset, Var):
            # the memory that is handed over begins at the first element
            self.scalars.setdefault(ty.elem_offset, "0")
        state = BufferState(code or self.fresh(buffer.name), ty.shape, ty.dtype, holds)
        self.buffers[buffer] = state
        return state

    def state(self, buffer: Var) -> BufferState:
        """Return what a buffer holds; :class:`Unsupported` for one that was not declared."""
        found = self.buffers.get(buffer)
        if found is None:
            raise Unsupported
        return found
