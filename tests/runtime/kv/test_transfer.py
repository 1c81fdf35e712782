"""Rows travel from a prefill cache to a decode cache, through functions found by name."""

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.kv.snapshot import StateFold, snapshot
from relaxlab.runtime.kv.transfer import compress, decompress
from relaxlab.runtime.packed_func import register_global_func, remove_global_func
from relaxlab.runtime.tensor import tensor
from tests.runtime.kv.modelled_cache import HEADS, SCALE, SIZE, kernels, small_config

NAMES = (
    "runtime.disco.nvshmem.init_nvshmem",
    "runtime.disco.nvshmem.empty",
    "nvshmem.KVTransfer",
    "nvshmem.KVTransferPageToPage",
)


@pytest.fixture
def network():
    """Copies between the pools of one process; a receiver is the number of its pool."""
    pools = []

    def empty(shape, dtype, device):
        pools.append(tensor(np.zeros(tuple(shape), dtype.numpy())))
        return pools[-1]

    def layer_of(pages):
        return next(
            layer
            for pool in pools
            for layer in range(len(pool.array))
            if np.shares_memory(pool.array[layer], pages.array)
        )

    def send(pages, k, v, slots, receivers, stream):
        layer = layer_of(pages)
        for i, (slot, to) in enumerate(zip(slots.array, receivers.array, strict=True)):
            if slot >= 0:
                pools[to].array[layer, slot // 3, :, :, slot % 3] = k.array[i], v.array[i]

    def send_pages(remote, local, remote_slots, local_slots, receivers, stream):
        layer = layer_of(local)
        for there, here, to in zip(
            remote_slots.array, local_slots.array, receivers.array, strict=True
        ):
            row = local.array[here // 3, :, :, here % 3]
            pools[to].array[layer, there // 3, :, :, there % 3] = row

    for name, function in zip(NAMES, (lambda *_: None, empty, send, send_pages), strict=True):
        register_global_func(name, function)
    yield pools
    for name in NAMES:
        remove_global_func(name)


def make(**changes):
    config = small_config(enable_kv_transfer=True, **changes)
    return PagedAttentionKVCache(config, kernels(config))


def step(cache, seq_id, count, rng):
    cache.begin_forward([seq_id], [count])
    outputs = []
    for layer in range(cache.config.layer_begin, cache.config.layer_end):
        qkv = rng.standard_normal((count, HEADS + 2, SIZE)).astype("float32")
        o = np.zeros((count, HEADS, SIZE), "float32")
        cache.attention_with_fused_qkv(layer, qkv, o, SCALE)
        outputs.append(o)
    cache.end_forward()
    return outputs


def rows(cache, seq_id):
    slots = np.array(cache.slots_of(seq_id))
    return [pages.array[slots // 3, :, :, slots % 3] for pages in cache.pages]


@pytest.mark.parametrize("cached", [0, 1, 3, 5])
def test_two_layers_arrive_whole_and_decoding_goes_on(network, cached):
    sender, receiver = make(layer_end=2), make(layer_end=2)
    rng = np.random.default_rng(4)
    receiver.add_sequence(7)
    step(receiver, 7, 4, rng)
    receiver.add_sequence(0)
    sender.add_sequence(0)
    folded = StateFold(snapshot(sender))
    sender.observer = folded.apply
    if cached:
        step(sender, 0, cached, rng)
    slots = receiver.disagg_prepare_recv(0, 11)
    sender.disagg_mark_send(0, 0, slots, 1)
    for count in (3, 1, 11 - cached - 4):
        step(sender, 0, count, rng)
    assert folded.state() == snapshot(sender)
    for sent, arrived in zip(rows(sender, 0), rows(receiver, 0), strict=True):
        np.testing.assert_array_equal(sent, arrived)
    receiver.end_forward()
    same = [step(cache, 0, 1, np.random.default_rng(9)) for cache in (receiver, make_alone(sender))]
    for got, wanted in zip(*same, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def make_alone(sender):
    """The sender, which sends no more: its sequence in a new id."""
    sender.fork_sequence(0, 1)
    sender.remove_sequence(0)
    sender.fork_sequence(1, 0)
    return sender


def test_only_rows_from_the_beginning_of_the_map_are_sent(network):
    sender, receiver = make(), make()
    rng = np.random.default_rng(4)
    receiver.add_sequence(0)
    slots = decompress(receiver.disagg_prepare_recv(0, 4))
    sender.add_sequence(0)
    sender.disagg_mark_send(0, 2, compress(slots), 1)
    step(sender, 0, 6, rng)
    np.testing.assert_array_equal(rows(sender, 0)[0][2:], rows(receiver, 0)[0])


def test_rows_without_a_place_at_the_receiver_are_refused(network):
    sender, _ = make(), make()
    sender.add_sequence(0)
    sender.disagg_mark_send(0, 0, compress(range(6)), 1)
    before = snapshot(sender)
    with pytest.raises(InternalError, match=r"would have 7 tokens.*positions 0 to 5 only"):
        sender.begin_forward([0], [7])
    assert snapshot(sender) == before
    step(sender, 0, 6, np.random.default_rng(0))
    with pytest.raises(InternalError, match="Need at least one token to prefill"):
        sender.disagg_mark_send(0, 0, compress(range(6)), 1)
    with pytest.raises(InternalError, match="begin: expected at least 0"):
        sender.disagg_mark_send(0, -1, compress(range(6)), 1)


def test_a_popped_sequence_still_knows_its_receiver(network):
    sender, receiver = make(), make()
    sender.add_sequence(0)
    step(sender, 0, 6, np.random.default_rng(0))
    sender.fork_sequence(0, 1)
    receiver.add_sequence(0)
    slots = receiver.disagg_prepare_recv(0, 9)
    sender.disagg_mark_send(0, 0, slots, 1)
    sender.popn(0, 2)
    step(sender, 0, 5, np.random.default_rng(1))
    np.testing.assert_array_equal(rows(sender, 0)[0], rows(receiver, 0)[0])


def test_a_map_is_runs_of_slots():
    assert compress([]) == (0,)
    assert compress([8, 0, 1, 2, 5, 6]) == (3, 8, 1, 0, 3, 5, 2)
    assert decompress(compress([8, 0, 1, 2, 5, 6])) == (8, 0, 1, 2, 5, 6)
    for wrong in ([], [2, 0, 1], [1, 0, 0], [1, 0, 3, 4]):
        with pytest.raises(InternalError, match="compressed position map"):
            decompress(wrong)


def test_without_the_functions_there_is_no_transfer():
    with pytest.raises(InternalError, match=r"global function 'runtime\.disco\.nvshmem"):
        make()
