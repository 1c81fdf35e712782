"""What the two dispatch passes share: a mutator that asks a table, and the target of a call.

Examples
--------
>>> from relaxlab.ir import Target
>>> is_gpu(Target("cuda"))
True
"""

from collections.abc import Callable, Mapping

from relaxlab.errors import InternalError
from relaxlab.ir import IRModule, Target
from relaxlab.ir.expr import Call, Expr
from relaxlab.ir.global_info import VDevice
from relaxlab.ir.op import Op
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.expr import Function
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.transform.normalize_global_var import NormalizeGlobalVar
from relaxlab.relax.type import TensorType

__all__ = ["DispatchFunc", "dispatch_calls", "is_gpu", "target_of"]

DispatchFunc = Callable[[BlockBuilder, Call], Expr]


def is_gpu(target: Target) -> bool:
    """Say whether kernels for the target run on a GPU."""
    return "gpu" in target.keys


def target_of(call: Call) -> Target:
    """Return the target a call is for: that of its tensors' device, else the active one.

    Raises
    ------
    ValueError
        If there is neither.
    InternalError
        If it is a GPU: the kernels made here run on CPUs.
    """
    target = _device_target(call) or Target.current()
    if target is None:
        raise ValueError(
            "Target not found. Please ensure that the target is annotated within the module, or "
            "alternatively, execute this within a specified target context."
        )
    if is_gpu(target):
        raise InternalError(
            f"{call.op!r} has no kernel for target {target}; expected a CPU target. Give the "
            "operator a kernel of your own with LegalizeOps(customize_legalize_map=...)"
        )
    return target


def _device_target(call: Call) -> Target | None:
    for arg in call.args:
        device = arg.ty.vdevice if isinstance(arg.ty, TensorType) else None
        if isinstance(device, VDevice):
            return Target(device.target)
    return None


def dispatch_calls(mod: IRModule, table: Mapping[str, DispatchFunc]) -> IRModule:
    """Replace every call of an operator in ``table``, in all Relax functions."""
    dispatcher = _Dispatcher(mod, table)
    for gvar, func in mod.functions_items():
        if isinstance(func, Function):
            # TVM puts each back, changed or not: the order of functions follows from that
            dispatcher.builder.update_func(gvar, dispatcher.visit_expr(func))
    result = dispatcher.builder.get()
    same = list(result.functions.items()) == list(mod.functions.items())
    return NormalizeGlobalVar()(mod if same else result)


class _Dispatcher(ExprMutator):
    def __init__(self, mod: IRModule, table: Mapping[str, DispatchFunc]) -> None:
        super().__init__(mod)
        self.table = table

    def visit_call_(self, op: Call) -> Expr:
        visited = super().visit_call_(op)
        if isinstance(visited, Call) and isinstance(visited.op, Op):
            replace = self.table.get(visited.op.name)
            if replace is not None:
                return self.builder.normalize(replace(self.builder, visited))
        return visited
