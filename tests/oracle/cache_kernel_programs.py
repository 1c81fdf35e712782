"""Run by a Python with the real TVM: print and run the hand-written kernels of its paged caches.

usage: cache_kernel_programs.py FILE    FILE: {name: arguments}, arrays as [dtype, shape, values];
output: for each kernel its script, and its arrays after a run on the CPU (null: not run)
"""

import json
import sys
from pathlib import Path

import numpy as np
import tvm
from tvm.relax.frontend.nn.llm import (
    _decode_kernels,
    _page_kernels,
    _prefill_kernels,
    position_embedding,
)
from tvm.script import from_source

GPU = tvm.target.Target(
    {
        "kind": "cuda",
        "arch": "sm_80",
        "max_threads_per_block": 1024,
        "max_shared_memory_per_block": 49152,
        "thread_warp_size": 32,
    }
)
HEADS = (2, 4, 16, "float32")
WIDE = (2, 4, 64, "float16")
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def rope(scaling):
    make = position_embedding.llama_rope_with_position_map
    return make(10000.0, 1.0, 16, 4, 2, "float32", scaling)


KERNELS = {
    "decode": lambda: _decode_kernels._attention_decode_cpu(*HEADS, True, {}, 4),
    "ragged": lambda: _prefill_kernels._attention_prefill_ragged_cpu(2, 4, 16, 16, "float32", {}),
    "merge": lambda: _decode_kernels._merge_state_inplace_cpu("float32"),
    "compact": lambda: _page_kernels._compact_kv_copy_cpu(2, 16, "float32", 4),
    "copy": lambda: _page_kernels._copy_single_page_cpu(2, 4, 16, "float32"),
    "debug": lambda: _page_kernels._kv_cache_debug_get_kv(3, 2, 16, "float32"),
    "append": lambda: _page_kernels._kv_cache_transpose_append(2, 16, "float32", 4),
    "rope": lambda: rope({}),
    "rope_gptj": lambda: rope({"rope_type": "gptj"}),
    "rope_llama3": lambda: rope(LLAMA3),
    # reads past the end of a buffer of one element
    "prefill": lambda: _prefill_kernels._attention_prefill_cpu(*HEADS, False, {}, 4),
    "prefill_gpu": lambda: _prefill_kernels._attention_prefill(*WIDE, False, {}, GPU),
    "merge_gpu": lambda: _decode_kernels._merge_state_inplace(4, 64, "float16", GPU),
    "compact_gpu": lambda: _page_kernels._compact_kv_copy(2, 64, "float16", GPU),
    "copy_gpu": lambda: _page_kernels._copy_single_page(2, 16, 64, "float16", GPU),
}


def argument(value):
    if not isinstance(value, list):
        return value
    dtype, shape, numbers = value
    return tvm.runtime.tensor(np.array(numbers, dtype).reshape(shape))


def main():
    given = json.loads(Path(sys.argv[1]).read_text())
    results = {}
    for name, make in KERNELS.items():
        func = make()
        # printed twice: the second time as it is read
        mod = from_source(tvm.IRModule({"main": func}).script())
        arrays = None
        if name in given:
            arguments = [argument(value) for value in given[name]]
            tvm.compile(mod, "llvm")[func.attrs["global_symbol"]](*arguments)
            arrays = [a.numpy().reshape(-1).tolist() for a in arguments if hasattr(a, "numpy")]
        results[name] = [mod.script(), arrays]
    json.dump(results, sys.stdout)


main()
