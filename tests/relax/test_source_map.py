"""From a line of the script to the instruction and the kernel, through both pipelines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxlab import relax
from relaxlab.errors import InternalError
from relaxlab.ir import PassContext, PassInstrument, Target
from relaxlab.relax.expr import Function, If
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.bytecode import Call
from relaxlab.runtime.vm.saved_library import write_saved_library
from relaxlab.runtime.vm.source_map import Origin, Place, SourceMap
from relaxlab.script import from_source
from tests.golden_compiler import cases, source

PIPELINES = ["default", "fusing"]
SCRIPT = """\
@I.ir_module
class Module:
    @T.prim_func(private=True, s_tir=True)
    def halve(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(4),), "float32")):
        for i in range(T.int64(4)):
            with T.sblock("halve"):
                v = T.axis.spatial(T.int64(4), i)
                y[v] = x[v] * T.float32(0.5)

    @R.function
    def main(x: R.Tensor((4,), "float32"), c: R.Tensor((), "bool")) -> R.Tensor((4,), "float32"):
        cls = Module
        with R.dataflow():
            a = R.exp(
                R.add(x, x)
            )
            b = R.tanh(a)
            h = R.call_tir(cls.halve, (b,), out_ty=R.Tensor((4,), "float32"))
            R.output(h)
        if c:
            r = R.add(h, x)
        else:
            s = R.multiply(h, x)
            r = R.subtract(s, x)
        return r
