"""Run by a Python with the real TVM: evaluate scalar expressions, print their text as JSON.

usage: arithmetic_programs.py FILE    FILE: a list of [mode, expression, bounds]; mode is "build"
or "simplify"; output: a list of texts, or null where TVM refuses
"""

import json
import sys
from pathlib import Path

import tvm
from tvm import ir, sym, tirx

DTYPES = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
    "float16",
    "float32",
    "float64",
    "bfloat16",
]
NAMES = {name: getattr(tirx, name) for name in ("max", "min", "floordiv", "floormod", "abs", "exp")}
NAMES |= {name: getattr(tirx, name) for name in ("truncdiv", "truncmod", "const", "if_then_else")}
NAMES |= {f"{v}_{dtype}": tirx.Var(f"{v}_{dtype}", dtype) for v in "xy" for dtype in DTYPES}
NAMES |= {name: tirx.Var(name, "int64") for name in "xyzn"}


def run(mode: str, text: str, bounds: dict[str, list[int]]) -> str | None:
    try:
        expr = eval(text, NAMES)  # noqa: S307  # the test's own text
        if mode == "build":
            return str(expr).strip()
        analyzer = sym.Analyzer()
        for name, (low, extent) in bounds.items():
            literals = (tirx.const(v, "int64") for v in (low, extent))
            analyzer.bind(NAMES[name], ir.Range.from_min_extent(*literals))
        return str(analyzer.simplify(expr)).strip()
    except (Exception, SystemExit):  # noqa: BLE001  # whatever it does, the answer is "refused"
        return None


cases = json.loads(Path(sys.argv[1]).read_text())
json.dump({"tvm": tvm.__version__, "texts": [run(*case) for case in cases]}, sys.stdout)
