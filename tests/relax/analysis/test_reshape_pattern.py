"""has_reshape_pattern: which kernels give each element the number it had."""

import pytest

from relaxlab.relax.analysis import has_reshape_pattern
from relaxlab.script import from_source


def kernel(sizes, loops, index, shape, source):
    """Return ``B[loops] = A[index]`` for B of ``shape`` and A of ``source``."""

    def quoted(text):
        dims = [dim.strip() for dim in text.split(",") if dim.strip()]
        return ", ".join(d if d.isidentifier() or d.startswith("T.") else f'"{d}"' for d in dims)

    names = [name for name, _ in loops]
    variables = ", ".join(f"i{name}" for name in names)
    extents = ", ".join(extent for _, extent in loops)
    lines = [
        *(f'{size} = TypeVar("{size}")' for size in sizes),
        "@I.ir_module",
        "class Module:",
        "    @T.prim_func(private=True, s_tir=True)",
        "    def f(",
        f'        A: T.Buffer(({quoted(source)},), "float32"),',
        f'        B: T.Buffer(({quoted(shape)},), "float32"),',
        "    ):",
        f"        for {variables} in T.grid({extents}):",
        '            with T.sblock("copy"):',
        *(f"                {n} = T.axis.spatial({e}, i{n})" for n, e in loops),
        f"                B[{', '.join(names)}] = A[{index}]",
    ]
    return from_source("\n".join(lines))["f"]


def int64(text):
    """Make the numbers of a text int64 literals."""
    words = [f"T.int64({w})" if w.isdigit() else w for w in _split(text)]
    return "".join(words)


def _split(text):
    word = ""
    for character in text:
        if character.isalnum():
            word += character
        else:
            yield word
            yield character
            word = ""
    yield word


#: Whether TVM sees a reshape (run), sizes, loops, index, written shape, read shape.
CASES = [
    (True, "", "v 8", "v // 4, v % 4", "8", "2, 4"),
    (True, "", "v 2, w 4", "v * 4 + w", "2, 4", "8"),
    (True, "", "v 6, w 4", "(v * 4 + w) // 6, (v * 4 + w) % 6", "6, 4", "4, 6"),
    (False, "", "v 8", "v // 2 % 2, v % 4", "8", "2, 4"),
    (False, "", "v 8", "v % 4", "8", "8"),
    (False, "", "v 8", "7 - v", "8", "8"),
    (False, "", "v 4, w 8", "w, v", "4, 8", "8, 4"),
    (True, "n", "v n, w 8", "0, v, 0, w", "n, 8", "1, n, 1, 8"),
    (True, "n", "v n * 8, w 4", "v // 8 % n, v % 8, w", "n * 8, 4", "n, 8, 4"),
    (True, "n", "v n, w 8", "(v * 8 + w) % (n * 8)", "n, 8", "n * 8"),
    (True, "n", "u 1, v n, w 8", "(u * n + v) % n, w", "1, n, 8", "n, 8"),
    (True, "n", "v n + 1, w 4", "(w // 4 + v) % (n + 1), w % 4", "n + 1, 4", "n + 1, 4"),
    (True, "n m", "v n * m, w 4", "v // m % n, v % m, w", "n * m, 4", "n, m, 4"),
    (True, "n m", "v n, w m, u 4", "(v * m + w) % (m * n), u", "n, m, 4", "m * n, 4"),
    (False, "n m", "v n, w m", "w, v", "n, m", "m, n"),
    # the factors of a product in another order than the sizes they are split into
    (False, "n m", "v n * m", "v // n % m, v % n", "n * m", "m, n"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[3]} | {case[5]}")
def test_as_in_tvm(case):
    expected, sizes, loops, index, shape, source = case
    pairs = [item.strip().split(" ", 1) for item in loops.split(",")]
    func = kernel(
        sizes.split(),
        [(name, int64(extent)) for name, extent in pairs],
        int64(index),
        int64(shape),
        int64(source),
    )
    assert has_reshape_pattern(func) is expected


@pytest.mark.parametrize(
    "body",
    [
        "B[v] = A[v] + T.float32(1)",
        "B[v] = T.float32(1)",
        "B[v] = B[v]",
        "A[v] = A[v]",
        "A[v] = B[v]",
    ],
)
def test_other_bodies(body):
    func = from_source(
        f"""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def f(A: T.Buffer((T.int64(8),), "float32"), B: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.sblock("b"):
                v = T.axis.spatial(T.int64(8), i)
                {body}
"""
    )["f"]
    assert not has_reshape_pattern(func)


def test_a_reduction_is_no_reshape():
    func = from_source(
        """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def f(A: T.Buffer((T.int64(8),), "float32"), B: T.Buffer((T.int64(8),), "float32")):
        for i in range(T.int64(8)):
            with T.sblock("b"):
                v = T.axis.reduce(T.int64(8), i)
                B[v] = A[v]
"""
    )["f"]
    assert not has_reshape_pattern(func)


def test_a_scalar_without_loops_is_left_to_its_kernel():
    func = from_source(
        """
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def f(A: T.Buffer((T.int64(1),), "float32"), B: T.Buffer((), "float32")):
        with T.sblock("b"):
            vi = T.axis.spatial(1, T.int64(0))
            B[()] = A[T.int64(0)]
"""
    )["f"]
    assert not has_reshape_pattern(func)
