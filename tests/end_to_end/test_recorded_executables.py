"""The programs behind the recorded executables, with other imports, give the recorded bytes.

This is the promise that a program moves from TVM by changing its imports, for every one of them:
builder programs, hand-lowered Relax, and whole builds.
"""

import pytest

from tests import golden_vm
from tests.golden.vm.programs import PROGRAMS


@pytest.mark.parametrize("name", golden_vm.names())
def test_the_program_gives_the_recorded_bytes(name):
    executable = PROGRAMS[name]()
    assert executable.as_text() == golden_vm.case(name)["as_text"]
    assert executable.as_python() == golden_vm.case(name)["as_python"]
    assert executable.mod.save_to_bytes() == golden_vm.executable_bytes(name)


def test_every_recorded_executable_has_its_program():
    assert sorted(PROGRAMS) == golden_vm.names()
