"""The recorded compiler cases, and the names that their code snippets expect."""

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

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
