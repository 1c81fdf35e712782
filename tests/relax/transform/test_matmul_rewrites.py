"""The passes that rewrite matmuls (and reshapes, permutations, takes): text and values."""

import numpy as np
import pytest

from relaxlab import relax, runtime
from relaxlab.relax.analysis import well_formed
from relaxlab.relax.transform import (
    AdjustMatmulOrder,
    CombineParallelMatmul,
    ExpandMatmulOfSum,
    RemoveRedundantReshape,
    ReorderPermuteDimsAfterConcat,
    ReorderTakeAfterMatmul,
)
from relaxlab.testing import assert_allclose
from tests.relax.transform.checks import module

RNG = np.random.default_rng(2)


def tensor(*dims, dtype="float32"):
    return f'R.Tensor(({"".join(f"{d!r}, " for d in dims)}), "{dtype}")'


def program(params, lines, outputs, *, dataflow=True, attrs=None):
    inside = ", ".join(f"{name}: {ty}" for name, ty in params.items())
    indent = "        " if dataflow else "    "
    body = "".join(f"{indent}{line}\n" for line in lines)
    result = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
    text = f"@R.function\ndef main({inside}):\n"
    text += f"    R.func_attr({attrs})\n" if attrs else ""
    if dataflow:
        text += f"    with R.dataflow():\n{body}        R.output({', '.join(outputs)})\n"
    else:
        text += body
    return f"{text}    return {result}\n"


def lines_of(mod):
    """Return the right sides of the bindings of ``main``."""
    found = []
    for line in mod["main"].script().splitlines():
        name, _, value = line.strip().partition(" = ")
        if value and ": " in name:
            found.append(value)
    return found


def run(mod, args):
    out = relax.VirtualMachine(relax.build(mod, "numpy"), runtime.cpu())["main"](*args)
    return out if isinstance(out, tuple | list) else [out]


def rewritten(pass_, text, *args):
    """Return the module that a pass makes, once it is checked to compute the same."""
    mod = module(text)
    result = pass_(mod)
    well_formed(result)
    assert pass_(result) is result
    for got, want in zip(run(result, args), run(mod, args), strict=True):
        assert_allclose(got.numpy(), want.numpy(), rtol=1e-5, atol=1e-5)
    return result


def unchanged(pass_, text):
    mod = module(text)
    assert pass_(mod) is mod


def random(*shape):
    return RNG.random(shape, np.float32)


# ---------------------------------------------------------------- reshapes


def test_a_chain_of_reshapes_is_one_or_none():
    lines = ["a = R.reshape(x, (3, 4))", "b = R.reshape(a, (12,))", "o = R.reshape(b, (4, 3))"]
    mod = rewritten(
        RemoveRedundantReshape(), program({"x": tensor(2, 6)}, lines, ["o"]), random(2, 6)
    )
    assert lines_of(mod) == ["R.reshape(x, R.shape([4, 3]))"]
    lines = ["a = R.reshape(x, (n * 6,))", "b = R.reshape(a, (n, 6))", "o = R.exp(b)"]
    text = program({"x": tensor("n", 6)}, lines, ["o"]).replace(
        "    with", "    n = T.int64()\n    with"
    )
    assert lines_of(rewritten(RemoveRedundantReshape(), text, random(3, 6))) == ["R.exp(x)"]


def test_reshapes_that_others_use_stay():
    lines = ["a = R.reshape(x, (3, 4))", "b = R.reshape(a, (12,))"]
    mod = rewritten(
        RemoveRedundantReshape(), program({"x": tensor(2, 6)}, lines, ["a", "b"]), random(2, 6)
    )
    assert lines_of(mod) == ["R.reshape(x, R.shape([3, 4]))", "R.reshape(x, R.shape([12]))"]
    unchanged(RemoveRedundantReshape(), program({"x": tensor(2, 6)}, lines[:1], ["a"]))


def test_a_reshape_in_another_block_is_not_looked_through():
    text = """
@R.function
def main(x: R.Tensor((2, 6), "float32")):
    with R.dataflow():
        e = R.exp(x)
        a = R.reshape(e, (3, 4))
        R.output(a)
    b = R.reshape(a, (12,))
    return b
"""
    unchanged(RemoveRedundantReshape(), text)


# ---------------------------------------------------------------- permutations


