"""Kernels by name, for compiled modules.

A module that makes a cache asks for its kernels when it runs, by kind and specification: so it
uses the best family that is there, wherever it was compiled. Counterpart: the kernels that TVM
compiles into such a module.

Examples
--------
>>> from relaxlab.runtime.packed_func import get_global_func
>>> text = '{"num_qo_heads": 2, "num_kv_heads": 1, "qk_head_dim": 4, "rope": {"head_dim": 4}}'
>>> spec = get_global_func("relaxlab.kv.kernel_spec")(text)
>>> callable(get_global_func("relaxlab.kv.kernel")("paged_decode", spec, "numpy"))
True
"""

import json
from typing import Any, Final

from relaxlab.runtime.kv.attention.families import pick
from relaxlab.runtime.kv.attention.moves import rnn_get, rnn_set
from relaxlab.runtime.kv.attention.spec import Kernel, KernelSpec
from relaxlab.runtime.kv.rope import Rope
from relaxlab.runtime.packed_func import register_global_func

__all__ = ["kernel", "kernel_spec"]

#: Kernels of recurrent states, which need no specification.
_PLAIN: Final[dict[str, Kernel]] = {"rnn_get": rnn_get, "rnn_set": rnn_set}


@register_global_func("relaxlab.kv.kernel_spec")
def kernel_spec(text: str, /) -> KernelSpec:
    """Return what kernels are made for.

    Parameters
    ----------
    text
        The fields of a :class:`~relaxlab.runtime.kv.attention.spec.KernelSpec` as JSON; those of
        ``rope`` are its rotation's.
    """
    fields: dict[str, Any] = json.loads(text)
    rope = fields.pop("rope", None)
    return KernelSpec(**fields, rope=None if rope is None else Rope(**rope))


@register_global_func("relaxlab.kv.kernel")
def kernel(kind: Any, spec: Any, family: str, /) -> Kernel:
    """Return a kernel.

    Parameters
    ----------
    kind
        As for :func:`~relaxlab.runtime.kv.attention.families.pick`, or ``rnn_get`` or ``rnn_set``.
    spec
        What :func:`kernel_spec` returned; anything for the last two kinds.
    family
        Who makes it; empty for the best there is.
    """
    if kind in _PLAIN:
        return _PLAIN[kind]
    if not isinstance(spec, KernelSpec):
        raise TypeError(
            f"relaxlab.kv.kernel: expected what relaxlab.kv.kernel_spec returns, got {spec!r}"
        )
    return pick(kind, spec, family or None)
