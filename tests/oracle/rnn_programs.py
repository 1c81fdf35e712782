"""Random operations on a recurrent state; run by both machines.

usage, by a Python with the real TVM: rnn_programs.py FIRST COUNT OUT    writes what every
operation of programs FIRST ... FIRST + COUNT - 1 did, as JSON.

Every state is set in every round, and nothing happens within one: else TVM shows what lies in
uninitialised memory.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np

OPERATIONS = 200


def run(seed: int, machine: Any) -> list[Any]:
    """Run one program; ``machine`` has ``get``, ``shape``, ``tensor``, ``empty`` and ``array``."""
    rng = random.Random(seed)
    layers, seqs = rng.randint(1, 2), rng.randint(1, 4)
    history, states = rng.choice([1, 2, 3, 5]), rng.randint(1, 2)
    call = {
        name: machine.get(f"vm.builtin.kv_state_{name}")
        for name in (
            *("clear", "add_sequence", "remove_sequence", "fork_sequence"),
            *("popn", "begin_forward", "end_forward"),
        )
    }
    call |= {n: machine.get(f"vm.builtin.rnn_state_{n}") for n in ("get", "set", "debug_get")}

    def f_get(storage: Any, slots: Any, places: Any, out: Any) -> None:
        x = machine.array(storage)
        machine.array(out)[...] = x[machine.array(slots), machine.array(places)]

    def f_set(storage: Any, slots: Any, places: Any, data: Any) -> None:
        x = machine.array(storage)
        after = (machine.array(places) + 1) % x.shape[1]
        x[machine.array(slots), after] = machine.array(data)

    inits = [machine.tensor(np.full((2,), 1000.0 + i, "float32")) for i in range(states)]
    functions = [[machine.function(f)] * states for f in (f_get, f_set)]
    state = machine.get("vm.builtin.rnn_state_create")(layers, seqs, history, *functions, inits)
    known: set[int] = set()
    record: list[Any] = []
    value = 0.0

    def attempt(name: str, *args: Any) -> bool:
        try:
            call[name](state, *args)
        except Exception as error:  # noqa: BLE001  # both machines' errors are compared
            record.append([name, type(error).__name__])
            return False
        record.append([name, "ok"])
        return True

    for _ in range(OPERATIONS):
        a, b = rng.randint(0, 5), rng.randint(0, 5)
        match rng.choice(["add", "add", "remove", "fork", "popn", "popn", *["round"] * 6, "clear"]):
            case "add":
                if attempt("add_sequence", a):
                    known.add(a)
            case "remove":
                if rng.random() < 0.5 and attempt("remove_sequence", a):
                    known.discard(a)
            case "fork":
                if attempt("fork_sequence", a, b, rng.randint(-1, 3)):
                    known.add(b)
            case "popn":
                attempt("popn", a, rng.randint(-1, 3))
            case "clear":
                if rng.random() < 0.1 and attempt("clear"):
                    known.clear()
            case "round" if known:
                batch = rng.sample(sorted(known), rng.randint(1, len(known)))
                lengths = [rng.choice([1, 1, 1, 2, 4]) for _ in batch]
                tree = None
                if rng.random() < 0.2:
                    tree = [i - 1 for n in lengths for i in range(n)]
                given = machine.shape(batch), machine.shape(lengths)
                attempt("begin_forward", *given, None if tree is None else machine.shape(tree))
                for layer in range(layers):
                    for i in range(states):
                        out = machine.empty((len(batch), 2))
                        attempt("get", layer, i, out)
                        record.append(machine.array(out).tolist())
                        value += 1.0
                        rows = value + np.arange(len(batch) * 2, dtype="float32") / 64
                        attempt("set", layer, i, machine.tensor(rows.reshape(-1, 2)))
                attempt("end_forward")
        for seq in sorted(known):
            for layer in range(layers):
                for i in range(states):
                    found = call["debug_get"](state, layer, i, seq)
                    record.append(machine.array(found).tolist())
    return record


class Theirs:
    """The real TVM."""

    def __init__(self) -> None:
        import tvm  # noqa: PLC0415
        import tvm_ffi  # noqa: PLC0415

        self.get, self.shape = tvm.get_global_func, tvm_ffi.Shape
        self.function, self.tensor = tvm_ffi.convert, tvm.runtime.tensor
        self.empty = lambda shape: tvm.runtime.empty(shape, "float32")
        self.array = np.from_dlpack


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    theirs = Theirs()
    Path(sys.argv[3]).write_text(json.dumps([run(first + i, theirs) for i in range(count)]))
