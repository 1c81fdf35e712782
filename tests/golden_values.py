"""Values in the recorded JSON files, and the host functions that recorded programs call."""

import functools
import json
import re
from functools import cache
from typing import Any

import numpy as np

from relaxlab.runtime import DataType, ShapeTuple, Tensor, VirtualMachine, cpu
from relaxlab.runtime.vm import Closure, VMExecutable
from tests import golden_vm


def encode(value: Any) -> dict[str, Any]:
    """Return a value as the recorded files write it."""
    match value:
        case None:
            return {"t": "none"}
        case bool():
            return {"t": "bool", "v": value}
        case int():
            return {"t": "int", "v": value}
        case float():
            return {"t": "float", "v": repr(value)}
        case Tensor():
            return {
                "t": "tensor",
                "dtype": str(value.dtype),
                "shape": list(value.shape),
                "hex": value.array.tobytes().hex(),
            }
        case ShapeTuple():
            return {"t": "shape", "v": list(value)}
        case DataType():
            return {"t": "dtype", "v": str(value)}
        case str():
            return {"t": "str", "v": value}
        case list() | tuple():
            return {"t": "tuple", "v": [encode(item) for item in value]}
        case Closure():
            return {"t": "closure"}
        case _ if callable(value):
            return {"t": "func"}
        case _:
            return {"t": "object", "key": type(value).__name__}


def decode(record: dict[str, Any]) -> Any:
    """Return the value that a recorded file describes."""
    match record["t"]:
        case "none":
            return None
        case "bool" | "int" | "str":
            return record["v"]
        case "float":
            return float(record["v"])
        case "tensor":
            data = bytes.fromhex(record["hex"])
            return Tensor.from_bytes(data, record["shape"], record["dtype"])
        case "shape":
            return ShapeTuple(record["v"])
        case "dtype":
            return DataType(record["v"])
        case "tuple":
            return tuple(decode(item) for item in record["v"])
        case "kwargs":
            return {key: decode(item) for key, item in record["v"].items()}
        case kind:
            raise ValueError(f"cannot make a value of kind {kind!r}")


def close(got: dict[str, Any], want: dict[str, Any]) -> bool:
    """Whether two encoded values agree, tensors within 1e-6."""
    if got == want:
        return True
    if got["t"] != want["t"]:
        return False
    if got["t"] == "dtype":  # void is recorded in both of its spellings
        return DataType(got["v"]) is DataType(want["v"])
    if got["t"] == "tuple":
        same_length = len(got["v"]) == len(want["v"])
        return same_length and all(map(close, got["v"], want["v"]))
    if got["t"] == "tensor" and (got["dtype"], got["shape"]) == (want["dtype"], want["shape"]):
        return np.allclose(decode(got).array, decode(want).array, rtol=1e-6, atol=1e-6)
    return False


@cache
def recorded(name: str) -> Any:
    """Return one of the other recorded files: api, builtins or files."""
    return json.loads((golden_vm.FOLDER / f"{name}.json").read_text(encoding="utf-8"))


class GoldenLibrary:
    """The host functions that recorded programs call; README.md says what each means."""

    kind = "golden"

    def __init__(self) -> None:
        self.imports: list[Any] = []

    def get_function(self, name: str) -> Any:
        """Return the function ``golden.<name>``, or None."""
        return _FUNCTIONS.get(name)


def with_golden(executable: VMExecutable) -> VMExecutable:
    """Attach the host functions to an executable and return it."""
    executable.import_module(GoldenLibrary())
    return executable


def machine(name: str, exec_mode: str | None = None) -> VirtualMachine:
    """Return a fresh machine for a recorded executable."""
    data = golden_vm.executable_bytes(name)
    executable = with_golden(VMExecutable.load_from_bytes(data, verify=False))
    executable.import_module(RecordedKernels(golden_vm.case(name)["kernels"]))
    return VirtualMachine(executable, cpu(), exec_mode=exec_mode)


class RecordedKernels:
    """The generated kernels of a recorded program, made from the words that describe them."""

    kind = "recorded kernels"

    def __init__(self, words: dict[str, str]) -> None:
        self.imports: list[Any] = []
        self.words = words

    def get_function(self, name: str) -> Any:
        """Return the kernel called ``name``, or None."""
        words = self.words.get(name)
        if words is None:
            return None
        if name == "shape_func":
            slots = re.findall(r"H\[(\d+)\] = H\[(\d+)\]\*(\d+)", words)
            return functools.partial(_shape_func, [tuple(map(int, one)) for one in slots])
        return _KERNELS.get(name)  # a body of compiled mode is machine code: none


def _shape_func(slots: list[tuple[int, ...]], heap: Tensor) -> None:
    for target, source, factor in slots:
        heap.array[target] = heap.array[source] * factor


def _write(out: Tensor, values: Any) -> None:
    out.array[...] = values


_KERNELS = {
    "add": lambda a, b, out: _write(out, a.array + b.array),
    "equal": lambda a, b, out: _write(out, a.array == b.array),
    "multiply": lambda a, b, out: _write(out, a.array * b.array),
    "reshape1": lambda a, out: _write(out, a.array.reshape(out.shape)),
    "squeeze": lambda a, out: _write(out, a.array.reshape(())),
    "subtract": lambda a, b, out: _write(out, a.array - b.array),
}


def _fill(dst: Tensor, value: Any) -> None:
    dst.array[...] = value


def _copy_into(src: Tensor, dst: Tensor) -> None:
    dst.copyfrom(src)


_FUNCTIONS = {
    "golden.add": lambda a, b: a.numpy() + b.numpy(),
    "golden.mul": lambda a, b: a.numpy() * b.numpy(),
    "golden.iadd": lambda a, b: int(a) + int(b),
    "golden.imul": lambda a, b: int(a) * int(b),
    "golden.fill": _fill,
    "golden.copy_into": _copy_into,
    "golden.is_none": lambda value: value is None,
    "golden.kinds": lambda *args: tuple(encode(arg)["t"] for arg in args),
    "golden.nop": lambda *args: None,
}
