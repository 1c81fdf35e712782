"""Drawing from a distribution becomes a running sum and a kernel that finds the place in it.

Counterpart: ``tvm.relax.backend.DispatchSampling``.

Examples
--------
>>> DispatchSampling().info.name
'DispatchSampling'
"""

from dataclasses import dataclass

from relaxlab import topi
from relaxlab.ir import IRModule, ModulePass, PassContext, prim_ops
from relaxlab.ir.attrs import DictAttrs
from relaxlab.ir.expr import Call, Expr, Tuple, Var
from relaxlab.ir.op import Op
from relaxlab.ir.prim import IntImm, Range, TensorLoad
from relaxlab.relax.backend.dispatch import dispatch_calls, target_of
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType
from relaxlab.te.access_regions import access_regions
from relaxlab.tirx import (
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    PrimFunc,
    SBlock,
    SBlockRealize,
    decl_buffer,
)

__all__ = ["DispatchSampling", "get_sample_index"]

_INT64 = DataType("int64")
_TRUE = IntImm(DataType("bool"), 1)


def get_sample_index(prob_dtype: DataType, sample_dtype: DataType, dtype: DataType) -> PrimFunc:
    """Return the kernel that finds where a sample falls in a running sum of probabilities.

    ``output_index[i, 0]`` is the first column of row ``sample_indices[i, 0]`` of ``prob`` whose
    value exceeds ``usample[i, 0]``, or the last column.

    Parameters
    ----------
    prob_dtype, sample_dtype, dtype
        Dtypes of the sums (and samples), of the row numbers, and of the result.
    """
    batch, vocab_size, out_batch = (Var(n, _INT64) for n in ("batch", "vocab_size", "out_batch"))
    zero, one = (IntImm(_INT64, v) for v in (0, 1))
    prob = decl_buffer((batch, vocab_size), prob_dtype, "prob")
    usample = decl_buffer((out_batch, 1), prob_dtype, "usample")
    sample_indices = decl_buffer((out_batch, 1), sample_dtype, "sample_indices")
    output_index = decl_buffer((out_batch, 1), dtype, "output_index")

    row, column = Var("v_ax0", _INT64), Var("v_ax1", _INT64)
    sample = TensorLoad(usample, (row, zero))
    which = TensorLoad(sample_indices, (row, zero))
    here = TensorLoad(prob, (which, column))
    before = TensorLoad(prob, (which, column - one))
    place = (row, prim_ops.const(0))
    found = prim_ops.logical_or(
        prim_ops.less(sample, here), prim_ops.equal(column + one, vocab_size)
    )
    first_of_its_kind = IfThenElse(
        prim_ops.greater_equal(sample, before),
        BufferStore(output_index, prim_ops.cast(dtype, column), place),
    )
    choose = IfThenElse(
        prim_ops.equal(column, zero),
        BufferStore(output_index, prim_ops.const(0, dtype), place),
        first_of_its_kind,
    )
    body = IfThenElse(found, choose)
    reads, writes = access_regions(body)
    iter_vars = (IterVar(Range(zero, out_batch), row), IterVar(Range(zero, vocab_size), column))
    block = SBlock(iter_vars, reads, writes, "T_get_sample_index", body)
    ax0, ax1 = Var("ax0", _INT64), Var("ax1", _INT64)
    inner = For(ax1, zero, vocab_size, ForKind.SERIAL, SBlockRealize((ax0, ax1), _TRUE, block))
    outer = For(ax0, zero, out_batch, ForKind.SERIAL, inner)
    root = SBlockRealize((), _TRUE, SBlock((), (), (), "root", outer))
    params = (prob, usample, sample_indices, output_index)
    return PrimFunc(params, root, attrs=DictAttrs({"s_tir": True}))


def _multinomial(bb: BlockBuilder, call: Call) -> Expr:
    target_of(call)  # says so when there is no kernel for the target
    prob, usample, sample_indices = call.args
    assert call.attrs is not None
    types = [arg.ty for arg in call.args]
    result = call.ty
    dtypes = [ty.dtype for ty in types if isinstance(ty, TensorType) and ty.dtype is not None]
    if len(dtypes) != len(types) or not isinstance(result, TensorType) or result.dtype is None:
        raise ValueError(f"{call.op!r} needs operands of known dtype, got {types}")
    sums = bb.emit_te(topi.cumsum, prob, 1, str(dtypes[0]), primfunc_name_hint="cumsum")
    kernel = get_sample_index(dtypes[0], dtypes[2], result.dtype)
    gvar = bb.add_func(kernel, "get_sample_index")
    return Call(
        Op.get("relax.call_tir"),
        (gvar, Tuple((sums, usample, sample_indices))),
        ty_args=(result,),
    )


@dataclass(frozen=True)
class DispatchSampling(ModulePass):
    """Give multinomial_from_uniform its kernels.

    Needs a target (of the tensors' device, or an active one) when the module has such a call.
    """

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Replace the calls in every Relax function."""
        return dispatch_calls(mod, {"relax.multinomial_from_uniform": _multinomial})
