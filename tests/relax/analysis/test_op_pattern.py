"""The kind of a kernel: every recorded one, and the rules one by one."""

import json
from pathlib import Path

import pytest

from relaxlab.relax.analysis.op_pattern import OpPatternKind, analyze_op_pattern
from relaxlab.script import from_source
from relaxlab.tirx import PrimFunc
from tests.relax.transform.checks import module

GOLDEN = Path(__file__).parents[2] / "golden" / "compiler"


def recorded():
    """Return (call, script, kind by kernel) of each recorded operator with kernels."""
    scripts = {
        (case["call"], str(case["params"])): case["script"]
        for case in json.loads((GOLDEN / "op_legalized.json").read_text())["cases"]
        if "script" in case
    }
    return [
        (case["call"], scripts[case["call"], str(case["params"])], case["kernels"])
        for case in json.loads((GOLDEN / "op_cases.json").read_text())["cases"]
        if case.get("kernels") and (case["call"], str(case["params"])) in scripts
    ]


RECORDED = recorded()


def test_there_are_many_recorded_kernels():
    assert len(RECORDED) > 130
    assert {kind for _, _, kinds in RECORDED for kind in kinds.values()} == {0, 1, 2, 3, 4, 8}


@pytest.mark.parametrize("case", RECORDED, ids=lambda case: case[0])
def test_recorded_kind(case):
    _, script, kinds = case
    mod = from_source(script)
    for gvar, func in mod.functions.items():
        if isinstance(func, PrimFunc):
            assert int(analyze_op_pattern(func)) == kinds[gvar.name_hint], gvar.name_hint


def kind_of(body, params="x: T.Buffer((4, 8)), y: T.Buffer((4, 8))"):
    lines = "\n".join(f"    {line}" for line in body.strip("\n").splitlines())
    mod = module(f"@T.prim_func(private=True, s_tir=True)\ndef k({params}):\n{lines}\n")
    (func,) = mod.functions.values()
    return analyze_op_pattern(func)


def test_loops_without_blocks_count_as_element_wise():
    assert kind_of("for i, j in T.grid(4, 8):\n    y[i, j] = x[j % 4, i]") == 0


def test_two_places_written_by_one_block():
    body = """
for i, j in T.grid(4, 4):
    with T.sblock("b"):
        vi, vj = T.axis.remap("SS", [i, j])
        y[vi, vj] = x[vi, vj]
        y[vi, vj + 4] = x[vi, vj]
"""
    assert kind_of(body) is OpPatternKind.OPAQUE


def test_a_block_that_stores_nothing():
    body = """
for i in range(4):
    with T.sblock("b"):
        vi = T.axis.spatial(4, i)
        T.reads()
        T.writes()
        T.evaluate(vi)
"""
    assert kind_of(body) is OpPatternKind.OPAQUE


def test_a_gather_is_opaque():
    body = """
for i in range(4):
    with T.sblock("b"):
        vi = T.axis.spatial(4, i)
        y[vi] = x[z[vi]]
"""
    params = 'x: T.Buffer((8,)), z: T.Buffer((4,), "int32"), y: T.Buffer((4,))'
    assert kind_of(body, params) is OpPatternKind.OPAQUE


def test_pooling_is_more_than_a_reduction():
    body = """
for i, k in T.grid(4, 3):
    with T.sblock("b"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            y[vi] = T.float32(0)
        y[vi] = T.max(y[vi], x[{}])
"""
    params = "x: T.Buffer((8,)), y: T.Buffer((4,))"
    assert kind_of(body.format("vi + vk"), params) is OpPatternKind.OUT_ELEM_WISE_FUSABLE
    params = "x: T.Buffer((4, 3)), y: T.Buffer((4,))"
    assert kind_of(body.format("vi, vk"), params) is OpPatternKind.COMM_REDUCE


def test_a_product_in_which_a_factor_is_used_once_is_a_reduction():
    body = """
for i, k in T.grid(4, 8):
    with T.sblock("b"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            y[vi] = T.float32(0)
        y[vi] = y[vi] + x[vi, vk] * z[{}]
"""
    params = "x: T.Buffer((4, 8)), z: T.Buffer({}), y: T.Buffer((4,))"
    # x is used once for each row: C += A * B needs both factors more than once
    assert kind_of(body.format("vk"), params.format("(8,)")) is OpPatternKind.COMM_REDUCE
    assert kind_of(body.format("vk, vi"), params.format("(8, 4)")) is OpPatternKind.COMM_REDUCE


def test_the_kind_of_a_later_block_counts_the_earlier_ones():
    body = """
t = T.sblock_alloc_buffer((4,))
for i, k in T.grid(4, 8):
    with T.sblock("sum"):
        vi, vk = T.axis.remap("SR", [i, k])
        with T.init():
            t[vi] = T.float32(0)
        t[vi] = t[vi] + x[vi, vk]
for i, j in T.grid(4, 8):
    with T.sblock("divide"):
        vi, vj = T.axis.remap("SS", [i, j])
        y[vi, vj] = x[vi, vj] / t[vi]
"""
    assert kind_of(body) is OpPatternKind.OUT_ELEM_WISE_FUSABLE


@pytest.mark.parametrize(
    ("index", "kind"),
    [
        ("vi, vj", OpPatternKind.ELEM_WISE),
        ("vi, 0", OpPatternKind.INJECTIVE),
        ("vi + 1, vj", OpPatternKind.INJECTIVE),
        ("vj, vi", OpPatternKind.INJECTIVE),
    ],
)
def test_indices_of_one_load(index, kind):
    body = f"""
for i, j in T.grid(4, 8):
    with T.sblock("b"):
        vi, vj = T.axis.remap("SS", [i, j])
        y[vi, vj] = x[{index}]
"""
    assert kind_of(body) is kind


def test_broadcasting_alone_and_beside_an_element_wise_load():
    body = """
for i, j in T.grid(4, 8):
    with T.sblock("b"):
        vi, vj = T.axis.remap("SS", [i, j])
        y[vi, vj] = {}
"""
    params = "x: T.Buffer((1, 8)), z: T.Buffer((4, 8)), y: T.Buffer((4, 8))"
    assert kind_of(body.format("x[0, vj]"), params) is OpPatternKind.BROADCAST
    assert kind_of(body.format("x[0, vj] + z[vi, vj]"), params) is OpPatternKind.ELEM_WISE
