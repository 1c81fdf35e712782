"""One picker for all kernels: what is wanted, from which family.

A family is a way to make kernels: ``reference`` (obvious and slow, the living definition),
``numpy`` (vectorised, everywhere), and families of higher layers, such as ``llvm``, which register
themselves here because the runtime imports nothing above it. A family makes what it can make
better; the rest comes from the family it builds on. All kernels of a kind take TVM's arguments
and give the same numbers, so they can be mixed, and any Python callable can stand in for one.

Counterpart: the kernel factories and the attention backends of TVM's caches.

Examples
--------
>>> import numpy as np
>>> from relaxlab.runtime.kv.attention import KernelSpec, pick
>>> spec = KernelSpec(num_qo_heads=2, num_kv_heads=1, qk_head_dim=4)
>>> merge = pick("merge_state_inplace", spec, "numpy")
>>> o, lse = np.zeros((1, 2, 4), "float32"), np.full((1, 2), -5e4, "float32")
>>> merge(o, lse, np.ones((1, 2, 4), "float32"), np.zeros((1, 2), "float32"))
>>> o[0, 0].tolist(), lse[0].tolist()
([1.0, 1.0, 1.0, 1.0], [0.0, 0.0])
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from relaxlab.registry import Registry
from relaxlab.runtime.kv.attention.spec import KINDS, Kernel, KernelSpec, Kind

__all__ = ["FAMILIES", "Family", "default_family", "pick"]

Factory = Callable[[KernelSpec], Kernel | None]


@dataclass(frozen=True)
class Family:
    """A way to make kernels.

    Attributes
    ----------
    name
        How it is asked for.
    factories
        What makes each kind of kernel. A factory returns None if it cannot serve a specification.
    base
        Where the other kinds come from; None if there are no others.
    rank
        The family of highest rank is the default.
    """

    name: str
    factories: Mapping[Kind, Factory] = field(default_factory=dict)
    base: str | None = None
    rank: int = 0


FAMILIES: Final[Registry[Family]] = Registry("kernel family")


def default_family() -> str:
    """Return the name of the best family that is registered."""
    return max(FAMILIES, key=lambda name: FAMILIES.get(name).rank)


def pick(kind: Kind, spec: KernelSpec, family: str | None = None) -> Kernel:
    """Return a kernel with the arguments of TVM's kernel of that kind.

    Parameters
    ----------
    kind
        Which kernel, for example ``"paged_decode"``.
    spec
        What it is made for.
    family
        Who makes it; the best registered family when None.

    Raises
    ------
    ValueError
        If there is no such kind or family. Families of higher layers are there once their module
        is imported (``llvm``: ``relaxlab.codegen.attention``).
    """
    if kind not in KINDS:
        raise ValueError(f"no kernel kind {kind!r}; expected one of {', '.join(KINDS)}")
    name: str | None = default_family() if family is None else family
    while name is not None:
        found = FAMILIES.get(name)
        factory = found.factories.get(kind)
        kernel = None if factory is None else factory(spec)
        if kernel is not None:
            return kernel
        name = found.base
    raise ValueError(f"kernel family {family!r} has no {kind!r} and no base that has one")
