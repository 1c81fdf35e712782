"""The border to TVM's processes, as far as it goes without TVM: values, C functions, messages."""

import ctypes
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from relaxlab.errors import InternalError
from relaxlab.interop import c_backend, ffi_values, tvm_ffi
from relaxlab.interop.tvm import TVMGlobals, from_tvm, to_tvm
from relaxlab.runtime import VirtualMachine, cpu
from relaxlab.runtime.vm import VMExecutable
from tests import golden_vm
from tests.golden_values import decode

SO = golden_vm.library("so")
RECORD = golden_vm.case("library")


@pytest.fixture
def without_packages(monkeypatch):
    """Hide tvm and tvm_ffi, should they be installed."""
    for name in ("tvm", "tvm.relax", "tvm_ffi"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(tvm_ffi, "find_spec", lambda name: None)


@pytest.mark.usefixtures("without_packages")
def test_without_the_packages_the_message_says_what_to_install():
    assert not tvm_ffi.is_installed()
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'relaxlab\[tvmffi\]'"):
        tvm_ffi.load_module(SO)
    for call in (lambda: to_tvm(VMExecutable()), lambda: from_tvm(None)):
        with pytest.raises(ModuleNotFoundError, match=r"pip install 'relaxlab\[tvm\]'"):
            call()
    with pytest.raises(ModuleNotFoundError):
        TVMGlobals().get_function("nobody.has.this")
    assert TVMGlobals().get_function("vm.builtin.copy") is None


@pytest.mark.usefixtures("without_packages")
def test_without_the_packages_a_library_opens_up_to_the_first_kernel():
    machine = VirtualMachine(tvm_ffi.open_program(SO), cpu())
    with pytest.raises(InternalError, match=r"kernel 'spread' is .* inside library\.so"):
        machine["wide"](*map(decode, RECORD["runs"][1]["args"]))


class Loader:
    """What `tvm_ffi` does when it loads a library, in Python."""

    def __init__(self, refuse=None):
        self.functions, self.refuse, self.cleared = {}, refuse, 0
        self.pointers = {}

        def pointer(name, address):
            self.pointers[name.decode()] = address.value

        self.LIB = SimpleNamespace(TVMFFIEnvModRegisterContextSymbol=pointer)

    def __call__(self, name):
        assert name == "tvm_ffi"
        return self

    def get_global_func(self, name, allow_missing):
        return self.functions.get(name)

    def register_global_func(self, name, function):
        self.functions[name] = function

    def remove_global_func(self, name):
        del self.functions[name]

    def system_lib(self, prefix):
        def clear():
            self.cleared += 1

        return SimpleNamespace(imports=[], clear_imports=clear)

    def load_module(self, path):
        if self.refuse is not None:
            raise self.refuse
        module = self.functions["ffi.Module.load_from_bytes.relax.VMExecutable"](b"executable")
        module.imports.append(SimpleNamespace(kind="library"))
        return module


@pytest.fixture
def loader(monkeypatch):
    loader = Loader()
    monkeypatch.setattr(ffi_values, "import_module", loader)
    monkeypatch.setattr(tvm_ffi, "find_spec", lambda name: "found")
    return loader


def test_loading_takes_the_name_of_the_loader_only_meanwhile(loader):
    ex = tvm_ffi.load_module(SO)
    assert repr(ex.imports) == "[FFILibrary(library)]"
    assert loader.functions == {}
    assert loader.cleared == 1
    assert set(loader.pointers) == set(c_backend.PROVIDED)
    loader.refuse = RuntimeError("long\nwrong architecture\n")
    with pytest.raises(InternalError, match=r"machine code of library\.so: wrong architecture$"):
        tvm_ffi.load_module(SO)
    assert loader.functions == {}


def test_a_library_for_another_machine_can_still_be_stepped(loader):
    loader.refuse = OSError("wrong architecture")
    machine = VirtualMachine(tvm_ffi.open_program(SO), cpu())
    with pytest.raises(InternalError, match=r"'spread' .* library\.so: wrong architecture; to"):
        machine["wide"](*map(decode, RECORD["runs"][1]["args"]))


def test_what_only_the_runtime_of_tvm_has_is_refused_before_the_library_is_loaded(loader, tmp_path):
    loader.refuse = AssertionError("loaded")
    data = SO.read_bytes().replace(b"__TVMBackendFreeWorkspace", b"__TVMBackendFrobWorkspace")
    path = tmp_path / "m.so"
    path.write_bytes(data)
    with pytest.raises(InternalError, match=r"m\.so needs __TVMBackendFrobWorkspace of TVM's own"):
        tvm_ffi.load_module(path)
    with pytest.raises(InternalError, match=r"library\.dll needs const_loader of TVM's own"):
        tvm_ffi.load_module(golden_vm.library("dll"))


def test_a_file_without_machine_code_needs_no_loader(loader, tmp_path):
    path = tmp_path / "m.bin"
    path.write_bytes(golden_vm.executable_bytes("eb_if"))
    with pytest.raises(InternalError, match=r"m\.bin is no shared library"):
        tvm_ffi.load_module(path)
    assert tvm_ffi.open_program(path).imports == []


def test_an_unsafe_program_is_refused_before_the_library_is_loaded(loader, tmp_path):
    loader.refuse = AssertionError("loaded")
    good = bytes.fromhex(RECORD["bytes_hex"])
    bad = bytearray(good)
    bad[-8:] = (2**40).to_bytes(8, "little")  # the register of the last Ret
    path = tmp_path / "m.so"
    path.write_bytes(SO.read_bytes().replace(good, bytes(bad)))
    for load in (tvm_ffi.load_module, tvm_ffi.open_program):
        with pytest.raises(InternalError, match="not safe to run"):
            load(path)


# ---- the C functions --------------------------------------------------------------------------


def test_workspaces_are_aligned_memory_that_is_given_back():
    allocate = c_backend.PROVIDED["__TVMBackendAllocWorkspace"]
    free = c_backend.PROVIDED["__TVMBackendFreeWorkspace"]
    for size in (0, 1, 63, 64, 100_000):
        start = allocate(1, 0, size, 2, 32)
        assert start % 64 == 0
        ctypes.memset(start, 7, size)
        assert free(1, 0, start) == 0
    assert allocate(1, 0, 2**64 - 1, 2, 32) is None
    assert allocate(1, 0, 2**62, 2, 32) is None


def test_a_parallel_loop_is_one_task_on_this_thread():
    seen = []

    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    def body(task, group, data):
        seen.append((task, ctypes.c_int32.from_address(group + 8).value, data))
        return 5

    launch = c_backend.PROVIDED["__TVMBackendParallelLaunch"]
    pointer = ctypes.cast(launch, ctypes.c_void_p)
    call = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)
    address = ctypes.cast(body, ctypes.c_void_p)
    assert call(pointer.value)(address, 1234, 4) == 5
    assert seen == [(0, 1, 1234)]
    assert c_backend.PROVIDED["__TVMBackendParallelBarrier"](0, None) == 0


def test_values_without_a_border_pass_as_they_are():
    for value in (None, True, 3, 2.5, "a", b"b"):
        assert ffi_values.from_ffi(value) is value
    assert np.isnan(ffi_values.from_ffi(float("nan")))
