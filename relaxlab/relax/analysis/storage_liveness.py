"""Which tensors share which storage, from when to when, what planning saved, and the peak.

Works on a module whose allocations are explicit (after CallTIRRewrite or any later pass), where a
step is a binding, and on an executable, ours or TVM's, where a step is an instruction. Branches of
an If are followed one after the other. What a value may refer to is followed through views,
tuples, branches, calls of Relax functions and of functions that nothing is known of, so a lifetime
is never too short. It ends with the last call that is given the value: another name, a tuple or a
view is no use of it. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.ir import IRModule
>>> storage_liveness(IRModule()).functions
()
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, overload

from relaxlab.ir import (
    Call,
    Expr,
    GenericConst,
    GlobalVar,
    IntImm,
    IRModule,
    Node,
    Op,
    StringImm,
    Tuple,
    TupleGetItem,
    Var,
    is_void,
)
from relaxlab.ir.prim_functor import substitute
from relaxlab.ir.sym import Analyzer
from relaxlab.relax.analysis.lifetimes import FunctionMemory, LifetimeBuilder, union
from relaxlab.relax.analysis.memory_usage import tensor_bytes
from relaxlab.relax.analysis.variables import free_vars
from relaxlab.relax.expr import (
    Binding,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    ShapeExpr,
    VarBinding,
)
from relaxlab.relax.type_variables import tir_vars_in_type
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.vm import bytecode
from relaxlab.runtime.vm.bytecode import ArgKind, VMFuncInfo, VMFuncKind
from relaxlab.runtime.vm.disassemble import instruction_text
from relaxlab.runtime.vm.executable import VMExecutable

__all__ = ["StorageLiveness", "storage_liveness"]

_VIEWS: Final = frozenset(
    {"relax.reshape", "relax.memory.view", "relax.memory.ensure_zero_offset", "vm.builtin.reshape"}
)
#: Operators that may hand on what they are given.
_CALLERS: Final = frozenset(
    {
        "relax.call_builtin_with_ctx",
        "relax.call_pure_packed",
        "relax.invoke_closure",
        "relax.invoke_pure_closure",
        "relax.make_closure",
    }
)
_KILLS: Final = frozenset(
    {"relax.memory.kill_tensor", "relax.memory.kill_storage", "relax.vm.kill_object"}
)
#: Builtins that hand on what they are given; the others return numbers, shapes, new memory.
_KEEPS: Final = frozenset(
    {"vm.builtin.copy", "vm.builtin.invoke_closure", "vm.builtin.make_closure"}
)
#: Builtins that give a value another name and do not look at its content.
_RENAMES: Final = frozenset(
    {
        "vm.builtin.copy",
        "vm.builtin.make_closure",
        "vm.builtin.make_tuple",
        "vm.builtin.reshape",
        "vm.builtin.tuple_getitem",
    }
)
_INT64: Final = re.compile(r"T\.int64\((-?\d+)\)")
_NOTHING: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class StorageLiveness:
    """The memory of all functions of a program."""

    functions: tuple[FunctionMemory, ...]

    def __getitem__(self, name: str) -> FunctionMemory:
        """Return the memory of a function."""
        for memory in self.functions:
            if memory.function == name:
                return memory
        known = ", ".join(memory.function for memory in self.functions) or "none"
        raise KeyError(f"there is no function {name!r}; there are: {known}")

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.functions))

    def to_data(self) -> list[dict[str, Any]]:
        """Return everything as plain data, for views."""
        return [memory.to_data() for memory in self.functions]


def storage_liveness(
    program: IRModule | VMExecutable, sizes: Mapping[str, int] | None = None
) -> StorageLiveness:
    """Return which tensors share which storage, from when to when.

    Parameters
    ----------
    program
        A module with explicit allocations, or an executable.
    sizes
        What symbolic sizes are, by name, so that dynamic storages can be counted. For modules
        only: in an executable a size is a number, or comes from the machine.

    Returns
    -------
    StorageLiveness
        A table for each Relax function; ``print`` shows it.
    """
    if isinstance(program, VMExecutable):
        infos = [info for info in program.func_table if info.kind == VMFuncKind.VM_FUNC]
        return StorageLiveness(tuple(_InstructionWalk(program, info).run() for info in infos))
    return StorageLiveness(
        tuple(
            _BindingWalk(program, func, sizes or {}).run(gvar.name_hint)
            for gvar, func in program.functions.items()
            if isinstance(func, Function)
        )
    )


class _Texts(Sequence[str]):
    """Texts that are made when they are asked for."""

    def __init__(self, sources: Sequence[Any], text: Callable[[Any], str]) -> None:
        self._sources = sources
        self._text = text

    def __len__(self) -> int:
        return len(self._sources)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            return _Texts(self._sources[index], self._text)
        return self._text(self._sources[index])


# ---------------------------------------------------------------- modules


class _BindingWalk:
    """Follows the bindings of a function."""

    def __init__(self, mod: IRModule, func: Function, sizes: Mapping[str, int]) -> None:
        self.mod = mod
        self.func = func
        self.builder = LifetimeBuilder()
        self.bindings: list[Binding] = []
        self.analyzer = Analyzer()
        self.sizes = sizes
        self.known: dict[Var, Expr] = {}
        for param in func.params:
            self.define(param.ty)

    def run(self, name: str) -> FunctionMemory:
        """Return the table of the function."""
        self.builder.use_claim(self.sequence(self.func.body))
        return self.builder.finish(
            name, _Texts(self.bindings, _binding_text), _Texts(self.bindings, _place_text)
        )

    def define(self, ty: Any) -> None:
        """Take note of the sizes in a type whose values are given."""
        for var in tir_vars_in_type(ty):
            if var.name in self.sizes:
                self.known[var] = IntImm(DataType("int64"), self.sizes[var.name])

    def sequence(self, seq: Expr) -> Any:
        """Follow a body; return what its result refers to."""
        assert isinstance(seq, SeqExpr)
        for block in seq.blocks:
            for binding in block.bindings:
                self.binding(binding)
        return self.of(seq.body)

    def binding(self, binding: Binding) -> None:
        assert isinstance(binding, VarBinding | MatchCast)
        self.bindings.append(binding)
        var, value = binding.var, binding.value
        if isinstance(binding, MatchCast):
            self.define(binding.ty)
            claim = self.of(value)
        else:
            match value:
                case If():
                    self.builder.use_claim(self.of(value.cond))
                    self.builder.next_step()
                    claims = [self.sequence(value.true_branch), self.sequence(value.false_branch)]
                    self.builder.assign(var, union(claims), var.name)
                    return
                case Function():
                    claim = union(self.builder.claim(free) for free in free_vars(value))
                case Call():
                    done, claim = self.call(var, value)
                    if done:
                        self.builder.next_step()
                        return
                case _:
                    claim = self.of(value)
        self.builder.assign(var, claim, var.name)
        self.builder.next_step()

    def of(self, value: Expr) -> Any:
        """Return what a value refers to."""
        match value:
            case Var():
                return self.builder.claim(value)
            case Tuple(fields=fields):
                return tuple(map(self.of, fields))
            case TupleGetItem(tuple_value=whole, index=index):
                claim = self.of(whole)
                return claim[index] if isinstance(claim, tuple) else claim
            case _:
                return _NOTHING

    def call(self, var: Var, call: Call) -> tuple[bool, Any]:
        """Follow a call; return whether that was all, and else what its result refers to."""
        name = _callee(call)
        match name:
            case "relax.memory.alloc_storage" | "relax.vm.alloc_storage":
                *_, third, fourth = call.args[:4]
                scope, dtype = (third, fourth) if isinstance(third, StringImm) else (fourth, third)
                self.storage(var, call.args[0], call.args[1], scope, dtype)
                return True, None
            case "relax.memory.alloc_tensor" | "relax.vm.alloc_tensor":
                storage, offset, shape, dtype = call.args[:4]
                self.tensor(var, storage, offset, shape, dtype)
                return True, None
            case "relax.builtin.alloc_tensor":
                shape, dtype, device, scope = call.args[:4]
                self.storage(call, shape, device, scope, dtype, var)
                self.tensor(var, call, IntImm(DataType("int64"), 0), shape, dtype)
                self.builder.kill(call)
                return True, None
            case _ if name in _KILLS:
                if isinstance(call.args[0], Var):  # not what was folded since
                    self.builder.kill(call.args[0])
                return True, None
            case _:
                pass
        given = [self.of(arg) for arg in (call.op, *call.args)]
        if name in _VIEWS:
            return False, given[1]
        for claim in given:
            self.builder.use_claim(claim)
        return False, union(given) if self.may_keep(call, name) else _NOTHING

    def may_keep(self, call: Call, name: str | None) -> bool:
        """Whether the result of a call may be, or hold, something it was given."""
        if is_void(call.ty):
            return False
        match call.op:
            case Op():
                return name in _CALLERS
            case ExternFunc():
                return name in _KEEPS or not str(name).startswith("vm.builtin.")
            case GlobalVar():
                return isinstance(self.mod.functions.get(call.op), Function)
            case _:
                return True

    def storage(
        self,
        key: Any,
        size: Expr,
        device: Expr,
        scope: Expr,
        dtype: Expr,
        single: Var | None = None,
    ) -> None:
        kind = DataType(dtype.value) if isinstance(dtype, GenericConst) else DataType("uint8")
        size = self.sized(size)
        if single is not None:
            nbytes = tensor_bytes(size, kind)
            text = str(nbytes) if nbytes is not None else f"{_shape(size)} {kind}"
        else:
            first = size.values[0] if isinstance(size, ShapeExpr) else size
            nbytes = first.value if isinstance(first, IntImm) else None
            text = _size(first)
        self.builder.storage(
            key,
            key.name if single is None else single.name,
            nbytes,
            text,
            str(kind),
            scope.value if isinstance(scope, StringImm) else "global",
            device.value if isinstance(device, IntImm) else 0,
            single is None,
        )

    def tensor(self, var: Var, storage: Any, offset: Expr, shape: Expr, dtype: Expr) -> None:
        kind = DataType(dtype.value) if isinstance(dtype, GenericConst) else DataType("uint8")
        shape = self.sized(shape)
        at = offset.value if isinstance(offset, IntImm) else 0
        nbytes = tensor_bytes(shape, kind)
        self.builder.tensor(var, var.name, storage, at, _shape(shape), str(kind), nbytes)

    def sized(self, shape: Expr) -> Expr:
        """Return a shape with the sizes put in that were given."""
        if not self.known or not isinstance(shape, ShapeExpr):
            return shape
        dims = [substitute(dim, self.known) for dim in shape.values]
        return ShapeExpr([self.analyzer.simplify(dim) for dim in dims])


def _callee(call: Call) -> str | None:
    match call.op:
        case Op(name=name) | ExternFunc(global_symbol=name):
            return name
        case _:
            return None


def _text(node: Node) -> str:
    # a repr declares the variables that it mentions first
    return repr(node).rpartition("\n")[2]


def _size(size: Expr) -> str:
    """Return a size as people write it: 16 * n, not T.int64(16) * n."""
    return _INT64.sub(r"\1", _text(size))


def _shape(shape: Expr) -> str:
    if not isinstance(shape, ShapeExpr):
        return _text(shape)
    dims = ", ".join(map(_size, shape.values))
    return f"({dims},)" if len(shape.values) == 1 else f"({dims})"


def _binding_text(binding: Any) -> str:
    if isinstance(binding.value, If):
        return f"{binding.var.name} = if {_text(binding.value.cond)}"
    if isinstance(binding.value, Function):
        return f"{binding.var.name} = a local function"
    return _text(binding)


def _place_text(binding: Binding) -> str:
    return "" if binding.span is None else str(binding.span)


# ---------------------------------------------------------------- executables


class _InstructionWalk:
    """Follows the instructions of a function."""

    def __init__(self, ex: VMExecutable, info: VMFuncInfo) -> None:
        self.ex = ex
        self.info = info
        self.builder = LifetimeBuilder(info.start_instr)

    def run(self) -> FunctionMemory:
        """Return the table of the function."""
        pcs = range(self.info.start_instr, self.info.end_instr)
        for pc in pcs:
            match self.ex.instruction(pc):
                case bytecode.Call() as call:
                    self.call(call)
                case bytecode.Ret(result=register) | bytecode.If(cond=register):
                    self.builder.use(register)
                case _:
                    pass
            self.builder.next_step()
        return self.builder.finish(
            self.info.name, _Texts(pcs, self.instruction), _Texts(pcs, self.place)
        )

    def instruction(self, pc: int) -> str:
        return " ".join(instruction_text(self.ex, self.ex.instruction(pc)).split())

    def place(self, pc: int) -> str:
        origin = self.ex.source_map.get(pc)
        return "" if origin is None else ", ".join(place.where for place in origin.places)

    def call(self, call: bytecode.Call) -> None:
        callee = self.ex.func_table[call.func_idx]
        builder, dst, args = self.builder, call.dst, call.args
        match callee.name:
            case "vm.builtin.alloc_storage":
                _, size, device, dtype, scope = map(self.value, args)
                nbytes = int(size[0]) if isinstance(size, ShapeTuple) else None
                text = str(nbytes) if nbytes is not None else f"%{args[1].value}"
                builder.storage(dst, f"%{dst}", nbytes, text, str(dtype), str(scope), int(device))
                return
            case "vm.builtin.alloc_tensor":
                offset, shape, dtype = map(self.value, args[1:4])
                text, nbytes = f"%{args[2].value}", None
                if isinstance(shape, ShapeTuple):
                    text, nbytes = str(tuple(shape)), _bytes(shape, DataType(str(dtype)))
                self.builder.tensor(
                    dst, f"%{dst}", args[0].value, int(offset), text, str(dtype), nbytes
                )
                return
            case "vm.builtin.null_value" if not args:
                builder.kill(dst)
                return
            case _:
                pass
        given = [self.of(arg) for arg in args]
        if callee.name not in _RENAMES:
            for claim in given:
                builder.use_claim(claim)
        claim = self.result(call, callee, given)
        # both branches of an If write to the register of its value
        before = builder.claim(dst) if callee.name == "vm.builtin.copy" else _NOTHING
        builder.assign(dst, union((before, claim)) if before else claim, f"%{dst}")

    def result(self, call: bytecode.Call, callee: VMFuncInfo, given: list[Any]) -> Any:
        """Return what the result of a call may refer to."""
        if call.dst == bytecode.VOID_REGISTER:
            return _NOTHING
        match callee.name:
            case "vm.builtin.make_tuple":
                return tuple(given)
            case "vm.builtin.tuple_getitem":
                whole, index = given[0], call.args[1].value
                return whole[index] if isinstance(whole, tuple) else whole
            case "vm.builtin.reshape":
                return given[0]
            case name if name in _KEEPS or not name.startswith("vm.builtin."):
                return given[0] if len(given) == 1 else union(given)
            case _:
                return _NOTHING

    def of(self, arg: bytecode.Arg) -> Any:
        return self.builder.claim(arg.value) if arg.kind == ArgKind.REGISTER else _NOTHING

    def value(self, arg: bytecode.Arg) -> Any:
        """Return the value of an argument that is no register, else None."""
        match arg.kind:
            case ArgKind.IMMEDIATE:
                return arg.value
            case ArgKind.CONST_IDX:
                return self.ex.constants[arg.value]
            case _:
                return None


def _bytes(shape: Sequence[int], dtype: DataType) -> int:
    size = (dtype.bits + 7) // 8 * dtype.lanes
    for dim in shape:
        size *= dim
    return size
