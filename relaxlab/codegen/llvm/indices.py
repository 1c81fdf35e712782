"""Index arithmetic as polynomials: what a subscript is, and whether it can leave its buffer.

A subscript becomes a sum of products of variables, with everything else (a quotient, a value read
from memory) as an opaque factor. Two subscripts are equal when their polynomials are; how far one
moves with a loop is a coefficient; and the largest value over all loops is found by putting in
the ends of the loops' ranges. It is made for speed: a kernel asks some hundred such questions
while it is compiled. Counterpart: ``tvm.sym.Analyzer`` for what code generation needs of it.

Examples
--------
>>> from relaxlab.ir import IntImm, Var
>>> i, n = Var("i", "int64"), Var("n", "int64")
>>> indices = Indices()
>>> indices.enter(i, indices.of(IntImm("int64", 0)), indices.of(n))
>>> flat = indices.of((i // 4) * 4 + i % 4)
>>> flat == indices.of(i), indices.is_inside(flat, indices.of(n))
(True, (True, True))
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.codegen.llvm.walk import nodes_in
from relaxlab.ir import prim_ops
from relaxlab.ir.expr import Call, Expr, Var
from relaxlab.ir.node import Node, children
from relaxlab.ir.prim import (
    Add,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Select,
    Sub,
    TensorLoad,
)
from relaxlab.runtime.dtype import DataType

__all__ = [
    "Atom",
    "Indices",
    "Poly",
    "added",
    "as_constant",
    "constant",
    "multiplied",
    "negated",
    "poly_key",
]

#: From products of atoms (sorted numbers; the empty product is the constant) to coefficients.
Poly = dict[tuple[int, ...], int]

_ONE: Final[tuple[int, ...]] = ()
_INT64: Final = DataType("int64")


@dataclass(frozen=True, slots=True)
class Atom:
    """A factor that is not taken apart.

    Attributes
    ----------
    expr
        What to compute for it.
    kind
        ``var``, ``div``, ``mod`` (of polynomials ``a`` and ``b``), or ``other``.
    variables
        All variables that it depends on.
    reads
        Whether it reads memory.
    """

    expr: Expr
    kind: str
    variables: frozenset[Var]
    reads: bool = False
    a: Any = None
    b: Any = None


@dataclass(frozen=True, slots=True)
class _Range:
    start: Poly
    stop: Poly


class Indices:
    """The subscripts of one kernel.

    Loops are entered and left as code generation goes through them, so that ranges are those of
    the place in question.
    """

    def __init__(self) -> None:
        self.atoms: list[Atom] = []
        self._numbers: dict[Any, int] = {}
        self._ranges: dict[int, _Range] = {}
        self._sizes: set[int] = set()
        self._seen: dict[int, tuple[Expr, Poly]] = {}
        self._facts: list[Poly] = []

    # ------------------------------------------------------------ what is known

    def declare_size(self, var: Var) -> None:
        """Say that a variable is the extent of an argument: it is not negative."""
        self._sizes.add(self._atom_of_var(var))

    def enter(self, var: Var, start: Poly, extent: Poly) -> None:
        """Say that a loop variable lies in ``start <= var < start + extent`` from here on."""
        self._ranges[self._atom_of_var(var)] = _Range(start, added(start, extent))
        # quotients may simplify now
        self._seen.clear()

    def assume(self, facts: Iterable[Poly]) -> int:
        """Say that polynomials are not negative; return a mark for :meth:`forget`."""
        mark = len(self._facts)
        self._facts.extend(facts)
        return mark

    def forget(self, mark: int) -> None:
        """Take back what was assumed since the mark."""
        del self._facts[mark:]

    @contextmanager
    def without_facts(self) -> Iterator[None]:
        """Use only the ranges of loops inside ``with``."""
        facts, self._facts = self._facts, []
        try:
            yield
        finally:
            self._facts = facts

    # ------------------------------------------------------------ polynomials

    def of(self, expr: Any) -> Poly:
        """Return the polynomial of an integer expression."""
        found = self._seen.get(id(expr))
        if found is not None:
            return found[1]
        poly = self._poly(expr)
        # the expression is kept alive, so its identity stays its own
        self._seen[id(expr)] = (expr, poly)
        return poly

    def _poly(self, expr: Any) -> Poly:
        match expr:
            case IntImm(value=value):
                return constant(value)
            case Var():
                return {(self._atom_of_var(expr),): 1}
            case Add(a=a, b=b) | Sub(a=a, b=b) | Mul(a=a, b=b) if expr.dtype.is_int:
                left, right = self.of(a), self.of(b)
                if expr.dtype.bits < 64 and self.reads(left, right):
                    # it may wrap around, as numbers from memory do
                    return {(self._opaque(expr),): 1}
                if isinstance(expr, Mul):
                    return multiplied(left, right)
                return self._combined(added(left, right, -1 if isinstance(expr, Sub) else 1))
            case FloorDiv(a=a, b=b) | FloorMod(a=a, b=b) if expr.dtype.is_int:
                left, right = self.of(a), self.of(b)
                return self._divided(expr, left, right, want_rest=isinstance(expr, FloorMod))
            case Cast(dtype=dtype, value=value) if (
                dtype.is_int and value.dtype.is_int and dtype.bits >= value.dtype.bits
            ):
                return self.of(value)
            case Cast(dtype=dtype, value=value) if dtype.is_int and value.dtype.is_int:
                inner, edge = self.of(value), constant(2 ** (dtype.bits - 1))
                if self.is_nonnegative(added(edge, inner)) and self.is_nonnegative(
                    added(edge, inner, -1), strict=True
                ):
                    return inner
        return {(self._opaque(expr),): 1}

    def _atom_of_var(self, var: Var) -> int:
        return self._number(var, lambda: Atom(var, "var", frozenset((var,))))

    def _number(self, key: Any, make: Any) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.atoms)
            self.atoms.append(make())
        return number

    def _opaque(self, expr: Expr) -> int:
        key = structural_key(expr)
        return self._number(key, lambda: Atom(expr, "other", *_contents(expr)))

    def _divided(self, expr: Expr, a: Poly, b: Poly, *, want_rest: bool) -> Poly:
        """Return quotient or remainder, exact where the divisor's multiples can be told apart."""
        if len(b) == 1:
            ((product, count),) = b.items()
            if count > 0:
                whole, rest = _split(a, product, count)
                if self.is_nonnegative(rest) and self.is_nonnegative(
                    added(b, rest, -1), strict=True
                ):
                    return rest if want_rest else whole
                if whole and not want_rest:
                    inner = self._quotient(expr, rest, b)
                    return added(whole, inner)
                if want_rest:
                    return self._remainder(expr, rest, b)
        return self._remainder(expr, a, b) if want_rest else self._quotient(expr, a, b)

    def _quotient(self, expr: Expr, a: Poly, b: Poly) -> Poly:
        single = _single(a)
        divisor = as_constant(b)
        if single is not None and divisor is not None and divisor > 0:
            atom = self.atoms[single]
            inner = as_constant(atom.b) if atom.kind == "div" else None
            if inner is not None and inner > 0:
                # (x // 3) // 4 = x // 12
                return self._quotient(expr, atom.a, constant(inner * divisor))
        return {(self._division("div", a, b),): 1}

    def _remainder(self, expr: Expr, a: Poly, b: Poly) -> Poly:
        return {(self._division("mod", a, b),): 1}

    def _division(self, kind: str, a: Poly, b: Poly) -> int:
        key = (kind, poly_key(a), poly_key(b))

        def make() -> Atom:
            parts = [self.atoms[n] for p in (a, b) for product in p for n in product]
            variables = frozenset().union(*(p.variables for p in parts))
            node = FloorDiv if kind == "div" else FloorMod
            expr = node(IntImm(_INT64, 0), IntImm(_INT64, 1))
            return Atom(expr, kind, variables, any(p.reads for p in parts), a, b)

        return self._number(key, make)

    def _combined(self, poly: Poly) -> Poly:
        """Put ``(x // c) * c + x % c`` together to x again."""
        for product, count in list(poly.items()):
            for position, number in enumerate(product):
                atom = self.atoms[number]
                if atom.kind != "mod" or poly.get(product) != count:
                    continue
                rest = product[:position] + product[position + 1 :]
                whole = self._quotient(atom.expr, atom.a, atom.b)
                partner = multiplied(multiplied(whole, atom.b), {rest: count})
                if partner and all(poly.get(key) == value for key, value in partner.items()):
                    less = added(poly, partner, -1)
                    less = added(less, {product: count}, -1)
                    return self._combined(added(less, multiplied(atom.a, {rest: count})))
        return poly

    def expression(self, poly: Poly) -> Expr:
        """Return an expression of a polynomial, in 64 bits."""
        total: Expr | None = None
        for product, count in sorted(poly.items()):
            term: Expr = IntImm(_INT64, count)
            for number in product:
                term = prim_ops.multiply(term, self._expression_of(number))
            total = term if total is None else prim_ops.add(total, term)
        return IntImm(_INT64, 0) if total is None else total

    def _expression_of(self, number: int) -> Expr:
        atom = self.atoms[number]
        if atom.kind in ("div", "mod"):
            node = FloorDiv if atom.kind == "div" else FloorMod
            return node(self.expression(atom.a), self.expression(atom.b))
        return prim_ops.cast("int64", atom.expr)

    # ------------------------------------------------------------ loops

    def coefficient(self, poly: Poly, var: Var) -> tuple[Poly, Poly] | None:
        """Return c and r with ``poly = c * var + r``; None if it is not linear in ``var``."""
        number = self._atom_of_var(var)
        factor: Poly = {}
        rest: Poly = {}
        for product, count in poly.items():
            times = product.count(number)
            others = tuple(n for n in product if n != number)
            if times > 1 or any(var in self.atoms[n].variables for n in others):
                return None
            if times:
                factor[others] = count
            else:
                rest[product] = count
        return factor, rest

    def depends(self, poly: Poly, var: Var) -> bool:
        """Say whether a polynomial depends on a variable at all."""
        return any(var in self.atoms[n].variables for product in poly for n in product)

    def variables(self, poly: Poly) -> frozenset[Var]:
        """Return all variables that a polynomial depends on."""
        return frozenset().union(*(self.atoms[n].variables for product in poly for n in product))

    def reads(self, *polys: Poly) -> bool:
        """Say whether a polynomial depends on memory."""
        return any(self.atoms[n].reads for poly in polys for product in poly for n in product)

    # ------------------------------------------------------------ proofs

    def is_inside(self, index: Poly, extent: Poly) -> tuple[bool, bool]:
        """Say whether ``0 <= index`` and ``index < extent`` hold wherever this is computed."""
        return (
            self.is_nonnegative(index),
            self.is_nonnegative(added(extent, index, -1), strict=True),
        )

    def is_nonnegative(self, poly: Poly, *, strict: bool = False) -> bool:
        """Say whether a polynomial is surely at least 0 (or 1) for all values in range."""
        if strict:
            poly = added(poly, constant(-1))
        if self._holds(poly):
            return True
        return any(self._holds(added(poly, fact, -1)) for fact in self._facts)

    def _holds(self, poly: Poly) -> bool:
        for _ in range(24):
            number = self._eliminable(poly)
            if number is None:
                break
            lower = self._bounded(poly, number)
            if lower is None:
                return False
            poly = lower
        return all(
            count >= 0 and all(self._is_size(n) for n in product) for product, count in poly.items()
        )

    def _is_size(self, number: int) -> bool:
        atom = self.atoms[number]
        if atom.kind == "div":
            return self._holds(atom.a) and self._holds(atom.b)
        return number in self._sizes

    def _eliminable(self, poly: Poly) -> int | None:
        """Return the atom with a known range to put an end in for: the innermost loop first."""
        best: tuple[int, int] | None = None
        order = list(self._ranges)
        for product, count in poly.items():
            for number in product:
                atom = self.atoms[number]
                if number in self._ranges:
                    rank = 1 + order.index(number)
                elif atom.kind == "mod" or (atom.kind == "div" and count < 0):
                    rank = 1_000_000 + number
                else:
                    continue
                if best is None or rank > best[0]:
                    best = (rank, number)
        return None if best is None else best[1]

    def _bounded(self, poly: Poly, number: int) -> Poly | None:
        """Return a lower bound of a polynomial without one of its atoms."""
        factor: Poly = {}
        rest: Poly = {}
        for product, count in poly.items():
            if number not in product:
                rest[product] = count
                continue
            others = list(product)
            others.remove(number)
            if number in others:
                return None
            factor[tuple(others)] = count
        low, high = self._ends(number)
        if self._holds(factor):
            return None if low is None else added(rest, multiplied(factor, low))
        if self._holds(negated(factor)):
            return None if high is None else added(rest, multiplied(factor, high))
        return None

    def _ends(self, number: int) -> tuple[Poly | None, Poly | None]:
        atom, known = self.atoms[number], self._ranges.get(number)
        if known is not None:
            return known.start, added(known.stop, constant(-1))
        if atom.kind == "mod":
            return constant(0), added(atom.b, constant(-1))
        if atom.kind == "div":
            divisor = as_constant(atom.b)
            if divisor is None or divisor <= 0:
                return None, None
            top = self._largest(atom.a)
            low = constant(0) if self._holds(atom.a) else None
            if top is None:
                return low, None
            whole, rest = _split(top, _ONE, divisor)
            spare = as_constant(rest)
            return low, whole if spare is not None and 0 <= spare < divisor else None
        return None, None

    def _largest(self, poly: Poly) -> Poly | None:
        """Return an upper bound without loop variables."""
        poly = negated(poly)
        for _ in range(24):
            number = self._eliminable(poly)
            if number is None:
                return negated(poly)
            lower = self._bounded(poly, number)
            if lower is None:
                return None
            poly = lower
        return None

    # ------------------------------------------------------------ structured subscripts

    def at_least(self, expr: Any, limit: int) -> bool:
        """Say whether an expression is surely at least a number, looking into min and max."""
        match expr:
            case Max(a=a, b=b):
                return self.at_least(a, limit) or self.at_least(b, limit)
            case Min(a=a, b=b):
                return self.at_least(a, limit) and self.at_least(b, limit)
            case Select(true_value=a, false_value=b):
                return self.at_least(a, limit) and self.at_least(b, limit)
            case Cast(value=inner, dtype=dtype) if inner.dtype.is_int and (
                dtype.bits >= inner.dtype.bits
            ):
                return self.at_least(inner, limit)
            case Cast(value=inner) if inner.dtype.is_bool or inner.dtype.is_uint:
                return limit <= 0
        return self.is_nonnegative(added(self.of(expr), constant(-limit)))

    def below(self, expr: Any, limit: Poly) -> bool:
        """Say whether an expression is surely less than a size, looking into min and max."""
        match expr:
            case Min(a=a, b=b):
                return self.below(a, limit) or self.below(b, limit)
            case Max(a=a, b=b):
                return self.below(a, limit) and self.below(b, limit)
            case Select(true_value=a, false_value=b):
                return self.below(a, limit) and self.below(b, limit)
            case Cast(value=inner, dtype=dtype) if inner.dtype.is_int and (
                dtype.bits >= inner.dtype.bits
            ):
                return self.below(inner, limit)
        return self.is_nonnegative(added(limit, self.of(expr), -1), strict=True)


