"""The builtins of paged caches: names, argument lists and kinds of arguments are TVM's."""

import numpy as np
import pytest

from relaxlab import runtime
from relaxlab.errors import InternalError
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.tensor import Tensor, empty, tensor

NAMES = {
    "kv_state_": "clear add_sequence remove_sequence fork_sequence popn begin_forward end_forward",
    "attention_kv_cache_": "enable_sliding_window_for_seq commit_accepted_token_tree_nodes empty "
    "get_num_available_pages get_total_sequence_length get_sequence_length get_query_positions "
    "debug_get_kv debug_get_kv_mla attention_with_fused_qkv self_attention cross_attention "
    "attention_with_shared_kv append_mla_kv merge_attn_output_inplace get_checkpoint_metadata "
    "get_layout_hash export_page_group prepare_import import_page_group finish_import "
    # the legacy cache
    "create append update view window_override window_override_with_sinks array_popn array_clear",
    "kv_cache_disagg_": "prepare_recv mark_send",
    "paged_attention_kv_cache_": "create",
}


def call(name, *arguments):
    return runtime.get_global_func(f"vm.builtin.{name}")(*arguments)


def nothing(*_):
    """Stand in for a kernel."""


def arguments(**changes):
    """Return the 28 creation arguments by name, in order."""
    given = {
        "config": ShapeTuple([2, 24, 16, 4, 0]),
        "layers": ShapeTuple([0, 1]),
        "num_qo_heads": 2,
        "num_kv_heads": 1,
        "qk_head_dim": 2,
        "v_head_dim": 2,
        "attn_kinds": ShapeTuple([0]),
        "transfer": False,
        "rope_mode": 0,
        "rotary_scale": 1.0,
        "rotary_theta": 10000.0,
        "factors": None,
        "init": empty((), "float32"),
        "append": nothing,
        "append_mla": None,
        **{f"backend {number}": [] for number in range(8)},
        "merge": [nothing],
        "split_rotary": nothing,
        "copy": nothing,
        "debug": nothing,
        "compact": nothing,
    }
    assert len(given) == 28
    return list((given | changes).values())


def make(**changes):
    return call("paged_attention_kv_cache_create", *arguments(**changes))


@pytest.mark.parametrize("prefix", NAMES)
def test_every_builtin_is_a_global_function(prefix):
    for name in NAMES[prefix].split():
        assert callable(runtime.get_global_func(f"vm.builtin.{prefix}{name}"))


def test_a_cache_can_be_made_without_any_attention_kernel():
    cache = make()
    assert isinstance(cache, PagedAttentionKVCache)
    assert call("attention_kv_cache_empty", cache) is True
    call("kv_state_add_sequence", cache, 3)
    call("kv_state_begin_forward", cache, [3], (5,))
    assert call("attention_kv_cache_get_num_available_pages", cache) == 5
    positions = call("attention_kv_cache_get_query_positions", cache)
    assert isinstance(positions, Tensor)
    assert str(positions.dtype) == "int32"
    qkv, o = empty((5, 4, 2)), empty((5, 2, 2))
    with pytest.raises(InternalError, match="without a ragged_prefill kernel"):
        call("attention_kv_cache_attention_with_fused_qkv", cache, 0, 0.5, qkv, o)


def test_a_29th_argument_is_ignored_and_any_other_number_refused():
    create = runtime.get_global_func("vm.builtin.paged_attention_kv_cache_create")
    create(*arguments(), "whatever")
    for wrong in (arguments()[:-1], [*arguments(), 1, 2]):
        with pytest.raises(TypeError, match="expected 28 arguments, got"):
            create(*wrong)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"config": ShapeTuple([2, 24, 16, 4])}, InternalError, "expected 5 or 6 numbers"),
        ({"config": ShapeTuple([2, 24, 16, 4, 0, 0])}, InternalError, "layer_sliding_window_size"),
        ({"layers": ShapeTuple([0, 1, 2])}, InternalError, "layer partition: expected 2 numbers"),
        ({"attn_kinds": ShapeTuple([9])}, InternalError, "9 is not a valid AttnKind"),
        ({"rope_mode": 7}, InternalError, "7 is not a valid RopeMode"),
        ({"num_qo_heads": 2.0}, TypeError, "number of query heads: expected int, got float 2.0"),
        ({"merge": []}, InternalError, "at least one merge function"),
        ({"split_rotary": None}, TypeError, "split_rotary: expected Function, got None"),
        ({"backend 0": ["cudnn", nothing]}, InternalError, "ragged prefill kernel: expected"),
        ({"backend 1": ["tirx"]}, InternalError, "paged prefill kernel: expected"),
        ({"backend 5": ["flashinfer", nothing, nothing]}, InternalError, "tree mask kernel"),
        ({"init": None}, TypeError, "init: expected Tensor, got None"),
        ({"factors": tensor(np.ones(2, "float32"))}, InternalError, "need rope mode normal"),
    ],
)
def test_creation_arguments_that_are_wrong(changes, error, words):
    with pytest.raises(error, match=words):
        make(**changes)


def test_a_wrong_object_or_kind_is_a_type_error():
    cache = make()
    for name, given, words in (
        ("kv_state_clear", (3,), "expected relax.vm.KVState, got int 3"),
        ("attention_kv_cache_empty", (None,), "expected relax.vm.AttentionKVCache"),
        ("attention_kv_cache_get_layout_hash", ("x",), "expected relax.vm.PagedAttentionKVCache"),
        ("kv_state_add_sequence", (cache, 1.5), "sequence id: expected int, got float 1.5"),
        ("kv_state_begin_forward", (cache, [0.5], [1]), "sequence ids, element 0: expected int"),
        ("kv_state_begin_forward", (cache, 3, [1]), "sequence ids: expected Shape, got int 3"),
        ("kv_state_begin_forward", (cache, [0]), "got 2 arguments"),
        ("kv_state_fork_sequence", (cache, 0, 1), "missing 1 required positional argument"),
        ("attention_kv_cache_prepare_import", (cache, 0, 3), "metadata: expected string"),
    ):
        with pytest.raises(TypeError, match=words):
            call(name, *given)


def test_a_recurrent_state_is_no_attention_cache():
    def kernel(*_):
        """Never called."""

    state = call("rnn_state_create", 1, 2, 1, [kernel], [kernel], [tensor(np.zeros(2, "float32"))])
    call("kv_state_add_sequence", state, 0)
    with pytest.raises(TypeError, match=r"expected relax\.vm\.AttentionKVCache"):
        call("attention_kv_cache_empty", state)
