"""Bytes to executable and back; altered bytes give one clear error."""

import contextlib
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxlab.errors import InternalError
from relaxlab.runtime.container import Array, ShapeTuple
from relaxlab.runtime.dtype import DataType
from relaxlab.runtime.tensor import Tensor, tensor
from relaxlab.runtime.vm.bytecode import VMFuncInfo, VMFuncKind
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.serialize import MAGIC_V1, MAGIC_V2
from tests import golden_vm

EMPTY = struct.pack("<QQ", MAGIC_V2, 4) + b"0.14" + bytes(40)


def load(data, verify=False):
    return VMExecutable.load_from_bytes(data, verify)


def round_trip(*constants):
    ex = VMExecutable(constants=constants)
    data = ex.save_to_bytes()
    again = load(data)
    assert again.save_to_bytes() == data
    return again.constants


@pytest.mark.parametrize("name", golden_vm.names())
def test_recorded_executables_are_saved_to_the_same_bytes(name):
    data = golden_vm.executable_bytes(name)
    saved = load(data).save_to_bytes()
    if name == "bytes_v1_magic":  # hand made in the old format; the recorded bytes are the new one
        assert data[:8] == struct.pack("<Q", MAGIC_V2)
    assert saved == data


def test_the_old_format_is_read_and_the_new_one_written():
    old = bytes.fromhex(golden_vm.case("files")["bytes_v1"]["hex"])
    assert old[:8] == struct.pack("<Q", MAGIC_V1)
    ex = load(old, verify=True)
    assert ex.as_text() == "@f:\n  ret   %0\n\n"
    assert ex.save_to_bytes() == golden_vm.executable_bytes("bytes_v1_magic")


def test_the_executable_inside_a_library_blob_is_found():
    blob = bytes.fromhex(golden_vm.case("files")["library_bin"]["hex"])
    ex = load(blob)
    assert ex.as_text() == "@f:\n  ret   %0\n\n"
    assert ex.save_to_bytes() in blob
    at = blob.index(b"\x1e\x15\x14\x42")
    altered = blob[: at + 16] + b"9.99" + blob[at + 20 :]
    with pytest.raises(InternalError, match=rf"'version', byte {at + 8}: found version '9.99'"):
        load(altered)


def test_the_empty_executable_has_sixty_bytes():
    assert VMExecutable().save_to_bytes() == EMPTY
    assert len(EMPTY) == 60


def test_bytes_come_as_bytes_bytearray_or_memoryview():
    data = golden_vm.executable_bytes("eb_minimal")
    for form in (bytes(data), bytearray(data), memoryview(data)):
        assert load(form, verify=True).save_to_bytes() == data
    with pytest.raises(TypeError, match="expected the bytes of an executable, got str"):
        load("text")


# ---- constants ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        *(ShapeTuple(s) for s in ((), (1,), (-5, 2**62))),
        *("", "short", "longer than eight bytes", "héllo\n\0"),
        *(0, -1, 2**63 - 1, -(2**63)),
        *(0.0, 1e-320, float("inf")),
        *(map(DataType, ("float32", "int8x4", "", "bool", "handle", "float4_e2m1fn"))),
        DataType.make(2, 32, -4),
    ],
)
def test_a_constant_comes_back_as_it_was(value):
    (again,) = round_trip(value)
    assert type(again) is type(value)
    assert again == value


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype="float32").reshape(2, 3),
        np.array(7, dtype="int64"),
        np.zeros((0, 3), dtype="int8"),
        np.array([True, False]),
        np.array([1.5, -2], dtype=ml_dtypes.bfloat16),
        np.array([1, -2, 3], dtype=ml_dtypes.int4),
        np.arange(6, dtype="int16").reshape(2, 3).T,
    ],
)
def test_a_tensor_comes_back_as_it_was(array):
    (again,) = round_trip(tensor(array))
    assert again.dtype == DataType(str(array.dtype))
    np.testing.assert_array_equal(again.numpy(), array)
    again.array[...] = 0  # the loaded memory can be written to


def test_nan_and_negative_zero_keep_their_bits():
    a, b = round_trip(float("nan"), -0.0)
    assert struct.pack("<d", a) == struct.pack("<d", float("nan"))
    assert struct.pack("<d", b) == struct.pack("<d", -0.0)


