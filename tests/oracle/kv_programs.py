"""Runs lists of cache operations and writes down what each did; on our cache or on the real TVM's.

usage, by a Python with the real TVM: kv_programs.py FILE    FILE: a list of {config, ops, full};
output: for each a list with one entry per operation, a record if ``full``, else its digest.

Kernels record their integer arguments. Unless the configuration says ``"compute"`` they compute
nothing, and what is compared is bookkeeping. All calls go through ``vm.builtin.*``, so one executor
serves both machines.
"""

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

PAGES = ("page_indptr", "page_values", "length_info", "k_rope_pos_offset", "q_rope_position")
ROTATION = ("rotary_mode", "rope_scale", "rope_theta", "sm_scale")
ARGUMENTS = {
    "split_rotary": ("qkv", "position_map", "q", "k", "v", "apply_rope"),
    "append": ("pages", "k", "v", "position_map"),
    "append_mla": ("pages", "kv", "position_map"),
    "ragged": (
        *("q", "q_indptr", "k", "v", "kv_indptr", "q_rope_position", "k_rope_pos_offset"),
        *("o", "lse", "causal", *ROTATION),
    ),
    "prefill": ("q", "q_indptr", "pages", *PAGES, "o", "lse", "causal", *ROTATION),
    "prefill_sliding": ("q", "q_indptr", "pages", *PAGES, "o", "lse", "causal", *ROTATION),
    "decode": ("q", "pages", *PAGES, "o", "lse", *ROTATION),
    "decode_sliding": ("q", "pages", *PAGES, "o", "lse", *ROTATION),
    "tree_paged": (
        *("q", "q_indptr", "pages", *PAGES, "o", "lse", *ROTATION),
        *("tree_order_indptr", "tree_order"),
    ),
    "tree": (
        *("q", "q_indptr", "k", "v", "kv_indptr", "q_rope_position", "mn_indptr", "mask"),
        *("o", "lse", *ROTATION),
    ),
    "mla": (
        *("q", "q_indptr", "pages", "page_indptr", "page_values", "length_info"),
        *("o", "lse", "causal", "sm_scale"),
    ),
    "merge": ("v", "s", "v_other", "s_other"),
    "copy_page": ("pages", "source", "target", "rows"),
    "debug": ("pages", "position_map", "k", "v", "layer"),
    "debug_mla": ("pages", "position_map", "kv", "layer"),
    "compact": ("pages", "copy_length_indptr", "copy_src_dst_pos", "batch_size"),
}


