"""Long functions: the stack does not grow with them, and the work grows as they do.

Time is no measure on a busy machine, so calls are counted: of Python functions and of builtins.
"""

import sys

import pytest

from relaxlab import relax
from relaxlab.ir import IRModule, Target
from relaxlab.relax import op, transform
from relaxlab.relax.analysis import storage_liveness, well_formed
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.relax.vm_build import _vmcodegen

KINDS = ("chain", "wide", "tuples", "casts", "symbolic", "branches")


def program(length, kind="chain"):
    """Return a module whose function has about ``length`` bindings."""
    builder = relax.BlockBuilder()
    size = relax.Var("n", "int64") if kind == "symbolic" else 4
    x = relax.Var("x", relax.TensorType([size], "float32"))
    c = relax.Var("c", relax.TensorType([], "bool"))
    with builder.function("main", [x, c], attrs={"num_input": 1}):
        if kind == "branches":
            result = branches(builder, x, c, length)
        else:
            with builder.dataflow():
                result = builder.emit_output(straight(builder, x, length, kind))
        builder.emit_func_output(result)
    return builder.get()


def straight(builder, x, length, kind):
    y = x
    for i in range(length):
        match kind, i % 4:
            case "wide", _:
                y = builder.emit(op.negative(x))
            case "tuples", 0:
                pair = builder.emit(relax.Tuple((y, x)))
                y = builder.emit(relax.TupleGetItem(pair, 0))
            case "casts", 0:
                y = builder.match_cast(y, y.ty)
            case _, 1 | 3:
                y = builder.emit(op.add(y, x))
            case _:
                y = builder.emit(op.negative(y))
    return y


def branches(builder, x, c, length):
    y = x
    for _ in range(length // 5):
        one = relax.SeqExpr([], op.add(y, x))
        other = relax.SeqExpr([], op.exp(op.negative(y)))
        y = builder.emit(relax.If(c, one, other))
    return y


def build(kind, mod):
    """Lower a module by a pipeline of some kind, down to bytecode."""
    with Target("numpy"):
        pipeline = relax.get_pipeline("default")
        if kind == "fusing":
            pipeline = relax.get_default_pipeline(Target("llvm"))
        lowered = pipeline(mod)
    builder = ExecBuilder()
    _vmcodegen(builder, lowered)
    return builder.get()


def counted(function, *args):
    """Return how many calls a function makes, and how deep the stack gets."""
    calls = depth = deepest = 0

    def note(frame, event, argument):
        nonlocal calls, depth, deepest
        match event:
            case "call":
                calls += 1
                depth += 1
                deepest = max(depth, deepest)
            case "return":
                depth -= 1
            case "c_call":
                calls += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
    return calls, deepest


def assert_linear(function, kind):
    mods = [program(length, kind) for length in (60, 120, 180)]
    for mod in mods:  # what is made on first use, and what is known of these kernels
        function(mod)
    (a, low), (b, _), (c, high) = (counted(function, mod) for mod in mods)
    assert c - b <= 1.03 * (b - a) + 100, (a, b, c)
    assert high == low, "the stack grows with the function"


@pytest.mark.parametrize("pipeline", ["default", "fusing"])
@pytest.mark.parametrize("kind", KINDS)
def test_pipelines_are_linear_and_flat(kind, pipeline):
    assert_linear(lambda mod: build(pipeline, mod), kind)


PASSES = [
    transform.AdjustMatmulOrder(),
    transform.BundleModelParams(),
    transform.CanonicalizeBindings(),
    transform.CombineParallelMatmul(),
    transform.ConvertToDataflow(),
    transform.DeadCodeElimination(),
    transform.DecomposeOpsForInference(),
    transform.DecomposeOpsForTraining(),
    transform.EliminateCommonSubexpr(),
    transform.ExpandMatmulOfSum(),
    transform.ExpandTupleArguments(),
    transform.InlinePrivateFunctions(),
    transform.LambdaLift(),
    transform.LiftTransformParams(),
    transform.Normalize(),
    transform.RemoveRedundantReshape(),
    transform.RemoveUnusedOutputs(),
    transform.RemoveUnusedParameters(),
    transform.ReorderPermuteDimsAfterConcat(),
    transform.ReorderTakeAfterMatmul(),
    transform.TopologicalSort("depth-first", "from-inputs"),
    transform.TopologicalSort("breadth-first", "from-outputs"),
    transform.UpdateParamType(lambda param: None),
]


@pytest.mark.parametrize("pass_", PASSES, ids=lambda pass_: pass_.info.name)
@pytest.mark.parametrize("kind", ["tuples", "symbolic"])
def test_passes_are_linear_and_flat(kind, pass_):
    assert_linear(pass_, kind)


@pytest.mark.parametrize(
    "function",
    [well_formed, IRModule.script, storage_liveness, lambda mod: mod.structural_equal(mod.clone())],
    ids=["well_formed", "script", "storage_liveness", "structural_equal"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_looks_at_modules_is_linear_and_flat(kind, function):
    assert_linear(function, kind)


def test_50_000_bindings_become_bytecode():
    limit = sys.getrecursionlimit()
    ex = build("fusing", program(50_000))
    assert sys.getrecursionlimit() == limit
    assert ex.num_instructions > 500
    assert len(ex.source_map) == ex.num_instructions
