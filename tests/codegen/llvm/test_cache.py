"""The kernel cache: cold, warm, damaged, shared."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from relaxlab import te
from relaxlab.codegen.llvm import cache, compiler, generate
from relaxlab.codegen.llvm.cache import KernelStore, default_store, kernel_digest
from relaxlab.codegen.llvm.compiler import compile_kernel
from relaxlab.codegen.llvm.machine import Machine
from relaxlab.tirx import PrimFunc
from tests.codegen.llvm.support import placeholder, prim_func


def doubling(factor: float = 2.0, name: str = "x") -> PrimFunc:
    x = placeholder(4, name=name)
    return prim_func(x, te.compute((4,), lambda i: x[i] * factor, name="y"))


def result_of(func: PrimFunc, store: KernelStore) -> list[float]:
    out = np.zeros(4, np.float32)
    compile_kernel(func, "kernel", store=store)(np.ones(4, np.float32), out)
    return [float(v) for v in out]


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Count translations and compilations."""
    done = {"plans": 0, "codes": 0}
    make_plan, compile_text = compiler.make_plan, Machine.compile

    def counted_plan(*args: object, **options: object) -> object:
        done["plans"] += 1
        return make_plan(*args, **options)  # type: ignore[arg-type]  # passed on

    def counted_code(self: Machine, text: str) -> bytes:
        done["codes"] += 1
        return compile_text(self, text)

    monkeypatch.setattr(compiler, "make_plan", counted_plan)
    monkeypatch.setattr(Machine, "compile", counted_code)
    return done


def entries(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def test_the_second_time_nothing_is_compiled(tmp_path: Path, counts: dict[str, int]) -> None:
    store = KernelStore(tmp_path / "kernels")
    assert result_of(doubling(), store) == [2.0] * 4
    assert counts == {"plans": 1, "codes": 1}
    assert len(entries(tmp_path)) == 2
    # another object of the same kernel, as after a restart
    assert result_of(doubling(), store) == [2.0] * 4
    assert counts == {"plans": 1, "codes": 1}


def test_another_kernel_is_another_entry(tmp_path: Path, counts: dict[str, int]) -> None:
    store = KernelStore(tmp_path)
    assert result_of(doubling(), store) == [2.0] * 4
    assert result_of(doubling(3.0), store) == [3.0] * 4
    # names are in messages
    assert result_of(doubling(name="other"), store) == [2.0] * 4
    assert counts["plans"] == 3


@pytest.mark.parametrize("kind", ["plan", "code"])
@pytest.mark.parametrize("damage", ["cut", "flipped", "emptied", "foreign"])
def test_a_damaged_entry_is_made_again(
    tmp_path: Path, counts: dict[str, int], kind: str, damage: str
) -> None:
    store = KernelStore(tmp_path)
    result_of(doubling(), store)
    (path,) = tmp_path.rglob(f"*.{kind}")
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-7])
    elif damage == "flipped":
        path.write_bytes(data[:-7] + bytes([data[-7] ^ 1]) + data[-6:])
    elif damage == "emptied":
        path.write_bytes(b"")
    else:
        # a good entry in the wrong place
        result_of(doubling(5.0), store)
        other = next(p for p in tmp_path.rglob(f"*.{kind}") if p != path)
        path.write_bytes(other.read_bytes())
    before = dict(counts)
    assert result_of(doubling(), store) == [2.0] * 4
    again = {"plan": "plans", "code": "codes"}[kind]
    assert counts[again] == before[again] + 1
    assert path.read_bytes() == data


def test_without_a_place_to_write_kernels_still_run(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    assert result_of(doubling(), KernelStore(blocked)) == [2.0] * 4
    assert result_of(doubling(), KernelStore(None)) == [2.0] * 4
    assert blocked.read_text() == "no folder"


def test_no_temporary_file_stays(tmp_path: Path) -> None:
    store = KernelStore(tmp_path)
    for number in range(5):
        store.put("code", f"ab{number}", b"x" * number)
    assert all(not p.name.startswith(".new") for p in entries(tmp_path))


def test_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = KernelStore(tmp_path)
    for number in range(8):
        store.put("code", f"ab{number}", b"x")
    monkeypatch.setattr(cache, "_MOST", 8)
    KernelStore(tmp_path).put("code", "cd0", b"y")
    assert len(entries(tmp_path)) == 7


def test_the_folder_is_under_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXLAB_HOME", str(tmp_path / "home"))
    assert default_store().folder == tmp_path / "home" / "kernels"
    generate(doubling(7.0), "kernel")
    assert len(entries(tmp_path / "home")) == 2


def test_the_key_is_the_same_in_every_process_and_differs_with_the_translator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = kernel_digest(doubling(), "kernel")
    program = (
        "from tests.codegen.llvm.test_cache import doubling\n"
        "from relaxlab.codegen.llvm.cache import kernel_digest\n"
        "print(kernel_digest(doubling(), 'kernel'))"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == here
    monkeypatch.setattr(cache, "_translator", lambda: "other code")
    assert kernel_digest(doubling(), "kernel") != here


def test_two_processes_may_fill_it_at_once(tmp_path: Path) -> None:
    program = f"""
from pathlib import Path
import numpy as np
from tests.codegen.llvm.test_cache import KernelStore, doubling, result_of
store = KernelStore(Path({str(tmp_path)!r}))
for number in range(4):
    assert result_of(doubling(float(number)), store) == [float(number)] * 4
"""
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    running = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(2)]
    assert [process.wait(timeout=120) for process in running] == [0, 0]
    assert len(entries(tmp_path)) == 8
