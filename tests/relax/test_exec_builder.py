"""The builder: the same bytes as TVM's, the same checks, the same kinds of error."""

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder, SpecialReg, VMFuncKind
from relaxlab.runtime.container import Array, ShapeTuple
from relaxlab.runtime.device import cpu
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import tensor
from relaxlab.runtime.vm.bytecode import VALUE_LIMIT, ArgKind, Call, Goto, If, Ret, pack
from relaxlab.runtime.vm.executable import VMExecutable
from tests import golden_vm


def rebuilt(ex, rename=lambda number: number):
    """Build a recorded program again through the public methods, registers renamed."""
    ib = ExecBuilder()
    for info in ex.func_table:
        if info.kind == VMFuncKind.VMTIR_FUNC:
            ib.declare_tir_function(
                info.name, info.num_args, info.register_file_size, info.param_names
            )
        else:
            ib.declare_function(info.name, info.kind)
    words = [ib.convert_constant(value) for value in ex.constants]
    for index, scope in reversed(ex.memory_scopes.items()):
        ib.save_memory_scope(words[index], scope)
    functions = [info for info in ex.func_table if info.kind == VMFuncKind.VM_FUNC]
    for info in sorted(functions, key=lambda info: info.start_instr):

        def local(number, info=info):
            special = number >= SpecialReg.VOID_ARG
            return number if special or number < info.num_args else rename(number)

        def operand(arg):
            if arg.kind == ArgKind.CONST_IDX:
                return words[arg.value]
            if arg.kind == ArgKind.FUNC_IDX:
                return ib.f(ex.func_table[arg.value].name)
            return pack(arg.kind, local(arg.value) if arg.kind == ArgKind.REGISTER else arg.value)

        with ib.function(info.name, info.num_args, info.param_names or None):
            for index in range(info.start_instr, info.end_instr):
                match ex.instruction(index):
                    case Call(dst, func_idx, args):
                        ib.emit_call(
                            ex.func_table[func_idx].name, [operand(a) for a in args], local(dst)
                        )
                    case Ret(result):
                        ib.emit_ret(ib.r(local(result)))
                    case Goto(offset):
                        ib.emit_goto(offset)
                    case If(cond, offset):
                        ib.emit_if(ib.r(local(cond)), offset)
    return ib.get()


@pytest.mark.parametrize("name", golden_vm.names())
def test_recorded_programs_are_built_to_the_same_bytes(name):
    data = golden_vm.executable_bytes(name)
    ex = VMExecutable.load_from_bytes(data, verify=False)
    assert rebuilt(ex).save_to_bytes() == data
    # formalize makes the numbers of the producer irrelevant
    assert rebuilt(ex, rename=lambda number: 1000 - 7 * number).save_to_bytes() == data


def empty_function(ib, name="f", num_inputs=1):
    with ib.function(name, num_inputs):
        ib.emit_ret(ib.r(0))


# ---- operands -------------------------------------------------------------------------------


def test_operand_words():
    ib = ExecBuilder()
    ib.declare_function("host")
    assert ib.r(5) == 5
    assert ib.imm(-3) == 0x01FFFFFFFFFFFFFD
    assert ib.c(5) == 0x0200000000000005
    assert ib.f("host") == 0x0300000000000000
    assert ib.void_arg() == SpecialReg.VOID_ARG == 2**54
    assert ib.vm_state() == SpecialReg.VM_STATE == 2**54 + 1
    with pytest.raises(InternalError, match="'nothing' is not declared"):
        ib.f("nothing")
    with pytest.raises(InternalError, match=str(VALUE_LIMIT)):
        ib.imm(VALUE_LIMIT + 1)
    with pytest.raises(TypeError):
        ib.imm(2**63)


def test_small_integers_are_immediates_and_large_ones_constants():
    ib = ExecBuilder()
    assert ib.convert_constant(VALUE_LIMIT) == ib.imm(VALUE_LIMIT)
    assert ib.convert_constant(np.int64(-7)) == ib.imm(-7)
    assert ib.convert_constant(VALUE_LIMIT + 1) == ib.c(0)
    assert ib.convert_constant(-VALUE_LIMIT - 1) == ib.c(1)
    assert ib.convert_constant(VALUE_LIMIT + 1) == ib.c(0)
    assert ib.convert_constant(True) == ib.c(2)
    empty_function(ib)
    assert ib.get().constants == [VALUE_LIMIT + 1, -VALUE_LIMIT - 1, True]


def test_constants_with_one_content_share_an_entry():
    ib = ExecBuilder()
    same = [
        (tensor(np.array([1, 2], "int32")), np.array([1, 2], "int32")),
        (ShapeTuple((1, 2)), ShapeTuple([1, 2])),
        ("text", "text"),
        (b"text", b"text"),
        (DataType("float32"), DataType("float32")),
        (1.5, np.float32(1.5)),
        (float("nan"), -float("nan")),
        ([1, [2.0, "a"]], Array([1, (2.0, "a")])),
        (None, None),
        (cpu(), cpu(0)),
        ({"a": 1}, {"a": 1}),
        (tensor(np.array([np.nan], "float32")), tensor(np.array([np.nan], "float32"))),
    ]
    for index, (first, second) in enumerate(same):
        assert ib.convert_constant(first) == ib.c(index)
        assert ib.convert_constant(second) == ib.c(index)


