"""One kernel made of the kernels that a fused function calls.

Nothing is computed differently: the bodies stand one after the other in one block, and what one
writes for the next is a buffer that the block owns. Schedules may join the loops later.
Counterpart: what ``FuseTIR`` of TVM does per function (compiler.md, 6.6).

Examples
--------
>>> BlockNames().fresh("B1"), BlockNames().fresh("compute")
('B1', 'compute')
>>> names = BlockNames()
>>> [names.fresh(name) for name in ("B1", "B2", "B1", "compute", "compute", "T_cast_1")]
['B1', 'B2', 'B3', 'compute', 'compute1', 'T_cast_1']
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir import (
    BinaryExpr,
    Call,
    DictAttrs,
    Expr,
    GlobalVar,
    IntImm,
    IRModule,
    PrimType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    replace,
)
from relaxlab.ir.node import map_children, structural_equal
from relaxlab.ir.prim import TensorRegion
from relaxlab.ir.prim_functor import defined_vars, substitute
from relaxlab.ir.sym import Analyzer
from relaxlab.relax.expr import Function, ShapeExpr, ShapeType, TensorType, VarBinding
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx import PrimFunc
from relaxlab.tirx.buffer import BufferType, buffer_type, decl_buffer
from relaxlab.tirx.stmt import SBlock, SBlockRealize, Stmt, seq

__all__ = ["BlockNames", "FusedKernel", "fuse_kernels"]

_TRUE = IntImm(DataType("bool"), 1)


class BlockNames:
    """Gives each block name once; a number at the end is counted up."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._last: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """Return ``hint`` if it is free, else it with the next free number."""
        name = hint
        stem = hint.rstrip("0123456789") or hint
        while name in self._taken:
            self._last[stem] = self._last.get(stem, 0) + 1
            name = f"{stem}{self._last[stem]}"
        self._taken.add(name)
        return name


@dataclass(frozen=True, slots=True)
class FusedKernel:
    """The kernel, and which of its inputs each output overwrites (-1: none, it is a parameter)."""

    func: PrimFunc
    inplace_indices: tuple[int, ...]


def fuse_kernels(mod: IRModule, func: Function) -> FusedKernel:
    """Return the kernel that does what a fused function says.

    Parameters
    ----------
    mod
        Where the kernels are that it calls.
    func
        Its bindings are kernel calls, fields of tuples and tuples.

    Raises
    ------
    InternalError
        If it contains anything else, or the buffers of a kernel cannot be those it is given.
    """
    return _Fuser(mod, func).fuse()


class _Fuser:
    def __init__(self, mod: IRModule, func: Function) -> None:
        self.mod = mod
        self.func = func
        #: Buffers (or one scalar) that hold each variable's value; one per tensor of a tuple.
        self.values: dict[Expr, tuple[Expr, ...]] = {}
        self.params: list[Var] = []
        self.owned: list[Var] = []
        self.bodies: list[Stmt] = []
        self.analyzer = Analyzer()
        self.block_names = BlockNames()

    def fuse(self) -> FusedKernel:
        for param in self.func.params:
            self.add_param(param)
        for block in self.func.body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, VarBinding):
                    raise InternalError("MatchCast is unsupported in primitive functions")
                self.values[binding.var] = self.value(binding.value)
        outputs = self.value(self.func.body.body)
        given = list(self.params)
        fresh = [out for out in outputs if out not in given]
        for out in fresh:
            assert isinstance(out, Var)
            self.params.append(out)
        owned = tuple(buffer for buffer in self.owned if buffer not in fresh)
        root = SBlock((), (), (), "root", seq(self.bodies), alloc_buffers=owned)
        kernel = PrimFunc(
            tuple(self.params),
            SBlockRealize((), _TRUE, root),
            attrs=DictAttrs({"s_tir": True, "tirx.noalias": True}),
        )
        places = [given.index(out) if out in given else -1 for out in outputs]
        if len(set(outputs)) < len(outputs):
            raise InternalError("a fused function returns the same buffer twice")
        return FusedKernel(kernel, tuple(places))

    def add_param(self, param: Var) -> None:
        """Make the parameters that hold a parameter's value."""
        match param.ty:
            case TensorType(shape=ShapeExpr(values=dims), dtype=dtype) if dtype is not None:
                self.values[param] = (decl_buffer(dims, dtype, param.name),)
            case ShapeType(values=sizes) if sizes is not None:
                self.values[param] = tuple(size for size in sizes if isinstance(size, Var))
            case PrimType():
                self.values[param] = (param,)
            case TupleType():
                raise InternalError(
                    "All tuple parameters should be expanded before this point in FuseTIR.  "
                    f"However, parameter {param.name!r} has type {param.ty!r}; run "
                    "ExpandTupleArguments first"
                )
            case _:
                raise InternalError(
                    f"parameter {param.name!r} of a primitive function has type {param.ty!r}; "
                    "expected a tensor of known shape and dtype, a shape or a scalar"
                )
        for item in self.values[param]:
            assert isinstance(item, Var)
            if item not in self.params:
                self.params.append(item)

    def value(self, expr: Expr) -> tuple[Expr, ...]:
        """Return the buffers (or the scalar) of a value; a kernel call appends its body."""
        match expr:
            case Call():
                return self.call(expr)
            case Tuple(fields=fields):
                return tuple(item for field in fields for item in self.value(field))
            case TupleGetItem(tuple_value=source, index=index):
                assert isinstance(source.ty, TupleType)
                start = sum(map(_count, source.ty.fields[:index]))
                return self.value(source)[start : start + _count(source.ty.fields[index])]
            case _ if expr in self.values:
                return self.values[expr]
            case _ if isinstance(expr.ty, PrimType):
                return (expr,)
            case _:
                raise InternalError(
                    f"{type(expr).__name__} is not supported in primitive functions"
                )

    def call(self, call: Call) -> tuple[Expr, ...]:
        callee = call.args[0] if call.args else call.op
        kernel = self.mod.functions.get(callee) if isinstance(callee, GlobalVar) else None
        known = getattr(call.op, "name", "") in ("relax.call_tir", "relax.call_tir_inplace")
        if not known or not isinstance(callee, GlobalVar) or not isinstance(kernel, PrimFunc):
            raise InternalError(
                "Only call_tir and call_tir_inplace are supported in primitive function, but got: "
                f"{call}"
            )
        given = self.value(call.args[1])
        last = call.args[-1]
        sizes = last.values if isinstance(last, ShapeExpr) else ()
        indices = None if call.attrs is None else call.attrs.get("inplace_indices")
        return _Callee(self, kernel, callee.name_hint).inline(
            given, sizes, call.ty_args[0], indices
        )

    def own(self, buffer: Var, ty: BufferType) -> Var:
        """Make the buffer for an output of a kernel, named after it."""
        taken = {known.name for known in self.owned}
        name, count = f"{buffer.name}_intermediate", 0
        while name in taken:
            count += 1
            name = f"{name}_{count}"
        made = Var(name, ty)
        self.owned.append(made)
        return made


