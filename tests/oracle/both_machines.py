"""Random programs on both machines: python -m tests.oracle.both_machines --count N --seed S.

Three kinds of programs, N of each: ``values`` always end with a result, ``failures`` may fail, and
``builders`` are made by TVM's builder from plain instructions (jumps anywhere, any kind of
argument), taken where our verifier accepts them and they end. Each is compared by its result or
error class, by what it wrote into its argument, by its disassembly, and by its bytes after loading
and saving on the other side. The same seed gives the same programs. TVM is in RELAXLAB_ORACLE.
"""

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime import DataType, ShapeTuple, VirtualMachine, cpu, tensor
from relaxlab.runtime.vm import VMExecutable
from relaxlab.runtime.vm.bytecode import FIRST_SPECIAL_REGISTER, Call, VMFuncKind
from relaxlab.runtime.vm.verify import find_problems
from tests.golden_values import encode
from tests.oracle import builder_programs
from tests.oracle.builder_programs import HOST
from tests.runtime.vm.programs import executables
from tests.strategies import programs

RUNNER = Path(__file__).with_name("failing_programs.py")
KEPT = (AttributeError, AssertionError, IndexError, KeyError, TypeError, ValueError, InternalError)
MOST_STEPS = 2000
AT_ONCE = 500


class Packages:
    """What a builder program needs, from relaxlab."""

    ExecBuilder = ExecBuilder
    Shape = ShapeTuple
    DataType = DataType
    tensor = staticmethod(tensor)
    saved = staticmethod(VMExecutable.save_to_bytes)


