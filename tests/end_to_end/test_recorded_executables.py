"""The programs behind the recorded executables, with other imports, give the recorded bytes.

This is the promise that a program moves from TVM by changing its imports, for every one of them:
builder programs, hand-lowered Relax, and whole builds.
"""

import pytest

from relaxlab.runtime import VirtualMachine, cpu
from tests import golden_vm
from tests.golden.vm.programs import PROGRAMS
from tests.golden_values import close, decode, encode, with_golden

BUILT = [name for name in golden_vm.names() if name.startswith("build_")]


@pytest.mark.parametrize("name", golden_vm.names())
def test_the_program_gives_the_recorded_bytes(name):
    executable = PROGRAMS[name]()
    assert executable.as_text() == golden_vm.case(name)["as_text"]
    assert executable.as_python() == golden_vm.case(name)["as_python"]
    assert executable.mod.save_to_bytes() == golden_vm.executable_bytes(name)


@pytest.mark.parametrize("mode", ["bytecode", "compiled"])
@pytest.mark.parametrize("name", [one for one in BUILT if golden_vm.case(one)["runs"]])
def test_what_we_build_gives_the_recorded_results(name, mode):
    """With kernels that are compiled here."""
    vm = VirtualMachine(with_golden(PROGRAMS[name]()), cpu(), exec_mode=mode)
    for run in golden_vm.case(name)["runs"]:
        args = [decode(arg) for arg in run["args"]]
        if "error" in run:
            with pytest.raises(Exception, match=r"\w") as raised:
                vm[run["func"]](*args)
            assert type(raised.value).__name__ == run["error"]["type"]
        else:
            assert close(encode(vm[run["func"]](*args)), run["result"])


def test_every_recorded_executable_has_its_program():
    assert sorted(PROGRAMS) == golden_vm.names()
