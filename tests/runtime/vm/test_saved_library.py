"""`export_library` and `load_module`: the same program back, from data that is checked first."""

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relaxlab import relax
from relaxlab.codegen import GENERATORS, build
from relaxlab.errors import DiagnosticError, InternalError
from relaxlab.ir import IRModule
from relaxlab.ir.node import structural_equal
from relaxlab.runtime import cpu, load_module
from relaxlab.runtime.vm import VirtualMachine, VMExecutable
from relaxlab.runtime.vm.archive import read_archive, write_archive
from relaxlab.runtime.vm.saved_kernels import (
    KERNEL_FORMATS,
    KernelFormat,
    SavedKernels,
    SavedLibrary,
)
from relaxlab.runtime.vm.saved_library import write_saved_library
from relaxlab.script import from_source
from relaxlab.script.kernel_text import load_kernels, save_kernels
from tests import golden_compiler, golden_vm
from tests.runtime.vm.programs import executables

SOURCE = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32"), w: R.Tensor((4, 3), "float32")):
        with R.dataflow():
            a = R.matmul(x, w)
            b = R.nn.relu(a)
            c = R.add(b, R.const(0.1, "float32"))
            R.output(c)
        return c
"""
KERNELS = ("attention_sym", "embedding_take", "inplace", "layer_norm", "softmax", "reductions")
X = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
W = np.linspace(-2, 2, 12, dtype="float32").reshape(4, 3)


@pytest.fixture(scope="module")
def program():
    return relax.build(from_source(SOURCE), "numpy")


@pytest.fixture(scope="module")
def saved(program):
    return write_saved_library(program)


def load(data, verify=True):
    return VMExecutable.load_from_bytes(data, verify, origin="model.rlx")


def run(executable):
    return VirtualMachine(executable, cpu())["main"](X, W).numpy()


# ---- there and back -----------------------------------------------------------------------------


def test_a_saved_program_computes_the_same(program, tmp_path):
    path = tmp_path / "model.rlx"
    program.export_library(path)
    again = load_module(path)
    assert again.as_text() == program.as_text()
    assert again.save_to_bytes() == program.save_to_bytes()
    np.testing.assert_array_equal(run(again), run(program))
    assert [library.kind for library in again.imports] == ["numpy"]
    assert again.imports[0].names == program.imports[0].names
    assert relax.VMExecutable.load_from_file(str(path)).as_text() == program.as_text()


def test_the_bytes_are_reproducible_and_survive_a_round_trip(program, saved):
    assert write_saved_library(program) == saved
    assert write_saved_library(load(saved)) == saved  # without compiling anything
    again = load(saved)
    run(again)
    assert write_saved_library(again) == saved
    rebuilt = relax.build(from_source(SOURCE), "numpy")
    assert write_saved_library(rebuilt) == saved


def test_the_bytes_are_the_same_in_another_process(saved):
    program = (
        "import hashlib; from tests.runtime.vm.test_saved_library import *;"
        "data = write_saved_library(relax.build(from_source(SOURCE), 'numpy'));"
        "print(hashlib.sha256(data).hexdigest())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).resolve().parents[3],
        env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == hashlib.sha256(saved).hexdigest()


def test_the_file_is_a_zip_that_says_what_is_in_it(program, saved):
    with zipfile.ZipFile(io.BytesIO(saved)) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == [
            "manifest.json",
            "executable.bin",
            "kernels/0.txt",
            "source_map.json",
        ]
        assert archive.read("executable.bin") == program.save_to_bytes()
        manifest = json.loads(archive.read("manifest.json"))
        text = archive.read("kernels/0.txt")
    assert (manifest["format"], manifest["version"]) == ("relaxlab library", 1)
    (library,) = manifest["libraries"]
    assert library["target"] == "numpy"
    assert library["kernels"] == list(program.imports[0].names)
    assert library["sha256"] == hashlib.sha256(text).hexdigest()
    names = {gvar.name_hint for gvar, _ in from_source(text.decode()).functions_items()}
    assert names == set(library["kernels"])


@pytest.mark.parametrize("name", KERNELS)
def test_every_kernel_of_recorded_modules_comes_back(name):
    built = relax.build(from_source(golden_compiler.source(name)), "numpy")
    for library, loaded in zip(
        built.imports, load(write_saved_library(built)).imports, strict=True
    ):
        kernels = load_kernels(loaded.saved).kernels
        assert list(kernels) == list(library.kernels)
        for one, kernel in library.kernels.items():
            assert structural_equal(kernel, kernels[one])


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(executables())
def test_random_programs_come_back(executable):
    executable.imports.clear()
    again = load(write_saved_library(executable))
    assert again.save_to_bytes() == executable.save_to_bytes()


def test_libraries_that_import_libraries_keep_their_tree(program):
    outer, inner, other = (build(IRModule(), "numpy") for _ in range(3))
    inner.kernels.update(program.imports[0].kernels)
    outer.imports.append(inner)
    ex = VMExecutable(imports=[outer, other])
    again = load(write_saved_library(ex))
    assert [len(one.imports) for one in again.imports] == [1, 0]
    assert again.imports[0].imports[0].names == inner.names
    assert again.imports[0].names == ()
    inner.imports.append(outer)
    with pytest.raises(InternalError, match="import each other in a circle"):
        write_saved_library(ex)


def test_an_unknown_target_falls_back_to_portable_kernels(program):
    kernels = save_kernels(program.imports[0])
    other = SavedKernels(kernels.form, "c", kernels.names, kernels.text)
    assert load_kernels(other).kind == "numpy"
    for target in ("", "nonsense", "cuda" if "cuda" not in GENERATORS else "rocm"):
        other = SavedKernels(kernels.form, target, kernels.names, kernels.text)
        with pytest.raises(InternalError, match=f"saved for target '{target}'"):
            load_kernels(other)


def test_names_that_python_lacks_come_back(program):
    kernel = next(iter(program.imports[0].kernels.values()))
    library = build(IRModule(), "numpy")
    for name in ("a.b", "class", "kernel_1", "T", "μ", "two words", "kernel_0"):
        library.kernels[name] = kernel.without_attr("global_symbol")
    again = load(write_saved_library(VMExecutable(imports=[library])))
    assert list(again.imports[0].names) == list(library.kernels)
    for name in library.kernels:
        assert callable(again.imports[0].get_function(name))
    assert again.imports[0].get_function("nothing") is None


# ---- without a compiler -----------------------------------------------------------------------


def in_a_new_process(program, *args, check=True):
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, args)],
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 or not check, done.stderr
    return done.stdout


def test_loading_needs_no_compiler_and_running_finds_it(saved, tmp_path):
    path = tmp_path / "model.rlx"
    path.write_bytes(saved)
    program = """
