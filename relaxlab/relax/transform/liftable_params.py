"""What of a function depends on its weights only.

Used by ``LiftTransformParams``; several functions may share one transformation of weights, and
then only what all of them compute counts.

Examples
--------
>>> from relaxlab.relax.expr import Function, TensorType, Var
>>> x, w = Var("x", TensorType([4])), Var("w", TensorType([4]))
>>> [v.name for v in Weights(Function([x, w], x, attrs={"num_input": 1})).weights]
['w']
"""

from collections.abc import Sequence
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir import Call, Expr, Op, Var
from relaxlab.ir.node import map_children, structural_equal, structural_hash
from relaxlab.ir.prim_functor import free_vars as scalar_vars
from relaxlab.relax.analysis import contains_impure_call, used_vars
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    Function,
    If,
    SeqExpr,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprVisitor
from relaxlab.relax.type_variables import (
    definable_tir_vars_in_type,
    tir_vars_in_type,
)

__all__ = ["Weights", "is_stop", "keep_common"]


class _Free(ExprVisitor):
    """Collects the variables of a value, sizes in shapes included, those in types not."""

    def __init__(self) -> None:
        self.found: dict[Var, None] = {}

    def visit_var_(self, op: Var) -> None:
        self.found.setdefault(op)

    def visit_prim_expr_(self, op: Expr) -> None:
        self.found.update(dict.fromkeys(scalar_vars(op)))


def _free(value: Expr) -> list[Var]:
    visitor = _Free()
    visitor.visit_expr(value)
    return list(visitor.found)


def is_stop(value: Expr) -> bool:
    """Say whether a value is one that must not be lifted."""
    name = "relax.builtin.stop_lift_params"
    return isinstance(value, Call) and isinstance(value.op, Op) and value.op.name == name


class Weights:
    """One function, seen from its weights.

    Parameters
    ----------
    func
        A function with ``num_input``.

    Attributes
    ----------
    inputs, weights
        Its parameters, split.
    lifted
        Bindings that depend on weights, and on nothing else but constants.
    constant
        Bindings that depend on constants only: these may stand on both sides.
    """

    def __init__(self, func: Function) -> None:
        count = int(func.attrs["num_input"])
        self.func = func
        self.inputs, self.weights = func.params[:count], func.params[count:]
        self.lifted: dict[Var, VarBinding] = {}
        self.constant: dict[Var, VarBinding] = {}
        known = set(self.weights)
        for block in func.body.blocks:
            if isinstance(block, DataflowBlock):
                for binding in block.bindings:
                    self._consider(binding, known)

    def _consider(self, binding: Binding, known: set[Var]) -> None:
        if not isinstance(binding, VarBinding) or is_stop(binding.value):
            return
        if isinstance(binding.value, If | Function) or contains_impure_call(binding.value):
            return
        needs = _free(binding.value)
        if not all(var in known for var in needs):
            return
        known.add(binding.var)
        if all(var in self.constant for var in needs):
            self.constant[binding.var] = binding
        else:
            self.lifted[binding.var] = binding

    def sizes(self) -> list[Var]:
        """Return the sizes that the weights define."""
        found = (v for w in self.weights for v in definable_tir_vars_in_type(w.ty))
        return list(dict.fromkeys(found))

    def rest(self) -> tuple[BindingBlock, ...]:
        """Return the blocks without what is lifted."""
        return tuple(
            type(block)(
                tuple(b for b in block.bindings if getattr(b, "var", None) not in self.lifted),
                span=block.span,
            )
            for block in self.func.body.blocks
        )

    def needed(self) -> set[Var]:
        """Return the variables that the rest of the function mentions."""
        rest = SeqExpr(self.rest(), self.func.body.body)
        return {*used_vars(rest), *tir_vars_in_type(self.func.ret_ty)}


def keep_common(functions: Sequence[Weights]) -> list[dict[Var, Var]]:
    """Lift only what all functions compute.

    Returns
    -------
    list
        For each function, its variables by the variables of the first that have the same value.

    Raises
    ------
    InternalError
        If the weights differ.
    """
    first = functions[0]
    own = (*first.weights, *first.sizes(), *first.constant, *first.lifted)
    names: list[dict[Var, Var]] = [{var: var for var in own}]
    common = set(first.lifted)
    for other in functions[1:]:
        mine = _match(first, other)
        common &= {mine[var] for var in other.lifted if var in mine}
        names.append({of_first: var for var, of_first in reversed(mine.items())})
    for func, known in zip(functions, names, strict=True):
        kept = {known[var] for var in common}
        func.lifted = {var: binding for var, binding in func.lifted.items() if var in kept}
    return names


def _match(first: Weights, other: Weights) -> dict[Var, Var]:
    """Return, for variables of ``other``, the variables of ``first`` that have the same value."""
    if len(first.weights) != len(other.weights):
        raise InternalError(
            "Functions that share the transformation of weights must have the same weights, but "
            f"one has {len(first.weights)} and another {len(other.weights)}"
        )
    found: dict[Var, Var] = {}
    for mine, theirs in zip(first.weights, other.weights, strict=True):
        sizes = zip(tir_vars_in_type(theirs.ty), tir_vars_in_type(mine.ty), strict=False)
        found.update(sizes)
        found[theirs] = mine
        if _renamed(theirs.ty, found) != mine.ty:
            raise InternalError(
                "Functions that share the transformation of weights must have the same weights, "
                f"but {mine.name!r} of type {mine.ty!r} is {theirs.name!r} of type {theirs.ty!r} "
                "in another"
            )
    known: dict[int, list[tuple[Expr, Var]]] = {}
    for var, source in (*first.constant.items(), *first.lifted.items()):
        known.setdefault(_key(source.value), []).append((source.value, var))
    for block in other.func.body.blocks:
        for binding in block.bindings:
            if isinstance(binding, VarBinding) and (
                binding.var in other.lifted or binding.var in other.constant
            ):
                value = _renamed(binding.value, found)
                for candidate, var in known.get(_key(value), ()):
                    if structural_equal(candidate, value):
                        found.setdefault(binding.var, var)
    return found


def _key(value: Expr) -> int:
    # free variables count by identity, which the structural hash leaves out
    return hash((structural_hash(value), *_free(value)))


def _renamed(node: Any, names: dict[Var, Var]) -> Any:
    """Replace variables by name, and nothing else: no type is inferred again."""
    if isinstance(node, Var):
        return names.get(node, node)
    return map_children(node, lambda child: _renamed(child, names))
