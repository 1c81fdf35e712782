"""Where a tensor lives: a kind of device and its index.

Every tensor, storage and allocator is bound to one device, and files and DLPack name devices by
number, so the numbers are TVM's. Whether a device is really there is found out by asking it, not
by looking for an installed package. Counterpart: ``tvm.runtime.Device``.

Examples
--------
>>> device("cuda", 1)
device(type='cuda', index=1)
>>> str(cpu()), cpu().exist
('cpu:0', True)
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

__all__ = ["Device", "cpu", "cuda", "device"]

_NUMBERS: Final = {
    "cpu": 1,
    "cuda": 2,
    "cuda_host": 3,
    "opencl": 4,
    "vulkan": 7,
    "metal": 8,
    "vpi": 9,
    "rocm": 10,
    "rocm_host": 11,
    "ext_dev": 12,
    "cuda_managed": 13,
    "oneapi": 14,
    "webgpu": 15,
    "hexagon": 16,
}
_NAMES: Final = {number: name for name, number in _NUMBERS.items()}


@dataclass(frozen=True, slots=True, repr=False)
class Device:
    """One device; immutable and hashable.

    Parameters
    ----------
    type
        Kind of device, for example ``"cpu"`` or ``"cuda"``.
    index
        Which of them, from 0.
    """

    type: str
    index: int = 0

    def __post_init__(self) -> None:
        if self.type not in _NUMBERS:
            raise ValueError(
                f"unknown device {self.type!r}: expected one of {', '.join(sorted(_NUMBERS))}"
            )

    @staticmethod
    def from_dlpack(number: int, index: int = 0) -> "Device":
        """Return the device with DLPack's type ``number`` (1 is the CPU, 2 is CUDA).

        Raises
        ------
        ValueError
            If ``number`` is neither.
        """
        if number not in _NAMES:
            raise ValueError(f"unknown device type number {number}: expected one of {_NAMES}")
        return Device(_NAMES[number], index)

    def dlpack_device_type(self) -> int:
        """Return DLPack's number of the device type."""
        return _NUMBERS[self.type]

    @property
    def exist(self) -> bool:
        """Whether the device answers: the CPU always, a GPU when its driver lists it."""
        if self.type == "cpu":
            return True
        if self.type == "cuda":
            return 0 <= self.index < _cuda_device_count()
        return False

    def __str__(self) -> str:
        return f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        return f"device(type={self.type!r}, index={self.index})"


def cpu(index: int = 0) -> Device:
    """Return a CPU device."""
    return Device("cpu", index)


def cuda(index: int = 0) -> Device:
    """Return a CUDA device; ``cuda().exist`` says whether there is one."""
    return Device("cuda", index)


def device(name: str | Device, index: int | None = None) -> Device:
    """Return the device called ``name``, such as ``"cpu"`` or ``"cuda:1"``.

    Raises
    ------
    ValueError
        If the name is of no known device, or the index is given twice.
    """
    if isinstance(name, Device):
        return name
    kind, colon, number = name.partition(":")
    if colon:
        if index is not None or not number.isdecimal():
            raise ValueError(f"unknown device {name!r}: expected a name such as 'cuda:1'")
        index = int(number)
    return Device(kind, index or 0)


def _cuda_device_count() -> int:
    try:
        cupy: Any = import_module("cupy")
        return int(cupy.cuda.runtime.getDeviceCount())
    except Exception:  # noqa: BLE001  # no package, driver or device: none can be used
        return 0
