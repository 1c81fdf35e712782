"""The explorer of passes: what it holds, how it moves, what it refuses."""

import json

import numpy as np
import pytest
import traitlets

from relaxlab.ir import IRModule
from relaxlab.ir.transform import Sequential, module_pass
from relaxlab.relax import transform
from relaxlab.relax.analysis import bisect_passes
from relaxlab.relax.pass_recorder import PassRecorder
from relaxlab.script import from_source
from relaxlab.widgets import PassExplorer, drawing
from tests.widgets.conftest import page_of
from tests.widgets.programs import network


@pytest.fixture(scope="module")
def compiled():
    return network()


@pytest.fixture
def view(compiled):
    return PassExplorer(compiled, target="numpy")


def test_it_holds_the_record_and_the_code(view):
    json.dumps(view.record, allow_nan=False)
    assert view.record["passes"] == view.recorder.to_data()["passes"]
    code = view.record["code"]
    assert [row[0] for row in code["instructions"]] == list(range(view.executable.num_instructions))
    kernels = {row[3] for row in code["instructions"] if row[3]}
    assert kernels == set(code["kernels"])
    for texts in code["kernels"].values():
        assert texts["TIR"].count("@T.prim_func") == 1
        assert "def " in texts["numpy"]


def test_a_line_leads_to_its_instructions_and_kernels(view):
    code = view.record["code"]
    line = next(
        index
        for index, (_, _, text) in enumerate(code["lines"])
        if text.startswith("b = R.nn.soft")
    )
    called = {row[3] for row in code["instructions"] if line in row[5] and row[3]}
    assert called == {"matmul", "softmax"}


def test_it_begins_at_the_first_pass_that_itself_changed_something(view):
    assert view.recorder.passes[view.position].name == "LegalizeOps"
    assert repr(view) == f"PassExplorer(pass {view.position} of {len(view.recorder)}: LegalizeOps)"


def test_moving_and_searching(view):
    view.select("CallTIRRewrite")
    assert view.recorder.passes[view.position].name == "CallTIRRewrite"
    assert "alloc_tensor" in str(view)
    before = view.position
    view.search("kill_tensor")
    assert view.position in view.recorder.search("kill_tensor")
    assert view.position != before
    at = view.position
    with pytest.raises(LookupError, match="no pass"):
        view.search("never said anywhere")
    with pytest.raises(ValueError, match="no pass called"):
        view.select("Nope")
    with pytest.raises(traitlets.TraitError, match="no pass"):
        view.select(10**6)
    assert view.position == at


def test_the_page_moves_it(view):
    page_of(view).says(position=3)
    assert view.position == 3


def test_a_broken_pass_is_marked_and_shown_first():
    @module_pass(opt_level=0, name="Breaks")
    def breaks(mod: IRModule, ctx) -> IRModule:
        text = mod.script().replace("R.add", "R.subtract")
        return from_source(text)

    mod = from_source(
        "@I.ir_module\nclass Module:\n    @R.function\n"
        '    def main(x: R.Tensor((2,), "float32")):\n        y = R.add(x, x)\n        return y\n'
    )
    pipeline = Sequential([transform.CanonicalizeBindings(), breaks, transform.LegalizeOps()])
    found = bisect_passes(mod, [np.ones(2, "float32")], pipeline, target="numpy")
    view = PassExplorer(found)
    assert view.record["blamed"] == view.position == found.index
    assert view.record["passes"][view.position]["name"] == "Breaks"
    assert "Breaks" in view.record["verdict"]
    assert view.record["verdict"] in str(view)


def test_what_recorded_nothing_is_refused():
    with pytest.raises(ValueError, match="no pass was recorded"):
        PassExplorer(PassRecorder())
    with pytest.raises(TypeError, match="expected an IRModule"):
        PassExplorer("main")


def test_without_a_renderer_the_graph_is_text(compiled, monkeypatch):
    monkeypatch.setattr(drawing, "renderer", lambda: None)
    view = PassExplorer(compiled, target="numpy")
    assert {graph["svg"] for graph in view.record["graphs"]} == {None}
    assert all(graph["dot"].startswith("digraph") for graph in view.record["graphs"])
    assert drawing.svg_of("digraph { a -> b }") is None
