"""FuseTIR: fused functions become kernels, and compute the same."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.codegen import GENERATORS
from relaxlab.errors import InternalError
from relaxlab.ir import PassContext, PassInstrument, Target
from relaxlab.relax.analysis import check_well_formed
from relaxlab.relax.transform import AnnotateTIROpPattern, FuseOps, FuseTIR, LegalizeOps
from relaxlab.relax.transform.fused_kernel import fuse_kernels
from relaxlab.testing import assert_allclose
from tests.relax.transform.checks import module

CPU = [kind for kind in ("interpreter", "numpy", "llvm") if kind in GENERATORS]


def fused(functions):
    """Return the module with fused kernels, once what holds for every module is checked."""
    with Target("llvm"):
        mod = FuseOps()(AnnotateTIROpPattern()(LegalizeOps()(module(functions))))
    text = mod.script()
    result = FuseTIR()(mod)
    assert mod.script() == text, "the input was changed"
    assert FuseTIR()(result) is result
    assert check_well_formed(result)
    return result


def run(mod, target, *args):
    with Target(target):
        for step in relax.get_default_pipeline(Target(target)).passes[-11:]:
            mod = step(mod)
    ex = relax.build(mod, target, relax_pipeline=None)
    return relax.VirtualMachine(ex, runtime.cpu())["main"](*args)


def kernel(name, mod):
    """Return the text of a kernel, without its first line."""
    text = mod.script()
    start = text.index(f"    def {name}(")
    end = text.find("\n\n", start)
    return text[start : end if end > 0 else None]


def signature(name, mod):
    return kernel(name, mod).splitlines()[0].strip().removeprefix(f"def {name}").rstrip(":")


def names(mod):
    return sorted(gvar.name_hint for gvar in mod.functions)


def test_nothing_to_fuse_gives_the_module_itself():
    mod = module("@R.function\ndef main(x: R.Tensor((4,))):\n    y = R.exp(x)\n    return y")
    assert FuseTIR()(mod) is mod


def test_passes_inside_are_seen():
    class Names(PassInstrument):
        def __init__(self):
            self.names = []

        def run_before_pass(self, mod, info):
            self.names.append(info.name)

    seen = Names()
    with PassContext(instruments=[seen]):
        FuseTIR()(module("@R.function\ndef main(x: R.Tensor((4,))):\n    return x"))
    assert seen.names == [
        "FuseTIR",
        "ExpandTupleArguments",
        "ExpandTupleArgumentsInner",
        "CanonicalizeBindings",
        "CanonicalizeTIRVariables",
        "CanonicalizeRelaxBindings",
        "DeadCodeElimination",
        "RemoveUnusedParameters",
        "FuseTIRInner",
        "DeadCodeElimination",
    ]


KERNEL = """
@T.prim_func(private=True, s_tir=True)
def inc(x: T.Buffer((T.int64(4), T.int64(8))), y: T.Buffer((T.int64(4), T.int64(8)))):
    T.func_attr({"op_pattern": 0})
    t = T.sblock_alloc_buffer((T.int64(4), T.int64(8)))
    for i, j in T.grid(T.int64(4), T.int64(8)):
        with T.sblock("B1"):
            vi, vj = T.axis.remap("SS", [i, j])
            t[vi, vj] = x[vi, vj] + T.float32(1)
    for i, j in T.grid(T.int64(4), T.int64(8)):
        with T.sblock("B2"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = t[vi, vj] + x[vi, vj]
"""
A = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)


def inc(text):
    return f'R.call_tir(Module.inc, ({text},), out_ty=R.Tensor((4, 8), "float32"))'


@pytest.mark.parametrize("target", CPU)
def test_names_of_blocks_and_buffers(target):
    mod = fused(
        KERNEL
        + f"""
@R.function
def main(x: R.Tensor((4, 8), "float32")):
    with R.dataflow():
        a = {inc("x")}
        b = R.exp(a)
        c = {inc("b")}
        z = {inc("c")}
        R.output(z)
    return z
"""
    )
    assert names(mod) == ["fused_inc_tir_exp_inc_inc", "main"]
    text = kernel("fused_inc_tir_exp_inc_inc", mod)
    blocks = [line.split('"')[1] for line in text.splitlines() if 'T.sblock("' in line]
    assert blocks == ["root", "B1", "B2", "compute", "B3", "B4", "B5", "B6"]
    owned = [line.split()[0] for line in text.splitlines() if "alloc_buffer" in line]
    assert owned == [
        "t",
        "y_intermediate",
        "compute_intermediate",
        "t_1",
        "y_intermediate_1",
        "t_2",
    ]
    assert "y_intermediate_1_2: T.Buffer(" in text.splitlines()[0]
    want = np.exp(2 * A + 1)
    want = 2 * (2 * want + 1) + 1
    assert_allclose(run(mod, target, A).numpy(), want, rtol=1e-5)


@pytest.mark.parametrize("target", CPU)
def test_two_buffers_that_become_one(target):
    mod = fused(
        """
        @R.function
        def main(x: R.Tensor((4, 4), "float32")):
            with R.dataflow():
                b = R.matmul(x, x)
                z = R.add(b, b)
                R.output(z)
            return z
        """
    )
    text = kernel("fused_matmul_add", mod)
    assert "T.reads(matmul_intermediate[v_ax0, v_ax1])" in text
    assert "T.reads(x[v_i0, v_k])" in text  # TVM keeps the first region of a buffer only
    assert_allclose(run(mod, target, A[:, :4]).numpy(), 2 * A[:, :4] @ A[:, :4], rtol=1e-5)


INPLACE = """
@T.prim_func(private=True, s_tir=True)
def bump(x: T.Buffer((T.int64(4), T.int64(8)))):
    T.func_attr({"op_pattern": 0})
    for i, j in T.grid(T.int64(4), T.int64(8)):
        with T.sblock("bump"):
            vi, vj = T.axis.remap("SS", [i, j])
            x[vi, vj] = x[vi, vj] + T.float32(1)
"""


def bump(text):
    return (
        f"R.call_tir_inplace(Module.bump, ({text},), inplace_indices=[0], "
        'out_ty=R.Tensor((4, 8), "float32"))'
    )


@pytest.mark.parametrize("target", CPU)
@pytest.mark.parametrize(
    ("lines", "params", "want"),
    [
        (["a = R.exp(x)", f"z = {bump('a')}"], 2, lambda x: np.exp(x) + 1),
        ([f"a = {bump('x')}", "z = R.exp(a)"], 2, lambda x: np.exp(x + 1)),
        ([f"a = {bump('x')}", f"z = {bump('a')}"], 1, lambda x: x + 2),
    ],
    ids=["result", "input", "both"],
)
def test_in_place(target, lines, params, want):
    inside = "\n        ".join(lines)
    mod = fused(
        INPLACE
        + f"""
@R.function
def main(x: R.Tensor((4, 8), "float32")):
    with R.dataflow():
        {inside}
        R.output(z)
    return z
"""
    )
    (gvar,) = [g for g in mod.functions if g.name_hint.startswith("fused")]
    assert len(mod[gvar].params) == params
    assert ("call_tir_inplace" in mod.script()) is (params == 1)
    assert_allclose(run(mod, target, A.copy()).numpy(), want(A), rtol=1e-5)


@pytest.mark.parametrize("target", CPU)
def test_several_outputs_of_one_kernel(target):
    mod = fused(
        """
        @R.function
        def main(x: R.Tensor((4, 8), "float32")):
            with R.dataflow():
                a = R.exp(x)
                s = R.split(a, 2, axis=1)
                l = s[0]
                r = s[1]
                b = R.concat((r, l), axis=1)
                z = R.split(b, 2, axis=1)
                R.output(z)
            return z
        """
    )
    assert len(names(mod)) == 2
    left, right = run(mod, target, A)
    assert_allclose(left.numpy(), np.exp(A[:, 4:]), rtol=1e-5)
    assert_allclose(right.numpy(), np.exp(A[:, :4]), rtol=1e-5)


@pytest.mark.parametrize("target", CPU)
def test_sizes_are_passed_as_scalars(target):
    mod = fused(
        """
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), s: R.Shape(["m"])):
            n = T.int64()
            m = T.int64()
            with R.dataflow():
                c = R.concat((x, x), axis=0)
                d = R.concat((c, R.zeros(R.shape([1, 4]), "float32")), axis=0)
                a = R.exp(d)
                b = R.permute_dims(a)
                y = R.full(R.shape([m, 4]), R.const(2, "float32"), "float32")
                z = R.exp(y)
                R.output(b, z)
            return (b, z)
        """
    )
    text = mod.script()
    assert "fused_full_tir_exp1, (m,)" in text
    assert signature("fused_full_tir_exp1", mod).startswith("(m: T.int64, compute_intermediate")
    assert "fused_tir_exp_transpose, (d, n)" in text
    x = A[:3, :4].copy()
    b, z = run(mod, target, x, runtime.ShapeTuple([5]))
    want = np.exp(np.concatenate([x, x, np.zeros((1, 4), np.float32)])).T
    assert_allclose(b.numpy(), want, rtol=1e-5)
    assert_allclose(z.numpy(), np.full((5, 4), np.exp(np.float32(2))), rtol=1e-5)


@pytest.mark.parametrize("size", ["4", "T.int32(4)"], ids=["int32", "int32 named"])
def test_sizes_of_another_width_and_kernels_without_blocks(size):
    """TVM refuses both (Inconsistent buffers)."""
    mod = fused(
        f"""
        @T.prim_func(private=True)
        def plain(x: T.Buffer(({size},)), y: T.Buffer(({size},))):
            T.func_attr({{"op_pattern": 0}})
            for i in range(4):
                y[i] = x[i] + T.float32(1)

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            with R.dataflow():
                a = R.call_tir(Module.plain, (x,), out_ty=R.Tensor((4,), "float32"))
                b = R.exp(a)
                z = R.call_tir(Module.plain, (b,), out_ty=R.Tensor((4,), "float32"))
                R.output(z)
            return z
        """
    )
    x = np.arange(4, dtype=np.float32)
    assert_allclose(run(mod, "numpy", x).numpy(), np.exp(x + 1) + 1, rtol=1e-5)


def primitive(body, kernels="", params='x: R.Tensor((4,), "float32")'):
    return (
        kernels
        + f"""
