"""From a graph of tensors to a kernel.

Every compute becomes loops around one block, in dependency order; its tensor becomes a buffer:
a parameter when it is listed, else owned by the root block. Names are those of TVM: loops are
called as the axes, block variables ``v_<axis>``, blocks and buffers as the operation.
Counterpart: ``tvm.te.create_prim_func``.

Examples
--------
>>> from relaxlab import te
>>> a = te.placeholder((4,), "float32", "a")
>>> f = te.create_prim_func([a, te.compute((4,), lambda i: a[i] * 2.0, name="b")])
>>> [p.name for p in f.params], f.attrs["tirx.noalias"]
(['a', 'b'], True)
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from relaxlab.errors import InternalError
from relaxlab.ir import prim_ops
from relaxlab.ir.attrs import DictAttrs
from relaxlab.ir.expr import Expr, Var
from relaxlab.ir.node import Node
from relaxlab.ir.prim import IntImm, Range, Sub, TensorLoad
from relaxlab.ir.prim_functor import free_vars, substitute
from relaxlab.ir.sym import Analyzer
from relaxlab.runtime.dtype import DataType
from relaxlab.te.access_regions import access_regions
from relaxlab.te.element import ElementConverter, Role
from relaxlab.te.tensor import (
    ComputeOp,
    ExternOp,
    Operation,
    PlaceholderOp,
    Reduce,
    Tensor,
)
from relaxlab.tirx import (
    Bind,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    IterVar,
    IterVarType,
    PrimFunc,
    SBlock,
    SBlockRealize,
    Stmt,
    buffer_type,
    decl_buffer,
    seq,
)

__all__ = ["create_prim_func"]

_TRUE = IntImm(DataType("bool"), 1)
#: Names the tensors whose order of dimensions a schedule may change.
_LAYOUT_FREE = "layout_free_placeholders"


def create_prim_func(
    ops: Sequence[Tensor | Var],
    index_dtype_override: DataType | str | None = None,
) -> PrimFunc:
    """Make a kernel of the block dialect.

    Parameters
    ----------
    ops
        The parameters in order: inputs, outputs, and scalar variables.
    index_dtype_override
        Dtype of all loops, indices and extents; None keeps those of the tensors.

    Returns
    -------
    PrimFunc
        With ``global_symbol`` "main" and ``tirx.noalias``.

    Raises
    ------
    TypeError
        If a parameter is neither a tensor nor a scalar variable.
    InternalError
        If the computation reads a given tensor that is not a parameter.
    """
    for op in ops:
        if not isinstance(op, Tensor | Var):
            raise TypeError(
                "create_prim_func expects tensors and scalar variables as parameters, got "
                f"{type(op).__name__}"
            )
    dtype = None if index_dtype_override is None else DataType(index_dtype_override)
    return _Creator(tuple(ops), dtype).create()


def _ordered(tensors: Sequence[Tensor]) -> list[Operation]:
    """Operations in dependency order, from the first parameter on, each once."""
    order: dict[Operation, None] = {}
    for tensor in tensors:
        pending = [(tensor.op, False)]
        while pending:
            op, done = pending.pop()
            if op in order:
                continue
            if done:
                order[op] = None
            else:
                pending.append((op, True))
                pending.extend((t.op, False) for t in reversed(op.input_tensors))
    return list(order)


class _Names:
    """Unique block names: ``T_add``, ``T_add_1``, ..."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        hint = hint.replace(".", "_")
        name = hint
        while name in self._taken:
            self._taken[hint] += 1
            name = f"{hint}_{self._taken[hint]}"
        self._taken[name] = 0
        return name


