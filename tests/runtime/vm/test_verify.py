"""The verifier accepts what compilers make and refuses what could go wrong, with its place."""

import dataclasses
import random
import re
import time

import pytest

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder, SpecialReg, VMFuncKind
from relaxlab.runtime.vm.bytecode import VMFuncInfo
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.verify import (
    NOTES,
    RULES,
    find_notes,
    find_problems,
    verify_executable,
)
from tests import golden_vm


def program(emit, num_inputs=2):
    """Return an executable with one function `f` whose body `emit` writes, and a callee `g`."""
    ib = ExecBuilder()
    ib.declare_function("f", VMFuncKind.VM_FUNC)
    with ib.function("g", num_inputs=1):
        ib.emit_ret(ib.r(0))
    with ib.function("f", num_inputs=num_inputs):
        emit(ib)
    return ib.get()


def good(ib):
    ib.emit_if(ib.r(0), 3)
    ib.emit_call("host", [ib.r(1), ib.imm(1), ib.convert_constant("text"), ib.f("g")], dst=2)
    ib.emit_goto(2)
    ib.emit_call("g", [ib.r(1)], dst=2)
    ib.emit_ret(ib.r(2))


def rules(ex):
    return {finding.rule for finding in find_problems(ex)}


@pytest.mark.parametrize("name", golden_vm.names())
def test_recorded_executables(name):
    data = golden_vm.executable_bytes(name)
    if name in golden_vm.REFUSED:
        with pytest.raises(InternalError, match="not safe to run"):
            VMExecutable.load_from_bytes(data)
        assert VMExecutable.load_from_bytes(data, verify=False).save_to_bytes() == data
    else:
        assert find_problems(VMExecutable.load_from_bytes(data)) == []


def test_the_recorded_programs_are_refused_for_their_reason():
    found = {}
    for name in golden_vm.REFUSED:
        ex = VMExecutable.load_from_bytes(golden_vm.executable_bytes(name), verify=False)
        found[name] = [(f.function, f.pc, f.word, f.rule) for f in find_problems(ex)]
    assert found == {
        "eb_bad_goto": [("far", 0, 1, "jump-target"), ("back", 2, 5, "jump-target")],
        "eb_fallthrough": [("a", 0, 0, "jump-target")],
        "eb_undefined_register": [("f", 3, 11, "definite-assignment")],
        "eb_void_call_to_vm_func": [("outer", 0, 1, "sentinel")],
    }


def test_a_finding_says_where_in_words():
    ex = VMExecutable.load_from_bytes(
        golden_vm.executable_bytes("eb_undefined_register"), verify=False
    )
    (finding,) = find_problems(ex)
    assert str(finding) == (
        "function 'f', instruction 3, word 11: register %1 is read, "
        "but some path to here does not write it [definite-assignment]"
    )


def test_a_good_program_passes():
    assert find_problems(program(good)) == []


# ---- one altered word at a time -------------------------------------------------------------
# words of `good`: g is instruction 0 (words 0-1); f: 2 If, 5 Call, 13 Goto, 15 Call, 20 Ret


@pytest.mark.parametrize(
    ("word", "value", "rule"),
    [
        (2, 9, "opcode"),
        (2, 1, "layout"),
        (3, -1, "register-bounds"),
        (3, 3, "register-bounds"),
        (3, SpecialReg.VOID_ARG, "sentinel"),
        (3, SpecialReg.VM_STATE, "sentinel"),
        (3, 2, "definite-assignment"),
        (4, 1, "jump-target"),
        (4, 0, "jump-target"),
        (4, 5, "jump-target"),
        (4, 2**62, "jump-target"),
        (4, -(2**63), "jump-target"),
        (6, 99, "register-bounds"),
        (6, -1, "register-bounds"),
        (6, SpecialReg.VM_STATE + 1, "sentinel"),
        (6, 2**62, "sentinel"),
        (7, 77, "function-index"),
        (7, -1, "function-index"),
        (7, 1, "arity"),
        (8, 5, "layout"),
        (8, 3, "layout"),
        (8, -1, "layout"),
        (8, 2**63 - 1, "layout"),
        (8, -(2**63), "layout"),
        (9, 2, "definite-assignment"),
        (9, 3, "register-bounds"),
        (9, 2**55, "register-bounds"),
        (9, SpecialReg.VM_STATE + 1, "sentinel"),
        (9, 4 << 56, "argument-kind"),
        (9, -1, "argument-kind"),
        (11, (2 << 56) | 1, "constant-index"),
        (11, (2 << 56) | (2**56 - 1), "constant-index"),
        (12, (3 << 56) | 3, "function-index"),
        (14, 0, "jump-target"),
        (14, 3, "jump-target"),
        (14, -4, "jump-target"),
        (14, 2**63 - 1, "jump-target"),
        (16, SpecialReg.VOID_ARG, "sentinel"),
        (18, 0, "layout"),
        (21, SpecialReg.VM_STATE + 7, "sentinel"),
    ],
)
def test_one_altered_word_breaks_the_rule(word, value, rule):
    ex = program(good)
    ex.instr_data = ex.instr_data.copy()
    ex.instr_data[word] = value
    found = find_problems(ex)
    assert rule in {finding.rule for finding in found}
    assert all(finding.function == "f" and finding.pc is not None for finding in found)
    with pytest.raises(InternalError, match=rf"function 'f', instruction \d+, word \d+: .*{rule}"):
        verify_executable(ex)


