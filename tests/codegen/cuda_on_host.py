"""CUDA text run without a GPU: compiled as C++, one thread a block, one block after the other."""

import ctypes
import itertools
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np

from relaxlab.codegen.attention.cuda_source import source

PRELUDE = """
#include <math.h>
struct Dim { int x, y, z; };
static const Dim threadIdx = {0, 0, 0}, blockDim = {1, 1, 1};
static Dim blockIdx = {0, 0, 0};
extern "C" void place(int x, int y) { blockIdx.x = x; blockIdx.y = y; }
static void __syncthreads() {}
#define __device__
#define __global__
#define __shared__ static
"""


def compiler():
    """Return a C++ compiler, or None."""
    return shutil.which("g++") or shutil.which("clang++")


class HostDevice:
    """Implements ``cuda_launch.Device``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cache  # noqa: B019  # one device a test session
    def library(self, dtype):
        text, built = self.folder / f"{dtype}.cpp", self.folder / f"{dtype}.so"
        text.write_text(PRELUDE + source(dtype))
        command = [compiler(), "-O1", "-w", "-shared", "-fPIC", "-o", str(built), str(text)]
        subprocess.run(command, check=True, capture_output=True)
        return ctypes.CDLL(str(built))

    def launch(self, dtype, name, grid, arguments):
        given, copies = [], []
        for argument in arguments:
            match argument:
                case None:
                    given.append(ctypes.c_void_p(None))
                case np.ndarray():
                    copy = np.ascontiguousarray(argument)
                    copies.append((argument, copy))
                    given.append(ctypes.c_void_p(copy.ctypes.data))
                case np.int32():
                    given.append(ctypes.c_int32(int(argument)))
                case np.float32():
                    given.append(ctypes.c_float(float(argument)))
                case _:
                    raise TypeError(f"{name}: {argument!r}")
        library = self.library(dtype)
        for x, y in itertools.product(range(grid[0]), range(grid[1])):
            library.place(x, y)
            getattr(library, name)(*given)
        for argument, copy in copies:
            if copy is not argument:
                argument[...] = copy
