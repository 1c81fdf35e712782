"""Make safetensors.json: what the reference library writes, and what it refuses.

Usage: python make_safetensors.py  (needs safetensors==0.8.0)
"""

import ctypes
import json
from pathlib import Path

import safetensors
from safetensors import TensorSpec, deserialize, serialize

WIDTHS = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "float8_e5m2": 1,
    "float8_e4m3fn": 1,
    "float8_e8m0fnu": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "float64": 8,
    "int64": 8,
    "uint64": 8,
}


def save(tensors, metadata=None):
    """Return what the library writes for {name: (dtype, shape, bytes)}."""
    kept = []  # the library reads memory by address
    specs = {}
    for name, (dtype, shape, data) in tensors.items():
        kept.append(ctypes.create_string_buffer(data, max(1, len(data))))
        specs[name] = TensorSpec(
            dtype=dtype, shape=shape, data_ptr=ctypes.addressof(kept[-1]), data_len=len(data)
        )
    raw = bytes(serialize(specs, metadata))
    return {
        "tensors": {
            name: {"t": "tensor", "dtype": dtype, "shape": shape, "hex": data.hex()}
            for name, (dtype, shape, data) in tensors.items()
        },
        "metadata": metadata,
        "hex": raw.hex(),
    }


def file(header, data=b""):
    """Return the bytes of a hand-made file."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


HAND_MADE = {
    "a gap": file({"a": entry("U8", [1], 1, 2)}, b"ab"),
    "more data": file({"a": entry("U8", [1], 0, 1)}, b"ab"),
    "less data": file({"a": entry("U8", [2], 0, 2)}, b"a"),
    "an overlap": file({"a": entry("U8", [2], 0, 2), "b": entry("U8", [2], 1, 3)}, b"abc"),
    "another order": file({"b": entry("U8", [1], 1, 2), "a": entry("U8", [1], 0, 1)}, b"ab"),
    "an empty tensor": file({"a": entry("U8", [0], 0, 0), "b": entry("U8", [1], 0, 1)}, b"a"),
    "metadata of numbers": file({"__metadata__": {"a": 1}, "a": entry("U8", [1], 0, 1)}, b"a"),
    "spaces": file(b'  {"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   ', b"a"),
    "an unknown key": file({"a": {**entry("U8", [1], 0, 1), "z": 1}}, b"a"),
    "another size": file({"a": entry("U8", [2], 0, 1)}, b"a"),
    "an unknown type": file({"a": entry("XX", [1], 0, 1)}, b"a"),
    "a negative extent": file({"a": entry("U8", [-1], 0, 1)}, b"a"),
    "nothing": file({}),
    "a list": file([]),
    "no header": b"\x05",
    "a long header": file({})[:8],
    "no json": file(b"nonsense"),
}


def accepts(data):
    try:
        deserialize(data)
    except safetensors.SafetensorError:
        return False
    return True


if __name__ == "__main__":
    every = {
        f"t{index:02}": (dtype, [1], bytes([index] * width))
        for index, (dtype, width) in enumerate(WIDTHS.items())
    }
    names = {
        "b": ("float32", [], b"abcd"),
        "a": ("float32", [0, 3], b""),
        'é"\\\n/': ("int8", [3], b"abc"),
        "B": ("float32", [2, 1], bytes(8)),
    }
    cases = [save(every), save(names, {"format": "pt"}), save({})]
    files = {
        name: {"hex": data.hex(), "accepted": accepts(data)} for name, data in HAND_MADE.items()
    }
    document = {"version": safetensors.__version__, "saved": cases, "files": files}
    path = Path(__file__).with_name("safetensors.json")
    path.write_text(json.dumps(document, indent=1) + "\n")
