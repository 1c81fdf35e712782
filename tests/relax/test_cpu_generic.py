"""The CPU pipeline that fuses: every recorded text on the way, and the values that come out."""

from itertools import pairwise

import pytest

from relaxlab import relax, runtime
from relaxlab.codegen import GENERATORS
from relaxlab.ir import PassContext, PassInstrument, Target
from relaxlab.relax import backend, pipeline, transform
from relaxlab.relax.pipeline import get_default_pipeline, get_pipeline
from relaxlab.script import from_source
from tests.golden_compiler import decode, document, script_of, scripts
from tests.relax.test_pipeline import NAMES, WITH_CONSTANTS, assert_same, program
from tests.relax.transform.checks import module

LLVM = Target("llvm")


def names(passes):
    return [p.info.name for p in passes]


@pytest.mark.parametrize("name", NAMES)
def test_script_after_every_pass(name):
    mod = program(name)
    steps = scripts(name, "cpu_generic")[-18:]
    passes = get_default_pipeline(LLVM).passes
    assert names(passes) == [step for step, _ in steps]
    with LLVM:
        for pass_, (step, text) in zip(passes, steps, strict=True):
            mod = pass_(mod)
            assert mod.script().rstrip() == text.rstrip(), step
    builder = relax.ExecBuilder()
    relax.vm_build._vmcodegen(builder, mod)
    doc = document(name)["cpu_generic"]
    assert builder.get().as_text() == script_of(document(name), doc["as_text"])
    assert builder.get().stats() == script_of(document(name), doc["stats"])


#: A script cannot say that two buffers have one name, from which FuseTIR makes the next.
NAMES_ALIKE = {"concat_split", "mlp2"}


@pytest.mark.parametrize("name", sorted(set(NAMES) - WITH_CONSTANTS - NAMES_ALIKE))
def test_each_pass_alone(name):
    """Each pass on the recorded script before it, so that one error does not hide another."""
    steps = scripts(name, "cpu_generic")[-16:-10]
    assert steps[1][0] == "AnnotateTIROpPattern"
    for (_, before), (step, after) in pairwise(steps):
        pass_ = getattr(transform, step)()
        mod = from_source(before)
        result = pass_(mod)
        assert result.script().rstrip() == after.rstrip(), step
        assert mod.script().rstrip() == before.rstrip(), step
        assert pass_(result) is result, step


@pytest.fixture
def golden_functions():
    runtime.register_global_func("golden.add_one_dps", lambda x, out: out.copyfrom(x.numpy() + 1))
    runtime.register_global_func("golden.double", lambda x: runtime.tensor(x.numpy() * 2))
    runtime.register_global_func(
        "golden.make_object", lambda x, i, s, d: f"{tuple(x.shape)}|{int(i)}|{s}|{d}"
    )
    yield
    for name in ("golden.add_one_dps", "golden.double", "golden.make_object"):
        runtime.remove_global_func(name)


@pytest.mark.usefixtures("golden_functions")
@pytest.mark.parametrize("target", [kind for kind in ("numpy", "llvm") if kind in GENERATORS])
@pytest.mark.parametrize("name", NAMES)
def test_values_are_those_of_the_plain_pipeline(name, target):
    """The recorded results are those of default_build."""
    doc = document(name)
    fused = get_default_pipeline(Target(target))
    vm = relax.VirtualMachine(
        relax.build(program(name), target, relax_pipeline=fused), runtime.cpu()
    )
    assert doc["runs"]
    for run in doc["runs"]:
        assert_same(vm[run["func"]](*map(decode, run["args"])), run["result"])


# ---------------------------------------------------------------- the lists


def test_the_four_lists_make_the_pipeline():
    parts = (
        pipeline.library_dispatch_passes,
        pipeline.legalize_passes,
        pipeline.dataflow_lower_passes,
        pipeline.finalize_passes,
    )
    together = [step for part in parts for step in part(LLVM)]
    assert list(get_default_pipeline(LLVM).passes) == together
    assert [type(p) for p in backend.cpu_generic.legalize_passes(LLVM)] == [
        type(p) for p in pipeline.legalize_passes(LLVM)
    ]


@pytest.mark.parametrize("kind", ["llvm", "numpy", "c"])
def test_cpu_targets_share_the_lists(kind):
    assert names(get_default_pipeline(Target(kind)).passes) == names(
        get_default_pipeline(LLVM).passes
    )


@pytest.mark.parametrize("kind", ["cuda", "rocm", "metal", "vulkan", "opencl", "webgpu"])
def test_a_gpu_needs_schedules_that_are_not_there(kind):
    target = Target(kind)
    with pytest.raises(ValueError, match=r"not yet supported by default pipeline.*dlight"):
        get_default_pipeline(target)
    assert names(pipeline.library_dispatch_passes(target)) == [
        "DispatchSampling",
        "DispatchSortScan",
    ]
    assert ("RewriteCUDAGraph" in names(pipeline.finalize_passes(target))) is (kind == "cuda")
    assert names(pipeline.dataflow_lower_passes(target))[0] == "RewriteDataflowReshape"


def test_zero():
    assert names(get_pipeline().passes) == names(pipeline.legalize_passes(LLVM))
    warned = get_pipeline("zero", enable_warning=True).passes[0]
    assert warned == transform.LegalizeOps(enable_warning=True)


class Names(PassInstrument):
    def __init__(self):
        self.names = []

    def run_before_pass(self, mod, info):
        self.names.append(info.name)


def test_instruments_see_what_those_of_tvm_see():
    seen = Names()
    with PassContext(instruments=[seen]), LLVM:
        get_default_pipeline(LLVM)(program("mlp2"))
    assert seen.names == [
        "_pipeline",
        "sequential",
        "DispatchSampling",
        "NormalizeGlobalVar",
        "DispatchSortScan",
        "NormalizeGlobalVar",
        "LegalizeOps",
        "AnnotateTIROpPattern",
        "FoldConstant",
        "FuseOps",
        "FuseTIR",
        "ExpandTupleArguments",
        "ExpandTupleArgumentsInner",
        "CanonicalizeBindings",
        "CanonicalizeTIRVariables",
        "CanonicalizeRelaxBindings",
        "DeadCodeElimination",
        "RemoveUnusedParameters",
        "FuseTIRInner",
        "DeadCodeElimination",
        "RewriteDataflowReshape",
        "ToNonDataflow",
        "RemovePurityChecking",
        "CallTIRRewrite",
        "StaticPlanBlockMemory",
        "LowerAllocTensor",
        "KillAfterLastUse",
        "LowerRuntimeBuiltin",
        "ComputePrimValue",
        "NormalizeGlobalVar",
        "VMShapeLower",
        "AttachGlobalSymbol",
    ]


def test_the_zero_pipeline_has_its_name():
    seen = Names()
    with PassContext(instruments=[seen]), LLVM:
        get_pipeline("zero")(program("mlp2"))
    assert seen.names[:3] == ["f_zero_pipeline", "sequential", "LegalizeOps"]


def test_a_level_or_a_name_disables_members():
    mod = module("@R.function\ndef main(x: R.Tensor((4,), 'float32')):\n    return R.exp(x)")
    seen = Names()
    with PassContext(disabled_pass=["FuseTIR"], instruments=[seen]), LLVM:
        get_pipeline("zero")(mod)
    assert seen.names[-1] == "FuseOps"
    seen = Names()
    with PassContext(opt_level=0, instruments=[seen]), LLVM:
        get_pipeline("zero")(mod)
    assert "DeadCodeElimination" not in seen.names
