"""Named pass pipelines, and those made for a kind of target.

A pipeline is a list of passes that reads aloud. ``get_pipeline("default")`` is what
:func:`relaxlab.relax.build` runs for CPU targets; ``get_default_pipeline(target)`` is the one that
also fuses. Counterpart: ``tvm.relax.pipeline``.

Examples
--------
>>> [p.info.name for p in get_pipeline("default").passes][:3]
['DispatchSampling', 'DispatchSortScan', 'LegalizeOps']
>>> get_default_pipeline(Target("llvm")).passes[2].info.name
'LegalizeOps'
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from relaxlab.ir import IRModule, Pass, PassContext, PassInfo, Sequential, Target
from relaxlab.registry import Registry
from relaxlab.relax import backend, transform
from relaxlab.relax.backend import cpu_generic, gpu_generic

__all__ = [
    "Pipeline",
    "dataflow_lower_passes",
    "finalize_passes",
    "get_default_pipeline",
    "get_pipeline",
    "legalize_passes",
    "library_dispatch_passes",
    "register_pipeline",
]

_PIPELINES: Registry[Callable[..., Pass]] = Registry("pipeline")


@dataclass(frozen=True, init=False)
class Pipeline(Pass):
    """Passes in order, under one name.

    Parameters
    ----------
    passes
        The members. An instrument sees the pipeline, a sequence in it, and the members.
    name
        What instruments see; ``_pipeline`` for most of TVM's.
    """

    name: str
    sequence: Sequential

    def __init__(self, passes: Iterable[Pass], name: str = "_pipeline") -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "sequence", Sequential(passes))

    @property
    def info(self) -> PassInfo:
        """Name and level."""
        return PassInfo(self.name)

    @property
    def passes(self) -> tuple[Pass, ...]:
        """The members."""
        return self.sequence.passes

    def run(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Run the members in order."""
        return self.sequence(mod)


def register_pipeline(name: str) -> Callable[[Callable[..., Pass]], Callable[..., Pass]]:
    """Decorate a function that makes a pipeline with the name users ask for."""
    return _PIPELINES.registered(name)


def get_pipeline(name: str = "zero", **options: Any) -> Pass:
    """Return the pipeline called ``name``, made with ``options``.

    Raises
    ------
    ValueError
        If there is none; the message lists the candidates.
    """
    make = _PIPELINES.find(name)
    if make is None:
        raise ValueError(
            f"Unknown pre-built pipeline {name},candidates are {sorted(_PIPELINES.names())}"
        )
    return make(**options)


@register_pipeline("zero")
def zero_pipeline(*, enable_warning: bool = False) -> Pass:
    """From operators to fused kernels, nothing more.

    Parameters
    ----------
    enable_warning
        Whether to name operators that nothing legalizes.
    """
    return Pipeline(
        (
            transform.LegalizeOps(enable_warning=enable_warning),
            transform.AnnotateTIROpPattern(),
            transform.FoldConstant(),
            transform.FuseOps(),
            transform.FuseTIR(),
        ),
        "f_zero_pipeline",
    )


@register_pipeline("default")
@register_pipeline("default_build")
def default_build_pipeline() -> Pass:
    """From operators to what the virtual machine can run, without fusion."""
    return Pipeline(
        (
            backend.DispatchSampling(),
            backend.DispatchSortScan(),
            transform.LegalizeOps(),
            transform.RewriteDataflowReshape(),
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.StaticPlanBlockMemory(),
            transform.RewriteCUDAGraph(),
            transform.LowerAllocTensor(),
            transform.KillAfterLastUse(),
            transform.LowerRuntimeBuiltin(),
            transform.ComputePrimValue(),
            transform.VMShapeLower(),
            transform.AttachGlobalSymbol(),
        )
    )


def _lists(target: Target) -> ModuleType:
    """Return the module that holds the four lists of passes for a target."""
    if "gpu" in target.keys:
        return gpu_generic
    if "cpu" in target.keys:
        return cpu_generic
    raise ValueError(
        f"Target {target} is not yet supported by default pipeline. Please lower and build the "
        "IRModule manually."
    )


def library_dispatch_passes(target: Target) -> list[Pass]:
    """Return the first part of a target's pipeline: operators with hand-written kernels."""
    passes: list[Pass] = _lists(target).library_dispatch_passes(target)
    return passes


def legalize_passes(target: Target) -> list[Pass]:
    """Return the second part: from operators to (fused, on GPUs scheduled) kernels."""
    passes: list[Pass] = _lists(target).legalize_passes(target)
    return passes


def dataflow_lower_passes(target: Target) -> list[Pass]:
    """Return the third part: from values to explicit outputs."""
    passes: list[Pass] = _lists(target).dataflow_lower_passes(target)
    return passes


def finalize_passes(target: Target) -> list[Pass]:
    """Return the last part: memory, and what the virtual machine knows."""
    passes: list[Pass] = _lists(target).finalize_passes(target)
    return passes


def get_default_pipeline(target: Target) -> Pass:
    """Return the pipeline made for a kind of target; for CPUs the one that fuses.

    Raises
    ------
    ValueError
        If no pipeline is made for it: for GPUs, whose kernels need schedules.
    """
    return Pipeline(
        (
            *library_dispatch_passes(target),
            *legalize_passes(target),
            *dataflow_lower_passes(target),
            *finalize_passes(target),
        )
    )