@pytest.mark.parametrize(
    ("order", "axis", "joined"), [("", -1, 0), (", [2, 0, 1]", 0, 2), (", [0, -1, 1]", 1, 2)]
)
def test_one_permutation_after_joining(order, axis, joined):
    shapes = [(2, 3), (4, 3)] if not order else [(2, 3, 4), (2, 3, 5)]
    lines = [
        f"a = R.permute_dims(x{order})",
        f"b = R.permute_dims(y{order})",
        f"o = R.concat((a, b), axis={axis})",
    ]
    params = {name: tensor(*shape) for name, shape in zip("xy", shapes, strict=True)}
    mod = rewritten(
        ReorderPermuteDimsAfterConcat(),
        program(params, lines, ["o"]),
        *(random(*shape) for shape in shapes),
    )
    assert lines_of(mod)[0] == f"R.concat((x, y), axis={joined})"
    assert len(lines_of(mod)) == 2


def test_parts_that_are_permuted_differently_stay():
    params = {"x": tensor(2, 3), "y": tensor(3, 2)}
    text = program(params, ["a = R.permute_dims(x)", "o = R.concat((a, y), axis=1)"], ["o"])
    unchanged(ReorderPermuteDimsAfterConcat(), text)
    params = {"x": tensor(3, 3, 3), "y": tensor(3, 3, 3)}
    lines = [
        "a = R.permute_dims(x)",
        "b = R.permute_dims(y, [2, 0, 1])",
        "o = R.concat((a, b), axis=1)",
    ]
    unchanged(ReorderPermuteDimsAfterConcat(), program(params, lines, ["o"]))


# ---------------------------------------------------------------- take


@pytest.mark.parametrize("left", [(2, 16), (16,), (3, 2, 16)])
def test_columns_are_taken_afterwards(left):
    params = {"x": tensor(*left), "w": tensor(16, 8), "i": tensor(5, dtype="int64")}
    lines = ["t = R.take(w, i, axis=1)", "o = R.matmul(x, t)"]
    mod = rewritten(
        ReorderTakeAfterMatmul(),
        program(params, lines, ["o"]),
        random(*left),
        random(16, 8),
        np.array([0, 7, 3, 3, 1]),
    )
    assert lines_of(mod)[0] == "R.matmul(x, w, out_dtype=None)"
    assert lines_of(mod)[1].startswith(f"R.take(lv, i, axis={len(left) - 1}")


def test_each_row_of_a_batch_takes_its_own_weights():
    params = {"x": tensor(3, 2, 4), "w": tensor(7, 4, 5), "i": tensor(3, dtype="int64")}
    lines = ["t = R.take(w, i, axis=0)", "o = R.matmul(x, t)"]
    mod = rewritten(
        ReorderTakeAfterMatmul(),
        program(params, lines, ["o"]),
        random(3, 2, 4),
        random(7, 4, 5),
        np.array([6, 0, 2]),
    )
    assert lines_of(mod)[-1] == 'R.einsum((lv4,), subscripts="ijik->ijk")'


@pytest.mark.parametrize(
    ("left", "axis", "indices"),
    [((2, 16), 0, (5,)), ((1, 2, 16), 0, (4,)), ((2, 16), 1, ())],
    ids=["rows", "one row for all weights", "one column"],
)
def test_takes_that_stay(left, axis, indices):
    weights = (16, 8) if axis else (7, 16, 8)
    params = {"x": tensor(*left), "w": tensor(*weights), "i": tensor(*indices, dtype="int64")}
    lines = [f"t = R.take(w, i, axis={axis})", "o = R.matmul(x, t)"]
    unchanged(ReorderTakeAfterMatmul(), program(params, lines, ["o"]))


# ---------------------------------------------------------------- sums


SUM = {
    "x": tensor(2, 3),
    "a": tensor(3, 4),
    "b": tensor(3, 4),
    "c": tensor(4, 3),
    "d": tensor(4, 3),
    "v": tensor(4),
}
SUM_ARGS = [random(2, 3), random(3, 4), random(3, 4), random(4, 3), random(4, 3), random(4)]


def test_a_product_by_a_sum_is_a_sum_of_products():
    mod = rewritten(
        ExpandMatmulOfSum(),
        program(SUM, ["s = R.add(a, b)", "o = R.matmul(x, s)"], ["o"]),
        *SUM_ARGS,
    )
    assert lines_of(mod) == [
        "R.matmul(x, a, out_dtype=None)",
        "R.matmul(x, b, out_dtype=None)",
        "R.add(lv, lv1)",
    ]


def test_sums_of_sums_and_transposed_sums():
    lines = ["r = R.add(c, d)", "s = R.add(r, c)", "t = R.permute_dims(s)", "o = R.matmul(x, t)"]
    mod = rewritten(ExpandMatmulOfSum(), program(SUM, lines, ["o"]), *SUM_ARGS)
    assert sum("matmul" in line for line in lines_of(mod)) == 3


