"""Recurrent state of many sequences: a ring of past values for each.

A recurrent layer (RWKV, Mamba) keeps a few tensors of fixed size per sequence. They live in one
storage per layer and state, ``[sequences, history, *shape]``; the history is a ring, so that the
last few one-token rounds can be taken back::

    ring of 3, after two rounds        roll back 1            next round writes
      v0   v1   v2                      v0   v1   v2            v0   v1   v3
                ^ current                    ^ current                    ^ current

``get`` reads the current values of the batch, ``set`` writes the next ones, which become current
in ``end_forward``. Where TVM exposes what happens to lie in memory, drops a position or advances
twice, we carry values over, honour the position, or refuse; :func:`exact` gives TVM's behaviour.
A ring of one has no next place: there ``set`` overwrites the current value at once.

Counterpart: TVM's ``relax.vm.RNNStateImp`` (kv.md section 5).

Examples
--------
>>> import numpy as np
>>> state = RNNState.of(num_layers=1, reserved_num_seqs=2, max_history=3, init_values=[[0.0]])
>>> state.add_sequence(7)
>>> for token in (1.0, 2.0):
...     state.begin_forward([7], [1])
...     state.set(0, 0, np.array([[token]]))
...     state.end_forward()
>>> state.popn(7, 1)
>>> state.debug_get(0, 0, 7).numpy().tolist()
[1.0]
>>> state
RNNState(1 of 2 sequences, 1 layers x 1 states, history 3)
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from relaxlab.errors import InternalError
from relaxlab.runtime.kv.attention.moves import rnn_get, rnn_set
from relaxlab.runtime.kv.exact import is_exact
from relaxlab.runtime.kv.kv_state import KVState
from relaxlab.runtime.kv.misuse import KVCacheWarning
from relaxlab.runtime.kv.rnn_events import (
    Advanced,
    LeftRound,
    Misused,
    OldestLost,
    RNNEvent,
    RNNObserver,
    RNNRound,
    RNNSequence,
    RNNSnapshot,
    RolledBack,
    RoundFinished,
    RoundStarted,
    SlotFreed,
    SlotTaken,
    StateCarried,
    StateCleared,
    StateForked,
    StateRead,
    StateWritten,
)
from relaxlab.runtime.packed_func import PackedFunc
from relaxlab.runtime.tensor import Tensor, empty, tensor
from relaxlab.runtime.values import as_value

__all__ = ["RNNState", "check_rnn_state"]


class RNNState(KVState):
    """The recurrent state of many sequences.

    Parameters
    ----------
    num_layers
        Recurrent layers.
    reserved_num_seqs
        How many sequences there is room for.
    max_history
        Ring positions: one more than the number of rounds that can be taken back.
    get_kernels, set_kernels
        One per state of a layer: ``get(storage, seq_slot_ids, history_slot_ids, out)`` gathers,
        ``set(storage, seq_slot_ids, history_slot_ids, data)`` writes to the next ring position.
    init_values
        What each state of a new sequence is; their dtypes and shapes are those of the states.

    Attributes
    ----------
    observer
        Who is told of every change; None for nobody.
    """

    def __init__(
        self,
        num_layers: int,
        reserved_num_seqs: int,
        max_history: int,
        get_kernels: Sequence[PackedFunc],
        set_kernels: Sequence[PackedFunc],
        init_values: Sequence[Tensor],
    ) -> None:
        for name, number in (
            ("num_layers", num_layers),
            ("reserved_num_seqs", reserved_num_seqs),
            ("max_history", max_history),
        ):
            if number < 1:
                raise InternalError(f"RNN state: {name}: expected at least 1, got {number}")
        counts = len(get_kernels), len(set_kernels), len(init_values)
        if len(set(counts)) != 1 or not counts[0]:
            raise InternalError(
                "RNN state: expected as many get kernels, set kernels and initial values as a "
                f"layer has states, got {counts[0]}, {counts[1]} and {counts[2]}"
            )
        self.num_layers: Final = num_layers
        self.reserved_num_seqs: Final = reserved_num_seqs
        self.max_history: Final = max_history
        self.init_values: Final = tuple(map(tensor, init_values))
        self.observer: RNNObserver | None = None
        self._get_kernels, self._set_kernels = tuple(get_kernels), tuple(set_kernels)
        self._storages = [
            [self._new_storage(value) for value in self.init_values] for _ in range(num_layers)
        ]
        self._free = list(RNNSnapshot.initial(reserved_num_seqs).free_slots)
        self._sequences: dict[int, RNNSequence] = {}
        self._batch: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        self._written: dict[int, set[tuple[int, int]]] = {}
        self._open = False
        # whether the slot arrays below are those of the batch; TVM's rule is another (_tvm_dirty)
        self._stale: str | None = "no round was begun"
        self._tvm_dirty = True
        self._slots = self._history_slots = empty((0,), "int32")

    @classmethod
    def of(
        cls, *, num_layers: int, reserved_num_seqs: int, max_history: int, init_values: Any
    ) -> "RNNState":
        """Return a state with NumPy kernels; ``init_values`` may be arrays or nested lists."""
        values = [
            tensor(value if isinstance(value, Tensor) else np.asarray(value))
            for value in init_values
        ]
        gets, sets = [rnn_get] * len(values), [rnn_set] * len(values)
        return cls(num_layers, reserved_num_seqs, max_history, gets, sets, values)

    # ---- sequences -----------------------------------------------------------------------

    def clear(self) -> None:
        """Forget all sequences; values stay in the storage."""
        self._free = list(RNNSnapshot.initial(self.reserved_num_seqs).free_slots)
        self._sequences.clear()
        self._written.clear()
        self._batch = ((), ())
        self._open, self._stale = False, "the state was cleared"
        self._tvm_dirty = True
        self._tell(StateCleared(self.reserved_num_seqs))

    def add_sequence(self, seq_id: int) -> None:
        """Begin a sequence with the initial values."""
        self._require_new(seq_id, "sequence")
        slot = self._take_slot(seq_id)
        self._sequences[seq_id] = RNNSequence(slot)
        for storages in self._storages:
            for storage, value in zip(storages, self.init_values, strict=True):
                storage.array[slot, 0] = value.array
        self._tvm_dirty = True
        self._tell(SlotTaken(seq_id, slot))

    def remove_sequence(self, seq_id: int) -> None:
        """Drop a sequence; its slot is the next one taken."""
        sequence = self._require(seq_id)
        if self._takes_part(seq_id):
            self._warn(
                f"RNN state: sequence {seq_id} is removed within a round; it leaves the round, "
                "and get and set are refused until the next begin_forward"
            )
        del self._sequences[seq_id]
        self._free.append(sequence.slot)
        self._tvm_dirty = True
        if self._open and seq_id in self._written:
            del self._written[seq_id]
            self._stale = f"sequence {seq_id} of the batch was removed"
            self._tell(LeftRound(seq_id))
        self._tell(SlotFreed(seq_id, sequence.slot))

    def fork_sequence(self, parent: int, child: int, position: int = -1) -> None:
        """Begin ``child`` as ``parent`` was after ``position`` tokens; -1 means as it is now.

        Raises
        ------
        InternalError
            If the state after that many tokens is no longer in the ring. (TVM ignores the
            position.)
        """
        source = self._require(parent)
        self._require_new(child, "child sequence")
        back = 0 if is_exact() else self._rounds_back(parent, source, position)
        slot = self._take_slot(child)
        forked = replace(
            source,
            slot=slot,
            history_slot=(source.history_slot - back) % self.max_history,
            available=source.available - back,
            length=source.length - back,
        )
        self._sequences[child] = forked
        for storages in self._storages:
            for storage in storages:
                storage.array[slot] = storage.array[source.slot]
        self._tvm_dirty = True
        counters = (forked.history_slot, forked.available, forked.length)
        self._tell(StateForked(parent, child, source.slot, slot, back, *counters))

    def popn(self, seq_id: int, count: int) -> None:
        """Take the last ``count`` one-token rounds back.

        Raises
        ------
        InternalError
            If the ring does not go back so far: at most ``max_history - 1`` rounds (one less
            while the next values are written), and none before the last round of more than one
            token.
        """
        sequence = self._require(seq_id)
        if count < 0:
            raise InternalError(
                f"RNN state: cannot take {count} rounds back: the number must not be negative"
            )
        if count > sequence.available:
            raise InternalError(
                f"RNN state: cannot take {count} rounds of sequence {seq_id} back: "
                f"{sequence.available} are in its history (which holds {self.max_history - 1} at "
                "most, one less while a round writes, and none from before a round of several "
                "tokens)"
            )
        back = replace(
            sequence,
            history_slot=(sequence.history_slot - count) % self.max_history,
            available=sequence.available - count,
            length=sequence.length - count,
        )
        self._sequences[seq_id] = back
        self._tvm_dirty = True
        if count and self._open and seq_id in self._written:
            self._written[seq_id].clear()
            self._stale = f"sequence {seq_id} of the batch was rolled back"
        if count:
            counters = (back.history_slot, back.available, back.length)
            self._tell(RolledBack(seq_id, count, *counters))

    # ---- rounds --------------------------------------------------------------------------

    def begin_forward(
        self,
        seq_ids: Sequence[int],
        append_lengths: Sequence[int],
        token_tree: Sequence[int] | None = None,
    ) -> None:
        """Fix the batch of the next round; a token tree must be a chain per sequence."""
        ids, lengths = tuple(map(int, seq_ids)), tuple(map(int, append_lengths))
        if len(ids) != len(lengths):
            raise InternalError(
                f"RNN state: begin_forward: expected one length per sequence, got {len(ids)} "
                f"sequences and {len(lengths)} lengths"
            )
        for seq_id in ids:
            self._require(seq_id)
        if token_tree is not None:
            _require_chains(ids, lengths, list(map(int, token_tree)))
        if is_exact():
            self._begin_as_tvm(ids, lengths)
            return
        for seq_id, length in zip(ids, lengths, strict=True):
            if length < 1:
                raise InternalError(
                    f"RNN state: begin_forward: sequence {seq_id}: expected at least 1 token, "
                    f"got {length}"
                )
        if self._open:
            self._warn(
                "RNN state: begin_forward within a round; what the open round has set is dropped"
            )
        twice = sorted({seq_id for seq_id in ids if ids.count(seq_id) > 1})
        if twice:
            self._warn(
                f"RNN state: sequence {twice[0]} is more than once in the batch; its last row "
                "counts, and the round counts as one of several tokens"
            )
        self._start(ids, lengths)
        self._fill_slots()

    def end_forward(self) -> None:
        """Make the next values of every batch sequence its current ones.

        A state that nobody set keeps its value. (In TVM it becomes whatever was in the ring.)

        Raises
        ------
        InternalError
            If no round is open.
        """
        ids, lengths = self._batch
        if is_exact():
            for seq_id, length in zip(ids, lengths, strict=True):
                self._advance(seq_id, length, self._require(seq_id))
        elif not self._open:
            raise InternalError("RNN state: end_forward: no round is open; call begin_forward")
        else:
            members = {seq_id: 0 for seq_id in ids if seq_id in self._written}
            for seq_id, length in zip(ids, lengths, strict=True):
                if seq_id in members:
                    members[seq_id] += length
            self._carry(list(members))
            for seq_id, length in members.items():
                self._advance(seq_id, length, self._sequences[seq_id])
        self._tvm_dirty = True
        if self._open:
            self._open, self._stale = False, "no round is open"
            self._written.clear()
            self._tell(RoundFinished())

    # ---- values --------------------------------------------------------------------------

    def get(self, layer: int, state: int, out: Any) -> None:
        """Gather the current value of each batch sequence into ``out`` ``[batch, *shape]``."""
        storage = self._ready(layer, state, "get")
        target = self._checked(out, state, "get: output")
        self._get_kernels[state](storage, self._slots, self._history_slots, target)
        self._tell(StateRead(layer, state, self._batch[0]))

    def set(self, layer: int, state: int, data: Any) -> None:
        """Write the next value of each batch sequence from ``data`` ``[batch, *shape]``.

        In a full ring the next value takes the place of the oldest, so from here on a sequence
        goes one round less far back. (TVM forgets it only in ``end_forward``, so that going back
        before it finds the new value in the place of the old.)
        """
        storage = self._ready(layer, state, "set")
        values = self._checked(data, state, "set: data")
        self._set_kernels[state](storage, self._slots, self._history_slots, values)
        for seq_id in self._batch[0]:
            self._written.setdefault(seq_id, set()).add((layer, state))
        self._tell(StateWritten(layer, state, self._batch[0]))
        self._forget_the_oldest()

    def debug_get(self, layer: int, state: int, seq_id: int) -> Tensor:
        """Return a copy of a sequence's current value ``[*shape]``."""
        storage = self._storage(layer, state, "debug_get")
        sequence = self._require(seq_id)
        value = storage.array[sequence.slot, sequence.history_slot]
        return Tensor(np.array(value, order="C"), storage.dtype)

    def sequence(self, seq_id: int) -> RNNSequence:
        """Return where a sequence is."""
        return self._require(seq_id)

    def snapshot(self) -> RNNSnapshot:
        """Return all bookkeeping."""
        opened = None
        if self._open:
            written = {seq_id: frozenset(cells) for seq_id, cells in self._written.items()}
            opened = RNNRound(*self._batch, MappingProxyType(written))
        sequences = MappingProxyType(dict(self._sequences))
        return RNNSnapshot(tuple(self._free), sequences, opened)

    # ---- inside --------------------------------------------------------------------------

    def _new_storage(self, value: Tensor) -> Tensor:
        shape = (self.reserved_num_seqs, self.max_history, *value.array.shape)
        return Tensor(np.zeros(shape, value.array.dtype), value.dtype)

    def _require(self, seq_id: int) -> RNNSequence:
        found = self._sequences.get(seq_id)
        if found is None:
            known = ", ".join(map(str, sorted(self._sequences))) or "none"
            raise InternalError(
                f"RNN state: the sequence {seq_id} cannot be found; there are: {known}"
            )
        return found

    def _require_new(self, seq_id: int, what: str) -> None:
        if seq_id in self._sequences:
            raise InternalError(
                f"RNN state: the {what} {seq_id} is already there; remove it or use another id"
            )

    def _take_slot(self, seq_id: int) -> int:
        if not self._free:
            held = ", ".join(map(str, sorted(self._sequences)))
            raise InternalError(
                f"RNN state: no free slot for sequence {seq_id}: 1 needed, 0 of "
                f"{self.reserved_num_seqs} free, held by sequences {held}"
            )
        return self._free.pop()

    def _rounds_back(self, parent: int, source: RNNSequence, position: int) -> int:
        if not -1 <= position <= source.length:
            raise InternalError(
                f"RNN state: cannot fork sequence {parent} at position {position}: expected -1 "
                f"or 0 to its length {source.length}"
            )
        back = 0 if position == -1 else source.length - position
        if back > source.available:
            raise InternalError(
                f"RNN state: cannot fork sequence {parent} at position {position}: its history "
                f"goes back from {source.length} to {source.length - source.available}, and "
                "recurrent values cannot be computed backwards; fork at the end (-1), or feed the "
                "tokens again"
            )
        return back

    def _takes_part(self, seq_id: int) -> bool:
        return self._open and seq_id in self._written

    def _start(self, ids: tuple[int, ...], lengths: tuple[int, ...]) -> None:
        self._batch, self._open, self._stale = (ids, lengths), True, None
        self._written = {seq_id: set() for seq_id in ids}
        self._tell(RoundStarted(ids, lengths))

    def _begin_as_tvm(self, ids: tuple[int, ...], lengths: tuple[int, ...]) -> None:
        """Keep the slot lists of an open round, and no room for more than the reserved batch."""
        if self._tvm_dirty and len(ids) > self.reserved_num_seqs:
            raise ValueError(
                f"RNN state: begin_forward: a batch of {len(ids)} does not fit the slot lists of "
                f"{self.reserved_num_seqs} entries"
            )
        self._start(ids, lengths)
        if self._tvm_dirty:
            self._fill_slots()

    def _fill_slots(self) -> None:
        members = [self._sequences[seq_id] for seq_id in self._batch[0]]
        self._slots = Tensor(np.array([s.slot for s in members], np.int32))
        self._history_slots = Tensor(np.array([s.history_slot for s in members], np.int32))
        self._tvm_dirty = False

    def _carry(self, members: list[int]) -> None:
        """Give every state that nobody wrote its old value as next value."""
        if self.max_history == 1:
            return
        for layer, storages in enumerate(self._storages):
            for state, storage in enumerate(storages):
                kept = [s for s in members if (layer, state) not in self._written[s]]
                for seq_id in kept:
                    sequence = self._sequences[seq_id]
                    after = (sequence.history_slot + 1) % self.max_history
                    row = storage.array[sequence.slot]
                    row[after] = row[sequence.history_slot]
                    self._written[seq_id].add((layer, state))
                if kept:
                    self._tell(StateCarried(layer, state, tuple(kept)))

    def _forget_the_oldest(self) -> None:
        """Shorten the history of every batch sequence whose ring was full when it was written."""
        if self.max_history == 1 or is_exact():
            return
        for seq_id in self._batch[0]:
            sequence = self._sequences[seq_id]
            if sequence.available == self.max_history - 1:
                shorter = replace(sequence, available=sequence.available - 1)
                self._sequences[seq_id] = shorter
                self._tell(OldestLost(seq_id, shorter.available))

    def _advance(self, seq_id: int, length: int, sequence: RNNSequence) -> None:
        available = 0 if length > 1 else min(sequence.available + 1, self.max_history - 1)
        moved = RNNSequence(
            sequence.slot,
            (sequence.history_slot + 1) % self.max_history,
            available,
            sequence.length + length,
        )
        self._sequences[seq_id] = moved
        self._tell(Advanced(seq_id, moved.history_slot, moved.available, moved.length))

    def _storage(self, layer: int, state: int, what: str) -> Tensor:
        if not 0 <= layer < self.num_layers:
            raise InternalError(
                f"RNN state: {what}: expected a layer from 0 to {self.num_layers - 1}, got {layer}"
            )
        if not 0 <= state < len(self.init_values):
            raise InternalError(
                f"RNN state: {what}: expected a state from 0 to {len(self.init_values) - 1}, "
                f"got {state}"
            )
        return self._storages[layer][state]

    def _ready(self, layer: int, state: int, what: str) -> Tensor:
        storage = self._storage(layer, state, what)
        stale = self._stale
        if is_exact():
            stale = "a sequence changed since begin_forward" if self._tvm_dirty else None
        if stale is not None:
            raise InternalError(f"RNN state: {what}: {stale}; call begin_forward first")
        return storage

    def _checked(self, value: Any, state: int, what: str) -> Tensor:
        found, like = as_value(value), self.init_values[state]
        if not isinstance(found, Tensor):
            raise TypeError(f"RNN state: {what}: expected a Tensor, got {type(value).__name__}")
        shape = (len(self._slots.array), *like.shape)
        if tuple(found.shape) != shape or found.dtype != like.dtype:
            raise InternalError(
                f"RNN state: {what}: expected shape {shape} (batch first) and dtype "
                f"{str(like.dtype)!r}, got shape {tuple(found.shape)} and dtype "
                f"{str(found.dtype)!r}"
            )
        return found

    def _warn(self, message: str) -> None:
        if is_exact():
            return
        # told first: if a filter turns the warning into an error, the call changes nothing
        self._tell(Misused(message))
        warnings.warn(message, KVCacheWarning, stacklevel=3)

    def _tell(self, event: RNNEvent) -> None:
        if self.observer is not None:
            self.observer(event)

    def __repr__(self) -> str:
        return (
            f"RNNState({len(self._sequences)} of {self.reserved_num_seqs} sequences, "
            f"{self.num_layers} layers x {len(self.init_values)} states, "
            f"history {self.max_history})"
        )


