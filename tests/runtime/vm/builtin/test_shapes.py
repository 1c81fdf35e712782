"""Matching shapes: atomic, and with names in the errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime import Array, ShapeTuple, get_global_func, tensor
from relaxlab.runtime.vm.builtin.error_context import place, prefix, size_name
from relaxlab.runtime.vm.builtin.shapes import MakeShapeCode, MatchShapeCode, ShapeHeap

match_shape = get_global_func("vm.builtin.match_shape")
match_prim_value = get_global_func("vm.builtin.match_prim_value")
make_shape = get_global_func("vm.builtin.make_shape")
EQUAL, STORE, NOTHING, LOAD = MatchShapeCode


def context(index, name, annotation):
    return f"ErrorContext(fn=main, loc=param[{index}], param={name}, annotation={annotation}) "


X = context(0, "x", 'R.Tensor((n, 4), dtype="float32")')
Y = context(1, "y", 'R.Tensor((4, n), dtype="float32")')


# ---- names -----------------------------------------------------------------------------------


def test_a_size_with_two_values_is_named_with_who_bound_it_first():
    heap = ShapeHeap(1)
    match_shape(np.zeros((3, 4)), heap, 2, STORE, 0, EQUAL, 4, X)
    with pytest.raises(RuntimeError) as raised:
        match_shape(np.zeros((4, 5)), heap, 2, EQUAL, 4, LOAD, 0, Y)
    assert type(raised.value) is RuntimeError
    assert str(raised.value) == (
        f"{Y.strip()}: match_cast: shape[1] is 5, but variable n is populated with 3 "
        "by parameter 'x' of main, dimension 0"
    )


def test_a_size_that_contradicts_itself_in_one_shape():
    ctx = context(0, "x", "R.Tensor((n, n))")
    heap = ShapeHeap(1)
    with pytest.raises(RuntimeError, match=r"variable n is populated with 2 by parameter 'x'"):
        match_shape(np.zeros((2, 3)), heap, 2, STORE, 0, LOAD, 0, ctx)
    match_shape(np.zeros((2, 2)), heap, 2, STORE, 0, LOAD, 0, ctx)


def test_a_match_cast_and_a_result_are_places_too():
    heap = ShapeHeap(2)
    match_shape(ShapeTuple((3,)), heap, 1, STORE, 0, "ErrorContext(match_cast, ty=R.Shape([m])) ")
    result = "ErrorContext(fn=f, loc=return, annotation=R.Tensor((m,))) "
    with pytest.raises(RuntimeError, match="variable m is populated with 3 by an earlier match_ca"):
        match_shape(np.zeros(4), heap, 1, LOAD, 0, result)
    match_shape(np.zeros(7), heap, 1, STORE, 1, result)
    with pytest.raises(RuntimeError, match="variable m is populated with 7 by the result of f"):
        match_shape(np.zeros(8), heap, 1, LOAD, 1, "")


def test_an_expression_is_named_as_it_is_written():
    heap = ShapeHeap(1)
    heap.array[0] = 6
    ctx = context(1, "y", 'R.Tensor((n * 2,), dtype="float32")')
    with pytest.raises(RuntimeError, match=r"shape\[0\] is 5, but n \* 2 is populated with 6"):
        match_shape(np.zeros(5), heap, 1, LOAD, 0, ctx)


def test_a_number_is_named():
    heap = ShapeHeap(1)
    match_prim_value(3, heap, STORE, 0, context(0, "k", 'R.Prim(value="k")'))
    with pytest.raises(RuntimeError, match="variable k is populated with 3 by parameter 'k'"):
        match_prim_value(4, heap, LOAD, 0, context(1, "j", 'R.Prim(value="k")'))


@pytest.mark.parametrize(
    ("annotation", "rank", "dimension", "name"),
    [
        ('R.Tensor((n, 4), dtype="float32")', 2, 0, "n"),
        ("R.Tensor((batch, seq + 1, 64))", 3, 1, "seq + 1"),
        ('R.Tensor(("n", "m"), "float32")', 2, 1, "m"),
        ("R.Shape([a, b, c])", 3, 2, "c"),
        ("R.Tensor((T.max(a, b), c))", 2, 1, "c"),
        ("R.Tensor((T.max(a, b), c))", 2, 0, "T.max(a, b)"),
        ("R.Tuple(R.Tensor((n,)), R.Tensor((n,)))", 1, 0, "n"),
        ("R.Tuple(R.Tensor((n,)), R.Tensor((m,)))", 1, 0, None),
        ("R.Tuple(R.Tensor((n,)), R.Tensor((a, b)))", 2, 1, "b"),
        ("R.Tensor(shape=(n, m))", 2, 1, "m"),
        ("R.Tensor(ndim=2)", 2, 1, None),
        ("R.Tensor((n, 4))", 3, 0, None),
        ("R.Tensor((n", 1, 0, "n"),
        ("", 1, 0, None),
    ],
)
def test_names_of_sizes(annotation, rank, dimension, name):
    assert size_name(context(0, "x", annotation), rank, dimension) == name


@pytest.mark.parametrize(
    ("ctx", "words", "start"),
    [
        (X, "parameter 'x' of main", f"{X.strip()}: "),
        ("ErrorContext(fn=f, loc=param[2], annotation=A) ", "parameter 2 of f", None),
        ("ErrorContext(fn=f, loc=return, annotation=A) ", "the result of f", None),
        ("ErrorContext(match_cast, ty=A) ", "an earlier match_cast", None),
        ("ctx", "the check 'ctx'", "ctx: "),
        ("", "an earlier check", ""),
        (None, "an earlier check", ""),
        (" ", "an earlier check", ""),
    ],
)
def test_places_in_words(ctx, words, start):
    assert place(ctx) == words
    if start is not None:
        assert prefix(ctx) == start


@given(st.text(), st.integers(0, 3))
def test_no_context_can_break_the_message(text, dimension):
    size_name(text, 4, dimension)
    size_name(f"ErrorContext(match_cast, ty={text}) ", 4, dimension)
    assert place(text)


# ---- atomic ----------------------------------------------------------------------------------


@given(
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=4),
    codes=st.data(),
)
def test_a_failed_match_changes_nothing_and_a_good_one_stores_all(sizes, codes):
    heap = ShapeHeap(3)
    heap.array[...] = before = codes.draw(st.lists(st.integers(0, 5), min_size=3, max_size=3))
    pairs, expected, fails = [], list(before), False
    for size in sizes:
        code = codes.draw(st.sampled_from(list(MatchShapeCode)))
        value = codes.draw(st.integers(0, 2) if code != EQUAL else st.integers(0, 5))
        pairs += [code, value]
        if code == STORE:
            expected[value] = size
        elif code != NOTHING:
            fails = fails or size != (value if code == EQUAL else expected[value])
    arguments = (ShapeTuple(sizes), heap, len(sizes), *pairs, "c")
    if fails:
        with pytest.raises(RuntimeError):
            match_shape(*arguments)
        assert heap.array.tolist() == before
        assert heap.origins == [None] * 3
    else:
        match_shape(*arguments)
        assert heap.array.tolist() == expected


def test_an_unknown_code_stores_nothing():
    heap = ShapeHeap(1)
    with pytest.raises(InternalError, match=r"Unknown code 9 for shape\[1\]"):
        match_shape(ShapeTuple((5, 6)), heap, 2, STORE, 0, 9, 0, "c")
    assert heap.array.tolist() == [0]


# ---- what TVM does not check -----------------------------------------------------------------


@pytest.mark.parametrize("heap", [None, 3, tensor([1.0]), tensor([[1]])])
def test_a_bad_heap_is_refused_only_when_it_is_needed(heap):
    match_shape(ShapeTuple((5,)), heap, 1, EQUAL, 5, "c")
    assert make_shape(heap, 1, MakeShapeCode.USE_IMM, 5) == (5,)
    for code in (STORE, LOAD):
        with pytest.raises((TypeError, InternalError), match="heap"):
            match_shape(ShapeTuple((5,)), heap, 1, code, 0, "c")
    with pytest.raises((TypeError, InternalError), match="heap"):
        make_shape(heap, 1, MakeShapeCode.LOAD_SHAPE, 0)


@pytest.mark.parametrize("slot", [-1, 1, 2**40])
def test_a_slot_outside_the_heap_is_refused(slot):
    for code in (STORE, LOAD):
        with pytest.raises(InternalError, match=f"slot {slot} is out of range: the heap has 1"):
            match_shape(ShapeTuple((5,)), ShapeHeap(1), 1, code, slot, "c")
    with pytest.raises(InternalError, match=f"heap slot {slot} is out of range"):
        make_shape(ShapeHeap(1), 1, MakeShapeCode.LOAD_SHAPE, slot)


def test_a_missing_context_is_refused_instead_of_read_past_the_arguments():
    with pytest.raises(InternalError, match="1 pairs of code and value and a context, got 2"):
        match_shape(ShapeTuple((5,)), None, 1, NOTHING, 0)


def test_other_values_that_are_shapes():
    match_shape([2, 3], None, 2, EQUAL, 2, EQUAL, 3, "")
    match_shape(Array([2, True]), None, 2, EQUAL, 2, EQUAL, 1, "")
    with pytest.raises(TypeError, match="value, element 1: expected int, got float"):
        match_shape([2, 3.0], None, 2, EQUAL, 2, EQUAL, 3, "")


def test_a_heap_starts_at_zero_and_cannot_be_negative():
    alloc = get_global_func("vm.builtin.alloc_shape_heap")
    assert alloc(None, 2).array.tolist() == [0, 0]
    assert alloc(None, 0).shape == (0,)
    with pytest.raises(InternalError, match="expected a size >= 0, got -1"):
        alloc(None, -1)