import sys
import numpy as np
from relaxlab import runtime
ex = runtime.load_module(sys.argv[1])
ex.as_text(), ex.stats(), ex.export_library(sys.argv[1])
assert "relaxlab.script" not in sys.modules
vm = runtime.VirtualMachine(ex, runtime.cpu())
print(vm["main"](np.ones((2, 4), "float32"), np.ones((4, 3), "float32")).numpy().tolist())
"""
    assert in_a_new_process(program, path).strip() == str([[4.099999904632568] * 3] * 2)


def test_without_a_compiler_the_kernel_is_named_and_what_to_do(saved, tmp_path):
    path = tmp_path / "model.rlx"
    path.write_bytes(saved)
    program = """
import sys
class Missing:
    def find_spec(self, name, *_):
        if name == "relaxlab.script":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from relaxlab import runtime
ex = runtime.load_module(sys.argv[1])
try:
    runtime.VirtualMachine(ex, runtime.cpu())
except RuntimeError as error:
    print(type(error).__name__, error)
"""
    message = in_a_new_process(program, path)
    assert message.startswith(
        "InternalError kernel 'shape_func' of model.rlx is kept as 'tvmscript'"
    )
    assert "install the whole of relaxlab" in message


def test_a_library_that_exists_only_as_code_is_refused_before_anything_is_written(tmp_path):
    class Code:
        kind, imports = "code", []

        def get_function(self, name):
            return None

    path = tmp_path / "m.rlx"
    path.write_text("before")
    with pytest.raises(InternalError, match=r"library of kind 'code'.*register_global_func"):
        VMExecutable(imports=[Code()]).export_library(path)
    with pytest.raises(InternalError, match="cannot save constant 0"):
        VMExecutable(constants=[None]).export_library(path)
    assert path.read_text() == "before"
    assert [one.name for one in tmp_path.iterdir()] == ["m.rlx"]


# ---- altered files ----------------------------------------------------------------------------


def changed(saved, name, content):
    """Return the library with one member replaced, its fingerprint left as it was."""
    return write_archive({**read_archive(saved), name: content})


def with_manifest(saved, **entries):
    manifest = json.loads(read_archive(saved)["manifest.json"])
    manifest.update(entries)
    return changed(saved, "manifest.json", json.dumps(manifest).encode())


def resealed(saved, name, content, **entries):
    """Return the library with one member replaced and the manifest made to agree."""
    manifest = json.loads(read_archive(saved)["manifest.json"])
    for entry in (manifest["executable"], *manifest["libraries"]):
        if entry["member"] == name:
            digest = hashlib.sha256(content).hexdigest()
            entry.update(bytes=len(content), sha256=digest, **entries)
    data = changed(saved, name, content)
    return changed(data, "manifest.json", json.dumps(manifest).encode())


def test_an_altered_member_is_named(saved):
    members = read_archive(saved)
    for name in ("executable.bin", "kernels/0.txt"):
        flipped = bytes([members[name][0] ^ 1]) + members[name][1:]
        with pytest.raises(InternalError, match=f"'{name}' was altered: the manifest says sha256"):
            load(changed(saved, name, flipped))
        with pytest.raises(InternalError, match=f"'{name}' was altered: the manifest says bytes"):
            load(changed(saved, name, members[name] + b"!"))


def test_another_format_version_says_found_and_expected(saved):
    with pytest.raises(InternalError, match=r"found version 2 .* relaxlab '9'; expected version 1"):
        load(with_manifest(saved, version=2, relaxlab="9"))
    for version in (None, "1", True, [1]):
        with pytest.raises(InternalError, match="found version"):
            load(with_manifest(saved, version=version))


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"format": "other"}, "expected an object whose 'format'"),
        ({"executable": None}, "the executable has no entry"),
        ({"executable": {"member": "../../etc/passwd"}}, "'../../etc/passwd', which is missing"),
        ({"libraries": None}, "'libraries' must be a list"),
        ({"libraries": []}, "not in the manifest: 'kernels/0.txt'"),
        ({"libraries": [3]}, "kernel library 0 has no entry"),
        ({"libraries": [{}] * 1000}, "at most 256 entries"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(saved, entries, message):
    with pytest.raises(InternalError, match=message):
        load(with_manifest(saved, **entries))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"imported_by": 0}, "library 0 is imported by 0"),
        ({"imported_by": True}, "library 0 is imported by True"),
        ({"imported_by": -1}, "library 0 is imported by -1"),
        ({"kernels": None}, "needs 'kernels'"),
        ({"kernels": [1]}, "needs 'kernels'"),
        ({"form": 1}, "needs a 'form'"),
        ({"target": []}, "needs a 'form' and a 'target'"),
    ],
)
def test_an_entry_of_a_library_that_makes_no_sense_is_refused(saved, entry, message):
    text = read_archive(saved)["kernels/0.txt"]
    with pytest.raises(InternalError, match=message):
        load(resealed(saved, "kernels/0.txt", text, **entry))


def test_a_manifest_that_is_no_json_is_refused(saved):
    for content in (b"", b"{", b"\xff", b"[" * 100_000, b"1" * 10_000, b"[]"):
        with pytest.raises(InternalError, match=r"manifest\.json"):
            load(changed(saved, "manifest.json", content))
    with pytest.raises(InternalError, match=r"zip archive without manifest\.json"):
        load(write_archive({"a": b""}))


def zipped(*members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_members_must_be_stored_once_and_apart(saved):
    with pytest.raises(InternalError, match=r"two members called 'manifest\.json'"):
        load(zipped(*read_archive(saved).items(), ("manifest.json", b"{}")))
    bomb = zipped(("manifest.json", bytes(50_000_000)), compression=zipfile.ZIP_DEFLATED)
    assert len(bomb) < 100_000
    with pytest.raises(InternalError, match=r"'manifest\.json' is compressed"):
        load(bomb)


def test_a_member_that_says_it_is_longer_than_the_file_is_refused():
    data = bytearray(zipped(("manifest.json", b"{}")))
    for at in (18, 22):  # sizes in the local header
        data[at : at + 4] = (2**31).to_bytes(4, "little")
    central = data.index(b"PK\1\2")
    for at in (central + 20, central + 24):
        data[at : at + 4] = (2**31).to_bytes(4, "little")
    with pytest.raises(InternalError, match="they overlap"):
        load(bytes(data))


def test_an_unsafe_program_is_refused_unless_asked_for(saved):
    bad = golden_vm.executable_bytes("eb_undefined_register")
    data = resealed(saved, "executable.bin", bad)
    with pytest.raises(InternalError, match="not safe to run"):
        load(data)
    assert load(data, verify=False).save_to_bytes() == bad


@pytest.mark.parametrize("end", [4, 30, 100, 500, -1, -22, -60])
def test_a_cut_library_is_refused(saved, end):
    with pytest.raises(InternalError, match="cut or altered"):
        load(saved[:end])


# ---- kernels of strangers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("", DiagnosticError, "there is no program"),
        ("import os\nos.abort()", DiagnosticError, "not part of a program"),
        ("@I.ir_module\nclass M:\n    x = __import__('os').abort()", DiagnosticError, "M|x"),
        ("@T.prim_func\ndef f():\n    T.evaluate(0)", InternalError, "single function"),
        ("@I.ir_module\nclass M:\n    pass", InternalError, "holds the functions"),
        (
            "@I.ir_module\nclass M:\n    @R.function\n    def add():\n        return R.tuple()",
            InternalError,
            "'add' is no kernel",
        ),
    ],
)
def test_a_text_that_is_no_kernel_is_refused_when_the_kernel_is_asked_for(text, error, message):
    library = SavedLibrary(SavedKernels("tvmscript", "numpy", ("add",), text), "m.rlx")
    assert library.get_function("mul") is None
    with pytest.raises(error, match=message):
        library.get_function("add")


def test_what_a_compiler_cannot_do_names_the_kernel():
    def load(saved):
        raise AttributeError("a part of the program has no dtype")

    KERNEL_FORMATS.register("odd", KernelFormat(lambda library: None, load))
    try:
        library = SavedLibrary(SavedKernels("odd", "numpy", ("add",), ""), "m.rlx")
        with pytest.raises(
            InternalError, match=r"'add' of m\.rlx cannot be compiled: Attrib.*dtype"
        ):
            library.get_function("add")
    finally:
        KERNEL_FORMATS.remove("odd")


HOSTILE = """
@I.ir_module
class Module:
    @T.prim_func
    def add(x: T.Buffer((4,), "float32"), y: T.Buffer((4,), "float32")):
        T.func_attr({"global_symbol": "f():\\n    import sys; sys.exit(3)\\ndef g"})
        for i in range(4):
            y[i] = x[i] + T.float32(1)
