"""FlashInfer's calls: planned once per round and depth, run once per layer; recording doubles."""

import dataclasses

import numpy as np
import pytest

from relaxlab.runtime.kv import flashinfer
from relaxlab.runtime.kv.cache_config import AttnKind
from relaxlab.runtime.kv.kernel_table import Backend
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.tensor import Tensor
from tests.runtime.kv.modelled_cache import SIZE, kernels, small_config


@pytest.fixture(autouse=True)
def small_workspaces(monkeypatch):
    monkeypatch.setattr(flashinfer, "_FLOAT_BYTES", 64)
    monkeypatch.setattr(flashinfer, "_INT_BYTES", 16)


def shown(value):
    if isinstance(value, Tensor):
        return value.array.tolist() if str(value.dtype) == "int32" else tuple(value.shape)
    return value


class Double:
    """A kernel and its plan that write down what they are given."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def plan(self, *arguments):
        self.log.append((f"plan {self.name}", [shown(value) for value in arguments[3:]]))
        return f"plan of {self.name}"

    def run(self, *arguments):
        assert arguments[2] == f"plan of {self.name}"
        self.log.append((f"run {self.name}", [shown(value) for value in arguments[3:]]))


def make(log, **changes):
    config = small_config(layer_end=2, **changes)
    doubles = {
        name: Backend("flashinfer", double.run, double.plan)
        for name in ("ragged_prefill", "paged_prefill", "paged_decode", "mla_prefill")
        for double in [Double(name, log)]
    }
    table = dataclasses.replace(
        kernels(small_config()), **doubles, transpose_append_mla=lambda *_: None
    )
    return PagedAttentionKVCache(config, table)


def attend(cache, count, heads):
    for layer in range(2):
        qkv = np.zeros((count, heads + 2, SIZE), "float32")
        cache.attention_with_fused_qkv(layer, qkv, np.zeros((count, heads, SIZE), "float32"), 0.5)


def test_one_plan_per_round_and_one_run_per_layer():
    log = []
    cache = make(log)
    cache.add_sequence(0)
    cache.begin_forward([0], [4])
    attend(cache, 4, 2)
    cache.end_forward()
    assert [name for name, _ in log] == [
        "plan ragged_prefill",
        "run ragged_prefill",
        "run ragged_prefill",
    ]
    sizes = [False, SIZE, SIZE, True, -1, -1, False, 0]
    assert log[0][1] == [[0, 4], [0, 4], [4], 4, 1, 2, 1, 1, *sizes]
    q, k = (4, 2, SIZE), (4, 1, SIZE)
    assert log[1][1] == [
        *(q, k, k, [0, 4], [0, 4], q, (4, 2)),
        *(1, 0, -1, False, 0.5, 1.0, 1e-4),
    ]
    for _ in range(2):  # the same batch again is a round of its own
        log.clear()
        cache.begin_forward((0,), (1,))
        attend(cache, 1, 2)
        cache.end_forward()
        assert [name for name, _ in log] == [
            *("plan paged_decode", "run paged_decode", "run paged_decode"),
        ]
    assert log[0][1] == [[0, 2], 1, 2, 1, 3, False, -1, 0, SIZE, SIZE, (0,), (0,)]
    halves = [(10, 1, 3, SIZE)] * 2
    assert log[1][1][1:6] == [*halves, [0, 2], [0, 1], [3]]
    log.clear()
    cache.begin_forward([0], [2])
    attend(cache, 2, 2)
    assert [name for name, _ in log][:4] == [
        *("plan ragged_prefill", "run ragged_prefill", "plan paged_prefill", "run paged_prefill"),
    ]
    assert log[2][1][:3] == [[0, 2], [0, 2], [6]]


def test_many_query_heads_decode_with_the_prefill_kernel():
    log = []
    cache = make(log, num_qo_heads=4)
    cache.add_sequence(0)
    cache.begin_forward([0], [1])
    attend(cache, 1, 4)
    assert {name for name, _ in log} == {"plan paged_prefill", "run paged_prefill"}


def test_latent_queries_and_pages_are_split_into_two_parts():
    log = []
    cache = make(log, attn_kinds=(AttnKind.MLA,) * 2, v_head_dim=1)
    cache.add_sequence(0)
    cache.begin_forward([0], [1])
    cache.append_mla_kv(0, np.zeros((1, SIZE), "float32"))
    q, o = np.zeros((1, 2, SIZE), "float32"), np.zeros((1, 2, 1), "float32")
    cache.cross_attention(0, q, o, np.zeros((1, 2), "float32"), 0.5)
    assert log[0] == ("plan mla_prefill", [[0, 1], [0, 1], [1], 2, 1, False])
    parts = [(1, 2, 1), (1, 2, 1), (10, 3, 1), (10, 3, 1)]
    assert log[1][1] == [*parts, [0], (1, 2, 1), (1, 2), 0, 2, 3, 0.5, False]
