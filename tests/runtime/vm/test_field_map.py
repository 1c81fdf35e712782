"""Every byte of an executable's file has a meaning, and only one."""

import struct
from itertools import pairwise

import pytest

from relaxlab.errors import InternalError
from relaxlab.runtime.vm.bytecode import VMFuncInfo
from relaxlab.runtime.vm.executable import VMExecutable
from relaxlab.runtime.vm.field_map import field_map
from relaxlab.runtime.vm.section_map import section_map
from tests import golden_vm


@pytest.mark.parametrize("name", golden_vm.names())
def test_fields_cover_the_file_without_gaps(name):
    data = golden_vm.executable_bytes(name)
    fields = field_map(data, name)
    assert fields[0].offset == 0
    assert all(one.offset + one.size == two.offset for one, two in pairwise(fields))
    assert fields[-1].offset + fields[-1].size == len(data)
    for field in fields:
        assert data[field.offset : field.offset + field.size].startswith(field.head)
        assert len(field.head) == min(8, field.size)
        assert field.what


@pytest.mark.parametrize("name", golden_vm.names())
def test_fields_are_in_the_sections_of_the_section_map(name):
    data = golden_vm.executable_bytes(name)
    sections = {section.name: section for section in section_map(data, name)}
    for field in field_map(data, name):
        section = sections[field.section]
        assert section.offset <= field.offset
        assert field.offset + field.size <= section.offset + section.size


def test_words_say_what_the_listing_says_and_numbers_what_they_are():
    data = golden_vm.executable_bytes("eb_if")
    ex = VMExecutable.load_from_bytes(data)
    said = {field.offset: field for field in field_map(data, "eb_if")}
    words = [field for field in said.values() if field.section == "instruction data"][1:]
    assert [struct.unpack("<q", field.head)[0] for field in words] == ex.instr_data.tolist()
    assert words[0].what == "If"
    assert {field.pc for field in words} == set(range(ex.num_instructions))
    texts = [field.meaning for field in said.values()]
    assert "a function kind: 1 (vm_func), of function 0" in texts
    assert "a function name: 'golden.iadd'" in texts
    assert "start of instruction 0: word 0" in texts


def test_constants_are_numbered_and_named():
    data = golden_vm.executable_bytes("eb_const_kinds")
    ex = VMExecutable.load_from_bytes(data)
    kinds = [
        field.value for field in field_map(data, "eb_const_kinds") if field.what.endswith("t kind")
    ]
    assert [kind.split("of ")[1] for kind in kinds] == [f"c[{i}]" for i in range(len(ex.constants))]
    assert not any("unknown" in kind for kind in kinds)


def test_a_name_that_is_repeated_is_cut():
    name = "f" * 100_000
    words = [1, 0, 0, 0] * 50 + [2, 0]
    offsets = [4 * index for index in range(51)]
    ex = VMExecutable(
        [VMFuncInfo(0, name, 0, 0, -2, 0), VMFuncInfo(1, "g", 0, 51, 0, 1)], (), {}, offsets, words
    )
    assert max(len(field.meaning) for field in field_map(ex.save_to_bytes(), "long.bin")) < 300


def test_a_file_that_is_none_is_refused():
    with pytest.raises(InternalError, match="not a Relax executable"):
        field_map(b"no executable at all", "nothing.bin")