def test_sums_that_stay():
    of_weights = program(
        SUM, ["s = R.add(a, b)", "o = R.matmul(x, s)"], ["o"], attrs={"num_input": 1}
    )
    unchanged(ExpandMatmulOfSum(), of_weights)
    # a vector that is added to each row is no matrix (TVM raises)
    unchanged(ExpandMatmulOfSum(), program(SUM, ["s = R.add(a, v)", "o = R.matmul(x, s)"], ["o"]))


# ---------------------------------------------------------------- order


LEFT, RIGHT = (
    ["p = R.matmul(a, b)", "o = R.matmul(p, c)"],
    ["p = R.matmul(b, c)", "o = R.matmul(a, p)"],
)


def product(shapes, lines, **options):
    return program(
        {name: tensor(*shape) for name, shape in shapes.items()}, lines, ["o"], **options
    )


@pytest.mark.parametrize("dataflow", [True, False])
def test_the_cheaper_order(dataflow):
    row = {"a": (1, 16), "b": (16, 2), "c": (2, 32)}
    column = {"a": (16, 2), "b": (2, 32), "c": (32, 1)}
    first = "gv" if not dataflow else "lv"
    for shapes, lines, want in (
        (row, RIGHT, f"R.matmul({first}, c, out_dtype=None)"),
        (column, LEFT, f"R.matmul(a, {first}, out_dtype=None)"),
    ):
        args = [random(*shape) for shape in shapes.values()]
        mod = rewritten(AdjustMatmulOrder(), product(shapes, lines, dataflow=dataflow), *args)
        assert lines_of(mod)[-1] == want
    unchanged(AdjustMatmulOrder(), product(row, LEFT))
    unchanged(AdjustMatmulOrder(), product(dict.fromkeys("abc", (4, 4)), LEFT))


def test_vectors_and_batches():
    for shapes, lines in (
        ({"a": (16,), "b": (16, 2), "c": (2, 32)}, RIGHT),
        ({"a": (16, 2), "b": (2, 32), "c": (32,)}, LEFT),
        ({"a": (3, 1, 16), "b": (16, 2), "c": (2, 32)}, RIGHT),
    ):
        args = [random(*shape) for shape in shapes.values()]
        mod = rewritten(AdjustMatmulOrder(), product(shapes, lines), *args)
        assert lines_of(mod)[0] != f"R.matmul({lines[0][13:-1]}, out_dtype=None)"


def test_a_product_that_is_transposed():
    shapes = {"a": (1, 16), "b": (2, 16), "c": (32, 2)}
    lines = ["p = R.matmul(c, b)", "t = R.permute_dims(p)", "o = R.matmul(a, t)"]
    args = [random(*shape) for shape in shapes.values()]
    mod = rewritten(AdjustMatmulOrder(), product(shapes, lines), *args)
    assert lines_of(mod) == [
        "R.permute_dims(b, axes=None)",
        "R.matmul(a, lv, out_dtype=None)",
        "R.permute_dims(c, axes=None)",
        "R.matmul(lv1, lv2, out_dtype=None)",
    ]


@pytest.mark.parametrize("attrs", [None, {"tir_var_upper_bound": {"r": 64}}])
def test_symbolic_sizes_with_and_without_bounds(attrs):
    shapes = {"a": (32, 16), "b": (16, "r"), "c": ("r", 32)}
    unchanged(AdjustMatmulOrder(), product(shapes, RIGHT, attrs=attrs))
    if attrs:
        attrs = {"tir_var_upper_bound": {"r": 4}}
        args = [random(32, 16), random(16, 3), random(3, 32)]
        mod = rewritten(AdjustMatmulOrder(), product(shapes, RIGHT, attrs=attrs), *args)
        assert lines_of(mod)[0] == "R.matmul(a, b, out_dtype=None)"
    rows = {"a": ("n", 16), "b": (16, 2), "c": (2, 32)}
    args = [random(5, 16), random(16, 2), random(2, 32)]
    mod = rewritten(AdjustMatmulOrder(), product(rows, RIGHT), *args)
    assert lines_of(mod)[0] == "R.matmul(a, b, out_dtype=None)"


def test_weights_are_multiplied_first():
    shapes = {"c": (1, 16), "a": (16, 2), "b": (2, 32)}
    weights = {"num_input": 1}
    lines = ["p = R.matmul(c, a)", "o = R.matmul(p, b)"]
    args = [random(*shape) for shape in shapes.values()]
    mod = rewritten(AdjustMatmulOrder(), product(shapes, lines, attrs=weights), *args)
    assert lines_of(mod)[0] == "R.matmul(a, b, out_dtype=None)"


