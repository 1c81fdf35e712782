"""Random well-typed programs: operators over static and symbolic shapes, branches, tuples,
functions, kernels; the same program for the same seed, with arguments for its ``main``.

The types of all values are known while a program is written, so nothing is ever refused. Values
stay small, so that kernels which add in another order agree.
"""

import random
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

Dim = int | str
Shape = tuple[Dim, ...]

#: What the symbolic dimensions are when the program runs.
SIZES = {"n": 3, "m": 2}
UNARY = ("exp", "tanh", "negative", "nn.relu", "sigmoid", "nn.silu", "nn.gelu", "abs", "square")
BINARY = ("add", "subtract", "multiply", "maximum", "minimum")
COMPARE = ("less", "greater_equal", "equal", "not_equal")
REDUCE = ("sum", "max", "min", "mean")
KERNEL = """
    @T.prim_func(private=True, s_tir=True)
    def scale_{index}(var_a: T.handle, var_b: T.handle):
        {declared}A = T.match_buffer(var_a, ({shape}), "float32")
        B = T.match_buffer(var_b, ({shape}), "float32")
        for {loops} in T.grid({shape}):
            with T.sblock("scale"):
                {axes} = T.axis.remap("{kinds}", [{loops}])
                B[{axes}] = A[{axes}] * T.float32(0.5)
"""


@dataclass(frozen=True)
class Value:
    """A variable of the program."""

    name: str
    shape: Shape
    dtype: str = "float32"


@dataclass
class Body:
    """Statements being written, and the values that can be used."""

    indent: str
    values: list[Value]
    lines: list[str] = field(default_factory=list)
    inside_dataflow: bool = False
    made: list[Value] = field(default_factory=list)

    def write(self, line: str) -> None:
        self.lines.append(f"{self.indent}{line}")


def text_of(shape: Shape) -> str:
    return f"({''.join(f'{dim}, ' for dim in shape)})"


def type_of(shape: Shape, dtype: str = "float32") -> str:
    inside = "".join(f"{dim!r}, " for dim in shape)
    return f'R.Tensor(({inside}), "{dtype}")'


