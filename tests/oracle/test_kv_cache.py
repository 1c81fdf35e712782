"""Random operations on our cache, within exact(), and on the real TVM's: everything is the same.

RELAXLAB_KV_SEEDS="first count" runs more programs than the default.
"""

import json
import os
import random
import subprocess
from pathlib import Path

import numpy as np
import pytest

from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.kv import exact
from relaxlab.runtime.kv.attention import KernelSpec, pick
from relaxlab.runtime.kv.rope import Rope
from relaxlab.runtime.packed_func import get_global_func
from relaxlab.runtime.tensor import empty, tensor
from tests.oracle.kv_programs import Executor, digest

KINDS = {
    "append": "transpose_append",
    "debug": "debug_get_kv",
    "prefill": "paged_prefill",
    "decode": "paged_decode",
    "prefill_sliding": "paged_prefill_sliding",
    "decode_sliding": "paged_decode_sliding",
    "ragged": "ragged_prefill",
    "tree": "ragged_prefill_tree",
    "tree_paged": "paged_prefill_tree",
    "merge": "merge_state_inplace",
    "split_rotary": "split_rotary",
    "copy_page": "copy_single_page",
    "compact": "compact_copy",
}

PROGRAM = Path(__file__).with_name("kv_programs.py")
OPERATIONS = 150


class Ours:
    """Our machine, as the executor wants it."""

    get = staticmethod(get_global_func)
    shape = staticmethod(ShapeTuple)
    empty = staticmethod(empty)

    @staticmethod
    def function(kernel):
        return kernel

    tensor = staticmethod(tensor)

    @staticmethod
    def ints(tensor):
        return tensor.array.tolist() if tensor.dtype == "int32" else None

    @staticmethod
    def kernels(config):
        spec = KernelSpec(
            config["num_qo_heads"],
            config["num_kv_heads"],
            config["head_dim"],
            page_size=config["sizes"][3],
            dtype=config["dtype"],
            rope=Rope(config["head_dim"], config["rotary_theta"], config["rotary_scale"]),
        )
        return {role: pick(kind, spec, "numpy") for role, kind in KINDS.items()}


def random_config(rng):
    """Return creation arguments of one of many kinds of cache."""
    page = rng.choice([1, 2, 3, 4, 4, 8, 16])
    kind = rng.choice(["plain", "plain", "plain", "sliding", "sliding", "layers", "latent"])
    capacity = page * rng.choice([6, 12, 30, 100])
    sequences = rng.choice([2, 8, 40])
    layers, kinds = rng.choice([([0, 1], [0]), ([0, 2], [0, 0]), ([1, 3], [0, 0, 0])])
    if kind == "layers":
        layers, kinds = [0, 2], rng.choice([[3, 0], [0, 3]])
    if kind == "latent":
        layers, kinds = [0, 1], [1]
    sizes = [sequences, capacity, 64, page, int(kind == "sliding")]
    if kind == "layers":
        sizes.append(rng.choice([1, 2, 5, 7, 16]))
    heads = rng.choice([(1, 1), (2, 1), (4, 1), (4, 2)])
    size = 4
    return {
        "sizes": sizes,
        "layers": layers,
        "attn_kinds": kinds,
        "num_qo_heads": heads[0],
        "num_kv_heads": 1 if kind == "latent" else heads[1],
        "head_dim": size,
        "v_head_dim": 2 if kind == "latent" else size,
        "rope_mode": rng.choice([0, 1, 2]),
        "rotary_scale": rng.choice([1.0, 0.5]),
        "rotary_theta": rng.choice([10000.0, 500.0]),
    }


