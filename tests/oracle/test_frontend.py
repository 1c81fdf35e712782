"""Networks that the real TVM exports from its ``nn`` frontend: read, printed and compiled alike."""

import json
import subprocess
from pathlib import Path

import pytest

from relaxlab import relax
from relaxlab.ir import Target
from relaxlab.relax.pipeline import get_default_pipeline
from relaxlab.script import from_source

PROGRAM = Path(__file__).with_name("frontend_programs.py")
TARGET = Target("llvm")
NETWORKS = (
    "Perceptron float32",
    "Perceptron float16",
    "Attention float32",
    "Attention float16",
    "Dot float32",
    "Images float32",
    "Words float32",
    "Steps float32",
    "Others float32",
    "Cached float32",
)


@pytest.fixture(scope="module")
def networks(oracle_python):
    done = subprocess.run(
        [oracle_python, PROGRAM], capture_output=True, text=True, check=True, timeout=300
    )
    return json.loads(done.stdout)


def bytecode(mod, pipeline):
    builder = relax.ExecBuilder()
    with TARGET:
        relax.vm_build._vmcodegen(builder, pipeline(mod))
    return builder.get().as_text()


def test_every_network_is_compared(networks):
    assert tuple(networks) == NETWORKS


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_of_the_frontend(networks, name):
    script, plain, fused = networks[name]
    mod = from_source(script)
    assert mod.script(show_meta=True).rstrip() == script.rstrip()
    assert bytecode(mod, relax.get_pipeline("default")) == plain
    assert bytecode(mod, get_default_pipeline(TARGET)) == fused
