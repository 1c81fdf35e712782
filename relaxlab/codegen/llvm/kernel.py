"""A kernel as a module of LLVM IR, with what a caller has to know about it.

The module exports one function, ``kernel``: it takes the arguments as 64-bit words, compares
shapes with what the kernel expects, binds symbolic sizes, and calls the body. The body is a
function of typed pointers and sizes that the processor sees, and that a reader can read.
A plan can be saved: it is text, names and numbers. Counterpart: TVM's ``MakePackedAPI``.

Examples
--------
>>> from relaxlab import te
>>> from relaxlab.codegen.llvm.host import Host
>>> x = te.placeholder((4,), "float32", "x")
>>> f = te.create_prim_func([x, te.compute((4,), lambda i: x[i] * 2.0, name="y")])
>>> plan = make_plan(f, "twice", Host("generic", "", 16, masks=False, half=False))
>>> plan.parameters[1].name, plan.parameters[1].written
('y', True)
>>> "define internal i32 @twice(ptr noalias %x, ptr noalias %y, ptr %state)" in plan.text
True
"""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from relaxlab.codegen.llvm.arithmetic import Arithmetic, Unsupported, memory_type, register_type
from relaxlab.codegen.llvm.builder import Builder, Value, helper_name
from relaxlab.codegen.llvm.expressions import Expressions
from relaxlab.codegen.llvm.few_rows import LEAST_FEW, is_for_few_rows
from relaxlab.codegen.llvm.host import Host
from relaxlab.codegen.llvm.indices import Indices, Poly, as_constant, constant, multiplied
from relaxlab.codegen.llvm.inline import inline
from relaxlab.codegen.llvm.lower import lower
from relaxlab.codegen.llvm.mathematics import helper_text
from relaxlab.codegen.llvm.matmul import LARGE, LEAST_ROWS, Matrix, Product
from relaxlab.codegen.llvm.nests import accesses
from relaxlab.codegen.llvm.parallel import LEAST, own_buffers
from relaxlab.codegen.llvm.parts import part_rows
from relaxlab.codegen.llvm.rows import fuse_rows
from relaxlab.codegen.llvm.shares import POOL_SLOT, SharedStatements, Sharing
from relaxlab.codegen.llvm.sites import Sites
from relaxlab.codegen.llvm.statements import RESULT_SLOT
from relaxlab.codegen.llvm.walk import call_name, escaping, statements_in
from relaxlab.ir.expr import Call, Expr, StringImm, Var
from relaxlab.ir.op import Op
from relaxlab.ir.prim import IntImm, TensorLoad
from relaxlab.ir.type import PointerType, PrimType
from relaxlab.runtime.dtype import DataType
from relaxlab.tirx.buffer import BufferType, buffer_type
from relaxlab.tirx.function import PrimFunc
from relaxlab.tirx.stmt import AllocBuffer, DeclBuffer, SeqStmt, Stmt

__all__ = [
    "CALLBACK_SLOT",
    "MISFIT",
    "POOL_SLOT",
    "Parameter",
    "Plan",
    "RESULT_SLOT",
    "make_plan",
]

