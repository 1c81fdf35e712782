"""From a kernel to a Python function: argument checks, body, compilation.

The text first unpacks tensors and compares shapes with one expression per argument; only when
something differs is the full check called, which says what. Counterpart: the packed function
wrappers that TVM makes.

Examples
--------
>>> from relaxlab.codegen.numpy import generate
>>> from relaxlab.ir import IntImm, Var
>>> from relaxlab.tirx import PrimFunc, Return
>>> n = Var("n", "int64")
>>> print(generate(PrimFunc((n,), Return(n * 2)), "twice").source)
def twice(n_arg):
    n = int(n_arg)
    return n * 2
<BLANKLINE>
"""

import linecache
from typing import Any

from relaxlab.codegen.interface import Kernel
from relaxlab.codegen.numpy.quiet import restore, silence
from relaxlab.codegen.numpy.scalar_code import scalar_code
from relaxlab.codegen.numpy.statements import StatementWriter
from relaxlab.codegen.numpy.writer import Unsupported, Writer
from relaxlab.ir.expr import Call, Var
from relaxlab.ir.prim import BinaryExpr, Cast
from relaxlab.ir.prim_functor import post_order_visit
from relaxlab.ir.type import PrimType
from relaxlab.runtime.tensor import Tensor
from relaxlab.tirx.buffer import BufferType
from relaxlab.tirx.function import PrimFunc
from relaxlab.tirx.interp import Interpreter
from relaxlab.tirx.signature import Signature, array_of

__all__ = ["generate"]


def generate(func: PrimFunc, name: str) -> Kernel:
    """Compile a kernel to a Python function on NumPy arrays.

    Parameters
    ----------
    func
        The kernel; any kernel compiles, one that has no array form runs as loops or interpreted.
    name
        What messages and the text call it.
    """
    try:
        return _Generator(func, name).generate()
    except Unsupported:
        reason = f"# {name}: its parameters have no NumPy form, so the interpreter runs it\n"
        return Kernel(Interpreter(func, name), reason)


class _Generator:
    def __init__(self, func: PrimFunc, name: str) -> None:
        self.func = func
        self.name = name
        self.writer = Writer(name)
        self.writer.no_alias = bool(func.func_attrs.get("tirx.noalias", False))
        self.signature = Signature(func, name)
        self.sizes: list[Var] = []

    def generate(self) -> Kernel:
        writer = self.writer
        function_name = writer.fresh(self.name)
        arguments = [writer.fresh(f"{param.name}_arg") for param in self.func.params]
        self._unpack(arguments)
        body = StatementWriter(writer, self.func, self.sizes)
        if _may_warn(self.func):
            # overflow and NaN are results here, not mistakes
            writer.namespace.update(silence=silence, restore=restore)
            writer.line("warnings = silence()")
            with writer.block("try:"):
                body.write(self.func.body)
            with writer.block("finally:"):
                writer.line("restore(warnings)")
        else:
            body.write(self.func.body)
        lines = writer.lines or ["    pass"]
        head = [*writer.header, ""] if writer.header else []
        text = "\n".join([*head, f"def {function_name}({', '.join(arguments)}):", *lines, ""])
        return Kernel(self._compile(text, function_name), text)

    def _compile(self, text: str, function_name: str) -> Any:
        filename = f"<kernel {self.name}>"
        # errors inside a kernel show its text
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        namespace = self.writer.namespace
        exec(compile(text, filename, "exec"), namespace)  # noqa: S102  # text written here
        return namespace[function_name]

    # ------------------------------------------------------------ arguments

    def _unpack(self, arguments: list[str]) -> None:
        writer = self.writer
        conditions: list[str] = []
        writer.namespace.update(Tensor=Tensor, memory_of=memory_of)
        shapes: dict[Var, str] = {}
        for param, argument in zip(self.func.params, arguments, strict=True):
            ty = param.ty
            if isinstance(ty, BufferType):
                state = writer.declare(param, "array")
                get = (
                    f"{argument}.array if {argument}.__class__ is Tensor else memory_of({argument})"
                )
                writer.line(f"{state.code} = {get}")
            elif isinstance(ty, PrimType):
                convert = self._number(ty)
                name = writer.scalars[param] = writer.fresh(param.name)
                writer.line(f"{name} = {convert}({argument})")
                if ty.dtype.is_int:
                    self.sizes.append(param)
            else:
                raise Unsupported
        self._bind_sizes(shapes)
        for param in self.func.params:
            if isinstance(param.ty, BufferType):
                conditions.extend(self._conditions(param, shapes))
        if conditions:
            writer.namespace["refuse"] = self._refuse
            with writer.block(f"if {' or '.join(conditions)}:"):
                writer.line(f"refuse({', '.join(arguments)})")

    def _number(self, ty: PrimType) -> str:
        if ty.dtype.is_float:
            return f"{self.writer.dtype(ty.dtype)}.type"
        return "bool" if ty.dtype.is_bool else "int"

    def _refuse(self, *args: Any) -> None:
        """Say what is wrong with the arguments; return where only the fast test was too strict."""
        self.signature.bind(args)

    def _bind_sizes(self, shapes: dict[Var, str]) -> None:
        """Write what reads symbolic sizes off the shapes."""
        writer = self.writer
        for param in self.func.params:
            if not isinstance(param.ty, BufferType):
                continue
            for axis, dim in enumerate(param.ty.shape):
                if not isinstance(dim, Var) or dim in writer.scalars:
                    continue
                shape = self._shape(param, shapes)
                name = writer.scalars[dim] = writer.fresh(dim.name)
                rank = len(param.ty.shape)
                # a wrong rank is refused below, in words
                writer.line(f"{name} = {shape}[{axis}] if len({shape}) == {rank} else -1")
                self.sizes.append(dim)
        for var in self.sizes:
            writer.analyzer.mark_global_non_neg_value(var)

    def _shape(self, param: Var, shapes: dict[Var, str]) -> str:
        if param not in shapes:
            shapes[param] = self.writer.fresh(f"{param.name}_shape")
            code = self.writer.state(param).code
            self.writer.line(f"{shapes[param]} = {code}.shape")
        return shapes[param]

    def _conditions(self, param: Var, shapes: dict[Var, str]) -> list[str]:
        """Return the tests of one buffer: dtype (by identity, the usual case) and shape."""
        state = self.writer.state(param)
        dims = [scalar_code(self.writer, dim) for dim in state.shape]
        comma = "," if len(dims) == 1 else ""
        shape = shapes.get(param, f"{state.code}.shape")
        dtype = self.writer.dtype(state.dtype)
        return [f"{state.code}.dtype is not {dtype}", f"{shape} != ({', '.join(dims)}{comma})"]


class _NoTensor:
    """Stands for an argument that is no tensor, until the check says so in words."""

    dtype = None
    shape = ()


def memory_of(value: Any) -> Any:
    """Return the memory of an argument that is not of our tensor class."""
    array = array_of(value)
    return _NoTensor if array is None else array


def _may_warn(func: PrimFunc) -> bool:
    """Whether NumPy could warn of overflow, NaN or division while the kernel runs."""
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        if isinstance(node, BinaryExpr | Call) and isinstance(node.ty, PrimType):
            found = found or node.ty.dtype.is_float
        elif isinstance(node, Cast):
            found = found or node.value.dtype.is_float

    post_order_visit(func.body, visit)
    return found
