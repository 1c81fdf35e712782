"""Who shares which storage from when to when: in modules and in bytecode, ours and TVM's."""

import json

import pytest

from relaxlab import relax
from relaxlab.ir import Target
from relaxlab.relax import transform
from relaxlab.relax.analysis import storage_liveness
from relaxlab.relax.pass_recorder import PassRecorder
from relaxlab.runtime.vm import VMExecutable
from relaxlab.script import from_source
from tests.golden_compiler import cases, source

CHAIN = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((8,), "float32")) -> R.Tensor((8,), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.tanh(a)
            c = R.negative(b)
            d = R.add(c, c)
            R.output(d)
        return d
"""
STEPS = ("StaticPlanBlockMemory", "LowerAllocTensor", "KillAfterLastUse", "AttachGlobalSymbol")


def pipeline(kind):
    if kind == "default":
        return relax.get_pipeline("default")
    return relax.get_default_pipeline(Target("llvm"))


def recorded(text, kind="default"):
    """Return the recorder of a build, and the executable."""
    mod = transform.LambdaLift()(from_source(text))
    recorder = PassRecorder()
    with recorder.recording():
        ex = relax.build(mod, "numpy", relax_pipeline=pipeline(kind))
    return recorder, ex


def after(recorder, step):
    return storage_liveness(recorder.after(recorder.index(step)))


def module(body, functions=""):
    text = f"""
@I.ir_module(check_well_formed=False)
class Module:
{functions}
    @R.function(pure=False)
    def main(x: R.Tensor((8,), "float32"), c: R.Tensor((), "bool")):
{body}
"""
    return storage_liveness(from_source(text))["main"]


KERNEL = """
    @T.prim_func(s_tir=True)
    def copy(a: T.handle, b: T.handle):
        A = T.match_buffer(a, (T.int64(8),))
        B = T.match_buffer(b, (T.int64(8),))
        for i in range(T.int64(8)):
            B[i] = A[i]
"""
ALLOC = "R.memory.alloc_storage(R.shape([{}]), 0, 'global', 'float32')"
TENSOR = "R.memory.alloc_tensor({}, {}, R.shape([8]), 'float32')"


def lines(*statements):
    return "\n".join(f"        {one}" for one in statements)


def test_a_chain_takes_turns():
    recorder, ex = recorded(CHAIN)
    memory = after(recorder, "StaticPlanBlockMemory")["main"]
    assert [(s.name, s.nbytes, s.planned, len(s.tensors)) for s in memory.storages] == [
        ("storage", 32, True, 2),
        ("storage1", 32, True, 1),
        ("alloc3", 32, False, 1),
    ]
    first, second = memory.storages[0].tensors
    assert first.last < second.first
    assert (memory.unplanned_bytes, memory.planned_bytes, memory.saved_bytes) == (128, 96, 32)
    assert (memory.peak, memory.shared, memory.dynamic) == (64, 1, 0)
    assert memory.conflicts() == ()
    in_bytecode = storage_liveness(ex)["main"]
    assert in_bytecode.peak == 64
    assert [len(s.tensors) for s in in_bytecode.storages] == [2, 1, 1]
    assert in_bytecode.steps[in_bytecode.storages[0].first].startswith("call vm.builtin.alloc_s")


@pytest.mark.parametrize("kind", ["default", "fusing"])
@pytest.mark.parametrize("name", cases())
def test_no_storage_is_used_by_two_live_tensors(name, kind):
    recorder, ex = recorded(source(name), kind)
    counted = []
    for table in [*(after(recorder, step) for step in STEPS), storage_liveness(ex)]:
        for memory in table.functions:
            assert memory.conflicts() == (), str(memory)
            assert memory.peak <= memory.planned_bytes
            assert memory.peak == max(
                (
                    sum(s.nbytes or 0 for s in memory.live(step))
                    for step in range(memory.first_step, memory.first_step + len(memory.steps) + 1)
                ),
                default=0,
            )
            for storage in memory.storages:
                assert all(storage.first <= t.first <= t.last for t in storage.tensors)
                assert storage.last >= max(t.last for t in storage.tensors)
        counted.append(sum(len(memory.tensors) for memory in table.functions))
    assert len(set(counted[1:])) == 1  # every tensor is found at every step, and in bytecode


def test_bytecode_from_a_file_without_lines_is_enough():
    _, ex = recorded(CHAIN)
    again = VMExecutable.load_from_bytes(ex.save_to_bytes())
    mine, other = storage_liveness(ex)["main"], storage_liveness(again)["main"]
    assert other.storages == mine.storages
    assert list(other.steps) == list(mine.steps)
    assert set(other.places) == {""}
    assert "<str>:7" in set(mine.places)


def test_text():
    recorder, _ = recorded(CHAIN)
    text = str(after(recorder, "StaticPlanBlockMemory"))
    assert text.splitlines() == [
        "main: 4 tensors in 3 storages, 128 bytes in 96 (saved 25.0%), peak 64 at step 4",
        "  storage             bytes  dtype    scope   steps  tensors",
        "  storage                32  float32  global   0-12  alloc 1-6, alloc2 8-12",
        "  storage1               32  float32  global    4-9  alloc1 5-9",
        "  alloc3 (by itself)     32  float32  global  11-14  alloc3 11-14",
        "  storage            |.aaaaaa.ccccc  |",
        "  storage1           |    .bbbbb     |",
        "  alloc3             |           dddd|",
    ]


def test_views_tuples_and_casts_keep_a_tensor_alive():
    memory = module(
        lines(
            f"s = {ALLOC.format(32)}",
            f"a = {TENSOR.format('s', 0)}",
            "cls.copy(x, a)",
            "b = R.reshape(a, (2, 4))",
            "t = (b, x)",
            "u = t[0]",
            "v = R.match_cast(u, R.Tensor((2, 4), 'float32'))",
            "w = t[1]",
            "y = R.exp(w)",
            "z = R.exp(v)",
            "return y",
        ).replace("cls", "Module"),
        KERNEL,
    )
    (storage,) = memory.storages
    (tensor,) = storage.tensors
    assert tensor.names == ("b", "t", "u", "v")
    assert memory.steps[tensor.last].startswith("z: ")
    assert memory.places[tensor.last].startswith("<str>:")


def test_an_overlap_is_reported():
    memory = module(
        lines(
            f"s = {ALLOC.format(32)}",
            f"a = {TENSOR.format('s', 0)}",
            "Module.copy(x, a)",
            "v = R.match_cast(a, R.Tensor((8,), 'float32'))",
            f"b = {TENSOR.format('s', 0)}",
            "Module.copy(x, b)",
            "z = R.add(v, b)",
            "return z",
        ),
        KERNEL,
    )
    ((one, other),) = memory.conflicts()
    assert (one.name, other.name) == ("a", "b")


def test_parts_of_a_storage_do_not_overlap():
    memory = module(
        lines(
            f"s = {ALLOC.format(64)}",
            f"a = {TENSOR.format('s', 0)}",
            f"b = {TENSOR.format('s', 32)}",
            "z = R.add(a, b)",
            "return z",
        )
    )
    assert [tensor.offset for tensor in memory.tensors] == [0, 32]
    assert memory.conflicts() == ()


def test_results_of_branches_and_of_unknown_calls():
    branch = lines(
        f"s = {ALLOC.format(32)}",
        f"a = {TENSOR.format('s', 0)}",
        "if c:",
        "    r = a",
        "else:",
        "    r = R.exp(x)",
        "o = R.call_packed('some.function', r, ty_args=R.Any)",
        "y = R.exp(x)",
        "p = R.call_packed('other.function', o, ty_args=R.Any)",
        "return y",
    )
    memory = module(branch)
    (tensor,) = memory.tensors
    assert set(tensor.names) == {"r", "o", "p"}
    assert memory.steps[tensor.last].startswith("p: ")


def test_the_result_of_a_function_lives_one_step_longer():
    memory = module(
        lines(f"s = {ALLOC.format(32)}", f"a = {TENSOR.format('s', 0)}", "y = (a, x)", "return y")
    )
    assert memory.tensors[0].last == len(memory.steps) == 3
    assert memory.tensors[0].killed is None


def test_kills_of_all_names_end_the_hold():
    memory = module(
        lines(
            f"s = {ALLOC.format(32)}",
            f"a = {TENSOR.format('s', 0)}",
            "R.memory.kill_storage(s)",
            "b = R.reshape(a, (2, 4))",
            "R.memory.kill_tensor(a)",
            "y = R.exp(b)",
            "R.memory.kill_tensor(b)",
            "return y",
        )
    )
    (storage,) = memory.storages
    assert (storage.last, storage.killed, storage.tensors[0].killed) == (5, 6, 6)


def test_sizes_can_be_given():
    text = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            a = R.exp(x)
            b = R.tanh(a)
            R.output(b)
        return b
"""
    recorder, _ = recorded(text)
    mod = recorder.after(recorder.index("LowerAllocTensor"))
    unknown, known = storage_liveness(mod)["main"], storage_liveness(mod, {"n": 5})["main"]
    assert (unknown.planned_bytes, unknown.dynamic) == (0, 4)
    assert unknown.storages[0].size == "16 * n"
    assert "4 dynamic sizes not counted" in str(unknown)
    assert (known.planned_bytes, known.dynamic) == (160, 0)
    assert known.tensors[0].shape == "(5, 4)"


def test_a_function_by_name():
    recorder, _ = recorded(source("subroutine"))
    table = after(recorder, "KillAfterLastUse")
    assert table["helper"].function == "helper"
    with pytest.raises(KeyError, match=r"there is no function 'f'; there are: .*main"):
        table["f"]


def test_data():
    _, ex = recorded(CHAIN)
    (data,) = json.loads(json.dumps(storage_liveness(ex).to_data()))
    assert (data["function"], data["peak"]) == ("main", 64)
    assert len(data["steps"]) == len(data["places"]) == ex.num_instructions
    assert data["storages"][0]["tensors"][0]["shape"] == "(8,)"
