"""Random builder programs as plain data, and their construction with either package.

Run as a program (``python builder_programs.py COUNT``) it builds them with the real TVM and prints
what comes out as JSON; nothing of relaxlab is imported then. Imported, it builds with what it is
given.
"""

import json
import random
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

CONSTANTS: list[list[Any]] = [
    ["plain", 2**60],
    ["plain", 5],
    ["plain", -7],
    ["plain", 1.5],
    ["plain", -0.0],
    ["plain", 0.0],
    ["plain", "ab"],
    ["plain", "a text of more than eight bytes"],
    ["shape", [1, 2]],
    ["shape", []],
    ["dtype", "float32"],
    ["dtype", "int8x4"],
    ["tensor", [1.0, 2.0], "float32"],
    ["tensor", [1, 2], "int32"],
]


class HostFunctions:
    """The host functions that the programs call, as a library; the same on both sides."""

    kind = "host"

    def __init__(self) -> None:
        self.imports: list[Any] = []
        self.functions = {"g": self.count, "h": self.pick}

    def get_function(self, name: str) -> Any:
        """Return a function, or None."""
        return self.functions.get(name)

    @staticmethod
    def count(*args: Any) -> int:
        """Return how many arguments there are, and the sum of those that are integers."""
        return 10 * len(args) + sum(arg for arg in args if type(arg) is int)

    @staticmethod
    def pick(*args: Any) -> Any:
        """Return the last argument; without one there is an error of a class of its own."""
        if not args:
            raise LookupError("nothing to pick")
        return args[-1]


HOST = HostFunctions()


def program(seed: int) -> list[Any]:
    """Return one program: declarations, then functions with their instructions."""
    rng = random.Random(seed)
    names = [f"f{index}" for index in range(rng.randint(1, 3))]
    functions = []
    for name in names:
        inputs = rng.randint(0, 3)
        defined = list(range(inputs))
        body: list[Any] = []
        for _ in range(rng.randint(1, 8)):
            choice = rng.random()
            if choice < 0.7:
                args = [argument(rng, defined, names) for _ in range(rng.randint(0, 3))]
                dst = rng.choice([None, rng.randint(0, 60)])
                callee = rng.choice([*names, "g", "h", "vm.builtin.copy"])
                body.append(["call", callee, args, dst])
                if dst is not None:
                    defined.append(dst)
            elif choice < 0.8:
                body.append(["goto", rng.choice([-1, 1, 2, 3])])
            elif choice < 0.9 and defined:
                body.append(["if", rng.choice(defined), rng.randint(2, 5)])
            elif defined:
                body.append(["ret", rng.choice(defined)])
        functions.append([name, inputs, body or [["goto", 1]]])
    return functions


def tidy(seed: int) -> list[Any]:
    """Return a program that often passes a verifier: jumps stay inside, and every end is a Ret."""
    rng = random.Random(seed)
    functions = program(seed)
    for _, inputs, body in functions:
        for at, (op, *rest) in enumerate(body):
            if op == "goto":
                body[at] = ["goto", rng.randint(1, len(body) - at)]
            elif op == "if":
                body[at] = ["if", rest[0], rng.randint(2, max(2, len(body) - at))]
        written = [rest[2] for op, *rest in body if op == "call" and rest[2] is not None]
        body.append(["ret", rng.choice([*range(inputs), *written] or [2**54])])
        body.append(["ret", rng.choice([*range(inputs)] or [2**54])])
    return functions


def argument(rng: random.Random, defined: list[int], names: list[str]) -> list[Any]:
    choice = rng.random()
    if choice < 0.4 and defined:
        return ["r", rng.choice(defined)]
    if choice < 0.6:
        return ["imm", rng.randint(-9, 9)]
    if choice < 0.8:
        return ["constant", rng.choice(CONSTANTS)]
    if choice < 0.9:
        return [rng.choice(["vm_state", "void_arg"])]
    return ["f", rng.choice(names)]


def build(functions: list[Any], package: Any) -> list[str]:
    """Return the texts and the bytes (hexadecimal) of a program built with ``package``."""
    ib = package.ExecBuilder()
    for name, *_ in functions:
        ib.declare_function(name, 1)

    def word(arg: list[Any]) -> Any:
        kind, *rest = arg
        if kind != "constant":
            return getattr(ib, kind)(*rest)
        form, value, *dtype = rest[0]
        if form == "shape":
            value = package.Shape(value)
        elif form == "dtype":
            value = package.DataType(value)
        elif form == "tensor":
            value = package.tensor(np.array(value, dtype[0]))
        return ib.convert_constant(value)

    for name, inputs, body in functions:
        with ib.function(name, num_inputs=inputs):
            for op, *rest in body:
                if op == "call":
                    callee, args, dst = rest
                    ib.emit_call(callee, list(map(word, args)), None if dst is None else ib.r(dst))
                elif op == "goto":
                    ib.emit_goto(rest[0])
                elif op == "if":
                    ib.emit_if(ib.r(rest[0]), rest[1])
                else:
                    ib.emit_ret(ib.r(rest[0]))
    executable = ib.get()
    if hasattr(package, "saved"):
        return [executable.as_text(), executable.as_python(), package.saved(executable).hex()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.bin"
        executable.mod.write_to_file(str(path))
        return [executable.as_text(), executable.as_python(), path.read_bytes().hex()]


if __name__ == "__main__":
    import tvm
    import tvm_ffi
    from tvm import relax

    real = SimpleNamespace(
        ExecBuilder=relax.ExecBuilder,
        Shape=tvm_ffi.Shape,
        DataType=tvm.DataType,
        tensor=tvm.runtime.tensor,
    )
    print(json.dumps([build(program(seed), real) for seed in range(int(sys.argv[1]))]))
