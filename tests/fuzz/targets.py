"""What is fuzzed: each loader, with valid files to start from and the errors it may raise.

A target takes changed bytes, does everything that people do with a file of that kind, and returns
whether it was accepted. Any other error than the named ones is a bug.
"""

import contextlib
import hashlib
import json
import random
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from relaxlab.errors import DiagnosticError, InternalError
from relaxlab.models.gguf import GGUFError, GGUFFile
from relaxlab.runtime import (
    cpu,
    dump_tensor_cache,
    load_param_dict,
    load_safetensors,
    load_tensor_cache,
    save_param_dict,
    save_safetensors,
)
from relaxlab.runtime.vm import VirtualMachine, VMExecutable
from relaxlab.runtime.vm.archive import read_archive, write_archive
from relaxlab.runtime.vm.compare import compare
from relaxlab.runtime.vm.listing import listing
from relaxlab.runtime.vm.saved_kernels import SavedKernels, SavedLibrary
from relaxlab.runtime.vm.saved_library import write_saved_library
from relaxlab.runtime.vm.section_map import section_map
from relaxlab.runtime.vm.verify import find_notes, find_problems
from tests import golden_vm
from tests.fuzz.mutate import mutate
from tests.golden_values import GoldenLibrary
from tests.models import gguf_bytes

Mutation = Callable[[random.Random, bytes, list[bytes]], bytes]


@dataclass(frozen=True)
class Target:
    """One loader."""

    seeds: Callable[[], list[bytes]]
    use: Callable[[bytes], bool]
    errors: tuple[type[Exception], ...]
    mutate: Mutation = mutate


# ---- programs ---------------------------------------------------------------------------------


@cache
def executables() -> list[bytes]:
    return [golden_vm.executable_bytes(name) for name in golden_vm.names()] + [
        bytes.fromhex(golden_vm.case("files")["bytes_v1"]["hex"])
    ]