def test_constants_of_another_kind_or_content_have_their_own_entry():
    ib = ExecBuilder()
    others = [
        tensor(np.array([1, 2], "int32")),
        tensor(np.array([1, 2], "int64")),
        tensor(np.array([[1, 2]], "int32")),
        tensor(np.array([0.0], "float32")),
        tensor(np.array([-0.0], "float32")),
        *(0.0, -0.0, 1.0, True, False, 2**60, float(2**60)),
        *("1", b"1", ShapeTuple(()), ShapeTuple((1,)), [], [1], [1.0], [True]),
        *(DataType("bool"), DataType("int8"), "int8", None, {}),
    ]
    assert [ib.convert_constant(value) for value in others] == [ib.c(i) for i in range(len(others))]


def test_a_function_is_no_constant():
    with pytest.raises(TypeError, match=r"constant needs content.*function"):
        ExecBuilder().convert_constant(lambda: None)


def test_call_arguments_that_become_constants():
    ib = ExecBuilder()
    with ib.function("f", 6):
        ib.emit_call(
            "host",
            [(1, 2), ShapeTuple((1, 2)), DataType("int8"), np.zeros(2, "float32"), 5, ib.r(5)],
        )
        ib.emit_ret(ib.void_arg())
    assert "in: c[0], c[0], c[1], c[2], %5, %5 dst: %void" in ib.get().as_text()


@pytest.mark.parametrize("arg", ["text", [1], 1.5, None, 2**63])
def test_other_call_arguments_are_a_type_error_and_leave_nothing_behind(arg):
    ib = ExecBuilder()
    with ib.function("f"):
        with pytest.raises(TypeError, match="argument 0 of the call of 'host'"):
            ib.emit_call("host", [arg])
        ib.emit_ret(ib.void_arg())
    assert not ib.get().has_function("host")


def test_a_tuple_argument_is_a_shape_of_integers():
    ib = ExecBuilder()
    with ib.function("f"), pytest.raises(TypeError, match="shape"):
        ib.emit_call("host", [(1, "a")])


# ---- functions ------------------------------------------------------------------------------


def test_declaring_twice():
    ib = ExecBuilder()
    ib.declare_function("f", VMFuncKind.VM_FUNC)
    ib.declare_function("f", VMFuncKind.VM_FUNC)
    with pytest.raises(InternalError, match=r"'f' is declared with kind 1.*kind 0"):
        ib.declare_function("f")


def test_defining_twice():
    ib = ExecBuilder()
    empty_function(ib)
    with pytest.raises(InternalError, match="'f' is defined already"):
        ib.function("f", 1)


def test_parameter_names_must_match():
    ib = ExecBuilder()
    with pytest.raises(InternalError, match="2 inputs, but 1 parameter names"):
        ib.function("f", 2, ["x"])
    with pytest.raises(TypeError, match="num_inputs of 'f'"):
        ib.function("f", None)
    empty_function(ib)  # the refused calls left no entry
    assert [info.name for info in ib.get().func_table] == ["f"]


def test_a_function_called_before_its_definition_becomes_a_bytecode_function():
    """TVM leaves the entry packed: the instructions could never be reached."""
    ib = ExecBuilder()
    with ib.function("outer", 1):
        ib.emit_call("inner", [ib.r(0)], dst=1)
        ib.emit_ret(ib.r(1))
    empty_function(ib, "inner")
    assert [info.kind for info in ib.get().func_table] == [VMFuncKind.VM_FUNC] * 2


def test_a_function_declared_packed_cannot_be_defined():
    ib = ExecBuilder()
    ib.declare_function("f")
    with pytest.raises(InternalError, match="declared with kind 0"):
        ib.function("f", 1)


def test_emitting_needs_a_scope_of_this_builder():
    ib, other = ExecBuilder(), ExecBuilder()
    for emit in (
        lambda: ib.emit_call("host"),
        lambda: ib.emit_ret(0),
        lambda: ib.emit_goto(1),
        lambda: ib.emit_if(0, 2),
    ):
        with pytest.raises(ValueError, match="inside `with"):
            emit()
        with other.function(str(id(emit))), pytest.raises(ValueError, match="inside `with"):
            emit()


def test_leaving_by_an_exception_ends_the_function_and_ending_twice_is_refused():
    ib = ExecBuilder()
    scope = ib.function("f", 1)
    with contextlib.suppress(KeyError), scope:
        ib.emit_ret(ib.r(0))
        raise KeyError
    assert ib.get().func_table[0].end_instr == 1
    with pytest.raises(InternalError, match="'f' has ended"), scope:
        pass


def test_the_executable_is_one_object_and_grows():
    ib = ExecBuilder()
    empty_function(ib)
    ex = ib.get()
    before = ex.save_to_bytes()
    assert ib.get() is ex
    assert ex.save_to_bytes() == before
    empty_function(ib, "g")
    assert ib.get() is ex
    assert [info.name for info in ex.func_table] == ["f", "g"]