class Generator:
    """Draws operations that the real cache survives, by looking at ours.

    What kv.md calls "avoid" is avoided: tree rounds over different depths, forks of slid
    sequences beyond a page, windows smaller than a prefix, pops of slid sequences, ids twice in a
    batch, and forks or pops that need a page when there is none.
    """

    def __init__(self, seed, config=None):
        self.random = random.Random(seed)
        self.executor = Executor(Ours, config or random_config(self.random))
        self.config = self.executor.config
        self.cache = self.executor.cache
        self.page = self.config["sizes"][3]
        self.trees = self.config["attn_kinds"][0] != 1 and not self.cache.config.sequence_sliding
        self.trees = self.trees and self.config["rope_mode"] != 2
        self.many = self.random.random() < 0.15  # a prefix with many children
        self.last = []
        self.queue = []

    def program(self, length=OPERATIONS):
        """Return the operations, and what ours did."""
        ops, records = [], []
        while len(ops) < length:
            op = self.queue.pop(0) if self.queue else self.draw()
            if op is not None:
                ops.append(op)
                records.append(self.executor.step(op))
                if "error" in records[-1] and op[0] == "begin":
                    # a failed round is not rolled back: its sequences are beyond use
                    found = [s for s in op[1] if s in self.executor.known]
                    self.queue = [["remove", seq_id] for seq_id in dict.fromkeys(found)]
        return ops, records

    def find(self, seq_id):
        return self.cache.sequences.find(seq_id)

    def draw(self):
        known = sorted(self.executor.known)
        if not known or self.random.random() < 0.08:
            return ["add", self.random.choice(range(6)) if len(known) < 40 else 0]
        if self.many and len(known) < 36 and self.random.random() < 0.7:
            return self.draw_fork(known, child=max(known) + 1)
        kind = self.random.choices(
            ("remove", "fork", "popn", "round", "window", "clear", "wrong"),
            (6, 14, 12, 55, 8, 0.7, 4),
        )[0]
        return getattr(self, f"draw_{kind}")(known)

    def draw_remove(self, known):
        return ["remove", self.random.choice(known)]

    def draw_fork(self, known, child=None):
        parent = self.random.choice(known)
        sequence = self.find(parent)
        child = self.random.randrange(8) if child is None else child
        position = self.random.choice(
            [-1, sequence.length, self.random.randint(0, sequence.length)]
        )
        where = sequence.length if position == -1 else position
        slid = any(block.sink or block.offset for block in sequence.last.chain())
        if slid and where >= self.page:
            return None
        if where % self.page and not self.cache.get_num_available_pages():
            return None
        if sequence.window != -1 and where == sequence.length and where % self.page == 0:
            return None  # TVM pins the sink once more in the new block, and may crash later
        return ["fork", parent, child, position]

    def draw_popn(self, known):
        seq_id = self.random.choice(known)
        sequence = self.find(seq_id)
        block = sequence.last
        if sequence.tree or block.sink or block.offset:
            return None
        if sequence.window != -1 and block.length != sequence.length:
            return None  # see test_popn_of_a_windowed_sequence
        if not self.cache.get_num_available_pages():
            return None
        return ["popn", seq_id, self.random.randint(0, sequence.length)]

    def draw_window(self, known):
        seq_id = self.random.choice(known)
        sequence = self.find(seq_id)
        window = self.random.randint(1, 12)
        if sequence.length - sequence.last.length >= window:
            return None
        return ["window", seq_id, window, self.random.randint(0, window - 1)]

    def draw_clear(self, known):
        return ["clear"]

    def draw_wrong(self, known):
        """A call that must fail and, unlike begin_forward, changes nothing."""
        seq_id = self.random.choice(known)
        length = self.find(seq_id).length
        return self.random.choice(
            [
                ["add", seq_id],
                ["remove", 99],
                ["fork", seq_id, 90, length + 1],
                ["fork", 98, 90, -1],
                ["fork", seq_id, seq_id, 0],
                ["popn", seq_id, length + 1],
                ["popn", seq_id, -1],
                ["begin", [97], [1], None],
                ["begin", [seq_id], [1, 1], None],
                ["commit", [seq_id], [-2]],
            ]
        )

    def draw_round(self, known):
        count = min(len(known), self.random.choice([1, 2, 3, 8, 40]))
        ids = self.random.sample(known, count)
        if self.last and set(self.last) <= set(known) and self.random.random() < 0.4:
            ids = self.last  # once more, one token each
            return self.begin(ids, [1] * len(ids))
        if self.many and self.random.random() < 0.5:
            ids.sort()
        if self.random.random() < 0.5:
            lengths = [1] * count
        else:
            lengths = [self.random.choice([1, 2, 3, 5, 9]) for _ in ids]
        self.last = list(ids)
        return self.begin(ids, lengths)

    def begin(self, ids, lengths):
        if sum(lengths) > 64:
            return None
        tree = None
        waiting = any(self.find(seq_id).tree for seq_id in ids)
        if self.trees and (waiting or self.random.random() < 0.3):
            tree = self.draw_tree(ids, lengths)
            if tree is None:
                return ["remove", next(s for s in ids if self.find(s).tree)] if waiting else None
        if self.config["sizes"][4] and not self.fits(ids, lengths):
            return None  # a failed round of windows leaves places without pages behind
        layers = list(range(*self.config["layers"]))
        self.queue = [["positions"], *(["attend", layer] for layer in layers), ["end"]]
        if self.random.random() < 0.2:
            # the arrays of a round are those of its beginning, whatever happens then
            self.queue[: self.random.choice([0, 1])] = [["add", 80], ["remove", 80]]
        if tree is not None and not waiting:
            self.draw_commit(ids, lengths, tree)
        return ["begin", ids, lengths, tree]

    def fits(self, ids, lengths):
        needed = self.cache.pages_needed(ids, lengths)
        return needed <= self.cache.get_num_available_pages()

    def draw_tree(self, ids, lengths):
        found = [self.find(seq_id) for seq_id in ids]
        depths = {min(len(sequence.last.chain()), 2) for sequence in found}
        if any(sequence.tree for sequence in found) and len(depths) > 1:
            return None
        tree = []
        chains = self.random.random() < 0.3
        for sequence, length in zip(found, lengths, strict=True):
            old = len(sequence.tree)
            tree += [
                node - 1 if chains else self.random.randint(-1, node - 1)
                for node in range(old, old + length)
            ]
        return tree

    def draw_commit(self, ids, lengths, tree):
        if self.random.random() < 0.2:
            return  # left uncommitted: another round, or errors
        leaves = [self.random.randint(-1, length - 1) for length in lengths]
        self.queue.append(["commit", ids, leaves])


