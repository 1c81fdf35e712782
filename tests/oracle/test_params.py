"""Weights written here and with the real TVM: the same bytes, and each reads the other's."""

import json
import subprocess
from pathlib import Path

import numpy as np

from relaxlab.runtime import (
    dump_tensor_cache,
    load_param_dict,
    load_tensor_cache,
    save_param_dict,
)

RUNNER = Path(__file__).with_name("params_programs.py")
DTYPES = ("float32", "float32", "float16", "float64", "int8", "int32", "int64", "uint8", "bool")
COUNT = 12


def weights(rng):
    """Return weights of random types, shapes and bits (NaN and infinities too)."""
    found = {}
    for number in range(rng.integers(0, 9)):
        shape = tuple(rng.integers(1, 40, size=rng.integers(0, 4)))
        dtype = np.dtype(rng.choice(DTYPES))
        size = int(np.prod(shape)) * dtype.itemsize
        bits = np.frombuffer(rng.bytes(size), np.uint8)
        if dtype.kind == "b":
            bits = bits & 1
        found[f"w{number}"] = bits.view(dtype).reshape(shape)
    return found


def content(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_weights_are_the_same_bytes_in_both_directions(oracle_python, tmp_path):
    rng = np.random.default_rng(5)
    cases = {}
    for number in range(COUNT):
        case = tmp_path / f"case{number:02}"
        params = cases[case.name] = weights(rng)
        form = ("raw", "f32-to-bf16")[number % 2]
        options = {"encode_format": form, "shard_cap_mb": number % 3 and 1}
        options["meta_data"] = {"number": number, "text": "é"} if number % 4 else None
        case.mkdir()
        np.savez(case / "inputs.npz", **params)
        (case / "options.json").write_text(json.dumps(options))
        dump_tensor_cache(params, case / "ours", **options)
        (case / "ours.params").write_bytes(save_param_dict(params))
    done = subprocess.run(
        [oracle_python, RUNNER, tmp_path], capture_output=True, text=True, check=True, timeout=120
    )
    assert json.loads(done.stdout) == dict.fromkeys(cases, True)
    for name, params in cases.items():
        case = tmp_path / name
        assert content(case / "ours") == content(case / "theirs"), name
        assert (case / "ours.params").read_bytes() == (case / "theirs.params").read_bytes()
        loaded = load_param_dict((case / "theirs.params").read_bytes())
        cached, _ = load_tensor_cache(case / "theirs")
        for key, value in params.items():
            assert loaded[key].array.tobytes() == value.tobytes()
            assert cached[key].shape == value.shape
