"""The three text forms are TVM's, to the byte."""

from types import SimpleNamespace

import pytest

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime.container import Array
from relaxlab.runtime.vm.bytecode import VMFuncInfo, VMFuncKind
from relaxlab.runtime.vm.executable import VMExecutable
from tests import golden_vm


@pytest.mark.parametrize("name", golden_vm.names())
def test_texts_of_recorded_executables(name):
    case = golden_vm.case(name)
    ex = VMExecutable.load_from_bytes(golden_vm.executable_bytes(name), verify=False)
    assert ex.as_text() == case["as_text"]
    assert ex.as_python() == case["as_python"]
    if isinstance(case["stats"], str):
        assert ex.stats() == case["stats"]


def test_all_recorded_executables_are_here():
    assert len(golden_vm.names()) == 44


def test_stats_prints_the_float_constants_on_which_tvm_fails():
    ex = VMExecutable.load_from_bytes(golden_vm.executable_bytes("eb_const_float"))
    assert "(# 6): [1.5, -0.0, 0.0, inf, nan, 1e-320]\n" in ex.stats()


def test_stats_prints_the_none_constant_on_which_tvm_crashes():
    ex = VMExecutable(constants=[None, True, Array([1, "a"]), b"x"])
    assert "[None, True, (1, \"a\"), b'x']" in ex.stats()


def test_an_index_outside_the_table_has_a_stand_in():
    info = VMFuncInfo(VMFuncKind.VM_FUNC, "f", 0, 1, 0, 0)
    ex = VMExecutable([info], instr_offset=[0], instr_data=[1, 0, 7, 1, (3 << 56) | 9])
    assert ex.as_text() == (
        "@f:\n  call  unknown_func_index(7) in: f[unknown_func_index(9)] dst: %0\n\n"
    )
    assert ex.as_python() == (
        'ib = rx.Builder()\nwith ib.function("f", num_inputs=0):\n'
        "    ib.emit_call(ib.unknown_func_index(7), args=[ib.f(ib.unknown_func_index(9))],"
        " dst=ib.r(0))\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [([9, 0], "opcode 9"), ([1, 0, 0, 1, 7 << 56], "argument kind 7"), ([2], "cut off")],
)
def test_what_has_no_text_is_an_internal_error(words, message):
    info = VMFuncInfo(VMFuncKind.VM_FUNC, "f", 0, 1, 0, 0)
    ex = VMExecutable([info], instr_offset=[0], instr_data=words)
    for form in (ex.as_text, ex.as_python):
        with pytest.raises(InternalError, match=message):
            form()


def test_a_range_beyond_the_program_ends_with_an_error_not_a_hang():
    info = VMFuncInfo(VMFuncKind.VM_FUNC, "f", 0, 2**62, 0, 0)
    ex = VMExecutable([info], instr_offset=[0], instr_data=[2, 0])
    with pytest.raises(InternalError, match="index 1 is out of range"):
        ex.as_text()


def test_the_python_form_builds_the_same_program():
    # the recorded text speaks of `rx.Builder`, TVM's old name for its ExecBuilder
    for name in ("eb_loop", "eb_if", "eb_neg_imm", "eb_kill", "eb_two_funcs"):
        ex = VMExecutable.load_from_bytes(golden_vm.executable_bytes(name))
        scope = {"rx": SimpleNamespace(Builder=ExecBuilder)}
        exec(ex.as_python(), scope)
        again = scope["ib"].get()
        assert again.as_python() == ex.as_python()
