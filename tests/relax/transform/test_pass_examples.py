"""The recorded Before/After examples of single passes."""

import numpy as np
import pytest

from relaxlab.ir import PassContext, Target
from relaxlab.relax import TensorType, backend, dpl, transform
from relaxlab.script import from_source
from tests.golden_compiler import document


def in_order(*passes):
    def run(mod):
        for pass_ in passes:
            mod = pass_(mod)
        return mod

    return run


def on_llvm(pass_):
    def run(mod):
        with Target("llvm"):
            return pass_(mod)

    return run


TO_NON_DATAFLOW = (transform.ToNonDataflow(), transform.RemovePurityChecking())
PLAN = (
    transform.LegalizeOps(),
    transform.RewriteDataflowReshape(),
    *TO_NON_DATAFLOW,
    transform.CallTIRRewrite(),
    transform.StaticPlanBlockMemory(),
)
FUSE = (transform.LegalizeOps(), transform.AnnotateTIROpPattern(), transform.FuseOps())
MATMUL_RELU = (
    "demo.matmul_relu",
    dpl.is_op("relax.nn.relu")(dpl.is_op("relax.matmul")(dpl.wildcard(), dpl.wildcard())),
)
PASSES = {
    "AdjustMatmulOrder": transform.AdjustMatmulOrder(),
    "AllocateWorkspace": transform.AllocateWorkspace(),
    "AttachAttrLayoutFreeBuffers": in_order(
        transform.LegalizeOps(), transform.AttachAttrLayoutFreeBuffers()
    ),
    "DispatchSortScan": on_llvm(backend.DispatchSortScan()),
    "IPCAllReduceRewrite": transform.IPCAllReduceRewrite(1),
    "LazyGetInput": transform.LazyGetInput(),
    "LazySetOutput": transform.LazySetOutput(),
    "LegalizeOps": transform.LegalizeOps(),
    "LowerGPUIPCAllocStorage": transform.LowerGPUIPCAllocStorage(),
    "AnnotateTIROpPattern": in_order(transform.LegalizeOps(), transform.AnnotateTIROpPattern()),
    "AttachGlobalSymbol": transform.AttachGlobalSymbol(),
    "BindParams": transform.BindParams("main", {"w": np.array(2.0, "float32")}),
    "BindSymbolicVars": transform.BindSymbolicVars({"n": 4}),
    "BundleModelParams": transform.BundleModelParams(),
    "CallTIRRewrite": in_order(
        transform.LegalizeOps(), *TO_NON_DATAFLOW, transform.CallTIRRewrite()
    ),
    "CanonicalizeBindings": transform.CanonicalizeBindings(),
    "CombineParallelMatmul": transform.CombineParallelMatmul(),
    "ComputePrimValue": in_order(
        transform.ComputePrimValue(), transform.VMShapeLower(emit_err_ctx=False)
    ),
    "ConvertToDataflow": transform.ConvertToDataflow(),
    "ConvertToDataflow/min_size_1": transform.ConvertToDataflow(min_size=1),
    "DataflowUseInplaceCalls": transform.DataflowUseInplaceCalls(),
    "DeadCodeElimination": transform.DeadCodeElimination(),
    "DecomposeOpsForInference": transform.DecomposeOpsForInference(),
    "DecomposeOpsForTraining": transform.DecomposeOpsForTraining(),
    "EliminateCommonSubexpr": transform.EliminateCommonSubexpr(),
    "EliminateCommonSubexpr/call_only": transform.EliminateCommonSubexpr(call_only=True),
    "ExpandMatmulOfSum": transform.ExpandMatmulOfSum(),
    "ExpandTupleArguments+RemoveUnusedParameters+RemoveUnusedOutputs": in_order(
        transform.ExpandTupleArguments(),
        transform.RemoveUnusedParameters(),
        transform.RemoveUnusedOutputs(),
    ),
    "FastMathTransform": transform.FastMathTransform(),
    "FoldConstant": in_order(
        transform.BindParams("main", {"w": np.arange(6, dtype="float32").reshape(2, 3)}),
        transform.LegalizeOps(),
        transform.FoldConstant(),
    ),
    "FuseOps": in_order(*FUSE),
    "FuseOps/opt_level_0": in_order(*FUSE[:2], transform.FuseOps(fuse_opt_level=0)),
    "FuseOpsByPattern": transform.FuseOpsByPattern([MATMUL_RELU]),
    "FuseOpsByPattern/annotate_codegen": transform.FuseOpsByPattern(
        [MATMUL_RELU], annotate_codegen=True
    ),
    "FuseTransposeMatmul": transform.FuseTransposeMatmul(),
    "FuseTIR": in_order(*FUSE, transform.FuseTIR()),
    "InlinePrivateFunctions": transform.InlinePrivateFunctions(),
    "KillAfterLastUse": transform.KillAfterLastUse(),
    "LambdaLift": transform.LambdaLift(),
    "LiftTransformParams": transform.LiftTransformParams(),
    "LowerAllocTensor+KillAfterLastUse": in_order(
        *PLAN, transform.LowerAllocTensor(), transform.KillAfterLastUse()
    ),
    "LowerRuntimeBuiltin": transform.LowerRuntimeBuiltin(),
    "MergeCompositeFunctions": in_order(
        transform.FuseOpsByPattern(
            [
                ("demo.matmul", dpl.is_op("relax.matmul")(dpl.wildcard(), dpl.wildcard())),
                ("demo.relu", dpl.is_op("relax.nn.relu")(dpl.wildcard())),
            ]
        ),
        transform.MergeCompositeFunctions(),
    ),
    "Normalize": transform.Normalize(),
    "NormalizeGlobalVar": transform.NormalizeGlobalVar(),
    "RemoveRedundantReshape": transform.RemoveRedundantReshape(),
    "ReorderPermuteDimsAfterConcat": transform.ReorderPermuteDimsAfterConcat(),
    "ReorderTakeAfterMatmul": transform.ReorderTakeAfterMatmul(),
    "RewriteCUDAGraph": in_order(*PLAN, transform.RewriteCUDAGraph()),
    "RewriteDataflowReshape": in_order(transform.LegalizeOps(), transform.RewriteDataflowReshape()),
    "StaticPlanBlockMemory": in_order(*PLAN),
    "ToMixedPrecision": transform.ToMixedPrecision(out_dtype="float32"),
    "ToNonDataflow+RemovePurityChecking": in_order(*TO_NON_DATAFLOW),
    "TopologicalSort/depth_first_from_inputs": transform.TopologicalSort(
        "depth-first", "from-inputs"
    ),
    "UpdateParamType": transform.UpdateParamType(
        lambda param: TensorType([2], "float16") if param.name == "x" else None
    ),
    "VMShapeLower": transform.VMShapeLower(emit_err_ctx=False),
}
#: TVM lets one branch of an If use the storages of the other; test_static_plan_block_memory.py.
WRONG_IN_TVM = {"StaticPlanBlockMemory/if_branches_leak"}


#: TVM numbers variables of one name by their address.
BY_ADDRESS = {"LegalizeOps/dynamic_strided_slice"}


def pass_of(case):
    return PASSES.get(case["name"]) or PASSES.get(case["name"].split("/")[0])


CASES = [
    case
    for case in document("pass_examples")["cases"]
    if pass_of(case) and case["name"] not in WRONG_IN_TVM | BY_ADDRESS
]


def test_every_pass_has_an_example():
    assert {case["name"].split("/")[0] for case in CASES} == {n.split("/")[0] for n in PASSES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_example(case):
    mod = from_source(case["before"])
    with PassContext(config=case.get("config")):
        result = pass_of(case)(mod)
    assert result.script().rstrip() == case["after"].rstrip()
    assert mod.script().rstrip() == case["before"].rstrip()
