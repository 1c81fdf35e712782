"""Lowered Relax to kernels that drive the machine: ``exec_mode="compiled"``.

Every Relax function becomes a PrimFunc ``__vmtir__<name>`` that works on three lists: registers,
constants and functions. The executable then has no instructions, only entries that name these
PrimFuncs. Text and numbering are TVM's: parameters come first, then one register for the result,
then a register per value. Counterpart: TVM's ``VMTIRCodeGen``.

Examples
--------
>>> from relaxlab.ir import IRModule
>>> from relaxlab.relax.exec_builder import ExecBuilder
>>> codegen(ExecBuilder(), IRModule()).functions
{}
"""

from collections.abc import Callable
from typing import Final

from relaxlab.errors import InternalError
from relaxlab.ir import (
    Call,
    Expr,
    FloatImm,
    GenericConst,
    GlobalVar,
    IntImm,
    IRModule,
    Op,
    PrimType,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VDevice,
    is_void,
)
from relaxlab.ir.prim_intrinsics import call_intrin
from relaxlab.ir.type import PointerType
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.relax.expr import (
    DataflowVar,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    TensorType,
    VarBinding,
)
from relaxlab.relax.unlowered import how_to_run, missing_pass, why_left
from relaxlab.runtime import DataType, ShapeTuple
from relaxlab.runtime.vm.bytecode import VMFuncKind, value_of
from relaxlab.runtime.vm.function_body import BODY_PREFIX
from relaxlab.tirx import PrimFunc
from relaxlab.tirx.stmt import Evaluate, IfThenElse, Stmt, seq

__all__ = ["codegen"]

_HANDLE: Final = PointerType(PrimType(DataType("void")))
_INT32: Final = DataType("int32")
_INT64: Final = DataType("int64")
_FLOAT64: Final = DataType("float64")


def codegen(builder: ExecBuilder, mod: IRModule) -> IRModule:
    """Replace every Relax function of ``mod`` by a PrimFunc, and declare it in ``builder``.

    Raises
    ------
    InternalError
        If a function is not lowered far enough; the message names the function and what is left.
    """
    result = mod.clone()
    prefix = str(mod.attrs.get("system_lib_prefix", ""))
    for gvar, func in mod.functions.items():
        if isinstance(func, Function):
            symbol = func.func_attrs.get("global_symbol")
            if symbol is None:
                raise InternalError(
                    f"function {gvar.name_hint!r} has no global_symbol; run AttachGlobalSymbol "
                    "before code generation"
                )
            body = _FunctionCodegen(builder, mod, str(symbol)).emit(func)
            name = f"{prefix}{BODY_PREFIX}{symbol}"
            result.remove(gvar)
            body = body.with_attr({"global_symbol": name, "s_tir": True})
            result.add(GlobalVar(name), body)
    return result


