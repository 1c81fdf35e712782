"""Constants without a text of their own."""

from pathlib import Path

import numpy as np
import pytest

from relaxlab import relax
from relaxlab.errors import DiagnosticError
from relaxlab.ir import IRModule, Var
from relaxlab.runtime import tensor
from relaxlab.script import from_source
from relaxlab.script.parser.metadata import load_metadata

ty = relax.TensorType((2,), "float32")

GOLDEN = Path(__file__).parents[1] / "golden" / "script"


def module(*values):
    x = Var("x", ty)
    bindings = [relax.VarBinding(Var("y", ty), relax.op.add(x, value)) for value in values]
    body = relax.SeqExpr((relax.BindingBlock(tuple(bindings)),), bindings[-1].var)
    func = relax.Function([x], body, ty).with_attr("global_symbol", "main")
    return IRModule({"main": relax.BlockBuilder().normalize(func)})


def test_one_object_is_one_entry():
    a, b = (relax.const(np.array(v, "float32")) for v in ([1, 2], [3, 4]))
    text = module(a, b, a).script()
    assert [line.split("metadata")[1] for line in text.splitlines() if "R.add" in line] == [
        '["ir.GenericConst"][0])',
        '["ir.GenericConst"][1])',
        '["ir.GenericConst"][0])',
    ]
    assert text.endswith(
        "\n\n# Metadata omitted. Use show_meta=True in script() method to show it."
    )


def test_shown_metadata_is_what_tvm_shows():
    source = (GOLDEN / "metadata_source.txt").read_text()
    recorded = (GOLDEN / "metadata_shown.txt").read_text()
    mod = from_source(source)
    assert mod.script(show_meta=True) == recorded
    assert from_source(recorded).script(show_meta=True) == recorded


def test_parameters_that_are_kept_as_an_attribute_read_back():
    """That is how the importers of TVM hand over what a model has learned."""
    first, second = (tensor(np.array(v, "float32")) for v in ([1, 2], [3, 4]))
    mod = module(relax.const(np.array([5, 6], "float32")))
    mod["main"] = mod["main"].with_attr("params", [first, second]).with_attr("num_input", 1)
    text = mod.script(show_meta=True)
    listed = '"params": [metadata["ffi.Tensor"][0], metadata["ffi.Tensor"][1]]'
    assert f'R.func_attr({{"num_input": 1, {listed}}})' in text
    again = from_source(text)
    assert again.script(show_meta=True) == text
    assert [p.numpy().tolist() for p in again["main"].attrs["params"]] == [[1, 2], [3, 4]]
    assert mod.structural_equal(again)
    other = from_source(text)
    other["main"].attrs["params"][1].array[0] = 7
    assert not mod.structural_equal(other)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("shape", [(2,), (2, 0), (1, 2, 3)])
def test_constants_read_back(dtype, shape):
    values = np.arange(np.prod(shape)).reshape(shape)
    const = relax.const(values.astype(relax.const(0, dtype).value.numpy().dtype))
    func = relax.Function([], const).with_attr("global_symbol", "main")
    mod = IRModule({"main": func})
    text = mod.script(show_meta=True)
    again = from_source(text)
    assert mod.structural_equal(again)
    assert again.script(show_meta=True) == text


def test_a_text_without_its_constants_says_how_to_print_it():
    text = module(relax.const([1.0, 2.0])).script()
    with pytest.raises(DiagnosticError, match="show_meta=True"):
        from_source(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[]", "not a metadata section"),
        ("{}", "not a metadata section"),
        ('{"nodes": [], "root_index": 0}', "not a metadata section"),
        ('{"nodes": [{"data": [0, 0]}], "root_index": 0}', "are not supported"),
        (
            '{"nodes": [{"data": [1, 2]}, {"data": "os.system"}, {"data": []}], "root_index": 0}',
            "'os.system' are not supported",
        ),
    ],
)
def test_bad_metadata_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        load_metadata(text)


def test_a_short_tensor_is_refused():
    text = module(relax.const([1.0, 2.0])).script(show_meta=True)
    with pytest.raises(DiagnosticError, match="the metadata cannot be read"):
        from_source(text.replace("AACAPwAAAEA=", "AACAPwAA"))
