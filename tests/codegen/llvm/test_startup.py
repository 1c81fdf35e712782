"""LLVM is loaded when the first kernel is compiled, not before."""

import subprocess
import sys

from relaxlab.codegen import GENERATORS, default_target, generate_llvm


def test_importing_the_generators_does_not_load_llvm() -> None:
    program = (
        "import sys, relaxlab.codegen, relaxlab.relax\n"
        "assert relaxlab.codegen.default_target().kind.name == 'llvm'\n"
        "sys.exit('llvmlite' in sys.modules)"
    )
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


def test_it_is_the_default() -> None:
    assert GENERATORS.get("llvm") is generate_llvm
    assert default_target().kind.name == "llvm"
