"""The pipeline for CPUs that fuses: constants folded, chains of kernels joined.

``relax.build`` takes the plain pipeline for CPUs, since fusion may drop a packed call whose result
is unused but whose effect matters; ask for this one by ``get_default_pipeline(target)``.
Counterpart: ``tvm.relax.backend.cpu_generic``.

Examples
--------
>>> from relaxlab.ir import Target
>>> [p.info.name for p in legalize_passes(Target("llvm"))]
['LegalizeOps', 'AnnotateTIROpPattern', 'FoldConstant', 'FuseOps', 'FuseTIR']
"""

from relaxlab.ir import Pass, Target
from relaxlab.relax import transform
from relaxlab.relax.backend.dispatch_sampling import DispatchSampling
from relaxlab.relax.backend.dispatch_sort_scan import DispatchSortScan

__all__ = [
    "dataflow_lower_passes",
    "finalize_passes",
    "legalize_passes",
    "library_dispatch_passes",
]


def library_dispatch_passes(target: Target) -> list[Pass]:
    """Return the passes that give operators hand-written kernels."""
    return [DispatchSampling(), DispatchSortScan()]


def legalize_passes(target: Target) -> list[Pass]:
    """Return the passes from operators to fused kernels."""
    return [
        transform.LegalizeOps(),
        transform.AnnotateTIROpPattern(),
        transform.FoldConstant(),
        transform.FuseOps(),
        transform.FuseTIR(),
    ]


def dataflow_lower_passes(target: Target) -> list[Pass]:
    """Return the passes from values to explicit outputs."""
    return [
        transform.RewriteDataflowReshape(),
        transform.ToNonDataflow(),
        transform.RemovePurityChecking(),
        transform.CallTIRRewrite(),
    ]


def finalize_passes(target: Target) -> list[Pass]:
    """Return the passes that plan memory and lower to what the virtual machine knows."""
    return [
        transform.StaticPlanBlockMemory(),
        transform.LowerAllocTensor(),
        transform.KillAfterLastUse(),
        transform.LowerRuntimeBuiltin(),
        transform.ComputePrimValue(),
        transform.VMShapeLower(),
        transform.AttachGlobalSymbol(),
    ]