class _Creator:
    """One conversion: which buffer each tensor became."""

    def __init__(self, params: tuple[Tensor | Var, ...], index_dtype: DataType | None) -> None:
        self.params = params
        self.listed = [p for p in params if isinstance(p, Tensor)]
        self.index_dtype = index_dtype
        self.analyzer = Analyzer()
        self.names = _Names()
        self.buffers: dict[Tensor, Var] = {}
        self.owned: list[Var] = []
        self.declared: dict[Tensor, Var] = {}

    def create(self) -> PrimFunc:
        order = _ordered(self.listed)
        for op in order:
            if isinstance(op, ExternOp):
                # an extern statement names its buffers itself: parameters take them over
                for tensor, buffer in zip(op.inputs, op.input_buffers, strict=True):
                    if isinstance(tensor.op, PlaceholderOp):
                        self.declared.setdefault(tensor, buffer)
                self.declared.update(zip(op.outputs, op.output_buffers, strict=True))
        body = [statement for op in order for statement in self._convert(op)]
        params = tuple(p if isinstance(p, Var) else self.buffers[p] for p in self.params)
        attrs: dict[str, Any] = {"global_symbol": "main", "s_tir": True, "tirx.noalias": True}
        free = self._layout_free(order)
        if free:
            attrs["layout_free_buffers"] = free
        return PrimFunc(params, self._root(body), attrs=DictAttrs(dict(sorted(attrs.items()))))

    def _layout_free(self, order: Sequence[Operation]) -> tuple[int, ...]:
        named = [t for op in order for t in op.attrs.get(_LAYOUT_FREE, ())]
        return tuple(i for i, p in enumerate(self.params) if any(p is t for t in named))

    def _root(self, body: list[Stmt]) -> Stmt:
        only = body[0] if len(body) == 1 else None
        if not self.owned and isinstance(only, SBlockRealize) and not only.block.iter_vars:
            return only  # a block without iteration is a root already
        statement = seq(body) if body else Evaluate(IntImm(DataType("int32"), 0))
        block = SBlock((), (), (), "root", statement, alloc_buffers=tuple(self.owned))
        return SBlockRealize((), _TRUE, block)

    # ------------------------------------------------------------ buffers

    def _buffer(self, tensor: Tensor, name: str) -> Var:
        """Make the buffer of a tensor: a parameter's, or one that the root block owns."""
        listed = any(p is tensor for p in self.listed)
        declared = self.declared.get(tensor)
        if declared is None:
            dims = tuple(self._index(dim) for dim in tensor.shape)
            declared = decl_buffer(dims, tensor.dtype, name)
        else:
            ty = buffer_type(declared)
            dims = tuple(self._index(dim) for dim in ty.shape)
            # memory of our own begins at its beginning
            offset = self._offset(ty.elem_offset) if listed else None
            if offset is not ty.elem_offset or any(
                a is not b for a, b in zip(dims, ty.shape, strict=True)
            ):
                declared = Var(declared.name, replace(ty, shape=dims, elem_offset=offset))
        self.buffers[tensor] = declared
        if not listed:
            self.owned.append(declared)
        return declared

    def _offset(self, offset: Expr | None) -> Expr | None:
        """Give an unknown offset the index dtype."""
        if isinstance(offset, Var) and self.index_dtype not in (None, offset.dtype):
            return Var(offset.name, self.index_dtype)
        return offset

    def _output_buffers(self, op: Operation) -> list[Var]:
        several = len(op.outputs) > 1
        return [
            self._buffer(tensor, f"{op.name}_v{i}" if several else op.name)
            for i, tensor in enumerate(op.outputs)
        ]

    # ------------------------------------------------------------ statements

    def _convert(self, op: Operation) -> list[Stmt]:
        match op:
            case PlaceholderOp():
                if not any(p is op.output(0) for p in self.listed):
                    raise InternalError(
                        f"the computation reads tensor {op.name!r}, which is given from outside "
                        "but is no parameter; add it to the list given to create_prim_func"
                    )
                self._buffer(op.output(0), op.name)
                return []
            case ComputeOp():
                return [self._compute(op)]
            case ExternOp():
                return [self._extern(op)]
            case _:
                raise TypeError(f"create_prim_func cannot convert a {type(op).__name__}")

    def _extern(self, op: ExternOp) -> Stmt:
        known: dict[Var, Var] = {}
        for tensor, buffer in zip(op.inputs, op.input_buffers, strict=True):
            known[buffer] = self.buffers[tensor]
        for i, (tensor, buffer) in enumerate(zip(op.outputs, op.output_buffers, strict=True)):
            several = len(op.outputs) > 1
            known[buffer] = self._buffer(tensor, f"{op.name}_v{i}" if several else op.name)
        body = substitute(op.body, {k: v for k, v in known.items() if k is not v})
        block = SBlock(
            (), (), (), self.names.fresh(op.name), body, annotations=self._annotations(op)
        )
        return SBlockRealize((), _TRUE, block)

    def _compute(self, op: ComputeOp) -> Stmt:
        buffers = self._output_buffers(op)
        axes = (*op.axis, *op.reduce_axis)
        levels = _levels(axes)
        if len(levels) > 1:
            return self._nested(op, buffers, levels)
        domains = [self._domain(axis.dom) for axis in axes]
        loops = [
            Var(axis.var.name, dom.extent.dtype) for axis, dom in zip(axes, domains, strict=True)
        ]
        if isinstance(op.body[0], Reduce) or len(buffers) == 1:
            body = self._block(op, buffers, op.body, axes, domains, loops, op.name)
        else:
            # elementwise results share the loops, not the block
            body = seq(
                [
                    self._block(op, [buffer], (value,), axes, domains, loops, buffer.name)
                    for buffer, value in zip(buffers, op.body, strict=True)
                ]
            )
        return _looped(body, loops, domains)

    def _nested(self, op: ComputeOp, buffers: list[Var], levels: list[list[IterVar]]) -> Stmt:
        """Convert a reduction whose extents depend on other axes: one block inside the other.

        Every block has the variables of the blocks around it, and those of its own axes. What
        comes first is done by the outermost block that has a reduction axis.
        """
        reduce = op.body[0]
        assert isinstance(reduce, Reduce), "only reductions have axes that depend on others"
        first_reducing = next(
            i for i, axes in enumerate(levels) if any(_is_reduction(axis) for axis in axes)
        )
        names = [
            op.name if i + 1 == len(levels) else f"{op.name}_l{i + 1}" for i in range(len(levels))
        ]
        names = [self.names.fresh(name) for name in names]

        def level(i: int, carried: list[tuple[IterVar, Var]]) -> Stmt:
            known: dict[Node, Expr] = {axis.var: var for axis, var in carried}
            domains = [self._domain(axis.dom, known) for axis in levels[i]]
            loops = [
                Var(axis.var.name, dom.extent.dtype)
                for axis, dom in zip(levels[i], domains, strict=True)
            ]
            inside = [
                (axis, Var(f"v_{axis.var.name}", var.dtype))
                for axis, var in (*carried, *zip(levels[i], loops, strict=True))
            ]
            spans = [*(self._same(axis, var) for axis, var in carried), *domains]
            iter_vars = tuple(
                IterVar(span, var, axis.iter_type)
                for span, (axis, var) in zip(spans, inside, strict=True)
            )
            convert = ElementConverter(
                self.buffers, {axis.var: var for axis, var in inside}, self.index_dtype
            )
            own = dict(inside)
            indices = tuple(own[axis] for axis in op.axis)
            innermost = i + 1 == len(levels)
            body, init = self._reduction(reduce, buffers, indices, convert)
            if not innermost:
                body = level(i + 1, inside)
            block_init = init if i == first_reducing else None
            reads, writes = access_regions(body, block_init, iter_vars)
            block = SBlock(
                iter_vars,
                reads,
                writes,
                names[i],
                body,
                block_init,
                annotations=self._annotations(op) if innermost else {},
            )
            values = (*(var for _, var in carried), *loops)
            return _looped(SBlockRealize(values, _TRUE, block), loops, domains)

        return level(0, [])

    def _same(self, axis: IterVar, var: Var) -> Range:
        """Return the domain of a variable that repeats one of the block around.

        Where the axis was counted in another dtype, TVM takes the extent 1 for the end.
        """
        one = IntImm(var.dtype, 1)
        return Range(var, one if axis.var.dtype is var.dtype else Sub(one, var))

    def _block(
        self,
        op: ComputeOp,
        buffers: list[Var],
        values: tuple[Expr, ...],
        axes: tuple[IterVar, ...],
        domains: list[Range],
        loops: list[Var],
        name: str,
    ) -> Stmt:
        iter_vars = tuple(
            IterVar(dom, Var(f"v_{axis.var.name}", dom.extent.dtype), axis.iter_type)
            for axis, dom in zip(axes, domains, strict=True)
        )
        known: dict[Node, Expr] = {
            axis.var: block_var.var for axis, block_var in zip(axes, iter_vars, strict=True)
        }
        convert = ElementConverter(self.buffers, known, self.index_dtype)
        indices = tuple(iter_var.var for iter_var in iter_vars[: len(op.axis)])
        values_of_iters: tuple[Expr, ...] = tuple(loops)
        if not iter_vars:
            dtype = self.index_dtype or DataType("int32")
            zero, one = IntImm(dtype, 0), IntImm(dtype, 1)
            iter_vars = (IterVar(Range(zero, one), Var("vi", dtype)),)
            values_of_iters = (zero,)
        first = values[0]
        if isinstance(first, Reduce):
            body, init = self._reduction(first, buffers, indices, convert)
        else:
            init = None
            value = convert.stored(self.analyzer.simplify(first), buffers[0])
            body = BufferStore(buffers[0], value, indices)
        reads, writes = access_regions(body, init, iter_vars)
        block = SBlock(
            iter_vars,
            reads,
            writes,
            self.names.fresh(name),
            body,
            init,
            annotations=self._annotations(op),
        )
        return SBlockRealize(values_of_iters, _TRUE, block)

    def _reduction(
        self,
        reduce: Reduce,
        buffers: list[Var],
        indices: tuple[Expr, ...],
        convert: "ElementConverter",
    ) -> tuple[Stmt, Stmt]:
        combiner = reduce.combiner
        dtypes = tuple(buffer_type(buffer).dtype for buffer in buffers)
        begin = [convert(value) for value in reduce.init or combiner.identity(dtypes)]
        init = seq(
            [BufferStore(b, value, indices) for b, value in zip(buffers, begin, strict=True)]
        )
        old = tuple(TensorLoad(buffer, indices) for buffer in buffers)
        new = tuple(self.analyzer.simplify(value) for value in reduce.source)
        combined = tuple(convert(value) for value in combiner.combine(old, new))
        if len(buffers) == 1:
            body: Stmt = BufferStore(buffers[0], combined[0], indices)
        else:
            # all new values are computed from the old ones before any is stored
            held = [Var(f"v_{b.name}", d) for b, d in zip(buffers, dtypes, strict=True)]
            bound = [Bind(v, value) for v, value in zip(held, combined, strict=True)]
            stored = [BufferStore(b, v, indices) for b, v in zip(buffers, held, strict=True)]
            body = seq([*bound, *stored])
        condition = self.analyzer.simplify(convert(reduce.condition, Role.CONDITION))
        if not prim_ops.is_const_int(condition, 1):
            body = IfThenElse(condition, body)
        return body, init

    def _annotations(self, op: Operation) -> dict[str, Any]:
        """Return a block's annotations; of tensors that may be laid out freely those of our own."""
        attrs = dict(op.attrs)
        free = attrs.pop(_LAYOUT_FREE, ())
        own = [self.buffers[t] for t in free if not any(p is t for p in self.listed)]
        return {**attrs, _LAYOUT_FREE: own} if own else attrs

    # ------------------------------------------------------------ indices

    def _index(self, value: Expr, known: Mapping[Node, Expr] | None = None) -> Expr:
        if self.index_dtype is None and not known:
            return value
        convert = ElementConverter(self.buffers, known or {}, self.index_dtype)
        converted = convert(value, Role.INDEX)
        if self.index_dtype is None:
            return converted
        return prim_ops.cast(self.index_dtype, converted)

    def _domain(self, dom: Range, known: Mapping[Node, Expr] | None = None) -> Range:
        # the buffer keeps the extent as it was written, the loop gets it simplified
        low, extent = self._index(dom.min, known), self._index(dom.extent, known)
        return Range(low, self.analyzer.simplify(extent))


def _levels(axes: Sequence[IterVar]) -> list[list[IterVar]]:
    """Sort axes by how deep they depend on each other; those of level 0 depend on none."""
    depth: dict[Var, int] = {}
    own = {axis.var for axis in axes}
    levels: list[list[IterVar]] = []
    for axis in axes:
        used = [v for e in (axis.dom.min, axis.dom.extent) for v in _variables(e) if v in own]
        level = max((depth[v] + 1 for v in used), default=0)
        depth[axis.var] = level
        levels.extend([] for _ in range(level + 1 - len(levels)))
        levels[level].append(axis)
    return levels or [[]]


def _variables(value: Expr) -> tuple[Var, ...]:
    return () if isinstance(value, IntImm) else tuple(free_vars(value))


def _is_reduction(axis: IterVar) -> bool:
    return axis.iter_type is IterVarType.COMM_REDUCE


def _looped(body: Stmt, loops: Sequence[Var], domains: Sequence[Range]) -> Stmt:
    for loop, dom in zip(reversed(loops), reversed(domains), strict=True):
        body = For(loop, dom.min, dom.extent, ForKind.SERIAL, body)
    return body
