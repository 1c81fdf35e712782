"""Direct calls of builtins give the recorded results."""

import pytest

from relaxlab.runtime import get_global_func
from relaxlab.runtime.vm.builtin import BUILTINS
from tests.golden_values import close, decode, encode, recorded

CALLS = recorded("builtins")

LATER = {
    "paged cache": ("vm.builtin.paged_attention", "vm.builtin.kv_state", "vm.builtin.kv_cache"),
    "recurrent state": ("vm.builtin.rnn_state",),
}
"""Families of builtins that other issues bring; their names, by prefix."""

PAGED = {
    f"vm.builtin.attention_kv_cache_{name}"
    for name in (
        "append_mla_kv attention_with_fused_qkv attention_with_shared_kv "
        "commit_accepted_token_tree_nodes cross_attention debug_get_kv debug_get_kv_mla empty "
        "enable_sliding_window_for_seq export_page_group finish_import get_checkpoint_metadata "
        "get_layout_hash get_num_available_pages get_query_positions get_sequence_length "
        "get_total_sequence_length import_page_group merge_attn_output_inplace prepare_import "
        "self_attention"
    ).split()
}


@pytest.mark.parametrize(
    "call", [pytest.param(c, id=f"{i}-{c['name'][11:]}") for i, c in enumerate(CALLS)]
)
def test_recorded_call(call):
    if call["name"] not in BUILTINS:
        pytest.skip(f"{call['name']} comes with a later family")
    args = [decode(arg) for arg in call["args"]]
    function = get_global_func(call["name"])
    if "error" in call:
        with pytest.raises(Exception, match=".") as raised:
            function(*args)
        assert type(raised.value).__name__ == call["error"]["type"]
    else:
        assert close(encode(function(*args)), call["result"])
    after = call.get("args_after", call["args"])
    assert all(close(encode(arg), want) for arg, want in zip(args, after, strict=True))


def test_all_recorded_calls_are_of_builtins_we_have():
    assert len(CALLS) == 203
    assert {call["name"] for call in CALLS} <= set(BUILTINS)


def test_every_name_of_tvm_is_here_or_in_a_family_that_comes_later():
    later = tuple(prefix for prefixes in LATER.values() for prefix in prefixes)
    missing = [
        name
        for name in recorded("files")["builtin_names"]
        if name not in BUILTINS and not name.startswith(later) and name not in PAGED
    ]
    assert missing == []


def test_we_have_no_builtin_that_tvm_has_not():
    assert set(BUILTINS) <= set(recorded("files")["builtin_names"])