#: Where in the caller's block the address of the callback is.
CALLBACK_SLOT: Final = 17
#: Status of a kernel whose arguments have the wrong shape.
MISFIT: Final = -1
#: Bytes of a buffer up to which it lies on the stack, and of all such buffers together.
_SMALL: Final = 16 * 1024
_STACK: Final = 128 * 1024
#: Calls of mathematical functions up to which they are inlined; more would take long to compile.
_INLINED: Final = 100
_PACKED: Final = frozenset(
    {"tvm_call_packed", "tvm_call_cpacked", "call_extern", "call_pure_extern"}
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a caller passes.

    Attributes
    ----------
    kind
        ``buffer``, ``number`` or ``handle``.
    name
        For messages.
    dtype
        Of the elements or of the number.
    rank
        Dimensions of a buffer, the one for vector elements included.
    written
        Whether the kernel writes to the buffer.
    """

    kind: str
    name: str
    dtype: str
    rank: int = 0
    written: bool = False


@dataclass(slots=True)
class Plan:
    """A kernel in LLVM IR.

    Attributes
    ----------
    name
        What messages call it.
    text
        The module.
    parameters
        In order.
    sites
        What can go wrong; see sites.py.
    callbacks
        Python functions that the kernel calls; see callbacks.py.
    returns
        Dtype of the result, or None.
    no_alias
        Whether the kernel's author promises that arguments do not overlap.
    parts
        How many loops it may share with other threads.
    """

    name: str
    text: str
    parameters: list[Parameter]
    sites: list[list[Any]] = field(default_factory=list)
    callbacks: list[list[Any]] = field(default_factory=list)
    returns: str | None = None
    no_alias: bool = True
    parts: int = 0

    def record(self) -> dict[str, Any]:
        """Return the plan as what JSON can hold."""
        return asdict(self)

    @classmethod
    def of_record(cls, record: dict[str, Any]) -> "Plan":
        """Return a plan from :meth:`record`."""
        fields = dict(record)
        fields["parameters"] = [Parameter(**p) for p in fields["parameters"]]
        return cls(**fields)


def make_plan(
    func: PrimFunc, name: str, host: Host, *, plain: bool = False, least: int | None = LEAST
) -> Plan:
    """Translate a kernel.

    Parameters
    ----------
    func
        The kernel.
    name
        What messages call it.
    host
        The processor.
    plain
        Do everything in the order it is written, for arguments that overlap.
    least
        Cost (see parallel.py) from which a loop is shared with other threads; None shares nothing.

    Raises
    ------
    Unsupported
        If the kernel does what this generator has no code for; the message says what.
    """
    return _Maker(func, name, host, plain, least).make()


class _Maker:
    def __init__(
        self, func: PrimFunc, name: str, host: Host, plain: bool, least: int | None
    ) -> None:
        self.func = func
        self.name = name
        self.host = host
        self.plain = plain
        self.least = least
        self.sites = Sites(name)
        self.written = {b for b, _, store in accesses(func.body) if store} | escaping(func.body)

    def make(self) -> Plan:
        body_name = _identifier(self.name)
        if body_name in ("kernel", "malloc", "free"):
            body_name += ".body"
        arguments = self._arguments()
        attributes = "" if self.plain else " noalias"
        typed = [
            (kind + (attributes if kind == "ptr" else ""), text) for _, kind, text in arguments
        ]
        builder = Builder(body_name, [*typed, ("ptr", "state")])
        writer = _Body(
            builder,
            Arithmetic(builder, self.host),
            Indices(),
            self.sites,
            builder.argument("state"),
        )
        writer.plain = self.plain
        writer.positions = {param: k for k, param in enumerate(self.func.params)}
        for var, kind, text in arguments:
            if kind == "ptr":
                writer.place(var, builder.argument(text), key="memory" if self.plain else var)
            else:
                writer.scalars[var] = builder.argument(text)
        for var in self._sizes():
            writer.indices.declare_size(var)
        self._ignore_offsets(writer)
        kernel = lower(self.func)
        if not self.plain:
            inline(kernel)
            fuse_rows(kernel)
            part_rows(kernel)
        flat = [s for stmt in kernel.body for s in _flat(stmt)]
        kernel.locals += [s.buffer for s in flat if isinstance(s, AllocBuffer)]
        kernel.body[:] = [s for s in flat if not isinstance(s, AllocBuffer)]
        if self.least is not None and not self.plain and not _has_views(self.func.body):
            writer.sharing = Sharing(arguments, self.least)
        allocated = [*kernel.locals, *_allocated(kernel.body)]
        whose = {id(s): own_buffers(kernel, s) for s in kernel.body} if writer.sharing else {}
        waiting = set().union(*whose.values())
        for buffer in allocated:
            if buffer not in waiting:
                writer.allocate_here(buffer)
        for stmt in kernel.body:
            own = whose.get(id(stmt), ())
            writer.outermost(stmt, [b for b in allocated if b in own])
        body = builder.finish()
        shares = writer.sharing or Sharing((), 0)
        entry_builder, entry = self._entry(body_name, arguments)
        declarations = dict(builder.declarations)
        declarations.update(entry_builder.declarations)
        written = "\n".join([*shares.parts, body, *shares.doors])
        calls = sum(written.count(f"@{helper_name(*key)}(") for key in builder.helpers)
        helpers = helper_text(builder.helpers, self.host, inlined=calls <= _INLINED)
        known = [line for line in declarations.values() if f"{line}\n" not in helpers]
        text = "\n".join([f"; {self.name}", entry, written, helpers, *known, ""])
        return Plan(
            self.name,
            text,
            [self._parameter(p) for p in self.func.params],
            self.sites.records,
            writer.callbacks,
            None if writer.returns is None else str(writer.returns),
            bool(self.func.func_attrs.get("tirx.noalias", False)),
            len(shares.parts),
        )

    def _parameter(self, param: Var) -> Parameter:
        ty = param.ty
        if isinstance(ty, BufferType):
            rank = len(ty.shape) + (ty.dtype.lanes != 1)
            return Parameter("buffer", param.name, str(ty.dtype), rank, param in self.written)
        if isinstance(ty, PrimType):
            return Parameter("number", param.name, str(ty.dtype))
        return Parameter("handle", param.name, "handle")

    def _arguments(self) -> list[tuple[Var, str, str]]:
        """Return (variable, LLVM type, name) of the body's arguments: parameters, then sizes."""
        names: set[str] = set()

        def fresh(name: str) -> str:
            base = _identifier(name)
            if re.fullmatch(r"[vi]\d+|status|code|state|entry|leave|first|last", base):
                # the builder's own names
                base += ".arg"
            text, count = base, 0
            while text in names:
                count += 1
                text = f"{base}.{count}"
            names.add(text)
            return text

        found: list[tuple[Var, str, str]] = []
        for param in self.func.params:
            ty = param.ty
            if isinstance(ty, BufferType):
                memory_type(ty.dtype.with_lanes(1))
                if ty.strides:
                    raise Unsupported(f"buffer {param.name!r} with strides")
                kind = "ptr"
            elif isinstance(ty, PrimType):
                kind = register_type(ty.dtype)
                kind = "i64" if kind.startswith("i") and kind != "i1" else kind
            elif isinstance(ty, PointerType):
                kind = "i64"
            else:
                raise Unsupported(f"parameter {param.name!r} of type {ty!r}")
            found.append((param, kind, fresh(param.name)))
        known = {var for var, _, _ in found}
        for var in self._sizes():
            if var not in known:
                found.append((var, "i64", fresh(var.name)))
                known.add(var)
        return found

    def _sizes(self) -> list[Var]:
        """Return the variables that are dimensions of arguments."""
        found: dict[Var, None] = {}
        for param in self.func.params:
            if isinstance(param.ty, BufferType):
                found.update(dict.fromkeys(d for d in param.ty.shape if isinstance(d, Var)))
        return list(found)

    def _ignore_offsets(self, writer: "_Body") -> None:
        """Let symbolic offsets of parameters be zero: the memory that is passed starts there."""
        for param in self.func.params:
            if isinstance(param.ty, BufferType) and isinstance(param.ty.elem_offset, Var):
                writer.scalars.setdefault(param.ty.elem_offset, writer.b.int64(0))

    # ------------------------------------------------------------ entry

    def _entry(
        self, body_name: str, arguments: Sequence[tuple[Var, str, str]]
    ) -> tuple[Builder, str]:
        """Return the exported function, which unpacks words and compares shapes."""
        builder = Builder("kernel", [("ptr", "args"), ("ptr", "state")], attributes="", export=True)
        state = builder.argument("state")
        entry = Expressions(
            builder, Arithmetic(builder, self.host), Indices(), Sites(self.name), state
        )
        words = builder.argument("args")
        slot = len(self.func.params)
        values: dict[Var, Value] = {}

        def word(position: int, kind: str = "i64") -> Value:
            place = builder.element(words, builder.int64(position), "i64")
            return builder.load(place, kind, 0, 8, "args")

        for position, (param, kind, _) in enumerate(arguments[: len(self.func.params)]):
            values[param] = self._unpacked(builder, word, position, kind)
            if isinstance(param.ty, PrimType) and kind == "i64":
                entry.scalars[param] = values[param]
        dims: list[tuple[Expr, Value]] = []
        for param in self.func.params:
            if not isinstance(param.ty, BufferType):
                continue
            for dim in param.ty.shape:
                dims.append((dim, word(slot)))
                slot += 1
            slot += param.ty.dtype.lanes != 1
        for dim, given in dims:
            if isinstance(dim, Var) and dim not in entry.scalars:
                entry.scalars[dim] = values[dim] = given
        misfit = builder.literal(False, "i1")
        for dim, given in dims:
            if entry.scalars.get(dim) is given:  # type: ignore[call-overload]  # any expression
                continue
            expected = entry.number(entry.indices.of(dim))
            misfit = builder.binary("or", misfit, builder.compare("icmp ne", given, expected))
        builder.fail_if(misfit, MISFIT, (), state)
        operands = ", ".join(f"{values[var].typed}" for var, _, _ in arguments)
        comma = ", " if operands else ""
        status = builder.fresh(f"call i32 @{body_name}({operands}{comma}ptr %state)", "i32")
        builder.leave(status)
        return builder, builder.finish()

    def _unpacked(self, builder: Builder, word: Any, position: int, kind: str) -> Value:
        if kind in ("ptr", "i64"):
            return word(position, kind)  # type: ignore[no-any-return]  # a Value
        if kind == "i1":
            return builder.compare("icmp ne", word(position), builder.int64(0))
        number = builder.convert("bitcast", word(position), "double")
        return number if kind == "double" else builder.convert("fptrunc", number, "float")


class _Body(SharedStatements):
    """Statements of one kernel, with memory of its own and calls out of it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.callbacks: list[list[Any]] = []
        self.positions: dict[Var, int] = {}
        self._stack = 0

    # ------------------------------------------------------------ memory

    def allocate(self, buffer: Var) -> None:
        """Do nothing: buffers get their memory when the kernel starts."""
        if buffer not in self.memory:
            raise Unsupported(f"memory for {buffer.name!r} in this place")

    def allocate_here(self, buffer: Var) -> None:
        """Give a buffer memory: on the stack if it is small, else from the heap."""
        ty = buffer_type(buffer)
        elem = memory_type(ty.dtype.with_lanes(1))
        if buffer in self.memory:
            return
        width = _bytes_of(elem) * ty.dtype.lanes
        count: Poly = constant(1)
        for dim in ty.shape:
            count = multiplied(count, self.indices.of(dim))
        if not self.indices.variables(count) <= set(self.scalars):
            raise Unsupported(f"memory for {buffer.name!r}, whose size changes")
        size = as_constant(count)
        hint = _identifier(buffer.name)
        if size is not None and size * width <= _SMALL and self._stack + size * width <= _STACK:
            self._stack += size * width
            pointer = self.b.allocate(elem, max(size, 1) * ty.dtype.lanes, 64, hint)
        else:
            pointer = self._from_heap(buffer, multiplied(count, constant(width)), hint)
        self.place(buffer, pointer)

    def _from_heap(self, buffer: Var, size: Poly, hint: str) -> Value:
        b = self.b
        slot = b.allocate("ptr", 1, 8, f"{hint}.slot")
        # the kernel may end before it comes here, and frees what it has
        b.at_entry(f"store ptr null, {slot.typed}")
        given = self.number(size)
        given = b.select(b.compare("icmp slt", given, b.int64(0)), b.int64(0), given)
        wanted = b.binary("add", given, b.int64(64))
        b.declarations["malloc"] = "declare ptr @malloc(i64)"
        b.declarations["free"] = "declare void @free(ptr)"
        raw = b.fresh(f"call ptr @malloc({wanted.typed})", "ptr")
        b.line(f"store {raw.typed}, {slot.typed}")
        missing = b.compare("icmp eq", raw, Value("null", "ptr"))
        self.refuse(missing, self.sites.memory(buffer.name), [wanted])
        b.at_exit(f"{slot.text}.last = load ptr, {slot.typed}")
        b.at_exit(f"call void @free(ptr {slot.text}.last)")
        address = b.convert("ptrtoint", raw, "i64")
        address = b.binary("and", b.binary("add", address, b.int64(63)), b.int64(-64))
        return b.convert("inttoptr", address, "ptr")

    # ------------------------------------------------------------ matrix products

    def product(self, stmt: Stmt, product: Product) -> None:
        """Call BLAS for a large product; whether it is large may be known only at run time."""
        if not self._product_is_inside(stmt):
            self.nest(stmt)
            return
        if product.is_large():
            self._call_blas(product)
            return
        b = self.b
        sizes = [self.number(p) for p in (product.rows, product.inner, product.columns)]
        work = b.binary("mul", b.binary("mul", sizes[0], sizes[1]), sizes[2])
        large = b.compare("icmp sge", work, b.int64(LARGE))
        rows = LEAST_FEW if is_for_few_rows(product, self.arithmetic.host) else LEAST_ROWS
        for size, least in ((sizes[0], rows), (sizes[2], LEAST_ROWS)):
            large = b.binary("and", large, b.compare("icmp sge", size, b.int64(least)))

        def call() -> list[Value]:
            self._call_blas(product)
            return []

        def loops() -> list[Value]:
            # small, or with few rows: nothing to share
            with self.without_sharing():
                self.nest(stmt)
            return []

        b.branch(large, call, loops)

    def _product_is_inside(self, stmt: Any) -> bool:
        loops: list[tuple[Var, Any, Any]] = []
        inner = stmt
        while hasattr(inner, "loop_var"):
            loops.append((inner.loop_var, inner.min, inner.extent))
            inner = inner.body
        loops.extend((h.var, h.min, h.extent) for h in inner.loops)
        for var, low, extent in loops:
            self.indices.enter(var, self.indices.of(low), self.indices.of(extent))
        return all(
            self.indices.at_least(index, 0) and self.indices.below(index, size)
            for buffer, subscripts, _ in accesses(inner)
            for index, size in zip(subscripts, self._memory_of(buffer).shape, strict=True)
        )

    def _call_blas(self, product: Product) -> None:
        words = [self._start(m) for m in (product.left, product.right, product.out)]
        extents = (*product.batch, product.rows, product.inner, product.columns)
        words += [self.number(p) for p in extents]
        for matrix in (product.left, product.right, product.out):
            words += [self.number(p) for p in (*matrix.batch, matrix.rows, matrix.columns)]
        self._call_back(["matmul", str(product.dtype), len(product.batch)], words)
        self.b.forget(self._memory_of(product.out.buffer).key)

    def _start(self, matrix: Matrix) -> Value:
        memory = self._memory_of(matrix.buffer)
        elem = memory_type(memory.dtype)
        return self.b.element(memory.pointer, self.number(matrix.offset), elem)

    def _call_back(self, record: list[Any], words: Sequence[Value]) -> Value:
        """Call Python with some 64-bit words; return where the words are."""
        b = self.b
        if record in self.callbacks:
            code = self.callbacks.index(record)
        else:
            code = len(self.callbacks)
            self.callbacks.append(record)
        block = b.allocate("i64", max(len(words), 1), 8, "words")
        for position, word in enumerate(words):
            place = b.element(block, b.int64(position), "i64")
            b.line(f"store {word.typed}, {place.typed}")
        slot = b.element(self.state, b.int64(CALLBACK_SLOT), "i64")
        function = b.load(slot, "ptr", 0, 8, "state")
        status = b.fresh(f"call i32 {function.text}(ptr {block.text}, i32 {code})", "i32")
        failed = b.compare("icmp ne", status, b.literal(0, "i32"))
        b.fail_if(failed, self.sites.callback(), (), self.state)
        return block

    # ------------------------------------------------------------ calls

    def effect(self, call: Call, name: str) -> Value:
        """Return the value of a call that does more than compute."""
        b = self.b
        if self.lane is not None:
            raise Unsupported(f"a call of {name} in a vectorized loop")
        if name in _PACKED:
            return self._call_packed(call)
        match name:
            case "break_loop" | "continue_loop":
                b.jump("break" if name == "break_loop" else "continue")
                return b.literal(0, "i32")
            case "assume" | "undef":
                dtype = call.dtype if isinstance(call.ty, PrimType) else DataType("int32")
                return self.arithmetic.literal(0, dtype)
            case "buffer_data":
                return self._memory_of(call.args[0]).pointer  # type: ignore[arg-type]  # a buffer
            case "address_of":
                return self._address(call.args[0])
            case "tvm_struct_get":
                return self._field(call)
            case "isnullptr":
                pointer = self.value(call.args[0])
                null = Value("null", "ptr") if pointer.elem == "ptr" else b.int64(0)
                return b.compare("icmp eq", pointer, null)
            case _:
                raise Unsupported(f"a call of {name or call.op!r}")

    def _address(self, load: Any) -> Value:
        if not isinstance(load, TensorLoad):
            raise Unsupported("the address of what is no element")
        memory = self._memory_of(load.buffer)
        polys = [self.indices.of(i) for i in load.indices]
        self.check(memory, load.indices, polys, "points into")
        place = self.number(self.offset(memory, polys))
        return self.b.element(memory.pointer, place, memory_type(memory.dtype))

    def _field(self, call: Call) -> Value:
        """Return a field of a tensor, from the words that describe it; see arguments.py."""
        b = self.b
        handle, number = self.value(call.args[0]), call.args[2]
        if not isinstance(number, IntImm) or not 1 <= number.value <= 8 or handle.elem != "i64":
            raise Unsupported("a field of a tensor that is not known")
        place = b.element(b.convert("inttoptr", handle, "ptr"), b.int64(number.value), "i64")
        word = b.load(place, "i64", 0, 8, "fields")
        if isinstance(call.ty, PrimType):
            return self.arithmetic.cast(word, DataType("int64"), call.ty.dtype)
        return word

    def _call_packed(self, call: Call) -> Value:
        name, *arguments = call.args
        if not isinstance(name, StringImm):
            raise Unsupported("a packed function without a name")
        kinds: list[list[Any]] = []
        words: list[Value] = []
        for argument in arguments:
            kind, values = self._packed_argument(argument)
            kinds.append(kind)
            words += values
        result = call.ty.dtype if isinstance(call.ty, PrimType) else None
        text = None if result is None or result.is_void else str(result)
        block = self._call_back(["packed", name.value, kinds, text], words)
        for key in {m.key for m in self.memory.values()}:
            self.b.forget(key)
        if result is None or result.is_void:
            return self.b.literal(0, "i32")
        word = self.b.fresh(f"load i64, ptr {block.text}", "i64")
        if result.is_float:
            number = self.b.convert("bitcast", word, "double")
            return self.arithmetic.cast(number, DataType("float64"), result)
        return self.arithmetic.cast(word, DataType("int64"), result)

    def _packed_argument(self, argument: Any) -> tuple[list[Any], list[Value]]:
        b = self.b
        if isinstance(argument, StringImm):
            return ["text", argument.value], []
        if call_name(argument) == "tvm_stack_make_array":
            return self._tensor_argument(argument)
        if not isinstance(argument.ty, PrimType):
            if isinstance(argument, Var) and argument in self.positions:
                return ["parameter", self.positions[argument]], []
            raise Unsupported("an argument of a packed function that is no number or tensor")
        value, dtype = self.value(argument), argument.dtype
        if dtype.is_float:
            wide = self.arithmetic.cast(value, dtype, DataType("float64"))
            return ["float"], [b.convert("bitcast", wide, "i64")]
        kind = "bool" if dtype.is_bool else "int"
        return [kind], [self.arithmetic.cast(value, dtype, DataType("int64"))]

    def _tensor_argument(self, call: Call) -> tuple[list[Any], list[Value]]:
        data, shape, _, _, like, offset = call.args
        if not (isinstance(shape, Call) and isinstance(shape.op, Op)):
            raise Unsupported("a tensor without a shape")
        dtype = like.dtype
        pointer = self.value(data)
        start = self.number(self.indices.of(offset))
        place = self.b.element(pointer, start, memory_type(dtype))
        dims = [self.number(self.indices.of(dim)) for dim in shape.args]
        return ["tensor", str(dtype), len(dims)], [place, *dims]


def _flat(stmt: Stmt) -> Sequence[Stmt]:
    return stmt.seq if isinstance(stmt, SeqStmt) else (stmt,)


def _has_views(body: Stmt) -> bool:
    """Say whether some memory may have two names."""
    declared = (n for n in statements_in(body) if isinstance(n, DeclBuffer))
    return bool(escaping(body)) or any(n.data is not None for n in declared)


def _allocated(body: Sequence[Stmt]) -> list[Var]:
    """Return the buffers that statements allocate."""
    return [
        node.buffer
        for stmt in body
        for node in statements_in(stmt)
        if isinstance(node, AllocBuffer) or (isinstance(node, DeclBuffer) and node.data is None)
    ]


def _bytes_of(elem: str) -> int:
    return {"float": 4, "double": 8}.get(elem) or int(elem[1:]) // 8


def _identifier(name: str) -> str:
    text = re.sub(r"[^a-zA-Z0-9_]", "_", name) or "v"
    return f"v{text}" if text[0].isdigit() else text
