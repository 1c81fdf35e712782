"""Variables replaced by expressions; functions copied with variables of their own."""

from relaxlab.ir import IntImm, structural_equal
from relaxlab.relax.analysis import all_vars, well_formed
from relaxlab.relax.substitution import bind_vars, copy_with_new_vars
from relaxlab.runtime.dtype import DataType
from tests.relax.transform.checks import module

PROGRAM = """
@R.function
def main(x: R.Tensor(("n", "m"), "float32"), c: R.Tensor((), "bool")):
    n = T.int64()
    m = T.int64()
    k = T.int64()
    with R.dataflow():
        a = R.exp(x)
        b = R.reshape(a, R.shape([n * m]))
        R.output(b)
    d = R.match_cast(b, R.Tensor((k,), "float32"))
    @R.function
    def f(y: R.Tensor((k,), "float32")) -> R.Tensor((k,), "float32"):
        z = R.add(y, d)
        return z
    if c:
        r = f(d)
    else:
        r = R.sin(d)
    return (r, R.shape([k, n]))
"""


def test_a_copy_shares_no_variable_and_says_the_same():
    func = module(PROGRAM)["main"]
    copy = copy_with_new_vars(func)
    assert structural_equal(func, copy)
    assert copy.script() == func.script()
    assert not set(all_vars(func)) & set(all_vars(copy))
    well_formed(copy)


def test_sizes_are_replaced_everywhere():
    func = module(PROGRAM)["main"]
    n, m = func.params[0].ty.get_shape()
    text = bind_vars(func, {n: IntImm(DataType("int64"), 2), m: n}).script()
    assert 'x: R.Tensor((2, n), dtype="float32")' in text
    assert "R.reshape(a, R.shape([n * 2]))" in text
    assert "R.shape([k, 2])" in text
    assert bind_vars(func, {}) is func
