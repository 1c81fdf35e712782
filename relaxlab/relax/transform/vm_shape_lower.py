"""Make symbolic shapes a matter of run time: check arguments, compute sizes, build shapes.

Each function gets a shape heap with a slot per size (``shape_slots``). At entry the types of all
parameters are checked, sizes are read from their shapes, and a generated host kernel
(``shape_func``) computes the others. In the body shapes are built from slots. A match_cast, a
scalar that comes from a call, and the result are treated likewise. What the builtins report when a
check fails is told by an error context. Counterpart: ``tvm.relax.transform.VMShapeLower``; unlike
it, what a branch of an If learns is not taken for known in the other branch or afterwards.

Examples
--------
>>> VMShapeLower().info.name, VMShapeLower(emit_err_ctx=False).emit_err_ctx
('VMShapeLower', False)
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from relaxlab.errors import InternalError
from relaxlab.ir import (
    AnyType,
    Call,
    DictAttrs,
    Expr,
    FuncType,
    GlobalVar,
    IntImm,
    IRModule,
    ModulePass,
    Op,
    PassContext,
    PrimType,
    StringImm,
    StringType,
    TensorLoad,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
)
from relaxlab.ir.prim_functor import free_vars, post_order_map
from relaxlab.relax.expr import (
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    ShapeType,
    TensorType,
    VarBinding,
)
from relaxlab.relax.expr_functor import ExprMutator
from relaxlab.relax.literals import dtype_const
from relaxlab.relax.normalizer import flatten_blocks
from relaxlab.relax.transform.shape_slots import SlotTable, collect_slots
from relaxlab.relax.type_relations import is_base_of
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.vm.builtin.shapes import MakeShapeCode, MatchShapeCode
from relaxlab.tirx import BufferStore, PrimFunc, decl_buffer
from relaxlab.tirx.stmt import seq

__all__ = ["VMShapeLower"]

_INT64: Final = DataType("int64")
_VOID: Final = TupleType(())
_HEAP: Final = TensorType(None, _INT64, ndim=1)


@dataclass(frozen=True, slots=True)
class _Match:
    """A shape, or a scalar, whose sizes are to be read or checked."""

    value: Expr
    sizes: tuple[Expr, ...]
    context: Expr
    is_scalar: bool = False


class _Lowerer(ExprMutator):
    """Lowers the functions of a module one after the other."""

    def __init__(self, mod: IRModule, emit_err_ctx: bool) -> None:
        super().__init__(mod)
        self.emit_err_ctx = emit_err_ctx
        self.slots = SlotTable()
        self.heap = Var("shape_heap", AnyType())
        #: Slots whose values are on the heap at this point.
        self.computed: set[int] = set()

    def lower(self, gvar: GlobalVar, func: Function) -> Function:
        self.slots = collect_slots(func)
        self.computed = set()
        self.var_remap.clear()
        builder = self.builder
        builder.begin_scope(func.params)
        builder.span = func.span
        builder.begin_block(is_dataflow=False)
        self.heap = Var("shape_heap", _HEAP if len(self.slots) else AnyType())
        heap = builder.normalize(self.allocate_heap())
        builder.emit_normalized(VarBinding(self.heap, heap, span=func.span))
        self.check_params(gvar.name_hint, func)
        blocks = [builder.end_block()]
        blocks += [self.visit_binding_block(block) for block in func.body.blocks]
        builder.span = func.body.span or func.span
        builder.begin_block(is_dataflow=False)
        result = builder.normalize_argument(self.visit_expr(func.body.body))
        where = f"ErrorContext(fn={gvar.name_hint}, loc=return, annotation={func.ret_ty!r}) "
        self.match(self.check(func.ret_ty, result, self.context(where), always=False))
        blocks.append(builder.end_block())
        builder.span = None
        builder.end_scope()
        body = SeqExpr(flatten_blocks(tuple(blocks)), result, ty=result.ty, span=func.body.span)
        return Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, span=func.span)

    def allocate_heap(self) -> Call:
        if not len(self.slots):
            return Call(Op.get("relax.null_value"))
        return Call(
            Op.get("relax.call_builtin_with_ctx"),
            (ExternFunc("vm.builtin.alloc_shape_heap"), Tuple((_int(len(self.slots)),))),
            None,
            (_HEAP,),
        )

    def context(self, text: str) -> Expr:
        return StringImm(text if self.emit_err_ctx else "")

    # ---- checks -----------------------------------------------------------------------------

    def check_params(self, name: str, func: Function) -> None:
        inputs = func.func_attrs.get("num_input")
        todo: list[_Match] = []
        for i, param in enumerate(func.params):
            assert param.ty is not None
            self.builder.span = param.span or func.span
            if inputs is not None and i >= int(inputs) and _is_static_tensor(param.ty):
                continue  # a weight of fixed shape is trusted
            where = (
                f"ErrorContext(fn={name}, loc=param[{i}], param={param.name}, "
                f"annotation={param.ty!r}) "
            )
            todo += self.check(param.ty, param, self.context(where), always=True)
        self.builder.span = func.span
        self.match(todo)

    def check(self, ty: Type, value: Expr, context: Expr, *, always: bool) -> list[_Match]:
        """Emit checks that ``value`` is of ``ty``, unless its own type says so.

        Returns what remains to be matched: the sizes.
        """
        known = value.ty if value.ty is not None else AnyType()
        match ty:
            case TensorType():
                return self.check_tensor(ty, value, known, context, always)
            case ShapeType():
                if always or not is_base_of(ShapeType(ndim=ty.ndim), known):
                    self.call("check_shape_info", value, _int(ty.ndim), context)
                if ty.values is None or not (always or not is_base_of(ty, known)):
                    return []
                return [_Match(value, ty.values, context)]
            case PrimType():
                if always or not is_base_of(ty, known):
                    self.call("check_prim_value_info", value, dtype_const(ty.dtype), context)
                has_slot = always and isinstance(value, Var) and self.slots.find(value) is not None
                return [_Match(value, (value,), context, is_scalar=True)] if has_slot else []
            case TupleType():
                return self.check_tuple(ty, value, known, context, always)
            case FuncType():
                if always or not is_base_of(ty, known):
                    self.call("check_func_info", value, context)
                return []
            case StringType():
                if always or not is_base_of(ty, known):
                    self.call("check_string_info", value, context)
                return []
            case AnyType():
                return []
            case _:
                raise InternalError(f"VMShapeLower cannot check a value of type {ty!r}")

    def check_tensor(
        self, ty: TensorType, value: Expr, known: Type, context: Expr, always: bool
    ) -> list[_Match]:
        if always or not is_base_of(TensorType(None, ty.dtype, None, ty.ndim), known):
            dtype = Call(Op.get("relax.null_value")) if ty.dtype is None else dtype_const(ty.dtype)
            self.call("check_tensor_info", value, _int(ty.ndim), dtype, context)
        if ty.shape is None or not (always or not is_base_of(ty, known)):
            return []
        if not isinstance(ty.shape, ShapeExpr):
            raise InternalError(
                "Cannot handle Tensor shape pattern where a var appears multiple times: "
                f"the shape of {value!r} is the variable {ty.shape!r}; write its dimensions out"
            )
        return [_Match(value, ty.shape.values, context)]

    def check_tuple(
        self, ty: TupleType, value: Expr, known: Type, context: Expr, always: bool
    ) -> list[_Match]:
        is_tuple = isinstance(known, TupleType) and len(known.fields) == len(ty.fields)
        if always or not is_tuple:
            self.call("check_tuple_info", value, _int(len(ty.fields)), context)
        todo: list[_Match] = []
        for i, item in enumerate(ty.fields):
            if isinstance(value, Tuple):
                part = value.fields[i]
            elif is_tuple:
                part = TupleGetItem(value, i)
            else:
                part = _packed("tuple_getitem", (value, _int(i)), AnyType())
            # a part is emitted where it is first needed; its type is needed now
            part = part if part.ty is not None else self.typed(part)
            todo += self.check(item, part, context, always=always)
        return todo

    def typed(self, part: Expr) -> Expr:
        """Return an expression that will be emitted later with the type it will have."""
        assert isinstance(part, Call)
        return Call(part.op, part.args, part.attrs, part.ty_args, ty=part.ty_args[0])

    def call(self, name: str, *args: Expr) -> None:
        """Emit a call of a builtin for its effect."""
        self.builder.emit(_packed(name, args, _VOID), "_")

    # ---- sizes ------------------------------------------------------------------------------

    def match(self, todo: Sequence[_Match]) -> None:
        """Read and check sizes, compute what follows, then check what could not be before."""
        again: list[_Match] = []
        for item in todo:
            codes = [self.code(size) for size in item.sizes]
            if any(code is MatchShapeCode.NO_OP for code, _ in codes):
                again.append(item)
            if any(code is not MatchShapeCode.NO_OP for code, _ in codes):
                self.emit_match(item, codes)
        self.compute()
        for item in again:
            codes = [self.code(size) for size in item.sizes]
            missing = [
                size
                for size, (code, _) in zip(item.sizes, codes, strict=True)
                if code is MatchShapeCode.NO_OP
            ]
            if missing:
                unknown = [v.name for v in free_vars(missing[0]) if not self.is_computed(v)]
                raise InternalError(
                    f"the size {missing[0]!r} of {item.value!r} cannot be checked, since nothing "
                    f"defines {', '.join(unknown)}; add a parameter or a match_cast that does"
                )
            self.emit_match(item, codes)

    def code(self, size: Expr) -> tuple[MatchShapeCode, int]:
        """Return what to do with one size, which counts as known afterwards."""
        if isinstance(size, IntImm):
            return MatchShapeCode.ASSERT_EQUAL_TO_IMM, size.value
        slot = self.slots.slot(size)
        if slot in self.computed:
            return MatchShapeCode.ASSERT_EQUAL_TO_LOAD, slot
        if isinstance(size, Var):
            self.computed.add(slot)
            return MatchShapeCode.STORE_TO_HEAP, slot
        return MatchShapeCode.NO_OP, 0

    def is_computed(self, var: Var) -> bool:
        return self.slots.find(var) in self.computed

    def emit_match(self, item: _Match, codes: list[tuple[MatchShapeCode, int]]) -> None:
        numbers = [_int(n) for code, operand in codes for n in (code, operand)]
        if item.is_scalar:
            self.call("match_prim_value", item.value, self.heap, *numbers, item.context)
        else:
            rank = _int(len(item.sizes))
            self.call("match_shape", item.value, self.heap, rank, *numbers, item.context)

    def compute(self) -> None:
        """Emit a host kernel for the sizes that can be computed now."""
        ready = [
            slot
            for slot, expr in enumerate(self.slots.exprs)
            if slot not in self.computed
            and not isinstance(expr, Var)
            and all(self.is_computed(var) for var in free_vars(expr))
        ]
        if not ready:
            return
        self.computed.update(ready)
        heap = decl_buffer((_int(len(self.slots)),), _INT64, "H")

        def load(node: Any) -> Any:
            return TensorLoad(heap, (_int(self.slots.slot(node)),)) if _is_var(node) else node

        stores = [
            BufferStore(heap, post_order_map(self.slots.exprs[slot], load), (_int(slot),))
            for slot in ready
        ]
        attrs = DictAttrs({"s_tir": True, "tirx.is_host_func": True})
        kernel = PrimFunc((heap,), seq(tuple(stores)), attrs=attrs)
        self.builder.emit(Call(self.builder.add_func(kernel, "shape_func"), (self.heap,)), "_")

    # ---- the body ---------------------------------------------------------------------------

    def visit_shape_expr_(self, op: ShapeExpr) -> Expr:
        if all(isinstance(value, IntImm) for value in op.values):
            return op
        numbers: list[Expr] = []
        for value in op.values:
            if isinstance(value, IntImm):
                numbers += [_int(MakeShapeCode.USE_IMM), value]
            else:
                numbers += [_int(MakeShapeCode.LOAD_SHAPE), _int(self.slots.slot(value))]
        args = (self.heap, _int(len(op.values)), *numbers)
        return self.builder.normalize(_packed("make_shape", args, ShapeType(ndim=len(op.values))))

    def visit_var_(self, op: Var) -> Expr:
        slot = self.slots.find(op)
        if slot is None or slot not in self.computed:
            return super().visit_var_(op)
        args = (self.heap, _int(MakeShapeCode.LOAD_SHAPE), _int(slot))
        return self.builder.normalize(_packed("make_prim_value", args, PrimType(_INT64)))

    def visit_var_binding_(self, binding: VarBinding) -> None:
        super().visit_var_binding_(binding)
        self.learn(binding.var, StringImm(""))

    def visit_match_cast_(self, binding: MatchCast) -> None:
        value = self.builder.normalize_argument(self.visit_cast_value(binding.value))
        context = self.context(f"ErrorContext(match_cast, ty={binding.ty!r}) ")
        self.match(self.check(binding.ty, value, context, always=False))
        if value is not binding.value:
            binding = MatchCast(binding.var, value, binding.ty, span=binding.span)
        self.builder.emit_normalized(binding)
        self.learn(binding.var, context)

    def visit_cast_value(self, value: Expr) -> Expr:
        """Visit what is cast; a scalar variable stays itself."""
        return (
            self.var_remap.get(value, value) if isinstance(value, Var) else self.visit_expr(value)
        )

    def learn(self, var: Var, context: Expr) -> None:
        """Put a scalar that has just been bound on the heap, if it is needed there."""
        slot = self.slots.find(var)
        if slot is None or slot in self.computed:
            return
        value = self.var_remap.get(var, var)
        self.emit_match(_Match(value, (var,), context, is_scalar=True), [self.code(var)])
        self.compute()

    def visit_if_(self, op: If) -> Expr:
        cond = self.visit_expr(op.cond)
        before = set(self.computed)
        true_branch = self.visit_with_new_scope(op.true_branch)
        # what a branch put on the heap is there only if it was taken
        self.computed = set(before)
        false_branch = self.visit_with_new_scope(op.false_branch)
        self.computed = before
        return self.rebuild_if(op, cond, true_branch, false_branch)


def _is_var(node: Any) -> bool:
    return isinstance(node, Var)


def _is_static_tensor(ty: Type) -> bool:
    shape = ty.shape if isinstance(ty, TensorType) else None
    return isinstance(shape, ShapeExpr) and all(isinstance(dim, IntImm) for dim in shape.values)


def _packed(name: str, args: Sequence[Expr], ty: Type) -> Call:
    return Call(ExternFunc(f"vm.builtin.{name}"), tuple(args), None, (ty,))


def _int(value: int) -> IntImm:
    return IntImm(_INT64, int(value))


@dataclass(frozen=True)
class VMShapeLower(ModulePass):
    """Lower symbolic shapes.

    Parameters
    ----------
    emit_err_ctx
        Whether checks carry a text that says where they stand and what was expected.
    """

    emit_err_ctx: bool = True

    def transform_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        """Return the module without symbolic shapes."""
        lowerer = _Lowerer(mod, self.emit_err_ctx)
        for gvar, func in mod.functions.items():
            if isinstance(func, Function):
                lowerer.builder.update_func(gvar, lowerer.lower(gvar, func))
        return lowerer.builder.get()