class _FunctionCodegen:
    """The walk over one function: its registers, and the statements of the scope it is in."""

    def __init__(self, builder: ExecBuilder, mod: IRModule, symbol: str) -> None:
        self.builder = builder
        self.mod = mod
        self.symbol = symbol
        self.count = 0
        self.statements: list[Stmt] = []
        self.context, self.registers, self.constants, self.functions = (
            Var(name, _HANDLE) for name in ("ctx_ptr", "r", "c", "f")
        )
        #: Operand of each variable: a register, or a constant that was bound to a name.
        self.operands: dict[Var, Expr] = {}

    def emit(self, func: Function) -> PrimFunc:
        self.declare(self.symbol, VMFuncKind.VMTIR_FUNC)
        names = [param.name for param in func.params]
        for param in func.params:
            self.operands[param] = self.register(self.new_register())
        result = self.new_register()
        self.call("vm.builtin.copy", [self.visit(func.body)], result)
        self.builder.declare_tir_function(self.symbol, len(names), self.count, names)
        handles = (self.context, self.registers, self.constants, self.functions)
        return PrimFunc(handles, seq(self.statements))

    # ---- operands ---------------------------------------------------------------------------

    def new_register(self) -> int:
        self.count += 1
        return self.count - 1

    def register(self, number: int) -> Expr:
        return _item(self.registers, number)

    def constant(self, value: object) -> Expr:
        return _item(self.constants, value_of(self.builder.convert_constant(value)))

    def function(self, name: str) -> Expr:
        return _item(self.functions, value_of(self.builder.get_function(name)))

    def declare(self, name: str, kind: VMFuncKind) -> None:
        if not self.builder.has_function(name):
            self.builder.declare_function(name, kind)

    # ---- expressions ------------------------------------------------------------------------

    def visit(self, expr: Expr) -> Expr:
        """Emit what ``expr`` needs and return the operand that holds its value."""
        visitor = _VISITORS.get(type(expr))
        if visitor is None:
            raise self.unsupported(f"a {type(expr).__name__} expression: {expr!r}", expr)
        return visitor(self, expr)

    def unsupported(self, what: str, expr: Expr | None = None) -> InternalError:
        fix = how_to_run("" if expr is None else missing_pass(expr))
        return InternalError(
            f"code generation of {self.symbol!r} met {what}, which should have been lowered "
            f"before; {fix}"
        )

    def visit_var(self, var: Var) -> Expr:
        operand = self.operands.get(var)
        if operand is None:
            raise InternalError(f"variable {var.name!r} of {self.symbol!r} is not defined")
        return operand

    def visit_seq(self, block: SeqExpr) -> Expr:
        for bindings in block.blocks:
            for binding in bindings.bindings:
                if not isinstance(binding, VarBinding | MatchCast):
                    raise self.unsupported(f"a {type(binding).__name__}")
                operand = self.visit(binding.value)
                if isinstance(binding.value, Var):
                    # its own register, so that killing one name leaves the other alive
                    operand = self.call("vm.builtin.copy", [operand], self.new_register())
                self.operands[binding.var] = operand
        return self.visit(block.body)

    def visit_const(self, const: GenericConst) -> Expr:
        if type(const.value) is int:
            return IntImm(_INT64, const.value)
        if type(const.value) is float:
            return FloatImm(_FLOAT64, const.value)
        word = self.builder.convert_constant(const.value)
        if isinstance(const.ty, TensorType) and const.ty.vdevice is not None:
            self.builder.save_memory_scope(word, const.ty.vdevice.memory_scope)
        return _item(self.constants, value_of(word))

    def visit_shape(self, shape: ShapeExpr) -> Expr:
        dims = []
        for dim in shape.values:
            if not isinstance(dim, IntImm):
                raise self.unsupported(f"a symbolic shape {shape!r}", shape)
            dims.append(dim.value)
        return self.constant(ShapeTuple(dims))

    def visit_number(self, number: IntImm | FloatImm) -> Expr:
        return number

    def visit_string(self, imm: StringImm) -> Expr:
        return self.constant(imm.value)

    def visit_tuple(self, tup: Tuple) -> Expr:
        fields = [self.visit(field) for field in tup.fields]
        return self.call("vm.builtin.make_tuple", fields, self.new_register())

    def visit_tuple_get_item(self, get: TupleGetItem) -> Expr:
        args = [self.visit(get.tuple_value), IntImm(_INT64, get.index)]
        return self.call("vm.builtin.tuple_getitem", args, self.new_register())

    def visit_if(self, branch: If) -> Expr:
        merged = self.new_register()
        # int32 and not bool as in TVM: the text is the same, and reads back as int32
        condition = call_intrin(
            _INT32,
            "tirx.tvm_call_packed",
            StringImm("vm.builtin.read_if_cond"),
            self.visit(branch.cond),
        )
        outer = self.statements
        arms: list[Stmt] = []
        for value in (branch.true_branch, branch.false_branch):
            self.statements = []
            self.call("vm.builtin.copy", [self.visit(value)], merged)
            arms.append(seq(self.statements))
        self.statements = outer
        outer.append(IfThenElse(condition, arms[0], arms[1]))
        return self.register(merged)

    # ---- calls ------------------------------------------------------------------------------

    def call(
        self, name: str, args: list[Expr], register: int | None, *, kernel: bool = False
    ) -> Expr:
        """Emit a call and return its result; without a register the result is dropped."""
        suffix = "call_cpacked" if kernel else "call_packed"
        if register is None:
            call = call_intrin(_INT32, f"tirx.tvm_{suffix}", StringImm(name), *args)
            self.statements.append(Evaluate(call))
            return _null_value()
        target = (self.registers, IntImm(_INT32, register), StringImm(name))
        call = call_intrin(_INT32, f"tirx.anylist_setitem_{suffix}", *target, *args)
        self.statements.append(Evaluate(call))
        return self.register(register)

    def visit_call(self, call: Call) -> Expr:
        if isinstance(call.op, Op):
            emit = _OPERATORS.get(call.op.name)
            if emit is None:
                raise InternalError(
                    f"code generation of {self.symbol!r} met the operator {call.op.name!r}"
                    f"{' at ' + str(call.span) if call.span else ''}, which should have been "
                    f"lowered before: {why_left(call)}"
                )
            return emit(self, call)
        register = self.result_register(call)
        match call.op:
            case ExternFunc():
                return self.call(call.op.global_symbol, self.visit_all(call.args), register)
            case GlobalVar():
                func = self.mod.functions.get(call.op)
                if isinstance(func, PrimFunc):
                    symbol = func.func_attrs.get("global_symbol", call.op.name_hint)
                    args = self.visit_all(call.args)
                    return self.call(str(symbol), args, register, kernel=True)
                if not isinstance(func, Function):
                    name = self.packed_name(call.op)
                    return self.call(name, self.visit_all(call.args), register)
            case _:
                pass
        leading = [self.context, self.visit(call.op)]
        return self.call("vm.builtin.invoke_closure", leading + self.visit_all(call.args), register)

    def result_register(self, call: Call) -> int | None:
        """Choose the destination, which TVM does before it looks at the arguments."""
        return None if is_void(call.ty) else self.new_register()

    def visit_all(self, args: tuple[Expr, ...] | list[Expr]) -> list[Expr]:
        return [self.visit(arg) for arg in args]

    def visit_function_value(self, expr: ExternFunc | GlobalVar) -> Expr:
        name, kind = "", VMFuncKind.PACKED_FUNC
        if isinstance(expr, ExternFunc):
            name = expr.global_symbol
        else:
            name = self.packed_name(expr)
            if isinstance(self.mod.functions.get(expr), Function):
                kind = VMFuncKind.VMTIR_FUNC
        self.declare(name, kind)
        return self.function(name)

    def packed_name(self, gvar: GlobalVar) -> str:
        func = self.mod.functions.get(gvar)
        return func.global_symbol if isinstance(func, ExternFunc) else gvar.name_hint

    def visit_call_builtin_with_ctx(self, call: Call) -> Expr:
        register = self.result_register(call)
        func, args = call.args
        if not isinstance(func, ExternFunc):
            raise self.unsupported(f"call_builtin_with_ctx of {func!r}")
        fields = args.fields if isinstance(args, Tuple) else (args,)
        return self.call(func.global_symbol, [self.context, *self.visit_all(fields)], register)

    def visit_alloc_storage(self, call: Call) -> Expr:
        register = self.result_register(call)
        args = [self.context, *self.visit_all(call.args)]
        return self.call("vm.builtin.alloc_storage", args, register)

    def visit_alloc_tensor(self, call: Call) -> Expr:
        register = self.result_register(call)
        args = self.visit_all(call.args[:4])
        index, devices = call.args[4], self.mod.global_infos.get("vdevice", ())
        if isinstance(index, IntImm) and 0 <= index.value < len(devices):
            device = devices[index.value]
            if isinstance(device, VDevice):
                args.append(StringImm(device.memory_scope))
        return self.call("vm.builtin.alloc_tensor", args, register)

    def visit_kill_object(self, call: Call) -> Expr:
        operand = self.visit(call.args[0])
        if isinstance(operand, Call) and operand.args[0] is self.registers:
            index = operand.args[1]
            assert isinstance(index, IntImm)
            self.call("vm.builtin.null_value", [], index.value)
            return operand
        if isinstance(call.args[0], GenericConst | Var):
            return operand  # a constant, folded since the kill was put there
        raise InternalError(
            f"kill_object in {self.symbol!r} needs a register, but its argument "
            f"{call.args[0]!r} is a constant"
        )

    def visit_null_value(self, _: Call) -> Expr:
        return _null_value()