def _count(ty: Type) -> int:
    """Return how many tensors a type holds."""
    return sum(map(_count, ty.fields)) if isinstance(ty, TupleType) else 1


class _Callee:
    """One kernel on its way into the fused one."""

    def __init__(self, fuser: _Fuser, kernel: PrimFunc, name: str) -> None:
        self.fuser = fuser
        self.kernel = kernel
        self.name = name
        self.sizes: dict[Var, Expr] = {}
        self.buffers: dict[Var, Var] = {}

    def inline(
        self,
        given: Sequence[Expr],
        sizes: Sequence[Expr],
        ty: Type,
        inplace_indices: Sequence[int] | None,
    ) -> tuple[Expr, ...]:
        """Append the kernel's body; return the buffers of its outputs."""
        types = _tensor_types(ty)
        indices = tuple(inplace_indices) if inplace_indices is not None else (-1,) * len(types)
        params = self.kernel.params
        fresh = sum(index == -1 for index in indices)
        if len(params) != len(given) + fresh + len(sizes):
            raise InternalError(
                f"{self.name} has {len(params)} parameters, but the call passes {len(given)} "
                f"inputs, {fresh} outputs and {len(sizes)} sizes"
            )
        outputs = params[len(given) : len(given) + fresh]
        bound: list[tuple[Sequence[Expr], Sequence[Expr], str]] = []
        for param, arg in zip(params, (*given, *outputs, *sizes), strict=True):
            if arg is param:
                continue
            bound.append((*self.shapes(param, arg), param.name))
        new = [t for t, index in zip(types, indices, strict=True) if index == -1]
        for param, out in zip(outputs, new, strict=True):
            dims = out.get_shape()
            if dims is None:
                raise InternalError(f"the shape of the output of {self.name} is not known: {out!r}")
            bound.append((buffer_type(param).shape, dims, param.name))
        self.match(bound)
        # what the kernel owns comes before what it writes
        body = self.renamed_body()
        for param, out in zip(outputs, new, strict=True):
            shape = out.get_shape()
            assert shape is not None
            made = self.fuser.own(param, replace(buffer_type(param), shape=shape))
            self.buffers[param] = made
        self.fuser.bodies.append(self.finished(body))
        made_in_order = iter(outputs)
        return tuple(
            self.buffers[next(made_in_order)] if index == -1 else given[index] for index in indices
        )

    def shapes(self, param: Var, arg: Expr) -> tuple[Sequence[Expr], Sequence[Expr]]:
        """Note what stands for a parameter; return what must agree: sizes here and there."""
        if not isinstance(param.ty, BufferType):
            return (param,), (arg,)
        if not isinstance(arg, Var) or not isinstance(arg.ty, BufferType):
            raise InternalError(f"{self.name} wants a tensor as {param.name!r}, got {arg}")
        if arg.ty.dtype != param.ty.dtype or len(arg.ty.shape) != len(param.ty.shape):
            raise self.inconsistent(param.name, buffer_type(param).shape, arg.ty.shape)
        self.buffers[param] = arg
        return param.ty.shape, arg.ty.shape

    def match(self, bound: Sequence[tuple[Sequence[Expr], Sequence[Expr], str]]) -> None:
        """Find what the kernel's symbolic variables stand for, and check all other sizes."""
        pending: list[tuple[Expr, Expr, str]] = []
        for here, there, name in bound:
            for size, value in zip(here, there, strict=True):
                if isinstance(size, Var) and size not in self.sizes:
                    self.sizes[size] = value
                else:
                    pending.append((size, value, name))
        for size, value, name in pending:
            self.match_parts(size, value)
            known = substitute(size, self.sizes)
            if isinstance(known, IntImm) and isinstance(value, IntImm):
                equal = known.value == value.value
            else:
                equal = structural_equal(known, value) or self.fuser.analyzer.can_prove_equal(
                    known, value
                )
            if not equal:
                raise self.inconsistent(name, (size,), (value,))

    def match_parts(self, size: Expr, value: Expr) -> None:
        """Find variables inside of a computed size (``n + m``) by its form."""
        if isinstance(size, Var):
            self.sizes.setdefault(size, value)
        elif isinstance(size, BinaryExpr) and isinstance(value, type(size)):
            self.match_parts(size.a, value.a)
            self.match_parts(size.b, value.b)

    def inconsistent(self, name: str, here: Sequence[Expr], there: Sequence[Expr]) -> InternalError:
        return InternalError(
            f"Inconsistent buffers: {self.name} expects {tuple(here)} for {name!r}, but is given "
            f"{tuple(there)}"
        )

    def renamed_body(self) -> Stmt:
        """Return the kernel's body with variables of its own; what it owns is owned outside."""
        body = self.kernel.body
        owned: tuple[Var, ...] = ()
        if isinstance(body, SBlockRealize) and not body.block.iter_vars and not body.iter_values:
            owned, body = body.block.alloc_buffers, body.block.body
        for buffer in owned:
            fresh = Var(buffer.name, substitute(buffer_type(buffer), self.sizes))
            self.buffers[buffer] = fresh
            self.fuser.owned.append(fresh)
        return body

    def finished(self, body: Stmt) -> Stmt:
        """Return a body in terms of the fused kernel."""
        known: dict[Var, Any] = {**self.sizes, **self.buffers}
        for var in defined_vars(body):
            if var not in known:
                ty = var.ty
                known[var] = Var(var.name, ty if ty is None else substitute(ty, self.sizes))
        renamed: Stmt = self.with_own_names(substitute(body, known))
        return renamed

    def with_own_names(self, node: Any) -> Any:
        """Give blocks names of their own, and list each buffer that one touches once."""
        if not isinstance(node, Stmt):
            return node
        node = map_children(node, self.with_own_names)
        if not isinstance(node, SBlock):
            return node
        return replace(
            node,
            name_hint=self.fuser.block_names.fresh(node.name_hint),
            reads=_once(node.reads),
            writes=_once(node.writes),
        )


def _once(regions: tuple[TensorRegion, ...]) -> tuple[TensorRegion, ...]:
    """Keep the first region of each buffer: two buffers may have become one."""
    first: dict[Var, TensorRegion] = {}
    for region in regions:
        first.setdefault(region.buffer, region)
    return regions if len(first) == len(regions) else tuple(first.values())


def _tensor_types(ty: Type) -> list[TensorType]:
    fields = ty.fields if isinstance(ty, TupleType) else (ty,)
    types = [field for field in fields if isinstance(field, TensorType)]
    if len(types) != len(fields):
        raise InternalError(f"the output of a kernel must be tensors, got {ty!r}")
    return types