class Executor:
    """One cache, driven by operations.

    Parameters
    ----------
    backend
        ``get(name)``, ``shape(ints)``, ``empty(shape, dtype)``, ``tensor(array)``, ``function(f)``,
        ``ints(tensor)`` (a list, or None if it holds no int32) and ``kernels(config)`` (by role) of
        one machine.
    config
        Creation arguments.
    """

    def __init__(self, backend: Any, config: dict[str, Any]) -> None:
        self.backend = backend
        self.config = config
        self.calls: list[list[Any]] = []
        self.known: set[int] = set()
        self.unsound: set[int] = set()
        self.lengths: list[int] = []
        self.latent = config["attn_kinds"][0] == 1
        self.dtype = config.get("dtype", "float32")
        self.kernels = backend.kernels(config) if config.get("compute") else {}
        self.drawn = 0
        self.cache = self.create()

    def recording(self, role: str) -> Any:
        def kernel(*arguments: Any) -> None:
            call: list[Any] = [role]
            for name, value in zip(ARGUMENTS[role], arguments, strict=True):
                if isinstance(value, int | float):
                    call.append([name, value])
                elif hasattr(value, "shape"):
                    numbers = self.backend.ints(value)
                    if numbers is not None:
                        call.append([name, numbers])
            self.calls.append(call)
            if role in self.kernels:
                self.kernels[role](*arguments)

        return self.backend.function(kernel)

    def create(self) -> Any:
        c, f, shape = self.config, self.recording, self.backend.shape

        def tirx(role: str) -> list[Any]:
            return ["tirx", f(role)]

        return self.call(
            "paged_attention_kv_cache_create",
            shape(c["sizes"]),
            shape(c["layers"]),
            c["num_qo_heads"],
            c["num_kv_heads"],
            c["head_dim"],
            c["v_head_dim"],
            shape(c["attn_kinds"]),
            False,
            c["rope_mode"],
            c["rotary_scale"],
            c["rotary_theta"],
            None,
            self.backend.empty((), self.dtype),
            f("append"),
            f("append_mla"),
            tirx("ragged"),
            tirx("prefill"),
            tirx("decode"),
            tirx("prefill_sliding"),
            tirx("decode_sliding"),
            tirx("tree_paged"),
            tirx("tree"),
            tirx("mla"),
            [f("merge"), f("merge")],
            f("split_rotary"),
            f("copy_page"),
            f("debug_mla" if self.latent else "debug"),
            f("compact"),
        )

    def call(self, name: str, *arguments: Any) -> Any:
        return self.backend.get(f"vm.builtin.{name}")(*arguments)

    # ---- operations ----------------------------------------------------------------------------

    def step(self, op: list[Any]) -> dict[str, Any]:
        """Run one operation; return what it did and the state after it."""
        self.calls = []
        record: dict[str, Any] = {}
        try:
            result = getattr(self, op[0])(*op[1:])
        except Exception as error:  # noqa: BLE001  # which one is part of the record
            record["error"] = type(error).__name__
            if op[0] == "begin":
                self.unsound.update(op[1])
        else:
            if result is not None:
                record["result"] = result
        record["calls"] = self.calls
        record["pages"] = self.call("attention_kv_cache_get_num_available_pages", self.cache)
        record["total"] = self.call("attention_kv_cache_get_total_sequence_length", self.cache)
        record["empty"] = bool(self.call("attention_kv_cache_empty", self.cache))
        record["sequences"] = [[s, *self.sequence(s)] for s in sorted(self.known)]
        return record

    def sequence(self, seq_id: int) -> tuple[int, list[int]]:
        length = self.call("attention_kv_cache_get_sequence_length", self.cache, seq_id)
        slots: list[int] = []
        if length and seq_id not in self.unsound and set(self.config["attn_kinds"]) in ({0}, {1}):
            self.calls = []
            layers = self.config["layers"][1] - self.config["layers"][0]
            if self.latent:
                room = self.backend.empty((layers, length, self.config["head_dim"]), self.dtype)
                name, rooms = "attention_kv_cache_debug_get_kv_mla", [room]
            else:
                shape = (layers, length, self.config["num_kv_heads"], self.config["head_dim"])
                rooms = [self.backend.empty(shape, self.dtype) for _ in range(2)]
                name = "attention_kv_cache_debug_get_kv"
            self.call(name, self.cache, seq_id, 0, length, *rooms)
            slots = self.calls[0][1][1]
        return length, slots

    def add(self, seq_id: int) -> None:
        self.call("kv_state_add_sequence", self.cache, seq_id)
        self.known.add(seq_id)

    def remove(self, seq_id: int) -> None:
        self.call("kv_state_remove_sequence", self.cache, seq_id)
        self.known.discard(seq_id)
        self.unsound.discard(seq_id)

    def fork(self, parent: int, child: int, position: int) -> None:
        self.call("kv_state_fork_sequence", self.cache, parent, child, position)
        self.known.add(child)

    def popn(self, seq_id: int, count: int) -> None:
        self.call("kv_state_popn", self.cache, seq_id, count)

    def clear(self) -> None:
        self.call("kv_state_clear", self.cache)
        self.known.clear()
        self.unsound.clear()

    def window(self, seq_id: int, window: int, sink: int) -> None:
        name = "attention_kv_cache_enable_sliding_window_for_seq"
        self.call(name, self.cache, seq_id, window, sink)

    def begin(self, seq_ids: list[int], lengths: list[int], tree: list[int] | None) -> None:
        shape = self.backend.shape
        self.call(
            "kv_state_begin_forward",
            self.cache,
            shape(seq_ids),
            shape(lengths),
            None if tree is None else shape(tree),
        )
        self.lengths = lengths

    def positions(self) -> Any:
        found = self.call("attention_kv_cache_get_query_positions", self.cache)
        return self.backend.ints(found)

    def random(self, shape: tuple[int, ...]) -> Any:
        """Return the next random tensor, the same on both machines."""
        self.drawn += 1
        values = np.random.default_rng(self.drawn).standard_normal(shape)
        return self.backend.tensor(values.astype(self.dtype))

    def attend(self, layer: int) -> Any:
        c, total, empty = self.config, sum(self.lengths), self.backend.empty
        heads, size = c["num_qo_heads"], c["head_dim"]
        prefix = "attention_kv_cache_"
        if not self.latent:
            qkv = self.random((total, heads + 2 * c["num_kv_heads"], size))
            o = empty((total, heads, size), self.dtype)
            self.call(prefix + "attention_with_fused_qkv", self.cache, layer, 0.5, qkv, o)
            return o.numpy().astype("float32").tolist() if self.kernels else None
        kv = empty((total, size), "float32")
        self.call(prefix + "append_mla_kv", self.cache, layer, kv)
        q, o = (empty((total, heads, n), "float32") for n in (size, c["v_head_dim"]))
        lse = empty((total, heads), "float32")
        self.call(prefix + "self_attention", self.cache, layer, 0.5, q, q, o, o, lse)
        self.call(prefix + "cross_attention", self.cache, layer, 0.5, q, o, lse)
        return None

    def end(self) -> None:
        self.call("kv_state_end_forward", self.cache)

    def commit(self, seq_ids: list[int], leaves: list[int]) -> None:
        name, shape = "attention_kv_cache_commit_accepted_token_tree_nodes", self.backend.shape
        self.call(name, self.cache, shape(seq_ids), shape(leaves))


