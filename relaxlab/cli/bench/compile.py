"""Rows of the compiler: how long it takes to build a real decoder.

Examples
--------
>>> from relaxlab.cli.bench.compile import rows
"""

from collections.abc import Iterator

from relaxlab import relax
from relaxlab.cli.bench.rows import Bar, Row, measure
from relaxlab.cli.bench.tvm_peer import run_tvm
from relaxlab.ir import Target
from relaxlab.models.config import LlamaConfig
from relaxlab.models.llama import decoder

__all__ = ["SMOLLM2", "rows"]

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