def check_rnn_state(state: RNNState) -> None:
    """Raise AssertionError unless the bookkeeping of a recurrent state is sound.

    Free and owned slots make up the whole storage, no slot twice; ring positions and histories
    are within the ring; a round's sequences exist.
    """
    snapshot = state.snapshot()
    owned = [sequence.slot for sequence in snapshot.sequences.values()]
    slots = sorted([*owned, *snapshot.free_slots])
    assert slots == list(range(state.reserved_num_seqs)), f"slots are lost or shared: {slots}"
    for seq_id, sequence in snapshot.sequences.items():
        assert 0 <= sequence.history_slot < state.max_history, (seq_id, sequence)
        assert 0 <= sequence.available < state.max_history, (seq_id, sequence)
        assert sequence.available <= sequence.length, (seq_id, sequence)
    if snapshot.round is not None:
        assert set(snapshot.round.written) <= set(snapshot.sequences), snapshot.round


def _require_chains(ids: tuple[int, ...], lengths: tuple[int, ...], tree: list[int]) -> None:
    if len(tree) != sum(lengths):
        raise InternalError(
            f"RNN state: begin_forward: expected one parent per token, {sum(lengths)} in all, "
            f"got {len(tree)}"
        )
    ends = [0]
    for length in lengths:
        ends.append(ends[-1] + length)
    for seq_id, (first, last) in zip(ids, pairwise(ends), strict=True):
        parents = tree[first:last]
        for node, parent in enumerate(parents):
            if parent != node - 1:
                raise InternalError(
                    f"RNN state: begin_forward: sequence {seq_id}: a recurrent state supports "
                    f"chains only: expected parent {node - 1} of token {node}, got {parent}"
                )
