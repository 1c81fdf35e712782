"""Where CUDA text runs: the protocol of a device, and the one that CuPy drives.

Arrays may be on the device or on the host; those on the host are copied there and, if the kernel
writes them, back. Tests have a second device, which runs the same text as C++ on the host.
Counterpart: TVM's CUDA module.

Examples
--------
>>> isinstance(is_present(), bool)
True
"""

import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from relaxlab.codegen.attention.cuda_source import source
from relaxlab.runtime.device import cuda

__all__ = ["CupyDevice", "Device", "is_present"]


class Device(Protocol):
    """Runs kernels of a text."""

    def launch(
        self, dtype: str, name: str, grid: tuple[int, int], arguments: Sequence[Any]
    ) -> None:
        """Run a kernel of the text for ``dtype`` on ``grid`` blocks.

        Arguments are arrays (written in place where the kernel writes), None for no array,
        ``numpy.int32`` and ``numpy.float32``.
        """


@cache
def is_present() -> bool:
    """Whether there is a GPU that CuPy can use: found out by asking it.

    CuPy takes a second to import, so it is asked only where there may be a GPU at all.
    """
    if find_spec("cupy") is None:
        return False
    if sys.platform == "linux" and not Path("/proc/driver/nvidia").exists():
        return False
    return cuda().exist


class CupyDevice:
    """The current GPU."""

    #: Threads of a block; a power of two, as the text wants it.
    threads = 128

    def __init__(self) -> None:
        import cupy  # noqa: PLC0415  # optional, and heavy

        self._cupy = cupy
        self._modules: dict[str, Any] = {}

    def launch(
        self, dtype: str, name: str, grid: tuple[int, int], arguments: Sequence[Any]
    ) -> None:
        """Compile the text the first time, copy host arrays, run, copy back."""
        if 0 in grid:
            return
        module = self._modules.get(dtype)
        if module is None:
            module = self._cupy.RawModule(code=source(dtype), options=("--std=c++14",))
            self._modules[dtype] = module
        given: list[Any] = []
        borrowed: list[tuple[Any, Any]] = []
        for argument in arguments:
            match argument:
                case None:
                    given.append(np.uintp(0))
                case np.ndarray():
                    # CuPy has no bfloat16; the text takes bits
                    bits = argument.view(np.uint16) if argument.itemsize == 2 else argument
                    copy = self._cupy.asarray(np.ascontiguousarray(bits))
                    borrowed.append((bits, copy))
                    given.append(copy)
                case _:
                    given.append(argument)
        module.get_function(name)(grid, (self.threads,), tuple(given))
        for host, copy in borrowed:
            if host.flags.writeable:
                host[...] = copy.get()
