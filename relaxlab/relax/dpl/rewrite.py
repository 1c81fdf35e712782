"""Replacing what matches a pattern. Counterpart: ``tvm.relax.dpl.rewrite``.

Examples
--------
>>> from relaxlab import relax
>>> from relaxlab.relax.dpl.pattern import is_op, wildcard
>>> from relaxlab.script import from_source
>>> func = from_source('''
... @R.function
... def f(x: R.Tensor((4,), "float32")):
...     y = R.add(x, x)
...     return y
... ''')
>>> some = wildcard()
>>> twice = is_op("relax.add")(some, some)
>>> def rewriter(call, matched):
...     return relax.op.multiply(matched[some], relax.const(2, "float32"))
>>> print(rewrite_call(twice, rewriter, func).body.blocks[0].bindings[0].value)
R.multiply(x, R.const(2.0, "float32"))
"""

from collections.abc import Callable, Mapping
from typing import Any

from relaxlab.ir import Call, Expr, Var
from relaxlab.relax.analysis import get_var2val, remove_all_unused
from relaxlab.relax.dpl.pattern import DFPattern, Matcher
from relaxlab.relax.expr import Function
from relaxlab.relax.expr_functor import ExprMutator

__all__ = ["rewrite_call"]

#: Gets the call that matched and what each part of the pattern stands for.
Rewriter = Callable[[Expr, Mapping[DFPattern, Expr]], Expr]


class _Rewriter(ExprMutator):
    def __init__(self, pattern: DFPattern, rewriter: Rewriter, func: Function) -> None:
        super().__init__()
        self.pattern = pattern
        self.rewriter = rewriter
        self.values: dict[Var, Expr] = dict(get_var2val(func))

    def visit_call_(self, op: Call) -> Expr:
        call = super().visit_call_(op)
        matcher = Matcher(self.values)
        if not matcher.match(self.pattern, call):
            return call
        new = self.rewriter(call, matcher.matched)
        return call if new is call else self.builder.normalize(new)

    def reemit_binding(self, binding: Any, value: Expr) -> None:
        super().reemit_binding(binding, value)
        new = self.var_remap.get(binding.var, binding.var)
        if isinstance(new, Var):
            self.values[new] = value  # what was rewritten can match again further down


def rewrite_call(pattern: DFPattern, rewriter: Rewriter, func: Function) -> Function:
    """Replace every call that matches.

    Parameters
    ----------
    pattern
        What to look for; values of variables are looked into.
    rewriter
        Called with the call and what each part of the pattern stands for; returns what takes its
        place, the call itself to keep it.
    func
        The function.

    Returns
    -------
    Function
        The function with calls replaced, ``func`` itself if none was.
    """
    new: Any = _Rewriter(pattern, rewriter, func).visit_expr(func)
    return func if new is func else remove_all_unused(new)