@R.function(private=True)
def f({params}):
    R.func_attr({{"Primitive": True}})
    with R.dataflow():
{body}
        R.output(z)
    return z

@R.function
def main({params}):
    z = Module.f({", ".join(p.split(":")[0] for p in params.split(", ") if ":" in p)})
    return z
"""
    )


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("        z = R.exp(x)", "Only call_tir and call_tir_inplace are supported"),
        ('        z = R.match_cast(x, R.Tensor((4,), "float32"))', "MatchCast is unsupported"),
        ('        z = R.const([1, 2, 3, 4], "float32")', "GenericConst is not supported"),
    ],
)
def test_what_a_fused_function_may_not_contain(body, message):
    mod = module(primitive(body))
    with pytest.raises(InternalError, match=message):
        fuse_kernels(mod, mod["f"])


@pytest.mark.parametrize(
    ("size", "given"),
    [("T.int64(3)", "T.int64\\(3\\)"), ("n * T.int64(2)", "n \\* T.int64\\(2\\)")],
)
def test_a_kernel_of_another_shape_is_refused(size, given):
    kernels = f"""
@T.prim_func(private=True, s_tir=True)
def k(va: T.handle, vb: T.handle, vc: T.handle):
    n = T.int64()
    a = T.match_buffer(va, (n,))
    b = T.match_buffer(vb, ({size},))
    c = T.match_buffer(vc, (n,))
    for i in range(n):
        with T.sblock("k"):
            vi = T.axis.spatial(n, i)
            c[vi] = a[vi] + b[vi]
"""
    call = '        z = R.call_tir(Module.k, (x, x), out_ty=R.Tensor((4,), "float32"))'
    with pytest.raises(InternalError, match=f"Inconsistent buffers: k expects .{given},. for 'b'"):
        FuseTIR()(module(primitive(call, kernels)))


def test_functions_that_are_not_primitive_stay():
    mod = fused(
        """
        @R.function(private=True)
        def sub(x: R.Tensor((4,), "float32"), t: R.Tuple(R.Tensor((4,), "float32"))):
            with R.dataflow():
                y = t[0]
                a = R.add(x, y)
                z = R.exp(a)
                R.output(z)
            return z

        @R.function
        def main(x: R.Tensor((4,), "float32")):
            y = Module.sub(x, (x,))
            return y
        """
    )
    assert names(mod) == ["fused_add_tir_exp", "main", "sub"]
    assert "cls.sub(x, x)" in mod.script()
    x = np.arange(4, dtype=np.float32)
    assert_allclose(run(mod, "numpy", x).numpy(), np.exp(2 * x), rtol=1e-5)
