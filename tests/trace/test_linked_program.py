"""From a line to its instructions to its kernels and back; the stepper says the line."""

import json
import operator

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.ir import Target
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.saved_library import write_saved_library
from relaxlab.script import from_source
from relaxlab.trace import DebugSession
from relaxlab.trace.linked_program import link_program
from tests.golden_compiler import cases, source

SCRIPT = """\
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.add(a, x)
            c = R.multiply(b, b)
            R.output(c)
        return c
"""


def build(text, kind):
    pipeline = "default" if kind == "default" else relax.get_default_pipeline(Target("llvm"))
    mod = relax.transform.LambdaLift()(from_source(text, name="demo.py"))
    return relax.build(mod, "numpy", relax_pipeline=pipeline)


@pytest.mark.parametrize("kind", ["default", "fusing"])
@pytest.mark.parametrize("name", cases())
def test_links_lead_there_and_back(name, kind):
    ex = build(source(name), kind)
    program = link_program(ex)
    assert [one.pc for one in program.instructions] == list(range(ex.num_instructions))
    for index, line in enumerate(program.lines):
        assert line.pcs
        for pc in line.pcs:
            assert index in program.instructions[pc].lines
    for instruction in program.instructions:
        assert instruction.lines
        for index in instruction.lines:
            assert instruction.pc in program.lines[index].pcs
        if instruction.kernel is not None:
            assert instruction.pc in program.kernel(instruction.kernel).pcs
    for kernel in program.kernels:
        assert "def " in kernel.script
        for pc in kernel.pcs:
            assert program.instructions[pc].kernel == kernel.name
            assert set(program.instructions[pc].lines) <= set(kernel.lines)


def test_a_line_and_its_kernel():
    program = link_program(build(SCRIPT, "default"))
    line = program.line(7)
    assert (line.text, line.kernels) == ("b = R.add(a, x)", ("add",))
    assert [program.lines[i].line for i in program.kernel("add").lines] == [7]
    assert "T_add" in program.kernel("add").script
    fused = link_program(build(SCRIPT, "fusing"))
    (kernel,) = fused.kernels
    assert [fused.lines[i].line for i in kernel.lines] == [6, 7, 8]
    with pytest.raises(KeyError, match="no instruction runs line 2; there are: 4, 6, 7, 8, 10"):
        program.line(2)
    with pytest.raises(KeyError, match=r"there is no kernel 'f'; there are: .*add"):
        program.kernel("f")


def test_text():
    lines = str(link_program(build(SCRIPT, "fusing"))).splitlines()
    at = lines.index("demo.py:8  c = R.multiply(b, b)")
    assert any("(with line 6, 7)" in line for line in lines[at + 1 :])
    assert lines[-2:] == ["demo.py:10  return c", f"  {link_count(lines)}  ret %2"]


def link_count(lines):
    return max(int(line.split()[0]) for line in lines if line.startswith("  "))


def test_programs_without_lines():
    ex = build(SCRIPT, "default")
    program = link_program(VMExecutable.load_from_bytes(ex.save_to_bytes()))
    assert program.lines == ()
    assert str(program).startswith("of no line\n")
    saved = link_program(VMExecutable.load_from_bytes(write_saved_library(ex)))
    assert saved == link_program(ex)


def test_data():
    data = json.loads(json.dumps(link_program(build(SCRIPT, "default")).to_data()))
    assert set(data) == {"lines", "instructions", "kernels"}
    assert list(map(operator.itemgetter("line"), data["lines"])) == [4, 6, 7, 8, 10]


def test_the_stepper_says_the_line():
    vm = relax.VirtualMachine(build(SCRIPT, "default"), runtime.cpu())
    session = DebugSession(vm, "main", np.ones(2, "float32"))
    seen = []
    while not session.at_end:
        seen += [line for line in str(session).splitlines() if line.startswith("source ")]
        session.step()
    assert list(dict.fromkeys(seen)) == [
        'source demo.py:4: def main(x: R.Tensor((2,), "float32")) -> R.Tensor((2,), "float32"):',
        "source demo.py:6: a = R.exp(x)",
        "source demo.py:7: b = R.add(a, x)",
        "source demo.py:8: c = R.multiply(b, b)",
        "source demo.py:10: return c",
    ]
