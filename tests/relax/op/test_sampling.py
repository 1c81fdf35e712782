import pytest

from relaxlab.errors import DiagnosticError
from relaxlab.script import from_source


def result(prob, uniform, indices, more=""):
    mod = from_source(
        f"""
@I.ir_module
class Module:
    @R.function
    def main(p: {prob}, u: {uniform}, i: {indices}):
        gv = R.multinomial_from_uniform(p, u, i{more})
        return gv
"""
    )
    return str(mod["main"].ret_ty)


def tensor(shape, dtype="float32"):
    return f"R.Tensor({shape}, {dtype!r})"


UNKNOWN = 'R.Tensor("float32", ndim=2)'


@pytest.mark.parametrize(
    ("args", "more", "expected"),
    [
        (("(2, 3)", "(4, 1)", "(4, 1)"), "", 'R.Tensor((4, 1), dtype="int64")'),
        (("(2, 3)", "('n', 1)", "('n', 1)"), ', "int32"', 'R.Tensor((n, 1), dtype="int32")'),
    ],
)
def test_the_result_has_one_index_per_sample(args, more, expected):
    prob, uniform, indices = args
    assert result(tensor(prob), tensor(uniform), tensor(indices, "int64"), more) == expected


def test_unknown_shapes_give_the_rank():
    got = result(UNKNOWN, UNKNOWN, tensor("(4, 1)", "int64"))
    assert got == 'R.Tensor(dtype="int64", ndim=2)'


@pytest.mark.parametrize(
    ("prob", "uniform", "indices", "message"),
    [
        (tensor("(2, 3)"), tensor("(4,)"), tensor("(4, 1)", "int64"), "uniform_sample to be a 2D"),
        (tensor("(2, 3)"), tensor("(4, 2)"), tensor("(4, 1)", "int64"), "second dimension being 1"),
        (tensor("(2, 3)"), tensor("(4, 1)"), tensor("(5, 1)", "int64"), "the same batch size"),
        (tensor("(2, 3)", "int32"), tensor("(4, 1)"), tensor("(4, 1)", "int64"), "prob to have fl"),
        (tensor("(2, 3)"), tensor("(4, 1)"), tensor("(4, 1)"), "sample_indices to have int dtype"),
        (
            tensor("(2, 3, 4)"),
            tensor("(4, 1)"),
            tensor("(4, 1)", "int64"),
            "prob to be a 2D tensor",
        ),
    ],
)
def test_what_does_not_fit_is_refused(prob, uniform, indices, message):
    with pytest.raises(DiagnosticError, match=message):
        result(prob, uniform, indices)