@pytest.mark.parametrize("value", [None, True, b"x", Array([1]), 2**63, print])
def test_a_constant_without_a_place_in_the_format_is_named(value):
    ex = VMExecutable(constants=[1, value])
    with pytest.raises(InternalError, match=rf"constant 1: a value of type {type(value).__name__}"):
        ex.save_to_bytes()


def test_a_vector_tensor_is_refused_because_the_format_would_cut_it_off():
    vector = Tensor(np.zeros((2, 4), "float32"), DataType("float32x4"))
    with pytest.raises(InternalError, match=r"constant 0.*float32x4"):
        VMExecutable(constants=[vector]).save_to_bytes()


# ---- bad bytes ------------------------------------------------------------------------------


def altered(at, raw, name="eb_minimal"):
    data = bytearray(golden_vm.executable_bytes(name))
    data[at : at + len(raw)] = raw
    return bytes(data)


HUGE = struct.pack("<Q", 2**62)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"'header', byte 0: expected 8 bytes of the magic number, got 0"),
        (b"GGUF" + bytes(60), r"'header', byte 0: unknown magic number 0x0*46554747"),
        (altered(16, b"0.15"), r"'version', byte 8: found version '0.15', expected '0.14'"),
        (altered(8, HUGE), r"'version', byte 8: .* 130 are left"),
        (altered(20, HUGE), r"'function table', byte 20: 4611686018427387904 functions need"),
        (altered(32, HUGE), r"'function table', byte 32: .* bytes of a function name"),
        (altered(40, b"\xff"), r"'function table', byte 40: a function name is not UTF-8"),
        (altered(73, HUGE), r"'function table', byte 73: .* parameter names of 'f'"),
        (altered(90, HUGE), r"'memory scopes', byte 90"),
        (altered(98, HUGE), r"'constants', byte 98"),
        (altered(106, HUGE), r"'instruction offsets', byte 106"),
        (altered(122, HUGE), r"'instruction data', byte 122"),
        (altered(146, b"!"), r"'instruction data', byte 146: expected the end, 1 more bytes"),
    ],
)
def test_bad_bytes_name_section_offset_and_what_was_expected(data, message):
    with pytest.raises(InternalError, match=message):
        load(data)


def constant_file(payload):
    return EMPTY[:-24] + struct.pack("<Q", 1) + payload + bytes(16)


TENSOR = struct.pack("<iQQ3iBBH", 70, 0xDD5E40F096B4A13F, 0, 1, 0, 1, 2, 32, 1)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (struct.pack("<i", 99) + bytes(8), r"byte 44: unknown constant kind 99"),
        (struct.pack("<i", 2) + bytes(8), r"byte 44: unknown constant kind 2"),
        (struct.pack("<iQ", 69, 2**61), r"byte 48: .* extents"),
        (struct.pack("<iQ", 65, 2**61), r"byte 48: .* string constant"),
        (struct.pack("<iQ", 70, 5), r"byte 48: unknown tensor magic"),
        (TENSOR + struct.pack("<qq", 2, 9) + bytes(8), r"byte 88: .* has 8 bytes, the file says 9"),
        (TENSOR + struct.pack("<qq", -2, 8), r"byte 80: .* negative extent"),
        (TENSOR + struct.pack("<qq", 2**40, 2**42), r"byte 96: expected \d+ bytes .* the data is"),
        (
            TENSOR[:20] + struct.pack("<3i", 2, 0, 0) + bytes(20),
            r"byte 64: tensor on device type",
        ),
        (TENSOR[:20] + struct.pack("<3i", 1, 0, 99) + bytes(20), r"byte 72: tensor of rank 99"),
        (TENSOR[:32] + bytes([3, 64, 1, 0]) + bytes(24), r"byte 76: cannot hold a tensor of dtype"),
    ],
)
def test_a_bad_constant_names_its_byte(payload, message):
    with pytest.raises(InternalError, match=rf"section 'constants', {message}"):
        load(constant_file(payload))


def test_a_zero_extent_beside_an_enormous_one_is_refused():
    header = struct.pack("<iQQ3iBBH", 70, 0xDD5E40F096B4A13F, 0, 1, 0, 3, 2, 32, 1)
    payload = header + struct.pack("<4q", 0, 2**62, 2**62, 0)
    with pytest.raises(InternalError, match="'constants'"):
        load(constant_file(payload))


