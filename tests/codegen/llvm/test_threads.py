"""Workers: they help where there is work, they are never waited for in vain, and they can go."""

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxlab import te, topi
from relaxlab.codegen.llvm import threads
from relaxlab.codegen.llvm.arguments import CompiledKernel
from relaxlab.codegen.llvm.fastcall import fast_callable
from relaxlab.codegen.llvm.threads import Pool, num_threads, pool, use_threads
from relaxlab.runtime.packed_func import GLOBAL_FUNCTIONS
from relaxlab.script import from_source
from relaxlab.tirx import PrimFunc
from tests.codegen.llvm.support import compiled, floats, placeholder, prim_func

pytestmark = pytest.mark.skipif(
    sys.implementation.name != "cpython", reason="workers need CPython's locks"
)
n = te.var("n", "int64")
SIZE = 1 << 20


def exponentials() -> PrimFunc:
    x = placeholder(n)
    return prim_func(x, topi.exp(x))


@pytest.fixture
def two() -> Iterator[Pool]:
    """Two threads, and no thought for who else wants the processors."""
    chosen = pool()
    before = chosen.processors
    chosen.processors = 1 << 20
    with use_threads(2):
        yield chosen
    chosen.processors = before


def until_helped(chosen: Pool, run: Any, seconds: float = 20.0) -> None:
    """Run until a worker took a part; on a busy machine that takes a few times."""
    before, end = chosen.helped, time.monotonic() + seconds
    while chosen.helped == before:
        assert time.monotonic() < end, "no worker came"
        chosen.resize(2)
        run()


def run_program(program: str, **environment: str) -> str:
    """Run Python and return what it printed; it must end well, and soon."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={
            **{k: v for k, v in os.environ.items() if not k.endswith("NUM_THREADS")},
            "PYTHONPATH": ":".join(filter(None, [str(Path.cwd()), *sys.path])),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ------------------------------------------------------------------ help


@pytest.mark.parametrize("fast", [True, False], ids=["fast", "careful"])
def test_a_worker_takes_a_part_and_no_bit_changes(two: Pool, fast: bool) -> None:
    kernel: Any = compiled(exponentials())
    function = fast_callable(kernel) if fast else kernel
    x, alone, together = floats(SIZE), np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    with use_threads(1):
        launches = two.launches
        function(x, alone)
        assert two.launches == launches
    until_helped(two, lambda: function(x, together))
    assert together.tobytes() == alone.tobytes()
    workers = [t for t in threading.enumerate() if t.name.startswith("relaxlab-")]
    assert workers
    assert all(t.daemon for t in workers)


def test_rows_keep_what_is_theirs(two: Pool) -> None:
    x = placeholder(n, 5000)
    kernel = fast_callable(compiled(prim_func(x, topi.nn.softmax(x, axis=-1))))
    given, alone, together = floats(200, 5000), *np.zeros((2, 200, 5000), np.float32)
    with use_threads(1):
        kernel(given, alone)
    for _ in range(5):
        together[:] = 0
        until_helped(two, lambda: kernel(given, together))
        assert together.tobytes() == alone.tobytes()


def test_little_work_is_done_alone(two: Pool) -> None:
    kernel = fast_callable(compiled(exponentials()))
    before = two.launches
    for size in (0, 1, 100, 10000):
        kernel(floats(size), np.zeros(size, np.float32))
    assert two.launches == before


def test_every_error_is_the_first(two: Pool) -> None:
    x, where = placeholder(1000), placeholder(n, name="where", dtype="int64")
    taken = te.compute((n,), lambda i: topi.exp(x)[where[i]], name="taken")
    kernel = compiled(prim_func(x, where, taken))
    rows = np.arange(SIZE, dtype=np.int64) % 1000
    bad = [SIZE - 1, 700001, SIZE // 2 + 3, 12345]
    arguments = [floats(1000), rows, np.zeros(SIZE, np.float32)]
    for place in bad:
        rows[place] = place + 1000

        def run(place: int = place) -> None:
            with pytest.raises(IndexError, match=rf"index {place + 1000} of dimension 0"):
                kernel(*arguments)

        until_helped(two, run)
    rows[:] = 0
    kernel(*arguments)
    assert (arguments[2] == arguments[2][0]).all()


def test_two_threads_may_call_at_once(two: Pool) -> None:
    kernel = fast_callable(compiled(exponentials()))
    expected = np.zeros(SIZE, np.float32)
    x = floats(SIZE)
    with use_threads(1):
        kernel(x, expected)
    wrong: list[int] = []

    def call(number: int) -> None:
        out = np.zeros(SIZE, np.float32)
        for _ in range(30):
            out[:] = 0
            kernel(x, out)
            two.resize(2)
            if out.tobytes() != expected.tobytes():
                wrong.append(number)

    callers = [threading.Thread(target=call, args=(k,)) for k in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(60)
    assert not any(caller.is_alive() for caller in callers)
    assert wrong == []


def test_a_kernel_may_call_a_kernel(two: Pool) -> None:
    inner = fast_callable(compiled(exponentials()))
    x, out = floats(SIZE), np.zeros(SIZE, np.float32)
    source = f"""
