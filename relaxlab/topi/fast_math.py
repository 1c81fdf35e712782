"""Cheap approximations of exp, tanh, erf and softmax, for float32.

Polynomials instead of library calls: exp to about 2e-7 relative (Cephes' ``expf``), tanh to 2e-6
and erf to 6e-7 absolute (rational functions, clamped where float32 cannot tell them from 1). Other
dtypes keep the exact function. Counterpart: ``tvm.topi.fast_exp`` and its siblings.

Examples
--------
>>> from relaxlab import te
>>> fast_exp(te.placeholder((4,), name="x")).name
'T_fast_exp'
"""

from collections.abc import Callable, Sequence
from typing import Final

from relaxlab import te
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Expr
from relaxlab.te import Tensor
from relaxlab.topi.broadcast import maximum, minimum
from relaxlab.topi.nn.softmax import softmax_by_steps

__all__ = ["fast_erf", "fast_exp", "fast_softmax", "fast_tanh"]

_EXP: Final = (
    0.00019875691214110702,
    0.0013981999363750219,
    0.008333452045917511,
    0.041665796190500259,
    0.1666666567325592,
    0.5,
)
_TANH_ABOVE: Final = (
    -2.76076847742355e-16,
    2.0001879048247699e-13,
    -8.60467152213735e-11,
    5.1222970903711401e-08,
    1.4857223571797901e-05,
    0.00063726192887543596,
    0.0048935245589178597,
)
_TANH_BELOW: Final = (
    1.1982583946670199e-06,
    0.000118534705686654,
    0.0022684346324390002,
    0.0048935251855438504,
)
_ERF_ABOVE: Final = (
    -2.7261423674040941e-10,
    2.7706814620387377e-08,
    -2.101023937939317e-06,
    -5.6925062381196767e-05,
    -0.00073499063728377223,
    -0.0029545999132096767,
    -0.016096033155918121,
)
_ERF_BELOW: Final = (
    -1.4566071513399947e-05,
    -0.00021337404905352741,
    -0.001682827016338706,
    -0.0073733292520046234,
    -0.014264739118516445,
)


def _float(value: float) -> Expr:
    return prim_ops.const(value, "float32")


def _pointwise(x: Tensor, function: Callable[[Expr], Expr], name: str) -> Tensor:
    names = [f"ax{i}" for i in range(x.ndim)]
    result: Tensor = te.compute(
        x.shape, lambda *i: function(x(*i)), name=name, tag="elemwise", varargs_names=names
    )
    return result


def _horner(factor: Expr, coefficients: Sequence[float]) -> Expr:
    """Return a polynomial in ``factor``, highest power first."""
    total: Expr = _float(coefficients[0])
    for coefficient in coefficients[1:]:
        total = factor * total + _float(coefficient)
    return total


def fast_exp(x: Tensor) -> Tensor:
    """Return ``e ** x`` of every element."""
    if str(x.dtype) != "float32":
        return _pointwise(x, prim_ops.exp, "T_fast_exp")

    def element(value: Expr) -> Expr:
        inside = prim_ops.max(
            prim_ops.min(value, _float(88.376266479492188)), _float(-88.376258850097656)
        )
        power = prim_ops.floor(inside * _float(1.4426950216293335) + _float(0.5))
        rest = inside - power * _float(0.69314718246459961)
        total: Expr = _float(_EXP[0])
        for coefficient in _EXP[1:]:
            total = total * rest + _float(coefficient)
        fraction = total * rest * rest + rest + _float(1.0)
        # the exponent of a float32 begins at bit 23
        bits = prim_ops.cast("int32", power + _float(127.0))
        scale = prim_ops.reinterpret("float32", prim_ops.shift_left(bits, 23))
        return prim_ops.max(scale * fraction, value)

    return _pointwise(x, element, "T_fast_exp")


def fast_tanh(x: Tensor) -> Tensor:
    """Return the hyperbolic tangent of every element."""
    if str(x.dtype) != "float32":
        return _pointwise(x, prim_ops.tanh, "T_fast_tanh")
    inside = maximum(_float(-9.0), minimum(_float(9.0), x))

    def element(value: Expr) -> Expr:
        square = value * value
        above = value * _horner(square, _TANH_ABOVE)
        return prim_ops.div(above, _horner(square, _TANH_BELOW))

    return _pointwise(inside, element, "T_fast_tanh")


def fast_erf(x: Tensor) -> Tensor:
    """Return the error function of every element."""
    if str(x.dtype) != "float32":
        return _pointwise(x, prim_ops.erf, "T_fast_erf")

    def element(value: Expr) -> Expr:
        inside = prim_ops.max(prim_ops.min(value, _float(4.0)), _float(-4.0))
        square = inside * inside
        above = inside * _horner(square, _ERF_ABOVE)
        return prim_ops.div(above, _horner(square, _ERF_BELOW))

    return _pointwise(x, element, "T_fast_erf")


def fast_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """Return ``exp(x - max) / sum(exp(x - max))`` along an axis."""
    return softmax_by_steps(x, axis, fast_exp)