@pytest.mark.parametrize("name", ["eb_minimal", "eb_const_kinds", "cg_memory_scope", "eb_loop"])
def test_every_truncation_is_noticed(name):
    data = golden_vm.executable_bytes(name)
    for end in range(len(data)):
        with pytest.raises(InternalError, match=r"executable, section '.*', byte \d+"):
            load(data[:end])


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_fuzzed_bytes_load_and_print_or_give_an_internal_error(data):
    raw = bytearray(golden_vm.executable_bytes(data.draw(st.sampled_from(golden_vm.names()))))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        width = data.draw(st.sampled_from([1, 4, 8]))
        value = data.draw(st.sampled_from([0, 1, 2, 2**31, 2**62, 2**63 - 1, 2**64 - 1, 70, 255]))
        raw[at : at + width] = (value & (2 ** (8 * width) - 1)).to_bytes(width, "little")
    if data.draw(st.booleans()):
        del raw[data.draw(st.integers(0, len(raw))) :]
    with contextlib.suppress(InternalError):
        ex = VMExecutable.load_from_bytes(bytes(raw))
        saved = ex.save_to_bytes()
        assert load(saved).save_to_bytes() == saved
        ex.stats()
        ex.as_text()
        ex.as_python()


@given(st.binary(max_size=200))
def test_random_bytes_give_an_internal_error(raw):
    with pytest.raises(InternalError):
        load(struct.pack("<QQ", MAGIC_V2, 4) + b"0.14" + raw + b"\1")


# ---- files ----------------------------------------------------------------------------------


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "program.bin"
    load(golden_vm.executable_bytes("eb_loop")).write_to_file(path)
    assert path.read_bytes() == golden_vm.executable_bytes("eb_loop")
    with pytest.raises(InternalError):
        VMExecutable(constants=[None]).write_to_file(path)
    assert path.read_bytes() == golden_vm.executable_bytes("eb_loop")
    assert [one.name for one in tmp_path.iterdir()] == ["program.bin"]
    assert VMExecutable.load_from_file(str(path)).as_text() == golden_vm.case("eb_loop")["as_text"]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.bin"):
        VMExecutable.load_from_file(tmp_path / "nothing.bin")


# ---- the object -----------------------------------------------------------------------------


def test_an_executable_is_its_own_module():
    ex = load(golden_vm.executable_bytes("eb_two_funcs"))
    assert ex.mod is ex
    assert ex.jit() is ex
    assert ex.mod["has_function"]("golden.add")
    assert not ex.mod["has_function"]("nothing")
    assert ex.mod["as_text"]() == ex.as_text()
    assert ex.mod["stats"]() == ex.stats()
    assert ex.mod["as_python"]() == ex.as_python()
    with pytest.raises(AttributeError, match=r"'addmul'.*VirtualMachine"):
        ex.mod["addmul"]
    with pytest.raises(AttributeError, match=r"no module function 'nothing'$"):
        ex.mod["nothing"]


def test_of_two_entries_with_one_name_the_later_wins():
    infos = [VMFuncInfo(VMFuncKind.PACKED_FUNC, name) for name in ("a", "b", "a")]
    assert VMExecutable(infos).func_map == {"a": 2, "b": 1}


def test_importing_what_is_no_library_is_a_type_error():
    ex = VMExecutable()
    with pytest.raises(TypeError, match=r"kernel library.*got dict"):
        ex.import_module({})
    assert ex.imports == []


def test_instructions_and_their_functions_are_found_by_index():
    ex = load(golden_vm.executable_bytes("eb_two_funcs"))
    assert ex.num_instructions == sum(info.end_instr - info.start_instr for info in ex.func_table)
    for info in ex.func_table:
        for index in range(info.start_instr, info.end_instr):
            assert ex.function_at(index) == info
            ex.instruction(index)
    assert ex.function_at(ex.num_instructions) is None
    for index in (-1, ex.num_instructions):
        with pytest.raises(InternalError, match=f"index {index} is out of range"):
            ex.instruction(index)


def test_the_repr_counts():
    ex = load(golden_vm.executable_bytes("eb_loop"))
    assert repr(ex) == "VMExecutable(3 functions, 0 constants, 7 instructions)"
