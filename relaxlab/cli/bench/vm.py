"""Rows of the virtual machine: what instructions, kernels and calls from Python cost.

The rows with TVM as a peer run the same program in both, ours in compiled mode, TVM's bytecode in
its default mode. ``call_compiled`` is a mean over four builtins; ``tiny_add`` is one addition of
four numbers in a chain of a hundred, memory included; ``entry`` is a call from Python of a function
that checks its argument and returns it.

Examples
--------
>>> from relaxlab.cli.bench.vm import rows
"""

import ast
import inspect
import textwrap
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from relaxlab import relax, runtime
from relaxlab.cli.bench.rows import Bar, Row, measure
from relaxlab.cli.bench.tvm_peer import run_tvm
from relaxlab.ir import IRModule
from relaxlab.runtime.vm import run_loop as loop_module
from relaxlab.script import from_source

__all__ = ["rows"]

_INSTRUCTIONS = 10_000
_CALLS = 400
_ADDS = 100
_ROUNDS = 100
_SIGNATURE = 'x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):'
# Both sides are timed so: many short rounds, of which the fastest counts. What else happens on the
# machine can only make a round longer.
_BEST = """
def best(function, rounds):
    import time
    for _ in range(20):
        function()
    start = time.perf_counter(); function()
    count = max(1, int(0.002 / max(time.perf_counter() - start, 1e-9)))
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(count):
            function()
        times.append((time.perf_counter() - start) / count)
    return min(times)
"""
_TVM_RUN = (
    _BEST
    + f"""
ROUNDS = {_ROUNDS}
vm = relax.VirtualMachine(tvm.compile(tvm.script.from_source(TEXT), "llvm"), tvm.cpu())
main, x = vm["main"], tvm.runtime.tensor(np.zeros(4, "float32"))
result(best(lambda: main(x), ROUNDS) * 1e9)
"""
)
_CALL_PROGRAM = """
def program(relax, count):
    ib = relax.ExecBuilder()
    with ib.function("main", 1):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0), ib.r(0)], 1)
        for index in range(count // 4):
            ib.emit_call("vm.builtin.copy", [ib.r(0)], 2)
            ib.emit_call("vm.builtin.shape_of", [ib.r(2)], 3)
            ib.emit_call("vm.builtin.make_tuple", [ib.r(2), ib.r(3), ib.imm(index)], 4)
            ib.emit_call("vm.builtin.tuple_getitem", [ib.r(4), ib.imm(1)], 5)
        ib.emit_ret(ib.r(5))
    return ib.get()
"""
_TVM_CALLS = (
    _BEST
    + f"""
ROUNDS = {_ROUNDS}
vm = relax.VirtualMachine(program(relax, int(TEXT)).mod, tvm.cpu())
main, x = vm["main"], tvm.runtime.tensor(np.zeros(4, "float32"))
result(best(lambda: main(x), ROUNDS) * 1e9)
"""
)


def rows() -> Iterator[Row]:
    """Yield the rows of ``relaxlab bench vm``."""
    x = runtime.tensor(np.zeros(4, np.float32))

    ours = _time(_compiled(_call_program(_CALLS)), x) / _CALLS
    peer = run_tvm(_CALL_PROGRAM + _TVM_CALLS, str(_CALLS))
    yield Row("call_compiled", "ns", ours, "tvm", _per(peer, _CALLS), Bar("<=", 0.7))

    text = _chain(0)
    yield Row("entry", "ns", _time(_built(text), x), "tvm", run_tvm(_TVM_RUN, text), Bar("<=", 0.3))

    text = _chain(_ADDS)
    ours, peer = _time(_built(text), x) / _ADDS, run_tvm(_TVM_RUN, text)
    yield Row("tiny_add", "ns", ours, "tvm", _per(peer, _ADDS), Bar("<=", 0.5))

    ours, bare = _hook_off()
    yield Row("runloop_instruction", "ns", ours, None, None, Bar("<=", 300))
    yield Row("stepping_hook_off", "ns", ours, "no hook", bare, Bar("<=", 1.05))
    load = measure(_load_verify_link(100_000), rounds=3)
    yield Row("load_verify_link_100k", "s", load, None, None, Bar("<=", 1.0))