# ------------------------------------------------------------------ polynomials


def constant(value: int) -> Poly:
    """Return the polynomial of a number."""
    return {_ONE: value} if value else {}


def as_constant(poly: Poly) -> int | None:
    """Return the number that a polynomial is, or None."""
    if not poly:
        return 0
    return poly.get(_ONE) if len(poly) == 1 else None


def added(a: Poly, b: Poly, times: int = 1) -> Poly:
    """Return ``a + times * b``."""
    result = dict(a)
    for product, count in b.items():
        total = result.get(product, 0) + times * count
        if total:
            result[product] = total
        else:
            result.pop(product, None)
    return result


def negated(poly: Poly) -> Poly:
    """Return ``-poly``."""
    return {product: -count for product, count in poly.items()}


def multiplied(a: Poly, b: Poly) -> Poly:
    """Return ``a * b``."""
    result: Poly = {}
    for left, x in a.items():
        for right, y in b.items():
            product = tuple(sorted(left + right)) if left and right else left or right
            total = result.get(product, 0) + x * y
            if total:
                result[product] = total
            else:
                result.pop(product, None)
    return result


def poly_key(poly: Poly) -> tuple[Any, ...]:
    """Return a hashable form."""
    return tuple(sorted(poly.items()))


def _single(poly: Poly) -> int | None:
    """Return the atom that a polynomial is, or None."""
    if len(poly) == 1:
        ((product, count),) = poly.items()
        if count == 1 and len(product) == 1:
            return product[0]
    return None


