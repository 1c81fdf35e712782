"""Recurrent states do what TVM's recorded ones did, call by call.

The declared differences: outside ``exact()`` a fork position counts, and a state that nobody set
keeps its value.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime import get_global_func, tensor
from relaxlab.runtime.kv.attention.moves import rnn_get, rnn_set
from relaxlab.runtime.kv.exact import exact
from relaxlab.runtime.kv.rnn_events import RNNSnapshot, fold
from relaxlab.runtime.kv.rnn_state import check_rnn_state

FOLDER = Path(__file__).parents[2] / "golden" / "kv"
NAMES = ["rnn_basic", "rnn_fork", "rnn_history1", "rnn_popn"]


class Replay:
    """One recorded state, driven again."""

    def __init__(self, name):
        self.doc = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        config = self.doc["config"]
        self.inits = [np.array(value, "float32") for value in config["init_values"]]
        self.calls = []
        states = range(len(self.inits))
        self.state = get_global_func("vm.builtin.rnn_state_create")(
            config["num_layers"],
            config["reserved_num_seqs"],
            config["max_history"],
            [self.recorded("rnn_get", i, rnn_get) for i in states],
            [self.recorded("rnn_set", i, rnn_set) for i in states],
            [tensor(value) for value in self.inits],
        )
        self.events = []
        self.state.observer = self.events.append
        self.initial = RNNSnapshot.initial(config["reserved_num_seqs"])
        self.layers = config["num_layers"]

    def recorded(self, role, number, kernel):
        def run(storage, slots, history, values):
            assert str(slots.dtype) == str(history.dtype) == "int32"
            self.calls.append(
                {
                    "kernel": role,
                    "tag": f"state{number}",
                    "storage_shape": list(storage.shape),
                    "seq_slot_ids": slots.numpy().tolist(),
                    "history_slot_ids": history.numpy().tolist(),
                }
            )
            if role == "rnn_get":
                self.calls[-1]["output_shape"] = list(values.shape)
            kernel(storage, slots, history, values)

        return run

    def do(self, op):
        """Run one recorded call and return its result."""
        c = self.state
        sequences = {
            "add_sequence": ["seq_id"],
            "remove_sequence": ["seq_id"],
            "fork_sequence": ["parent", "child", "fork_pos"],
            "popn": ["seq_id", "n"],
            "clear": [],
            "end_forward": [],
        }
        match op["op"]:
            case "begin_forward":
                tree = op["token_tree_parent_ptr"]
                c.begin_forward(op["seq_ids"], op["append_lengths"], tree)
            case "get":
                rows = len(op["calls"][0]["seq_slot_ids"]) if "calls" in op else 1
                out = tensor(np.zeros((rows, *self.inits[op["state"]].shape), "float32"))
                get_global_func("vm.builtin.rnn_state_get")(c, op["layer"], op["state"], out)
                return out.numpy().tolist()
            case "set":
                data = tensor(np.array(op["data"], "float32"))
                set_values = get_global_func("vm.builtin.rnn_state_set")
                assert set_values(c, op["layer"], op["state"], data) is c
            case name:
                getattr(c, name)(*[op[argument] for argument in sequences[name]])
        return None

    def values(self, seq_id):
        debug_get = get_global_func("vm.builtin.rnn_state_debug_get")
        return [
            [
                debug_get(self.state, layer, i, seq_id).numpy().tolist()
                for i in range(len(self.inits))
            ]
            for layer in range(self.layers)
        ]

    def check(self):
        check_rnn_state(self.state)
        assert fold(self.events, self.initial) == self.state.snapshot()


@pytest.mark.parametrize("name", NAMES)
def test_recorded_trace_in_exact_mode(name):
    with exact():
        replay = Replay(name)
        for op in replay.doc["ops"]:
            replay.calls.clear()
            if "error" in op:
                with pytest.raises((RuntimeError, ValueError)) as caught:
                    replay.do(op)
                assert type(caught.value).__name__ == op["error"]["type"]
                assert str(caught.value)
            else:
                result = replay.do(op)
                assert result is None or result == op["result"]
                assert replay.calls == op.get("calls", [])
            expected = op["after"]["current_values"]
            assert {i: replay.values(int(i)) for i in expected} == expected, op
            replay.check()


@pytest.mark.parametrize("name", NAMES)
def test_recorded_trace_in_default_mode(name):
    """The same but for the two declared rows: a fork position, and values that nobody set."""
    replay = Replay(name)
    for op in replay.doc["ops"]:
        replay.calls.clear()
        if "error" in op:
            before = replay.state.snapshot()
            with pytest.raises(InternalError):
                replay.do(op)
            assert replay.state.snapshot() == before
            continue
        if op["op"] == "fork_sequence" and op["fork_pos"] != -1:
            replay.do(op)  # TVM ignores the position: here the child is where it was asked to be
            assert op["fork_pos"] == 0
            assert replay.values(op["child"]) == [[value.tolist() for value in replay.inits]]
            replay.state.remove_sequence(op["child"])
            op = {**op, "fork_pos": -1}
        result = replay.do(op)
        assert result is None or result == op["result"]
        assert replay.calls == op.get("calls", [])
        expected = op["after"]["current_values"]
        carried = name == "rnn_fork" and op["op"] == "end_forward" and op is _last_end(replay)
        if not carried:
            assert {i: replay.values(int(i)) for i in expected} == expected, op
        replay.check()
        if carried:
            break


def _last_end(replay):
    return [op for op in replay.doc["ops"] if op["op"] == "end_forward"][-1]
