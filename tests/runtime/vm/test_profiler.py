"""vm.profile: the same results and errors, right counts, bounded memory, and files for others."""

import contextlib
import csv
import io
import json
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import DataType, ShapeTuple, VirtualMachine, cpu
from relaxlab.runtime.describe import Describer
from relaxlab.runtime.vm import Report
from tests.golden_values import with_golden
from tests.strategies import programs


def counting_machine():
    """Count down from n by a function call each; then one kernel on x."""
    ib = ExecBuilder()
    ib.declare_function("step", 1)
    with ib.function("main", num_inputs=2, param_names=["n", "x"]):
        ib.emit_call("vm.builtin.copy", [ib.r(0)], dst=2)  # 0
        ib.emit_if(ib.r(2), 3)  # 1: to 4 when it is 0
        ib.emit_call("step", [ib.r(2)], dst=2)  # 2
        ib.emit_goto(-2)  # 3
        ib.emit_call("golden.add", [ib.r(1), ib.r(1)], dst=3)  # 4
        ib.emit_ret(ib.r(3))  # 5
    with ib.function("step", num_inputs=1):
        ib.emit_call("golden.iadd", [ib.r(0), ib.imm(-1)], dst=1)  # 6
        ib.emit_ret(ib.r(1))  # 7
    return VirtualMachine(with_golden(ib.get()), cpu())


X = np.array([1, 2], "float32")


def test_counts_times_and_bytes():
    report = counting_machine().profile("main", 3, X)
    assert report.result.numpy().tolist() == [2, 4]
    assert [(row.function, row.pc, row.count) for row in report.instructions] == [
        ("main", 0, 1),
        ("main", 1, 4),
        ("main", 2, 3),
        ("main", 3, 3),
        ("main", 4, 1),
        ("main", 5, 1),
        ("step", 6, 3),
        ("step", 7, 3),
    ]
    assert report.instructions[1].text == "If    %2, 3"
    assert {(row.name, row.kind, row.count, row.bytes) for row in report.kernels} == {
        ("vm.builtin.copy", "builtin", 1, 0),
        ("golden.iadd", "kernel", 3, 0),
        ("golden.add", "kernel", 1, 24),
    }
    own = sum(row.seconds for row in report.instructions)
    assert own == pytest.approx(report.seconds, rel=1e-6)
    assert all(row.seconds > 0 for row in report.instructions)
    called = report.instructions[2]
    assert called.inclusive >= called.seconds + sum(row.seconds for row in report.instructions[6:7])
    assert 0 < report.loop.seconds < report.seconds


def test_tensors_in_tuples_and_storages_are_bytes_too():
    ib = ExecBuilder()
    with ib.function("main", num_inputs=1):
        args = [ib.vm_state(), ShapeTuple((64,)), ib.imm(0), DataType("uint8")]
        ib.emit_call("vm.builtin.alloc_storage", [*args, ib.convert_constant("global")], dst=1)
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(0)], dst=2)
        ib.emit_ret(ib.r(2))
    report = VirtualMachine(ib.get(), cpu()).profile("main", X)
    assert type(report.value) is tuple
    assert [part.numpy().tolist() for part in report.value] == [[1, 2], [1, 2]]
    found = {row.name: row.bytes for row in report.kernels}
    assert found == {"vm.builtin.alloc_storage": 4096, "vm.builtin.make_tuple": 32}  # a pooled page


# ---- the same as without --------------------------------------------------------------------


