"""The memory plan: what it holds and says, and how it moves with a stepper."""

import json

import pytest
import traitlets

from relaxlab.ir import IRModule
from relaxlab.relax.analysis import storage_liveness
from relaxlab.runtime.device import cpu
from relaxlab.runtime.vm import VirtualMachine
from relaxlab.widgets import MemoryPlan, VMStepper
from tests.widgets.conftest import page_of
from tests.widgets.programs import arguments, executable


@pytest.fixture
def plan():
    return MemoryPlan(executable())


def test_it_holds_the_lifetimes_of_every_function(plan):
    json.dumps(plan.plan, allow_nan=False)
    assert plan.plan == storage_liveness(executable()).to_data()
    assert [one["function"] for one in plan.plan] == ["main", "twice"]
    assert plan.function == "main"
    assert len(plan.memory.storages) < len(plan.memory.tensors)


def test_the_sentence_names_what_is_needed_at_every_step(plan):
    memory = plan.memory
    for step in range(memory.first_step, memory.first_step + len(memory.steps) + 1):
        text = plan.goto(step).sentence
        for storage in memory.storages:
            assert (f"{storage.name} (" in text) == (storage.first <= step <= storage.last)
        total = sum(storage.nbytes for storage in memory.live(step))
        assert f"{total} bytes in" in text or (not total and "no storage" in text)
    plan.goto(memory.peak_step)
    assert f"Needed: {memory.peak} bytes" in str(plan)
    assert str(memory) in str(plan)


def test_functions_and_steps_that_are_not_there_are_refused(plan):
    plan.goto(3)
    for change in ({"function": "nope"}, {"position": -1}, {"position": 10**6}):
        with pytest.raises(traitlets.TraitError):
            plan.set_trait(*next(iter(change.items())))
        assert (plan.function, plan.position) == ("main", 3)
    plan.function = "twice"
    assert plan.position == plan.memory.first_step > 3
    assert repr(plan).startswith(f"MemoryPlan(twice, step {plan.position} of ")


def test_the_page_moves_it(plan):
    page_of(plan).says(position=5)
    assert plan.position == 5


def test_it_follows_a_stepper_and_leads_it():
    stepper = VMStepper(VirtualMachine(executable(), cpu()), "main", *arguments())
    plan = MemoryPlan(stepper)
    assert plan.position == stepper.session.frame.pc
    for _ in range(9):
        stepper.step()
        assert plan.position == stepper.session.frame.pc
    plan.goto(20)
    assert stepper.session.frame.pc == 20
    plan.goto(2)
    assert stepper.session.frame.pc == 2


def test_what_is_no_program_is_refused():
    with pytest.raises(TypeError, match="expected a VMExecutable"):
        MemoryPlan(7)
    with pytest.raises(ValueError, match="no Relax function"):
        MemoryPlan(IRModule())
