import json
from pathlib import Path

import pytest

from relaxlab.errors import InternalError
from relaxlab.ir import IRModule, Target, Var
from relaxlab.relax import op
from relaxlab.relax.backend import DispatchSampling, DispatchSortScan
from relaxlab.relax.backend.dispatch_sampling import get_sample_index
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.type import TensorType
from relaxlab.runtime.dtype import DataType

GOLDEN = Path(__file__).parents[2] / "golden" / "compiler" / "op_legalized.json"


def module_of(build, *shapes):
    params = [Var(f"x{i}", TensorType(shape)) for i, shape in enumerate(shapes)]
    bb = BlockBuilder()
    with bb.function("main", params):
        out = bb.emit(build(*params))
        bb.emit_func_output(out)
    return bb.get()


def test_a_module_without_such_operators_needs_no_target_and_stays():
    mod = module_of(op.exp, [2])
    assert DispatchSortScan()(mod) is mod
    assert DispatchSampling()(mod) is mod


def test_sorting_needs_a_target():
    mod = module_of(op.sort, [2, 4])
    with pytest.raises(ValueError, match="Target not found"):
        DispatchSortScan()(mod)


def test_a_gpu_has_no_kernel_here():
    mod = module_of(op.cumsum, [2, 4])
    with Target("cuda"), pytest.raises(InternalError, match="no kernel for target cuda"):
        DispatchSortScan()(mod)


@pytest.mark.parametrize(
    ("build", "kernel"),
    [
        (lambda x: op.sort(x, descending=True), "sort"),
        (lambda x: op.argsort(x, dtype="int64"), "argsort"),
        (lambda x: op.topk(x, 2), "topk"),
        (lambda x: op.cumsum(x, axis=1), "cumsum"),
        (lambda x: op.cumprod(x, exclusive=True), "cumprod"),
    ],
)
def test_dispatch_makes_a_kernel_call_of_the_same_type(build, kernel):
    mod = module_of(build, [2, 4])
    with Target("llvm"):
        out = DispatchSortScan()(mod)
    assert {gvar.name_hint for gvar in out.functions} == {kernel, "main"}
    assert out["main"].ret_ty == mod["main"].ret_ty
    assert "R.call_tir(" in out.script()


def test_bucketize_passes_the_boundaries_first():
    mod = module_of(lambda x, edges: op.bucketize(x, edges, right=True), [2, 4], [3])
    with Target("llvm"):
        out = DispatchSortScan()(mod)
    assert "R.call_tir(cls.searchsorted, (x1, x0)" in out.script()


def test_the_sampling_kernel_is_the_recorded_one():
    cases = json.loads(GOLDEN.read_text())["cases"]
    (script,) = (c["script"] for c in cases if c["op"] == "relax.multinomial_from_uniform")
    begin = script.index("    def get_sample_index(")
    recorded = script[begin : script.index("\n\n", begin)]
    kernel = get_sample_index(DataType("float32"), DataType("int64"), DataType("int64"))
    text = IRModule({"get_sample_index": kernel}).script()
    assert text[text.index("    def get_sample_index(") :].rstrip() == recorded.rstrip()
