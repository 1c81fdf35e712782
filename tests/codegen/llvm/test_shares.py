"""Loops that threads share: which they are, and that dealing iterations out changes no bit."""

import ctypes
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from relaxlab import te, topi
from relaxlab.codegen.llvm.arguments import CompiledKernel
from relaxlab.codegen.llvm.host import Host
from relaxlab.codegen.llvm.parallel import LEAST
from relaxlab.script import from_source
from relaxlab.tirx import PrimFunc
from tests.codegen.compare import assert_same, copied, random_arguments
from tests.codegen.llvm.support import (
    AVX2,
    SSE2,
    Dealer,
    compiled,
    floats,
    kernel_of,
    placeholder,
    prim_func,
)
from tests.codegen.llvm.test_kernels import recorded
from tests.codegen.llvm.typed_kernels import typed_kernels

n = te.var("n", "int64")


def outcome(function: Any, arguments: list[Any]) -> Any:
    """Return the bytes of all arguments after a call, or the error."""
    given_arguments = copied(arguments)
    try:
        function(*given_arguments)
    except (IndexError, ValueError, ZeroDivisionError) as error:
        return type(error), str(error)
    return [np.asarray(a).tobytes() for a in given_arguments]


def dealt_the_same(
    func: PrimFunc, arguments: list[Any], seed: int = 0, host: Host | None = None
) -> list[int]:
    """Assert that pieces in any order give what one go gives; return how many pieces."""
    kernel = compiled(func, host, least=0)
    whole = compiled(func, host, least=None)
    assert whole.plan.parts == 0
    dealer = Dealer(seed)
    off = ctypes.c_int64(0)
    kernel.pool = ctypes.addressof(off)
    expected = outcome(whole, arguments)
    assert outcome(kernel, arguments) == expected
    kernel.pool = dealer.address
    assert outcome(kernel, arguments) == expected
    return dealer.pieces


# ------------------------------------------------------------------ which loops


def script(body: str, parameters: str) -> PrimFunc:
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    func = from_source(f"@T.prim_func\ndef main({parameters}):\n{lines}\n")
    assert isinstance(func, PrimFunc)
    return func


