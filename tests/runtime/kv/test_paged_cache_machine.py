"""Random operations: contents, outputs, invariants and folded events agree after every one."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from relaxlab.runtime.kv.cache_config import AttnKind
from tests.runtime.kv.modelled_cache import Modelled, small_config

IDS = st.integers(0, 5)


class PlainCache(RuleBasedStateMachine):
    """Forks, pops, trees, swaps and a pool that is often full."""

    config = small_config()
    trees = True
    observed = True

    def __init__(self) -> None:
        super().__init__()
        self.m = Modelled(self.config, observed=self.observed)
        self.last: list[int] = []

    def pick(self, data, trees=None):
        """Draw a sequence, with or without an uncommitted tree."""
        found = [s for s in self.m.held if trees is None or (s in self.m.trees) == trees]
        return data.draw(st.sampled_from(sorted(found))) if found else None

    @rule(seq_id=IDS)
    def add(self, seq_id):
        if seq_id in self.m.held or seq_id in self.m.saved:
            if seq_id in self.m.held:
                self.m.refused(self.m.cache.add_sequence, seq_id)
            return
        self.m.add(seq_id)

    @precondition(lambda self: self.m.held)
    @rule(data=st.data())
    def remove(self, data):
        self.m.remove(self.pick(data))

    @precondition(lambda self: self.m.held)
    @rule(data=st.data(), child=IDS)
    def fork(self, data, child):
        parent = self.pick(data)
        if child in self.m.held or child in self.m.saved:
            return
        position = data.draw(st.integers(0, len(self.m.held[parent])))
        self.m.fork(parent, child, position)

    @precondition(lambda self: self.m.held)
    @rule(data=st.data())
    def popn(self, data):
        seq_id = self.pick(data)
        self.m.popn(seq_id, data.draw(st.integers(0, len(self.m.held[seq_id]))))

    @precondition(lambda self: self.m.held)
    @rule(data=st.data(), decode=st.booleans())
    def round(self, data, decode):
        ids = data.draw(
            st.lists(st.sampled_from(sorted(self.m.held)), min_size=1, unique=True, max_size=4)
        )
        sizes = st.just(1) if decode else st.integers(1, 6)
        self.m.round([(seq_id, data.draw(sizes)) for seq_id in ids])
        self.last = ids

    @rule(times=st.integers(1, 7))
    def decode_again(self, times):
        for _ in range(times):
            if self.last and set(self.last) <= set(self.m.held):
                self.m.round([(seq_id, 1) for seq_id in self.last])

    @precondition(lambda self: self.m.held and self.trees)
    @rule(data=st.data())
    def tree_round(self, data):
        ids = data.draw(
            st.lists(st.sampled_from(sorted(self.m.held)), min_size=1, unique=True, max_size=3)
        )
        trees = {}
        for seq_id in ids:
            old = len(self.m.trees.get(seq_id, []))
            new = data.draw(st.integers(1, 4))
            trees[seq_id] = [data.draw(st.integers(-1, old + n - 1)) for n in range(new)]
        self.m.round([(seq_id, len(trees[seq_id])) for seq_id in ids], trees)

    @precondition(lambda self: self.m.trees)
    @rule(data=st.data())
    def commit(self, data):
        ids = data.draw(st.lists(st.sampled_from(sorted(self.m.trees)), min_size=1, unique=True))
        leaves = {s: data.draw(st.integers(-1, len(self.m.trees[s]) - 1)) for s in ids}
        self.m.commit(leaves)

    @precondition(lambda self: set(self.m.held) - set(self.m.trees))
    @rule(data=st.data())
    def save(self, data):
        self.m.save(self.pick(data, trees=False))

    @precondition(lambda self: self.m.saved)
    @rule(data=st.data())
    def restore(self, data):
        self.m.restore(data.draw(st.sampled_from(sorted(self.m.saved))))

    @precondition(lambda self: self.m.held)
    @rule(data=st.data(), keep=st.booleans())
    def retain_or_revive(self, data, keep):
        seq_id = self.pick(data)
        (self.m.cache.retain_sequence if keep else self.m.cache.revive_sequence)(seq_id)
        self.m.verify()

    @rule(really=st.integers(0, 9))
    def clear(self, really):
        if really == 0:
            self.m.clear()

    def teardown(self):
        for seq_id in list(self.m.held):
            self.m.remove(seq_id)
        assert self.m.cache.empty()


class SlidingCache(PlainCache):
    """The same with windows and sinks of all sizes."""

    config = small_config(support_sliding_window=True)
    trees = False

    @precondition(lambda self: self.m.held)
    @rule(data=st.data())
    def window(self, data):
        seq_id = self.pick(data)
        size = data.draw(st.integers(1, 9))
        self.m.window(seq_id, size, data.draw(st.integers(0, size - 1)))


class LayerWindowCache(PlainCache):
    """A layer with a window of its own beside one without."""

    config = small_config(
        layer_end=2,
        attn_kinds=(AttnKind.MHA_SLIDING, AttnKind.MHA),
        layer_sliding_window_size=3,
        total_token_capacity=60,
    )
    trees = False


class UnobservedCache(LayerWindowCache):
    """Nobody watches, so the same decode round again takes the short way."""

    observed = False


MACHINES = [PlainCache, SlidingCache, LayerWindowCache, UnobservedCache]


@pytest.mark.parametrize("machine", MACHINES)
def test_random_operations(machine):
    case = machine.TestCase
    case.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
    case().runTest()