@pytest.mark.parametrize("word", range(22))
@pytest.mark.parametrize("value", [-(2**63), -1, 0, 1, 2, 3, 4, 2**54, 2**55, 2**62, 2**63 - 1])
def test_no_word_makes_the_verifier_fail(word, value):
    ex = program(good)
    ex.instr_data = ex.instr_data.copy()
    ex.instr_data[word] = value
    for finding in find_problems(ex):
        assert finding.rule in RULES


@pytest.mark.parametrize(
    "offsets",
    [
        [1, 2, 5, 13, 15, 20],
        [0, 2, 5, 13, 15, 22],
        [0, 2, 5, 13, 15, 2**62],
        [0, 5, 2, 13, 15, 20],
        [0, 2, 2, 13, 15, 20],
        [0, 2, 5, 13, 15, -1],
        [0, 2, 5, 15, 13, 20],
        [-(2**63), 2**63 - 1, 5, 13, 15, 20],
    ],
)
def test_offsets_must_follow_each_other(offsets):
    ex = program(good)
    ex.instr_offset = VMExecutable(instr_offset=offsets).instr_offset
    assert rules(ex) <= {"layout", "opcode"}
    assert rules(ex)


def test_data_without_instructions_is_refused():
    assert rules(VMExecutable(instr_data=[2, 0])) == {"layout"}


@pytest.mark.parametrize(
    "change",
    [
        {"kind": 3},
        {"kind": -1},
        {"num_args": -2},
        {"num_args": 2**60, "register_file_size": 2**60},
        {"start_instr": -1},
        {"start_instr": 6},
        {"end_instr": 7},
        {"end_instr": 2**62},
        {"start_instr": 0},
        {"register_file_size": 1},
        {"register_file_size": 2**60},
        {"param_names": ("a",)},
    ],
)
def test_a_function_entry_must_make_sense(change):
    ex = program(good)
    ex.func_table[0] = dataclasses.replace(ex.func_table[0], **change)
    assert rules(ex) == {"function-entry"}


@pytest.mark.parametrize(("size", "ok"), [(2, True), (1, False), (2**40, False)])
def test_a_compiled_function_needs_a_register_for_its_result(size, ok):
    info = VMFuncInfo(VMFuncKind.VMTIR_FUNC, "f", 0, 0, 1, size)
    assert (rules(VMExecutable([info])) == set()) is ok


def test_memory_scopes_belong_to_constants():
    assert rules(VMExecutable(constants=["a"], memory_scopes={0: "global"})) == set()
    assert rules(VMExecutable(constants=["a"], memory_scopes={1: "global"})) == {"memory-scope"}
    assert rules(VMExecutable(constants=["a"], memory_scopes={-1: "global"})) == {"memory-scope"}


def test_findings_are_bounded():
    many = VMExecutable([VMFuncInfo(9, "f")] * 5000, memory_scopes=dict.fromkeys(range(5000), ""))
    assert len(find_problems(many)) == 1000
    call = [1, 0, 7, 0]
    info = VMFuncInfo(VMFuncKind.VM_FUNC, "f", 0, 501, 0, 1)
    code = VMExecutable([info], (), {}, [*range(0, 2001, 4)], call * 500 + [2, 0])
    assert len(find_problems(code)) == 100


# ---- definite assignment --------------------------------------------------------------------


def loop_reads_late(ib):
    """%3 is written in the loop body, after the place where the second round would read it."""
    ib.emit_call("host", [ib.r(0)], dst=2)
    ib.emit_if(ib.r(2), 4)
    ib.emit_call("host", [ib.r(2)], dst=3)
    ib.emit_call("host", [ib.r(3)], dst=2)
    ib.emit_goto(-3)
    ib.emit_ret(ib.r(2))