X, Y = 'x: T.Buffer((64, 8), "float32")', 'y: T.Buffer((64, 8), "float32")'
LONG = 'x: T.Buffer((64,), "float32"), y: T.Buffer((128,), "float32")'
LOOPS = {
    "elements": (1, f"{X}, {Y}", "for i, j in T.grid(64, 8):\n    y[i, j] = x[i, j] * 2.0"),
    "marked": (1, f"{X}, {Y}", "for i in T.parallel(64):\n    y[i, 0] = x[i, 0] * 2.0"),
    "one row is written": (0, f"{X}, {Y}", "for i in T.parallel(64):\n    y[0, 0] = x[i, 0]"),
    "where data says": (
        0,
        f'{LONG}, w: T.Buffer((64,), "int64")',
        "for i in T.parallel(64):\n    y[w[i]] = x[i]",
    ),
    "added where data says": (
        0,
        f'{LONG}, w: T.Buffer((64,), "int64")',
        "for i in T.parallel(64):\n    y[w[i]] = y[w[i]] + x[i]",
    ),
    "read from where data says": (
        1,
        f'{LONG}, w: T.Buffer((64,), "int64")',
        "for i in range(64):\n    y[i] = x[w[i]]",
    ),
    "prefix sums of one row": (
        0,
        LONG,
        "y[0] = x[0]\nfor i in T.parallel(63):\n    y[i + 1] = y[i] + x[i + 1]",
    ),
    "prefix sums of rows": (
        1,
        f"{X}, {Y}",
        (
            "for i in range(64):\n    y[i, 0] = x[i, 0]\n"
            "    for j in range(7):\n        y[i, j + 1] = y[i, j] + x[i, j + 1]"
        ),
    ),
    "the row before is read": (
        0,
        f"{X}, {Y}",
        "for i in T.parallel(63):\n    for j in range(8):\n        y[i + 1, j] = y[i, j] + x[i, j]",
    ),
    "two to one": (0, LONG, "for i in T.parallel(64):\n    y[i // 2] = x[i]"),
    "every second": (1, LONG, "for i in range(64):\n    y[i * 2] = x[i]"),
    "pairs": (1, LONG, "for i in range(64):\n    y[i * 2] = x[i]\n    y[i * 2 + 1] = x[i]"),
    "pairs that overlap": (
        0,
        LONG,
        "for i in T.parallel(63):\n    y[i * 2] = x[i]\n    y[i * 2 + 2] = x[i]",
    ),
    "pieces": (
        1,
        LONG,
        "for i in range(16):\n    for j in range(8):\n        y[i * 8 + j] = x[i * 4 + j // 2]",
    ),
    "pieces that overlap": (
        0,
        LONG,
        "for i in T.parallel(15):\n    for j in range(9):\n        y[i * 8 + j] = x[i * 4]",
    ),
    "halves": (1, LONG, "for i in range(64):\n    y[i] = x[i]\n    y[i + 64] = x[i]"),
    "halves that overlap": (
        0,
        LONG,
        "for i in T.parallel(64):\n    y[i] = x[i]\n    y[i + 63] = x[i]",
    ),
    "forwards and backwards": (
        0,
        'x: T.Buffer((64,), "float32"), y: T.Buffer((256,), "float32")',
        "for i in T.parallel(64):\n    y[i] = x[i]\n    y[100 - i] = x[i]",
    ),
    "backwards": (1, LONG, "for i in range(64):\n    y[63 - i] = x[i]"),
    "through a flat view": (
        1,
        f'x: T.Buffer((64,), "float32"), {Y}',
        "for i in range(64):\n    y[i, 0] = x[i]",
    ),
    "folded": (
        1,
        'x: T.Buffer((64,), "float32"), y: T.Buffer((8, 8), "float32")',
        "for i in range(64):\n    y[i // 8, i % 8] = x[i]",
    ),
    "folded too narrow": (
        0,
        'x: T.Buffer((64,), "float32"), y: T.Buffer((16, 8), "float32")',
        "for i in T.parallel(64):\n    y[i // 8, i % 4] = x[i]",
    ),
    "sums": (
        1,
        f'{X}, y: T.Buffer((64,), "float32")',
        (
            "for i in range(64):\n    y[i] = 0.0\n    for j in range(8):\n"
            "        y[i] = y[i] + x[i, j]"
        ),
    ),
    "a sum over the outer loop": (
        0,
        f'{X}, y: T.Buffer((8,), "float32")',
        "for i in T.parallel(64):\n    for j in range(8):\n        y[j] = y[j] + x[i, j]",
    ),
    "a number of each iteration": (
        1,
        f"{X}, {Y}",
        (
            't = T.alloc_buffer((1,), "float32")\nfor i in range(64):\n    t[0] = x[i, 0]\n'
            "    for j in range(8):\n        y[i, j] = t[0] + t[0] * x[i, j]"
        ),
    ),
    "a number of the iteration before": (
        0,
        f"{X}, {Y}",
        (
            't = T.alloc_buffer((1,), "float32")\nt[0] = x[0, 0]\nfor i in T.parallel(64):\n'
            "    for j in range(8):\n        y[i, j] = t[0] + t[0] * x[i, j]\n"
            "    t[0] = x[i, 1]"
        ),
    ),
    "a number now and then": (
        0,
        f"{X}, {Y}",
        (
            't = T.alloc_buffer((1,), "float32")\nfor i in T.parallel(64):\n'
            "    if x[i, 0] > 0.5 or i == 0:\n        t[0] = x[i, 0]\n"
            "    for j in range(8):\n        y[i, j] = t[0] + t[0] * x[i, j]"
        ),
    ),
    "a sum of each iteration": (
        1,
        f"{X}, {Y}",
        (
            't = T.alloc_buffer((1,), "float32")\nfor i in range(64):\n    t[0] = 0.0\n'
            "    for j in range(8):\n        t[0] = t[0] + x[i, j]\n"
            "    for j in range(8):\n        y[i, j] = t[0] * x[i, j]"
        ),
    ),
    "a sum of all iterations": (
        0,
        f"{X}, {Y}",
        (
            't = T.alloc_buffer((1,), "float32")\nt[0] = 0.0\nfor i in T.parallel(64):\n'
            "    for j in range(8):\n        t[0] = t[0] + x[i, j]\n"
            "    for j in range(8):\n        y[i, j] = t[0] * x[i, j]"
        ),
    ),
    "two numbers for all": (
        0,
        f"{X}, {Y}",
        (
            't = T.alloc_buffer((2,), "float32")\nfor i in T.parallel(64):\n'
            "    t[0] = x[i, 0]\n    for j in range(8):\n        y[i, j] = t[0] * x[i, j]"
        ),
    ),
    "a triangle": (
        1,
        'x: T.Buffer((64, 64), "float32"), y: T.Buffer((64, 64), "float32")',
        "for i in range(64):\n    for j in range(i + 1):\n        y[i, j] = x[i, j]",
    ),
    "a call": (
        0,
        f"{X}, {Y}",
        'for i in T.parallel(64):\n    T.evaluate(T.call_packed("a.b", i))\n    y[i, 0] = x[i, 0]',
    ),
    "a way out": (
        0,
        LONG,
        (
            "for i in T.parallel(64):\n    y[i] = x[i]\n"
            "    if x[i] > 0.5:\n        T.evaluate(T.break_loop())"
        ),
    ),
}


