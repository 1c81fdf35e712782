"""Lowered Relax to bytecode.

Every function of the module must have a ``global_symbol``, no local functions, no symbolic
shapes and explicit allocations: what the build pipeline leaves. One walk emits the calls in
program order; the builder renumbers registers afterwards. Beside each instruction it notes which
lines of the program it runs (``ex.source_map``). Counterpart: TVM's ``VMCodeGen``.

Examples
--------
>>> from relaxlab.ir import IRModule
>>> from relaxlab.relax.exec_builder import ExecBuilder
>>> codegen(ExecBuilder(), IRModule()).functions
{}
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from functools import partial
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
    Node,
    Op,
    Span,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    VDevice,
    is_void,
)
from relaxlab.relax.exec_builder import ExecBuilder, SpecialReg
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
from relaxlab.runtime import ShapeTuple
from relaxlab.runtime.vm.bytecode import ArgKind, VMFuncKind, kind_number, value_of
from relaxlab.runtime.vm.source_map import Origin, Place
from relaxlab.tirx import PrimFunc

__all__ = ["codegen"]

_VOID: Final = int(SpecialReg.VOID_ARG)


def codegen(builder: ExecBuilder, mod: IRModule) -> IRModule:
    """Emit every Relax function of ``mod`` and return the module without them.

    Raises
    ------
    InternalError
        If a function is not lowered far enough; the message names the function and what is left.
    """
    rest = mod.clone()
    kernels = {g.name_hint for g, f in mod.functions.items() if isinstance(f, PrimFunc)}
    for gvar, func in mod.functions.items():
        if isinstance(func, Function):
            symbol = func.func_attrs.get("global_symbol")
            if symbol is None:
                raise InternalError(
                    f"function {gvar.name_hint!r} has no global_symbol; run AttachGlobalSymbol "
                    "before code generation"
                )
            _FunctionCodegen(builder, mod, str(symbol), kernels).emit(func)
            rest.remove(gvar)
    return rest


class _FunctionCodegen:
    """The walk over one function: its registers and where each variable lives."""

    def __init__(
        self, builder: ExecBuilder, mod: IRModule, symbol: str, kernel_names: AbstractSet[str]
    ) -> None:
        self.builder = builder
        self.mod = mod
        self.symbol = symbol
        self.registers = 0
        #: Operand word of each variable: a register, or a constant that was bound to a name.
        self.words: dict[Var, int] = {}
        #: Kernels by the instruction that calls them.
        self.kernels: dict[int, str] = {}
        self.kernel_names = kernel_names
        #: Where the binding being emitted stands in the program.
        self.place: Span | None = None

    def emit(self, func: Function) -> None:
        names = [param.name for param in func.params]
        start = self.builder.num_instructions
        self.place = func.span
        with self.builder.function(self.symbol, len(names), names):
            for param in func.params:
                self.words[param] = self.builder.r(self.new_register())
            self.builder.emit_ret(self.ensure_register(self.visit(func.body)))
            self.note(start, func.body, func.body.span)

    def new_register(self) -> int:
        self.registers += 1
        return self.registers - 1

    def note(self, start: int, node: Node, span: Span | None) -> None:
        """Say of the instructions since ``start`` where they come from, unless it is known."""
        origins, place = self.builder.origins, span or self.place
        for pc in range(start, self.builder.num_instructions):
            if pc not in origins:
                kernel = self.kernels.get(pc)
                origins[pc] = partial(_origin, self.symbol, pc, node, place, kernel)

    def call(self, name: str, args: list[int]) -> int:
        """Emit a call into a new register and return that register."""
        register = self.new_register()
        self.builder.emit_call(name, args, register)
        return self.builder.r(register)

    def ensure_register(self, word: int) -> int:
        if kind_number(word) == ArgKind.REGISTER:
            return word
        return self.call("vm.builtin.copy", [word])

    # ---- expressions ------------------------------------------------------------------------

    def visit(self, expr: Expr) -> int:
        """Emit what ``expr`` needs and return the operand word that holds its value."""
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

    def visit_var(self, var: Var) -> int:
        word = self.words.get(var)
        if word is None:
            raise InternalError(f"variable {var.name!r} of {self.symbol!r} is not defined")
        return word

    def visit_seq(self, seq: SeqExpr) -> int:
        around = self.place
        for block in seq.blocks:
            for binding in block.bindings:
                self.place = binding.span or around
                if not isinstance(binding, VarBinding | MatchCast):
                    raise self.unsupported(f"a {type(binding).__name__}")
                start = self.builder.num_instructions
                word = self.visit(binding.value)
                if isinstance(binding.value, Var):
                    # its own register, so that killing one name leaves the other alive
                    word = self.call("vm.builtin.copy", [word])
                self.words[binding.var] = word
                self.note(start, binding, binding.span)
        self.place = around
        start = self.builder.num_instructions
        word = self.visit(seq.body)
        self.note(start, seq, seq.span)
        return word

    def visit_const(self, const: GenericConst) -> int:
        word = self.builder.convert_constant(const.value)
        if isinstance(const.ty, TensorType) and const.ty.vdevice is not None:
            self.builder.save_memory_scope(word, const.ty.vdevice.memory_scope)
        return word

    def visit_shape(self, shape: ShapeExpr) -> int:
        dims = []
        for dim in shape.values:
            if not isinstance(dim, IntImm):
                raise self.unsupported(f"a symbolic shape {shape!r}", shape)
            dims.append(dim.value)
        return self.builder.convert_constant(ShapeTuple(dims))

    def visit_int(self, imm: IntImm) -> int:
        return self.builder.convert_constant(int(imm.value))

    def visit_literal(self, imm: FloatImm | StringImm) -> int:
        return self.builder.convert_constant(imm.value)

    def visit_tuple(self, tup: Tuple) -> int:
        return self.call("vm.builtin.make_tuple", [self.visit(field) for field in tup.fields])

    def visit_tuple_get_item(self, get: TupleGetItem) -> int:
        tup = self.visit(get.tuple_value)
        return self.call("vm.builtin.tuple_getitem", [tup, self.builder.imm(get.index)])

    def visit_if(self, branch: If) -> int:
        builder = self.builder
        condition = self.call("vm.builtin.read_if_cond", [self.visit(branch.cond)])
        if_at = builder.num_instructions
        builder.emit_if(condition, 2)  # patched below
        true_value = self.visit(branch.true_branch)
        merged = self.new_register()
        builder.emit_call("vm.builtin.copy", [true_value], merged)
        goto_at = builder.num_instructions
        builder.emit_goto(1)  # patched below
        false_value = self.visit(branch.false_branch)
        builder.emit_call("vm.builtin.copy", [false_value], merged)
        builder.set_word(if_at, 2, goto_at + 1 - if_at)
        builder.set_word(goto_at, 1, builder.num_instructions - goto_at)
        return builder.r(merged)

    # ---- calls ------------------------------------------------------------------------------

    def callee(self, expr: Expr) -> str:
        """Declare a callee and return its name in the function table."""
        match expr:
            case ExternFunc():
                name, kind = expr.global_symbol, VMFuncKind.PACKED_FUNC
            case GlobalVar():
                func = self.mod.functions.get(expr)
                name, kind = expr.name_hint, VMFuncKind.PACKED_FUNC
                if isinstance(func, Function):
                    kind = VMFuncKind.VM_FUNC
                elif isinstance(func, ExternFunc):
                    name = func.global_symbol
            case StringImm():
                name, kind = expr.value, VMFuncKind.PACKED_FUNC
            case _:
                raise self.unsupported(f"a callee {expr!r}")
        if not self.builder.has_function(name):
            self.builder.declare_function(name, kind)
        return name

    def visit_function_value(self, expr: Expr) -> int:
        return self.builder.get_function(self.callee(expr))

    def visit_call(self, call: Call) -> int:
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
        if isinstance(call.op, GlobalVar | ExternFunc):
            return self.finish_call(self.callee(call.op), [], call.args, register)
        leading = [self.builder.vm_state(), self.visit(call.op)]
        return self.finish_call("vm.builtin.invoke_closure", leading, call.args, register)

    def result_register(self, call: Call) -> int:
        """Choose the destination, which TVM does before it looks at the arguments."""
        return _VOID if is_void(call.ty) else self.new_register()

    def finish_call(
        self, name: str, leading: list[int], args: tuple[Expr, ...] | list[Expr], register: int
    ) -> int:
        words = leading + [self.visit(arg) for arg in args]
        if name in self.kernel_names:
            self.kernels[self.builder.num_instructions] = name
        self.builder.emit_call(name, words, register)
        return self.builder.r(register)

    def visit_call_builtin_with_ctx(self, call: Call) -> int:
        register = self.result_register(call)
        name = self.callee(call.args[0])
        args = call.args[1]
        fields = args.fields if isinstance(args, Tuple) else (args,)
        return self.finish_call(name, [self.builder.vm_state()], fields, register)

    def visit_alloc_storage(self, call: Call) -> int:
        register = self.result_register(call)
        return self.finish_call(
            "vm.builtin.alloc_storage", [self.builder.vm_state()], call.args, register
        )

    def visit_alloc_tensor(self, call: Call) -> int:
        register = self.result_register(call)
        words = [self.visit(arg) for arg in call.args[:4]]
        scope = self.memory_scope(call.args[4])
        if scope is not None:
            words.append(self.builder.convert_constant(scope))
        self.builder.emit_call("vm.builtin.alloc_tensor", words, register)
        return self.builder.r(register)

    def memory_scope(self, index: Expr) -> str | None:
        """Return the scope of the module's virtual device with that index, if there is one."""
        devices = self.mod.global_infos.get("vdevice", ())
        if isinstance(index, IntImm) and 0 <= index.value < len(devices):
            device = devices[index.value]
            if isinstance(device, VDevice):
                return device.memory_scope
        return None

    def visit_kill_object(self, call: Call) -> int:
        word = self.visit(call.args[0])
        if kind_number(word) != ArgKind.REGISTER:
            if isinstance(call.args[0], GenericConst | Var):
                return self.builder.void_arg()  # folded since the kill was put there
            raise InternalError(
                f"kill_object in {self.symbol!r} needs a register, but its argument "
                f"{call.args[0]!r} is a constant"
            )
        self.builder.emit_call("vm.builtin.null_value", [], value_of(word))
        return word

    def visit_null_value(self, _: Call) -> int:
        return self.builder.void_arg()


