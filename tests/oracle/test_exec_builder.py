"""Random programs built here and with the real TVM: the same texts, the same bytes."""

import json
import subprocess
from types import SimpleNamespace

from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import tensor
from relaxlab.runtime.vm import VMExecutable
from tests.oracle import builder_programs

COUNT = 300


def test_random_programs_are_built_to_the_same_bytes(oracle_python):
    command = [str(oracle_python), builder_programs.__file__, str(COUNT)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    theirs = json.loads(done.stdout.splitlines()[-1])
    package = SimpleNamespace(
        ExecBuilder=ExecBuilder, Shape=ShapeTuple, DataType=DataType, tensor=tensor
    )
    for seed in range(COUNT):
        ours = builder_programs.build(builder_programs.program(seed), package)
        assert ours == theirs[seed], f"seed {seed}"
        data = bytes.fromhex(theirs[seed][2])
        assert VMExecutable.load_from_bytes(data, verify=False).save_to_bytes() == data


def test_the_programs_are_not_all_alike():
    programs = {json.dumps(builder_programs.program(seed)) for seed in range(COUNT)}
    assert len(programs) > COUNT * 0.9
