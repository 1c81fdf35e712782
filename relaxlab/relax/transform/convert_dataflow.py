"""Gather pure bindings into dataflow blocks.

Counterpart: ``tvm.relax.transform.ConvertToDataflow``.

Examples
--------
>>> ConvertToDataflow().min_size
2
"""

from dataclasses import dataclass

from relaxlab.ir import Expr, IRModule, PassContext, replace
from relaxlab.relax.analysis import contains_impure_call
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    Function,
    If,
    MatchCast,
    SeqExpr,
    VarBinding,
)
from relaxlab.relax.transform.canonicalize_bindings import CanonicalizeBindings
from relaxlab.relax.transform.pass_base import FunctionPass

__all__ = ["ConvertToDataflow"]


def _can_be_dataflow(binding: Binding) -> bool:
    if not isinstance(binding, VarBinding | MatchCast):
        return False
    if isinstance(binding.value, If | Function):
        return False
    return not contains_impure_call(binding.value)


def _gather(seq: SeqExpr, min_size: int) -> SeqExpr:
    """Split the blocks of a sequence into dataflow blocks and the rest."""
    blocks: list[BindingBlock] = []
    run: list[Binding] = []
    joins_block = False  # whether the run contains a block that is dataflow already
    rest: list[Binding] = []

    def end_run() -> None:
        nonlocal joins_block
        if run and (joins_block or len(run) >= min_size):
            end_rest()
            blocks.append(DataflowBlock(tuple(run)))
        else:
            rest.extend(run)
        run.clear()
        joins_block = False

    def end_rest() -> None:
        if rest:
            blocks.append(BindingBlock(tuple(rest)))
            rest.clear()

    for block in seq.blocks:
        if isinstance(block, DataflowBlock):
            run.extend(block.bindings)
            joins_block = True
            continue
        for binding in block.bindings:
            if _can_be_dataflow(binding):
                run.append(binding)
            else:
                end_run()
                rest.append(_gather_inside(binding, min_size))
    end_run()
    end_rest()
    if _same_blocks(tuple(blocks), seq.blocks):
        return seq
    return replace(seq, blocks=tuple(blocks))


def _same_blocks(new: tuple[BindingBlock, ...], old: tuple[BindingBlock, ...]) -> bool:
    return len(new) == len(old) and all(
        type(a) is type(b)
        and len(a.bindings) == len(b.bindings)
        and all(x is y for x, y in zip(a.bindings, b.bindings, strict=True))
        for a, b in zip(new, old, strict=True)
    )


def _gather_inside(binding: Binding, min_size: int) -> Binding:
    if not isinstance(binding, VarBinding):
        return binding
    value: Expr = binding.value
    match value:
        case If(true_branch=SeqExpr() as true_branch, false_branch=SeqExpr() as false_branch):
            value = replace(
                value,
                true_branch=_gather(true_branch, min_size),
                false_branch=_gather(false_branch, min_size),
            )
        case Function(body=body):
            value = replace(value, body=_gather(body, min_size))
        case _:
            return binding
    return replace(binding, value=value)


@dataclass(frozen=True)
class _Gather(FunctionPass):
    pass_name = "ConvertToDataflow"

    min_size: int

    def transform_function(self, func: Function, mod: IRModule, ctx: PassContext) -> Function:
        return replace(func, body=_gather(func.body, self.min_size))


@dataclass(frozen=True)
class ConvertToDataflow(FunctionPass):
    """Turn runs of pure bindings into dataflow blocks, then canonicalize.

    Parameters
    ----------
    min_size
        Shortest run that is worth a block.
    """

    min_size: int = 2

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Gather, and let CanonicalizeBindings make inner variables dataflow variables."""
        gathered = _Gather(self.min_size).run(mod, ctx)
        return CanonicalizeBindings()(gathered)
