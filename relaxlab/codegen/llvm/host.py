"""The processor that kernels are compiled for, as far as the generator cares.

Only a few things decide how code is written: how wide a vector register is, whether single lanes
can be switched off, and how float16 is converted. The rest is LLVM's business. A test makes a
``Host`` by hand to compile for a machine that is not there.

Examples
--------
>>> Host("generic", "", 16, masks=False, half=False).lanes(32)
4
"""

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Host", "describe_host"]


@dataclass(frozen=True, slots=True)
class Host:
    """What is known of a processor.

    Attributes
    ----------
    cpu, features
        Names in LLVM's words, as given to its target machine.
    vector_bytes
        Width of a vector register.
    masks
        Whether loads and stores of any element size can leave lanes out at no cost.
    half
        Whether an instruction converts between float16 and float32.
    """

    cpu: str
    features: str
    vector_bytes: int
    masks: bool
    half: bool

    def lanes(self, bits: int) -> int:
        """Return how many elements of so many bits fill one register."""
        return max(self.vector_bytes * 8 // bits, 1)


def describe_host(cpu: str, features: Mapping[str, bool], architecture: str) -> Host:
    """Return the host with LLVM's name and features, on ``x86_64``, ``aarch64``, ...

    Examples
    --------
    >>> describe_host("haswell", {"avx": True, "f16c": True}, "x86_64")
    Host(cpu='haswell', features='+avx,+f16c', vector_bytes=32, masks=False, half=True)
    """
    text = ",".join(f"{'+' if features[name] else '-'}{name}" for name in sorted(features))
    if architecture in ("aarch64", "arm64"):
        return Host(cpu, text, 16, masks=False, half=True)
    wide = all(features.get(name) for name in ("avx512f", "avx512bw", "avx512vl"))
    width = 64 if wide else 32 if features.get("avx") else 16
    return Host(cpu, text, width, masks=wide, half=bool(features.get("f16c")))
