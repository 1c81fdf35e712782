"""``R``: what a Relax function is written with.

::

    from relaxlab.script import relax as R

Operators (``R.add``, ``R.nn.relu``, ...) are those of :mod:`relaxlab.relax.op`; types, literals
and statement forms those of ``relax_words``. Counterpart: ``tvm.script.relax``.

Examples
--------
>>> from relaxlab.script import relax as R
>>> R.const(2, "float32")
R.const(2.0, "float32")
"""

from typing import Any as _Any

from relaxlab.relax import op as _op
from relaxlab.script.parser.decorator import FunctionDecorator as _FunctionDecorator
from relaxlab.script.parser.entry import parse_function as _parse_function
from relaxlab.script.parser.macro import macro_decorator as _macro_decorator
from relaxlab.script.relax_words import WORDS as _WORDS

#: ``@R.function`` and ``@R.function(pure=False, private=True)``: make a Relax function.
#: ``pure`` says that calls have no visible effect; ``private`` leaves it without a
#: ``global_symbol``; ``check_well_formed=False`` leaves out the check at the end.
function = _FunctionDecorator("R.function", _parse_function)
#: ``@R.macro`` and ``@R.macro(hygienic=False)``: statements to be read where they are called.
macro = _macro_decorator("R")

_MEMBERS: dict[str, _Any] = {name: getattr(_op, name) for name in _op.__all__} | _WORDS
globals().update(_MEMBERS)

# What the parser lets a program reach with ``R.``; annotated, since it is no literal.
__all__: list[str] = sorted(["function", "macro", *_MEMBERS])  # noqa: PLE0605


def __getattr__(name: str) -> _Any:
    """Explain a missing name; type checkers learn that names are added above."""
    raise AttributeError(f"R has no {name!r}")
