"""A recurrent state against a model that keeps every value there ever was, in a list."""

import warnings

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from relaxlab.errors import InternalError
from relaxlab.runtime.kv import KVCacheWarning
from relaxlab.runtime.kv.rnn_events import RNNSnapshot, fold
from relaxlab.runtime.kv.rnn_state import RNNState, check_rnn_state

SEQS, HISTORY, STATES = 2, 4, 2
IDS = st.integers(0, 2)


class Machine(RuleBasedStateMachine):
    """``past[id]`` is the list of (values, tokens, length) that can be gone back to."""

    def __init__(self):
        super().__init__()
        self.state = RNNState.of(
            num_layers=1,
            reserved_num_seqs=SEQS,
            max_history=HISTORY,
            init_values=[np.array([float(i)], "float32") for i in range(STATES)],
        )
        self.events = []
        self.state.observer = self.events.append
        self.past = {}
        self.round = None
        self.count = 10.0

    def attempt(self, allowed, call, *args):
        """Run a call that must be refused, without effect, unless it is allowed."""
        before, told = self.state.snapshot(), len(self.events)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", KVCacheWarning)
                call(*args)
        except InternalError:
            assert not allowed
            assert self.state.snapshot() == before
            assert len(self.events) == told
            return False
        assert allowed
        return True

    @rule(seq_id=IDS)
    def add(self, seq_id):
        allowed = seq_id not in self.past and len(self.past) < SEQS
        if self.attempt(allowed, self.state.add_sequence, seq_id):
            self.past[seq_id] = [(tuple(float(i) for i in range(STATES)), 0)]

    @rule(seq_id=IDS)
    def remove(self, seq_id):
        if self.attempt(seq_id in self.past, self.state.remove_sequence, seq_id):
            del self.past[seq_id]
            if self.round is not None and seq_id in self.round:
                del self.round[seq_id]
                self.writable = False

    @rule(parent=IDS, child=IDS, position=st.integers(-1, 8))
    def fork(self, parent, child, position):
        known = self.past.get(parent)
        allowed = known is not None and child not in self.past and len(self.past) < SEQS
        kept = None
        if allowed:
            lengths = [length for _, length in known]
            if position == -1:
                kept = known
            elif position in lengths:
                kept = known[: lengths.index(position) + 1]
            allowed = kept is not None
        if self.attempt(allowed, self.state.fork_sequence, parent, child, position):
            self.past[child] = list(kept)

    @rule(seq_id=IDS, count=st.sampled_from([1, 1, 1, 2, 3, 0, -1]))
    def popn(self, seq_id, count):
        allowed = seq_id in self.past and 0 <= count < len(self.past[seq_id])
        if self.attempt(allowed, self.state.popn, seq_id, count) and count:
            del self.past[seq_id][-count:]
            if self.round is not None and seq_id in self.round:
                self.round[seq_id] = (self.round[seq_id][0], {})
                self.writable = False

    @rule(batch=st.lists(st.tuples(IDS, st.integers(0, 3)), max_size=4, unique_by=lambda x: x[0]))
    def begin(self, batch):
        allowed = all(seq_id in self.past and length for seq_id, length in batch)
        ids, lengths = [i for i, _ in batch], [n for _, n in batch]
        if self.attempt(allowed, self.state.begin_forward, ids, lengths):
            self.round = {seq_id: (length, {}) for seq_id, length in batch}
            self.batch, self.writable = ids, True

    @precondition(lambda self: self.round is None and self.past)
    @rule(number=st.integers(0, SEQS - 1), which=st.integers(0, STATES - 1))
    def whole_round(self, number, which):
        """A round of one token, so that there is a history to go back in."""
        self.begin([(sorted(self.past)[number % len(self.past)], 1)])
        self.set(which)
        self.end()

    @precondition(lambda self: self.round is None and self.past)
    @rule(which=st.integers(0, STATES - 1))
    def half_a_round(self, which):
        """A round of everybody that is still open when something else happens."""
        self.begin([(seq_id, 1) for seq_id in sorted(self.past)])
        self.set(which)

    @precondition(lambda self: self.round is None and self.past)
    @rule(number=st.integers(0, SEQS - 1), count=st.integers(1, 3))
    def change_of_mind(self, number, count):
        """Going back, or a removal, while the round is open."""
        seq_id = sorted(self.past)[number % len(self.past)]
        self.whole_round(number, 0)
        self.half_a_round(1)
        if count == 3:
            self.remove(seq_id)
        else:
            self.popn(seq_id, count)

    @precondition(lambda self: self.round is not None)
    @rule(which=st.integers(0, STATES - 1))
    def set(self, which):
        values = [self.count + i for i in range(len(self.batch))]
        self.count += 10
        data = np.array(values, "float32").reshape(-1, 1)
        if self.attempt(self.writable, self.state.set, 0, which, data):
            for seq_id, value in zip(self.batch, values, strict=True):
                self.round[seq_id][1][which] = value
                # the ring has no place for the next value beside all the old ones
                del self.past[seq_id][: -(HISTORY - 1)]

    @precondition(lambda self: self.round is not None)
    @rule(which=st.integers(0, STATES - 1))
    def get(self, which):
        out = np.full((len(self.batch), 1), np.nan, "float32")
        if self.attempt(self.writable, self.state.get, 0, which, out):
            assert out.ravel().tolist() == [self.past[i][-1][0][which] for i in self.batch]

    @rule()
    def end(self):
        if not self.attempt(self.round is not None, self.state.end_forward):
            return
        for seq_id, (tokens, written) in self.round.items():
            values, length = self.past[seq_id][-1]
            after = tuple(written.get(i, value) for i, value in enumerate(values))
            if tokens > 1:
                self.past[seq_id].clear()
            self.past[seq_id].append((after, length + tokens))
            del self.past[seq_id][:-HISTORY]
        self.round = None

    @rule()
    def clear(self):
        self.state.clear()
        self.past.clear()
        self.round = None

    @invariant()
    def folded_events_are_the_state(self):
        assert fold(self.events, RNNSnapshot.initial(SEQS)) == self.state.snapshot()

    @invariant()
    def bookkeeping_is_sound(self):
        check_rnn_state(self.state)

    @invariant()
    def values_are_the_models(self):
        for seq_id, past in self.past.items():
            found = tuple(self.state.debug_get(0, i, seq_id).numpy().item() for i in range(STATES))
            assert found == past[-1][0]
            assert self.state.sequence(seq_id).length == past[-1][1]


Machine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
test_recurrent_state_machine = Machine.TestCase
