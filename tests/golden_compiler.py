"""The recorded compiler cases, and the names that their code snippets expect."""

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import relaxlab as tvm
from relaxlab import relax, te, tirx, topi
from relaxlab.ir import PrimType
from relaxlab.relax import op

GOLDEN = Path(__file__).parent / "golden" / "compiler"


@cache
def document(name: str) -> dict[str, Any]:
    """Return a recorded file."""
    loaded: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text())
    return loaded


def cases() -> list[str]:
    """Return the names of the recorded modules."""
    return sorted(path.stem for path in (GOLDEN / "modules").glob("*.txt"))


def source(name: str) -> str:
    """Return the TVMScript of a recorded module."""
    return (GOLDEN / "modules" / f"{name}.txt").read_text()


def script_of(doc: dict[str, Any], ids: list[int] | str) -> str:
    """Return a recorded script: the pieces of text that its indices name, joined."""
    return ids if isinstance(ids, str) else "".join(doc["chunks"][i] for i in ids)


def scripts(name: str, pipeline: str = "default_build") -> list[tuple[str, str]]:
    """Return (pass, script after it) of a recorded module, the parsed one first."""
    doc = document(name)
    steps = [*doc["pre_passes"], *doc[pipeline]["passes"]]
    return [
        ("parsed", script_of(doc, doc["parsed"])),
        *((step["name"], script_of(doc, step["script"])) for step in steps),
    ]


def decode(record: dict[str, Any]) -> Any:
    """Return a recorded argument or result: a NumPy array, a tuple, a shape, a Python value."""
    match record["kind"]:
        case "tensor":
            dtype = tvm.DataType(record["dtype"]).numpy()
            values = [float(v) if isinstance(v, str) else v for v in record["values"]]
            return np.array(values, dtype).reshape(record["shape"])
        case "tuple":
            return tuple(decode(field) for field in record["fields"])
        case "shape":
            return tvm.runtime.ShapeTuple(record["values"])
        case "float":
            return float(record["value"])
        case _:
            return record["value"]


def names() -> dict[str, Any]:
    """Return the names in scope of a snippet of ``misc_cases.json``."""
    return {"relax": relax, "tvm": tvm, "R": op, "te": te, "topi": topi, "tirx": tirx, "T": tirx}


def without_check(message: str) -> str:
    """Drop the C++ condition that TVM puts in front of some messages."""
    return re.sub(r"^Check failed: (?:\(.*?\) is false|.*?\)) ?: ", "", message)


class Annotations:
    """``R`` in a parameter list: string dimensions are symbolic variables."""

    def __init__(self) -> None:
        self.variables: dict[str, relax.Var] = {}

    def _dims(self, shape: Any) -> Any:
        if shape is None:
            return None
        fresh = self.variables
        return [
            fresh.setdefault(d, relax.Var(d, "int64")) if isinstance(d, str) else d for d in shape
        ]

    def Tensor(self, shape: Any = None, dtype: Any = None, ndim: int = -1) -> relax.TensorType:
        if isinstance(shape, str):
            shape, dtype = None, shape
        return relax.TensorType(self._dims(shape), dtype, ndim=ndim)

    def Shape(self, values: Any = None, ndim: int = -1) -> relax.ShapeType:
        return relax.ShapeType(self._dims(values), ndim)

    def Prim(self, dtype: str) -> PrimType:
        return PrimType(dtype)


def parameters(text: str) -> list[relax.Var]:
    """Return the variables of a parameter list as ``op_cases.json`` writes it."""
    annotations = Annotations()
    parsed = ast.parse(f"def f({text}): pass").body[0]
    assert isinstance(parsed, ast.FunctionDef)
    params = []
    for arg in parsed.args.args:
        assert arg.annotation is not None
        ty = eval(  # noqa: S307  # our own recorded data
            compile(ast.Expression(arg.annotation), "<params>", "eval"), {"R": annotations}
        )
        params.append(relax.Var(arg.arg, ty() if callable(ty) else ty))
    return params


class Operators:
    """``R`` in a call: the operators, and the few names that are not operators."""

    const = staticmethod(relax.const)
    prim_value = staticmethod(relax.prim_value)
    shape = staticmethod(relax.ShapeExpr)
    Tensor = staticmethod(Annotations().Tensor)

    def __getattr__(self, name: str) -> Any:
        return getattr(op, name)
