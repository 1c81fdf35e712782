"""What the documentation says is true: every example runs, every public module says what it is."""

import ast
import doctest
import inspect
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


# A node's place in a text, and a type that is computed: the same for all, see `relaxlab.ir.node`.
OF_EVERY_NODE = {"span", "ty"}
HEADING = re.compile(r"^(\S.*)\n-{3,}\s*$", re.MULTILINE)
# What a reader imports from; the modules behind them are for those who work on them.
DOORS = [
    name
    for name in MODULES
    if (REPOSITORY / name.replace(".", "/") / "__init__.py").exists() or name.count(".") == 1
]


def documented(module_names):
    """Every class, function and public method that modules name as their own: (name, it)."""
    seen = set()
    for module_name in module_names:
        module = import_module(module_name)
        for exported in getattr(module, "__all__", []):
            value = getattr(module, exported)
            where = getattr(value, "__module__", None) or ""
            if id(value) in seen or not where.startswith("relaxlab"):
                continue
            seen.add(id(value))
            name = f"{value.__module__}.{exported}"
            if inspect.isclass(value) or inspect.isfunction(value):
                yield name, value
            if inspect.isclass(value):
                for attribute, member in vars(value).items():
                    member = getattr(member, "__func__", getattr(member, "fget", member))
                    if inspect.isfunction(member) and not attribute.startswith("_"):
                        yield f"{name}.{attribute}", member


def sections(docstring):
    """The sections of a docstring in NumPy's style, by heading."""
    found = list(HEADING.finditer(docstring))
    ends = [match.start() for match in found[1:]] + [len(docstring)]
    return {one[1]: docstring[one.end() : end] for one, end in zip(found, ends, strict=False)}


def entries(section):
    """The names that a section describes."""
    heads = [line for line in section.splitlines() if line and not line[0].isspace()]
    return [
        name.strip().lstrip("*") for head in heads for name in head.partition(" : ")[0].split(",")
    ]


def parameters(value):
    try:
        names = inspect.signature(value).parameters
    except (TypeError, ValueError):  # a class that is made elsewhere
        return []
    return [name for name in names if name not in ("self", "cls")]


def raised(function):
    """The classes of errors that a function's own lines raise; none for an abstract one."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, IndentationError):  # a function that was made
        return set()
    definition, body = tree.body[0], tree.body[0].body
    if getattr(definition, "name", None) != function.__name__:
        return set()  # one of several that one definition makes, with fewer errors or more
    if len(body) == 2 and isinstance(body[1], ast.Raise):
        return set()  # it says that a subclass must have it
    names, waiting = set(), list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            continue
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            error = ast.unparse(node.exc.func).rpartition(".")[2]
            names |= {error} if error[0].isupper() else set()
        waiting += ast.iter_child_nodes(node)
    return names - {"NotImplementedError", "AssertionError"}


def test_docs_of_every_public_name_say_something():
    silent = [
        name
        for name, value in documented(MODULES)
        if len((inspect.getdoc(value) or "").split()) < 2
    ]
    assert silent == []


def test_docs_list_all_parameters_or_none_and_no_others():
    wrong, lists = [], 0
    for name, value in documented(MODULES):
        described = sections(inspect.getdoc(value) or "").get("Parameters")
        if described is None:
            continue
        lists += 1
        told, there = entries(described), parameters(value)
        unknown = [one for one in told if one not in there]
        missing = [one for one in there if one not in told and one not in OF_EVERY_NODE]
        if unknown or missing:
            wrong.append(f"{name}: no parameter {unknown}, nothing about {missing}")
    assert wrong == []
    assert lists > 300


def test_docs_of_the_doors_name_the_errors_that_they_raise():
    wrong, raising = [], 0
    for name, value in documented(DOORS):
        function = value.__init__ if inspect.isclass(value) else value
        if getattr(value, "_is_protocol", False) or not inspect.isfunction(function):
            continue
        errors = raised(function)
        raising += bool(errors)
        docstring = inspect.getdoc(value) or ""
        if errors and "Raises" not in docstring and not any(one in docstring for one in errors):
            wrong.append(f"{name}: {sorted(errors)}")
    assert wrong == []
    assert raising > 100


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
