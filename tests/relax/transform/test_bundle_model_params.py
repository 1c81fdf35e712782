# programs as they print
"""BundleModelParams: all weights as one tuple."""

from relaxlab.relax.analysis import check_well_formed
from relaxlab.relax.transform import BundleModelParams
from tests.relax.transform.checks import assert_becomes, assert_unchanged

T = 'R.Tensor((4,), "float32")'


def test_each_use_reads_the_tuple():
    result = assert_becomes(
        BundleModelParams("weights"),
        f"""
        @R.function
        def main(x: {T}, c: R.Tensor((), "bool"), w: {T}, v: {T}):
            R.func_attr({{"num_input": 2}})
            with R.dataflow():
                a = R.add(w, w)
                R.output(a)
            if c:
                r = R.add(a, x)
            else:
                r = R.add(x, w)
            return (r, v)
        """,
        f"""
        @R.function
        def main(x: {T}, c: R.Tensor((), "bool"), weights: R.Tuple({T}, {T})):
            R.func_attr({{"num_input": 2}})
            with R.dataflow():
                w = weights[0]
                w1 = weights[0]
                a = R.add(w, w1)
                R.output(a)
            if c:
                r = R.add(a, x)
            else:
                w2 = weights[0]
                r = R.add(x, w2)
            v = weights[1]
            return (r, v)
        """,
    )
    assert check_well_formed(result)


def test_scalars_come_first_since_types_may_mention_them():
    result = assert_becomes(
        BundleModelParams(),
        f"""
        @R.function
        def main(x: {T}, w: {T}, q: R.Prim("int64")):
            R.func_attr({{"num_input": 1}})
            z = R.zeros(R.shape([q, 4]), "float32")
            y = R.add(z, w)
            return y
        """,
        f"""
        @R.function
        def main(x: {T}, model_params: R.Tuple({T}, R.Prim("int64"))):
            R.func_attr({{"num_input": 1}})
            q: R.Prim("int64") = model_params[1]
            z: R.Tensor((q, 4), "float32") = R.zeros(R.shape([q, 4]), "float32")
            w = model_params[0]
            y = R.add(z, w)
            return y
        """,
    )
    assert check_well_formed(result)


def test_calls_in_the_module_follow():
    result = assert_becomes(
        BundleModelParams(),
        f"""
        @R.function(private=True)
        def sub(x: {T}, w: {T}, v: {T}) -> {T}:
            R.func_attr({{"num_input": 1}})
            y = R.add(x, v)
            return y

        @R.function
        def main(x: {T}) -> {T}:
            y = Module.sub(x, x, x)
            return y
        """,
        f"""
        @R.function(private=True)
        def sub(x: {T}, model_params: R.Tuple({T}, {T})) -> {T}:
            R.func_attr({{"num_input": 1}})
            v = model_params[1]
            y = R.add(x, v)
            return y

        @R.function
        def main(x: {T}) -> {T}:
            y = Module.sub(x, (x, x))
            return y
        """,
    )
    assert check_well_formed(result)


def test_without_num_input_nothing_is_known_to_be_a_weight():
    assert_unchanged(
        BundleModelParams(),
        f"@R.function\ndef main(x: {T}, w: {T}):\n    y = R.add(x, w)\n    return y",
    )