def test_a_refused_get_leaves_the_executable_as_it_was():
    ib = ExecBuilder()
    empty_function(ib)
    ex = ib.get()
    before = ex.save_to_bytes()
    ib.declare_function("missing", VMFuncKind.VM_FUNC)
    with pytest.raises(InternalError, match="'missing' has no instructions"):
        ib.get()
    assert ex.save_to_bytes() == before


# ---- checks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("emit", "message"),
    [
        (lambda ib: None, "'f' has no instructions"),
        (lambda ib: ib.emit_ret(ib.r(1)), "instruction 0: register %1 is used before"),
        (lambda ib: ib.emit_if(ib.r(9), 2), "register %9 is used before"),
        (lambda ib: ib.emit_call("host", [ib.r(1)], dst=1), "register %1 is used before"),
        (lambda ib: ib.emit_call("host", [ib.c(0)]), "constant 0 does not exist, the pool has 0"),
        (lambda ib: ib.emit_call("host", [ib.c(-1)]), "constant -1 does not exist"),
        (lambda ib: ib.emit_call("host", [(3 << 56) | 2]), "function index 2 is outside"),
        (lambda ib: ib.emit_call("host", [9 << 56]), "unknown argument kind 9"),
        (lambda ib: ib.emit_goto(0), "Goto by 0"),
        (lambda ib: ib.emit_if(ib.r(0), 1), "must be above 1, got 1"),
        (lambda ib: ib.emit_if(ib.r(0), -2), "must be above 1, got -2"),
    ],
)
def test_get_refuses_a_bad_program_and_shows_it(emit, message):
    ib = ExecBuilder()
    with ib.function("f", 1):
        emit(ib)
    with pytest.raises(InternalError, match=message) as caught:
        ib.get()
    assert "has no instructions" in message or "@f:" in str(caught.value) or "kind 9" in message


def test_the_textual_check_does_not_follow_jumps():
    ib = ExecBuilder()
    with ib.function("f", 1):
        ib.emit_if(ib.r(0), 3)
        ib.emit_call("host", dst=1)
        ib.emit_goto(2)
        ib.emit_call("host", [ib.r(1), ib.r(-1)])
        ib.emit_ret(ib.void_arg())
    ib.get()


@pytest.mark.parametrize("word", [(1 << 56) | 2, (2 << 56) | 2, (3 << 56) | 2, -1])
def test_ret_if_and_destinations_take_registers_only(word):
    ib = ExecBuilder()
    with ib.function("f", 1):
        with pytest.raises(InternalError, match="Ret takes a register"):
            ib.emit_ret(word)
        with pytest.raises(InternalError, match="If takes a register"):
            ib.emit_if(word, 2)
        if word > 0:
            with pytest.raises(InternalError, match="does not fit"):
                ib.emit_call("host", dst=word)
    assert ib.num_instructions == 0


def test_a_compiled_function_needs_room_for_its_result():
    ib = ExecBuilder()
    ib.declare_tir_function("f", 2, 2)
    with pytest.raises(InternalError, match="at least 3 registers, got 2"):
        ib.get()


# ---- for code generators --------------------------------------------------------------------


def test_words_can_be_patched_within_bounds():
    ib = ExecBuilder()
    with ib.function("f", 1):
        ib.emit_goto(-1)
        ib.emit_ret(ib.r(0))
        ib.set_word(0, 1, 1)
        for instruction, word in ((2, 0), (-1, 0), (0, 2), (1, -1)):
            with pytest.raises(InternalError, match="does not exist"):
                ib.set_word(instruction, word, 0)
    assert ib.get().instruction(0) == Goto(1)


def test_memory_scopes_belong_to_constants():
    ib = ExecBuilder()
    word = ib.convert_constant("a")
    ib.save_memory_scope(word, "global")
    with pytest.raises(InternalError, match="belongs to a constant"):
        ib.save_memory_scope(ib.imm(0), "global")
    empty_function(ib)
    ib.save_memory_scope(ib.convert_constant("b"), "texture")
    # the order of the file is TVM's: last first
    assert list(ib.get().memory_scopes.items()) == [(1, "texture"), (0, "global")]


def test_the_repr_counts():
    ib = ExecBuilder()
    empty_function(ib)
    assert repr(ib) == "ExecBuilder(1 functions, 0 constants, 1 instructions)"


@given(st.permutations(range(6)), st.integers(0, 3))
def test_formalize_numbers_registers_by_first_appearance(order, num_inputs):
    def build(names):
        ib = ExecBuilder()
        with ib.function("f", num_inputs):
            for name in names:
                ib.emit_call("host", dst=name)
            for name in names:
                ib.emit_call("host", [ib.r(name)], dst=name)
            ib.emit_ret(ib.r(names[-1]))
        return ib.get()

    names = [num_inputs + 10 + 3 * n for n in order]
    ex = build(names)
    assert ex.as_text() == build([num_inputs + n for n in range(6)]).as_text()
    assert ex.func_table[0].register_file_size == num_inputs + 6