"""


CALLS = ("call_extern", "call_pure_extern", "call_packed")


@pytest.mark.parametrize("target", ["numpy", "llvm"])
def test_texts_inside_kernels_are_never_executed(target):
    code = '"f\\nimport sys; sys.exit(3)"'
    for value in ("T.float32(1)", *(f'T.{call}("float32", {code}, x[i])' for call in CALLS)):
        text = HOSTILE.replace("T.float32(1)", value)
        library = SavedLibrary(SavedKernels("tvmscript", target, ("add",), text), "m.rlx")
        x, y = np.ones(4, "float32"), np.zeros(4, "float32")
        try:
            library.get_function("add")(x, y)
            np.testing.assert_array_equal(y, 2)
        except (InternalError, DiagnosticError) as error:
            assert value != "T.float32(1)", error  # noqa: PT017  # refusing an unknown call is fine


@pytest.mark.parametrize("names", [("a", "a"), ("",), ("a\nb",), ("x" * 2000,), ("\ud800",)])
def test_kernel_names_must_be_sound(names):
    with pytest.raises(InternalError, match="names of saved kernels"):
        load_kernels(SavedKernels("tvmscript", "numpy", names, ""))


def test_an_unknown_language_of_kernels_is_named():
    library = SavedLibrary(SavedKernels("klingon", "numpy", ("add",), ""), "m.rlx")
    with pytest.raises(InternalError, match=r"'add' of m\.rlx is kept as 'klingon'"):
        library.get_function("add")


def test_a_kernel_whose_text_reads_back_differently_is_not_saved(program, monkeypatch):
    monkeypatch.setattr("relaxlab.script.kernel_text.structural_equal", lambda a, b: False)
    with pytest.raises(InternalError, match="cannot save kernel 'add': its text does not read"):
        write_saved_library(program)


def test_formats_are_registered_by_name():
    assert KERNEL_FORMATS.names() == ["tvmscript"]


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_altered_bytes_load_or_give_an_internal_error(saved, data):
    raw = bytearray(saved)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    try:
        load(bytes(raw)).as_text()
    except InternalError as error:
        assert str(error)  # noqa: PT017  # both outcomes are fine
