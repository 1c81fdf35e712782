"""Rows of the compiler: how long it takes to build a real decoder, and its kernels.

``llvm_cold`` is all kernels of that decoder as machine code with an empty cache, ``llvm_cached``
the same in another process that finds them there; both are processor time, with what loading LLVM
takes.

Examples
--------
>>> from relaxlab.cli.bench.compile import rows
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

from relaxlab import codegen, relax
from relaxlab.cli.bench.rows import Bar, Row, measure
from relaxlab.cli.bench.tvm_peer import run_tvm
from relaxlab.ir import Target
from relaxlab.models.config import LlamaConfig
from relaxlab.models.llama import decoder

__all__ = ["SMOLLM2", "compile_kernels", "rows"]

#: The sizes of SmolLM2-135M; the weights are not needed to build it.
SMOLLM2 = LlamaConfig(
    layers=30,
    heads=9,
    kv_heads=3,
    head_dim=64,
    width=576,
    ff=1536,
    vocab=49_152,
    context=8192,
    rope_theta=100_000.0,
)
# Kernels are left out on both sides: TVM would spend its time in LLVM.
_TVM_BUILD = """
mod = tvm.script.from_source(TEXT)
def build():
    with tvm.target.Target("llvm"):
        lowered = relax.get_pipeline("default")(mod)
    builder = relax.ExecBuilder()
    relax.vm_build._vmcodegen(builder, lowered, "bytecode")
    return builder.get()
result(measure(build, rounds=3, seconds=0.1))
"""


def rows() -> Iterator[Row]:
    """Yield the rows of ``relaxlab bench compile``."""
    mod = decoder(SMOLLM2)

    def build() -> object:
        with Target("llvm"):
            lowered = relax.get_pipeline("default")(mod)
        builder = relax.ExecBuilder()
        relax.vm_build._vmcodegen(builder, lowered, "bytecode")
        return builder.get()

    ours = measure(build, rounds=3, seconds=0.1)
    peer = run_tvm(_TVM_BUILD, mod.script(show_meta=True))
    yield Row("decoder_30_to_bytecode", "s", ours, "tvm", peer, Bar("<=", 2.0))
    with tempfile.TemporaryDirectory() as home:
        for name, bar in (("llvm_cold", 1.5), ("llvm_cached", 0.2)):
            yield Row(name, "s", _in_another_process(home), None, None, Bar("<=", bar))


def compile_kernels() -> float:
    """Return the processor time that all kernels of the decoder take, in seconds."""
    with Target("llvm"):
        lowered = relax.get_pipeline("default")(decoder(SMOLLM2))
    library = codegen.build(lowered, "llvm")
    start = time.process_time()
    for name in library.names:
        library.get_function(name)
    return time.process_time() - start


def _in_another_process(home: str) -> float:
    """Compile the kernels in a process of its own, with the cache in a folder."""
    program = f"from {__name__} import compile_kernels\nprint(compile_kernels())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "RELAXLAB_HOME": home},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"kernels could not be compiled: {done.stderr.strip()[-500:]}")
    return float(done.stdout)
