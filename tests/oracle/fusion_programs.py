"""Run by a Python with the real TVM: run the CPU pipeline on the programs of a JSON file.

usage: fusion_programs.py FILE    FILE: a list of sources; output: for each the scripts after every
pass of the pipeline and the bytecode, or null
"""

import json
import sys
from pathlib import Path

import tvm
from tvm import relax
from tvm.script import from_source


@tvm.instrument.pass_instrument
class Texts:
    """Keeps the text after each pass of the pipeline, not of the passes inside of these."""

    def __init__(self) -> None:
        self.depth = 0
        self.texts: list[str] = []

    def run_before_pass(self, mod, info) -> None:
        self.depth += 1

    def run_after_pass(self, mod, info) -> None:
        self.depth -= 1
        if self.depth == 2:  # the pipeline, the sequence in it, its members
            self.texts.append(mod.script())


def run(source: str) -> list[str] | None:
    try:
        kept = Texts()
        target = tvm.target.Target("llvm")
        with target, tvm.transform.PassContext(instruments=[kept]):
            mod = relax.get_default_pipeline(target)(from_source(source))
        builder = relax.ExecBuilder()
        relax.vm_build._vmcodegen(builder, mod, "bytecode")
        return [*kept.texts, builder.get().as_text()]
    except (Exception, SystemExit):  # noqa: BLE001  # whatever it does, the answer is "refused"
        return None


json.dump([run(source) for source in json.loads(Path(sys.argv[1]).read_text())], sys.stdout)
