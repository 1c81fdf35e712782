"""Devices."""

import pytest

from relaxlab.runtime import Device, cpu, cuda, device


def test_devices_are_values():
    assert cpu() == cpu(0) == device("cpu") == device("cpu:0") == Device("cpu", 0)
    assert len({cpu(), cpu(0), cpu(1)}) == 2
    assert cuda(1) != cpu(1)
    assert device(cuda(3)) == cuda(3)
    assert str(cuda(2)) == "cuda:2"
    assert repr(cuda(2)) == "device(type='cuda', index=2)"


@pytest.mark.parametrize(("name", "number"), [("cpu", 1), ("cuda", 2), ("rocm", 10)])
def test_numbers_are_those_of_dlpack(name, number):
    assert device(name, 1).dlpack_device_type() == number
    assert Device.from_dlpack(number, 1) == device(name, 1)


@pytest.mark.parametrize("name", ["zz", "cpu:", "cpu:x", "cuda:-1", ""])
def test_unknown_names_are_refused(name):
    with pytest.raises(ValueError, match="unknown device"):
        device(name)


def test_an_index_cannot_be_given_twice():
    with pytest.raises(ValueError, match="unknown device"):
        device("cuda:1", 1)
    with pytest.raises(ValueError, match="unknown device type number 99"):
        Device.from_dlpack(99)


def test_existence_is_asked_of_the_device():
    assert cpu().exist
    assert not cuda(10_000).exist
    assert not device("metal").exist
