"""Random direct calls of builtins as plain data, for both sides.

Most calls have arguments of the right kinds; some have one of a wrong kind, one too few or one too
many. Run as a program it makes the calls with the real TVM, each in a process of its own, and
nothing of relaxlab is imported: ``python builtin_calls.py < calls.json > results.json``.
"""

import json
import os
import random
import sys
from typing import Any

import numpy as np

TENSORS: list[tuple[str, list[Any]]] = [
    ("float32", [0.5, -1.25, 2.0]),
    ("float32", [[0.1, 0.2, 0.7]]),
    ("float32", [[1.0, 2.0], [3.0, 4.0]]),
    ("int64", [4, 5, 6]),
    ("int64", [2, 3]),
    ("int32", [0, 2]),
    ("int32", [[1], [2]]),
    ("int16", [7]),
    ("int8", [1, 0]),
    ("uint8", [0, 1]),
    ("bool", [True]),
    ("float32", []),
]
SCALARS = [("int64", 3), ("bool", False), ("float32", 1.5), ("int32", 0)]


def tensor(dtype: str, values: Any) -> dict[str, Any]:
    array = np.array(values, dtype)
    return {
        "t": "tensor",
        "dtype": dtype,
        "shape": list(array.shape),
        "hex": array.tobytes().hex(),
    }


def plain(kind: str, value: Any) -> dict[str, Any]:
    return {"t": kind, "v": value}


def value(rng: random.Random, kind: str) -> dict[str, Any]:
    """Return a random value of a kind, as the recorded files write it."""
    match kind:
        case "int":
            return plain("int", rng.choice([0, 1, 2, 3, -1, 5]))
        case "small":
            return plain("int", rng.choice([0, 1, 2]))
        case "bool":
            return plain("bool", rng.random() < 0.5)
        case "float":
            return plain("float", repr(rng.choice([0.0, 0.5, 1.0, 0.9, 2.5])))
        case "str":
            return plain("str", rng.choice(["ctx", "", "a text of some length"]))
        case "shape":
            return plain("shape", [rng.choice([1, 2, 3, 4]) for _ in range(rng.randint(0, 3))])
        case "dtype":
            return plain("dtype", rng.choice(["float32", "int64", "int8", "bool"]))
        case "none":
            return {"t": "none"}
        case "tuple":
            kinds = [
                rng.choice(["int", "str", "shape", "any_tensor"]) for _ in range(rng.randint(0, 3))
            ]
            return plain("tuple", [value(rng, one) for one in kinds])
        case "heap":
            return tensor("int64", [10, 2, 3])
        case "row":
            return tensor("float32", [[rng.choice([0.1, 0.5, 0.25, 1.0]) for _ in range(4)]])
        case "ids":
            return tensor("int32", [rng.randint(0, 3) for _ in range(2)])
        case _:
            return tensor(*rng.choice(TENSORS + SCALARS))


SIGNATURES: dict[str, list[str]] = {
    "apply_presence_and_frequency_penalty": ["row", "ids", "ids", "float", "float"],
    "apply_repetition_penalty": ["row", "ids", "float"],
    "check_func_info": ["any_tensor", "str"],
    "check_prim_value_info": ["int", "dtype", "str"],
    "check_shape_info": ["shape", "small", "str"],
    "check_string_info": ["str", "str"],
    "check_tensor_info": ["any_tensor", "small", "dtype", "str"],
    "check_tuple_info": ["tuple", "small", "str"],
    "copy": ["int"],
    "ensure_zero_offset": ["any_tensor"],
    "make_prim_value": ["heap", "small", "small"],
    "make_shape": ["heap", "pairs"],
    "make_tuple": ["int", "str", "any_tensor"],
    "match_prim_value": ["int", "heap", "small", "small", "str"],
    "match_shape": ["shape", "heap", "pairs", "str"],
    "multinomial_from_uniform": ["row", "row"],
    "null_value": [],
    "param_array_from_cache_by_name_unpacked": [],
    "read_if_cond": ["bool"],
    "reshape": ["any_tensor", "shape"],
    "sample_top_p_from_logits": ["row", "float", "float", "float"],
    "sample_top_p_from_prob": ["row", "float", "float"],
    "shape_of": ["any_tensor"],
    "tensor_cache.get": ["str"],
    "tensor_cache.remove": ["str"],
    "tensor_to_shape": ["any_tensor"],
    "to_device": ["any_tensor", "one", "zero"],
    "tuple_getitem": ["tuple", "small"],
    "tuple_reset_item": ["tuple", "small"],
}
KINDS = ["int", "bool", "float", "str", "shape", "dtype", "tuple", "any_tensor"]


def call(seed: int) -> dict[str, Any]:
    """Return one call: the name, and the arguments."""
    rng = random.Random(seed)
    name = rng.choice(sorted(SIGNATURES))
    args: list[dict[str, Any]] = []
    for kind in SIGNATURES[name]:
        if kind == "pairs":
            count = rng.randint(0, 3)
            args.append(plain("int", count))
            for _ in range(count):
                args += [plain("int", rng.randint(0, 3)), plain("int", rng.randint(0, 2))]
        elif kind in ("one", "zero"):
            args.append(plain("int", int(kind == "one")))
        else:
            args.append(value(rng, kind))
    fault = rng.random()
    if fault < 0.15 and args:
        at = rng.randrange(len(args))
        args[at] = value(rng, rng.choice(KINDS))
    elif fault < 0.18 and name not in ("match_shape", "make_shape"):
        args.append(value(rng, rng.choice(KINDS)))
    elif fault < 0.21 and args and name not in ("match_shape", "make_shape"):
        args.pop()
    return {"name": f"vm.builtin.{name}", "args": args}


def main() -> None:
    import tvm  # noqa: PLC0415  # only where it runs as a program
    import tvm_ffi  # noqa: PLC0415

    def decode(record: Any) -> Any:
        match record["t"]:
            case "none":
                return None
            case "float":
                return float(record["v"])
            case "tensor":
                data = np.frombuffer(bytes.fromhex(record["hex"]), record["dtype"])
                return tvm.runtime.tensor(data.reshape(record["shape"]).copy())
            case "shape":
                return tvm_ffi.Shape(record["v"])
            case "dtype":
                return tvm.DataType(record["v"])
            case "tuple":
                return tvm_ffi.convert(tuple(map(decode, record["v"])))
            case _:
                return record["v"]

    def encode(found: Any) -> Any:
        match found:
            case None:
                return {"t": "none"}
            case bool():
                return plain("bool", found)
            case int():
                return plain("int", found)
            case float():
                return plain("float", repr(found))
            case tvm.runtime.Tensor():
                array = found.numpy()
                data = array.tobytes().hex()
                shape = [int(one) for one in found.shape]
                return {"t": "tensor", "dtype": str(found.dtype), "shape": shape, "hex": data}
            case tvm_ffi.Shape():
                return plain("shape", [int(one) for one in found])
            case tvm_ffi.dtype():
                return plain("dtype", str(found))
            case str():
                return plain("str", str(found))
            case _:
                return plain("tuple", [encode(one) for one in found])

    def made(one: Any) -> Any:
        args = [decode(arg) for arg in one["args"]]
        try:
            result = encode(tvm.get_global_func(one["name"])(*args))
        except Exception as error:  # noqa: BLE001  # which one it is is the answer
            return type(error).__name__
        return [result, [encode(arg) for arg in args]]

    results = []
    for one in json.load(sys.stdin):
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            os.close(2)
            os.write(writing, json.dumps(made(one)).encode())
            os._exit(0)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        os.waitpid(child, 0)
        results.append(json.loads(text) if text else "crash")
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
