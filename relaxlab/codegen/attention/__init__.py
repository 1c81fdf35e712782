"""The llvm family of attention kernels.

Importing this package registers the family with the runtime's picker, if llvmlite is installed;
what the family does not make itself comes from the numpy family. Counterpart: TVM's compiled
attention kernels.

Examples
--------
>>> from relaxlab.runtime.kv.attention import FAMILIES
>>> "llvm" in FAMILIES
True
"""

from importlib.util import find_spec

from relaxlab.runtime.kv.attention import FAMILIES, Family

__all__ = ["is_available"]


def is_available() -> bool:
    """Whether kernels can be compiled here."""
    return find_spec("llvmlite") is not None


if is_available():
    from relaxlab.codegen.attention.kernels import FACTORIES

    FAMILIES.register("llvm", Family("llvm", FACTORIES, base="numpy", rank=1))
