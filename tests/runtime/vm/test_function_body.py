"""Compiled functions become bytecode in front of the machine."""

import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime import VirtualMachine, cpu
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.bytecode import VOID_REGISTER, Arg, ArgKind, Goto, If, VMFuncInfo
from relaxlab.runtime.vm.function_body import BodyCall, FunctionBody, Literal, with_instructions


def register(number):
    return Arg(ArgKind.REGISTER, number)


class Bodies:
    """A library of bodies, and of a function that says what it got."""

    kind = "bodies"

    def __init__(self, **bodies):
        self.imports = []
        self.bodies = {f"__vmtir__{name}": body for name, body in bodies.items()}

    def get_function(self, name):
        if name == "tell":
            return lambda *args: [f"{type(one).__name__} {one}" for one in args]
        return self.bodies.get(name)


class Around:
    """A library that has others."""

    kind = "around"

    def __init__(self, *imports):
        self.imports = list(imports)

    def get_function(self, name):
        return None


def entry(name, params, registers, kind=2):
    return VMFuncInfo(kind, name, num_args=params, register_file_size=registers)


def test_operands_of_every_kind():
    args = (
        register(0),
        Arg(ArgKind.CONST_IDX, 0),
        Arg(ArgKind.IMMEDIATE, 3),
        Literal(True),
        Literal(2**60),
        Literal(-4),
        Literal(2.5),
        Literal("text"),
        register(VOID_REGISTER),
    )
    body = FunctionBody((BodyCall(1, "tell", args),))
    ex = VMExecutable([entry("f", 1, 2)], ["pool"], imports=[Around(Bodies(f=body))])
    for mode in (None, "bytecode", "compiled"):
        vm = VirtualMachine(ex, cpu(), exec_mode=mode)
        assert vm.exec_mode == (mode or "compiled")
        assert vm["f"](7) == (
            "int 7",
            "str pool",
            "int 3",
            "bool True",
            f"int {2**60}",
            "int -4",
            "float 2.5",
            "str text",
            "NoneType None",
        )
    assert ex.num_instructions == 0  # nothing was added to the executable itself
    assert ex.constants == ["pool"]


def test_a_branch_and_a_call_of_another_body():
    body = FunctionBody(
        (
            BodyCall(5, "vm.builtin.read_if_cond", (register(0),)),
            If(5, 3),
            BodyCall(1, "vm.builtin.copy", (Literal(1),)),
            Goto(2),
            BodyCall(
                1,
                "vm.builtin.invoke_closure",
                (register(2**54 + 1), Arg(ArgKind.FUNC_IDX, 1), Literal(9)),
            ),
        )
    )
    other = FunctionBody((BodyCall(1, "vm.builtin.copy", (register(0),)),))
    ex = VMExecutable([entry("f", 1, 2), entry("g", 1, 2)], imports=[Bodies(f=body, g=other)])
    vm = VirtualMachine(ex, cpu())
    assert (vm["f"](1), vm["f"](0), vm["g"](4)) == (1, 9, 4)
    assert "f1_g(machine, room - 1, 9)" in vm.compiled_source("f")
    assert vm.module["get_function_arity"]("f") == 0
    assert set(vm.program.functions) == {"f", "g"}


def test_a_packed_function_of_the_same_name_does_not_hide_a_function():
    body = FunctionBody((BodyCall(1, "tell", (register(0),)),))
    ex = VMExecutable([entry("tell", 1, 2)], imports=[Bodies(tell=body)])
    assert VirtualMachine(ex, cpu())["tell"](1) == ("int 1",)


def test_a_body_that_is_not_safe_is_refused():
    bad = FunctionBody((BodyCall(1, "vm.builtin.copy", (register(7),)),))
    ex = VMExecutable([entry("f", 1, 2)], imports=[Bodies(f=bad)])
    with pytest.raises(InternalError, match="register"):
        VirtualMachine(ex, cpu())


def test_missing_and_foreign_bodies_are_named():
    ex = VMExecutable([entry("f", 1, 2)], imports=[Bodies()])
    with pytest.raises(InternalError, match=r"__vmtir__f, is in no imported library \(bodies\)"):
        VirtualMachine(ex, cpu())
    ex.imports = [Bodies(f=print)]
    with pytest.raises(InternalError, match="of another system: its code, __vmtir__f"):
        VirtualMachine(ex, cpu())


def test_bytecode_is_left_alone():
    ex = VMExecutable([entry("f", 1, 1, kind=1)], (), {}, [0], [2, 0])
    assert with_instructions(ex) is ex
    with pytest.raises(TypeError, match="cannot be called by itself"):
        FunctionBody(())(1)
    assert repr(FunctionBody(())) == "FunctionBody(0 instructions)"
