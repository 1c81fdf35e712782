"""Direct calls of builtins give the recorded results."""

import inspect

import pytest

from relaxlab.runtime import get_global_func
from relaxlab.runtime.vm.builtin import BUILTINS
from tests.golden_values import close, decode, encode, recorded

CALLS = recorded("builtins")

OTHERS = ("paged_kv_cache", "attention_kv_cache", "kv_state", "rnn_state")
"""Families whose arguments are explained where their caches are."""

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


def test_the_names_are_the_97_of_tvm():
    names = set(recorded("files")["builtin_names"]) | NOT_ON_CPU
    assert len(names) == 97
    assert set(BUILTINS) == names


def own_families():
    """Return the names of the builtins that are whole in one file."""
    modules = {name: BUILTINS.get(name).__module__.rpartition(".")[2] for name in BUILTINS.names()}
    return [name for name, module in modules.items() if module not in OTHERS]


@pytest.mark.parametrize("name", own_families())
def test_a_docstring_states_arguments_checks_and_source(name):
    function = BUILTINS.get(name)
    text = function.__doc__
    assert f"Source: TVM's ``{name}``" in text
    parameters = inspect.signature(function).parameters
    assert ("Parameters\n" in text) == bool(parameters)
    assert ("Raises\n" in text) != ("It checks nothing." in text)
