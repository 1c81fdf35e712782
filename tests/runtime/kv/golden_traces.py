"""Replays the recorded traces of TVM's paged cache on ours, through the same builtins.

A trace is a list of operations with their arguments, the kernel calls they caused (every integer
array), tensors in and out, and the state after each. ``tests/golden/kv`` holds them, packed.
"""

import base64
import gzip
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.kv.attention import KernelSpec, pick
from relaxlab.runtime.kv.rope import Rope
from relaxlab.runtime.packed_func import (
    get_global_func,
    register_global_func,
    remove_global_func,
)
from relaxlab.runtime.tensor import Tensor, empty, tensor

FOLDER = Path(__file__).parents[2] / "golden" / "kv"

PAGES = ("page_indptr", "page_values", "length_info", "k_rope_pos_offset", "q_rope_position")
OUT = ("output", "lse")
ROTATION = ("rotary_mode", "rope_scale", "rope_theta", "sm_scale")

#: Names of the arguments of each kernel, in order, as the traces call them.
ARGUMENTS = {
    "split_rotary": ("qkv", "position_map", "q", "k", "v", "apply_rope"),
    "transpose_append": ("pages", "k_data", "v_data", "position_map"),
    "prefill_ragged": (
        *("q", "q_indptr", "k", "v", "kv_indptr", "q_rope_position", "k_rope_pos_offset"),
        *OUT,
        "causal",
        *ROTATION,
    ),
    "prefill": ("q", "q_indptr", "pages", *PAGES, *OUT, "causal", *ROTATION),
    "decode": ("q", "pages", *PAGES, *OUT, *ROTATION),
    "prefill_tree": (
        *("q", "q_indptr", "k", "v", "kv_indptr", "q_rope_position", "mn_indptr", "mask"),
        *OUT,
        *ROTATION,
    ),
    "prefill_tree_paged": (
        *("q", "q_indptr", "pages", *PAGES),
        *OUT,
        *ROTATION,
        "tree_order_indptr",
        "tree_order",
    ),
    "merge": ("v", "s", "v_other", "s_other"),
    "copy_single_page": ("pages", "src_page_id", "tgt_page_id", "copy_length"),
    "debug_get_kv": ("pages", "position_map", "k_data", "v_data", "layer_id"),
    "compact_copy": ("pages", "copy_length_indptr", "copy_src_dst_pos", "batch_size"),
    "mla_append": ("pages", "kv_data", "position_map"),
    "mla_prefill": (
        *("q", "q_indptr", "pages", "page_indptr", "page_values", "length_info"),
        *OUT,
        "causal",
        "sm_scale",
    ),
    "mla_debug_get": ("pages", "position_map", "kv_data", "layer_id"),
    "nvshmem_kv_transfer": (
        *("pages", "k_data", "v_data", "remote_position_map", "recver_pe_offset", "stream"),
    ),
    "nvshmem_kv_transfer_page_to_page": (
        *("remote_pages", "local_pages", "remote_position_map", "local_position_map"),
        *("recver_pe_offset", "stream"),
    ),
}
ARGUMENTS["prefill_sliding"] = ARGUMENTS["prefill"]
ARGUMENTS["decode_sliding"] = ARGUMENTS["decode"]
SHAPES_KEPT = {"pages", "q", "kv_data", "storage", "output"}

#: Which kernel of our families plays which role.
KINDS = {
    "transpose_append": "transpose_append",
    "prefill_ragged": "ragged_prefill",
    "prefill": "paged_prefill",
    "decode": "paged_decode",
    "prefill_sliding": "paged_prefill_sliding",
    "decode_sliding": "paged_decode_sliding",
    "prefill_tree_paged": "paged_prefill_tree",
    "prefill_tree": "ragged_prefill_tree",
    "split_rotary": "split_rotary",
    "copy_single_page": "copy_single_page",
    "debug_get_kv": "debug_get_kv",
    "compact_copy": "compact_copy",
    "mla_append": "transpose_append_mla",
    "mla_prefill": "mla_prefill",
    "mla_debug_get": "debug_get_kv_mla",
}


def names() -> list[str]:
    """Every recorded trace of the paged cache, in order of name."""
    return sorted(path.name.split(".")[0] for path in FOLDER.glob("*.json.gz"))


@cache
def load(name: str) -> dict[str, Any]:
    """Return one trace."""
    loaded: dict[str, Any] = json.loads(gzip.decompress((FOLDER / f"{name}.json.gz").read_bytes()))
    return loaded


def builtin(name: str) -> Callable[..., Any]:
    """Return a builtin of the virtual machine."""
    return get_global_func(f"vm.builtin.{name}")


