"""Direct calls of builtins give the recorded results."""

import inspect
import re

import pytest

from relaxlab.runtime import get_global_func
from relaxlab.runtime.vm.builtin import BUILTINS
from tests.golden_values import close, decode, encode, recorded

CALLS = recorded("builtins")

LATER = re.compile(
    r"vm\.builtin\.("
    # the paged cache
    r"paged_attention.*|kv_cache_disagg.*|kv_state.*"
    r"|attention_kv_cache_(append_mla_kv|.*attention.*|commit_.*|debug_get.*|empty|enable_.*"
    r"|export_.*|finish_.*|get_.*|import_.*|merge_.*|prepare_.*)"
    # recurrent state
    r"|rnn_state.*)"
)
"""Builtins of families that other issues bring."""

NOT_ON_CPU = {
    "vm.builtin.cuda_graph.get_cached_alloc",
    "vm.builtin.cuda_graph.run_or_capture",
    "vm.builtin.hexagon.dma_copy",
    "vm.builtin.hexagon.dma_wait",
}
"""Builtins that TVM has only where there is such a device."""


@pytest.mark.parametrize(
    "call", [pytest.param(c, id=f"{i}-{c['name'][11:]}") for i, c in enumerate(CALLS)]
)
def test_recorded_call(call):
    if call["name"] not in BUILTINS:
        pytest.skip(f"{call['name']} comes with a later family")
    args = [decode(arg) for arg in call["args"]]
    function = get_global_func(call["name"])
    if "error" in call:
        with pytest.raises(Exception, match=r"\w") as raised:
            function(*args)
        assert type(raised.value).__name__ == call["error"]["type"]
        message = str(raised.value).lower()
        assert [word for word in call["error"]["has"] if word.lower() not in message] == []
    else:
        assert close(encode(function(*args)), call["result"])
    after = call.get("args_after", call["args"])
    assert all(close(encode(arg), want) for arg, want in zip(args, after, strict=True))


def test_all_recorded_calls_are_of_builtins_we_have():
    assert len(CALLS) == 203
    assert {call["name"] for call in CALLS} <= set(BUILTINS)


def test_every_name_of_tvm_is_here_or_in_a_family_that_comes_later():
    names = set(recorded("files")["builtin_names"])
    assert all(LATER.fullmatch(name) for name in names - set(BUILTINS))


def test_we_have_no_builtin_that_tvm_has_not():
    assert set(BUILTINS) - NOT_ON_CPU <= set(recorded("files")["builtin_names"])
    assert set(BUILTINS) >= NOT_ON_CPU


def test_with_those_of_other_devices_they_are_the_97_of_tvm():
    names = set(recorded("files")["builtin_names"]) | NOT_ON_CPU
    assert len(names) == 97


@pytest.mark.parametrize("name", [one for one in BUILTINS.names() if not LATER.fullmatch(one)])
def test_a_docstring_states_arguments_checks_and_source(name):
    function = BUILTINS.get(name)
    text = function.__doc__
    assert f"Source: TVM's ``{name}``" in text
    parameters = inspect.signature(function).parameters
    assert ("Parameters\n" in text) == bool(parameters)
    assert ("Raises\n" in text) != ("It checks nothing." in text)