@pytest.mark.parametrize("case", LOOPS)
def test_what_is_shared(case: str) -> None:
    parts, parameters, body = LOOPS[case]
    func = script(body, parameters)
    kernel = compiled(func, least=0)
    assert kernel.plan.parts == parts
    if "call" in case:
        return
    arguments = random_arguments(func, (0, 60))
    dealt_the_same(func, arguments)
    # and it is what the kernel says
    assert_same(func, kernel_of(func), arguments)


def rows_of_softmax(*shape: Any) -> PrimFunc:
    x = placeholder(*shape)
    return prim_func(x, topi.nn.softmax(x, axis=-1))


def part_of(kernel: CompiledKernel) -> str:
    """Return the function that threads call some iterations of."""
    start = kernel.plan.text.index("define internal i32 @kernel.body.part0(")
    return kernel.plan.text[start : kernel.plan.text.index("\n}\n", start)]


def test_rows_with_buffers_of_their_own_are_shared() -> None:
    kernel = compiled(rows_of_softmax(n, 40), least=0)
    assert kernel.plan.parts == 1
    assert "malloc" not in kernel.plan.text
    # exponentials of a row, the largest element, and the sum
    assert part_of(kernel).count("alloca float") == 3
    assert kernel.plan.text.count("alloca float") == 3
    pieces = dealt_the_same(rows_of_softmax(n, 40), [floats(33, 40), floats(33, 40)])
    assert pieces[0] > 5


def test_large_rows_get_memory_in_every_piece() -> None:
    func = rows_of_softmax(7, 9000)
    kernel = compiled(func, least=0)
    assert kernel.plan.parts == 1
    assert "call ptr @malloc" in part_of(kernel)
    assert kernel.plan.text.count("call ptr @malloc") == 1
    dealt_the_same(func, [floats(7, 9000), floats(7, 9000)])


def taken_and_softmax() -> PrimFunc:
    """Return a kernel that may fail before it comes to the loop that needs memory."""
    x, where = placeholder(5, 9000), placeholder(n, name="where", dtype="int64")
    taken = te.compute((n,), lambda i: topi.exp(x)[where[i], 0], name="taken")
    return prim_func(x, where, taken, topi.nn.softmax(x, axis=-1))