def unpack(text: str) -> np.ndarray:
    """Return an array from base64 of .npy bytes."""
    return np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)


def runs(slots: list[int]) -> list[list[int]]:
    """Return slots as runs of first slot and count."""
    found: list[list[int]] = []
    for slot in slots:
        if found and slot == sum(found[-1]):
            found[-1][1] += 1
        else:
            found.append([slot, 1])
    return found


@dataclass
class Recorder:
    """Writes down what kernels are called with."""

    calls: list[dict[str, Any]] = field(default_factory=list)

    def wrap(self, role: str, kernel: Callable[..., Any], tag: str = "") -> Callable[..., Any]:
        def recording(*arguments: Any) -> Any:
            self.note(role, arguments, tag)
            return kernel(*arguments)

        return recording

    def note(self, role: str, arguments: tuple[Any, ...], tag: str = "") -> None:
        call: dict[str, Any] = {"kernel": role}
        if tag:
            call["tag"] = tag
        for name, value in zip(ARGUMENTS[role], arguments, strict=True):
            if isinstance(value, Tensor):
                if value.dtype == "int32":
                    call[name] = value.array.tolist()
                elif name in SHAPES_KEPT:
                    call[name + "_shape"] = list(value.shape)
            elif value is None or isinstance(value, int | float):
                call[name] = value
        self.calls.append(call)

    def take(self) -> list[dict[str, Any]]:
        taken, self.calls = self.calls, []
        return taken


def make_cache(config: dict[str, Any], recorder: Recorder, family: str | None = None) -> Any:
    """Return a cache for a trace's configuration, with kernels that are written down."""
    scaling = config["rope_scaling"]
    spec = KernelSpec(
        config["num_qo_heads"],
        config["num_kv_heads"],
        config["head_dim"],
        config["v_head_dim"],
        page_size=config["page_size"],
        dtype=config["dtype"],
        layer_window=config["layer_sliding_window_size"] if 3 in config["attn_kinds"] else 0,
        rope=Rope(
            config["head_dim"],
            config["rotary_theta"],
            config["rotary_scale"],
            config["rotary_dim"],
            scaling,
        ),
    )
    latent = config["attn_kinds"][0] == 1
    wrapped = {role: recorder.wrap(role, pick(kind, spec, family)) for role, kind in KINDS.items()}
    merge = pick("merge_state_inplace", spec, family)
    merges = [recorder.wrap("merge", merge, f"merge[{i}]") for i in range(2)]
    sizes = [
        config["reserved_num_seqs"],
        config["total_token_capacity"],
        config["prefill_chunk_size"],
        config["page_size"],
        config["support_sliding_window"],
    ]
    if config["pass_layer_window"]:
        sizes.append(config["layer_sliding_window_size"])
    factors = config["rope_ext_factors"]
    head = [
        ShapeTuple(sizes),
        ShapeTuple(config["layer_indptr"]),
        config["num_qo_heads"],
        config["num_kv_heads"],
        config["head_dim"],
        config["v_head_dim"],
        ShapeTuple(config["attn_kinds"]),
        config["enable_kv_transfer"],
        config["rope_mode"],
        float(config["rotary_scale"]),
        float(config["rotary_theta"]),
        None if factors is None else tensor(np.array(factors, "float32")),
        empty((), config["dtype"]),
    ]

    def tirx(role: str) -> list[Any]:
        return ["tirx", wrapped[role]]

    if latent:
        copy = recorder.wrap("copy_single_page", pick("copy_single_page_mla", spec, family))
        tail: list[Any] = [None, wrapped["mla_append"], tirx("prefill_ragged")]
        tail += [[]] * 6 + [tirx("mla_prefill"), merges, wrapped["split_rotary"]]
        tail += [copy, wrapped["mla_debug_get"], wrapped["compact_copy"]]
    else:
        order = ("prefill_ragged", "prefill", "decode", "prefill_sliding", "decode_sliding")
        tail = [wrapped["transpose_append"], None, *map(tirx, order)]
        tail += [tirx("prefill_tree_paged"), tirx("prefill_tree"), [], merges]
        tail += [wrapped["split_rotary"], wrapped["copy_single_page"], wrapped["debug_get_kv"]]
        tail += [wrapped["compact_copy"]]
    return builtin("paged_attention_kv_cache_create")(*head, *tail)


@dataclass
class Difference(AssertionError):
    """Where a replay leaves the trace."""

    index: int
    op: dict[str, Any]
    what: str
    got: Any
    expected: Any

    def __str__(self) -> str:
        arguments = {k: v for k, v in self.op.items() if len(str(v)) < 100}
        return f"op {self.index} {arguments}: {self.what}: got {self.got}, expected {self.expected}"