# ---------------------------------------------------------------- side by side


QKV = {"x": tensor(2, 4), "w0": tensor(4, 3), "w1": tensor(4, 5), "b0": tensor(3), "b1": tensor(5)}
QKV_ARGS = [random(2, 4), random(4, 3), random(4, 5), random(3), random(5)]


@pytest.mark.parametrize("act", [None, "relu", "gelu", "silu"])
@pytest.mark.parametrize("bias", [False, True])
def test_matmuls_biases_and_activations_are_joined(bias, act):
    lines, outputs = [], []
    for i in range(2):
        name = f"a{i}"
        lines.append(f"{name} = R.matmul(x, w{i})")
        if bias:
            lines.append(f"s{i} = R.add({name}, b{i})")
            name = f"s{i}"
        if act:
            lines.append(f"r{i} = R.nn.{act}({name})")
            name = f"r{i}"
        outputs.append(name)
    mod = rewritten(CombineParallelMatmul(), program(QKV, lines, outputs), *QKV_ARGS)
    text = "\n".join(lines_of(mod))
    assert text.count("R.matmul") == text.count("R.split") == 1
    assert text.count("R.concat") == 1 + bias
    assert text.count("R.nn.") == (act is not None)


def test_different_ends_are_left_to_themselves():
    lines = ["a = R.matmul(x, w0)", "r = R.nn.relu(a)", "b = R.matmul(x, w1)", "s = R.add(b, b1)"]
    mod = rewritten(CombineParallelMatmul(), program(QKV, lines, ["r", "s"]), *QKV_ARGS)
    text = "\n".join(lines_of(mod))
    assert text.count("R.matmul") == 1
    assert text.count("R.nn.relu") == 1


def test_one_size_may_be_symbolic_and_comes_last():
    params = {"x": tensor(2, 4), "w0": tensor(4, "n"), "w1": tensor(4, 5), "w2": tensor(4, "m")}
    lines = [f"a{i} = R.matmul(x, w{i})" for i in range(3)]
    args = [random(2, 4), random(4, 3), random(4, 5), random(4, 2)]
    mod = rewritten(CombineParallelMatmul(), program(params, lines, ["a0", "a1", "a2"]), *args)
    assert lines_of(mod)[0] == "R.concat((w1, w0), axis=1)"
    assert "R.matmul(x, w2, out_dtype=None)" in lines_of(mod)


def test_a_weight_that_is_made_in_between_moves_forward():
    lines = ["a = R.matmul(x, w0)", "w2 = R.exp(w1)", "b = R.matmul(x, w2)"]
    mod = rewritten(CombineParallelMatmul(), program(QKV, lines, ["a", "b"]), *QKV_ARGS)
    assert lines_of(mod)[0] == "R.exp(w1)"
    # outside of dataflow blocks nothing is moved
    unchanged(CombineParallelMatmul(), program(QKV, lines, ["a", "b"], dataflow=False))
    lines = ["w2 = R.exp(w1)", "a = R.matmul(x, w0)", "b = R.matmul(x, w2)"]
    rewritten(CombineParallelMatmul(), program(QKV, lines, ["a", "b"], dataflow=False), *QKV_ARGS)


def test_products_that_depend_on_each_other_stay():
    """TVM raises."""
    square = {"x": tensor(4, 4), "w": tensor(4, 4)}
    lines = ["a = R.matmul(x, w)", "c = R.exp(a)", "b = R.matmul(x, c)"]
    unchanged(CombineParallelMatmul(), program(square, lines, ["a", "b"]))


def test_what_cannot_stand_side_by_side():
    params = {"x": tensor(2, 4), "w0": tensor(3, 4, 3), "w1": tensor(2, 4, 5), "w2": tensor(4, 5)}
    lines = [f"a{i} = R.matmul(x, w{i})" for i in range(3)]
    unchanged(CombineParallelMatmul(), program(params, lines, ["a0", "a1", "a2"]))
    unchanged(
        CombineParallelMatmul(), program(params, [lines[2], "b = R.matmul(x, w2)"], ["a2", "b"])
    )


def test_the_check_is_asked():
    lines = ["a = R.matmul(x, w0)", "b = R.matmul(x, w1)"]
    asked = []

    def check(left, rights, biases, values):
        asked.append((left.name, [r.name for r in rights], biases, len(values)))
        return False

    unchanged(CombineParallelMatmul(check), program(QKV, lines, ["a", "b"]))
    assert asked == [("x", ["w0", "w1"], [], 2)]
