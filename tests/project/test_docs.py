"""What the documentation says is true: every example runs, every public module says what it is."""

import ast
import doctest
import re
import subprocess
import sys
import textwrap
import warnings
from importlib import import_module
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCES = sorted((REPOSITORY / "relaxlab").rglob("*.py"))
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def module_name(path: Path) -> str:
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = [name for name in map(module_name, SOURCES) if not name.endswith("__main__")]


@pytest.mark.parametrize("name", MODULES)
def test_docs_examples_run(name):
    module = import_module(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        failed, _ = doctest.testmod(module, optionflags=OPTIONS, verbose=False)
    assert failed == 0


@pytest.mark.parametrize("path", SOURCES, ids=module_name)
def test_docs_say_what_a_module_is_for_and_what_is_public(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstring = ast.get_docstring(tree)
    assert docstring
    private = any(part.startswith("_") and part != "__init__.py" for part in path.parts)
    tables = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and [target.id for target in node.targets if isinstance(target, ast.Name)] == ["__all__"]
    ]
    if tables and not private:
        names = ast.literal_eval(tables[0])
        assert names == sorted(names)


def test_docs_of_the_readme_run(tmp_path):
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```python\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    for number, block in enumerate(blocks):
        # A decorator reads its function's source, which must therefore be in a file.
        path = tmp_path / f"block_{number}.py"
        path.write_text(textwrap.dedent(block), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-W", "error", path], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "@main" in done.stdout
