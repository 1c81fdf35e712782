"""The functions that kernels call: mathematics and conversions, written into each kernel's module.

Our own float32 mathematics works on a whole vector at once. Polynomials are our own minimax fits
(Lawson iteration on Chebyshev points, then one coefficient after the other rounded to float32 and
the rest fitted again). Bounds in units in the last place, over all of float32, sampled by
``tests/codegen/llvm/test_mathematics.py``; results below the smallest normal number are within one:

=====================  ========  =====================================================
function               bound     method
=====================  ========  =====================================================
exp, exp2              1.5       two-word ln 2, degree 6; 2^n in two steps, so that
                                 results below the normal range are right
log                    1.5       degree 10 around 1, two-word ln 2
log2, log10            2         likewise
log1p                  2         log(1 + x) and the part of x that 1 + x lost
sin, cos               2         reduction in double, degrees 7 and 8; the C library
                                 beyond a million
tan                    4         sine by cosine
tanh                   6         x P(x²) / Q(x²), degrees 4 and 4, 1 from 9.02 on
erf                    3         1 - 2^(x polynomial), accurate near 0 too
sinh, cosh             4         from exp
pow                    1         log2 and exp2 in double
=====================  ========  =====================================================

Sigmoid and rsqrt are made of these by ordinary arithmetic. Float64 and rare functions come from
the platform's C library, one element at a time. Counterpart: TVM's intrinsic lowering rules and
the vector mathematics that LLVM links.

Examples
--------
>>> from relaxlab.codegen.llvm.host import Host
>>> text = helper_text({("exp", "float", (("float", 16),)): None}, Host("", "", 64, True, True))
>>> text.splitlines()[0]
'define internal <16 x float> @exp.float.v16f32(<16 x float> %x0) alwaysinline {'
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from relaxlab.codegen.llvm.builder import Builder, Value, helper_name
from relaxlab.codegen.llvm.formula import Formula
from relaxlab.codegen.llvm.host import Host
from relaxlab.registry import Registry

__all__ = ["HELPERS", "helper_text"]

#: By name: from the arguments to the result.
HELPERS: Final[Registry[Callable[..., Formula]]] = Registry("kernel helper function")

#: Helpers that take doubles as they are, and those that ask for the result type.
_DOUBLE: Final = frozenset({"double_to_odd_float", "to_integer", "to_integer_slowly"})
_TYPED: Final = frozenset({"to_integer", "to_integer_slowly"})

_LOG2_E: Final = 1.4426950408889634
_LN2_HIGH: Final = 0.693359375  # few bits: its product with a small integer is exact
_LN2_LOW: Final = math.log(2) - _LN2_HIGH
_INF: Final = math.inf

# exp(r) = 1 + r + r² P(r) for |r| <= ln 2 / 2: 3.2e-9
_EXP: Final = (
    0.4999999403953552,
    0.1666652113199234,
    0.04166826233267784,
    0.00836867094039917,
    0.0013820999301970005,
)
# log(1 + f) = f - f² / 2 + f³ P(f) for sqrt(1/2) <= 1 + f <= sqrt(2): 5.9e-9
_LOG: Final = (
    0.3333333134651184,
    -0.2500081956386566,
    0.2000124156475067,
    -0.166234090924263,
    0.14201581478118896,
    -0.1315961331129074,
    0.12762197852134705,
    -0.0763639509677887,
)
# sin(r) = r + r³ P(r²) and cos(r) = 1 - r² / 2 + r⁴ P(r²) for |r| <= pi / 4: 3.7e-9, 1.1e-10
_SIN: Final = (-0.16666655242443085, 0.008332191035151482, -0.00019518620683811605)
_COS: Final = (0.04166664555668831, -0.00138873013202101, 2.443066841806285e-05)
# tanh(x) = x P(x²) / Q(x²) for 0 <= x <= 9.02: 2.3e-8
_TANH_P: Final = (
    1.0,
    0.1338268369436264,
    0.0034974836744368076,
    2.0637606212403625e-05,
    1.3389272801589414e-08,
)
_TANH_Q: Final = (
    1.0,
    0.46716004610061646,
    0.02588437870144844,
    0.00032886175904423,
    7.79176616561017e-07,
)
# log2(1 - erf(x)) = x P(x) for 0 <= x <= 3.95: 5.6e-9 of erf
_ERF: Final = (
    -1.6279070377349854,
    -0.9184474349021912,
    -0.14827924966812134,
    0.02764146402478218,
    0.00021192518761381507,
    -0.0023838491179049015,
    0.0009006457403302193,
    -0.000166082609212026,
    1.2930840966873802e-05,
)
# 2^r - 1 = r P(r) for |r| <= 1/2: 1.3e-8
_EXP2M1: Final = (
    0.6931471824645996,
    0.24022649228572845,
    0.05550367385149002,
    0.009618311189115047,
    0.001338738715276122,
    0.00015382011770270765,
)
# atanh(s) = s + s³ P(s²) for |s| <= 0.172 and 2^r = 1 + r P(r) for |r| <= 1/2, in double
_ATANH: Final = (
    0.33333333337923354,
    0.1999999780228711,
    0.14286055576917522,
    0.11088049433214957,
    0.0979276582067711,
)
_EXP2: Final = (
    0.6931471805461147,
    0.24022650695569517,
    0.055504109407854246,
    0.009618129216341177,
    0.0013333450851292228,
    0.00015403417372880396,
    1.531002131941164e-05,
    1.326313161799314e-06,
)
_HALF_PI: Final = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)


def helper_text(wanted: Mapping[Any, None], host: Host, *, inlined: bool = True) -> str:
    """Return the definitions of helper functions, with all that they call in turn.

    Parameters
    ----------
    wanted
        Keys that :meth:`Builder.call_helper` recorded.
    host
        What the processor can do.
    inlined
        Whether the functions become part of where they are called.
    """
    done: dict[Any, str] = {}
    pending, declarations = list(wanted), dict[str, str]()
    while pending:
        key = pending.pop()
        if key in done:
            continue
        builder, text = _define(key, host, inlined=inlined or key not in wanted)
        done[key] = text
        declarations.update(builder.declarations)
        pending.extend(builder.helpers)
    return "".join(done.values()) + "".join(f"{line}\n" for line in declarations.values())


def _define(key: Any, host: Host, *, inlined: bool) -> tuple[Builder, str]:
    name, elem, kinds = key
    own = name in HELPERS and (kinds[0][0] != "double" or name in _DOUBLE)
    inlined = inlined and own and not name.endswith("_slowly")
    parameters = [
        (f"<{lanes} x {kind}>" if lanes else kind, f"x{position}")
        for position, (kind, lanes) in enumerate(kinds)
    ]
    lanes = kinds[0][1]
    builder = Builder(
        helper_name(name, elem, kinds),
        parameters,
        result=f"<{lanes} x {elem}>" if lanes else elem,
        attributes="alwaysinline" if inlined else "noinline",
    )
    arguments: list[Any] = [Formula(builder, builder.argument(n)) for _, n in parameters]
    if name in _TYPED:
        arguments.insert(0, elem)
    function = HELPERS.get(name) if own else _from_library
    if host.masks and lanes in (4, 8, 16, 32, 64):
        function = _BY_INSTRUCTION.get(name, function)
    if not own:
        arguments.insert(0, name)
    result = function(*arguments)
    return builder, builder.finish(result.value)


def _from_library(name: str, *arguments: Formula) -> Formula:
    """Call a function of the C library once per lane."""
    builder, first = arguments[0].b, arguments[0].value
    function = name if first.elem == "double" else f"{name}f"
    if not first.lanes:
        return Formula(
            builder, builder.call(function, first.elem, 0, *(a.value for a in arguments))
        )
    kind = f"<{first.lanes} x {first.elem}>"
    result = Value("poison", first.elem, first.lanes)
    for lane in range(first.lanes):
        lanes = [builder.extract(a.value, lane) for a in arguments]
        one = builder.call(function, first.elem, 0, *lanes)
        result = builder.fresh(
            f"insertelement {kind} {result.text}, {one.typed}, i64 {lane}", first.elem, first.lanes
        )
    return Formula(builder, result)


# ------------------------------------------------------------------ exponentials


def _split_power(x: Formula, log2: float) -> tuple[Formula, Formula]:
    """Return the integer nearest to ``x * log2`` as a float, and its lowest bits as an integer."""
    magic = 12582912.0 if x.value.elem == "float" else 6755399441055744.0
    shifted = x.times_plus(log2, magic) if log2 != 1.0 else x + magic
    # the integer stands in the lowest bits; NaN gives some integer, which is never undefined
    return shifted - magic, shifted.bits()


def _power_of_two(power: Formula) -> Formula:
    """Return 2 to an integer of which the lowest bits are given, if that is a normal float."""
    return ((power << 23) + (127 << 23)).bits()


@HELPERS.registered("scale")
def _scale(x: Formula, n: Formula, power: Formula) -> Formula:
    """Return ``x * 2**n``, rounded once, also below the normal range and above it."""
    # two factors, each a normal number; only the lowest bits count
    half = power >> 1
    return x * _power_of_two(half) * _power_of_two(power - half)


def _scale_by_instruction(x: Formula, n: Formula, power: Formula) -> Formula:
    """Return ``x * 2**n`` on a processor that has an instruction for it."""

    def step(builder: Builder, lanes: int, part: Callable[[Value], Value]) -> Value:
        mask = builder.literal(-1, "i16" if lanes == 16 else "i8")
        extra = (builder.literal(4, "i32"),) if lanes == 16 else ()
        name = f"llvm.x86.avx512.mask.scalef.ps.{lanes * 32}"
        a, b = part(x.value), part(n.value)
        return builder.call(name, "float", lanes, a, b, a, mask, *extra)

    return _by_register(x, step)


def _by_register(
    x: Formula, step: Callable[[Builder, int, Callable[[Value], Value]], Value]
) -> Formula:
    """Return what an instruction gives for each register full of a vector."""
    builder, lanes = x.b, x.value.lanes
    width = min(lanes, 16)
    parts: list[Value] = []
    for start in range(0, lanes, width):
        order = range(start, start + width)

        def part(value: Value, order: range = order) -> Value:
            return value if width == lanes else builder.shuffle(value, order)

        parts.append(step(builder, width, part))
    while len(parts) > 1:
        parts = [builder.join(a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return Formula(builder, parts[0])


@HELPERS.registered("quotient")
def _quotient(x: Formula, divisor: Formula) -> Formula:
    """Return ``x / divisor`` within one unit, for a divisor of ordinary size."""
    return x / divisor


def _quotient_by_instruction(x: Formula, divisor: Formula) -> Formula:
    """Return a quotient from a reciprocal of 14 bits, corrected: a division takes far longer."""

    def step(builder: Builder, lanes: int, part: Callable[[Value], Value]) -> Value:
        mask = builder.literal(-1, "i16" if lanes == 16 else "i8")
        name = f"llvm.x86.avx512.rcp14.ps.{lanes * 32}"
        value = part(divisor.value)
        return builder.call(name, "float", lanes, value, value, mask)

    near = _by_register(x, step)
    first = x * near
    return near.times_plus((-divisor).times_plus(first, x), first)


#: Functions for processors with AVX-512, instead of those in HELPERS.
_BY_INSTRUCTION: Final[dict[str, Callable[..., Formula]]] = {
    "quotient": _quotient_by_instruction,
    "scale": _scale_by_instruction,
}


def _scaled(x: Formula, n: Formula, power: Formula) -> Formula:
    arguments = (x.value, n.value, power.value)
    return Formula(x.b, x.b.call_helper("scale", "float", arguments))


def _exp_parts(x: Formula) -> tuple[Formula, Formula, Formula]:
    """Return ``exp(x) / 2**n - 1`` and n in both forms."""
    n, power = _split_power(x, _LOG2_E)
    r = n.times_plus(-_LN2_HIGH, x)
    r = n.times_plus(-_LN2_LOW, r)
    return (r * r).times_plus(r.polynomial(_EXP), r), n, power


@HELPERS.registered("exp")
def _exp(x: Formula) -> Formula:
    less_one, n, power = _exp_parts(x.at_most(89.0).at_least(-104.0))
    return _scaled(less_one + 1.0, n, power)


@HELPERS.registered("exp2")
def _exp2(x: Formula) -> Formula:
    x = x.at_most(129.0).at_least(-151.0)
    n, power = _split_power(x, 1.0)
    r = (x - n) * math.log(2)
    return _scaled((r * r).times_plus(r.polynomial(_EXP), r) + 1.0, n, power)


def _expm1(x: Formula) -> Formula:
    """Return ``exp(x) - 1`` for ``0 <= x < 40``."""
    less_one, _, power = _exp_parts(x)
    scale = _power_of_two(power)
    return scale.times_plus(less_one, scale - 1.0)


@HELPERS.registered("tanh")
def _tanh(x: Formula) -> Formula:
    a = x.size().at_most(9.02)
    square = a * a
    parts = (a * square.polynomial(_TANH_P)).value, square.polynomial(_TANH_Q).value
    # four roundings may reach beyond 1
    return Formula(x.b, x.b.call_helper("quotient", "float", parts)).at_most(1.0).signed_as(x)


@HELPERS.registered("cosh")
def _cosh(x: Formula) -> Formula:
    root = _exp(x.size() * 0.5)
    square = root * root
    return (root * 0.5).times_plus(root, x.like(0.5) / square)


@HELPERS.registered("sinh")
def _sinh(x: Formula) -> Formula:
    a = x.size()
    small = _expm1(a.at_most(1.0))
    near = (small + small / (small + 1.0)) * 0.5
    root = _exp(a * 0.5)
    far = (root * 0.5).times_plus(root, x.like(-0.5) / (root * root))
    return a.below(1.0).where(near, far).signed_as(x)


@HELPERS.registered("erf")
def _erf(x: Formula) -> Formula:
    a = x.size().at_most(3.95)
    exponent = a * a.polynomial(_ERF)
    n, power = _split_power(exponent, 1.0)
    r = exponent - n
    scale = _power_of_two(power)
    less_one = scale.times_plus(r * r.polynomial(_EXP2M1), scale - 1.0)
    return less_one.signed_as(x)


# ------------------------------------------------------------------ logarithms


def _log_parts(x: Formula) -> tuple[Formula, Formula, Formula]:
    """Return n, f and t with ``x = 2**n (1 + f)`` and ``log(1 + f) = f + t``."""
    tiny = x.below(1.1754943508222875e-38)
    start = x.like(math.sqrt(0.5)).bits()
    bits = tiny.where(x * 8388608.0, x).bits() - start
    n = (bits >> 23) - tiny.convert("zext", "i32") * 23
    f = ((bits & 0x7FFFFF) + start).bits() - 1.0
    square = f * f
    t = (square * f).times_plus(f.polynomial(_LOG), square * -0.5)
    return n.convert("sitofp", "float"), f, t


def _log_special(x: Formula, result: Formula) -> Formula:
    """Put in what logarithms are of zero, infinity, NaN and negative numbers."""
    odd = x.equals(0.0).where(x.like(-_INF), x.below(0.0).where(x.like(math.nan), x))
    return (x.above(0.0) & x.below(_INF)).where(result, odd)


@HELPERS.registered("log")
def _log(x: Formula) -> Formula:
    n, f, t = _log_parts(x)
    return _log_special(x, n.times_plus(_LN2_HIGH, f + n.times_plus(_LN2_LOW, t)))


@HELPERS.registered("log2")
def _log2(x: Formula) -> Formula:
    n, f, t = _log_parts(x)
    rest = f.times_plus(_LOG2_E - 1.4426950216293335, t * _LOG2_E)
    return _log_special(x, n + f.times_plus(1.4426950216293335, rest))


@HELPERS.registered("log10")
def _log10(x: Formula) -> Formula:
    n, f, t = _log_parts(x)
    one = 1 / math.log(10)
    rest = f.times_plus(one - 0.4342944920063019, t * one)
    small = n.times_plus(math.log10(2) - 0.301025390625, rest)
    return _log_special(x, n.times_plus(0.301025390625, f.times_plus(0.4342944920063019, small)))


@HELPERS.registered("log1p")
def _log1p(x: Formula) -> Formula:
    total = x + 1.0
    lost = (x - (total - 1.0)) / total
    ordinary = total.above(0.0) & total.below(_INF)
    result = _log(total) + ordinary.where(lost, 0.0)
    return x.equals(0.0).where(x, result)


# ------------------------------------------------------------------ circle


def _circle(x: Formula) -> tuple[Formula, Formula, Formula]:
    """Return sine and cosine of x less q quarter turns, and q."""
    wide = x.convert("fpext", "double")
    n, quarter = _split_power(wide, 2 / math.pi)
    for part in _HALF_PI:
        wide = n.times_plus(-part, wide)
    r = wide.convert("fptrunc", "float")
    square = r * r
    sine = (square * r).times_plus(square.polynomial(_SIN), r)
    # the sum above loses the sign of zero
    sine = x.equals(0.0).where(x, sine)
    cosine = (square * square).times_plus(square.polynomial(_COS), square.times_plus(-0.5, 1.0))
    return sine, cosine, quarter.convert("trunc", "i32")


def _large_from_library(name: str, x: Formula, result: Formula) -> Formula:
    """Ask the C library about numbers that are too large for the reduction."""
    builder = x.b
    small = x.size().below(1.0e6)
    large = builder.binary("xor", small.value, builder.literal(True, "i1", x.value.lanes))

    def ask() -> list[Value]:
        there = builder.call_helper(f"{name}_slowly", "float", (x.value,))
        return [builder.select(small.value, result.value, there)]

    (chosen,) = builder.branch(builder.any_lane(large), ask, lambda: [result.value])
    return Formula(builder, chosen)


def _negated(x: Formula, when: Formula) -> Formula:
    """Flip the sign where bit 1 of an integer is set."""
    return (x.bits() ^ ((when & 2) << 30)).bits()


@HELPERS.registered("sin")
def _sin(x: Formula) -> Formula:
    sine, cosine, quarter = _circle(x)
    chosen = (quarter & 1).equals(0).where(sine, cosine)
    return _large_from_library("sin", x, _negated(chosen, quarter))


@HELPERS.registered("cos")
def _cos(x: Formula) -> Formula:
    sine, cosine, quarter = _circle(x)
    chosen = (quarter & 1).equals(0).where(cosine, sine)
    return _large_from_library("cos", x, _negated(chosen, quarter + 1))


@HELPERS.registered("tan")
def _tan(x: Formula) -> Formula:
    sine, cosine, quarter = _circle(x)
    even = (quarter & 1).equals(0)
    result = even.where(sine, -cosine) / even.where(cosine, sine)
    return _large_from_library("tan", x, result)


for _name in ("sin", "cos", "tan"):
    HELPERS.register(f"{_name}_slowly", lambda x, name=_name: _from_library(name, x))


# ------------------------------------------------------------------ powers


@HELPERS.registered("pow")
def _pow(x: Formula, y: Formula) -> Formula:
    size = x.size().convert("fpext", "double")
    start = size.like(math.sqrt(0.5)).bits()
    bits = size.bits() - start
    n = (bits >> 52).convert("sitofp", "double")
    m = ((bits & 0xFFFFFFFFFFFFF) + start).bits()
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    log2 = n + (s * z).times_plus(z.polynomial(_ATANH), s) * (2 * _LOG2_E)
    log2 = size.equals(0.0).where(log2.like(-_INF), size.equals(_INF).where(log2.like(_INF), log2))
    exponent = y.convert("fpext", "double")
    power = log2.equals(0.0).where(log2, exponent * log2).at_most(200.0).at_least(-200.0)
    whole, integer = _split_power(power, 1.0)
    r = power - whole
    scale = ((integer << 52) + (1023 << 52)).bits()
    result = (r.times_plus(r.polynomial(_EXP2), 1.0) * scale).convert("fptrunc", "float")
    # a NaN in either operand is the result, but for 1**y and x**0
    result = (x.differs(x) | y.differs(y)).where(x + y, result)
    is_whole, half = y.equals(y.whole()), y * 0.5
    odd = is_whole & half.differs(half.whole())
    negative = x.bits().below(0)
    result = (negative & odd).where(-result, result)
    undefined = x.below(0.0) & x.above(-_INF) & is_whole.where(is_whole.like(0), True)
    result = undefined.where(result.like(math.nan), result)
    return (y.equals(0.0) | x.equals(1.0)).where(x.like(1.0), result)


# ------------------------------------------------------------------ conversions


@HELPERS.registered("half_to_float")
def _half_to_float(x: Formula) -> Formula:
    bits = x.convert("zext", "i32")
    size = (bits & 0x7FFF) << 13
    sign = (bits & 0x8000) << 16
    finite = (size.bits() * 2.0**112).bits()
    return (size.below(0x7C00 << 13).where(finite, size | 0x7F800000) | sign).bits()


@HELPERS.registered("float_to_half")
def _float_to_half(x: Formula) -> Formula:
    bits = x.bits()
    size = bits & 0x7FFFFFFF
    large = size.above(0x7F800000).where(size.like(0x7E00), 0x7C00)
    tiny = (size.bits() + 0.5).bits() - 0x3F000000
    odd = size.logical_right(13) & 1
    normal = (size + (((15 - 127) << 23) + 0xFFF) + odd).logical_right(13)
    result = size.below(0x38800000).where(tiny, normal)
    result = size.below(0x47800000).where(result, large)
    return (result | (bits.logical_right(16) & 0x8000)).convert("trunc", "i16")


@HELPERS.registered("round_bfloat")
def _round_bfloat(x: Formula) -> Formula:
    bits = x.bits()
    rounded = bits + (bits.logical_right(16) & 1) + 0x7FFF
    return (x.differs(x).where(bits | 0x400000, rounded) & -0x10000).bits()


@HELPERS.registered("double_to_odd_float")
def _double_to_odd_float(x: Formula) -> Formula:
    """Round towards zero, but make the last bit odd when anything was lost."""
    near = x.convert("fptrunc", "float")
    back = near.convert("fpext", "double")
    too_far = back.size().above(x.size())
    bits = near.bits() - too_far.convert("zext", "i32")
    inexact = back.differs(x) & back.equals(back) & back.size().below(_INF)
    return inexact.where((bits | 1).bits(), near)


@HELPERS.registered("to_integer")
def _to_integer(elem: str, x: Formula, nan: Formula, above: Formula, below: Formula) -> Formula:
    builder = x.b
    wide = "i64" if elem == "i64" else "i32"
    small = x.size().below(2.0 ** (63 if wide == "i64" else 31))
    fast = small.where(x, 0.0).convert("fptosi", wide)
    if wide != elem:
        fast = fast.convert("trunc", elem)
    large = builder.binary("xor", small.value, builder.literal(True, "i1", x.value.lanes))

    def ask() -> list[Value]:
        arguments = (x.value, nan.value, above.value, below.value)
        there = builder.call_helper("to_integer_slowly", elem, arguments)
        return [builder.select(small.value, fast.value, there)]

    (chosen,) = builder.branch(builder.any_lane(large), ask, lambda: [fast.value])
    return Formula(builder, chosen)


@HELPERS.registered("to_integer_slowly")
def _to_integer_slowly(
    elem: str, x: Formula, nan: Formula, above: Formula, below: Formula
) -> Formula:
    """Wrap around, whatever the size: from mantissa and exponent."""
    wide = x if x.value.elem == "double" else x.convert("fpext", "double")
    bits = wide.bits()
    mantissa = (bits & 0xFFFFFFFFFFFFF) | 0x10000000000000
    shift = (bits.logical_right(52) & 0x7FF) - 1075
    left = shift.above(63).where(
        shift.like(0), mantissa << shift.below(0).where(shift.like(0), shift)
    )
    back = shift.like(0) - shift
    right = Formula(
        x.b,
        x.b.binary("lshr", mantissa.value, back.above(63).where(back.like(63), back).value),
    )
    size = shift.below(0).where(right, left)
    result = bits.below(0).where(size.like(0) - size, size)
    if elem != "i64":
        result = result.convert("trunc", elem)
    result = wide.equals(_INF).where(above, result)
    result = wide.equals(-_INF).where(below, result)
    return wide.differs(wide).where(nan, result)
