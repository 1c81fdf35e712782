"""The real TVM reads what we print, and prints it the same."""

import json
import random
import subprocess
from pathlib import Path

from relaxlab.ir import (
    EQ,
    LT,
    NE,
    Add,
    And,
    Call,
    Cast,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Op,
    Or,
    Select,
    Sub,
    TensorLoad,
    Var,
)
from relaxlab.script import from_source
from relaxlab.script.printer import script
from relaxlab.tirx import (
    BufferStore,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    While,
    decl_buffer,
)
from tests.golden_compiler import cases, source

PROGRAM = Path(__file__).with_name("script_programs.py")


def in_tvm(python, texts, tmp_path):
    path = tmp_path / "texts.json"
    path.write_text(json.dumps(texts))
    done = subprocess.run(
        [python, PROGRAM, path], check=True, capture_output=True, text=True, timeout=300
    )
    return json.loads(done.stdout)


class Kernels:
    """Random kernels; the same ones for the same seed. No literal meets a literal."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.m, self.b = Var("m", "int32"), Var("b", "bool")
        self.a = decl_buffer((16, 8), name="A")
        self.scope = [self.m]

    def integer(self, depth):
        pick = self.random.choice
        var = pick(self.scope)
        if depth == 0:
            return pick([var, Max(var, IntImm("int32", 3)), Mul(var, IntImm("int32", -2))])
        a, b = self.integer(depth - 1), self.integer(depth - 1)
        kind = pick([Add, Sub, Mul, FloorDiv, FloorMod, Select, "bitwise_and", "shift_right"])
        if kind is Select:
            return Select(self.condition(depth - 1), a, b)
        if isinstance(kind, str):
            return Call(Op.get(f"tirx.{kind}"), (a, b), ty=a.ty)
        return kind(a, b)

    def condition(self, depth):
        if depth == 0:
            return self.b
        pick = self.random.choice
        if pick([True, False]):
            return pick([EQ, NE, LT])(self.integer(depth - 1), self.integer(depth - 1))
        a, b = self.condition(depth - 1), self.condition(depth - 1)
        return pick([And(a, b), Or(a, b), Not(a)])

    def value(self, depth):
        pick = self.random.choice
        if depth == 0:
            where = (self.integer(0), self.integer(0))
            return pick([TensorLoad(self.a, where), Cast("float32", self.integer(1))])
        a, b = self.value(depth - 1), self.value(depth - 1)
        return pick(
            [
                Add(a, b),
                Mul(a, FloatImm("float32", self.random.uniform(-2, 2))),
                Min(a, FloatImm("float32", 0.5)),
                Call(Op.get("tirx.exp"), (a,), ty=a.ty),
                Call(Op.get("tirx.pow"), (a, b), ty=a.ty),
            ]
        )

    def statement(self, depth):
        store = BufferStore(self.a, self.value(2), (self.integer(1), self.integer(1)))
        if depth == 0:
            return store
        match self.random.randint(0, 3):
            case 0:
                loop_var = Var("i", "int32")
                extent = pick_extent(self)
                self.scope.append(loop_var)
                body = self.statement(depth - 1)
                self.scope.pop()
                kind = self.random.choice([ForKind.SERIAL, ForKind.PARALLEL, ForKind.UNROLLED])
                return For(loop_var, IntImm("int32", 0), extent, kind, body)
            case 1:
                return IfThenElse(self.condition(2), self.statement(depth - 1), store)
            case 2:
                return While(self.condition(1), self.statement(depth - 1))
            case _:
                return SeqStmt((store, self.statement(depth - 1)))

    def kernel(self):
        return PrimFunc((self.a, self.m, self.b), self.statement(3)).with_attr("s_tir", True)


def pick_extent(kernels):
    return kernels.random.choice([IntImm("int32", 4), Max(kernels.m, IntImm("int32", 1))])


def test_random_kernels(oracle_python, tmp_path):
    texts = [script(Kernels(seed).kernel()) for seed in range(60)]
    for text, answer in zip(texts, in_tvm(oracle_python, texts, tmp_path), strict=True):
        assert answer == text
        assert script(from_source(text)) == text


def test_recorded_programs(oracle_python, tmp_path):
    texts = [from_source(source(name)).script() for name in cases()]
    assert in_tvm(oracle_python, texts, tmp_path) == texts