def _origin(function: str, pc: int, node: Node, span: Span | None, kernel: str | None) -> Origin:
    """Return what the source map says of an instruction."""
    places = () if span is None else tuple(map(_place, span.parts()))
    return Origin(function, pc, places, _binding_text(node), kernel)


def _place(span: Span) -> Place:
    text = span.source_name.line(span.line).strip()
    return Place(span.source_name.name, span.line, span.column, text)


def _binding_text(node: Node) -> str:
    match node:
        case VarBinding(var=var, value=If(cond=cond)):
            return f"{var.name} = if {_last_line(cond)}"
        case SeqExpr(body=body):
            return f"return {_last_line(body)}"
        case _:
            return _last_line(node)


def _last_line(node: Node) -> str:
    # a repr declares the variables that it mentions first
    return repr(node).rpartition("\n")[2]


_VISITORS: Final[dict[type, Callable[..., int]]] = {
    Call: _FunctionCodegen.visit_call,
    DataflowVar: _FunctionCodegen.visit_var,
    ExternFunc: _FunctionCodegen.visit_function_value,
    FloatImm: _FunctionCodegen.visit_literal,
    GenericConst: _FunctionCodegen.visit_const,
    GlobalVar: _FunctionCodegen.visit_function_value,
    If: _FunctionCodegen.visit_if,
    IntImm: _FunctionCodegen.visit_int,
    SeqExpr: _FunctionCodegen.visit_seq,
    ShapeExpr: _FunctionCodegen.visit_shape,
    StringImm: _FunctionCodegen.visit_literal,
    Tuple: _FunctionCodegen.visit_tuple,
    TupleGetItem: _FunctionCodegen.visit_tuple_get_item,
    Var: _FunctionCodegen.visit_var,
}

_OPERATORS: Final[dict[str, Callable[..., int]]] = {
    "relax.call_builtin_with_ctx": _FunctionCodegen.visit_call_builtin_with_ctx,
    "relax.null_value": _FunctionCodegen.visit_null_value,
    "relax.vm.alloc_storage": _FunctionCodegen.visit_alloc_storage,
    "relax.vm.alloc_tensor": _FunctionCodegen.visit_alloc_tensor,
    "relax.vm.kill_object": _FunctionCodegen.visit_kill_object,
}
