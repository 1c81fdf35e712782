"""Words and sections: what a reader of the bytes sees is what is in the file."""

import struct

import pytest

from relaxlab.errors import InternalError
from relaxlab.relax.exec_builder import ExecBuilder
from relaxlab.runtime.vm.bytecode import VMFuncInfo
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.listing import listing, words_of
from relaxlab.runtime.vm.saved_library import write_saved_library
from relaxlab.runtime.vm.section_map import section_map
from tests import golden_vm

SECTIONS = (
    "header",
    "version",
    "function table",
    "memory scopes",
    "constants",
    "instruction offsets",
    "instruction data",
)


@pytest.mark.parametrize("name", golden_vm.names())
def test_every_word_of_every_function_is_listed_once(name):
    ex = VMExecutable.load_from_bytes(golden_vm.executable_bytes(name), verify=False)
    words = [
        word
        for info in ex.func_table
        for pc in range(info.start_instr, info.end_instr)
        for word in words_of(ex, pc, ex.instruction(pc))
    ]
    assert sorted((word.at, word.value) for word in words) == list(
        enumerate(ex.instr_data.tolist())
    )
    text = listing(ex)
    for word in words:
        assert struct.pack(">q", word.value).hex() == word.hex
        assert f"{word.at:12}  {word.hex}  {word.meaning}\n" in text
    assert text.count("\n\n") == len(ex.func_table)


def test_a_listing_explains_jumps_and_arguments():
    ib = ExecBuilder()
    with ib.function("f", num_inputs=2):
        ib.emit_if(ib.r(0), 2)
        ib.emit_goto(2)
        ib.emit_call("host", [ib.imm(-3), ib.convert_constant("x"), ib.f("f"), ib.vm_state()])
        ib.emit_ret(ib.r(1))
    text = listing(ib.get())
    for line in (
        "@f: instructions 0 to 3, 2 parameters, 2 registers",
        "0000000000000002  if 0: +2 to instruction 2",
        "0000000000000002  +2 to instruction 3",
        "0040000000000000  dst %void",
        "0000000000000001  function 1: host",
        "0000000000000004  4 arguments",
        "01fffffffffffffd  immediate i-3",
        "0200000000000000  const c[0]",
        "0300000000000000  func f[f]",
        "0040000000000001  register %vm",
        "@host: host function, found by name",
    ):
        assert line in text


def test_other_kinds_of_entries_are_named():
    infos = [VMFuncInfo(2, "g", 0, 0, 1, 2), VMFuncInfo(9, "h")]
    assert listing(VMExecutable(infos)) == (
        "@g: compiled function of 1 parameters\n\n@h: entry of unknown kind 9\n\n"
    )


@pytest.mark.parametrize("name", golden_vm.names())
def test_sections_follow_each_other_and_fill_the_file(name):
    data = golden_vm.executable_bytes(name)
    sections = section_map(data, "m.bin")
    assert tuple(section.name for section in sections) == SECTIONS
    at = 0
    for section in sections:
        assert section.offset == at
        at += section.size
    assert at == len(data)
    ex = VMExecutable.load_from_bytes(data, verify=False)
    assert sections[-1].size == 8 + 8 * len(ex.instr_data)
    assert sections[-2].content.split()[0] == str(ex.num_instructions)


def test_the_old_format_has_no_memory_scopes():
    old = bytes.fromhex(golden_vm.case("files")["bytes_v1"]["hex"])
    names = [section.name for section in section_map(old, "m.bin")]
    assert names == [name for name in SECTIONS if name != "memory scopes"]
    assert "format V1" in section_map(old, "m.bin")[0].content


def test_sections_inside_a_library_have_their_place_in_the_file():
    data = golden_vm.library("so").read_bytes()
    around, header, *_ = section_map(data, "m.so")
    assert (around.name, around.offset, around.size) == ("ELF", 0, len(data))
    assert around.content == f"executable at byte {header.offset}; imports _lib"
    assert data[header.offset :].startswith(b"\x1e\x15\x14\x42")
    saved = write_saved_library(VMExecutable())
    around, header, *_ = section_map(saved, "m.rlx")
    assert (
        str(around).split()
        == f"0 {len(saved)} saved library executable.bin of 60 bytes, 0 kernels".split()
    )
    assert header.offset == 0


# ---- programs that nobody verified ------------------------------------------------------------


def overlapping(functions, length):
    """Return a program of functions that all cover the same instructions."""
    infos = [VMFuncInfo(1, f"f{number}", 0, length, 0, 1) for number in range(functions)]
    return VMExecutable(infos, (), {}, range(0, 2 * length, 2), [2, 0] * length)


@pytest.mark.parametrize("form", [VMExecutable.as_text, VMExecutable.as_python, listing])
def test_functions_that_overlap_are_not_printed_without_end(form):
    assert (
        form(overlapping(3, 10)).count("%0" if form is not VMExecutable.as_python else "r(0)") > 20
    )
    with pytest.raises(InternalError, match="far longer than the program"):
        form(overlapping(5000, 2000))


@pytest.mark.parametrize("form", [VMExecutable.as_text, VMExecutable.as_python, listing])
def test_a_long_name_is_not_repeated_without_end(form):
    count = 1000
    call = [1, 0, 1, count, *[3 << 56 | 1] * count]
    name = "x" * 1_000_000
    infos = [VMFuncInfo(1, "f", 0, 1, 0, 1), VMFuncInfo(0, name)]
    with pytest.raises(InternalError, match="function 'f', instruction 0, is far longer"):
        form(VMExecutable(infos, (), {}, [0], call))
