"""Every family of kernels gives what TVM's compiled CPU kernels give, within exact()."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from relaxlab.codegen.attention import is_available
from relaxlab.runtime.kv.attention import FAMILIES, KernelSpec, pick
from relaxlab.runtime.kv.exact import exact
from relaxlab.runtime.kv.rope import Rope
from tests.oracle.attention_programs import DIM, PAGE, arrays, cases

PROGRAM = Path(__file__).with_name("attention_programs.py")
BOUND = {"float32": 3e-5, "float16": 4e-3}


@pytest.fixture(scope="module")
def theirs(oracle_python, tmp_path_factory):
    path = tmp_path_factory.mktemp("attention") / "tvm.npz"
    command = [oracle_python, str(PROGRAM), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(path) as found:
        return dict(found)


@pytest.mark.parametrize("family", ["reference", "numpy", "llvm"])
def test_kernels_agree_with_tvm(theirs, family):
    assert is_available() or family != "llvm"
    assert family in FAMILIES
    count = 0
    for name, kind, sizes, _, call in cases():
        heads, kv_heads = sizes["heads"]
        rope = Rope(DIM, 10000.0, 0.5, sizes["dim"], sizes["scaling"])
        page = 16 if "tree" in kind else PAGE
        spec = KernelSpec(heads, kv_heads, DIM, page_size=page, dtype=sizes["dtype"], rope=rope)
        with exact():
            pick(kind, spec, family)(*call)
        bound = BOUND[sizes["dtype"]]
        for position, ours in arrays(call).items():
            expected = theirs[f"{name}/{position}"].astype(np.float32)
            message = f"{name}, argument {position}"
            np.testing.assert_allclose(
                ours.astype(np.float32), expected, rtol=bound, atol=bound, err_msg=message
            )
            count += 1
    assert count == len(theirs)
