"""The Relax language and its compiler. Counterpart: ``tvm.relax``.

The language (expressions, types, operators, the block builder) is here at once; the compiler, the
analyses and the machine are loaded when first asked for.

Examples
--------
>>> from relaxlab import relax
>>> x = relax.Var("x", relax.TensorType([2, 3], "float32"))
>>> relax.op.exp(x).op.name
'relax.exp'
"""

from importlib import import_module
from typing import TYPE_CHECKING

from relaxlab.ir.expr import (
    Call,
    Expr,
    GenericConst,
    GlobalVar,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
)
from relaxlab.ir.global_info import DummyGlobalInfo, VDevice
from relaxlab.ir.source import Span
from relaxlab.ir.type import AnyType, FuncType, PrimType, TupleType, Type
from relaxlab.relax import op
from relaxlab.relax.block_builder import BlockBuilder
from relaxlab.relax.expr import (
    Binding,
    BindingBlock,
    DataflowBlock,
    DataflowVar,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    VarBinding,
)
from relaxlab.relax.expr_functor import (
    ExprFunctor,
    ExprMutator,
    ExprVisitor,
    PyExprMutator,
    PyExprVisitor,
)
from relaxlab.relax.literals import const, convert_to_expr, dtype_const, prim_value
from relaxlab.relax.op.base import (
    call_dps_packed,
    call_pure_packed,
    call_tir,
    call_tir_inplace,
    call_tir_with_grad,
)
from relaxlab.relax.op.shapes import get_shape_of
from relaxlab.relax.type import ShapeType, TensorType

if TYPE_CHECKING:
    from relaxlab.relax import (
        analysis,
        backend,
        dpl,
        expr_functor,
        pipeline,
        transform,
        vm_build,
    )
    from relaxlab.relax.exec_builder import ExecBuilder
    from relaxlab.relax.pipeline import get_default_pipeline, get_pipeline, register_pipeline
    from relaxlab.relax.vm_build import build
    from relaxlab.runtime.vm import VirtualMachine, VMExecutable

__all__ = [
    "AnyType",
    "Binding",
    "BindingBlock",
    "BlockBuilder",
    "Call",
    "DataflowBlock",
    "DataflowVar",
    "DummyGlobalInfo",
    "ExecBuilder",
    "Expr",
    "ExprFunctor",
    "ExprMutator",
    "ExprVisitor",
    "ExternFunc",
    "FuncType",
    "Function",
    "GenericConst",
    "GlobalVar",
    "If",
    "MatchCast",
    "PrimType",
    "PyExprMutator",
    "PyExprVisitor",
    "SeqExpr",
    "ShapeExpr",
    "ShapeType",
    "Span",
    "StringImm",
    "TensorType",
    "Tuple",
    "TupleGetItem",
    "TupleType",
    "Type",
    "VDevice",
    "VMExecutable",
    "Var",
    "VarBinding",
    "VirtualMachine",
    "analysis",
    "backend",
    "build",
    "call_dps_packed",
    "call_pure_packed",
    "call_tir",
    "call_tir_inplace",
    "call_tir_with_grad",
    "const",
    "convert_to_expr",
    "dpl",
    "dtype_const",
    "expr_functor",
    "frontend",
    "get_default_pipeline",
    "get_pipeline",
    "get_shape_of",
    "op",
    "pipeline",
    "prim_value",
    "register_pipeline",
    "transform",
    "vm_build",
]

#: Name to (module, attribute); no attribute means the module itself.
_LAZY: dict[str, tuple[str, str | None]] = {
    "ExecBuilder": ("relaxlab.relax.exec_builder", "ExecBuilder"),
    "VMExecutable": ("relaxlab.runtime.vm", "VMExecutable"),
    "VirtualMachine": ("relaxlab.runtime.vm", "VirtualMachine"),
    "analysis": ("relaxlab.relax.analysis", None),
    "backend": ("relaxlab.relax.backend", None),
    "build": ("relaxlab.relax.vm_build", "build"),
    "dpl": ("relaxlab.relax.dpl", None),
    "expr_functor": ("relaxlab.relax.expr_functor", None),
    "frontend": ("relaxlab.relax.frontend", None),
    "get_default_pipeline": ("relaxlab.relax.pipeline", "get_default_pipeline"),
    "get_pipeline": ("relaxlab.relax.pipeline", "get_pipeline"),
    "pipeline": ("relaxlab.relax.pipeline", None),
    "register_pipeline": ("relaxlab.relax.pipeline", "register_pipeline"),
    "transform": ("relaxlab.relax.transform", None),
    "vm_build": ("relaxlab.relax.vm_build", None),
}


def __getattr__(name: str) -> object:
    """Load what is behind a lazy name (PEP 562)."""
    try:
        module_name, attribute = _LAZY[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    module = import_module(module_name)
    value: object = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