@T.prim_func
def main(a: T.Buffer(({SIZE},), "float32"), b: T.Buffer(({SIZE},), "float32")):
    for i in range({SIZE}):
        b[i] = T.exp(a[i])
    T.evaluate(T.call_packed("test.threads.inner", T.int64(1)))
    for i in range({SIZE}):
        b[i] = b[i] * 2.0
"""
    func = from_source(source)
    assert isinstance(func, PrimFunc)
    outer = compiled(func)
    assert outer.plan.parts == 2
    called: list[int] = []
    GLOBAL_FUNCTIONS.register(
        "test.threads.inner", lambda k: (called.append(k), inner(x, out))[0], override=True
    )
    try:
        result = np.zeros(SIZE, np.float32)
        until_helped(two, lambda: outer(x, result))
    finally:
        GLOBAL_FUNCTIONS.remove("test.threads.inner")
    assert called
    np.testing.assert_array_equal(result, out * 2)


# ------------------------------------------------------------------ no help


@pytest.fixture
def absent() -> Iterator[Pool]:
    """A pool that believes in a worker which is not there."""
    chosen = Pool()
    chosen.resize(2)
    chosen.prepare()
    chosen.started = 1
    chosen.resize(2)
    yield chosen
    chosen.started = 0


def with_pool(chosen: Pool) -> CompiledKernel:
    kernel = compiled(exponentials())
    kernel.pool = chosen.address
    return kernel


def test_nobody_waits_for_a_worker_that_does_not_come(absent: Pool) -> None:
    kernel = with_pool(absent)
    x, out, expected = floats(SIZE), np.zeros(SIZE, np.float32), np.zeros(SIZE, np.float32)
    kernel(x, out)
    assert (absent.launches, absent.helped) == (1, 0)
    with use_threads(1):
        compiled(exponentials())(x, expected)
    assert out.tobytes() == expected.tobytes()


def test_it_is_asked_for_less_and_less(absent: Pool) -> None:
    kernel = with_pool(absent)
    x, out = floats(SIZE), np.zeros(SIZE, np.float32)
    for _ in range(100):
        kernel(x, out)
    assert 2 <= absent.launches < 12


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says how busy it is")
@pytest.mark.parametrize(
    ("line", "processors", "launches"),
    [
        ("0.61 12.90 1.01 2/151 16280", 2, 0),
        ("0.61 12.90 1.01 1/151 16280", 2, 1),
        ("0.61 12.90 1.01 17/151 16280", 16, 0),
        ("0.61 12.90 1.01 12/151 16280", 16, 1),
        ("what is this", 2, 1),
    ],
)
def test_a_busy_machine_is_left_alone(
    absent: Pool, tmp_path: Path, line: str, processors: int, launches: int
) -> None:
    kernel = with_pool(absent)
    absent.put_to_sleep(1)
    absent.processors = processors
    place = tmp_path / "loads"
    place.write_text(line)
    with place.open() as file:
        absent.look_at(file.fileno())
        kernel(floats(SIZE), np.zeros(SIZE, np.float32))
    absent.look_at(-1)
    assert absent.launches == launches


def test_a_thread_that_cannot_be_started_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    chosen = Pool()
    chosen.resize(2)
    kernel = with_pool(chosen)
    x, out = floats(SIZE), np.zeros(SIZE, np.float32)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    kernel(x, out)
    assert chosen.size == 1
    np.testing.assert_allclose(out, np.exp(x), 1e-6)


def test_how_many_threads() -> None:
    before = num_threads()
    with use_threads(3):
        assert num_threads() == 3
    assert num_threads() == before
    with (
        pytest.raises(ValueError, match=r"use_threads\(0\): expected at least 1 thread"),
        use_threads(0),
    ):
        pass


PROGRAM = """
import os, sys, threading
import numpy as np
from relaxlab import te, topi
from relaxlab.codegen import build
from relaxlab.codegen.llvm.threads import num_threads, pool
x = te.placeholder((1 << 20,), "float32", "x")
kernel = build(te.create_prim_func([x, topi.exp(x)]), "llvm")["main"]
a, b, c = (np.full(1 << 20, v, "float32") for v in (0.5, 0, 0))
def workers():
    return sum(t.name.startswith("relaxlab-") for t in threading.enumerate())
