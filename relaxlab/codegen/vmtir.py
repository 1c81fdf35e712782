"""The PrimFuncs of compiled Relax functions, as the machine takes them.

``exec_mode="compiled"`` turns Relax functions into PrimFuncs ``__vmtir__<name>`` of a few
operators: calls by name with operands from three lists, and branches. This generator reads such a
PrimFunc as a :class:`FunctionBody`; the machine makes Python of it. Counterpart: the lowering of
``anylist_*`` operators in TVM's code generators.

Examples
--------
>>> from relaxlab.ir import PrimType, StringImm, Var
>>> from relaxlab.ir.prim_intrinsics import call_intrin
>>> handles = [Var(name, PrimType("int64")) for name in ("ctx_ptr", "r", "c", "f")]
>>> stop = Evaluate(call_intrin("int32", "tirx.tvm_call_packed", StringImm("demo.stop")))
>>> body_of(PrimFunc(tuple(handles), stop)).instructions[0].callee
'demo.stop'
"""

from typing import Final

from relaxlab.codegen.interface import Kernel
from relaxlab.errors import InternalError
from relaxlab.ir import Call, Expr, FloatImm, IntImm, Op, StringImm, Var
from relaxlab.ir.type import PRINTERS
from relaxlab.runtime.vm.bytecode import VM_REGISTER, VOID_REGISTER, Arg, ArgKind, Goto, If
from relaxlab.runtime.vm.function_body import BodyCall, BodyInstruction, FunctionBody, Literal
from relaxlab.tirx.function import PrimFunc
from relaxlab.tirx.stmt import Evaluate, IfThenElse, SeqStmt, Stmt

__all__ = ["KIND", "body_of", "generate"]

#: What a library of compiled Relax functions is called.
KIND: Final = "vmtir"

_VOID_CALLS: Final = ("tirx.tvm_call_packed", "tirx.tvm_call_cpacked")
_CALLS: Final = ("tirx.anylist_setitem_call_packed", "tirx.anylist_setitem_call_cpacked")
_LISTS: Final = (ArgKind.REGISTER, ArgKind.CONST_IDX, ArgKind.FUNC_IDX)


def generate(func: PrimFunc, name: str) -> Kernel:
    """Return a compiled Relax function; its ``function`` is a :class:`FunctionBody`."""
    del name
    printer = PRINTERS.find("script")
    return Kernel(body_of(func), printer(func) if printer else repr(func))


def body_of(func: PrimFunc) -> FunctionBody:
    """Return what a PrimFunc ``__vmtir__…`` does.

    Raises
    ------
    InternalError
        If it is made of anything but calls by name and branches on ``vm.builtin.read_if_cond``.
    """
    if len(func.params) != 4:
        raise InternalError(
            "the PrimFunc of a compiled Relax function has 4 parameters (machine, registers, "
            f"constants, functions), got {len(func.params)}"
        )
    reader = _Reader(func)
    reader.read(func.body)
    return FunctionBody(tuple(reader.instructions))


class _Reader:
    """Reads the statements of one function in order."""

    def __init__(self, func: PrimFunc) -> None:
        self.context, *self.lists = func.params
        self.instructions: list[BodyInstruction] = []
        self.conditions = _highest_register(func.body, self.lists[0])

    def read(self, stmt: Stmt) -> None:
        match stmt:
            case SeqStmt():
                for each in stmt.seq:
                    self.read(each)
            case Evaluate(value=Call(op=Op()) as call):
                self.instructions.append(self.call(call))
            case IfThenElse():
                self.branch(stmt)
            case _:
                raise _unexpected(stmt)

    def call(self, call: Call) -> BodyCall:
        name, args = _operator(call), call.args
        if name in _VOID_CALLS and args:
            return BodyCall(VOID_REGISTER, _text(args[0]), self.operands(args[1:]))
        if name in _CALLS and len(args) >= 3 and args[0] is self.lists[0]:
            return BodyCall(_index(args[1]), _text(args[2]), self.operands(args[3:]))
        if name == "tirx.anylist_resetitem" and len(args) == 2 and args[0] is self.lists[0]:
            return BodyCall(_index(args[1]), "vm.builtin.null_value", ())
        raise _unexpected(call)

    def branch(self, stmt: IfThenElse) -> None:
        condition = stmt.condition
        if not isinstance(condition, Call) or _operator(condition) != _VOID_CALLS[0]:
            raise _unexpected(condition)
        self.conditions += 1
        register = self.conditions
        args = self.operands(condition.args[1:])
        self.instructions.append(BodyCall(register, _text(condition.args[0]), args))
        at = len(self.instructions)
        self.instructions.append(If(register, 2))  # replaced below
        self.read(stmt.then_case)
        if stmt.else_case is None:
            self.instructions[at] = If(register, max(2, len(self.instructions) - at))
            return
        jump = len(self.instructions)
        self.instructions.append(Goto(1))  # replaced below
        self.read(stmt.else_case)
        self.instructions[at] = If(register, jump + 1 - at)
        self.instructions[jump] = Goto(len(self.instructions) - jump)

    def operands(self, args: tuple[Expr, ...]) -> tuple[Arg | Literal, ...]:
        return tuple(map(self.operand, args))

    def operand(self, expr: Expr) -> Arg | Literal:
        match expr:
            case IntImm():
                return Literal(bool(expr.value) if expr.dtype.is_bool else int(expr.value))
            case FloatImm():
                return Literal(float(expr.value))
            case StringImm():
                return Literal(expr.value)
            case Var() if expr is self.context:
                return Arg(ArgKind.REGISTER, VM_REGISTER)
            case Call(op=Op(name="tirx.anylist_getitem"), args=(values, index)):
                for kind, known in zip(_LISTS, self.lists, strict=True):
                    if values is known:
                        return Arg(kind, _index(index))
            case Call(op=Op(name="tirx.reinterpret"), args=(IntImm(value=0),)):
                return Arg(ArgKind.REGISTER, VOID_REGISTER)
            case _:
                pass
        raise _unexpected(expr)


def _highest_register(body: Stmt, registers: Var) -> int:
    """Return the highest register that the statements name."""
    highest, pending = 0, [body]
    found: list[Expr] = []
    while pending:
        match pending.pop():
            case SeqStmt(seq=seq):
                pending.extend(seq)
            case IfThenElse(condition=condition, then_case=then_case, else_case=else_case):
                found.append(condition)
                pending.append(then_case)
                pending.extend([] if else_case is None else [else_case])
            case Evaluate(value=value):
                found.append(value)
            case _:
                pass
    while found:
        expr = found.pop()
        if isinstance(expr, Call):
            if len(expr.args) >= 2 and expr.args[0] is registers:
                highest = max(highest, _index(expr.args[1]))
            found.extend(expr.args)
    return highest


def _operator(call: Call) -> str:
    return call.op.name if isinstance(call.op, Op) else ""


def _text(expr: Expr) -> str:
    if isinstance(expr, StringImm):
        return expr.value
    raise _unexpected(expr)


def _index(expr: Expr) -> int:
    if isinstance(expr, IntImm) and expr.value >= 0:
        return int(expr.value)
    raise _unexpected(expr)


def _unexpected(what: Stmt | Expr) -> InternalError:
    return InternalError(
        "a compiled Relax function is made of calls by name with operands from its lists, and of "
        f"branches on vm.builtin.read_if_cond; got {type(what).__name__}: {what!r:.200}"
    )
