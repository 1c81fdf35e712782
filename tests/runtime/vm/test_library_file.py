"""Executables inside other people's files: found without loading them, refused clearly."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime import cpu, load_module, register_global_func, remove_global_func
from relaxlab.runtime.vm import VirtualMachine, VMExecutable
from relaxlab.runtime.vm.library_blob import read_blob
from relaxlab.runtime.vm.library_file import read_library
from relaxlab.runtime.vm.object_file import object_format, read_object
from tests import golden_vm
from tests.golden_values import decode

RECORD = golden_vm.case("library")
BLOB = bytes.fromhex(golden_vm.case("files")["library_bin"]["hex"])
SO, DLL, DYLIB = (golden_vm.library(one).read_bytes() for one in ("so", "dll", "dylib"))
NAME = b"__tvm_ffi__library_bin"
LIBRARIES = pytest.mark.parametrize("data", [SO, DLL, DYLIB], ids=["so", "dll", "dylib"])


def load(data, verify=True):
    return VMExecutable.load_from_bytes(data, verify, origin="model.so")


def hidden(data):
    """Return the library with its symbol called something else."""
    assert NAME in data
    return data.replace(NAME, b"__xxx_ffi__library_xxx"[: len(NAME)])


def words(data, at, form, *values):
    """Return the bytes with numbers of a ``struct`` format replaced at an offset."""
    raw = struct.pack(f"<{form}", *values)
    return data[:at] + raw + data[at + len(raw) :]


def blob(*modules, rows=None, children=()):
    """Return a library blob of modules given as (kind, payload or None)."""
    rows = [0] * (len(modules) + 1) if rows is None else rows
    body = struct.pack(f"<Q{len(rows)}Q", len(rows), *rows)
    body += struct.pack(f"<Q{len(children)}Q", len(children), *children)
    for kind, payload in modules:
        body += struct.pack("<Q", len(kind)) + kind.encode()
        if payload is not None:
            body += struct.pack("<Q", len(payload)) + payload
    return struct.pack("<Q", len(body)) + body


# ---- what is found ----------------------------------------------------------------------------


def test_the_program_in_a_library_of_tvm_is_read_byte_for_byte():
    ex = load_module(golden_vm.library("so"))
    assert ex.as_text() == RECORD["as_text"]
    assert ex.save_to_bytes().hex() == RECORD["bytes_hex"]
    (library,) = ex.imports
    assert sorted(library.names) == RECORD["kernels"]
    assert repr(library) == "ForeignLibrary(_lib: 6 kernels)"


@pytest.mark.parametrize(("data", "form"), [(SO, "ELF"), (DLL, "PE"), (DYLIB, "Mach-O")])
def test_symbols_lead_to_the_blob(data, form):
    found = read_object(memoryview(data))
    assert found.form == object_format(data) == form
    assert not found.is_old
    modules = read_blob(memoryview(data)[found.blob :])
    assert modules[0].kind == "relax.VMExecutable"
    contents = read_library(data, "x")
    assert data[contents.at :].startswith(b"\x1e\x15\x14\x42")
    assert bytes(contents.raw) == data[contents.at : contents.at + len(contents.raw)]


@pytest.mark.parametrize("data", [DLL, DYLIB], ids=["dll", "dylib"])
def test_libraries_for_other_systems_hold_the_same_program(data):
    ex = load(data)
    assert ex.as_text() == "@f:\n  ret   %0\n\n"
    assert [library.kind for library in ex.imports] == ["const_loader", "_lib"]
    assert ex.imports[1].names == {"twice"}


@LIBRARIES
def test_without_its_symbol_the_program_is_found_by_its_first_bytes(data):
    found = read_library(hidden(data), "model.so")
    assert found.at == read_library(data, "model.so").at
    assert load(hidden(data)).as_text() == load(data).as_text()


def test_an_object_file_without_dynamic_symbols_has_others():
    """Turn the dynamic symbol table into an ordinary one, as in a file that is not linked yet."""
    (start,) = struct.unpack_from("<Q", SO, 40)
    (count,) = struct.unpack_from("<H", SO, 60)
    kinds = [start + 64 * index + 4 for index in range(count)]
    at = next(one for one in kinds if struct.unpack_from("<I", SO, one) == (11,))
    assert load(words(SO, at, "I", 2)).as_text() == RECORD["as_text"]


def elf(symbols):
    """Return a minimal ELF file whose symbols are strings of bytes in one section."""
    names, data, table = b"\0", b"", bytes(24)
    for name, content in symbols.items():
        table += struct.pack("<IBBHQQ", len(names), 17, 0, 3, 0x1000 + len(data), len(content))
        names += name.encode() + b"\0"
        data += content
    at, sections = 64, [struct.pack("<2I4Q2I2Q", *[0] * 10)]
    for kind, address, content in ((11, 0, table), (3, 0, names), (1, 0x1000, data)):
        row = (0, kind, 0, address, at, len(content), 2, 0, 1, 24)
        sections.append(struct.pack("<2I4Q2I2Q", *row))
        at += len(content)
    head = b"\x7fELF\2\1\1".ljust(16, b"\0")
    head += struct.pack("<2HI3QI6H", 3, 62, 1, 0, 0, at, 0, 64, 0, 0, 64, 4, 0)
    return head + table + names + data + b"".join(sections)


def test_a_prefix_of_a_system_library_is_taken_off():
    symbols = {"ab___tvm_ffi__library_bin": BLOB, "__tvm_ffi_ab_add": b"!", "other": b"!"}
    found = read_object(memoryview(elf(symbols)))
    assert found.kernels == {"ab_add", "add"}
    assert load(elf(symbols)).as_text() == "@f:\n  ret   %0\n\n"


def fat(*slices, magic=0xCAFEBABE):
    """Return a Mach-O file of several architectures."""
    form, at = (">5I", 4096) if magic == 0xCAFEBABE else (">2I2Q2I", 4096)
    head, body = struct.pack(">2I", magic, len(slices)), b""
    for content in slices:
        rest = (12,) if magic == 0xCAFEBABE else (12, 0)
        head += struct.pack(form, 0x1000007, 3, at + len(body), len(content), *rest)
        body += content
    return head.ljust(4096, b"\0") + body


@pytest.mark.parametrize("magic", [0xCAFEBABE, 0xCAFEBABF])
def test_the_first_readable_architecture_of_a_universal_file_is_taken(magic):
    other = b"\xce\xfa\xed\xfe" + bytes(60)  # 32 bits
    data = fat(other, DYLIB, magic=magic)
    found = read_library(data, "x")
    assert found.at == 4096 + len(other) + read_library(DYLIB, "x").at
    assert load(data).as_text() == load(DYLIB).as_text()
    with pytest.raises(InternalError, match="Mach-O with magic number 0xfeedface"):
        load(fat(other, magic=magic))
    with pytest.raises(InternalError, match="no architecture"):
        load(fat(magic=magic))


# ---- kernels that cannot run ------------------------------------------------------------------


def test_the_program_runs_up_to_the_first_kernel_of_machine_code():
    run = RECORD["runs"][1]
    machine = VirtualMachine(load(SO), cpu())
    events = []
    machine.observer = events.append
    with pytest.raises(InternalError, match=r"kernel 'spread' is machine code inside model\.so"):
        machine["wide"](*map(decode, run["args"]))
    assert len(events) > 3
    machine.executable.imports[0].reason = "it is Tuesday"
    with pytest.raises(InternalError, match="and it is Tuesday; to run it, install relaxlab"):
        machine["wide"](*map(decode, run["args"]))


def test_a_kernel_offered_by_another_library_is_taken_instead():
    class Mine:
        kind, imports = "mine", []

        def get_function(self, name):
            return {
                "spread": lambda x, y: y.copyfrom(x.array + 1),
                "scratch": lambda x, y: y.copyfrom(2 * x.array + 2 * x.array[0]),
            }.get(name)

    ex = load(SO)
    ex.imports.insert(0, Mine())
    run = RECORD["runs"][1]
    result = VirtualMachine(ex, cpu())["wide"](*map(decode, run["args"]))
    np.testing.assert_array_equal(result.numpy(), decode(run["result"]).numpy())


def test_a_blob_alone_takes_every_unknown_name_for_a_kernel_of_its_machine_code():
    found = read_object(memoryview(SO))
    (size,) = struct.unpack_from("<Q", SO, found.blob)
    ex = load(SO[found.blob : found.blob + 8 + size])
    assert repr(ex.imports[0]) == "ForeignLibrary(_lib: unknown kernels)"
    machine = VirtualMachine(ex, cpu())
    with pytest.raises(InternalError, match="kernel 'spread' is machine code"):
        machine["wide"](decode(RECORD["runs"][1]["args"][0]))
    register_global_func("spread", lambda x, y: None)
    try:
        machine = VirtualMachine(ex, cpu())
        with pytest.raises(InternalError, match="kernel 'scratch' is machine code"):
            machine["wide"](decode(RECORD["runs"][1]["args"][0]))
    finally:
        remove_global_func("spread")


def test_machine_code_cannot_be_saved_as_data(tmp_path):
    with pytest.raises(InternalError, match="cannot save the imported library of kind '_lib'"):
        load(SO).export_library(tmp_path / "m.rlx")
    assert list(tmp_path.iterdir()) == []


# ---- what is refused, and how -----------------------------------------------------------------


def test_a_library_of_something_else_is_no_relax_library():
    altered = hidden(SO).replace(b"\x1e\x15\x14\x42", b"\0\0\0\0")
    with pytest.raises(
        InternalError, match=r"model\.so is an ELF library, but not a Relax library"
    ):
        load(altered)
    kernels_only = blob(("_lib", None))
    with pytest.raises(InternalError, match=r"first module is of kind '_lib', expected 'relax\.VM"):
        load(kernels_only)


def test_libraries_of_the_old_loader_say_so():
    old_symbol = SO.replace(NAME, b"__tvm_dev_mblob".ljust(len(NAME), b"\0"))
    old_symbol = old_symbol.replace(b"\x1e\x15\x14\x42", b"\0\0\0\0")
    with pytest.raises(InternalError, match=r"older TVM: .* symbol __tvm_dev_mblob .* 0\.27"):
        load(old_symbol)
    with pytest.raises(InternalError, match=r"older TVM: .*'relax\.Executable'.* old loader"):
        load(blob(("relax.Executable", b"1234"), ("_lib", None)))


@LIBRARIES
def test_another_version_says_found_expected_and_what_to_do(data):
    at = read_library(data, "x").at + 16
    for one in (data, hidden(data)):
        altered = one[:at] + b"0.99" + one[at + 4 :]
        with pytest.raises(
            InternalError, match=rf"byte {at - 8}: found version '0.99', expected '0.14': compile"
        ):
            load(altered)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (words(SO, 4, "B", 1), "ELF32, little-endian: expected ELF64 little-endian"),
        (words(SO, 5, "B", 2), "ELF64, big-endian"),
        (SO[:50], "ELF file: the header at bytes 58 to 62 is outside the file of 50 bytes"),
        (SO[:64], "ELF file: the section table at bytes"),
        (words(SO, 58, "H", 63), "section headers of 63 bytes"),
        (words(SO, 40, "Q", 2**64 - 1), "the section table at bytes 18446744073709551615"),
        (b"\xfe\xed\xfa\xcf" + bytes(60), "Mach-O with magic number 0xcffaedfe"),
        (DYLIB[:40], "Mach-O file: a segment at bytes"),
        (words(DYLIB, 36, "I", 0), "a load command of 0 bytes at byte 32"),
        (struct.pack(">2I", 0xCAFEBABE, 52), "52 architectures, expected at most 16"),
        (b"MZ" + bytes(100), "has no PE header"),
        (DLL[:100], "the PE header at bytes|the header at bytes"),
        (words(DLL, struct.unpack_from("<I", DLL, 0x3C)[0] + 24, "H", 0x10B), r"PE with .* 0x10b"),
        (words(DLL, struct.unpack_from("<I", DLL, 0x3C)[0] + 6, "H", 999), "999 sections"),
    ],
)
def test_a_broken_library_says_what_is_wrong(data, message):
    with pytest.raises(InternalError, match=message):
        load(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (blob(), "1 row pointers for 0 children: expected one for each module and one more"),
        (blob(("_lib", None), rows=[0, 1]), "1 children|row pointers"),
        (blob(("_lib", None), rows=[0, 1], children=[7]), "an imported module does not exist"),
        (blob(("_lib", None), rows=[1, 0]), "2 row pointers for 0 children"),
        (BLOB[:-1], "unknown magic number"),
        (blob(("x" * 9, b""))[:-3], "unknown magic number"),
    ],
)
def test_a_broken_blob_says_what_is_wrong(data, message):
    with pytest.raises(InternalError, match=message):
        load(data)


def test_a_library_that_is_refused_by_the_verifier_can_be_looked_into():
    bad = golden_vm.executable_bytes("eb_undefined_register")
    data = blob(("relax.VMExecutable", bad), ("_lib", None))
    with pytest.raises(InternalError, match="not safe to run"):
        load(data)
    assert load(data, verify=False).save_to_bytes() == bad


@settings(max_examples=150)
@given(st.sampled_from([SO, DLL, DYLIB, fat(DYLIB), BLOB]), st.data())
def test_altered_libraries_load_or_give_an_internal_error(library, data):
    raw = bytearray(library)
    for _ in range(data.draw(st.integers(1, 3))):
        # most of a library is code; the tables are at both ends
        limit = data.draw(st.sampled_from([64, 512, len(raw)]))
        at = data.draw(st.integers(0, limit - 1))
        at = data.draw(st.sampled_from([at, len(raw) - 1 - at]))
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        value = data.draw(st.sampled_from([0, 1, 2**15, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 24]))
        raw[at : at + width] = (value & (2 ** (8 * width) - 1)).to_bytes(width, "little")
    try:
        load(bytes(raw)).as_text()
    except InternalError as error:
        assert str(error)  # noqa: PT017  # both outcomes are fine
