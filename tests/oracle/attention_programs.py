"""Kernel calls that both sides make: TVM's compiled CPU kernels, and ours.

Run as a program by a Python that has TVM, it writes what TVM's kernels return to a .npz file.
"""

import sys

import numpy as np

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
YARN = {
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 32,
    "beta_fast": 32,
    "beta_slow": 1,
    "inv_theta_log_scale": 1 / (2 * np.log(10000.0)),
}
SCALINGS = {
    "none": {},
    "gptj": {"rope_type": "gptj"},
    "llama3": LLAMA3,
    "llama4": {**LLAMA3, "rope_type": "llama4"},
    "llama4_equal": {**LLAMA3, "rope_type": "llama4", "high_freq_factor": 1.0},
    "yarn": YARN,
}
DIM, PAGE = 16, 4


def index(*values):
    return np.array(values, "int32")


def cases():
    """Yield (name, our kind, sizes, TVM factory and arguments, call arguments).

    Arguments that the kernel writes are full of NaN or zeros; after the call all arrays are
    compared.
    """
    rng = np.random.default_rng(5)

    def random(dtype, *shape):
        return rng.standard_normal(shape).astype(dtype)

    for dtype in ("float32", "float16"):
        for name, scaling in SCALINGS.items() if dtype == "float32" else [("none", {})]:
            for rotary_dim in (None, 8):
                sizes = {"heads": (2, 1), "dtype": dtype, "scaling": scaling, "dim": rotary_dim}
                factory = (
                    "llama_rope_with_position_map",
                    (10000.0, 0.5, DIM, 2, 1, dtype, scaling, rotary_dim),
                )
                outs = [np.zeros((4, h, DIM), dtype) for h in (2, 1, 1)]
                call = [random(dtype, 4, 4, DIM), index(0, 3, 17, 40), *outs, 1]
                yield f"{name}_{rotary_dim}_{dtype}", "split_rotary", sizes, factory, call
        for group in (1, 3) if dtype == "float32" else (3,):
            yield from attention_cases(rng, random, dtype, group)
        yield from moving_cases(random, dtype)
    for name, scaling in SCALINGS.items():
        yield from inline_cases(random, name, scaling)


def outputs(dtype, rows, heads):
    return np.zeros((rows, heads, DIM), dtype), np.zeros((rows, heads), "float32")


def attention_cases(rng, random, dtype, group):
    heads, kv = 2 * group, 2
    sizes = {"heads": (heads, kv), "dtype": dtype, "scaling": {}, "dim": None}
    pages = random(dtype, 12, 2, kv, PAGE, DIM)
    ids = rng.permutation(12).astype("int32")
    indptr, values, last = index(0, 3, 3, 4, 7), ids[:7], index(2, 0, 4, 1)
    zeros = np.zeros(4, "int32")
    mode = (0, 1.0, 10000.0, 0.3)
    end = f"{group}_{dtype}"
    q = random(dtype, 4, heads, DIM)
    args = (kv, heads, DIM, dtype)
    yield (
        f"decode_{end}",
        "paged_decode",
        sizes,
        ("_attention_decode_cpu", (*args, False, {}, PAGE)),
        [q, pages, indptr, values, last, zeros, zeros, *outputs(dtype, 4, heads), *mode],
    )
    info = np.array([[2, 0, 4, 1], [5, 0, 0, 3], [2, 0, 0, 1]], "int32")
    yield (
        f"decode_sliding_{end}",
        "paged_decode_sliding",
        sizes,
        ("_attention_decode_cpu", (*args, True, {}, PAGE)),
        [q, pages, indptr, values, info, zeros, zeros, *outputs(dtype, 4, heads), *mode],
    )
    starts, rows = index(0, 2, 3, 6, 8), 8
    q, positions = random(dtype, rows, heads, DIM), np.zeros(rows, "int32")
    # a row that sees nothing is an average of hidden values in TVM, which merging drops
    causal_last = index(4, 0, 4, 3)
    for causal, lengths in ((0, last), (1, causal_last)):
        if causal:
            starts, rows_now = index(0, 2, 2, 5, 7), 7
        else:
            rows_now = rows
        yield (
            f"prefill_{causal}_{end}",
            "paged_prefill",
            sizes,
            ("_attention_prefill_cpu", (*args, False, {}, PAGE, 1024)),
            [q[:rows_now], starts, pages, indptr, values, lengths, zeros, positions[:rows_now],
             *outputs(dtype, rows_now, heads), causal, *mode],
        )  # fmt: skip
    starts = index(0, 3, 4, 9)
    q, k, v = (random(dtype, 9, h, DIM) for h in (heads, kv, kv))
    positions = np.zeros(9, "int32")
    for causal in (0, 1):
        yield (
            f"ragged_{causal}_{end}",
            "ragged_prefill",
            sizes,
            ("_attention_prefill_ragged_cpu", (kv, heads, DIM, DIM, dtype, {})),
            [q, starts, k, v, starts, positions, zeros[:3], *outputs(dtype, 9, heads), causal,
             *mode],
        )  # fmt: skip
    order = index(*[(0, 3), (1, 2), (2, 3)], (0, 1), *[(0, 5), (1, 4), (4, 5), (2, 3), (3, 4)])
    yield (
        f"tree_{end}",
        "ragged_prefill_tree",
        sizes,
        ("tree_attn_cpu", (kv, heads, DIM, dtype, {})),
        [q, starts, k, v, starts, positions, starts, order.reshape(-1, 2),
         *outputs(dtype, 9, heads), *mode],
    )  # fmt: skip
    wide = random(dtype, 6, 2, kv, 16, DIM)
    yield (
        f"paged_tree_{end}",
        "paged_prefill_tree",
        sizes,
        ("tree_attn_with_paged_kv_cache_cpu", (kv, heads, DIM, dtype, {})),
        [q, starts, wide, index(0, 2, 3, 5), index(4, 1, 0, 5, 2), index(3, 1, 9), zeros[:3],
         positions, *outputs(dtype, 9, heads), *mode, starts, order.reshape(-1, 2)],
    )  # fmt: skip