def with_tvm(python: Path, cases: list[Any], runner: Path = RUNNER) -> list[Any]:
    """Return what a runner says to each case."""
    done = subprocess.run(
        [str(python), str(runner)],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    results: list[Any] = json.loads(done.stdout)
    return results


def simple(value: Any) -> dict[str, Any]:
    """Return a value as the runner writes it: closures and the like are not compared."""
    record = encode(value)
    match record["t"]:
        case "tuple":
            return {"t": "tuple", "v": [simple(item) for item in value]}
        case "bool":
            return {"t": "int", "v": int(value)}
        case "none" | "int" | "tensor" | "shape":
            return record
        case _:
            return {"t": "object"}


def outcome(run: Callable[[], Any], *written: Any) -> Any:
    """Return result and arguments afterwards, or the class of the error as TVM hands it on."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            result = run()
    except KEPT as error:
        return type(error).__name__
    except Exception:  # noqa: BLE001  # any class at all
        return "RuntimeError"  # what TVM makes of any other class that a host function raises
    return [simple(one) for one in (result, *written)]


def generated(strategy: Any, count: int, number: int) -> list[Any]:
    """Return ``count`` examples; the same for the same seed."""
    found: list[Any] = []

    @seed(number)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: Any) -> None:
        found.append(example)

    collect()
    return found


Case = tuple[dict[str, Any], Any]
"""What the runner is given, and what our machine gives."""


def values(count: int, number: int) -> Iterator[Case]:
    """Programs that end with a result."""
    for executable, n in generated(st.tuples(executables(), st.integers(0, 2)), count, number):
        x = tensor(np.array([1, 2, 3, 4], "float32"))
        machine = VirtualMachine(executable, cpu())
        mine = outcome(lambda m=machine, x=x, n=n: m["main"](x, n), x)  # type: ignore[misc]
        case = {"hex": executable.save_to_bytes().hex(), "call": ["x", n]}
        yield case | {"array": [1, 2, 3, 4]}, mine


def failures(count: int, number: int) -> Iterator[Case]:
    """Programs that may fail."""
    for program in generated(programs(), count, number):
        n, x = program.arguments()
        machine = program.machine()
        mine = outcome(lambda m=machine, x=x, n=n: m["main"](n, x), x)  # type: ignore[misc]
        case = {"hex": program.executable.save_to_bytes().hex(), "call": [n, "x"]}
        yield case | {"array": list(program.array)}, mine


def builders(count: int, number: int) -> Iterator[Case]:
    """Programs of plain instructions that the verifier accepts, and that end."""
    first = number * 10**6
    made, index = 0, first
    while made < count:
        is_tidy = index % 10 > 0
        make = builder_programs.tidy if is_tidy else builder_programs.program
        program = make(index)
        _, _, data = builder_programs.build(program, Packages)
        executable = VMExecutable.load_from_bytes(bytes.fromhex(data), verify=False)
        index += 1
        if find_problems(executable):
            continue
        executable.import_module(HOST)
        name, inputs, _ = program[0]
        args = [7, -1, 0][:inputs]
        machine = VirtualMachine(executable, cpu())
        machine.recursion_limit = 200
        try:
            mine = outcome(lambda m=machine, n=name, a=args: bounded(m, n, a))  # type: ignore[misc]
        except TooLongError:
            continue
        made += 1
        case = {"builder": index - 1, "tidy": is_tidy, "hex": data, "array": []}
        yield case | {"func": name, "call": args}, mine


class TooLongError(BaseException):
    """A program does not seem to end."""


def bounded(machine: VirtualMachine, name: str, args: list[Any]) -> Any:
    """Run a function; a recursion or a loop without an end is a TooLongError."""
    try:
        with machine.start(name, *args) as run:
            for _ in range(MOST_STEPS):
                if not run.step():
                    return run.result
    except RecursionError as error:
        raise TooLongError from error
    raise TooLongError


KINDS: dict[str, Callable[[int, int], Iterator[Case]]] = {
    "values": values,
    "failures": failures,
    "builders": builders,
}


def differences(python: Path, kind: str, count: int, number: int) -> tuple[list[str], Counter[str]]:
    """Compare programs of one kind; return what differs, and how often each outcome was seen."""
    found: list[str] = []
    seen: Counter[str] = Counter()
    cases = list(KINDS[kind](count, number))
    for start in range(0, len(cases), AT_ONCE):
        part = cases[start : start + AT_ONCE]
        answers = with_tvm(python, [case for case, _ in part])
        for (case, mine), theirs in zip(part, answers, strict=True):
            if theirs["outcome"] == "crash" and isinstance(mine, str):
                theirs["outcome"] = mine  # an error here where TVM reads through a null pointer
                seen["crash there, error here"] += 1
            executable = VMExecutable.load_from_bytes(bytes.fromhex(case["hex"]), verify=False)
            if theirs["outcome"] == "InternalError" and calls_for_nothing(executable):
                theirs["outcome"] = mine  # quirk 9.2: the call fails there when it returns
                seen["void call fails there"] += 1
            seen[mine if isinstance(mine, str) else "result"] += 1
            text = executable.as_text()
            again = VMExecutable.load_from_bytes(bytes.fromhex(theirs["hex"]), verify=False)
            for what, one, two in [
                ("outcome", mine, theirs["outcome"]),
                ("bytes", case["hex"], theirs["hex"]),
                ("text", text, theirs["text"]),
                ("bytes from there", theirs["hex"], again.save_to_bytes().hex()),
            ]:
                if one != two:
                    found.append(f"{kind}: {what}: {one} here, {two} in TVM\n{text}{case['call']}")
    return found, seen


def calls_for_nothing(executable: VMExecutable) -> bool:
    """Whether some call of a Relax function drops the result."""
    for index in range(executable.num_instructions):
        instruction = executable.instruction(index)
        if isinstance(instruction, Call) and instruction.dst >= FIRST_SPECIAL_REGISTER:
            callee = executable.func_table[instruction.func_idx]
            if callee.kind == VMFuncKind.VM_FUNC:
                return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.oracle.both_machines")
    parser.add_argument("--count", type=int, default=1000, help="programs of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    args = parser.parse_args()
    python = Path(os.environ.get("RELAXLAB_ORACLE", sys.executable))
    different = 0
    for kind in args.kinds:
        found, seen = differences(python, kind, args.count, args.seed)
        outcomes = ", ".join(f"{name} {count}" for name, count in seen.most_common())
        print(f"{kind}: {args.count} programs, seed {args.seed}: {outcomes}", flush=True)
        print("\n".join(found[:10]), end="\n" if found else "")
        different += len(found)
    print(f"{different} differences")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