def digest(record: dict[str, Any]) -> str:
    """Return a short name of a record's contents."""
    return hashlib.sha1(json.dumps(record, sort_keys=True).encode()).hexdigest()[:12]


def run(backend: Any, program: dict[str, Any]) -> list[Any]:
    """Return one entry per operation of a program."""
    executor = Executor(backend, program["config"])
    records = [executor.step(op) for op in program["ops"]]
    return records if program["full"] else [digest(record) for record in records]


if __name__ == "__main__":
    import tvm
    import tvm_ffi
    from tvm.relax.frontend.nn.llm import kv_cache as factories
    from tvm.s_tir import dlight

    class RealTVM:
        """The real machine."""

        function = staticmethod(tvm_ffi.convert)

        @staticmethod
        def get(name: str) -> Any:
            return tvm.get_global_func(name)

        @staticmethod
        def shape(numbers: list[int]) -> Any:
            return tvm_ffi.Shape(numbers)

        @staticmethod
        def empty(shape: tuple[int, ...], dtype: str) -> Any:
            return tvm.runtime.empty(shape, dtype, device=tvm.cpu())

        @staticmethod
        def tensor(array: Any) -> Any:
            return tvm.runtime.tensor(array, tvm.cpu())

        @staticmethod
        def kernels(c: dict[str, Any]) -> dict[str, Any]:
            kv, q, d, t = c["num_kv_heads"], c["num_qo_heads"], c["head_dim"], c["dtype"]
            size = c["sizes"][3]
            page, scale, theta = {"page_size": size}, c["rotary_scale"], c["rotary_theta"]
            layers = c["layers"][1] - c["layers"][0]
            made = {
                "append": factories._kv_cache_transpose_append(kv, d, t, **page),
                "debug": factories._kv_cache_debug_get_kv(layers, kv, d, t),
                "prefill": factories._attention_prefill_cpu(kv, q, d, t, False, {}, **page),
                "decode": factories._attention_decode_cpu(kv, q, d, t, False, {}, **page),
                "prefill_sliding": factories._attention_prefill_cpu(kv, q, d, t, True, {}, **page),
                "decode_sliding": factories._attention_decode_cpu(kv, q, d, t, True, {}, **page),
                "ragged": factories._attention_prefill_ragged_cpu(kv, q, d, d, t, {}),
                "tree": factories.tree_attn_cpu(kv, q, d, t, {}),
                "tree_paged": factories.tree_attn_with_paged_kv_cache_cpu(kv, q, d, t, {}),
                "merge": factories._merge_state_inplace_cpu(t),
                "split_rotary": factories.llama_rope_with_position_map(
                    theta, scale, d, q, kv, t, {}, None
                ),
                "copy_page": factories._copy_single_page_cpu(kv, size, d, t),
                "compact": factories._compact_kv_copy_cpu(kv, d, t, **page),
            }
            target = tvm.target.Target.from_device(tvm.cpu())
            built = {}
            for role, function in made.items():
                mod = tvm.IRModule({"main": function})
                with target:
                    mod = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(mod)
                built[role] = tvm.tirx.build(mod["main"], target=target).main
            return built

        @staticmethod
        def ints(tensor: Any) -> list[int] | None:
            return tensor.numpy().tolist() if str(tensor.dtype) == "int32" else None

    programs = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    json.dump([run(RealTVM, program) for program in programs], sys.stdout)
