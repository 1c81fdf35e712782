"""The CUDA kernels compute what the others do, and their text is what NVRTC accepts.

Without a GPU the text is compiled as C++ and run on the host; the tests are those of the other
families.
"""

import ctypes
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from relaxlab.codegen.attention.cuda_kernels import FACTORIES, CudaKernels
from relaxlab.codegen.attention.cuda_launch import is_present
from relaxlab.codegen.attention.cuda_source import source
from relaxlab.errors import InternalError
from relaxlab.runtime.kv.attention import FAMILIES, KINDS, Family, KernelSpec
from tests.codegen.cuda_on_host import HostDevice, compiler
from tests.runtime.kv import test_rope
from tests.runtime.kv.test_attention import (  # noqa: F401  # collected here, for this family
    rng,
    test_a_chunk_without_a_tree_of_its_own_is_seen_whole,
    test_a_plan_follows_the_contents_of_reused_arrays,
    test_decode_of_a_batch_of_all_lengths,
    test_decode_of_a_slid_window_reads_the_sink_and_the_tail,
    test_decode_of_one_sequence_over_many_pages,
    test_decode_with_large_and_with_tiny_scores,
    test_every_family_has_every_kind,
    test_inline_rotation,
    test_inline_rotation_of_new_keys,
    test_latent_pages,
    test_paged_prefill_of_chunks,
    test_paged_trees_behind_a_past,
    test_prefill_over_a_slid_sequence_sees_its_whole_window,
    test_prefill_within_a_layer_window,
    test_ragged_prefill_of_prompts_around_a_page,
    test_ragged_prefill_with_values_of_another_size,
    test_ragged_trees,
    test_what_lies_in_unused_rows_does_not_matter,
)
from tests.runtime.kv.test_moves import (  # noqa: F401
    test_append,
    test_append_latent,
    test_copy_of_a_page,
    test_merge,
    test_reading_back,
)

NAME = "cuda text on the host"


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    if compiler() is None:
        pytest.skip("no C++ compiler to run the CUDA text with; only a GPU needs that text")
    device = HostDevice(tmp_path_factory.mktemp("cuda"))

    def make(kind, spec):
        return FACTORIES[kind](CudaKernels(spec, device))

    FAMILIES.register(NAME, Family(NAME, {kind: partial(make, kind) for kind in KINDS}, rank=-5))
    yield NAME
    FAMILIES.remove(NAME)


@pytest.mark.parametrize("kind", ["none", "gptj", "longrope"])
def test_split_rotary(family, kind):

    test_rope.test_split_rotary_of_every_family(family, kind, as_tvm=False)


def nvrtc():
    spec = find_spec("nvidia") and find_spec("nvidia.cuda_nvrtc")
    if not spec or not spec.submodule_search_locations:
        return None
    for place in spec.submodule_search_locations:
        for path in sorted(Path(place, "lib").glob("libnvrtc.so*")):
            return ctypes.CDLL(str(path))
    return None


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_nvrtc_compiles_the_text(dtype):
    library = nvrtc()
    if library is None:
        pytest.skip(
            "NVRTC (nvidia-cuda-nvrtc-cu12) is not installed; it is for machines with a GPU"
        )
    program = ctypes.c_void_p()
    text = source(dtype).encode()
    created = library.nvrtcCreateProgram(ctypes.byref(program), text, b"kv.cu", 0, None, None)
    assert created == 0
    options = (ctypes.c_char_p * 2)(b"--gpu-architecture=compute_80", b"--std=c++14")
    status = library.nvrtcCompileProgram(program, 2, options)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    assert status == 0, log.value.decode()
    library.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(program, ptx)
    for name in ("attend", "append", "split_rotary", "merge", "compact", "read_back"):
        assert f".visible .entry {name}(" in ptx.value.decode()


def test_the_family_is_there_exactly_where_a_gpu_is():
    assert ("cuda" in FAMILIES) == is_present()


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="expected one of float32, float16, bfloat16"):
        source("float64")
    with pytest.raises(InternalError, match="at most 1024 features, got 2048"):
        CudaKernels(KernelSpec(1, 1, 2048), HostDevice(tmp_path))