def loop_reads_after(ib):
    """The same loop, but %3 is read behind it: no round, no value."""
    loop_reads_late(ib)
    ib.set_word(ib.num_instructions - 1, 1, 3)


def both_branches(ib):
    ib.emit_if(ib.r(0), 3)
    ib.emit_call("host", dst=2)
    ib.emit_goto(2)
    ib.emit_call("host", dst=2)
    ib.emit_ret(ib.r(2))


def one_branch_leaves(ib):
    ib.emit_if(ib.r(0), 3)
    ib.emit_call("host", dst=2)
    ib.emit_goto(2)
    ib.emit_ret(ib.r(1))
    ib.emit_ret(ib.r(2))


def reads_its_own_result(ib):
    ib.emit_goto(2)
    ib.emit_call("host", dst=2)
    ib.emit_call("host", [ib.r(2)], dst=2)
    ib.emit_ret(ib.r(2))


def starts_in_a_loop(ib):
    """The first instruction is a jump target; %2 is written further down only."""
    ib.emit_if(ib.r(0), 2)
    ib.emit_goto(3)
    ib.emit_call("host", [ib.r(0)], dst=2)
    ib.emit_goto(-3)
    ib.emit_ret(ib.r(2))


@pytest.mark.parametrize(
    ("emit", "ok"),
    [
        (loop_reads_late, True),
        (loop_reads_after, False),
        (both_branches, True),
        (one_branch_leaves, True),
        (reads_its_own_result, False),
        (starts_in_a_loop, False),
    ],
)
def test_definite_assignment_follows_every_path(emit, ok):
    assert (rules(program(emit)) == set()) is ok


def test_code_that_cannot_run_may_read_anything():
    ib = ExecBuilder()
    with ib.function("f", num_inputs=1):
        ib.emit_call("host", dst=1)
        ib.emit_ret(ib.r(1))
        ib.emit_call("host", [ib.r(1)], dst=1)
        ib.emit_ret(ib.r(1))
    ex = ib.get()
    assert find_problems(ex) == []
    assert [str(note) for note in find_notes(ex)] == [
        (
            "function 'f', instruction 2, word 6: instructions 2 to 3 can never run: "
            "no path leads to them [unreachable]"
        )
    ]


def _length(note):
    """Return the number of instructions that a note is about."""
    numbers = re.search(r"instructions? (\d+)(?: to (\d+))? can", note.message)
    return int(numbers[2] or numbers[1]) - int(numbers[1]) + 1


@pytest.mark.parametrize("seed", range(100))
def test_definite_assignment_agrees_with_walking_all_paths(seed):
    """Compare with a slow and obvious search over (instruction, written registers)."""
    rng = random.Random(seed)
    ib = ExecBuilder()
    count, registers = 12, 3
    with ib.function("f", num_inputs=1):
        for number in range(registers):
            ib.emit_call("host", dst=1 + number)
        for pc in range(registers, count):
            match rng.randrange(4):
                case 0 | 1:
                    args = [ib.r(rng.randrange(registers + 1)) for _ in range(rng.randrange(2))]
                    ib.emit_call("host", args, dst=1 + rng.randrange(registers))
                case 2 if pc + 2 <= count:
                    ib.emit_if(ib.r(0), rng.randrange(2, count - pc + 1))
                case _:
                    target = rng.randrange(registers, count + 1)
                    ib.emit_goto(target - pc if target != pc else 1)
        ib.emit_ret(ib.r(rng.randrange(registers + 1)))
    ex = ib.get()
    # replace the writes at the start, which only served the textual check of the builder
    ex.instr_data = ex.instr_data.copy()
    for pc in range(registers):
        ex.instr_data[ex.instr_offset[pc] + 1] = SpecialReg.VOID_ARG
    expected = set()
    seen = set()
    todo = [(0, frozenset([0]))]
    while todo:
        pc, written = todo.pop()
        if (pc, written) in seen:
            continue
        seen.add((pc, written))
        at = int(ex.instr_offset[pc])
        words = ex.instr_data.tolist()
        match words[at]:
            case 1:
                reads = words[at + 4 : at + 4 + words[at + 3]]
                expected.update((pc, r) for r in reads if r not in written)
                todo.append((pc + 1, written | {words[at + 1]}))
            case 2:
                if words[at + 1] not in written:
                    expected.add((pc, words[at + 1]))
            case 3:
                todo.append((pc + words[at + 1], written))
            case 4:
                todo += [(pc + 1, written), (pc + words[at + 2], written)]
    dead = {pc for f in find_notes(ex) for pc in range(f.pc, f.pc + _length(f))}
    assert dead == set(range(count + 1)) - {pc for pc, _ in seen}
    found = find_problems(ex)
    assert {f.rule for f in found} <= {"definite-assignment"}
    assert {(f.pc, int(ex.instr_data[f.word])) for f in found} == expected


