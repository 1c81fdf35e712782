"""The views of captured graphs and of a profile: what they hold, say and refuse."""

import json

import numpy as np
import pytest
import traitlets

from relaxlab import relax, runtime
from relaxlab.ir import PassContext
from relaxlab.runtime.vm import observer as ev
from relaxlab.runtime.vm.builtin.cuda_graph import CUDAGraphExtension
from relaxlab.runtime.vm.graph_state import GraphState, fold_graphs
from relaxlab.script import from_source
from relaxlab.trace.graph_recorder import GraphRecorder
from relaxlab.widgets import GraphReplay, Profile
from tests.widgets.conftest import page_of

SCRIPT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 4), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.exp(a)
            c = R.add(b, b)
            d = R.multiply(c, b)
            R.output(d)
        return d
"""


def machine():
    with PassContext(config={"relax.backend.use_cuda_graph": True}):
        ex = relax.build(from_source(SCRIPT), target="numpy")
    return relax.VirtualMachine(ex, runtime.cpu())


@pytest.fixture
def replays():
    vm = machine()
    return GraphReplay.of(vm, "main", [(np.ones((2, 4), "float32"),)] * 4), vm


def test_what_is_shown_is_what_the_machine_counts(replays):
    view, vm = replays
    graphs = CUDAGraphExtension.of(vm)
    (graph,) = view.recorder.summary()
    assert (graph.captures, graph.replays) == (1, graphs.replays) == (1, 3)
    assert graph.launches_saved == graphs.launches_saved
    assert graph.kernels == ("tir_exp", "add")
    assert vm.observer is None
    json.dumps(view.graphs, allow_nan=False)
    # the first call runs the region by itself before it is captured
    assert view.recorder.launches[0] > view.recorder.launches[1] > 0


def test_the_history_can_be_walked(replays):
    view, _ = replays
    assert view.heading == "1 graphs captured, 3 replays, 3 launches saved"
    assert str(view.goto(0)) == "0 graphs captured, 0 replays, 0 launches saved"
    assert "captured 1, replayed 1" in str(view.goto(2))
    assert str(view).endswith("call 1 (main): region 0 replayed: 2 kernels in one launch")
    page_of(view).says(position=3)
    assert repr(view) == "GraphReplay(moment 3 of 4)"
    with pytest.raises(traitlets.TraitError, match="no moment"):
        view.goto(5)


def test_a_capture_that_fails_is_told():
    recorder = GraphRecorder()
    recorder(ev.RunStarted(0, 0, "main", ()))
    recorder(ev.GraphCaptureStarted(3, 0, 2, (5,)))
    recorder(ev.RunFailed(3, 0, "main", "InternalError", "no"))
    (graph,) = recorder.summary()
    assert (graph.key, graph.abandoned, graph.kernels) == ("region 2, sizes [5]", 1, ())
    assert "abandoned" in str(recorder)


def test_a_profile_holds_its_report(tmp_path):
    vm = machine()
    view = Profile(vm, "main", np.ones((2, 4), "float32"))
    json.dumps(view.profile, allow_nan=False)
    names = [row[0] for row in view.profile["kernels"]]
    assert {"relu", "multiply", "(machine)"} <= set(names)
    assert sum(row[2] for row in view.profile["instructions"]) == sum(
        row.count for row in view.report.instructions
    )
    assert str(view) == str(view.report)
    trace = json.loads(view.to_perfetto(tmp_path / "t.json").read_text())
    assert any(event["name"] == "relu" for event in trace["traceEvents"])
    assert view.heading.startswith("Profile: ")


@pytest.mark.parametrize("wrong", [(7,), (None, "main")])
def test_what_is_no_report_is_refused(wrong):
    with pytest.raises(TypeError, match="expected a Report"):
        Profile(*wrong)
    with pytest.raises(TypeError, match="GraphRecorder"):
        GraphReplay(*wrong[:1])
    with pytest.raises(TypeError, match="name of the function"):
        Profile(machine())


def test_what_a_replay_saves_is_counted_by_its_own_kernels():
    recorder = GraphRecorder()
    recorder(ev.RunStarted(0, 0, "main", ()))
    for kernels in (("a", "b", "c"), ("a", "b")):  # captured again, with fewer kernels
        recorder(ev.GraphCaptured(1, 0, 0, (), kernels))
        recorder(ev.GraphReplayed(2, 0, 0, (), kernels))
    (graph,) = recorder.summary()
    assert graph.launches_saved == 3
    state = GraphState()
    for event in (
        ev.GraphCaptured(1, 0, 0, (), ("a", "b", "c")),
        ev.GraphReplayed(2, 0, 0, (), ("a", "b", "c")),
        ev.GraphCaptured(1, 0, 0, (), ("a", "b")),
        ev.GraphReplayed(2, 0, 0, (), ("a", "b")),
    ):
        state = fold_graphs(state, event)
    assert state.launches_saved == graph.launches_saved
