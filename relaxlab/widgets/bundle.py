"""One script from a view's modules, so that a view may share code and still be a single file.

A notebook loads a view from one text, and a page under a strict content security policy can load
nothing at all. So the modules that a view imports from its own folder are put into it, each in a
function scope of its own: names of two files cannot meet. There is no build step and no TVM
counterpart.

Only the forms that the views use are understood, each at the start of a line:
``import { a, b } from "./file.js";``, ``export`` before a declaration, and one ``export default``.
Anything else that looks like an import or export is refused, and so is text that would end the
script element of a page.

Examples
--------
>>> from relaxlab.widgets.view import STATIC
>>> bundle(STATIC / "vm_stepper.js").splitlines()[-1]
'export default relaxlab_view;'
"""

import re
from pathlib import Path
from typing import Final

__all__ = ["VIEW", "as_script", "bundle", "stylesheet"]

VIEW: Final = "relaxlab_view"
"""What the view is called in a script made by :func:`as_script`."""

_PREFIX: Final = "relaxlab_module_"
_LAST_LINE: Final = f"export default {VIEW};\n"
_IMPORT: Final = re.compile(
    r'^import \{(?P<names>[\w\s,$]*)\} from "\./(?P<file>[\w-]+)\.js";$', re.MULTILINE
)
_EXPORT: Final = re.compile(
    r"^export (?=(?:async )?(?:function\*?|class|const) (?P<name>[\w$]+))", re.MULTILINE
)
_DEFAULT: Final = re.compile(r"^export default (?!function|class|async)", re.MULTILINE)
_LEFT_OVER: Final = re.compile(r"^\s*(?:import\b(?!\s*\()|export\b).*$", re.MULTILINE)
_ENDS_A_SCRIPT: Final = re.compile(r"</script|<script|<!--", re.IGNORECASE)
_ENDS_A_STYLE: Final = re.compile(r"</style", re.IGNORECASE)


def bundle(path: Path) -> str:
    """Return a view's module with everything that it imports, as one module.

    Parameters
    ----------
    path
        The view's file; its ``export default`` is the view.

    Raises
    ------
    ValueError
        If a file cannot be put into a script; the message names file and line.
    """
    modules: dict[str, str] = {}
    main = _scope(path, modules, ("default",), ())
    return "".join(modules.values()) + f"const {VIEW} = {main}.default;\n" + _LAST_LINE


def as_script(module: str) -> str:
    """Return a bundled module without its export: the view is in the constant :data:`VIEW`."""
    if not module.endswith(_LAST_LINE):
        raise ValueError(f"expected a module made by bundle(), which ends with {_LAST_LINE!r}")
    return module.removesuffix(_LAST_LINE)


def stylesheet(*paths: Path) -> str:
    """Return several style sheets as one."""
    text = "\n".join(path.read_text("utf-8") for path in paths)
    if found := _ENDS_A_STYLE.search(text):
        raise ValueError(f"{found[0]!r} would end the style element of a page")
    return text


def _scope(
    path: Path, modules: dict[str, str], wanted: tuple[str, ...], importing: tuple[str, ...]
) -> str:
    """Add a module and those it imports to ``modules``; return an expression for it."""
    text = path.read_text("utf-8").replace("\r\n", "\n")
    if path.stem in importing:
        raise ValueError(f"{path.name} imports itself: {' -> '.join([*importing, path.stem])}")
    if found := _ENDS_A_SCRIPT.search(text) or re.search(_PREFIX, text):
        raise ValueError(f"{_where(path, text, found.start())}: a script cannot hold {found[0]!r}")

    def linked(match: re.Match[str]) -> str:
        names = tuple(name.strip() for name in match["names"].split(",") if name.strip())
        file = path.with_name(f"{match['file']}.js")
        source = _scope(file, modules, names, (*importing, path.stem))
        return f"const {{ {', '.join(names)} }} = {source};"

    body = _IMPORT.sub(linked, text)
    exported = [match["name"] for match in _EXPORT.finditer(body)]
    body = _EXPORT.sub("", body)
    returned = list(exported)
    if _DEFAULT.search(body):
        body = _DEFAULT.sub(f"const {_PREFIX}default = ", body, count=1)
        returned.append(f"default: {_PREFIX}default")
        exported.append("default")
    if found := _LEFT_OVER.search(body):
        line = found[0].strip()
        raise ValueError(f"{_where(path, body, found.start())}: not understood: {line!r}")
    missing = [name for name in wanted if name not in exported]
    if missing:
        raise ValueError(f"{path.name} does not export {', '.join(missing)}")
    name = _PREFIX + re.sub(r"\W", "_", path.stem)
    modules[name] = (
        f"const {name} = (() => {{\n{body}\nreturn {{ {', '.join(returned)} }};\n}})();\n"
    )
    return name


def _where(path: Path, text: str, index: int) -> str:
    return f"{path.name}, line {text.count(chr(10), 0, index) + 1}"