"""


def lowering(kind):
    return "default" if kind == "default" else relax.get_default_pipeline(Target("llvm"))


def prepared(text, name="<str>"):
    return relax.transform.LambdaLift()(from_source(text, name=name))


def build(mod, kind):
    return relax.build(mod, "numpy", relax_pipeline=lowering(kind))


def bindings(seq):
    for block in seq.blocks:
        for binding in block.bindings:
            yield binding
            match binding.value:
                case If(true_branch=one, false_branch=other):
                    yield from bindings(one)
                    yield from bindings(other)
                case Function(body=body):
                    yield from bindings(body)


class Placed(PassInstrument):
    """After every pass every binding has a place."""

    def run_after_pass(self, mod, info):
        for gvar, func in mod.functions.items():
            if isinstance(func, Function):
                assert func.span is not None, f"{info.name}: {gvar.name_hint}"
                for binding in bindings(func.body):
                    assert binding.span is not None, f"{info.name}: {binding!r}"


@pytest.mark.parametrize("kind", PIPELINES)
@pytest.mark.parametrize("name", cases())
def test_every_instruction_of_the_recorded_modules_has_a_line(name, kind):
    text = source(name)
    with PassContext(instruments=[Placed()]):
        ex = build(prepared(text, "demo.py"), kind)
    assert list(ex.source_map) == list(range(ex.num_instructions))
    known = {line.strip() for line in text.splitlines()}
    kernels = {kernel for library in ex.imports for kernel in library.names}
    for pc, origin in ex.source_map.items():
        assert origin.pc == pc
        assert origin.places, f"{pc}: {origin.binding}"
        assert origin.function == ex.function_at(pc).name
        for place in origin.places:
            assert place.source == "demo.py"
            assert place.text in known
            assert text.splitlines()[place.line - 1].strip() == place.text
        instruction = ex.instruction(pc)
        called = ex.func_table[instruction.func_idx].name if type(instruction) is Call else None
        assert origin.kernel == (called if called in kernels else None)


def lines_of(ex, kernel):
    return sorted({place.line for place in ex.source_map.places_of(kernel)})


def test_a_kernel_knows_its_lines():
    ex = build(from_source(SCRIPT, name="demo.py"), "default")
    assert {name: lines_of(ex, name) for name in ex.source_map.kernels} == {
        "add": [15, 21],  # two lines share the kernel; the inner call has its own line
        "tir_exp": [14],
        "tir_tanh": [17],
        "halve": [18],
        "multiply": [23],
        "subtract": [24],
    }


def test_a_fused_kernel_has_the_lines_of_its_parts():
    ex = build(from_source(SCRIPT, name="demo.py"), "fusing")
    fused = next(name for name in ex.source_map.kernels if name.startswith("fused_"))
    assert lines_of(ex, fused) == [14, 15, 17, 18]
    (pc,) = ex.source_map.kernels[fused]
    assert pc in ex.source_map.at("demo.py", 17)
    assert ex.source_map[pc].lines == (14, 15, 17, 18)


def test_branches_and_result():
    ex = build(from_source(SCRIPT, name="demo.py"), "default")
    last = ex.source_map[ex.num_instructions - 1]
    assert (last.lines, last.binding) == ((25,), "return r")
    choice = [origin for origin in ex.source_map.values() if origin.binding == "r = if c"]
    assert {origin.lines for origin in choice} == {(20,)}
    assert str(last) == "demo.py:25: return r"
    table = str(ex.source_map).splitlines()
    assert table[0].split() == ["pc", "function", "line", "kernel", "binding"]
    assert table[-1].split() == [str(last.pc), "main", "demo.py:25", "-", "return", "r"]


def test_kernels_written_in_the_script_have_places():
    kernel = from_source(SCRIPT, name="demo.py")["halve"]
    assert (kernel.span.line, kernel.span.end_line) == (4, 8)


def test_a_program_without_text_has_bindings_but_no_lines():
    x = relax.Var("x", relax.TensorType([2], "float32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(relax.op.exp(x)))
    ex = relax.build(bb.get(), "numpy")
    assert all(origin.places == () for origin in ex.source_map.values())
    assert [o.binding for o in ex.source_map.values() if o.kernel == "tir_exp"] == [
        "tir_exp(x, alloc)"
    ]


def test_places_are_no_part_of_bytes_text_or_equality():
    plain, named = from_source(SCRIPT), from_source("\n\n" + SCRIPT, name="other.py")
    assert plain.script() == named.script()
    assert plain.structural_equal(named)
    one, two = build(plain, "default"), build(named, "default")
    assert one.save_to_bytes() == two.save_to_bytes()
    assert [o.lines[0] + 2 for o in one.source_map.values()] == [
        o.lines[0] for o in two.source_map.values()
    ]


def test_a_saved_library_keeps_the_map():
    ex = build(from_source(SCRIPT, name="demo.py"), "fusing")
    again = VMExecutable.load_from_bytes(write_saved_library(ex))
    assert dict(again.source_map) == dict(ex.source_map)
    assert write_saved_library(again) == write_saved_library(ex)
    assert not VMExecutable.load_from_bytes(ex.save_to_bytes()).source_map


def test_a_saved_map_does_not_say_where_files_were():
    origin = Origin("f", 0, (Place("/home/me/demo.py", 1, 1, "x"),), "x")
    again = SourceMap.from_json(SourceMap({0: origin}).to_json())
    assert again[0].places == (Place("demo.py", 1, 1, "x"),)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not valid JSON"),
        ("[]", "not an object"),
        ("{}", "no list 'places'"),
        ('{"places": []}', "no list 'instructions'"),
        ('{"places": [[1, 2, 3, 4]], "instructions": []}', "place 0"),
        ('{"places": [], "instructions": [[0, "f", [0], "", null]]}', "instruction 0"),
        ('{"places": [], "instructions": [[-1, "f", [], "", null]]}', "instruction 0"),
        ('{"places": [], "instructions": [[true, "f", [], "", null]]}', "instruction 0"),
        ('{"places": [], "instructions": [[0, "f", [], "", 1]]}', "instruction 0"),
    ],
)
def test_a_wrong_map_is_refused(text, words):
    with pytest.raises(InternalError, match=words):
        SourceMap.from_json(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(st.fixed_dictionaries({"places": JSON, "instructions": JSON}) | JSON)
def test_whatever_stands_in_a_map_is_read_or_refused(data):
    try:
        found = SourceMap.from_json(json.dumps(data))
    except InternalError:
        return
    assert dict(SourceMap.from_json(found.to_json())) == dict(found)
    assert str(found)


def test_a_map_is_read_when_asked():
    asked = []

    def make():
        asked.append(1)
        return Origin("f", 1, (Place("a.py", 2, 1),), "x")

    found = SourceMap({1: make})
    assert repr(found) == "SourceMap(1 instructions)"
    assert not asked
    assert found[1] is found[1]
    assert asked == [1]
    assert str(found[1]) == "a.py:2"
