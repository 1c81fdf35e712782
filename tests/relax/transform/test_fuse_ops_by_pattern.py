"""FuseOpsByPattern: which matches become functions, and what these hold."""

import numpy as np

from relaxlab import relax
from relaxlab.relax.analysis import well_formed
from relaxlab.relax.dpl import is_const, is_op, wildcard
from relaxlab.relax.transform import (
    FuseOpsByPattern,
    FuseTransposeMatmul,
    FusionPattern,
    LambdaLift,
)
from relaxlab.runtime import cpu
from tests.relax.transform.checks import assert_unchanged, module

EXP_EXP = is_op("relax.exp")(is_op("relax.exp")(wildcard()))
BEFORE = """
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.exp(a)
            c = R.reshape(b, R.shape([4, n]))
            R.output(c)
        return c
"""


def before():
    return module(BEFORE.replace("        with", "        n = T.int64()\n        with"))


def run(mod, *args):
    vm = relax.VirtualMachine(relax.build(mod, "numpy"), cpu())
    return vm["main"](*args).numpy()


def composites(mod):
    return {g.name_hint: f for g, f in mod.functions.items() if "Composite" in f.func_attrs}


def test_symbolic_shapes():
    mod = FuseOpsByPattern(
        [("lib.e", EXP_EXP), ("lib.r", is_op("relax.reshape")(wildcard(), wildcard()))]
    )(before())
    well_formed(mod)
    assert set(composites(mod)) == {"fused_relax_exp_relax_exp", "fused_relax_reshape"}
    x = np.arange(8, dtype="float32").reshape(2, 4) / 8
    np.testing.assert_allclose(run(mod, x), np.exp(np.exp(x)).reshape(4, 2), 1e-6)


def test_wrapped_for_a_library():
    mod = FuseOpsByPattern([("lib.e", EXP_EXP)], annotate_codegen=True)(before())
    well_formed(mod)
    (name,) = (g.name_hint for g, f in mod.functions.items() if "Codegen" in f.func_attrs)
    assert name == "fused_relax_exp_relax_exp_lib"
    assert mod[name].attrs["Codegen"] == "lib"
    x = np.zeros((2, 4), "float32")
    np.testing.assert_allclose(run(LambdaLift()(mod), x), np.full((4, 2), np.e), 1e-6)


def test_a_value_used_elsewhere_stays():
    text = BEFORE.replace("c = R.reshape(b, R.shape([4, n]))", "c = R.add(a, b)")
    mod = module(text)
    assert FuseOpsByPattern([("lib.e", EXP_EXP)])(mod) is mod


def test_nothing_may_stand_in_between():
    pattern = is_op("relax.add")(is_op("relax.exp")(wildcard()), wildcard())
    mod = module(
        """
    @R.function
    def main(x: R.Tensor((4,), "float32")):
        with R.dataflow():
            a = R.exp(x)
            b = R.negative(a)
            c = R.add(a, b)
            R.output(c)
        return c
"""
    )
    assert FuseOpsByPattern([("lib.a", pattern)])(mod) is mod


def test_checks_constants_and_attributes():
    some = wildcard()
    pattern = is_op("relax.add")(some, is_const())
    mod = module(
        """
    @R.function
    def main(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            a = R.add(x, R.const([1, 2], "float32"))
            b = R.exp(a)
            R.output(b)
        return b
"""
    )
    seen = []

    def check(context):
        seen.append((list(context.var_usages), context.annotated_expr["data"].name))
        return True

    def attrs(found):
        return {"what": found["data"].name}

    fusion = FusionPattern("lib.add", pattern, {"data": some}, check, attrs)
    (inside,) = composites(FuseOpsByPattern([fusion])(mod)).values()
    assert [param.name for param in inside.params] == ["x"]
    assert inside.attrs["what"] == "x"
    (outside,) = composites(FuseOpsByPattern([fusion], bind_constants=False)(mod)).values()
    assert [param.name for param in outside.params] == ["x", "param_0"]
    assert seen[0][1] == "x"
    refused = FusionPattern("lib.add", pattern, check=lambda context: False)
    assert FuseOpsByPattern([refused])(mod) is mod
    assert FuseOpsByPattern([fusion], entry_functions=["other"])(mod) is mod


def test_products_with_transposed_weights():
    mod = module(
        """
    @R.function
    def main(x: R.Tensor((3, 2, 4), "float32"), w: R.Tensor((5, 4), "float32")):
        with R.dataflow():
            t = R.permute_dims(w)
            y = R.matmul(x, t)
            R.output(y)
        return y
"""
    )
    new = FuseTransposeMatmul()(mod)
    assert "NT_matmul" in {gvar.name_hint for gvar in new.functions}
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype("float32") for s in ((3, 2, 4), (5, 4)))
    np.testing.assert_allclose(run(new, x, w), x @ w.T, 1e-5, 1e-5)


def test_other_products_stay():
    assert_unchanged(
        FuseTransposeMatmul(),
        """
    @R.function
    def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((1, 4, 5), "float32")):
        with R.dataflow():
            t = R.permute_dims(w, axes=[1, 0, 2])
            y = R.matmul(x, R.squeeze(t, axis=[1]))
            R.output(y)
        return y
""",
    )
