"""The examples in the runtime's docs are true, and it needs only NumPy and ml_dtypes."""

import doctest
import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

from relaxlab import runtime

MODULES = ["relaxlab.runtime"] + [
    module.name for module in pkgutil.walk_packages(runtime.__path__, "relaxlab.runtime.")
]

BARE = """
import sys

class OnlyTheseTwo:
    def find_spec(self, name, path=None, target=None):
        root = name.partition(".")[0]
        if root in {"relaxlab", "numpy", "ml_dtypes"} or root in sys.stdlib_module_names:
            return None
        if path is None and not name.startswith("_"):
            raise ModuleNotFoundError(f"{name} is not installed", name=name)

sys.meta_path.insert(0, OnlyTheseTwo())
from relaxlab import runtime
from relaxlab.runtime.vm import VMExecutable, VirtualMachine
assert runtime.tensor([1]).numpy().tolist() == [1]
above = {"ir", "tirx", "relax", "codegen", "script", "te", "topi", "trace", "widgets"}
loaded = {name.split(".")[1] for name in sys.modules if name.startswith("relaxlab.")}
assert not loaded & above, loaded & above
"""


@pytest.mark.parametrize("name", MODULES)
def test_docs_examples(name):
    result = doctest.testmod(import_module(name), optionflags=doctest.ELLIPSIS)
    assert result.failed == 0


@pytest.mark.parametrize("name", MODULES)
def test_docs_names_are_sorted_and_exist(name):
    module = import_module(name)
    assert module.__doc__
    names = getattr(module, "__all__", [])
    assert names == sorted(names), name
    assert all(hasattr(module, name) for name in names)


def test_the_runtime_needs_only_numpy_and_ml_dtypes():
    done = subprocess.run(
        [sys.executable, "-c", BARE], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
