"""Run by a Python with the real TVM: export small networks from its ``nn`` frontend.

usage: frontend_programs.py    output: for each network its script, and the bytecode of both CPU
pipelines as text
"""

import json
import sys

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm.relax.frontend import nn
from tvm.relax.frontend.nn import spec

TARGET = tvm.target.Target("llvm")


class Perceptron(nn.Module):
    """Linear layers, a norm and activations; also in float16."""

    inputs = {"forward": {"x": spec.Tensor(["n", 64], "float32")}}

    def __init__(self):
        self.a = nn.Linear(64, 128)
        self.b = nn.Linear(128, 10, bias=False)
        self.norm = nn.LayerNorm(128)

    def forward(self, x):
        return nn.op.softmax(self.b(self.norm(nn.op.gelu(self.a(x)))))


class Attention(nn.Module):
    """One block of a transformer, spelled out."""

    inputs = {"forward": {"x": spec.Tensor([1, "s", 64], "float32")}}

    def __init__(self):
        self.q, self.k, self.v = (nn.Linear(64, 64, bias=False) for _ in range(3))
        self.o = nn.Linear(64, 64)
        self.norm = nn.RMSNorm(64, -1, 1e-5, bias=False)

    def forward(self, x):
        b, s, d = x.shape
        h = self.norm(x)

        def heads(value, order):
            return nn.op.permute_dims(nn.op.reshape(value, (b, s, 4, 16)), order)

        q, v = heads(self.q(h), [0, 2, 1, 3]), heads(self.v(h), [0, 2, 1, 3])
        w = nn.op.softmax(nn.op.matmul(q, heads(self.k(h), [0, 2, 3, 1])) * 0.25, axis=-1)
        y = nn.op.permute_dims(nn.op.matmul(w, v), [0, 2, 1, 3])
        return x + self.o(nn.op.reshape(y, (b, s, d)))


class Dot(nn.Module):
    """Attention as one operator."""

    inputs = {"forward": {"x": spec.Tensor([1, "s", 64], "float32")}}

    def __init__(self):
        self.qkv = nn.Linear(64, 192)

    def forward(self, x):
        b, s, _ = x.shape
        q, k, v = (nn.op.reshape(t, (b, s, 4, 16)) for t in nn.op.split(self.qkv(x), 3, axis=-1))
        return nn.op.scaled_dot_product_attention(q, k, v, is_causal=True)


class Images(nn.Module):
    """A small convolutional net, and resizing."""

    inputs = {"forward": {"x": spec.Tensor([2, 3, 16, 16], "float32")}}

    def __init__(self):
        self.c = nn.Conv2D(3, 8, 3, padding=1)
        self.d = nn.Conv2D(8, 16, 3, stride=2, bias=False)
        self.norm = nn.GroupNorm(4, 16)
        self.l = nn.Linear(16 * 7 * 7, 10)

    def forward(self, x):
        y = nn.op.silu(self.norm(self.d(nn.op.relu(self.c(x)))))
        small = nn.op.interpolate(x, (8, 8), mode="bilinear")
        return self.l(nn.op.reshape(y, (2, 16 * 7 * 7))), small


class Words(nn.Module):
    """Embedding, sorting and sampling."""

    inputs = {
        "top": {"t": spec.Tensor(["n"], "int32")},
        "draw": {
            "p": spec.Tensor(["b", 100], "float32"),
            "u": spec.Tensor(["s", 1], "float32"),
            "i": spec.Tensor(["s", 1], "int64"),
        },
        "nucleus": {
            "p": spec.Tensor(["b", 100], "float32"),
            "i": spec.Tensor(["b", 100], "int64"),
            "top_p": spec.Tensor(["b", 1], "float32"),
            "top_k": spec.Tensor(["b", 1], "int64"),
            "u": spec.Tensor(["s", 1], "float32"),
            "s": spec.Tensor(["s", 1], "int64"),
        },
    }

    def __init__(self):
        self.e = nn.Embedding(100, 32)
        self.l = nn.Linear(32, 100, bias=False)

    def top(self, t):
        x = self.l(self.e(t))
        return nn.op.argsort(x, axis=-1, descending=True), nn.op.topk(x, 5, axis=-1)

    def draw(self, p, u, i):
        return nn.op.multinomial_from_uniform(p, u, i)

    def nucleus(self, p, i, top_p, top_k, u, s):
        return nn.op.sample_top_p_top_k_from_sorted_prob(p, i, top_p, top_k, u, s)


