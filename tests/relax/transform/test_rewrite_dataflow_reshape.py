"""RewriteDataflowReshape: kernels that only reshape become views, inside dataflow blocks."""

import numpy as np

from relaxlab import relax, runtime
from relaxlab.relax import transform
from relaxlab.relax.transform import RewriteDataflowReshape
from tests.relax.transform.checks import assert_unchanged, module

PROGRAM = """
@R.function
def main(x: R.Tensor(("b", "s", 8), "float32")):
    b = T.int64()
    s = T.int64()
    with R.dataflow():
        heads = R.reshape(x, (b, s, 2, 4))
        first = R.expand_dims(heads, [0])
        swapped = R.permute_dims(first, [0, 1, 3, 2, 4])
        back = R.squeeze(swapped, [0])
        flat = R.reshape(back, (b * 2, s * 4))
        wider = R.exp(flat)
        out = R.reshape(wider, (b, 2, s, 4))
        R.output(out)
    return out
"""


def test_views_are_found_and_outputs_stay_kernels():
    mod = transform.LegalizeOps()(module(PROGRAM))
    result = RewriteDataflowReshape()(mod)
    text = result.script()
    assert text.count("R.reshape(") == 4  # heads, first, back, flat
    assert "R.call_tir(cls.transpose, (first,)" in text
    assert "out = R.call_tir(cls.reshape" in text
    assert RewriteDataflowReshape()(result) is result


def test_values():
    x = np.random.default_rng(0).random((2, 3, 8), np.float32)
    vm = relax.VirtualMachine(relax.build(module(PROGRAM), "numpy"), runtime.cpu())
    back = x.reshape(2, 3, 2, 4).transpose(0, 2, 1, 3)
    np.testing.assert_allclose(vm["main"](x).numpy(), np.exp(back), rtol=1e-6)


def test_outside_of_dataflow_nothing_changes():
    mod = transform.LegalizeOps()(
        module(
            """
            @R.function
            def main(x: R.Tensor((2, 3), "float32")):
                y = R.reshape(x, (6,))
                z = R.exp(y)
                return z
            """
        )
    )
    assert RewriteDataflowReshape()(mod) is mod


def test_fewer_elements_are_no_reshape():
    assert_unchanged(
        RewriteDataflowReshape(),
        """
        @T.prim_func(private=True, s_tir=True)
        def head(A: T.Buffer((T.int64(8),), "float32"), B: T.Buffer((T.int64(4),), "float32")):
            for i in range(T.int64(4)):
                with T.sblock("copy"):
                    vi = T.axis.spatial(T.int64(4), i)
                    B[vi] = A[vi]

        @R.function
        def main(x: R.Tensor((8,), "float32")):
            with R.dataflow():
                y = R.call_tir(Module.head, (x,), out_ty=R.Tensor((4,), "float32"))
                z = R.exp(y)
                R.output(z)
            return z
        """,
    )


def test_only_the_first_parameter_can_be_what_is_reshaped():
    kernel = """
        @T.prim_func(private=True, s_tir=True)
        def second(
            A: T.Buffer((T.int64(4),), "float32"),
            B: T.Buffer((T.int64(4),), "float32"),
            C: T.Buffer((T.int64(4),), "float32"),
        ):
            for i in range(T.int64(4)):
                with T.sblock("copy"):
                    vi = T.axis.spatial(T.int64(4), i)
                    C[vi] = B[vi]

        @R.function
        def main(x: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):
            with R.dataflow():
                z = R.call_tir(Module.second, (x, y), out_ty=R.Tensor((4,), "float32"))
                w = R.exp(z)
                R.output(w)
            return w
    """
    assert_unchanged(RewriteDataflowReshape(), kernel)
    result = RewriteDataflowReshape()(module(kernel.replace("B[vi]", "A[vi]")))
    assert "R.reshape(x, R.shape([4]))" in result.script()
