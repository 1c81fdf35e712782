"""Values in the recorded JSON files, and the host functions that recorded programs call."""

import json
from functools import cache
from typing import Any

import numpy as np

from relaxlab.runtime import DataType, ShapeTuple, Tensor, VirtualMachine, cpu, register_global_func
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


def machine(name: str) -> VirtualMachine:
    """Return a fresh machine for a recorded executable."""
    return VirtualMachine(
        VMExecutable.load_from_bytes(golden_vm.executable_bytes(name), verify=False), cpu()
    )


def golden_fill(dst: Tensor, value: Any) -> None:
    """Fill a tensor."""
    dst.array[...] = value


def golden_copy_into(src: Tensor, dst: Tensor) -> None:
    """Copy a tensor's elements."""
    dst.copyfrom(src)


register_global_func("golden.add", lambda a, b: a.numpy() + b.numpy(), override=True)
register_global_func("golden.mul", lambda a, b: a.numpy() * b.numpy(), override=True)
register_global_func("golden.iadd", lambda a, b: int(a) + int(b), override=True)
register_global_func("golden.imul", lambda a, b: int(a) * int(b), override=True)
register_global_func("golden.fill", golden_fill, override=True)
register_global_func("golden.copy_into", golden_copy_into, override=True)
register_global_func("golden.is_none", lambda value: value is None, override=True)
register_global_func(
    "golden.kinds", lambda *args: tuple(encode(arg)["t"] for arg in args), override=True
)
register_global_func("golden.nop", lambda *args: None, override=True)
