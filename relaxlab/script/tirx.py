"""``T``: what a kernel is written with.

::

    from relaxlab.script import tirx as T

Nothing here runs a kernel. Inside ``@T.prim_func`` the parser reads these names; in plain Python
they give descriptions, so that a decorated function can be defined at all. Scalar functions
(``T.exp``, ``T.max``, ...) are those of :mod:`relaxlab.tirx`; types, loops, blocks and statements
those of ``tirx_words``. Counterpart: ``tvm.script.tirx``.

Examples
--------
>>> from relaxlab.script import tirx as T
>>> T.int64(3), T.Cast("int32", T.int64(3))
(T.int64(3), T.Cast("int32", T.int64(3)))
"""

from typing import Any as _Any

from relaxlab import tirx as _tirx
from relaxlab.script.parser.decorator import FunctionDecorator as _FunctionDecorator
from relaxlab.script.parser.entry import parse_function as _parse_function
from relaxlab.script.parser.macro import macro_decorator as _macro_decorator
from relaxlab.script.tirx_words import WORDS as _WORDS

#: ``@T.prim_func`` and ``@T.prim_func(private=True, s_tir=True)``: make a kernel.
#: ``private`` leaves it without a ``global_symbol``; ``s_tir`` says that it has blocks.
prim_func = _FunctionDecorator("T.prim_func", _parse_function)
#: ``@T.macro`` and ``@T.macro(hygienic=False)``: statements to be read where they are called.
macro = _macro_decorator("T")

_FUNCTIONS = {name: getattr(_tirx, name) for name in _tirx.__all__}
_MEMBERS: dict[str, _Any] = {
    name: value
    for name, value in _FUNCTIONS.items()
    if callable(value) and not isinstance(value, type)
} | _WORDS
globals().update(_MEMBERS)

# What the parser lets a program reach with ``T.``; annotated, since it is no literal.
__all__: list[str] = sorted(["macro", "prim_func", *_MEMBERS])  # noqa: PLE0605


def __getattr__(name: str) -> _Any:
    """Explain a missing name; type checkers learn that names are added above."""
    raise AttributeError(f"T has no {name!r}")
