"""Random programs through the CPU pipeline that fuses: every text is the real TVM's."""

import json
import random
import re
import subprocess
from pathlib import Path

from relaxlab import relax
from relaxlab.ir import Target
from relaxlab.relax.pipeline import get_default_pipeline
from relaxlab.script import from_source
from tests.relax.transform.checks import assert_same_text

PROGRAM = Path(__file__).with_name("fusion_programs.py")
COUNT = 60

UNARY = ("exp", "tanh", "negative", "nn.relu", "sqrt", "nn.silu", "sigmoid", "nn.gelu")
BINARY = ("add", "subtract", "multiply", "divide", "maximum")


def in_order(text):
    """Sort the stores of shape functions: TVM's order depends on addresses."""
    parts = re.split(r"((?: +H\[.*\n)+)", text.rstrip())
    return "".join("\n".join(sorted(p.splitlines())) + "\n" if "  H[" in p else p for p in parts)


class Programs:
    """Random graphs of operators over a few shapes; the same ones for the same seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def program(self):
        pick = self.random.choice
        rows = pick(["n", 4])
        lines, values, self.count = [], {}, 0
        params = {"x": (rows, 8), "y": (rows, 8), "w": (8, 8), "b": (8,), "c": (rows, 1)}
        for name, shape in params.items():
            values.setdefault(shape, []).append(name)
        for _ in range(self.random.randint(2, 12)):
            self.step(lines, values, rows)
        made = [name for names in values.values() for name in names if name not in params]
        outputs = self.random.sample(made, min(len(made), self.random.choice([1, 1, 2, 3])))
        inside = ", ".join(
            f'{name}: R.Tensor(({"".join(f"{d!r}, " for d in shape)}), "float32")'
            for name, shape in params.items()
        )
        text = "@I.ir_module\nclass Module:\n    @R.function\n"
        text += f"    def main({inside}):\n"
        text += "        with R.dataflow():\n"
        text += "".join(f"            {line}\n" for line in lines)
        text += f"            R.output({', '.join(outputs)})\n"
        result = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
        return f"{text}        return {result}\n"

    def any_of(self, values, shape):
        # what was made last is taken more often, so that there are chains
        names = values[shape]
        return names[-1] if self.random.random() < 0.5 else self.random.choice(names)

    def step(self, lines, values, rows):
        pick = self.random.choice
        full = (rows, 8)

        def let(shape, value):
            self.count += 1
            name = f"v{self.count}"
            lines.append(f"{name} = {value}")
            if shape is not None:
                values.setdefault(shape, []).append(name)
            return name

        a = self.any_of(values, full)
        kind = self.random.random()
        if kind < 0.3:
            shape = pick([s for s in values if s not in ((8,), (8, 8))])
            let(shape, f"R.{pick(UNARY)}({self.any_of(values, shape)})")
        elif kind < 0.55:
            other = self.any_of(values, pick([full, full, (8,), (rows, 1)]))
            let(full, f"R.{pick(BINARY)}({a}, {other})")
        elif kind < 0.65:
            let(full, f"R.{pick(['matmul', 'matmul'])}({a}, {self.any_of(values, (8, 8))})")
        elif kind < 0.72:
            name = pick(["sum", "max", "mean"])
            let((rows, 1), f"R.{name}({a}, axis=1, keepdims=True)")
        elif kind < 0.77:
            let(full, f"R.nn.softmax({a})")
        elif kind < 0.82:
            let(full, f"R.nn.rms_norm({a}, b, axes=[-1])")
        elif kind < 0.88:
            parts = let(None, f"R.split({a}, 2, axis=1)")
            for i in range(self.random.randint(1, 2)):
                let((rows, 4), f"{parts}[{i}]")
        elif kind < 0.92 and (rows, 4) in values:
            left, right = self.any_of(values, (rows, 4)), self.any_of(values, (rows, 4))
            let(full, f"R.concat(({left}, {right}), axis=1)")
        elif kind < 0.96:
            turned = let(None, f"R.permute_dims({a})")
            let(full, f"R.permute_dims({turned})")
        else:
            let(full, f"R.multiply({a}, R.const([1, 2, 3, 4, 5, 6, 7, 8], 'float32'))")


def test_every_text(oracle_python, tmp_path):
    sources = [Programs(seed).program() for seed in range(COUNT)]
    path = tmp_path / "sources.json"
    path.write_text(json.dumps(sources))
    done = subprocess.run(
        [oracle_python, PROGRAM, path], check=True, capture_output=True, text=True, timeout=600
    )
    fused = 0
    target = Target("llvm")
    for source, texts in zip(sources, json.loads(done.stdout), strict=True):
        assert texts is not None, source
        mod = from_source(source)
        with target:
            for step, text in zip(get_default_pipeline(target).passes, texts, strict=False):
                mod = step(mod)
                assert_same_text(in_order(mod.script()), in_order(text))
                fused += "def fused_" in text and step.info.name == "FuseTIR"
        builder = relax.ExecBuilder()
        relax.vm_build._vmcodegen(builder, mod, "bytecode")
        assert_same_text(builder.get().as_text(), texts[-1])
    assert fused > COUNT // 2
