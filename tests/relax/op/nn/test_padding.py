import pytest

from relaxlab.errors import DiagnosticError
from relaxlab.script import from_source


def result(ty, call):
    mod = from_source(
        f"@I.ir_module\nclass Module:\n    @R.function\n    def main(x: {ty}):\n"
        f"        gv = R.nn.pad(x, {call})\n        return gv\n"
    )
    return str(mod["main"].ret_ty)


def test_widths_are_added_to_the_dimensions():
    assert result('R.Tensor((2, "n"), "float32")', "[0, 1, 2, 3]") == (
        'R.Tensor((3, n + 5), dtype="float32")'
    )


def test_an_unknown_shape_keeps_its_rank():
    assert result('R.Tensor("float32", ndim=1)', "[1, 1]") == 'R.Tensor(dtype="float32", ndim=1)'


def test_a_wrong_number_of_widths_is_refused():
    with pytest.raises(DiagnosticError, match="Illegal pad_width: expected 2 numbers"):
        result('R.Tensor((8,), "float32")', "[1, 1, 2]")


def test_an_unknown_mode_is_refused():
    with pytest.raises(DiagnosticError, match="pad_mode must be one of"):
        result('R.Tensor((8,), "float32")', '[1, 1], pad_mode="foo"')
