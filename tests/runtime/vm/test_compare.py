"""Comparing executables: what means the same is the same, what differs is named and shown."""

import dataclasses

import numpy as np
import pytest

from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.vm.bytecode import VMFuncInfo
from relaxlab.runtime.vm.compare import compare
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.saved_kernels import SavedKernels, SavedLibrary
from tests import golden_vm


def program(*constants, callee="host", extra=False, names=("x",)):
    """Return a program that passes each constant to a host function."""
    ib = ExecBuilder()
    with ib.function("main", num_inputs=1, param_names=list(names)):
        for constant in constants:
            ib.emit_call(callee, [ib.r(0), ib.convert_constant(constant)], dst=1)
        if extra:
            ib.emit_call("vm.builtin.copy", [ib.r(0)], dst=1)
        ib.emit_ret(ib.r(0))
    return ib.get()


def texts(one, two):
    return [str(difference) for difference in compare(one, two)]


@pytest.mark.parametrize("name", golden_vm.names())
def test_a_program_is_the_same_as_itself(name):
    one, two = (
        VMExecutable.load_from_bytes(golden_vm.executable_bytes(name), verify=False)
        for _ in range(2)
    )
    assert compare(one, two) == []


def test_indices_do_not_matter():
    one, two = program("a", "b"), program("a", "b")
    two.constants.insert(0, "unused")
    two.func_table.insert(0, VMFuncInfo(0, "unused"))
    two.instr_data = two.instr_data.copy()
    for pc in range(2):
        at = int(two.instr_offset[pc])
        two.instr_data[at + 2] += 1
        two.instr_data[at + 5] += 1
    assert texts(one, two) == ["host function unused: only in the second"]
    assert texts(two, one) == ["host function unused: only in the first"]


def test_a_changed_instruction_is_shown_with_its_neighbours():
    assert texts(program("a", "b", "c", "d", "e", "f"), program("a", "b", "c", "d", "e", "g")) == [
        (
            "function main: 7 instructions, 1 differs\n"
            '       3  call  host             in: %0, c["d"]   dst: %1\n'
            '       4  call  host             in: %0, c["e"]   dst: %1\n'
            '  -    5  call  host             in: %0, c["f"]   dst: %1\n'
            '  +    5  call  host             in: %0, c["g"]   dst: %1\n'
            "       6  ret   %0"
        )
    ]


def test_changes_far_apart_are_shown_apart():
    same = [str(number) for number in range(20)]
    (text,) = texts(program("a", *same, "b"), program("A", *same, "B"))
    assert text.count("...") == 1
    assert text.splitlines()[0] == "function main: 23 instructions, 2 differ"


def test_an_added_instruction_and_new_parameters_are_counted():
    difference, _ = compare(program("a"), program("a", extra=True, names=("y",)))
    assert difference.summary == "parameter names x -> y; 2 -> 3 instructions, 1 differs"
    assert [line[0] for line in difference.lines] == [" ", "+", " "]


def test_tensors_are_compared_by_content():
    one = program(np.array([1, 2], "float32"))
    assert texts(one, program(np.array([1, 2], "float32"))) == []
    (text,) = texts(one, program(np.array([1, 3], "float32")))
    assert text.count("c[float32[2] ") == 2
    assert texts(program(ShapeTuple((1, 2))), program(ShapeTuple((1, 2)))) == []
    long = "a" * 100
    (text,) = texts(program(long + "b"), program(long + "c"))
    assert "…" in text


def test_kinds_registers_and_scopes_are_compared():
    one, two = program("a"), program("a")
    index = two.func_map["main"]
    info = two.func_table[index]
    two.func_table[index] = dataclasses.replace(info, register_file_size=9, num_args=2)
    assert texts(one, two) == ["function main: parameters 1 -> 2; registers 2 -> 9"]
    two.func_table[index] = VMFuncInfo(2, "main", 0, 0, 1, 2)
    assert texts(one, two) == ["function main: in the second, it is: compiled function"]
    two.func_table[index] = VMFuncInfo(7, "main")
    assert texts(one, two) == ["function main: in the second, it is: entry of kind 7"]
    two.func_table[index] = info
    two.memory_scopes[0] = "global.texture"
    assert texts(one, two) == ['constant "a": memory scope none -> global.texture']
    two.memory_scopes[0] = ""
    assert texts(one, two) == []


KERNELS = """
n = TypeVar("n")

@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def add(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = x[i] + T.float32(1.0)

    @T.prim_func
    def mul(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        for i in range(4):
            y[i] = x[i] * T.float32(2.0)
"""


def with_kernels(text, *names):
    saved = SavedKernels("tvmscript", "numpy", names, text)
    return VMExecutable(imports=[SavedLibrary(saved, "m.rlx")])


def test_kernels_that_are_kept_as_text_are_compared():
    one = with_kernels(KERNELS, "add", "mul")
    assert compare(one, with_kernels(KERNELS.replace("TypeVar", "T"), "add", "mul")) == []
    assert texts(one, with_kernels(KERNELS.replace("1.0", "3.0"), "add", "mul")) == [
        (
            "kernel add: 1 line differs\n"
            '       1      def add(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):\n'
            "       2          for i in range(4):\n"
            "  -    3              y[i] = x[i] + T.float32(1.0)\n"
            "  +    3              y[i] = x[i] + T.float32(3.0)"
        )
    ]
    other = with_kernels(KERNELS.replace("mul", "sub"), "add", "sub")
    assert texts(one, other) == [
        "kernel mul: only in the first",
        "kernel sub: only in the second",
    ]
    inner = with_kernels(KERNELS, "add", "mul").imports[0]
    outer = with_kernels("", "other")
    outer.imports[0].imports.append(inner)
    assert texts(one, outer) == ["kernel other: only in the second"]


def test_machine_code_is_compared_by_name_alone():
    library = VMExecutable.load_from_file(golden_vm.library("so"))
    assert compare(library, VMExecutable.load_from_file(golden_vm.library("so"))) == []
    names = {difference.name for difference in compare(library, with_kernels(KERNELS, "add"))}
    assert "matmul" in names