def _per(total: float | None, count: int) -> float | None:
    return None if total is None else total / count


def _time(main: Callable[..., Any], x: object) -> float:
    seconds: float = _defined(_BEST, "best")(lambda: main(x), _ROUNDS)
    return seconds * 1e9


def _chain(adds: int) -> str:
    """Return a module that adds its argument a number of times."""
    names = ["x", *(f"y{index}" for index in range(adds))]
    lines = ["@I.ir_module", "class Module:", "    @R.function", f"    def main({_SIGNATURE}"]
    lines += [f"        {new} = R.add({old}, x)" for old, new in pairwise(names)]
    return "\n".join([*lines, f"        return {names[-1]}", ""])


def _built(text: str) -> Callable[..., Any]:
    """Return ``main`` of a module that was built for compiled mode."""
    mod = from_source(text)
    assert isinstance(mod, IRModule)
    ex = relax.build(mod, exec_mode="compiled")
    return relax.VirtualMachine(ex, runtime.cpu())["main"]


def _compiled(executable: relax.VMExecutable) -> Callable[..., Any]:
    return relax.VirtualMachine(executable, runtime.cpu(), exec_mode="compiled")["main"]


def _call_program(count: int) -> relax.VMExecutable:
    executable: relax.VMExecutable = _defined(_CALL_PROGRAM, "program")(relax, count)
    return executable


def _defined(text: str, name: str) -> Callable[..., Any]:
    """Return a function of a text that TVM's process runs, too."""
    scope: dict[str, Any] = {}
    exec(text, scope)  # noqa: S102  # one of the texts above
    function: Callable[..., Any] = scope[name]
    return function


def _program(instructions: int) -> relax.VMExecutable:
    """Return a function of many trivial calls."""
    builder = relax.ExecBuilder()
    with builder.function("main", 1):
        for index in range(instructions - 1):
            # reads what the instruction before wrote, so that every register is defined
            builder.emit_call("vm.builtin.copy", [builder.r(index % 8)], (index + 1) % 8)
        builder.emit_ret(builder.r(0))
    return builder.get()


def _load_verify_link(instructions: int) -> Callable[[], object]:
    data = _program(instructions).save_to_bytes()
    return lambda: relax.VirtualMachine(relax.VMExecutable.load_from_bytes(data), runtime.cpu())[
        "main"
    ]


# ---- the run loop without its hooks -------------------------------------------------------------


class _WithoutHooks(ast.NodeTransformer):
    """Removes every question for a watch or for hooks, as if nobody could ever attach one."""

    def visit_If(self, node: ast.If) -> Any:
        """Replace a question by its answer."""
        self.generic_visit(node)
        match ast.unparse(node.test):
            case "watched" | "watch is not None" | "hooks is not None":
                return node.orelse or ast.Pass()
            case "hooks is None":
                return node.body
            case _:
                return node


def _bare_loop() -> Callable[..., Any]:
    """Return the machine's run loop, made from its own source, without hooks."""
    source = textwrap.dedent(inspect.getsource(loop_module.run_loop))
    tree = ast.fix_missing_locations(_WithoutHooks().visit(ast.parse(source)))
    tree.body[0].body.append(ast.parse("if False: yield").body[0])  # a generator like the other
    scope = dict(vars(loop_module))
    exec(compile(tree, "<run loop without hooks>", "exec"), scope)  # noqa: S102  # our own source
    loop: Callable[..., Any] = scope["run_loop"]
    return loop


def _hook_off() -> tuple[float, float]:
    """Time an instruction in the run loop, with its hooks off and without them, in turn."""
    machine = relax.VirtualMachine(_program(_INSTRUCTIONS), runtime.cpu())
    function = machine.require_closure("main").function

    def once(loop: Callable[..., Any]) -> float:
        frame = loop_module.new_frame(machine, function, (1,), None)
        start = time.perf_counter()
        for _ in loop(machine, [frame], None, None):
            pass
        return time.perf_counter() - start

    loops = (loop_module.run_loop, _bare_loop())
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(60):
        for loop, results in zip(loops, times, strict=True):
            results.append(once(loop))
    # the fastest of many: what disturbs a run only makes it longer
    ours, bare = (min(results) / _INSTRUCTIONS * 1e9 for results in times)
    return ours, bare
