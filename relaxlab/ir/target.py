"""What code is generated for: a kind and its options.

A target can be made without the library that would serve it; ``relax.build`` picks a default
when none is given. Counterpart: ``tvm.target.Target``.

Examples
--------
>>> Target("llvm").keys
('cpu',)
>>> with Target("llvm"):
...     Target.current().kind.name
'llvm'
"""

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Self, Union

from relaxlab.ir.node import Node

__all__ = ["Target", "TargetKind"]

_KEYS = {
    "llvm": ("cpu",),
    "numpy": ("cpu",),
    "interpreter": ("cpu",),
    "c": ("cpu",),
    "cuda": ("cuda", "gpu"),
    "rocm": ("rocm", "gpu"),
    "metal": ("metal", "gpu"),
    "vulkan": ("vulkan", "gpu"),
    "opencl": ("opencl", "gpu"),
    "webgpu": ("webgpu", "gpu"),
}
_ACTIVE: ContextVar[tuple["Target", ...]] = ContextVar("active targets", default=())


@dataclass(frozen=True, slots=True)
class TargetKind:
    """The family a target belongs to."""

    name: str


@dataclass(frozen=True, slots=True)
class Target(Node):
    """A code generation target.

    Parameters
    ----------
    spec
        A kind name (``"llvm"``), a dict with ``"kind"`` and options, or another target.

    Raises
    ------
    ValueError
        If its kind is unknown.
    """

    kind: TargetKind
    attrs: dict[str, Any] = field(default_factory=dict)

    def __init__(self, spec: Union[str, dict[str, Any], "Target"]) -> None:
        if isinstance(spec, Target):
            kind, attrs = spec.kind.name, spec.attrs
        elif isinstance(spec, dict):
            # keys and tag, which printed targets have, follow from the kind
            derived = ("kind", "keys", "tag")
            kind, attrs = str(spec["kind"]), {k: v for k, v in spec.items() if k not in derived}
        else:
            kind, *options = spec.split()
            attrs = dict(_option(option) for option in options)
        if kind not in _KEYS:
            raise ValueError(f"unknown target kind {kind!r}; known: {', '.join(sorted(_KEYS))}")
        object.__setattr__(self, "kind", TargetKind(kind))
        object.__setattr__(self, "attrs", attrs)

    @property
    def keys(self) -> tuple[str, ...]:
        """What the target is good for, such as ``"cpu"`` or ``"gpu"``."""
        return _KEYS[self.kind.name]

    @staticmethod
    def current(allow_none: bool = True) -> "Target | None":
        """Return the target of the innermost ``with``; ValueError when none is allowed to lack."""
        active = _ACTIVE.get()
        if not active and not allow_none:
            raise ValueError("no target is active: use `with Target(...)`")
        return active[-1] if active else None

    def __enter__(self) -> Self:
        _ACTIVE.set((*_ACTIVE.get(), self))
        return self

    def __exit__(self, *exc: object) -> None:
        _ACTIVE.set(_ACTIVE.get()[:-1])

    def __str__(self) -> str:
        options = "".join(f" -{key}={value}" for key, value in self.attrs.items())
        return self.kind.name + options

    def __hash__(self) -> int:
        return hash(str(self))


def _option(text: str) -> tuple[str, str]:
    key, _, value = text.lstrip("-").partition("=")
    return key, value
