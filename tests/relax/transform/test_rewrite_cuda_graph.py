"""RewriteCUDAGraph: what is captured, what is shared, and that programs compute the same."""

import subprocess
import sys

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.ir import PassContext
from relaxlab.relax import transform
from relaxlab.relax.transform import RewriteCUDAGraph
from relaxlab.runtime.vm.builtin.cuda_graph import CUDAGraphExtension
from relaxlab.runtime.vm.observer import GraphCaptured, GraphReplayed
from relaxlab.script import from_source
from tests.golden_compiler import document
from tests.relax.transform.checks import assert_same_text, module

GOLDEN = document("rewrite_cuda_graph")
CUDA_GRAPH = {"relax.backend.use_cuda_graph": True}


def captured(mod):
    """Return the module after the passes up to this one, which is on."""
    with PassContext(config=CUDA_GRAPH):
        for name in GOLDEN["passes"]:
            mod = getattr(transform, name)()(mod)
    return mod


@pytest.mark.parametrize("name", sorted(GOLDEN["cases"]))
def test_as_in_tvm(name):
    case = GOLDEN["cases"][name]
    mod = captured(from_source(case["before"]))
    assert_same_text(mod.script().rstrip(), case["after"].rstrip())
    relax.analysis.well_formed(mod, check_ty=False)


def test_off_unless_asked_for():
    mod = from_source(GOLDEN["cases"]["shared_storages"]["before"])
    for name in GOLDEN["passes"][:-1]:
        mod = getattr(transform, name)()(mod)
    assert RewriteCUDAGraph()(mod) is mod
    with PassContext(config={"relax.backend.use_cuda_graph": False}):
        assert RewriteCUDAGraph()(mod) is mod


def test_nothing_to_capture():
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((8,), "float32")):
            R.func_attr({"relax.force_pure": True})
            return x
        """
    )
    with PassContext(config=CUDA_GRAPH):
        assert RewriteCUDAGraph()(mod) is mod


BRANCHES = """
@R.function
def main(
    c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32"), v: R.Tensor((4,), "float32")
) -> R.Tensor((4,), "float32"):
    R.func_attr({"num_input": 2})
    a = R.exp(v)
    if c:
        b = R.negative(v)
        d = R.exp(b)
        y = R.add(d, x)
    else:
        y = R.exp(v)
    e = R.negative(a)
    f = R.exp(e)
    g = R.add(f, y)
    return g
