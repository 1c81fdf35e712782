"""Random modules: the real TVM reads what we print, compiles it to the same bytecode, and computes
the same values, whichever way ours are run. Where it cannot, ours agree with each other.

As a program, ``python -m tests.oracle.test_compiler PYTHON FIRST COUNT [EVERY]`` does the same for
COUNT seeds, with the Python of the real TVM; it runs each module, or every EVERYth.
"""

import collections
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.errors import InternalError
from relaxlab.ir import Target
from relaxlab.relax.pipeline import get_default_pipeline
from relaxlab.runtime import cpu
from relaxlab.script import from_source
from tests.random_modules import RandomModule

PROGRAM = Path(__file__).with_name("compiler_programs.py")
TARGET = Target("llvm")
#: Modules in one process of the real TVM.
BATCH = 100
PIPELINES = {"plain": relax.get_pipeline("default"), "fused": get_default_pipeline(TARGET)}


def with_tvm(python, cases):
    """Return what the real TVM makes of cases."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.json"
        path.write_text(json.dumps(cases))
        done = subprocess.run(
            [python, PROGRAM, path], check=True, capture_output=True, text=True, timeout=1800
        )
    return json.loads(done.stdout)


def bytecode(mod, pipeline):
    builder = relax.ExecBuilder()
    with TARGET:
        relax.vm_build._vmcodegen(builder, pipeline(mod))
    return builder.get().as_text()


def flat(value):
    if isinstance(value, tuple | list):
        return [flat(item) for item in value]
    array = value.numpy()
    return [str(array.dtype), list(array.shape), array.astype("float64").reshape(-1)]


def differences(ours, theirs, tolerance):
    """Yield what differs between two results."""
    if isinstance(theirs[0], list):
        if len(ours) != len(theirs):
            yield f"{len(ours)} fields, not {len(theirs)}"
            return
        for mine, other in zip(ours, theirs, strict=True):
            yield from differences(mine, other, tolerance)
        return
    if ours[:2] != theirs[:2]:
        yield f"{ours[:2]}, not {theirs[:2]}"
        return
    expected = np.array([float(v) for v in theirs[2]])
    same = np.isclose(ours[2], expected, tolerance, tolerance, equal_nan=True)
    # a comparison of computed values may go either way where they are as good as equal
    if not same.all() and not (ours[0] == "bool" and same.mean() >= 0.5):
        yield f"{ours[2]}, not {expected}"


def shared(text):
    """Return a text as if all functions used the same shape function."""
    one = re.sub(r"\bshape_func\d*( +)", "shape_func ", text)
    return sorted(line for line in one.splitlines() if line not in ("", "@shape_func packed_func;"))


def is_broken(executable):
    """Whether an executable reads a register that nothing wrote on some way: TVM's defect."""
    try:
        relax.VMExecutable.load_from_bytes(bytes.fromhex(executable))
    except InternalError:
        return True
    return False


def verdict(program, script, mod, theirs):
    """Return what is wrong with one module, or how it agrees."""
    if "script" not in theirs:
        return f"TVM refuses the printed script: {theirs['error']}"
    if theirs["script"].rstrip() != script.rstrip():
        return "TVM prints another script"
    but = ""
    for name, pipeline in PIPELINES.items():
        text, executable = theirs.get(name, (None, None))
        ours = bytecode(mod, pipeline)
        if text is not None and ours != text and shared(ours) == shared(text):
            but = " but for which functions share one shape function, chance in TVM"
        elif ours != text and executable is not None and is_broken(executable):
            but = " but for a storage that TVM's other branch never made"
        elif ours != text:
            return f"other bytecode ({name}): {theirs.get('error')}"
    if "error" in theirs and not but:
        return f"TVM cannot run it: {theirs['error']}"
    if "values" not in theirs and not but:
        return "agrees (not run)"
    tolerance = 1e-2 if "float16" in script else 1e-4
    expected = theirs.get("values")
    # machine code of a module takes a second to make
    for target in ("numpy", "llvm") if program.seed % 4 == 0 else ("numpy",):
        executable = relax.build(mod, target)
        for mode in ("bytecode", "compiled"):
            vm = relax.VirtualMachine(executable, cpu(), exec_mode=mode)
            values = flat(vm["main"](*program.arguments()))
            if expected is None:  # TVM has none: ours at least agree with each other
                expected = values
            for difference in differences(values, expected, tolerance):
                return f"other values ({target}, {mode}): {difference}"
    return f"agrees{but}"


def arguments_of(program):
    """Return the arguments of a program as JSON."""
    return [[str(a.dtype), list(a.shape), a.reshape(-1).tolist()] for a in program.arguments()]


def verdicts(python, seeds, every=1):
    """Yield (seed, source, verdict)."""
    programs = [RandomModule(seed) for seed in seeds]
    sources = [program.source() for program in programs]
    mods = [from_source(source) for source in sources]
    scripts = [mod.script() for mod in mods]
    cases = [
        [script, None if p.seed % every else arguments_of(p)]
        for script, p in zip(scripts, programs, strict=True)
    ]
    results = with_tvm(python, cases)
    rows = zip(seeds, programs, sources, scripts, mods, results, strict=True)
    for seed, program, source, script, mod, theirs in rows:
        yield seed, source, verdict(program, script, mod, theirs)


@pytest.mark.parametrize("first", range(0, 100, 25))
def test_random_modules(oracle_python, first):
    wrong = [
        (seed, result, source)
        for seed, source, result in verdicts(oracle_python, range(first, first + 25))
        if not result.startswith("agrees")
    ]
    assert wrong == []


if __name__ == "__main__":
    python, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    every = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    counted: collections.Counter[str] = collections.Counter()
    for start in range(first, first + count, BATCH):
        seeds = range(start, min(start + BATCH, first + count))
        for seed, source, result in verdicts(python, seeds, every):
            counted[result if result.startswith("agrees") else "differs"] += 1
            if not result.startswith("agrees"):
                print(f"seed {seed}: {result}\n{source}", flush=True)
        print(start, dict(counted), flush=True)
