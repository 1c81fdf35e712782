"""What a recurrent state does right where TVM does not, and what it refuses."""

import warnings

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime import get_global_func, tensor
from relaxlab.runtime.kv import KVCacheWarning, exact
from relaxlab.runtime.kv.rnn_events import RNNSnapshot, fold
from relaxlab.runtime.kv.rnn_state import RNNState, check_rnn_state


def fresh(history=3, seqs=3, layers=1, values=((0.0,),)):
    state = RNNState.of(
        num_layers=layers,
        reserved_num_seqs=seqs,
        max_history=history,
        init_values=[np.array(value, "float32") for value in values],
    )
    state.observer = RECORDED.setdefault(id(state), []).append
    return state


RECORDED = {}


@pytest.fixture(autouse=True)
def _recorded():
    yield
    RECORDED.clear()


def step(state, seq_ids, value, lengths=None):
    state.begin_forward(seq_ids, lengths or [1] * len(seq_ids))
    state.set(0, 0, np.full((len(seq_ids), 1), value, "float32"))
    state.end_forward()


def current(state, seq_id, layer=0, which=0):
    return state.debug_get(layer, which, seq_id).numpy().ravel().tolist()


def refused(state, match, call, *args, error=InternalError):
    before, told = state.snapshot(), len(RECORDED[id(state)])
    with pytest.raises(error, match=match):
        call(*args)
    assert state.snapshot() == before
    assert len(RECORDED[id(state)]) == told


# ---- going back ------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [1, 2, 3, 7])
def test_every_step_of_the_history_can_be_taken_back(history):
    state = fresh(history)
    state.add_sequence(0)
    for token in range(1, 11):
        step(state, [0], token)
    assert state.sequence(0).available == history - 1
    for back in range(history):
        state.popn(0, 1 if back else 0)
        assert current(state, 0) == [10.0 - back]
    refused(state, "0 are in its history", state.popn, 0, 1)
    step(state, [0], 99)
    assert current(state, 0) == [99.0]


def test_a_round_of_several_tokens_cannot_be_taken_back():
    state = fresh()
    state.add_sequence(0)
    step(state, [0], 1)
    step(state, [0], 2, [4])
    refused(state, "cannot take 1 rounds of sequence 0 back", state.popn, 0, 1)
    refused(state, "must not be negative", state.popn, 0, -1)
    assert state.sequence(0).length == 5


# ---- forks -----------------------------------------------------------------------------------


def test_fork_at_every_position_within_the_history():
    state = fresh(history=4, seqs=8)
    state.add_sequence(0)
    for token in range(1, 7):
        step(state, [0], token)
    for child, position in enumerate((6, 5, 4, 3, -1), start=1):
        state.fork_sequence(0, child, position)
        length = 6 if position == -1 else position
        assert current(state, child) == [float(length)]
        assert state.sequence(child).length == length
        # the child can go back as far as the parent could
        assert state.sequence(child).available == length - 3
    refused(state, "goes back from 6 to 3", state.fork_sequence, 0, 6, 2)
    refused(state, "expected -1 or 0 to its length 6", state.fork_sequence, 0, 6, 7)
    refused(state, "expected -1 or 0 to its length 6", state.fork_sequence, 0, 6, -2)


def test_forks_go_apart():
    state = fresh()
    state.add_sequence(0)
    step(state, [0], 1)
    state.fork_sequence(0, 1)
    step(state, [0], 2)
    step(state, [1], 3)
    assert (current(state, 0), current(state, 1)) == ([2.0], [3.0])
    state.popn(1, 2)
    assert (current(state, 0), current(state, 1)) == ([2.0], [0.0])


def test_tvm_ignores_the_position_of_a_fork():
    state = fresh()
    state.add_sequence(0)
    step(state, [0], 1)
    with exact():
        state.fork_sequence(0, 1, 0)
    assert current(state, 1) == [1.0]
    state.fork_sequence(0, 2, 0)
    assert current(state, 2) == [0.0]


# ---- values that nobody set ------------------------------------------------------------------


def test_a_state_that_nobody_set_keeps_its_value():
    state = fresh(layers=2, values=((1.0,), (2.0,)))
    state.add_sequence(0)
    state.begin_forward([0], [1])
    state.set(1, 0, np.array([[5.0]], "float32"))
    state.end_forward()
    found = [current(state, 0, layer, which) for layer in range(2) for which in range(2)]
    assert found == [[1.0], [2.0], [5.0], [2.0]]
    state.popn(0, 1)
    assert current(state, 0, 1, 0) == [1.0]


def test_in_tvm_it_becomes_what_lies_in_the_ring():
    state = fresh(seqs=1)
    state.add_sequence(0)
    step(state, [0], 7)
    state.remove_sequence(0)
    state.add_sequence(0)  # the same slot, whose next ring position holds the 7 still
    with exact():
        state.begin_forward([0], [1])
        state.end_forward()
    assert current(state, 0) == [7.0]


