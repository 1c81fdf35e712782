"""Recorded programs give the recorded results, also when somebody watches."""

import pytest

from relaxlab.runtime import VirtualMachine, cpu
from relaxlab.runtime.vm import VMExecutable, VMInstrumentReturnKind
from tests import golden_vm
from tests.golden_values import decode, encode, machine, recorded

RUNS = [
    pytest.param(name, index, id=f"{name}-{index}")
    for name in golden_vm.names()
    if name != "build_compiled"  # its body is compiled: see tests/end_to_end
    for index in range(len(golden_vm.case(name)["runs"]))
]


def spelled(value):
    """Return an encoded value with dtypes as strings: so an instrumented program sees them."""
    if value["t"] == "tuple":
        return {"t": "tuple", "v": [spelled(item) for item in value["v"]]}
    return {"t": "str", "v": value["v"]} if value["t"] == "dtype" else value


def outcome(vm, name, args):
    try:
        return {"result": encode(vm[name](*args))}
    except Exception as error:  # noqa: BLE001  # whatever it is, it is compared
        return {"error": type(error).__name__ if str(error) else "an empty message"}


def expected(run):
    return {"result": run["result"]} if "result" in run else {"error": run["error"]["type"]}


@pytest.mark.parametrize(("name", "index"), RUNS)
@pytest.mark.parametrize(
    "mode", ["plain", "compiled", "observed", "instrumented", "stepped", "profiled"]
)
def test_recorded_run(name, index, mode):
    run = golden_vm.case(name)["runs"][index]
    vm = machine(name, "compiled" if mode == "compiled" else None)
    events = []
    if mode == "observed":
        vm.observer = events.append
    elif mode == "compiled":
        vm = VirtualMachine(vm.executable, cpu(), exec_mode="compiled")
    elif mode == "instrumented":
        vm.set_instrument(lambda *args: VMInstrumentReturnKind.NO_OP)
    args = [decode(arg) for arg in run["args"]]
    if mode == "stepped":
        try:
            with vm.start(run["func"], *args) as execution:
                while execution.step():
                    pass
                got = {"result": encode(execution.result)}
        except Exception as error:  # noqa: BLE001  # whatever it is, it is compared
            got = {"error": type(error).__name__}
    elif mode == "profiled":
        try:
            got = {"result": encode(vm.profile(run["func"], *args).result)}
        except Exception as error:  # noqa: BLE001  # whatever it is, it is compared
            got = {"error": type(error).__name__}
    else:
        got = outcome(vm, run["func"], args)
    want = expected(run)
    if mode == "instrumented" and "result" in want:
        want = {"result": spelled(want["result"])}
    assert got == want
    assert (mode == "observed") == bool(events)
    if "args_after" in run:
        assert [encode(arg) for arg in args] == run["args_after"]
    # whatever happened, the machine is usable again
    vm.set_instrument(None)
    args = [decode(arg) for arg in run["args"]]
    assert outcome(vm, run["func"], args) == expected(run)


@pytest.mark.parametrize(("name", "index"), RUNS)
def test_a_message_says_what_the_recorded_one_says(name, index):
    run = golden_vm.case(name)["runs"][index]
    if "error" in run:
        with pytest.raises(Exception, match=r"\w") as raised:
            machine(name)[run["func"]](*map(decode, run["args"]))
        message = str(raised.value).lower()
        assert [word for word in run["error"]["has"] if word.lower() not in message] == []


def test_every_recorded_run_is_here():
    recorded_runs = sum(len(golden_vm.case(name)["runs"]) for name in golden_vm.names())
    assert (len(RUNS), recorded_runs) == (121, 124)


# ---- the scripted API ------------------------------------------------------------------------


def api_machine():
    data = bytes.fromhex(recorded("api")["bytes_hex"])
    return VirtualMachine(VMExecutable.load_from_bytes(data), cpu())


def do(vm, op, args):
    match op:
        case "call":
            return vm[args[0]](*args[1:])
        case "set_input_kw":
            name, kwargs, *positional = args
            return vm.set_input(name, *positional, **kwargs)
        case "save_function_noret":
            return vm.save_function(*args, include_return=False)
        case "has_function":
            return vm.executable.mod["has_function"](*args)
        case _ if hasattr(vm, op):
            return getattr(vm, op)(*args)
        case _:
            return vm.module[op](*args)


DIFFERENT = {(6, "get_outputs"): {"result": {"t": "shape", "v": [4, 5]}}}
"""Steps of recorded scripts that end in another way here: a stored shape stays a shape."""


@pytest.mark.parametrize("index", range(len(recorded("api")["scripts"])))
def test_recorded_api_script(index):
    vm = api_machine()
    for step in recorded("api")["scripts"][index]:
        args = [decode(arg) for arg in step["args"]]
        try:
            got = {"result": encode(do(vm, step["op"], args))}
        except Exception as error:  # noqa: BLE001  # whatever it is, it is compared
            got = {"error": type(error).__name__ if str(error) else "an empty message"}
        assert got == DIFFERENT.get((index, step["op"]), expected(step)), step["op"]


@pytest.mark.parametrize("record", recorded("api")["instrument"], ids=lambda r: r["mode"])
def test_recorded_instrument_log(record):
    log = []

    def instrument(func, name, before, ret, *args):
        log.append(
            {
                "func": encode(func)["t"],
                "name": name,
                "before": before,
                "ret": encode(ret),
                "args": [encode(arg) for arg in args],
            }
        )
        match record["mode"]:
            case "skip_make_tuple":
                return 1 if before and name == "vm.builtin.make_tuple" else 0
            case "return_true":
                return True
            case "return_two":
                return 2
            case "return_str":
                return "x"
            case "return_none":
                return None
            case "one_after":
                return 0 if before else 1
            case _:
                return 0

    vm = api_machine()
    vm.set_instrument(instrument)
    assert encode(vm["ins"](3)) == record["result"]
    assert log == record["log"]
    vm.set_instrument(None)
    vm["ins"](3)
    assert len(log) == len(record["log"])
