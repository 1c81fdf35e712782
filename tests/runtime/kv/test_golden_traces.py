"""Every recorded trace of TVM's paged cache replays: states, index arrays, outputs."""

import json

import numpy as np
import pytest

from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.kv import KVCacheWarning, exact
from relaxlab.runtime.tensor import tensor
from tests.runtime.kv.golden_traces import FOLDER, Replay, builtin, names

#: Where our default differs from TVM, on purpose: operation number, and what differs.
DECLARED = {
    # a refused begin_forward changes nothing
    "errors": {(30, "state"), (33, "state"), (36, "state"), (42, "state")},
    "pressure": {(13, "state"), (24, "state")},
    "tree_rounds": {(15, "state")},
    # the window of a layer reaches into the chunk, and is the sequence's, not a block's
    "layer_sliding": {(11, "kernel calls"), (11, "output")},
    "layer_sliding_fork_quirk": {
        *((3, "kernel calls"), (3, "output")),
        *((12, "kernel calls"), (12, "output")),
    },
    # a slid sequence that is forked in its sink keeps its slots
    "sliding_quirks": {(12, "state")},
    # every accepted path is compacted; new tokens of a second round of chains are masked
    "tree_quirks": {
        *((9, "kernel calls"), (11, "k"), (11, "v")),
        *((23, "kernel calls"), (23, "output")),
    },
}


def test_all_traces_are_here():
    assert len(names()) + len(list(FOLDER.glob("*.json"))) == 34


@pytest.mark.parametrize("name", names())
def test_exact_mode_replays_the_trace(name):
    with exact():
        differences = Replay(name).run()
    assert not differences, "\n".join(map(str, differences))


@pytest.mark.filterwarnings(f"ignore::{KVCacheWarning.__module__}.KVCacheWarning")
@pytest.mark.parametrize("name", names())
def test_default_mode_differs_where_declared_only(name):
    differences = Replay(name).run()
    found = {(difference.index, difference.what) for difference in differences}
    assert found == DECLARED.get(name, set()), "\n".join(map(str, differences))


def test_the_replay_notices_a_wrong_array():
    replay = Replay("prefill_decode")
    attention = next(op for op in replay.trace["ops"] if op["op"] == "attention_with_fused_qkv")
    positions = attention["calls"][0]["position_map"]
    positions[0] += 1
    try:
        assert "kernel calls" in {difference.what for difference in replay.run()}
    finally:
        positions[0] -= 1


def test_the_legacy_cache_replays_its_trace():
    trace = json.loads((FOLDER / "legacy_cache.json").read_text(encoding="utf-8"))
    call = {
        name: builtin(f"attention_kv_cache_{name}")
        for name in (
            *("create", "append", "update", "view", "window_override_with_sinks"),
            *("array_popn", "array_clear"),
        )
    }
    cache = None
    for op in trace["ops"]:
        rows = None
        if "rows" in op:
            rows = tensor(np.full((op["rows"], 1), op["value"], "float32"))
        match op["op"]:
            case "create":
                init = tensor(np.zeros((op["init_rows"], 1), "float32"))
                shape = ShapeTuple(op["reserve_shape"])
                cache = call["create"](init, shape, op["init_fill_count"])
            case "append" | "update" as name:
                call[name](cache, rows)
            case "window_override":
                sinks = op["num_attention_sinks"]
                call["window_override_with_sinks"](cache, rows, op["max_cache_size"], sinks)
            case "array_popn":
                call["array_popn"]([cache], op["n"])
            case "array_clear":
                call["array_clear"]([cache])
        assert call["view"](cache).numpy().tolist() == op["view"], op