def test_a_round_sees_the_old_values_until_it_ends():
    state = fresh()
    state.add_sequence(0)
    state.begin_forward([0], [1])
    state.set(0, 0, np.array([[3.0]], "float32"))
    out = np.zeros((1, 1), "float32")
    state.get(0, 0, out)
    assert out.tolist() == [[0.0]]
    state.end_forward()
    assert current(state, 0) == [3.0]


# ---- misuse ----------------------------------------------------------------------------------


def test_a_second_begin_warns_and_uses_its_own_batch():
    state = fresh()
    for seq_id in range(2):
        state.add_sequence(seq_id)
    step(state, [1], 5)
    state.begin_forward([0], [1])
    state.set(0, 0, np.array([[9.0]], "float32"))
    with pytest.warns(KVCacheWarning, match="begin_forward within a round"):
        state.begin_forward([1], [1])
    out = np.zeros((1, 1), "float32")
    state.get(0, 0, out)
    assert out.tolist() == [[5.0]]
    state.end_forward()
    assert (current(state, 0), current(state, 1)) == ([0.0], [5.0])


def test_in_tvm_a_second_begin_reads_the_slots_of_the_first():
    state = fresh()
    for seq_id in range(2):
        state.add_sequence(seq_id)
    step(state, [1], 5)
    out = np.ones((1, 1), "float32")
    with exact():
        state.begin_forward([0], [1])
        state.begin_forward([1], [1])
        state.get(0, 0, out)
    assert out.tolist() == [[0.0]]


def full_ring_with_an_open_round():
    """Return a state whose sequence 0 was 0, 1, 2 and is being given a fourth value."""
    state = fresh(history=3)
    state.add_sequence(0)
    for value in (1, 2):
        step(state, [0], value)
    state.begin_forward([0], [1])
    state.set(0, 0, np.array([[3.0]], "float32"))
    return state


def test_a_write_into_a_full_ring_forgets_the_oldest_at_once():
    state = full_ring_with_an_open_round()
    for refused in (lambda: state.popn(0, 2), lambda: state.fork_sequence(0, 1, 0)):
        before = state.snapshot()
        with pytest.raises(InternalError, match=r"history"):
            refused()
        assert state.snapshot() == before
    state.popn(0, 1)
    assert current(state, 0) == [1.0]
    state.end_forward()
    assert state.sequence(0).available == 1


def test_a_round_that_ends_can_still_be_taken_back_as_far_as_the_ring_goes():
    state = full_ring_with_an_open_round()
    state.end_forward()
    state.popn(0, 2)
    assert current(state, 0) == [1.0]


def test_in_tvm_going_back_in_a_round_finds_the_new_value_in_the_place_of_the_oldest():
    with exact():
        state = full_ring_with_an_open_round()
        state.popn(0, 2)
        assert current(state, 0) == [3.0]


def test_one_sequence_twice_in_a_batch_warns_and_its_last_row_counts():
    state = fresh()
    state.add_sequence(0)
    with pytest.warns(KVCacheWarning, match="more than once"):
        state.begin_forward([0, 0], [1, 1])
    state.set(0, 0, np.array([[1.0], [2.0]], "float32"))
    state.end_forward()
    assert current(state, 0) == [2.0]
    assert (state.sequence(0).length, state.sequence(0).available) == (2, 0)


def test_removal_within_a_round_warns_and_the_others_go_on():
    state = fresh()
    for seq_id in range(2):
        state.add_sequence(seq_id)
    state.begin_forward([0, 1], [1, 1])
    data = np.array([[1.0], [2.0]], "float32")
    state.set(0, 0, data)
    with pytest.warns(KVCacheWarning, match="removed within a round"):
        state.remove_sequence(0)
    refused(state, "sequence 0 of the batch was removed", state.set, 0, 0, data)
    state.end_forward()
    assert current(state, 1) == [2.0]


def test_a_warning_that_is_an_error_refuses_the_call():
    state = fresh()
    state.add_sequence(0)
    state.begin_forward([0], [1])
    before = state.snapshot()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KVCacheWarning):
            state.remove_sequence(0)
        with pytest.raises(KVCacheWarning):
            state.begin_forward([0], [1])
    assert state.snapshot() == before


def test_a_roll_back_within_a_round_drops_what_the_round_set():
    state = fresh()
    state.add_sequence(0)
    step(state, [0], 1)
    state.begin_forward([0], [1])
    state.set(0, 0, np.array([[9.0]], "float32"))
    state.popn(0, 1)
    refused(state, "was rolled back", state.get, 0, 0, np.zeros((1, 1), "float32"))
    state.end_forward()
    assert current(state, 0) == [0.0]


def test_changes_of_other_sequences_do_not_disturb_a_round():
    """TVM refuses get and set after any change, until the next begin_forward."""
    state = fresh()
    state.add_sequence(0)
    state.begin_forward([0], [1])
    state.add_sequence(1)
    state.fork_sequence(0, 2)
    state.set(0, 0, np.array([[4.0]], "float32"))
    state.end_forward()
    assert [current(state, i) for i in range(3)] == [[4.0], [0.0], [0.0]]
    with exact():
        state.begin_forward([0], [1])
        state.remove_sequence(1)
        with pytest.raises(InternalError, match="a sequence changed since begin_forward"):
            state.get(0, 0, np.zeros((1, 1), "float32"))


