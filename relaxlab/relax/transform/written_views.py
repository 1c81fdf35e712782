"""Which tensors may not be seen through views, because someone writes to their memory.

A kernel that works in place changes its argument, and with it every view of the same memory. A
view that is read later, or a parameter that belongs to the caller, must not notice: what would
make it a view has to stay a copy. TVM makes the view all the same.

Examples
--------
>>> from relaxlab.relax.expr import Function, SeqExpr, TensorType, Var
>>> x = Var("x", TensorType([2], "float32"))
>>> unsafe_views(Function([x], SeqExpr((), x, ty=x.ty)), lambda call: False)
set()
"""

from collections.abc import Callable

from relaxlab.ir import Call, Expr, Op, Tuple, TupleGetItem, Var
from relaxlab.relax.analysis.variables import used_vars
from relaxlab.relax.expr import Function, If, MatchCast, SeqExpr, VarBinding
from relaxlab.relax.expr_functor import ExprVisitor

__all__ = ["unsafe_views"]

_VIEWS = frozenset({"relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset"})


def unsafe_views(func: Function, would_be_view: Callable[[Call], bool]) -> set[Var]:
    """Return the variables that must not become views of other tensors.

    Parameters
    ----------
    func
        A function before its outputs are allocated.
    would_be_view
        Says of a kernel call whether it is about to become a view of its first argument.
    """
    walk = _Walk(would_be_view)
    for param in func.params:
        walk.belongs_to_caller.add(param)
    walk.visit_expr(func.body)
    return walk.unsafe() if walk.writes else set()


class _Walk(ExprVisitor):
    """Groups variables that would share memory; notes writes and last uses."""

    def __init__(self, would_be_view: Callable[[Call], bool]) -> None:
        self.would_be_view = would_be_view
        self.parent: dict[Var, Var] = {}
        self.last_use: dict[Var, int] = {}
        self.belongs_to_caller: set[Var] = set()
        #: Position of each write, with the variable that is written to.
        self.writes: list[tuple[int, Var]] = []
        self.views: list[Var] = []
        self.step = 0

    def root(self, var: Var) -> Var:
        while var in self.parent:
            var = self.parent[var]
        return var

    def join(self, var: Var, value: Expr) -> None:
        for other in used_vars(value):
            a, b = self.root(var), self.root(other)
            if a is not b:
                self.parent[a] = b

    def visit_var_binding_(self, binding: VarBinding) -> None:
        self.step += 1
        value = binding.value
        super().visit_var_binding_(binding)
        match value:
            case Call(op=Op(name="relax.call_tir_inplace"), args=(_, Tuple(fields=fields), *_)):
                assert value.attrs is not None
                for index in value.attrs["inplace_indices"]:
                    if index >= 0 and isinstance(fields[index], Var):
                        self.writes.append((self.step, fields[index]))
            case Call(op=Op(name=name)) if name in _VIEWS:
                self.join(binding.var, value.args[0])
            case Call(args=(_, Tuple(fields=(first, *_)), *_)) if self.would_be_view(value):
                self.views.append(binding.var)
                self.join(binding.var, first)
            case Var() | Tuple() | TupleGetItem():
                self.join(binding.var, value)
            case If(true_branch=SeqExpr() as one, false_branch=SeqExpr() as other):
                self.join(binding.var, one.body)
                self.join(binding.var, other.body)
            case _:
                pass

    def visit_match_cast_(self, binding: MatchCast) -> None:
        self.step += 1
        super().visit_match_cast_(binding)
        self.join(binding.var, binding.value)

    def visit_seq_expr_(self, op: SeqExpr) -> None:
        for block in op.blocks:
            self.visit_binding_block(block)
        self.step += 1
        self.visit_expr(op.body)

    def visit_var_(self, op: Var) -> None:
        self.last_use[op] = self.step

    def unsafe(self) -> set[Var]:
        groups: dict[Var, list[Var]] = {}
        for var in {*self.parent, *self.parent.values()}:
            groups.setdefault(self.root(var), []).append(var)
        found: set[Var] = set()
        for step, written in self.writes:
            group = groups.get(self.root(written), [])
            if any(self.notices(var, written, step) for var in group):
                found.update(var for var in self.views if self.root(var) is self.root(written))
        return found

    def notices(self, var: Var, written: Var, step: int) -> bool:
        """Whether ``var`` must still have its old content after a write to ``written``."""
        if var is written:
            return False  # whoever asks for a write in place gives the variable up
        return var in self.belongs_to_caller or self.last_use.get(var, 0) > step