def outcome(machine, action):
    """Return result and printed text, or error with its place, and the state afterwards."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            result = Describer().describe(action(machine))
        except Exception as error:  # noqa: BLE001  # any error of the program is an outcome
            result = (type(error).__name__, str(error), getattr(error, "__notes__", None))
    return result, printed.getvalue()


@settings(max_examples=60, deadline=None)
@given(programs())
def test_results_and_errors_are_those_of_an_unprofiled_run(program):
    def plain(machine):
        return machine["main"](*program.arguments())

    def profiled(machine):
        return machine.profile("main", *program.arguments()).result

    assert outcome(program.machine(), profiled) == outcome(program.machine(), plain)
    logs = []
    for action in (plain, profiled):
        machine, events, calls = program.machine(), [], []
        machine.observer = events.append
        machine.set_instrument(lambda f, name, *rest, calls=calls: calls.append((name, rest[0])))
        logs.append((outcome(machine, action), events, calls))
        assert machine.current is None
    assert logs[0] == logs[1]


@settings(max_examples=30, deadline=None)
@given(programs())
def test_every_instruction_is_counted(program):
    machine = program.machine()
    with contextlib.redirect_stdout(io.StringIO()):
        try:
            run = machine.start("main", *program.arguments())
            counts, nested = {}, 0
            while not run.finished:
                frame = run.frames[-1]
                key = (frame.function.name, frame.instruction)
                counts[key] = counts.get(key, 0) + 1
                before = run.step_count
                run.step()
                nested += max(0, run.step_count - before - 1)
        except Exception:  # noqa: BLE001  # a report is of a run that ends
            return
        report = program.machine().profile("main", *program.arguments())
    assert {(row.function, row.pc): row.count for row in report.instructions} == counts


def test_errors_leave_the_machine_usable():
    vm = counting_machine()
    for call in (vm["main"], lambda *args: vm.profile("main", *args)):
        with pytest.raises(InternalError, match=r"function 'main' expects 2 arguments \(n, x\)"):
            call(1)
        with pytest.raises(TypeError, match="If: register %2: expected an int") as raised:
            call("3", X)
        assert raised.value.__notes__ == ["  in @main, instruction 1: If    %2, 3"]
    assert vm.profile("main", 1, X).result.numpy().tolist() == [2, 4]
    assert vm.current is None


def test_names_are_found_as_by_a_call():
    vm = counting_machine()
    vm.save_function("main", "saved", X)
    vm.save_function("main", "quiet", X, include_return=False)
    assert vm.profile("saved", 1).result.numpy().tolist() == [2, 4]
    assert vm.profile("quiet", 1).result is None
    with pytest.raises(AttributeError, match="no function 'nothing'"):
        vm.profile("nothing")
    with pytest.raises(ValueError, match="'set_input' is a module function"):
        vm.profile("set_input")
    with pytest.raises(InternalError, match="packed function"):
        vm.profile("golden.add")


def test_an_instrument_that_skips_skips_here_too():
    vm = counting_machine()
    vm.set_instrument(lambda f, name, before, *rest: name == "golden.add" and before)
    report = vm.profile("main", 1, X)
    assert report.result is None
    assert {row.name: row.count for row in report.kernels}["golden.add"] == 1
    assert {row.name: row.bytes for row in report.kernels}["golden.add"] == 0
    vm.set_instrument(lambda f, name, before, *rest: name == "step" and before)
    assert vm["main"](0, X) is not None
    assert vm.profile("main", 0, X).result is not None


def test_a_machine_in_compiled_mode_is_profiled_by_its_bytecode():
    vm = counting_machine()
    compiled = VirtualMachine(vm.executable, cpu(), exec_mode="compiled")
    report = compiled.profile("main", 3, X)
    assert report.result.numpy().tolist() == compiled["main"](3, X).numpy().tolist()
    counts = [(row.text, row.count) for row in vm.profile("main", 3, X).instructions]
    assert [(row.text, row.count) for row in report.instructions] == counts


# ---- memory ---------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_run():
    vm = counting_machine()
    sizes = []
    for n in (200, 20_000):
        tracemalloc.start()
        report = vm.profile("main", n, X, max_spans=100)
        sizes.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(report.spans) == 100
        assert report.dropped_spans == 3 + 2 * n - 100
        assert sum(row.count for row in report.instructions) == 4 + 5 * n
    assert sizes[1] < sizes[0] + 100_000


def test_deep_recursion_is_profiled():
    ib = ExecBuilder()
    ib.declare_function("down", 1)
    with ib.function("down", num_inputs=1):
        ib.emit_if(ib.r(0), 4)
        ib.emit_call("golden.iadd", [ib.r(0), ib.imm(-1)], dst=1)
        ib.emit_call("down", [ib.r(1)], dst=2)
        ib.emit_ret(ib.r(2))
        ib.emit_ret(ib.r(0))
    vm = VirtualMachine(with_golden(ib.get()), cpu())
    report = vm.profile("down", 5000)
    assert report.result == 0
    assert [row.count for row in report.instructions] == [5001, 5000, 5000, 5000, 1]
    deepest = max(span.depth for span in report.spans)
    assert deepest == 5000


# ---- the report -----------------------------------------------------------------------------


def test_the_table_adds_up():
    report = counting_machine().profile("main", 3, X)
    lines = report.table().splitlines()
    heads = ["Name", "Kind", "Count", "Duration", "(us)", "Percent", "Bytes", "Device"]
    assert lines[0].split() == heads
    assert {line.split()[0] for line in lines[1:5]} == {
        "golden.add",
        "golden.iadd",
        "vm.builtin.copy",
        "(machine)",
    }
    assert lines[5:] == [
        "----------",
        *(line for line in lines if line.startswith(("Sum", "Total"))),
    ]
    percents = [row["Percent"] for row in report.calls]
    assert sum(percents) == pytest.approx(100)
    assert report.table(col_sums=False) == "\n".join(lines[:5])
    in_order = report.table(sort=False, col_sums=False).splitlines()[1:4]
    assert [line.split()[0] for line in in_order] == [
        "vm.builtin.copy",
        "golden.add",
        "golden.iadd",
    ]
    each = report.table(aggregate=False, sort=False).splitlines()
    assert each[1].startswith("main+0: call  vm.builtin.copy")
    assert len(each) == 1 + 8 + 3
    assert str(report).startswith(report.table())
    assert "If    %2, 3" in report.instruction_table()
    assert report.instruction_table(most=2).endswith("(6 more instructions)")
    assert repr(report).startswith("<Report of 19 instructions in ")


def test_json_comes_back_and_csv_has_the_calls():
    report = counting_machine().profile("main", 3, X)
    again = Report.from_json(report.json())
    assert again.kernels == report.kernels
    assert again.instructions == report.instructions
    assert again.spans == report.spans
    assert again.table() == report.table()
    record = json.loads(report.json())
    first = record["calls"][0]
    assert first["Name"] == {"string": report.kernels[0].name}
    assert first["Duration (us)"] == {"microseconds": report.kernels[0].seconds * 1e6}
    assert record["configuration"]["Function"] == {"string": "main"}
    assert list(record["device_metrics"]) == ["cpu0"]
    rows = list(csv.DictReader(io.StringIO(report.csv())))
    assert [row["Name"] for row in rows] == [row["Name"] for row in report.calls]


def test_the_timeline_nests(tmp_path):
    report = counting_machine().profile("main", 2, X)
    path = tmp_path / "run.json"
    trace = json.loads(report.to_perfetto(path))
    assert json.loads(path.read_text()) == trace
    spans = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    assert [one["name"] for one in spans] == [
        "vm.builtin.copy",
        "golden.iadd",
        "step",
        "golden.iadd",
        "step",
        "golden.add",
        "main",
    ]
    ends = {one["name"]: (one["ts"], one["ts"] + one["dur"]) for one in spans}
    assert ends["main"][0] <= ends["step"][0] <= ends["golden.iadd"][0]
    assert ends["golden.iadd"][1] <= ends["step"][1] <= ends["main"][1]
    assert [one["args"]["depth"] for one in spans] == [1, 2, 1, 2, 1, 1, 0]
