"""Kernels of random calls have the text that the real TVM gives them."""

import json
import random
import subprocess
from pathlib import Path

from relaxlab.ir import Target
from relaxlab.relax.backend import DispatchSampling, DispatchSortScan
from relaxlab.relax.transform.legalize_ops import LegalizeOps
from relaxlab.script import from_source

PROGRAM = Path(__file__).with_name("legalize_programs.py")
COUNT = 15  # of each family


class Programs:
    """Random calls over random shapes, static and symbolic; the same ones for the same seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def dim(self):
        pick = self.random.choice
        return pick("nmbs") if self.random.random() < 0.5 else pick([1, 2, 3, 4, 6, 8, 64])

    def shape(self, least=1, most=3):
        return [self.dim() for _ in range(self.random.randint(least, most))]

    def program(self, params, call):
        def tensor(shape):
            return f"R.Tensor(({''.join(f'{d!r}, ' for d in shape)}), 'float32')"

        inside = ", ".join(f"{name}: {tensor(shape)}" for name, shape in params.items())
        return (
            "@I.ir_module\nclass Module:\n    @R.function\n"
            f"    def main({inside}):\n        gv = {call}\n        return gv\n"
        )

    def reshape(self):
        shape = self.shape(1, 4)
        new = [str(d) for d in shape]
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randrange(len(new))
            if len(new) > 1 and at + 1 < len(new):
                new[at : at + 2] = [f"{new[at]} * {new[at + 1]}"]
            elif new[at].isdigit() and int(new[at]) % 2 == 0:
                new[at : at + 1] = ["2", str(int(new[at]) // 2)]
            else:
                new.insert(at, "1")
        return self.program({"x": shape}, f"R.reshape(x, ({', '.join(new)},))")

    def binary(self):
        shape = self.shape(0, 4)
        a, b = ([d if self.random.random() < 0.7 else 1 for d in shape] for _ in range(2))
        b = b[self.random.randint(0, len(b)) :]
        name = self.random.choice(
            ["add", "subtract", "multiply", "divide", "maximum", "greater", "power"]
        )
        return self.program({"x": a, "y": b}, f"R.{name}(x, y)")

    def reduction(self):
        shape = self.shape(1, 4)
        axes = self.random.sample(range(len(shape)), self.random.randint(1, len(shape)))
        name = self.random.choice(["sum", "mean", "max", "min", "variance", "std", "prod"])
        keep = self.random.random() < 0.5
        return self.program({"x": shape}, f"R.{name}(x, axis={axes}, keepdims={keep})")

    def concat(self):
        shape = self.shape()
        axis = self.random.randrange(len(shape))
        params = {}
        for i in range(self.random.randint(2, 4)):
            params[f"x{i}"] = [*shape[:axis], self.dim(), *shape[axis + 1 :]]
        return self.program(params, f"R.concat(({', '.join(params)}), axis={axis})")

    def matmul(self):
        batch, k = self.shape(0, 2), self.dim()
        a, b = ([d if self.random.random() < 0.8 else 1 for d in batch] for _ in range(2))
        b = b[self.random.randint(0, len(b)) :]
        return self.program({"x": [*a, self.dim(), k], "y": [*b, k, self.dim()]}, "R.matmul(x, y)")

    def slice(self):
        shape = self.shape()
        axis = self.random.randrange(len(shape))
        begin = self.random.choice([0, 1, -1])
        end = shape[axis] if isinstance(shape[axis], str) else 100
        step = self.random.choice([1, 1, 2])
        return self.program(
            {"x": shape},
            f"R.strided_slice(x, axes=[{axis}], begin=[{begin}], end=[{end}], strides=[{step}])",
        )

    def softmax(self):
        shape = self.shape()
        axis = self.random.randrange(len(shape))
        name = self.random.choice(["softmax", "log_softmax"])
        return self.program({"x": shape}, f"R.nn.{name}(x, axis={axis})")

    def norm(self):
        shape = self.shape(2, 4)
        params = {"x": shape, "g": shape[-1:], "b": shape[-1:]}
        calls = ["R.nn.layer_norm(x, g, b, axes=[-1])", "R.nn.rms_norm(x, g, axes=[-1])"]
        return self.program(params, self.random.choice(calls))

    def pad(self):
        shape = self.shape()
        widths = [self.random.choice([0, 0, 1, 2]) for _ in range(2 * len(shape))]
        mode = self.random.choice(["constant", "replicate", "circular", "reflect"])
        return self.program({"x": shape}, f"R.nn.pad(x, {widths}, pad_mode={mode!r})")

    def move(self):
        shape = self.shape()
        axis = self.random.randrange(len(shape))
        order = self.random.sample(range(len(shape)), len(shape))
        calls = [
            f"R.permute_dims(x, {order})",
            f"R.repeat(x, {self.random.randint(1, 3)}, axis={axis})",
            f"R.tile(x, {[self.random.randint(1, 3) for _ in shape]})",
            f"R.flip(x, axis={axis})",
            f"R.expand_dims(x, [{axis}])",
            "R.flatten(x)",
        ]
        return self.program({"x": shape}, self.random.choice(calls))


FAMILIES = [
    "reshape",
    "binary",
    "reduction",
    "concat",
    "matmul",
    "slice",
    "softmax",
    "norm",
    "pad",
    "move",
]


def legalize(source):
    with Target("llvm"):
        return LegalizeOps()(DispatchSortScan()(DispatchSampling()(from_source(source)))).script()


def test_random_calls_have_the_kernels_of_the_real_tvm(oracle_python, tmp_path):
    programs = Programs(seed=27)
    sources = [getattr(programs, family)() for family in FAMILIES for _ in range(COUNT)]
    file = tmp_path / "sources.json"
    file.write_text(json.dumps(sources))
    command = [oracle_python, PROGRAM, file]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300)
    recorded = json.loads(done.stdout)
    assert sum(script is not None for script in recorded) > 0.9 * len(sources)
    for source, script in zip(sources, recorded, strict=True):
        if script is not None:
            assert legalize(source).rstrip() == script.rstrip(), source