def mutate_program(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Change words of the bytecode to others that make sense: many of these programs run."""
    if rng.random() < 0.1:
        return mutate(rng, data, others)
    ex = VMExecutable.load_from_bytes(data, verify=False)
    words = ex.instr_data.copy()
    if not len(words):
        return mutate(rng, data, others)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(words))
        match rng.randrange(6):
            case 0 | 1:
                words[at] = rng.choice(words)
            case 2:
                words[at] = int(words[at]) + rng.choice((-1, 1)) if abs(words[at]) < 2**62 else 0
            case 3:
                words[at] = 1 << 56 | rng.choice((0, 1, 2, 3, 2**40, 2**56 - 1))
            case 4:
                words[at] = 2 << 56 | rng.randrange(max(1, len(ex.constants)))
            case 5:
                words[at] = 3 << 56 | rng.randrange(max(1, len(ex.func_table)))
    ex.instr_data = words
    return ex.save_to_bytes()


def look_into(data: bytes) -> bool:
    """Load, verify and print; return whether the verifier accepts it."""
    ex = VMExecutable.load_from_bytes(data, verify=False)
    findings = find_problems(ex)
    for finding in findings:
        str(finding)
    if not findings:
        find_notes(ex)
        VMExecutable.load_from_bytes(data)
    forms = [ex.as_text, ex.as_python, ex.stats, ex.save_to_bytes, lambda: listing(ex)]
    for form in forms:
        if findings:
            with contextlib.suppress(InternalError):
                form()
        else:
            form()
    section_map(data, "fuzzed")
    if not findings:
        assert compare(ex, VMExecutable.load_from_bytes(ex.save_to_bytes())) == [] or ex.imports
    return not findings


@cache
def blobs() -> list[bytes]:
    found = [bytes.fromhex(golden_vm.case("files")["library_bin"]["hex"])]
    for name in ("eb_if", "build_symbolic"):
        body = golden_vm.executable_bytes(name)
        kind = b"relax.VMExecutable"
        numbers = b"".join(one.to_bytes(8, "little") for one in (3, 0, 1, 1, 1, 1, len(kind)))
        blob = numbers + kind + len(body).to_bytes(8, "little") + body
        blob += (4).to_bytes(8, "little") + b"_lib"
        found.append(len(blob).to_bytes(8, "little") + blob)
    return found


def mutate_blob(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Change the blob, and usually keep its size right so that it is still taken for one."""
    raw = mutate(rng, data, others)
    if len(raw) < 8 or rng.random() < 0.1:
        return raw
    return (len(raw) - 8).to_bytes(8, "little") + raw[8:]


@cache
def shared_libraries() -> list[bytes]:
    return [golden_vm.library(suffix).read_bytes() for suffix in ("so", "dll", "dylib")]


def mutate_library(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Change the tables of a library, which are small and at its ends, more than its code."""
    raw = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        span = rng.choice((64, 64, 600, len(raw)))
        at = rng.randrange(span)
        at = at if rng.random() < 0.6 else len(raw) - 1 - at
        piece = mutate(rng, bytes(raw[at : at + 64]), others)
        raw[at : at + 64] = piece
    return bytes(raw)


KERNELS = """
@I.ir_module
class Module:
    @T.prim_func
    def add(x: T.Buffer((T.int64(4),), "float32"), y: T.Buffer((T.int64(4),), "float32")):
        T.func_attr({"tirx.noalias": True})
        for i in range(T.int64(4)):
            with T.sblock("b"):
                v = T.axis.spatial(T.int64(4), i)
                T.reads(x[v])
                T.writes(y[v])
                y[v] = T.if_then_else(v < T.int64(2), x[v] + T.float32(1.5), T.exp(x[v]))
"""


def sealed(executable: bytes, kernels: bytes) -> bytes:
    """Return a saved library of these members with the right digests."""
    members: dict[str, bytes] = {"manifest.json": b"", "executable.bin": executable}
    members["kernels/0.txt"] = kernels

    def entry(name: str) -> dict[str, Any]:
        content = members[name]
        digest = hashlib.sha256(content).hexdigest()
        return {"member": name, "bytes": len(content), "sha256": digest}

    manifest = {
        "format": "relaxlab library",
        "version": 1,
        "relaxlab": "0",
        "executable": entry("executable.bin"),
        "libraries": [
            {
                "target": "numpy",
                "form": "tvmscript",
                "kernels": ["add"],
                "imported_by": None,
                **entry("kernels/0.txt"),
            }
        ],
    }
    members["manifest.json"] = json.dumps(manifest, indent=1).encode()
    return write_archive(members)


@cache
def saved_libraries() -> list[bytes]:
    found = [sealed(golden_vm.executable_bytes("eb_if"), KERNELS.encode())]
    ex = VMExecutable.load_from_bytes(golden_vm.executable_bytes("eb_const_kinds"))
    return [*found, write_saved_library(ex)]


def mutate_saved(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Change the archive, or one member with digests that agree."""
    choice = rng.randrange(4)
    if choice == 0:
        return mutate(rng, data, others)
    members = read_archive(data)
    if choice == 1:
        members["manifest.json"] = mutate(rng, members["manifest.json"], others)
        return write_archive(members)
    executable = members["executable.bin"]
    if choice == 2:
        executable = mutate(rng, executable, executables())
    return sealed(executable, mutate_text(rng, KERNELS.encode(), [KERNELS.encode()]))


TOKENS = re.compile(rb'[A-Za-z_.]+|[0-9.]+|"[^"]*"|[-+*/<>=%]+|[][(),:]|\n *')
NUMBERS = (b"0", b"1", b"3", b"4", b"7", b"-1", b"2**70", b"1e999", b"0.5")


def mutate_text(rng: random.Random, data: bytes, others: list[bytes]) -> bytes:
    """Change a program token by token, mostly to tokens of the same kind."""
    if rng.random() < 0.2:
        return mutate(rng, data, others)
    for _ in range(rng.randrange(1, 4)):
        tokens = list(TOKENS.finditer(data))
        old = rng.choice(tokens)
        alike = [one[0] for one in tokens if one[0][:1].isalnum() == old[0][:1].isalnum()]
        same = [one[0] for one in tokens if one[0][:1].isdigit() == old[0][:1].isdigit()]
        new = rng.choice((rng.choice(alike), rng.choice(same), rng.choice(NUMBERS)))
        data = data[: old.start()] + new + data[old.end() :]
    return data


def look_into_saved(data: bytes) -> bool:
    ex = VMExecutable.load_from_bytes(data, verify=False)
    accepted = look_into(data)
    for library in ex.imports:
        library.names  # noqa: B018
    return accepted


def parse_kernels(data: bytes) -> bool:
    """Parse kernels and compile them, without running one."""
    text = data.decode("utf-8", "replace")
    library = SavedLibrary(SavedKernels("tvmscript", "numpy", ("add",), text), "fuzzed.rlx")
    return callable(library.get_function("add"))


# ---- programs that run ------------------------------------------------------------------------

ARGUMENTS: tuple[Any, ...] = (
    0,
    1,
    3,
    2.5,
    "text",
    None,
    np.ones(4, "float32"),
    np.arange(6, dtype="int64").reshape(2, 3),
    np.array(1, "bool"),
    (np.ones(2, "float32"), 1),
)


class Careful(GoldenLibrary):
    """The host functions of recorded programs, which expect what those programs give them."""

    def get_function(self, name: str) -> Any:
        function = super().get_function(name)
        if name == "golden.kinds":  # the real one walks through tuples of tuples of tuples

            def function(*args: Any) -> Any:
                return tuple(type(arg).__name__ for arg in args)

        def call(*args: Any) -> Any:
            try:
                return function(*args)
            except Exception as error:
                raise TypeError(f"{name}: {error}") from error

        return None if function is None else call


def run(data: bytes) -> bool:
    """Run every function of a program that the verifier accepts, for a bounded time."""
    ex = VMExecutable.load_from_bytes(data)
    ex.import_module(Careful())
    rng = random.Random(data)
    machine = VirtualMachine(ex, cpu())
    machine.recursion_limit = 200
    for info in ex.func_table:
        if info.kind != 1 or info.name not in machine.program.functions or info.num_args > 20:
            continue
        for _ in range(2):
            arguments = [rng.choice(ARGUMENTS) for _ in range(info.num_args)]
            with (
                contextlib.suppress(*RUN_ERRORS),
                machine.start(info.name, *arguments) as execution,
            ):
                for _ in range(500):
                    if not execution.step():
                        break
    return True


#: What TVM raises when a program runs, and what a host function of the recorded programs may.
RUN_ERRORS = (InternalError, ValueError, TypeError, RuntimeError, MemoryError, IndexError)


# ---- weights ----------------------------------------------------------------------------------

WEIGHTS = {
    "w": np.arange(6, dtype="float32").reshape(2, 3),
    "b": np.ones(3, "float16"),
    "n": np.array(7, "int64"),
    "none": np.zeros((0, 2), "int8"),
}


@cache
def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a folder in memory, if the system has one; it is gone when the process ends."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="fuzz", dir=memory if memory.is_dir() else None)


def folder() -> Path:
    return Path(scratch().name)


def cache_index() -> list[bytes]:
    dump_tensor_cache(WEIGHTS, folder())
    return [(folder() / "tensor-cache.json").read_bytes()]


def load_index(data: bytes) -> bool:
    (folder() / "tensor-cache.json").write_bytes(data)
    load_tensor_cache(folder())
    return True


def ggufs() -> list[bytes]:
    metadata = {
        "general.architecture": gguf_bytes.string("llama"),
        "a.count": gguf_bytes.u32(3),
        "a.scale": gguf_bytes.f32(0.5),
        "a.flag": gguf_bytes.flag(True),
        "a.names": gguf_bytes.strings(["one", "two", "three"]),
        "a.numbers": gguf_bytes.int32s([1, 2, 3]),
    }
    tensors = {
        "w": gguf_bytes.Tensor((3, 2), 0, WEIGHTS["w"].tobytes()),
        "q": gguf_bytes.Tensor((32,), 2, bytes(18)),
    }
    return [gguf_bytes.gguf(metadata, tensors)]


def load_gguf(data: bytes) -> bool:
    path = folder() / "model.gguf"
    path.write_bytes(data)
    file = GGUFFile.open(path)
    for value in file.metadata.values():
        str(value)
    for one in file.tensors.values():
        str(one)
    return True


def accepted(load: Callable[[bytes], object]) -> Callable[[bytes], bool]:
    def use(data: bytes) -> bool:
        load(data)
        return True

    return use


TARGETS = {
    "executable": Target(executables, look_into, (InternalError,)),
    "program": Target(executables, look_into, (InternalError,), mutate_program),
    "blob": Target(blobs, look_into, (InternalError,), mutate_blob),
    "library": Target(shared_libraries, look_into, (InternalError,), mutate_library),
    "saved": Target(saved_libraries, look_into_saved, (InternalError,), mutate_saved),
    "kernels": Target(
        lambda: [KERNELS.encode()], parse_kernels, (InternalError, DiagnosticError), mutate_text
    ),
    "run": Target(executables, run, (InternalError,), mutate_program),
    "params": Target(
        lambda: [save_param_dict(WEIGHTS)], accepted(load_param_dict), (InternalError,)
    ),
    "safetensors": Target(
        lambda: [save_safetensors(WEIGHTS, {"a": "b"})],
        accepted(load_safetensors),
        (InternalError,),
    ),
    "cache": Target(cache_index, load_index, (InternalError, ValueError, KeyError)),
    "gguf": Target(ggufs, load_gguf, (GGUFError,)),
}