def differences(first, count, oracle):
    """Run programs on both machines; return a description of each that differs, and how many."""
    programs, ours, total = [], [], 0
    for seed in range(first, first + count):
        with exact():
            generator = Generator(seed)
            ops, records = generator.program()
        programs.append({"config": generator.config, "ops": ops, "full": False})
        ours.append(records)
        total += len(ops)
    theirs = real(programs, oracle)
    found = []
    for seed, program, records, digests in zip(
        range(first, first + count), programs, ours, theirs, strict=True
    ):
        at = next((i for i, record in enumerate(records) if digest(record) != digests[i]), None)
        if at is not None:
            detail = real([program | {"ops": program["ops"][: at + 1], "full": True}], oracle)[0]
            found.append(describe(seed, program, at, records[at], detail[at]))
    return found, total


def real(programs, oracle):
    """Return what the real TVM does."""
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"relaxlab-kv-{os.getpid()}.json"
    path.write_text(json.dumps(programs), encoding="utf-8")
    try:
        done = subprocess.run(
            [oracle, PROGRAM, path], capture_output=True, text=True, timeout=900, check=False
        )
    finally:
        path.unlink()
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def describe(seed, program, at, ours, theirs):
    lines = [f"seed {seed}, operation {at}: {program['ops'][at]}", f"config {program['config']}"]
    lines += [f"before: {program['ops'][max(0, at - 12) : at]}"]
    for key in sorted({*ours, *theirs}):
        if ours.get(key) != theirs.get(key):
            lines.append(f"{key}: ours {ours.get(key)}, TVM's {theirs.get(key)}")
    return "\n".join(lines)


def test_random_operations(oracle_python):
    first, count = map(int, os.environ.get("RELAXLAB_KV_SEEDS", "0 20").split())
    found, total = differences(first, count, oracle_python)
    assert not found, f"{len(found)} of {count} programs differ:\n" + "\n\n".join(found[:3])
    assert total == count * OPERATIONS


def computing(page, *, sliding=0, rope_mode=0, dtype="float32"):
    return {
        "sizes": [8, 40 * page, 64, page, sliding],
        "layers": [0, 1],
        "attn_kinds": [0],
        "num_qo_heads": 4,
        "num_kv_heads": 2,
        "head_dim": 8,
        "v_head_dim": 8,
        "rope_mode": rope_mode,
        "rotary_scale": 0.5,
        "rotary_theta": 500.0,
        "dtype": dtype,
        "compute": True,
    }


@pytest.mark.parametrize(
    "config",
    [
        computing(16),  # TVM's tree kernels know no other page size
        computing(3, sliding=1, rope_mode=1),
        computing(16, rope_mode=1, dtype="float16"),
    ],
    ids=["trees", "sliding", "float16"],
)
def test_outputs_of_random_rounds(config, oracle_python):
    with exact():
        ops, records = Generator(5, config).program(120)
    theirs = real([{"config": config, "ops": ops, "full": True}], oracle_python)[0]
    tolerance = 2e-3 if config["dtype"] == "float16" else 1e-5
    compared = 0
    for op, ours, real_ones in zip(ops, records, theirs, strict=True):
        if op[0] == "attend":
            a, b = (np.array(record.pop("result")) for record in (ours, real_ones))
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=str(op))
            compared += 1
        assert json.loads(json.dumps(ours)) == real_ones, op
    assert compared > 10