@pytest.mark.parametrize("least", [0, 2**60, None])
def test_memory_that_was_not_reached_is_not_freed(least: int | None) -> None:
    kernel = compiled(taken_and_softmax(), least=least)
    outs = np.zeros(7, np.float32), np.zeros((5, 9000), np.float32)
    for place in range(7):
        rows = np.zeros(7, np.int64)
        rows[place] = 5 + place
        with pytest.raises(IndexError, match=f"index {5 + place} of dimension 0"):
            kernel(floats(5, 9000), rows, *outs)
    kernel(floats(5, 9000), rows * 0, *outs)
    np.testing.assert_allclose(outs[1].sum(axis=1), 1, 1e-5)
    # whether it is freed or not is a matter of luck, so the order is looked at too
    for function in kernel.plan.text.split("\ndefine ")[1:]:
        lines = [x for x in function.splitlines() if "store ptr null" in x or " br " in x]
        cleared = [place for place, line in enumerate(lines) if "store ptr null" in line]
        assert cleared == list(range(len(cleared)))
    assert "store ptr null" in kernel.plan.text


def test_loops_one_after_the_other_are_shared_each() -> None:
    x = placeholder(n, 16)
    turned = te.compute((16, n), lambda i, j: topi.exp(x)[j, i], name="t")
    r = te.reduce_axis((0, n), "r")
    total = te.compute((16,), lambda i: te.sum(turned[i, r] * turned[i, r], axis=r), name="s")
    y = te.compute((n, 16), lambda i, j: turned[j, i] / total[j], name="y")
    func = prim_func(x, y)
    assert compiled(func, least=0).plan.parts >= 2
    pieces = dealt_the_same(func, [floats(50, 16), floats(50, 16)])
    assert len(pieces) >= 2


@pytest.mark.parametrize("host", [None, AVX2, SSE2], ids=["here", "avx2", "sse2"])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 64, 100, 333])
def test_lanes_are_filled_as_without_pieces(size: int, host: Host | None) -> None:
    for extent in (size, n):
        x = placeholder(extent)
        func = prim_func(x, topi.tanh(x))
        dealt_the_same(func, [floats(size) * 3, floats(size)], size, host)


def test_short_loops_stay_where_they_are() -> None:
    x = placeholder(64, 64)
    func = prim_func(x, topi.exp(x))
    assert compiled(func).plan.text == compiled(func, least=None).plan.text
    x = placeholder(1024, 1024)
    assert compiled(prim_func(x, topi.exp(x))).plan.parts == 1
    assert LEAST > 64 * 64 * 24


def test_what_overlaps_is_done_in_order() -> None:
    x = placeholder(n)
    assert compiled(prim_func(x, topi.exp(x)), plain=True, least=0).plan.parts == 0


def test_the_first_error_is_told() -> None:
    parameters = (
        'x: T.Buffer((50,), "float32"), w: T.Buffer((400, 3), "int64"), '
        'y: T.Buffer((400, 3), "float32")'
    )
    func = script("for i, j in T.grid(400, 3):\n    y[i, j] = x[w[i, j]]", parameters)
    kernel = compiled(func, least=0)
    where = np.arange(1200).reshape(400, 3) % 50
    for place, value in ((911, 77), (400, -3), (333, 60), (334, 61)):
        where[place // 3, place % 3] = value
        arguments = [floats(50), where.astype(np.int64), np.zeros((400, 3), np.float32)]
        with pytest.raises(IndexError) as alone:
            compiled(func, least=None)(*arguments)
        for seed in range(5):
            dealer = Dealer(seed)
            kernel.pool = dealer.address
            with pytest.raises(IndexError) as dealt:
                kernel(*arguments)
            assert str(dealt.value) == str(alone.value)
            assert dealer.pieces[0] > 1


# ------------------------------------------------------------------ no bit changes


def test_pieces_of_recorded_operators() -> None:
    found: Counter[str] = Counter()
    for number, (_, func) in enumerate(recorded()[::3]):
        pieces = dealt_the_same(func, random_arguments(func), number)
        found["shared" if any(p > 1 for p in pieces) else "whole"] += 1
    assert found["shared"] > 10, found


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(typed_kernels(), st.integers(0, 1000), st.sampled_from((None, None, AVX2, SSE2)))
def test_pieces_of_random_kernels(
    case: tuple[PrimFunc, list[Any], bool], seed: int, host: Host | None
) -> None:
    func, arguments, _ = case
    pieces = dealt_the_same(func, arguments, seed, host)
    event(f"pieces: {min(sum(pieces), 10)}")