class Steps(nn.Module):
    """A gated recurrent unit, three steps of it."""

    inputs = {
        "forward": {
            "x": spec.Tensor([2, 3, 32], "float32"),
            "h": spec.Tensor([2, 32], "float32"),
        }
    }

    def __init__(self):
        self.w, self.u = nn.Linear(32, 96), nn.Linear(32, 96)

    def forward(self, x, h):
        for part in nn.op.split(x, 3, axis=1):
            a = nn.op.split(self.w(nn.op.squeeze(part, 1)), 3, axis=-1)
            b = nn.op.split(self.u(h), 3, axis=-1)
            z, r = nn.op.sigmoid(a[0] + b[0]), nn.op.sigmoid(a[1] + b[1])
            h = nn.op.tanh(a[2] + r * b[2]) * z + h * z
        return h


class Others(nn.Module):
    """Operators one by one, and a kernel of tensor expressions."""

    inputs = {
        "forward": {
            "x": spec.Tensor([4, 3], "float32"),
            "y": spec.Tensor([4, 5], "float32"),
        },
        "kernel": {"x": spec.Tensor(["n", 8], "float32")},
        "embed": {"t": spec.Tensor([4], "float32")},
    }

    def forward(self, x, y):
        a = nn.op.cumsum(nn.op.pad(nn.op.concat([x, y], dim=1), [0, 0, 1, 1]), axis=1)
        b = nn.op.where(nn.op.greater(nn.op.square(a), a), nn.op.maximum(a, nn.op.exp(a)), a)
        c = nn.op.take(b, nn.Tensor.from_const(np.array([0, 2, 1], "int32")), axis=1)
        wide = nn.op.broadcast_to(nn.op.unsqueeze(c, 0), (2, 4, 3))
        total = nn.op.sum(c, axis=1, keepdims=True)
        return total, nn.op.astype(c, "float16"), nn.op.repeat(c, 2, axis=1), wide, nn.op.triu(c)

    def kernel(self, x):
        def twice(a):
            shift = te.compute(a.shape, lambda i, j: tirx.if_then_else(i < j, 1.0, 0.0), name="s")
            return te.compute(a.shape, lambda i, j: a[i, j] * 2.0 + shift[i, j], name="twice")

        return nn.op.tensor_expr_op(twice, "twice", [x])

    def embed(self, t):
        return nn.op.get_timestep_embedding(t, 32)


class Cached(nn.Module):
    """A cache of the old kind, and an effect that is nothing."""

    inputs = {"forward": {"x": spec.Tensor([1, 4, 16], "float32"), "total": int}}
    debug = True

    def __init__(self):
        self.cache = nn.KVCache(10, (4, 16))

    def forward(self, x, total: int):
        self.cache.append(x)
        return self.cache.view(total)


def bytecode(mod, pipeline):
    builder = relax.ExecBuilder()
    with TARGET:
        relax.vm_build._vmcodegen(builder, pipeline(mod), "bytecode")
    return builder.get().as_text()


def exported(kind, dtype):
    network = kind()
    network.to(dtype)
    text = {
        name: {
            k: spec.Tensor(v.shape, dtype) if getattr(v, "dtype", "") == "float32" else v
            for k, v in inputs.items()
        }
        for name, inputs in kind.inputs.items()
    }
    return network.export_tvm(spec=text, debug=getattr(kind, "debug", False))[0]


def main():
    results = {}
    kinds = (Perceptron, Attention, Dot, Images, Words, Steps, Others, Cached)
    for kind in kinds:
        for dtype in ("float32", "float16") if kind in (Perceptron, Attention) else ("float32",):
            mod = exported(kind, dtype)
            results[f"{kind.__name__} {dtype}"] = [
                mod.script(show_meta=True),
                bytecode(mod, relax.get_pipeline("default")),
                bytecode(mod, relax.get_default_pipeline(TARGET)),
            ]
    json.dump(results, sys.stdout)


main()