def _item(values: Var, index: int) -> Expr:
    return call_intrin(_HANDLE, "tirx.anylist_getitem", values, IntImm(_INT32, index))


def _null_value() -> Expr:
    return call_intrin(_HANDLE, "tirx.reinterpret", IntImm(_INT64, 0))


_VISITORS: Final[dict[type, Callable[..., Expr]]] = {
    Call: _FunctionCodegen.visit_call,
    DataflowVar: _FunctionCodegen.visit_var,
    ExternFunc: _FunctionCodegen.visit_function_value,
    FloatImm: _FunctionCodegen.visit_number,
    GenericConst: _FunctionCodegen.visit_const,
    GlobalVar: _FunctionCodegen.visit_function_value,
    If: _FunctionCodegen.visit_if,
    IntImm: _FunctionCodegen.visit_number,
    SeqExpr: _FunctionCodegen.visit_seq,
    ShapeExpr: _FunctionCodegen.visit_shape,
    StringImm: _FunctionCodegen.visit_string,
    Tuple: _FunctionCodegen.visit_tuple,
    TupleGetItem: _FunctionCodegen.visit_tuple_get_item,
    Var: _FunctionCodegen.visit_var,
}

_OPERATORS: Final[dict[str, Callable[..., Expr]]] = {
    "relax.call_builtin_with_ctx": _FunctionCodegen.visit_call_builtin_with_ctx,
    "relax.null_value": _FunctionCodegen.visit_null_value,
    "relax.vm.alloc_storage": _FunctionCodegen.visit_alloc_storage,
    "relax.vm.alloc_tensor": _FunctionCodegen.visit_alloc_tensor,
    "relax.vm.kill_object": _FunctionCodegen.visit_kill_object,
}
