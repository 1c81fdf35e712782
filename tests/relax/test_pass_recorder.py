"""The recorder of passes: what it says is what happened, and nothing happens because of it."""

import dataclasses
import json
import time

import pytest

from relaxlab import relax
from relaxlab.ir import IRModule, PassContext, Sequential, Target, module_pass
from relaxlab.relax import transform
from relaxlab.relax.pass_recorder import ModuleSize, PassFailed, PassStarted, fold_passes
from relaxlab.script import from_source
from relaxlab.trace import PassRecorder
from tests.golden_compiler import cases, source

SCRIPT = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")):
        if c:
            y = R.add(x, x)
            z = R.exp(y)
        else:
            z = R.tanh(x)
        return z
"""


def lowered(mod, kind):
    with Target("numpy"):
        pipeline = relax.get_pipeline("default")
        if kind == "fusing":
            pipeline = relax.get_default_pipeline(Target("llvm"))
        return pipeline(transform.LambdaLift()(mod))


@module_pass(opt_level=1, name="Rebuild")
def rebuild(mod, ctx):
    """The same program in new objects."""
    return from_source(mod.script())


@module_pass(opt_level=0, name="Same")
def same(mod, ctx):
    return mod


@module_pass(opt_level=0, name="Broken")
def broken(mod, ctx):
    raise ValueError("nothing works")


@pytest.mark.parametrize("kind", ["default", "fusing"])
@pytest.mark.parametrize("name", cases())
def test_events_say_what_happened_and_change_nothing(name, kind):
    mod = from_source(source(name))
    plain = lowered(mod, kind)
    recorder = PassRecorder()
    with recorder.recording():
        recorded = lowered(mod, kind)
    assert recorded.script() == plain.script()
    assert fold_passes(recorder.events) == recorder.snapshot() == recorder.passes
    for record in recorder.passes:
        if record.change == "same":
            assert recorder.after(record.index) is recorder.before(record.index)
        assert (record.change == "changed") == bool(
            not recorder.before(record.index).structural_equal(recorder.after(record.index))
        )
        if record.change == "changed":
            assert recorder.diff(record.index)
        elif record.change == "equal":
            assert not recorder.diff(record.index)


def test_each_step_of_the_fold_is_the_state_at_that_moment():
    class Checking(PassRecorder):
        def run_before_pass(self, mod, info):
            super().run_before_pass(mod, info)
            assert fold_passes(self.events) == self.snapshot()

        def run_after_pass(self, mod, info):
            super().run_after_pass(mod, info)
            assert fold_passes(self.events) == self.snapshot()

    recorder = Checking()
    with recorder.recording():
        lowered(from_source(SCRIPT), "fusing")
    assert len(recorder) > 20


def test_a_record_tells_name_level_size_and_functions():
    recorder = PassRecorder()
    with recorder.recording():
        transform.LegalizeOps()(from_source(SCRIPT))
    (record,) = recorder.passes
    assert (record.name, record.opt_level, record.depth) == ("LegalizeOps", 0, 0)
    assert record.before == ModuleSize(1, 0, 4)
    assert record.after == ModuleSize(1, 3, 4)
    assert set(record.functions) == {"main", "add", "tir_exp", "tir_tanh"}
    assert record.seconds > 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.name = "x"
    assert isinstance(recorder.events[0], PassStarted)


def test_same_equal_changed():
    recorder = PassRecorder()
    with recorder.recording():
        Sequential([same, rebuild, transform.LegalizeOps()])(from_source(SCRIPT))
    changes = {record.name: record.change for record in recorder.passes}
    assert changes == {
        "sequential": "changed",
        "Same": "same",
        "Rebuild": "equal",
        "LegalizeOps": "changed",
    }
    assert [record.depth for record in recorder.passes] == [0, 1, 1, 1]
    assert recorder.children(0) == (1, 2, 3)
    assert recorder.children(1) == ()
    table = str(recorder).splitlines()
    assert [line.split()[1] for line in table[1:5]] == ["*", ".", "=", "*"]
    short = recorder.render(unchanged=False)
    assert "Same" not in short
    assert "2 that changed nothing are hidden" in short
    assert repr(recorder) == "PassRecorder(4 passes, 2 changed the module)"


def test_modules_and_texts_on_demand():
    recorder = PassRecorder()
    mod = from_source(SCRIPT)
    with recorder.recording():
        after = lowered(mod, "default")
    at = recorder.index("LegalizeOps")
    whole = recorder.index("_pipeline")
    assert recorder.before(whole) is mod
    assert recorder.after(whole) is after
    assert recorder.script(whole) == after.script()
    diff = recorder.diff(at)
    assert diff.startswith("--- before LegalizeOps\n+++ after LegalizeOps\n@@")
    assert '-            y: R.Tensor((4,), dtype="float32") = R.add(x, x)' in diff
    assert recorder.diff(recorder.index("DispatchSampling")) == ""
    assert recorder.index("KillAfterLastUse") in recorder.search("KILL_storage")
    assert recorder.search("dispatchsort") == (recorder.index("DispatchSortScan"),)
    assert recorder.search("no such text") == ()
    with pytest.raises(
        ValueError, match="no pass called 'Nothing' was recorded; there are: LambdaLift, _pipe"
    ):
        recorder.index("Nothing")


def test_a_pass_that_raises_is_recorded_with_those_around_it():
    recorder = PassRecorder()
    with pytest.raises(ValueError, match="nothing works"), recorder.recording():
        Sequential([same, broken])(IRModule())
    assert [(r.name, r.change, r.error) for r in recorder.passes] == [
        ("sequential", None, "ValueError: nothing works"),
        ("Same", "same", ""),
        ("Broken", None, "ValueError: nothing works"),
    ]
    assert recorder.passes == recorder.snapshot()
    assert isinstance(recorder.events[-1], PassFailed)
    assert recorder.after(2) is None
    assert recorder.script(2) == ""
    assert recorder.diff(2) == ""
    assert "Broken raised ValueError: nothing works" in str(recorder)
    with recorder.recording():  # and goes on at the right depth
        same(IRModule())
    assert recorder.passes[-1].depth == 0


def test_the_recorders_own_time_is_not_the_passes():
    class Slow(PassRecorder):
        def _size(self, mod):
            time.sleep(0.02)
            return super()._size(mod)

    recorder = Slow()
    with recorder.recording():
        Sequential([same] * 5)(IRModule())
    assert 0 <= recorder.passes[0].seconds < 0.1  # 12 sizes took 0.24


def test_data_is_plain_and_a_text_is_there_once():
    recorder = PassRecorder()
    with recorder.recording():
        Sequential([same, transform.LegalizeOps(), same])(from_source(SCRIPT))
    data = json.loads(json.dumps(recorder.to_data()))
    assert len(data["texts"]) == 2
    assert [row["name"] for row in data["passes"]] == ["sequential", "Same", "LegalizeOps", "Same"]
    assert [row["after_text"] for row in data["passes"]] == [1, 0, 1, 1]
    assert data["passes"][2]["before"] == {"functions": 1, "kernels": 0, "bindings": 4}


def test_recording_keeps_the_context_around_it():
    recorder = PassRecorder()
    with PassContext(disabled_pass=["Same"]), recorder.recording():
        Sequential([same, rebuild])(from_source(SCRIPT))
    assert [record.name for record in recorder.passes] == ["sequential", "Rebuild"]
    recorder.clear()
    assert (len(recorder), recorder.passes) == (0, ())
