"""What each operation on elements becomes in LLVM IR, for every dtype.

It says in instructions what ``tirx/scalar.py`` says in Python: integers wrap, division rounds as
asked, conversions never are undefined, ``Max`` is ``a if a > b else b``. A float16 or bfloat16
lives in a float32 register and is rounded after every operation, which is what one operation in
the narrow type gives. Works on scalars and vectors alike. Counterpart: the expression part of
TVM's ``CodeGenLLVM``.

Examples
--------
>>> from relaxlab.codegen.llvm.host import Host
>>> b = Builder("f", [("float", "x"), ("float", "y")])
>>> arithmetic = Arithmetic(b, Host("generic", "", 16, masks=False, half=False))
>>> x, y = b.argument("x"), b.argument("y")
>>> _ = arithmetic.binary("Add", x, y, DataType("float32"))
>>> "fadd float %x, %y" in b.finish()
True
"""

from typing import Final

import numpy as np

from relaxlab.codegen.llvm.builder import Builder, Value
from relaxlab.codegen.llvm.host import Host
from relaxlab.runtime.dtype import DataType

__all__ = ["Arithmetic", "Unsupported", "memory_type", "register_type"]

_COMPARE: Final = {"EQ": "eq", "NE": "ne", "LT": "lt", "LE": "le", "GT": "gt", "GE": "ge"}
_FLOAT: Final = {"Add": "fadd", "Sub": "fsub", "Mul": "fmul", "Div": "fdiv", "Mod": "frem"}
_INTEGER: Final = {"Add": "add", "Sub": "sub", "Mul": "mul"}
_BITS: Final = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}
#: Rounding to whole numbers, and other exact functions, which LLVM has.
_EXACT: Final = {
    "ceil": "ceil",
    "fabs": "fabs",
    "floor": "floor",
    "nearbyint": "rint",
    "round": "rint",
    "sqrt": "sqrt",
    "trunc": "trunc",
}
#: Functions with a float32 version of our own; see mathematics.py.
OWN: Final = frozenset(
    {"cos", "cosh", "erf", "exp", "exp2", "log", "log10", "log1p", "log2", "pow", "sin", "sinh"}
    | {"tan", "tanh"}
)
#: Functions computed one element at a time by the platform's C library.
LIBRARY: Final = OWN | frozenset(
    {"acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "fmod", "hypot", "nextafter"}
)


class Unsupported(Exception):  # noqa: N818  # control flow: another generator takes the kernel
    """There is no LLVM form of what the kernel does; the message says of what."""


def register_type(dtype: DataType) -> str:
    """Return the LLVM type that an element has in a register."""
    if dtype.is_bool or (dtype.is_uint and dtype.bits == 1):
        return "i1"
    if dtype.is_int or dtype.is_uint:
        if dtype.bits in (8, 16, 32, 64):
            return f"i{dtype.bits}"
    elif str(dtype.with_lanes(1)) in ("float16", "bfloat16", "float32"):
        return "float"
    elif dtype.with_lanes(1) == "float64":
        return "double"
    raise Unsupported(f"elements of dtype {dtype}")


def memory_type(dtype: DataType) -> str:
    """Return the LLVM type that an element has in memory."""
    register = register_type(dtype)
    if register == "i1":
        return "i8"
    return "i16" if is_narrow(dtype) else register


def is_narrow(dtype: DataType) -> bool:
    """Say whether elements are rounded to 16 bits after every operation."""
    return dtype.is_float and dtype.bits == 16


class Arithmetic:
    """Adds the instructions of element operations to a function.

    Parameters
    ----------
    builder
        Where they go.
    host
        What the processor can do.
    """

    def __init__(self, builder: Builder, host: Host) -> None:
        self.b = builder
        self.host = host

    # ------------------------------------------------------------ literals and memory

    def literal(self, value: float, dtype: DataType) -> Value:
        """Return a literal as an element of its dtype."""
        register = register_type(dtype)
        if register in ("float", "double"):
            with np.errstate(all="ignore"):
                value = float(dtype.with_lanes(1).numpy().type(value))
        elif register != "i1":
            width = dtype.bits
            value = (int(value) + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))
        else:
            value = bool(value)
        return self.b.literal(value, register)

    def from_memory(self, value: Value, dtype: DataType) -> Value:
        """Return a loaded element as it is in a register."""
        if register_type(dtype) == "i1":
            return self.b.compare("icmp ne", value, self.b.literal(0, "i8", value.lanes))
        if not is_narrow(dtype):
            return value
        if dtype.with_lanes(1) == "bfloat16":
            wide = self.b.convert("zext", value, "i32")
            wide = self.b.binary("shl", wide, self.b.literal(16, "i32", value.lanes))
            return self.b.convert("bitcast", wide, "float")
        if self.host.half:
            return self.b.convert("fpext", self.b.convert("bitcast", value, "half"), "float")
        return self.helper("half_to_float", "float", value)

    def to_memory(self, value: Value, dtype: DataType) -> Value:
        """Return an element as it is stored."""
        if register_type(dtype) == "i1":
            return self.b.convert("zext", value, "i8")
        if not is_narrow(dtype):
            return value
        if dtype.with_lanes(1) == "bfloat16":
            bits = self.b.convert("bitcast", value, "i32")
            bits = self.b.binary("lshr", bits, self.b.literal(16, "i32", value.lanes))
            return self.b.convert("trunc", bits, "i16")
        if self.host.half:
            return self.b.convert("bitcast", self.b.convert("fptrunc", value, "half"), "i16")
        return self.helper("float_to_half", "i16", value)

    def rounded(self, value: Value, dtype: DataType) -> Value:
        """Round a float32 result to a 16-bit dtype; other values stay."""
        if not is_narrow(dtype):
            return value
        if dtype.with_lanes(1) == "bfloat16":
            return self.helper("round_bfloat", "float", value)
        if self.host.half:
            return self.b.convert("fpext", self.b.convert("fptrunc", value, "half"), "float")
        return self.from_memory(self.helper("float_to_half", "i16", value), dtype)

    def helper(self, name: str, elem: str, *arguments: Value) -> Value:
        """Return a call of a function that the module will define; see mathematics.py."""
        arguments = self.b.same_lanes(*arguments)
        return self.b.call_helper(name, elem, arguments)

    # ------------------------------------------------------------ operators

    def binary(self, name: str, a: Value, b: Value, dtype: DataType) -> Value:
        """Return a binary node, by its class name, of two elements of ``dtype``.

        An integer that is divided by zero gives no error here but any result: to refuse it is the
        caller's.
        """
        if name in _COMPARE:
            return self._compare(_COMPARE[name], a, b, dtype)
        if name == "Max":
            return self.b.select(self._compare("gt", a, b, dtype), a, b)
        if name == "Min":
            return self.b.select(self._compare("lt", a, b, dtype), a, b)
        if dtype.is_float:
            if name == "Mod":
                return self.call("fmod", [a, b], dtype, dtype)
            if name not in _FLOAT:
                raise Unsupported(f"{name} of {dtype}")
            return self.rounded(self.b.binary(_FLOAT[name], a, b), dtype)
        if register_type(dtype) == "i1":
            # arithmetic of booleans: the result is whether the integer result is not zero
            wide = DataType("int32").with_lanes(dtype.lanes)
            a, b = (self.cast(v, dtype, wide) for v in (a, b))
            return self.cast(self.binary(name, a, b, wide), wide, dtype)
        if name in _INTEGER:
            return self.b.binary(_INTEGER[name], a, b)
        return self._divide(name, a, b, dtype)

    def _compare(self, op: str, a: Value, b: Value, dtype: DataType) -> Value:
        if dtype.is_float:
            return self.b.compare(f"fcmp {'une' if op == 'ne' else 'o' + op}", a, b)
        if op in ("eq", "ne"):
            return self.b.compare(f"icmp {op}", a, b)
        return self.b.compare(f"icmp {'s' if dtype.is_int else 'u'}{op}", a, b)

    def _divide(self, name: str, a: Value, b: Value, dtype: DataType) -> Value:
        builder = self.b
        wants_rest = name in ("Mod", "FloorMod")
        if not b.const:
            # the division may stand before the test that refuses it, outside a loop that ends
            # early or never runs, and the machine would trap
            one = builder.literal(1, b.elem)
            b = builder.select(builder.compare("icmp eq", b, builder.literal(0, b.elem)), one, b)
        if not dtype.is_int:
            return builder.binary("urem" if wants_rest else "udiv", a, b)
        lanes = max(a.lanes, b.lanes)
        zero = builder.literal(0, a.elem, lanes)
        if b.const is not None and b.const > 0 and (int(b.const) & (int(b.const) - 1)) == 0:
            if name == "FloorMod":
                return builder.binary("and", a, builder.literal(int(b.const) - 1, a.elem))
            if name == "FloorDiv":
                shift = int(b.const).bit_length() - 1
                return builder.binary("ashr", a, builder.literal(shift, a.elem)) if shift else a
        by_minus_one = None
        if b.const is None or b.const == -1:
            # the lowest integer divided by -1 does not fit, and the machine would trap
            by_minus_one = builder.compare("icmp eq", b, builder.literal(-1, b.elem))
            b = builder.select(by_minus_one, builder.literal(1, b.elem), b)
        quotient = builder.binary("sdiv", a, b)
        rest = builder.binary("sub", a, builder.binary("mul", quotient, b))
        if by_minus_one is not None:
            quotient = builder.select(by_minus_one, builder.binary("sub", zero, a), quotient)
            rest = builder.select(by_minus_one, zero, rest)
        if name == "Div":
            return quotient
        if name == "Mod":
            return rest
        inexact = builder.compare("icmp ne", rest, zero)
        if b.const is not None and b.const > 0 and by_minus_one is None:
            wrong = builder.compare("icmp slt", rest, zero)
        else:
            signs = builder.compare("icmp slt", builder.binary("xor", rest, b), zero)
            wrong = builder.binary("and", inexact, signs)
        if name == "FloorMod":
            return builder.select(wrong, builder.binary("add", rest, b), rest)
        one_less = builder.binary("sub", quotient, builder.literal(1, a.elem))
        return builder.select(wrong, one_less, quotient)

    # ------------------------------------------------------------ conversions

    def cast(self, value: Value, source: DataType, target: DataType) -> Value:
        """Convert an element: floats truncate, integers wrap, bool is ``!= 0``."""
        source, target = source.with_lanes(1), target.with_lanes(1)
        if source is target:
            return value
        to, start = register_type(target), register_type(source)
        builder = self.b
        if to == "i1":
            if start == "i1":
                return value
            zero = builder.literal(0, start)
            return builder.compare("fcmp une" if source.is_float else "icmp ne", value, zero)
        if target.is_float:
            if source.is_float:
                return self._float_to_float(value, source, target)
            return self._to_float(value, source, target)
        if source.is_float:
            return self._to_integer(value, source, target)
        if start == to:
            return value
        if start == "i1":
            return builder.convert("zext", value, to)
        if int(start[1:]) > int(to[1:]):
            return builder.convert("trunc", value, to)
        return builder.convert("sext" if source.is_int else "zext", value, to)

    def _float_to_float(self, value: Value, source: DataType, target: DataType) -> Value:
        builder = self.b
        if register_type(source) == "double":
            if target == "float16":
                # one rounding, not two: towards an odd last bit first
                value = self.helper("double_to_odd_float", "float", value)
            else:
                value = builder.convert("fptrunc", value, "float")
        elif target == "float64":
            return builder.convert("fpext", value, "double")
        return self.rounded(value, target)

    def _to_float(self, value: Value, source: DataType, target: DataType) -> Value:
        builder, register = self.b, register_type(target)
        signed = source.is_int
        result = builder.convert("sitofp" if signed else "uitofp", value, register)
        if not signed and source.bits == 64 and register == "float":
            # beyond int64 the definition rounds to double first
            through = builder.convert(
                "fptrunc", builder.convert("uitofp", value, "double"), "float"
            )
            large = builder.compare("icmp slt", value, builder.literal(0, "i64"))
            result = builder.select(large, through, result)
        return self.rounded(result, target)

    def _to_integer(self, value: Value, source: DataType, target: DataType) -> Value:
        if value.const is not None and np.isfinite(value.const):
            return self.literal(int(value.const), target)
        with np.errstate(all="ignore"):
            odd = [
                int(np.asarray(source.numpy().type(v)).astype(target.numpy()))
                for v in (np.nan, np.inf, -np.inf)
            ]
        register = register_type(target)
        constants = [self.literal(v, target) for v in odd]
        return self.helper("to_integer", register, value, *constants)

    # ------------------------------------------------------------ functions

    def call(self, name: str, args: list[Value], dtype: DataType, source: DataType) -> Value:
        """Return the operator ``tirx.<name>`` of elements; see ``scalar.call``.

        Shifts by too much are the caller's to exclude.
        """
        builder = self.b
        if name in _BITS:
            return builder.binary(_BITS[name], *args)
        match name:
            case "shift_left":
                return builder.binary("shl", *args)
            case "shift_right":
                return builder.binary("ashr" if dtype.is_int else "lshr", *args)
            case "bitwise_not":
                ones = True if args[0].elem == "i1" else -1
                result = builder.binary("xor", args[0], builder.literal(ones, args[0].elem))
                return self.cast(result, source, dtype)
            case "isnan" | "isinf" | "isfinite":
                return self.cast(self._classify(name, args[0], source), DataType("bool"), dtype)
            case "popcount":
                return self.cast(builder.intrinsic("ctpop", args[0]), _unsigned(source), dtype)
            case "clz":
                function = f"llvm.ctlz.{_mangled(args[0])}"
                keep = builder.literal(False, "i1")
                count = builder.call(function, args[0].elem, args[0].lanes, args[0], keep)
                return self.cast(count, _unsigned(source), dtype)
            case "reinterpret":
                return self._reinterpret(args[0], source, dtype)
            case "likely":
                return args[0]
            case _:
                pass
        work = source if source.is_float else DataType("float64")
        operands = [self.cast(args[0], source, work), *args[1:]]
        if name == "ldexp":
            result = self._ldexp(operands[0], args[1], work)
        else:
            operands[1:] = [self.cast(v, source, work) for v in args[1:]]
            result = self._function(name, operands, work)
        return self.cast(result, work, dtype)

    def _classify(self, name: str, x: Value, source: DataType) -> Value:
        builder = self.b
        if not source.is_float:
            return builder.literal(name == "isfinite", "i1", x.lanes)
        if name == "isnan":
            return builder.compare("fcmp uno", x, x)
        size = builder.intrinsic("fabs", x)
        infinite = builder.literal(float("inf"), x.elem)
        return builder.compare("fcmp oeq" if name == "isinf" else "fcmp olt", size, infinite)

    def _reinterpret(self, x: Value, source: DataType, dtype: DataType) -> Value:
        stored = self.to_memory(x, source)
        into = memory_type(dtype)
        if stored.elem != into:
            stored = self.b.convert("bitcast", stored, into)
        return self.from_memory(stored, dtype)

    def _ldexp(self, x: Value, exponent: Value, dtype: DataType) -> Value:
        builder = self.b
        if exponent.elem != "i32":
            op = "trunc" if exponent.elem == "i64" else "sext"
            exponent = builder.convert(op, exponent, "i32")
        x, exponent = builder.same_lanes(x, exponent)
        name = f"llvm.ldexp.{_mangled(x)}.{_mangled(exponent)}"
        return self.rounded(builder.call(name, x.elem, x.lanes, x, exponent), dtype)

    def _function(self, name: str, args: list[Value], dtype: DataType) -> Value:
        builder = self.b
        one = builder.literal(1.0, args[0].elem)
        match name:
            case "sigmoid":
                power = self._function("exp", [builder.unary("fneg", args[0])], dtype)
                return self.binary("Div", one, self.binary("Add", one, power, dtype), dtype)
            case "rsqrt":
                return self.binary("Div", one, self._function("sqrt", args, dtype), dtype)
            case "exp10":
                ten = builder.literal(10.0, args[0].elem)
                return self._function("pow", [ten, args[0]], dtype)
            case "copysign":
                return builder.intrinsic("copysign", *args)
            case _:
                pass
        if name in _EXACT:
            return self.rounded(builder.intrinsic(_EXACT[name], args[0]), dtype)
        if name not in LIBRARY or (name == "nextafter" and is_narrow(dtype)):
            raise Unsupported(f"{name} of {dtype}")
        return self.rounded(self.helper(name, args[0].elem, *args), dtype)


def _unsigned(dtype: DataType) -> DataType:
    return DataType(f"uint{dtype.bits}")


def _mangled(value: Value) -> str:
    short = {"float": "f32", "double": "f64"}.get(value.elem, value.elem)
    return f"v{value.lanes}{short}" if value.lanes else short
