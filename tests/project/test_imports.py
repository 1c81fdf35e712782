"""What an import costs and needs: the package is lazy, and the runtime runs alone."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest

import relaxlab

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory):
    """Return a Python with numpy, ml_dtypes and this checkout, and no other package at all."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    windows = sys.platform == "win32"
    python = folder / ("Scripts/python.exe" if windows else "bin/python")
    query = "import sysconfig; print(sysconfig.get_path('purelib'))"
    done = subprocess.run([python, "-c", query], capture_output=True, text=True, check=True)
    site_packages = Path(done.stdout.strip())
    for name in ("numpy", "ml_dtypes"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        package = Path(spec.origin).parent
        # A wheel's shared libraries lie beside the package.
        for source in (package, package.with_name(f"{name}.libs")):
            if source.exists():
                (site_packages / source.name).symlink_to(source, target_is_directory=True)
    (site_packages / "relaxlab.pth").write_text(f"{REPOSITORY}\n", encoding="utf-8")
    return python


def run(python: Path | str, program: str) -> str:
    done = subprocess.run(
        [python, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_bare_environment_is_bare(bare_python):
    program = """
import importlib.util
for name in ("pip", "jupyterlab", "ipywidgets", "anywidget", "tornado", "platformdirs", "pytest"):
    assert importlib.util.find_spec(name) is None, name
import numpy, ml_dtypes
"""
    run(bare_python, program)


def test_the_runtime_needs_only_numpy_and_ml_dtypes(bare_python):
    program = """
import sys
import relaxlab.runtime, relaxlab.runtime.vm
import relaxlab as tvm
tensor = tvm.runtime.tensor([1.0, 2.0])
print(tensor.numpy().sum(), tvm.cpu())
ours = {name.split(".")[1] for name in sys.modules if name.startswith("relaxlab.")}
print(sorted(ours))
"""
    total, ours = run(bare_python, program).splitlines()
    assert total == "3.0 cpu:0"
    assert ours == "['errors', 'registry', 'runtime']"


def test_the_package_is_lazy():
    program = """
import sys
before = set(sys.modules)
import relaxlab
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
assert not loaded & {"numpy", "ml_dtypes", "ipywidgets", "anywidget", "jupyterlab"}, loaded
assert [name for name in sys.modules if name.startswith("relaxlab.")] == []
"""
    run(sys.executable, program)


def test_importing_the_package_costs_nothing_to_speak_of():
    clock = time.perf_counter()
    run(sys.executable, "pass")
    nothing = time.perf_counter() - clock
    clock = time.perf_counter()
    run(sys.executable, "import relaxlab")
    assert time.perf_counter() - clock < nothing + 0.5


@pytest.mark.parametrize("name", sorted(relaxlab.__all__))
def test_every_name_of_the_namespace_resolves(name):
    assert name in dir(relaxlab)
    assert getattr(relaxlab, name) is getattr(relaxlab, name)


def test_the_static_table_and_the_typed_imports_agree():
    source = Path(relaxlab.__file__).read_text(encoding="utf-8")
    for name, (module, attribute) in relaxlab._LAZY.items():
        package, _, last = module.rpartition(".")
        if attribute is None:
            line = f"from {package} import {last} as {name}"
        else:
            line = f"from {module} import {attribute} as {name}"
        assert line in source
    assert set(relaxlab.__all__) == {*relaxlab._LAZY, "__version__"}
    assert relaxlab.__all__ == sorted(relaxlab.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'relaxlab' has no attribute 'nd'"):
        _ = relaxlab.nd