class Replay:
    """One trace, replayed operation by operation."""

    def __init__(self, name: str, family: str | None = None, *, compare: bool = True) -> None:
        self.trace = load(name)
        self.config = self.trace["config"]
        self.family = family
        self.tolerance = 2e-3 if self.config["dtype"] == "float16" else 1e-5
        self.caches: dict[str, Any] = {}
        self.recorders: dict[str, Recorder] = {}
        self.after: dict[str, Any] = {}
        self.random = {"receiver": np.random.default_rng(23), "target": np.random.default_rng(25)}
        self.results: dict[str, list[Tensor]] = {}
        self.exported: dict[int, Tensor] = {}
        self.metadata = ""
        self.last_calls: list[dict[str, Any]] = []
        self.differences: list[Difference] = []
        self.compare = compare

    def run(self) -> list[Difference]:
        """Replay all operations; return where the outcome differs."""
        with fake_network(self):
            for index, op in enumerate(self.trace["ops"]):
                if op["op"] != "note":
                    self.step(index, op)
        return self.differences

    def differ(self, index: int, op: dict[str, Any], what: str, got: Any, expected: Any) -> None:
        self.differences.append(Difference(index, op, what, got, expected))

    def step(self, index: int, op: dict[str, Any]) -> None:
        who = op.get("who", "main")
        if op["op"] == "create":
            self.recorders[who] = Recorder()
            self.caches[who] = make_cache(self.config, self.recorders[who], self.family)
        else:
            outputs: dict[str, Any] = {}
            error = None
            try:
                outputs = getattr(self, op["op"])(self.caches[who], op, who)
            except InternalError as caught:
                error = caught
            if (error is not None) != ("error" in op):
                self.differ(index, op, "error", repr(error), op.get("error"))
            elif error is not None and not str(error):
                self.differ(index, op, "error text", "", "some")
            for key, value in (outputs or {}).items():
                self.check_output(index, op, key, value)
        self.check_calls(index, op, who)
        self.check_state(index, op, who)

    def check_output(self, index: int, op: dict[str, Any], key: str, got: Any) -> None:
        expected = op[key]
        if not isinstance(got, Tensor):
            if got != expected:
                self.differ(index, op, key, got, expected)
            return
        wanted = unpack(expected)
        worst = np.abs(got.array.astype("float32") - wanted.astype("float32")).max(initial=0)
        if got.array.shape != wanted.shape or not worst <= self.tolerance:
            self.differ(index, op, key, f"off by {worst}", "equal values")

    def check_calls(self, index: int, op: dict[str, Any], who: str) -> None:
        got = self.recorders[who].take()
        expected = op.get("calls", [])
        if expected == "same as previous layer":
            expected = self.last_calls
        if got != expected and not ("error" in op and op["op"] == "begin_forward"):
            self.differ(index, op, "kernel calls", got, expected)
        self.last_calls = expected

    def check_state(self, index: int, op: dict[str, Any], who: str) -> None:
        if op["after"] != "same":
            self.after[who] = op["after"]
        expected, cache = self.after[who], self.caches[who]
        got = {
            "num_available_pages": builtin("attention_kv_cache_get_num_available_pages")(cache),
            "total_sequence_length": builtin("attention_kv_cache_get_total_sequence_length")(cache),
            "empty": builtin("attention_kv_cache_empty")(cache),
            "sequence_lengths": {
                seq_id: self.length(cache, int(seq_id)) for seq_id in expected["sequence_lengths"]
            },
        }
        if "slots" in expected:
            got["slots"] = {
                seq_id: runs(cache.slots_of(int(seq_id)))
                for seq_id in expected["slots"]
                if int(seq_id) in cache
            }
        if got != expected:
            self.differ(index, op, "state", got, expected)

    @staticmethod
    def length(cache: Any, seq_id: int) -> int | None:
        try:
            return builtin("attention_kv_cache_get_sequence_length")(cache, seq_id)
        except InternalError:
            return None

    # ---- operations ----------------------------------------------------------------------------

    def add_sequence(self, cache, op, who):
        builtin("kv_state_add_sequence")(cache, op["seq_id"])

    def remove_sequence(self, cache, op, who):
        builtin("kv_state_remove_sequence")(cache, op["seq_id"])

    def fork_sequence(self, cache, op, who):
        builtin("kv_state_fork_sequence")(cache, op["parent"], op["child"], op["fork_pos"])

    def popn(self, cache, op, who):
        builtin("kv_state_popn")(cache, op["seq_id"], op["n"])

    def clear(self, cache, op, who):
        builtin("kv_state_clear")(cache)

    def begin_forward(self, cache, op, who):
        tree = op.get("token_tree_parent_ptr")
        builtin("kv_state_begin_forward")(
            cache,
            ShapeTuple(op["seq_ids"]),
            ShapeTuple(op["append_lengths"]),
            None if tree is None else ShapeTuple(tree),
        )

    def end_forward(self, cache, op, who):
        builtin("kv_state_end_forward")(cache)

    def get_query_positions(self, cache, op, who):
        found = builtin("attention_kv_cache_get_query_positions")(cache)
        return {"positions": found.array.tolist()}

    def get_sequence_length(self, cache, op, who):
        builtin("attention_kv_cache_get_sequence_length")(cache, op["seq_id"])

    def enable_sliding_window_for_seq(self, cache, op, who):
        builtin("attention_kv_cache_enable_sliding_window_for_seq")(
            cache, op["seq_id"], op["sliding_window_size"], op["attn_sink_size"]
        )

    def commit_accepted_token_tree_nodes(self, cache, op, who):
        builtin("attention_kv_cache_commit_accepted_token_tree_nodes")(
            cache, ShapeTuple(op["seq_ids"]), ShapeTuple(op["leaf_indices"])
        )

    def attention_with_fused_qkv(self, cache, op, who):
        config = self.config
        heads, kv_heads, size = (
            config["num_qo_heads"],
            config["num_kv_heads"],
            config["head_dim"],
        )
        if "qkv_shape" in op:
            qkv = np.zeros(op["qkv_shape"], op["qkv_dtype"])
        else:
            total = len(op["query_positions"])
            drawn = None
            if who in self.random:
                random = self.random[who]
                drawn = np.concatenate(
                    [random.standard_normal((total, h, size)) for h in (heads, kv_heads, kv_heads)],
                    axis=1,
                ).astype(config["dtype"])
            qkv = unpack(op["qkv"]) if "qkv" in op else drawn
        o = empty((qkv.shape[0], heads, size), config["dtype"])
        builtin("attention_kv_cache_attention_with_fused_qkv")(
            cache, op["layer"], op["sm_scale"], tensor(qkv), o
        )
        found = builtin("attention_kv_cache_get_query_positions")(cache)
        outputs: dict[str, Any] = {"query_positions": found.array.tolist()}
        if "output" in op:
            outputs["output"] = o
        return outputs

    def self_attention(self, cache, op, who):
        q, k, v = (tensor(unpack(op[name])) for name in "qkv")
        o = empty((*q.shape[:2], v.shape[2]), q.dtype)
        lse = empty(q.shape[:2], "float32")
        builtin("attention_kv_cache_self_attention")(
            cache, op["layer"], op["sm_scale"], q, k, v, o, lse
        )
        # what is recorded was taken before merging in place
        self.results["self"] = [tensor(o), tensor(lse)]
        self.results["result"] = self.results["self"]
        return {"output": o, "lse": lse}

    def cross_attention(self, cache, op, who):
        q = tensor(unpack(op["q"]))
        o = empty((*q.shape[:2], self.config["v_head_dim"]), q.dtype)
        lse = empty(q.shape[:2], "float32")
        builtin("attention_kv_cache_cross_attention")(cache, op["layer"], op["sm_scale"], q, o, lse)
        result = o
        if "weights" in self.trace:
            values = unpack(self.trace["weights"]["w_uv"])
            result = tensor(np.einsum("nhl,hlv->nhv", o.array, values).astype("float32"))
        self.results["cross"] = [result, lse]
        if "self" not in self.results:
            self.results["result"] = self.results["cross"]
        return {"output": o, "lse": lse}

    def merge_attn_output_inplace(self, cache, op, who):
        o, lse = self.results["self"]
        merged = builtin("attention_kv_cache_merge_attn_output_inplace")(
            cache, o, lse, *self.results["cross"]
        )
        assert merged[0] is o
        assert merged[1] is lse
        return {"output": o, "lse": lse}

    def result(self, cache, op, who):
        found = self.results["result"][0]
        self.results = {}
        return {"output": found}

    def attention_with_shared_kv(self, cache, op, who):
        q, k, v = (tensor(unpack(op[name])) for name in "qkv")
        o = empty(q.shape, q.dtype)
        builtin("attention_kv_cache_attention_with_shared_kv")(
            cache, op["layer"], op["sm_scale"], q, k, v, o
        )
        return {"output": o}

    def append_mla_kv(self, cache, op, who):
        kv = tensor(unpack(op["kv"]))
        assert builtin("attention_kv_cache_append_mla_kv")(cache, op["layer"], kv) is cache

    def debug_get_kv(self, cache, op, who):
        count = max(op["end_pos"] - op["start_pos"], 1)
        layers = self.config["layer_indptr"][1] - self.config["layer_indptr"][0]
        shape = (layers, count, self.config["num_kv_heads"], self.config["head_dim"])
        k, v = empty(shape, self.config["dtype"]), empty(shape, self.config["dtype"])
        builtin("attention_kv_cache_debug_get_kv")(
            cache, op["seq_id"], op["start_pos"], op["end_pos"], k, v
        )
        return {"k": k, "v": v}

    def disagg_prepare_recv(self, cache, op, who):
        found = builtin("kv_cache_disagg_prepare_recv")(cache, op["seq_id"], op["append_length"])
        return {"result": list(found)}

    def disagg_mark_send(self, cache, op, who):
        builtin("kv_cache_disagg_mark_send")(
            cache,
            op["seq_id"],
            op["begin"],
            ShapeTuple(op["compressed_remote_position_map"]),
            op["recver_pe_offset"],
        )

    def get_checkpoint_metadata(self, cache, op, who):
        self.metadata = builtin("attention_kv_cache_get_checkpoint_metadata")(cache, op["seq_id"])
        return {"metadata": json.loads(self.metadata)}

    def get_layout_hash(self, cache, op, who):
        return {"layout_hash": builtin("attention_kv_cache_get_layout_hash")(cache)}

    def export_page_group(self, cache, op, who):
        shape = json.loads(self.metadata)["groups"][op["group_id"]]["shape"]
        target = empty(shape, self.config["dtype"])
        builtin("attention_kv_cache_export_page_group")(cache, op["seq_id"], op["group_id"], target)
        self.exported[op["group_id"]] = target
        return {"data": target}

    def prepare_import(self, cache, op, who):
        metadata = self.metadata
        if "changed" in op:
            value = {"page_size": 8, "layout_hash": "x"}[op["changed"]]
            metadata = json.dumps(json.loads(metadata) | {op["changed"]: value})
        builtin("attention_kv_cache_prepare_import")(cache, op["seq_id"], metadata)

    def import_page_group(self, cache, op, who):
        builtin("attention_kv_cache_import_page_group")(
            cache, op["seq_id"], op["group_id"], self.exported[op["group_id"]]
        )

    def finish_import(self, cache, op, who):
        builtin("attention_kv_cache_finish_import")(cache, op["seq_id"])