def inline_cases(random, name, scaling):
    sizes = {"heads": (2, 1), "dtype": "float32", "scaling": scaling, "dim": None}
    pages = random("float32", 4, 2, 1, PAGE, DIM)
    tables = (index(0, 3), index(2, 0, 3), index(2), index(5))
    mode = (1, 0.5, 500.0, 0.3)
    yield (
        f"inline_decode_{name}",
        "paged_decode",
        sizes,
        ("_attention_decode_cpu", (1, 2, DIM, "float32", False, scaling, PAGE)),
        [random("float32", 1, 2, DIM), pages, *tables, index(40), *outputs("float32", 1, 2),
         *mode],
    )  # fmt: skip
    q, k, v = (random("float32", 5, h, DIM) for h in (2, 1, 1))
    starts, positions = index(0, 3, 5), index(7, 8, 9, 20, 21)
    yield (
        f"inline_ragged_{name}",
        "ragged_prefill",
        sizes,
        ("_attention_prefill_ragged_cpu", (1, 2, DIM, DIM, "float32", scaling)),
        [q, starts, k, v, starts, positions, index(7, 20), *outputs("float32", 5, 2), 1, *mode],
    )


def moving_cases(random, dtype):
    sizes = {"heads": (2, 2), "dtype": dtype, "scaling": {}, "dim": None}
    pages = random(dtype, 5, 2, 2, PAGE, DIM)
    rows = [random(dtype, 4, 2, DIM) for _ in range(2)]
    slots = index(3, -1, 17, 8)
    yield (
        f"append_{dtype}",
        "transpose_append",
        sizes,
        ("_kv_cache_transpose_append", (2, DIM, dtype, PAGE)),
        [pages.copy(), *rows, slots],
    )
    latent = random(dtype, 5, PAGE, 12)
    yield (
        f"append_latent_{dtype}",
        "transpose_append_mla",
        sizes,
        ("_kv_cache_transpose_append_mla", (12, dtype, PAGE)),
        [latent.copy(), random(dtype, 4, 12), slots],
    )
    debug = [np.zeros((2, 3, 2, DIM), dtype) for _ in range(2)]
    yield (
        f"debug_{dtype}",
        "debug_get_kv",
        sizes,
        ("_kv_cache_debug_get_kv", (2, 2, DIM, dtype)),
        # TVM's kernel takes pages of 16
        [random(dtype, 3, 2, 2, 16, DIM), index(5, 40, 16), *debug, 1],
    )
    yield (
        f"copy_{dtype}",
        "copy_single_page",
        sizes,
        ("_copy_single_page_cpu", (2, PAGE, DIM, dtype)),
        [pages.copy(), 3, 1, 3],
    )
    pairs = np.array([[2, 5, 9, 19], [1, 2, 7, 12]], "int32")
    yield (
        f"compact_{dtype}",
        "compact_copy",
        sizes,
        ("_compact_kv_copy_cpu", (2, DIM, dtype, PAGE)),
        [pages.copy(), index(0, 2, 2, 4), pairs, 3],
    )
    first, second = (random(dtype, 3, 2, DIM) for _ in range(2))
    sums = [np.array([[0, -5e4], [3, 9], [-40, -5e4]], "float32") for _ in range(2)]
    sums[1] = sums[1][::-1].copy()
    yield (
        f"merge_{dtype}",
        "merge_state_inplace",
        sizes,
        ("_merge_state_inplace_cpu", (dtype,)),
        [first, sums[0], second, sums[1]],
    )


def arrays(call):
    """Return the arrays among arguments, by position."""
    return {str(i): a for i, a in enumerate(call) if isinstance(a, np.ndarray)}


def main(path):
    import tvm  # noqa: PLC0415
    from tvm.relax.frontend.nn.llm import kv_cache  # noqa: PLC0415
    from tvm.s_tir import dlight  # noqa: PLC0415

    target = tvm.target.Target.from_device(tvm.cpu())
    built, found = {}, {}
    for name, _, _, (factory, arguments), call in cases():
        key = repr((factory, arguments))
        if key not in built:
            mod = tvm.IRModule({"main": getattr(kv_cache, factory)(*arguments)})
            with target:
                mod = dlight.ApplyDefaultSchedule(dlight.gpu.Fallback())(mod)
            built[key] = tvm.tirx.build(mod["main"], target=target).main
        given = [tvm.runtime.tensor(a) if isinstance(a, np.ndarray) else a for a in call]
        built[key](*given)
        for position in arrays(call):
            found[f"{name}/{position}"] = given[int(position)].numpy()
    np.savez(path, **found)


if __name__ == "__main__":
    main(sys.argv[1])