"""


def test_a_region_ends_at_an_if():
    """TVM continues the region of ``a`` with ``e``, and captures what lies between."""
    text = captured(module(BRANCHES)).script()
    assert text.count("run_or_capture") == 3
    before, inside, after = text.split("def main(")[1].split("def ")[0].split("run_or_capture")[1:]
    assert 'a: R.Tensor((4,), dtype="float32") = gv1[0]\n        if c:' in before
    assert "else:" in inside
    assert "cls.add(f, y" in after


def test_a_cast_uses_what_it_casts():
    """TVM forgets it, so that the cast reads a variable that is nowhere defined (run)."""
    mod = captured(
        module(
            """
            @R.function
            def main(x: R.Tensor((4,), "float32"), v: R.Tensor((4,), "float32")):
                R.func_attr({"num_input": 1})
                a = R.exp(v)
                b = R.exp(a)
                c = R.match_cast(b, R.Tensor((4,), "float32"))
                d = R.add(c, x)
                return d
            """
        )
    )
    relax.analysis.well_formed(mod, check_ty=False)
    assert 'b: R.Tensor((4,), dtype="float32") = gv1[0]' in mod.script()


def test_a_storage_that_is_returned_is_not_kept():
    mod = module(
        """
        @R.function
        def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
            R.func_attr({"relax.force_pure": True})
            kept = R.memory.alloc_storage(R.shape([16]), 0, R.str("global"), R.dtype("float32"))
            given = R.memory.alloc_storage(R.shape([16]), 0, R.str("global"), R.dtype("float32"))
            a = R.memory.alloc_tensor(kept, 0, R.shape([4]), R.dtype("float32"), 0)
            _ = R.call_packed("exp", x, a)
            b = R.memory.alloc_tensor(given, 0, R.shape([4]), R.dtype("float32"), 0)
            _1 = R.call_packed("exp", a, b)
            c = R.reshape(b, R.shape([4]))
            return c
        """
    )
    with PassContext(config=CUDA_GRAPH):
        text = RewriteCUDAGraph()(mod).script()
    alloc, main = text.split("def main(")
    assert alloc.count("alloc_storage") == 1
    assert "kept" in alloc
    assert "given: R.Any = R.memory.alloc_storage" in main


FIRST_INSIDE = """
@R.function
def main(c: R.Tensor((), "bool"), x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
    if c:
        a = R.exp(x)
        y = R.negative(a)
    else:
        b = R.tanh(x)
        y = R.negative(b)
    d = R.exp(y)
    e = R.negative(d)
    return e
"""


def build(mod, config):
    with PassContext(config=config):
        return relax.VirtualMachine(relax.build(mod, "numpy"), runtime.cpu())


def values(result):
    if isinstance(result, runtime.Tensor):
        return [result.numpy()]
    return [array for part in result for array in values(part)]


SIZES = {"m": 3, "n": 5}
PROGRAMS = {name: case["before"] for name, case in GOLDEN["cases"].items()}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_values_are_those_of_the_program_without(name):
    mod = from_source(PROGRAMS[name])
    plain, graph = build(mod, {}), build(mod, CUDA_GRAPH)
    rng = np.random.default_rng(1)
    for gvar, func in mod.functions_items():
        for _ in range(2):
            args = [array(param.ty, rng) for param in func.params]
            want = values(plain[gvar.name_hint](*args))
            got = values(graph[gvar.name_hint](*args))
            for a, b in zip(got, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-6)
    graphs = CUDAGraphExtension.of(graph)
    assert list(graphs.allocations) == [0]
    assert graphs.regions


def test_a_region_is_captured_once_and_replayed():
    vm = build(from_source(PROGRAMS["weights"]), CUDA_GRAPH)
    func = from_source(PROGRAMS["weights"])["main"]
    args = [array(param.ty, np.random.default_rng(2)) for param in func.params]
    want = values(vm["main"](*args))
    for _ in range(3):
        got = values(vm["main"](*args))
        assert all(map(np.array_equal, got, want))
    graphs = CUDAGraphExtension.of(vm)
    assert graphs.replays == 3 * len(graphs.regions) > 0


def array(ty, rng):
    sizes = [SIZES[dim.name] if isinstance(dim, relax.Var) else int(dim) for dim in ty.shape.values]
    return rng.uniform(-1, 1, sizes).astype(ty.dtype.numpy())


@pytest.mark.parametrize("built_for", ["bytecode", "compiled"])
@pytest.mark.parametrize("run_as", ["bytecode", "compiled"])
def test_every_mode_captures_and_replays(built_for, run_as):
    mod = from_source(PROGRAMS["weights"])
    args = [array(param.ty, np.random.default_rng(2)) for param in mod["main"].params]
    want = values(build(mod, {})["main"](*args))
    with PassContext(config=CUDA_GRAPH):
        ex = relax.build(mod, "numpy", exec_mode=built_for)
    vm = relax.VirtualMachine(ex, runtime.cpu(), exec_mode=run_as)
    for _ in range(3):
        for got, expected in zip(values(vm["main"](*args)), want, strict=True):
            np.testing.assert_allclose(got, expected, rtol=1e-6)
    graphs = CUDAGraphExtension.of(vm)
    assert graphs.replays == 2 * len(graphs.regions) > 0


def test_sizes_come_with_the_run():
    vm = build(from_source(PROGRAMS["symbolic_sizes"]), CUDA_GRAPH)
    for m, n in ((3, 5), (4, 5)):
        vm["main"](np.ones((m, 2), "float32"), np.ones((n, 2), "float32"))
    assert list(CUDAGraphExtension.of(vm).regions) == [(0, (5, 3)), (0, (5, 4))]


def test_both_branches_run():
    mod = module(BRANCHES)
    plain, graph = build(mod, {}), build(mod, CUDA_GRAPH)
    x, v = np.array([1, 2, 3, 4], "float32"), np.array([0.1, 0.2, -0.3, 0.4], "float32")
    events = []
    graph.observer = events.append
    for condition in (True, False, True):
        want = plain["main"](np.array(condition), x, v).numpy()
        np.testing.assert_allclose(graph["main"](np.array(condition), x, v).numpy(), want)
    kinds = GraphCaptured, GraphReplayed
    assert [(type(one), one.index) for one in events if isinstance(one, kinds)] == [
        *((GraphCaptured, index) for index in (0, 1, 2)),
        *((GraphReplayed, index) for index in (0, 2, 0, 1, 2)),
    ]


@pytest.mark.parametrize("condition", [True, False])
def test_kept_storages_that_branches_use_first(condition):
    mod = module(FIRST_INSIDE)
    relax.analysis.well_formed(captured(mod), check_ty=False)
    plain, graph = build(mod, {}), build(mod, CUDA_GRAPH)
    x = np.array([1, 2, 3, 4], "float32")
    want = plain["main"](np.array(condition), x).numpy()
    np.testing.assert_allclose(graph["main"](np.array(condition), x).numpy(), want)


def test_the_option_is_known_before_the_pass_is_loaded():
    code = f"import relaxlab; relaxlab.transform.PassContext(config={CUDA_GRAPH})"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("config", "error", "message"),
    [
        ({"relax.backend.use_cuda_graf": True}, AttributeError, "Invalid config option"),
        ({"relax.backend.use_cuda_graph": 1}, TypeError, "must be bool, got int"),
    ],
)
def test_wrong_options(config, error, message):
    with pytest.raises(error, match=message):
        PassContext(config=config)