@contextmanager
def fake_network(replay: Replay) -> Iterator[None]:
    """Let rows travel between the caches of one replay; receiver 2 is the second cache made."""
    pools: list[Tensor] = []

    def allocate(shape, dtype, device):
        pools.append(tensor(np.zeros(tuple(shape), dtype.numpy())))
        return pools[-1]

    def to_slot(receiver, slot):
        pages = pools[{0: 0, 2: 1}[receiver]].array[0]
        return pages[slot // pages.shape[3], :, :, slot % pages.shape[3]]

    def send_tokens(pages, k, v, positions, receivers, stream):
        arguments = (pages, k, v, positions, receivers, stream)
        replay.recorders["main"].note("nvshmem_kv_transfer", arguments)
        replay.recorders["main"].calls[-1].pop("stream")
        replay.recorders["main"].calls[-1].pop("pages_shape")
        for i, (slot, receiver) in enumerate(zip(positions.array, receivers.array, strict=True)):
            if slot >= 0:
                to_slot(receiver, slot)[:] = k.array[i], v.array[i]

    def send_pages(remote, local, remote_slots, local_slots, receivers, stream):
        arguments = (remote, local, remote_slots, local_slots, receivers, stream)
        replay.recorders["main"].note("nvshmem_kv_transfer_page_to_page", arguments)
        replay.recorders["main"].calls[-1].pop("stream")
        size = local.array.shape[3]
        for there, here, receiver in zip(
            remote_slots.array, local_slots.array, receivers.array, strict=True
        ):
            to_slot(receiver, there)[:] = local.array[here // size, :, :, here % size]

    functions = {
        "runtime.disco.nvshmem.init_nvshmem": lambda *_: None,
        "runtime.disco.nvshmem.empty": allocate,
        "nvshmem.KVTransfer": send_tokens,
        "nvshmem.KVTransferPageToPage": send_pages,
    }
    for name, function in functions.items():
        register_global_func(name, function)
    try:
        yield
    finally:
        for name in functions:
            remove_global_func(name)