def _split(poly: Poly, product: tuple[int, ...], count: int) -> tuple[Poly, Poly]:
    """Return q and r with ``poly = q * (count * product) + r``, r without multiples in sight."""
    whole: Poly = {}
    rest: Poly = {}
    for key, value in poly.items():
        left = list(key)
        fits = True
        for number in product:
            if number in left:
                left.remove(number)
            else:
                fits = False
                break
        quotient, remainder = divmod(value, count) if fits else (0, value)
        if quotient:
            whole[tuple(left)] = quotient
        if remainder:
            rest[key] = remainder
    return whole, rest


def structural_key(node: Any) -> Any:
    """Return a hashable form of an expression; variables are themselves."""
    if isinstance(node, Var):
        return node
    if isinstance(node, IntImm):
        return ("int", str(node.dtype), node.value)
    if isinstance(node, Node):
        extra = getattr(node, "value", None) if not isinstance(node, Cast) else None
        name = getattr(getattr(node, "op", None), "name", None)
        dtype = getattr(getattr(node, "ty", None), "dtype", None)
        return (
            type(node).__name__,
            str(dtype),
            name,
            extra if isinstance(extra, float | str) else None,
            *(
                structural_key(child)
                for child in children(node)
                if isinstance(child, Expr) and not hasattr(child, "num_inputs")
            ),
        )
    return node


def _contents(expr: Expr) -> tuple[frozenset[Var], bool]:
    """Return the variables in an expression, and whether it reads memory."""
    inside = list(nodes_in(expr))
    variables = frozenset(n for n in inside if isinstance(n, Var))
    return variables, any(isinstance(n, TensorLoad | Call) for n in inside)