def test_a_round_ends_once():
    state = fresh()
    state.add_sequence(0)
    refused(state, "no round is open", state.end_forward)
    step(state, [0], 1)
    refused(state, "no round is open", state.end_forward)
    with exact():
        state.end_forward()  # TVM advances the last batch again
    assert state.sequence(0).length == 2


# ---- refusals --------------------------------------------------------------------------------


def test_refusals_say_what_was_wrong_and_change_nothing():
    state = fresh(seqs=2)
    state.add_sequence(3)
    state.add_sequence(4)
    refused(state, "no free slot for sequence 5: 1 needed, 0 of 2 free, held by sequences 3, 4",
            state.add_sequence, 5)  # fmt: skip
    refused(state, "no free slot", state.fork_sequence, 3, 5)
    refused(state, "sequence 3 is already there", state.add_sequence, 3)
    refused(state, "child sequence 4 is already there", state.fork_sequence, 3, 4)
    refused(state, "sequence 9 cannot be found; there are: 3, 4", state.remove_sequence, 9)
    refused(state, "sequence 9 cannot be found", state.fork_sequence, 9, 10)
    refused(state, "sequence 9 cannot be found", state.popn, 9, 1)
    refused(state, "sequence 9 cannot be found", state.begin_forward, [3, 9], [1, 1])
    refused(state, "got 2 sequences and 1 lengths", state.begin_forward, [3, 4], [1])
    refused(state, "at least 1 token, got 0", state.begin_forward, [3], [0])
    refused(state, "expected parent 1 of token 2, got 0", state.begin_forward, [3], [3], [-1, 0, 0])
    refused(state, "3 in all, got 2", state.begin_forward, [3], [3], [-1, 0])
    out = np.zeros((1, 1), "float32")
    refused(state, "no round was begun", state.get, 0, 0, out)
    state.begin_forward([3], [1])
    refused(state, "a layer from 0 to 0, got 1", state.get, 1, 0, out)
    refused(state, "a state from 0 to 0, got -1", state.set, 0, -1, out)
    refused(state, r"expected shape \(1, 1\)", state.set, 0, 0, np.zeros((2, 1), "float32"))
    refused(state, "dtype 'float32'", state.set, 0, 0, np.zeros((1, 1), "float16"))
    refused(state, "expected a Tensor", state.set, 0, 0, "x", error=TypeError)
    state.end_forward()
    refused(state, "no round is open; call begin_forward", state.set, 0, 0, out)


@pytest.mark.parametrize(
    ("numbers", "name"),
    [((0, 1, 1), "num_layers"), ((1, 0, 1), "reserved_num_seqs"), ((1, 1, 0), "max_history")],
)
def test_sizes_are_at_least_one(numbers, name):
    with pytest.raises(InternalError, match=f"{name}: expected at least 1, got 0"):
        RNNState(*numbers, [print], [print], [tensor([1.0])])


def test_as_many_kernels_as_states():
    with pytest.raises(InternalError, match="got 1, 2 and 1"):
        RNNState(1, 1, 1, [print], [print, print], [tensor([1.0])])
    with pytest.raises(InternalError, match="got 0, 0 and 0"):
        RNNState(1, 1, 1, [], [], [])


def test_builtins_name_the_argument_of_the_wrong_kind():
    create = get_global_func("vm.builtin.rnn_state_create")
    with pytest.raises(TypeError, match="f_gets, element 0: expected Function, got int 1"):
        create(1, 1, 1, [1], [print], [tensor([1.0])])
    with pytest.raises(TypeError, match=r"state: expected relax\.vm\.RNNState, got int 3"):
        get_global_func("vm.builtin.rnn_state_get")(3, 0, 0, tensor([1.0]))


def test_a_batch_in_exact_mode_fits_the_reserved_number():
    state = fresh(seqs=1)
    state.add_sequence(0)
    with exact(), pytest.raises(ValueError, match="batch of 2 does not fit"):
        state.begin_forward([0, 0], [1, 1])


def test_clear_gives_all_slots_back_in_their_first_order():
    state = fresh()
    for seq_id in (5, 6):
        state.add_sequence(seq_id)
    state.remove_sequence(5)
    state.begin_forward([6], [1])
    state.clear()
    assert state.snapshot() == RNNSnapshot.initial(3)
    events = RECORDED[id(state)]
    assert fold(events, RNNSnapshot.initial(3)) == state.snapshot()
    check_rnn_state(state)


def test_events_hold_no_arrays():
    state = fresh()
    state.add_sequence(0)
    step(state, [0], 1)
    state.fork_sequence(0, 1, 0)
    for event in RECORDED[id(state)]:
        for name in event.__dataclass_fields__:
            assert isinstance(getattr(event, name), int | str | tuple), event