class RandomModule:
    """One program.

    Parameters
    ----------
    seed
        Which.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.count = 0
        self.kernels: list[str] = []
        self.functions: list[str] = []
        self.callees: list[tuple[str, list[Value], Shape]] = []
        self.rows: Dim = self.random.choice(["n", "n", 4])
        self.cols: Dim = self.random.choice(["m", 4, 4])
        self.has_choice = self.random.random() < 0.35

    # ------------------------------------------------------------ the text

    def params(self) -> list[Value]:
        rows, cols = self.rows, self.cols
        return [
            Value("x", (rows, cols)),
            Value("y", (rows, cols)),
            Value("w", (cols, 4)),
            Value("b", (cols,)),
            Value("i", (2,), "int64"),
            Value("c", (), "bool"),
        ]

    def source(self) -> str:
        """Return the program."""
        params = self.params()
        for index in range(self.random.choice([0, 0, 1])):
            self.function(
                f"helper_{index}", [Value("p", params[0].shape), Value("q", (self.cols,))]
            )
        body = Body("        ", list(params))
        self.statements(body, self.random.randint(3, 9))
        result = self.result(body)
        inside = ", ".join(f"{p.name}: {type_of(p.shape, p.dtype)}" for p in params)
        declared = self.declarations("        ")
        main = f"    @R.function\n    def main({inside}):\n{declared}        cls = Module\n"
        main += "\n".join(body.lines) + f"\n        return {result}\n"
        head = "@I.ir_module\nclass Module:\n"
        return (
            head
            + "".join(f"{part.rstrip()}\n\n" for part in (*self.kernels, *self.functions))
            + main
        )

    def declarations(self, indent: str) -> str:
        symbols = sorted({dim for dim in (self.rows, self.cols) if isinstance(dim, str)})
        return "".join(f"{indent}{name} = T.int64()\n" for name in symbols)

    def function(self, name: str, params: list[Value]) -> None:
        """Write a function that others can call."""
        body = Body("        ", list(params))
        self.statements(body, self.random.randint(1, 3), may_branch=False)
        value = self.pick(body, params[0].shape)
        inside = ", ".join(f"{p.name}: {type_of(p.shape, p.dtype)}" for p in params)
        private = "(private=True)" if self.random.random() < 0.5 else ""
        declared = self.declarations("        ")
        lines = "\n".join(body.lines)
        self.functions.append(
            f"    @R.function{private}\n    def {name}({inside}) -> {type_of(value.shape)}:\n"
            f"{declared}        cls = Module\n{lines}\n        return {value.name}\n"
        )
        self.callees.append((name, params, value.shape))

    def result(self, body: Body) -> str:
        made = [value for value in body.values if value.name not in "xywbic"] or body.values
        chosen = self.random.sample(made, min(len(made), self.random.choice([1, 1, 2, 3])))
        names = [value.name for value in chosen]
        if len(names) == 1:
            return names[0]
        if len(names) == 3 and self.random.random() < 0.3:
            return f"({names[0]}, ({names[1]}, {names[2]}))"
        return f"({', '.join(names)})"

    # ------------------------------------------------------------ statements

    def statements(self, body: Body, count: int, may_branch: bool = True) -> None:
        while count > 0:
            kind = self.random.random()
            if kind < 0.35:
                some = min(count, self.random.randint(1, 5))
                self.dataflow(body, some)
                count -= some
            elif kind < 0.5 and may_branch and self.has_choice:
                self.choice(body)
                count -= 2
            else:
                self.step(body)
                count -= 1

    def dataflow(self, body: Body, count: int) -> None:
        inner = Body(f"{body.indent}    ", list(body.values), inside_dataflow=True)
        for _ in range(count):
            self.step(inner)
        if not inner.made:
            return
        outputs = self.random.sample(inner.made, self.random.randint(1, min(3, len(inner.made))))
        body.write("with R.dataflow():")
        body.lines += inner.lines
        body.write(f"    R.output({', '.join(value.name for value in outputs)})")
        body.values += outputs
        body.made += outputs

    def choice(self, body: Body) -> None:
        shape = (self.rows, self.cols)
        name = self.fresh()
        body.write("if c:")
        for head in (None, "else:"):
            if head is not None:
                body.write(head)
            inner = Body(f"{body.indent}    ", list(body.values))
            for _ in range(self.random.randint(0, 2)):
                self.step(inner)
            body.lines += inner.lines
            value = self.pick(inner, shape)
            operator = self.random.choice(UNARY)
            body.write(f"    {name} = R.{operator}({value.name})")
        body.values.append(Value(name, shape))
        body.made.append(Value(name, shape))

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def let(self, body: Body, shape: Shape, text: str, dtype: str = "float32") -> Value:
        value = Value(self.fresh(), shape, dtype)
        body.write(f"{value.name} = {text}")
        body.values.append(value)
        body.made.append(value)
        return value

    def pick(self, body: Body, shape: Shape | None = None, dtype: str = "float32") -> Value:
        """Return a value of that kind, a late one more often; there always is one."""
        fitting = [
            value
            for value in body.values
            if value.dtype == dtype and (shape is None or value.shape == shape)
        ]
        if not fitting:
            return self.let(
                body, shape or (2,), f'R.zeros({text_of(shape or (2,))}, "{dtype}")', dtype
            )
        return fitting[-1] if self.random.random() < 0.5 else self.random.choice(fitting)

    def step(self, body: Body) -> None:
        """Write one or two statements."""
        steps = [
            self.unary, self.unary, self.binary, self.binary, self.broadcast, self.matmul,
            self.reduce, self.softmax, self.norm, self.permute, self.reshape, self.concat,
            self.split, self.slice, self.take, self.select, self.cast, self.expand, self.scan,
            self.kernel, self.call, self.match_cast, self.pair, self.constant, self.order,
        ]  # fmt: skip
        self.random.choice(steps)(body)

    def unary(self, body: Body) -> None:
        value = self.pick(body)
        name = self.random.choice(UNARY)
        if name in ("exp", "square"):  # so that nothing grows without bound
            self.let(body, value.shape, f"R.{name}(R.tanh({value.name}))")
        else:
            self.let(body, value.shape, f"R.{name}({value.name})")

    def binary(self, body: Body) -> None:
        value = self.pick(body)
        other = self.pick(body, value.shape)
        self.let(body, value.shape, f"R.{self.random.choice(BINARY)}({value.name}, {other.name})")

    def broadcast(self, body: Body) -> None:
        value, row = self.pick(body, (self.rows, self.cols)), self.pick(body, (self.cols,))
        a, b = self.random.sample([value.name, row.name], 2)
        self.let(body, value.shape, f"R.{self.random.choice(BINARY)}({a}, {b})")

    def matmul(self, body: Body) -> None:
        left, right = self.pick(body, (self.rows, self.cols)), self.pick(body, (self.cols, 4))
        self.let(body, (self.rows, 4), f"R.matmul({left.name}, {right.name})")

    def reduce(self, body: Body) -> None:
        value = self.pick(body)
        if not value.shape:
            return
        axis = self.random.randrange(len(value.shape))
        keep = self.random.random() < 0.5
        dims = list(value.shape)
        dims[axis : axis + 1] = [1] if keep else []
        name = self.random.choice(REDUCE)
        self.let(body, tuple(dims), f"R.{name}({value.name}, axis={axis}, keepdims={keep})")

    def softmax(self, body: Body) -> None:
        value = self.pick(body)
        if value.shape:
            axis = self.random.randrange(-len(value.shape), len(value.shape))
            self.let(body, value.shape, f"R.nn.softmax({value.name}, axis={axis})")

    def norm(self, body: Body) -> None:
        value, scale = self.pick(body, (self.rows, self.cols)), self.pick(body, (self.cols,))
        if self.random.random() < 0.5:
            self.let(body, value.shape, f"R.nn.rms_norm({value.name}, {scale.name}, axes=[-1])")
        else:
            shift = self.pick(body, (self.cols,))
            call = f"R.nn.layer_norm({value.name}, {scale.name}, {shift.name}, axes=[-1])"
            self.let(body, value.shape, call)

    def permute(self, body: Body) -> None:
        value = self.pick(body)
        axes = list(range(len(value.shape)))
        self.random.shuffle(axes)
        if axes:
            shape = tuple(value.shape[axis] for axis in axes)
            self.let(body, shape, f"R.permute_dims({value.name}, axes={axes})")

    def reshape(self, body: Body) -> None:
        value = self.pick(body)
        dims = list(value.shape)
        at = self.random.randrange(len(dims) + 1)
        dims.insert(at, 1)
        if self.random.random() < 0.4:
            ones = [i for i, dim in enumerate(dims) if dim == 1]
            dims.pop(self.random.choice(ones))
        if len(dims) <= 4:
            self.let(
                body,
                tuple(dims),
                f"R.reshape({value.name}, R.shape([{', '.join(map(str, dims))}]))",
            )

    def concat(self, body: Body) -> None:
        value = self.pick(body)
        if not value.shape or not isinstance(value.shape[-1], int) or value.shape[-1] > 16:
            return
        other = self.pick(body, value.shape)
        shape = (*value.shape[:-1], 2 * value.shape[-1])
        self.let(body, shape, f"R.concat(({value.name}, {other.name}), axis=-1)")

    def split(self, body: Body) -> None:
        value = self.pick(body)
        last = value.shape[-1] if value.shape else 1
        if not isinstance(last, int) or last % 2:
            return
        parts = self.fresh()
        body.write(f"{parts} = R.split({value.name}, 2, axis={len(value.shape) - 1})")
        for index in range(self.random.randint(1, 2)):
            self.let(body, (*value.shape[:-1], last // 2), f"{parts}[{index}]")

    def slice(self, body: Body) -> None:
        value = self.pick(body)
        last = value.shape[-1] if value.shape else 1
        if isinstance(last, int) and last > 1:
            begin = self.random.randint(0, last - 2)
            axis = len(value.shape) - 1
            call = f"R.strided_slice({value.name}, axes=[{axis}], begin=[{begin}], end=[{last}])"
            self.let(body, (*value.shape[:-1], last - begin), call)

    def take(self, body: Body) -> None:
        value, index = self.pick(body, (self.rows, self.cols)), self.pick(body, (2,), "int64")
        self.let(body, (2, self.cols), f"R.take({value.name}, {index.name}, axis=0)")

    def select(self, body: Body) -> None:
        value = self.pick(body)
        other = self.pick(body, value.shape)
        name = self.random.choice(COMPARE)
        flag = self.let(body, value.shape, f"R.{name}({value.name}, {other.name})", "bool")
        self.let(body, value.shape, f"R.where({flag.name}, {value.name}, {other.name})")

    def cast(self, body: Body) -> None:
        value = self.pick(body)
        # computed values near a whole number may be cast to either side of it
        exact = value.name in ("x", "y", "w", "b")
        dtype = self.random.choice(["float16", "float64", "int32" if exact else "float64"])
        half = self.let(body, value.shape, f'R.astype({value.name}, "{dtype}")', dtype)
        self.let(body, value.shape, f'R.astype({half.name}, "float32")')

    def expand(self, body: Body) -> None:
        value = self.pick(body)
        if len(value.shape) < 3:
            wide = self.let(body, (1, *value.shape), f"R.expand_dims({value.name}, axis=0)")
            if self.random.random() < 0.5:
                self.let(body, value.shape, f"R.squeeze({wide.name}, axis=[0])")

    def scan(self, body: Body) -> None:
        value = self.pick(body)
        if value.shape:
            axis = self.random.randrange(len(value.shape))
            self.let(body, value.shape, f"R.cumsum({value.name}, axis={axis})")

    def order(self, body: Body) -> None:
        value = self.pick(body)
        if value.shape:
            axis = self.random.randrange(len(value.shape))
            self.let(body, value.shape, f"R.sort({value.name}, axis={axis})")

    def kernel(self, body: Body) -> None:
        value = self.pick(body)
        if not value.shape:
            return
        index, rank = len(self.kernels), len(value.shape)
        symbols = sorted({dim for dim in value.shape if isinstance(dim, str)})
        self.kernels.append(
            KERNEL.format(
                index=index,
                declared="".join(f"{name} = T.int64()\n        " for name in symbols),
                shape="".join(
                    f"T.int64({d}), " if isinstance(d, int) else f"{d}, " for d in value.shape
                ),
                loops=", ".join(f"i{k}" for k in range(rank)),
                axes=", ".join(f"v{k}" for k in range(rank)),
                kinds="S" * rank,
            )
        )
        out = type_of(value.shape).replace("'", "")
        call = f"R.call_tir(cls.scale_{index}, ({value.name},), out_ty={out})"
        self.let(body, value.shape, call)

    def call(self, body: Body) -> None:
        if not self.callees:
            return
        name, params, shape = self.random.choice(self.callees)
        args = ", ".join(self.pick(body, param.shape, param.dtype).name for param in params)
        self.let(body, shape, f"cls.{name}({args})")

    def match_cast(self, body: Body) -> None:
        value = self.pick(body)
        if not body.inside_dataflow and value.shape:
            ty = type_of(value.shape).replace("'", "")
            self.let(body, value.shape, f"R.match_cast({value.name}, {ty})")

    def pair(self, body: Body) -> None:
        a, b = self.pick(body), self.pick(body)
        name = self.fresh()
        body.write(f"{name} = ({a.name}, {b.name})")
        index = self.random.randint(0, 1)
        self.let(body, (a, b)[index].shape, f"{name}[{index}]")

    def constant(self, body: Body) -> None:
        value = self.pick(body)
        number = self.random.choice([0.5, -1.0, 2.0])
        name = self.random.choice(("add", "multiply", "subtract"))
        self.let(body, value.shape, f'R.{name}({value.name}, R.const({number}, "float32"))')

    # ------------------------------------------------------------ arguments

    def arguments(self) -> list[np.ndarray[Any, Any]]:
        """Return arrays for ``main``; the same ones each time."""
        state = np.random.RandomState(self.seed % 2**32)
        arrays = []
        for param in self.params():
            dims = [SIZES[dim] if isinstance(dim, str) else dim for dim in param.shape]
            if param.dtype == "bool":
                arrays.append(np.array(self.seed % 2 == 0))
            elif param.dtype == "int64":
                arrays.append(state.randint(0, 3, dims).astype("int64"))
            else:
                values = state.randint(-8, 9, prod(dims)) / 4
                arrays.append(values.astype("float32").reshape(dims))
        return arrays
