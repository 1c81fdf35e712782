"""Write and read weights with the real TVM. Usage: python params_programs.py FOLDER.

FOLDER holds one folder for each case, with `inputs.npz` (weights), `options.json`, and what we
wrote: `ours/` (a tensor cache) and `ours.params`. TVM's go beside them. Needs TVM and nothing of
ours.
"""

import contextlib
import io
import json
import sys
from pathlib import Path

import numpy as np
import tvm
from tvm.contrib import tvmjs


def same(one, other):
    """Whether two mappings of tensors hold the same bits, in the same order."""
    return list(one) == list(other) and all(
        str(one[name].dtype) == str(other[name].dtype)
        and one[name].numpy().tobytes() == other[name].numpy().tobytes()
        for name in one
    )


def run(case):
    options = json.loads((case / "options.json").read_text())
    arrays = np.load(case / "inputs.npz")
    params = {name: tvm.runtime.tensor(arrays[name]) for name in arrays}
    with contextlib.redirect_stdout(io.StringIO()):
        tvmjs.dump_tensor_cache(params, str(case / "theirs"), **options)
        cache = tvmjs.load_tensor_cache(str(case / "ours"), tvm.cpu())
        again = tvmjs.load_tensor_cache(str(case / "theirs"), tvm.cpu())
    (case / "theirs.params").write_bytes(tvm.runtime.save_param_dict(params))
    loaded = tvm.runtime.load_param_dict((case / "ours.params").read_bytes())
    loaded = {name: loaded[name] for name in params}
    return same(cache[0], again[0]) and cache[1] == again[1] and same(loaded, params)


if __name__ == "__main__":
    print(json.dumps({case.name: run(case) for case in sorted(Path(sys.argv[1]).iterdir())}))