@pytest.mark.parametrize("name", golden_vm.names())
def test_nothing_is_odd_about_what_compilers_make(name):
    if name not in golden_vm.REFUSED:
        notes = find_notes(VMExecutable.load_from_bytes(golden_vm.executable_bytes(name)))
        assert notes == []


def test_code_of_no_function_is_noted():
    ex = program(good)
    f = ex.func_map["f"]
    ex.func_table[f] = dataclasses.replace(ex.func_table[f], kind=VMFuncKind.PACKED_FUNC)
    (note,) = find_notes(ex)
    assert (note.function, note.pc, note.word, note.rule) == (None, 1, 2, "unreachable")
    assert note.message == "instructions 1 to 5 can never run: they belong to no function"
    assert set(NOTES) == {"unreachable"}
    assert find_notes(VMExecutable()) == []


# ---- results that are dropped --------------------------------------------------------------


def nothing_made(ib):
    ib.emit_call("vm.builtin.make_tuple", dst=1)
    ib.emit_ret(ib.r(1))


def nothing_from_both_branches(ib):
    ib.emit_if(ib.r(0), 4)
    ib.emit_call("vm.builtin.null_value", dst=1)
    ib.emit_call("vm.builtin.copy", [ib.r(1)], dst=2)
    ib.emit_goto(2)
    ib.emit_call("vm.builtin.copy", [ib.void_arg()], dst=2)
    ib.emit_ret(ib.r(2))


def something_from_one_branch(ib):
    nothing_from_both_branches(ib)
    ib.set_word(ib.num_instructions - 2, 4, 0)


@pytest.mark.parametrize(
    ("inner", "ok"),
    [
        (lambda ib: ib.emit_ret(ib.void_arg()), True),
        (nothing_made, True),
        (nothing_from_both_branches, True),
        (something_from_one_branch, False),
        (lambda ib: ib.emit_ret(ib.r(0)), False),
        (lambda ib: (ib.emit_call("host", dst=1), ib.emit_ret(ib.r(1))), False),
        (lambda ib: (ib.emit_call("vm.builtin.copy", [ib.imm(1)], dst=1), ib.emit_ret(1)), False),
    ],
)
def test_only_a_result_that_is_nothing_for_certain_may_be_dropped(inner, ok):
    ib = ExecBuilder()
    with ib.function("inner", 1):
        inner(ib)
    with ib.function("outer", 1):
        ib.emit_call("inner", [ib.r(0)])
        ib.emit_ret(ib.r(0))
    assert (rules(ib.get()) == set()) is ok


# ---- size -----------------------------------------------------------------------------------


def branchy(count):
    ib = ExecBuilder()
    with ib.function("f", num_inputs=1):
        for number in range(count // 4):
            ib.emit_call("host", [ib.r(number)], dst=number + 1)
            ib.emit_if(ib.r(number + 1), 2)
            ib.emit_goto(1)
            ib.emit_call("host", [ib.r(0)])
        ib.emit_ret(ib.r(0))
    return ib.get()


def test_a_large_program_is_checked_quickly():
    data = branchy(100_000).save_to_bytes()
    start = time.process_time()
    VMExecutable.load_from_bytes(data)
    assert time.process_time() - start < 3  # 0.5 s on an idle machine


def ladder(rungs):
    """A jump to the top of a ladder that only leads down, one backward jump a rung.

    What is not written on the way in has to travel against the order of the blocks.
    """
    ib = ExecBuilder()
    with ib.function("f", num_inputs=1):
        ib.emit_if(ib.r(0), 2 * rungs)
        ib.emit_call("host", dst=1)
        for rung in range(rungs):
            ib.emit_if(ib.r(0), 2)
            ib.emit_goto(-3 if rung else 2 * rungs - 1)
        ib.emit_ret(ib.r(1))
    return ib.get()


def test_jumps_against_the_order_are_followed_up_to_a_limit():
    assert [(f.rule, f.pc) for f in find_problems(ladder(20))] == [("definite-assignment", 42)]
    assert [(f.rule, f.pc) for f in find_problems(ladder(200))] == [("complexity", 0)]
    start = time.process_time()
    assert rules(ladder(20_000)) == {"complexity"}
    assert time.process_time() - start < 5
