"""The pipeline for GPUs, as far as it goes: their kernels need schedules, which are not here yet.

Counterpart: ``tvm.relax.backend.gpu_generic`` and ``tvm.relax.backend.cuda``, which differ in
RewriteCUDAGraph only.

Examples
--------
>>> from relaxlab.ir import Target
>>> [p.info.name for p in finalize_passes(Target("cuda"))][:3]
['StaticPlanBlockMemory', 'RewriteCUDAGraph', 'LowerAllocTensor']
"""

from typing import NoReturn

from relaxlab.ir import Pass, Target
from relaxlab.relax import transform
from relaxlab.relax.backend import cpu_generic
from relaxlab.relax.backend.cpu_generic import dataflow_lower_passes, library_dispatch_passes

__all__ = [
    "dataflow_lower_passes",
    "finalize_passes",
    "legalize_passes",
    "library_dispatch_passes",
]


def legalize_passes(target: Target) -> NoReturn:
    """Refuse: a kernel must be bound to threads before a GPU can run it.

    Raises
    ------
    ValueError
        Always. TVM runs the passes of cpu_generic and then ``dlight.ApplyDefaultSchedule``.
    """
    raise ValueError(
        f"Target {target} is not yet supported by default pipeline. Please lower and build the "
        "IRModule manually: kernels for a GPU need the schedules of dlight, which relaxlab does "
        "not have"
    )


def finalize_passes(target: Target) -> list[Pass]:
    """Return the passes that plan memory and lower; for CUDA with the capture of graphs."""
    plan, *rest = cpu_generic.finalize_passes(target)
    capture = [transform.RewriteCUDAGraph()] if target.kind.name == "cuda" else []
    return [plan, *capture, *rest]
