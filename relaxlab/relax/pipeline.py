"""Named pass pipelines.

A pipeline is a list of passes that reads aloud. ``get_pipeline("default")`` is what
:func:`relaxlab.relax.build` runs for CPU targets. Counterpart: ``tvm.relax.pipeline``.

Examples
--------
>>> [p.info.name for p in get_pipeline("default").passes][:3]
['DispatchSampling', 'DispatchSortScan', 'LegalizeOps']
"""

from collections.abc import Callable
from typing import Any

from relaxlab.ir import Pass, Sequential, Target
from relaxlab.registry import Registry
from relaxlab.relax import backend, transform

__all__ = ["get_default_pipeline", "get_pipeline", "register_pipeline"]

_PIPELINES: Registry[Callable[..., Pass]] = Registry("pipeline")


def register_pipeline(name: str) -> Callable[[Callable[..., Pass]], Callable[..., Pass]]:
    """Decorate a function that makes a pipeline with the name users ask for."""
    return _PIPELINES.registered(name)


def get_pipeline(name: str = "default", **options: Any) -> Pass:
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


@register_pipeline("default")
@register_pipeline("default_build")
def default_build_pipeline() -> Pass:
    """From operators to what the virtual machine can run, without fusion."""
    return Sequential(
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


def get_default_pipeline(target: Target) -> Pass:
    """Return the pipeline made for a kind of target.

    Raises
    ------
    ValueError
        If no pipeline is made for it.
    """
    raise ValueError(
        f"Target {target} is not yet supported by default pipeline. Please lower and build the "
        "IRModule manually."
    )
