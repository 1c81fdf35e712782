"""Random scalar expressions are built and simplified to the text that the real TVM gives them."""

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from relaxlab.ir import IntImm, Range, Var, prim_ops
from relaxlab.ir.sym import Analyzer

PROGRAM = Path(__file__).with_name("arithmetic_programs.py")
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
NAMES: dict[str, Any] = {name: getattr(prim_ops, name) for name in prim_ops.__all__}
NAMES |= {f"{v}_{dtype}": Var(f"{v}_{dtype}", dtype) for v in "xy" for dtype in DTYPES}
NAMES |= {name: Var(name, "int64") for name in "xyzn"}
BOUNDS = {"x": [0, 4], "y": [0, 8]}


def ask(python: Path, folder: Path, cases: list[Any]) -> list[str | None]:
    """Return what the real TVM makes of the cases."""
    file = folder / "cases.json"
    file.write_text(json.dumps(cases))
    done = subprocess.run([python, PROGRAM, file], check=True, capture_output=True, timeout=120)
    texts: list[str | None] = json.loads(done.stdout)["texts"]
    return texts


def built(pick: random.Random) -> str:
    """Return one operator on random operands."""

    def operand() -> str:
        dtype = pick.choice(DTYPES)
        if pick.random() < 0.5:
            return f"{pick.choice('xy')}_{dtype}"
        value: float = pick.choice([0, 1]) if dtype == "bool" else pick.choice([0, 1, 2, 7, 100])
        if "float" in dtype:
            value = pick.choice([0.0, 1.0, -1.5, 0.1])
        return f"const({value}, {dtype!r})"

    a, b = operand(), operand()
    symbol = pick.choice(["+", "-", "*", "<", "<=", ">", "max", "min", "abs", "exp"])
    if symbol in ("abs", "exp"):
        return f"{symbol}({a})"
    return f"{symbol}({a}, {b})" if symbol in ("max", "min") else f"({a} {symbol} {b})"


def grown(pick: random.Random, operators: list[str], depth: int) -> str:
    """Return a random integer expression."""
    if depth == 0 or pick.random() < 0.15:
        return pick.choice(["x", "y", "z", "n", "const(2, 'int64')", "const(3, 'int64')"])
    operator = pick.choice(operators)
    a = grown(pick, operators, depth - 1)
    b = grown(pick, operators, depth - 1)
    if operator in ("//", "%"):
        b = str(pick.choice([2, 3, 4, 8]))
    return f"{operator}({a}, {b})" if operator in ("max", "min") else f"({a} {operator} {b})"


def test_operators_build_what_tvm_builds(oracle_python: Path, tmp_path: Path) -> None:
    pick = random.Random(1)
    cases = [["build", built(pick), {}] for _ in range(600)]
    wrong = []
    for (_, text, _), expected in zip(cases, ask(oracle_python, tmp_path, cases), strict=True):
        if expected is not None:
            ours = str(eval(text, NAMES))  # noqa: S307  # our own text
            if ours != expected:
                wrong.append((text, expected, ours))
    assert not wrong


@pytest.mark.parametrize(
    ("operators", "bounds"),
    [
        (["+", "-", "*"], {}),
        (["+", "*", "//", "%"], {}),
        (["+", "-", "//", "*"], {}),
        (["+", "*", "//", "%"], BOUNDS),
        (["+", "-", "max", "min"], {}),
    ],
    ids=["affine", "index", "shape", "bounded", "extrema"],
)
def test_simplified_text_is_tvms(
    oracle_python: Path, tmp_path: Path, operators: list[str], bounds: dict[str, Any]
) -> None:
    pick = random.Random(5)
    cases = [["simplify", grown(pick, operators, 3), bounds] for _ in range(150)]
    wrong = []
    for (_, text, _), expected in zip(cases, ask(oracle_python, tmp_path, cases), strict=True):
        analyzer = Analyzer()
        for name, (low, extent) in bounds.items():
            span = Range(IntImm("int64", low), IntImm("int64", extent))
            analyzer.bind(NAMES[name], span)
        ours = str(analyzer.simplify(eval(text, NAMES)))  # noqa: S307  # our own text
        if expected is not None and ours != expected:
            wrong.append((text, expected, ours))
    assert not wrong
