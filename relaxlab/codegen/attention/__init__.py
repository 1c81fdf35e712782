"""The llvm and cuda families of attention kernels.

Importing this package registers them with the runtime's picker: ``llvm`` if llvmlite is installed
(what it does not make itself comes from the numpy family), ``cuda`` if there is a GPU that CuPy
can use. Counterpart: TVM's compiled attention kernels.

Examples
--------
>>> from relaxlab.runtime.kv.attention import FAMILIES
>>> "llvm" in FAMILIES
True
"""

from relaxlab.codegen.attention.cuda_launch import CupyDevice
from relaxlab.codegen.attention.cuda_launch import is_present as gpu_is_present
from relaxlab.codegen.llvm import is_installed
from relaxlab.runtime.kv.attention import FAMILIES, KINDS, Family, Kernel, KernelSpec, Kind
from relaxlab.runtime.kv.attention.families import Factory

__all__ = ["is_available"]

_KINDS: tuple[Kind, ...] = (
    "mla_prefill",
    "paged_decode",
    "paged_decode_sliding",
    "paged_prefill",
    "paged_prefill_sliding",
    "paged_prefill_tree",
    "ragged_prefill",
    "ragged_prefill_tree",
    "split_rotary",
)


def is_available() -> bool:
    """Whether kernels can be compiled here."""
    return is_installed()


def _factory(kind: Kind) -> Factory:
    def make(spec: KernelSpec) -> Kernel | None:
        # llvmlite takes a tenth of a second to import, which only those pay who want a kernel
        from relaxlab.codegen.attention.kernels import make_kernel  # noqa: PLC0415

        return make_kernel(kind, spec)

    return make


if is_available():
    _family = Family("llvm", {kind: _factory(kind) for kind in _KINDS}, base="numpy", rank=1)
    FAMILIES.register("llvm", _family)

if gpu_is_present():

    def _cuda_factory(kind: Kind) -> Factory:
        def make(spec: KernelSpec) -> Kernel:
            # never imported on machines without a GPU
            from relaxlab.codegen.attention.cuda_kernels import (  # noqa: PLC0415
                FACTORIES,
                CudaKernels,
            )

            return FACTORIES[kind](CudaKernels(spec, CupyDevice()))

        return make

    FAMILIES.register("cuda", Family("cuda", {kind: _cuda_factory(kind) for kind in KINDS}))