assert workers() == 0
kernel(a, b)
"""


@pytest.mark.parametrize(
    ("environment", "threads_wanted", "workers"),
    [
        ({"TVM_NUM_THREADS": "1"}, 1, 0),
        ({"OMP_NUM_THREADS": "1"}, 1, 0),
        ({"TVM_NUM_THREADS": "3", "OMP_NUM_THREADS": "1"}, 3, 2),
        ({"TVM_NUM_THREADS": "many", "OMP_NUM_THREADS": "2"}, 2, 1),
    ],
)
def test_the_environment_decides(
    environment: dict[str, str], threads_wanted: int, workers: int
) -> None:
    printed = run_program(f"{PROGRAM}print(num_threads(), workers())", **environment)
    assert printed == f"{threads_wanted} {workers}"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_one_processor_means_one_thread() -> None:
    first = min(os.sched_getaffinity(0))
    program = (
        f"import os; os.sched_setaffinity(0, [{first}])\n{PROGRAM}print(num_threads(), workers())"
    )
    assert run_program(program) == "1 0"


# ------------------------------------------------------------------ processes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_has_workers_of_its_own() -> None:
    program = f"""{PROGRAM}
import multiprocessing, warnings
def sixth(k):
    kernel(a, c)
    return round(float(c[k]), 3)
warnings.simplefilter("ignore")
pool().processors = 1 << 20
stop = []
def busy():
    out = np.zeros(1 << 20, "float32")
    while not stop:
        kernel(a, out)
        pool().resize(2)
caller = threading.Thread(target=busy)
caller.start()
# in the middle of another thread's kernel, again and again
for _ in range(20):
    child = os.fork()
    if child == 0:
        assert workers() == 0
        kernel(a, c)
        good = c.tobytes() == np.full_like(c, c[0]).tobytes() and abs(c[0] - 1.6487) < 1e-3
        os._exit(0 if good and workers() == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.append(1)
caller.join()
with multiprocessing.get_context("fork").Pool(2) as some:
    print(some.map(sixth, range(4)))
"""
    assert run_program(program, TVM_NUM_THREADS="2") == "[1.649, 1.649, 1.649, 1.649]"


def test_a_process_ends_while_workers_wait() -> None:
    program = f"""{PROGRAM}
pool().processors = 1 << 20
for _ in range(50):
    kernel(a, b)
    pool().resize(4)
print(workers())
"""
    assert run_program(program, TVM_NUM_THREADS="4") == "3"


def test_words_do_not_overlap() -> None:
    chosen = Pool()
    assert chosen.address % 128 == 0
    places = sorted(threads._WORDS.values())
    assert len(set(places)) == len(places)
    assert max(places) < threads._FIRST
    assert threads._RECORD["state"] + 19 <= threads._EACH
    assert ctypes.sizeof(ctypes.c_void_p) == 8
