"""One HTML file from a view: its code, its style and its state inlined, and nothing else.

The page carries a strict content security policy: only the script and style in it, by their
digests, may run, and nothing may be fetched. There is no TVM counterpart.

Examples
--------
>>> from relaxlab.widgets.bundle import bundle
>>> from relaxlab.widgets.view import STATIC
>>> esm = bundle(STATIC / "vm_stepper.js")
>>> page = standalone(title="t", esm=esm, css="", state={}, text="twin")
>>> page.splitlines()[0], page.count("<script"), "http-equiv" in page
('<!DOCTYPE html>', 2, True)
"""

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from typing import Any, Final

from relaxlab.widgets.bundle import VIEW, as_script

__all__ = ["standalone"]

# The part of a widget model that views use, over the state in the page. In a block: its names
# cannot meet those of the view.
_SHIM: Final = f"""{{
  const state = JSON.parse(document.getElementById("state").textContent);
  const model = {{
    get: (name) => state[name],
    set: (name, value) => {{ state[name] = value; }},
    save_changes() {{}}, on() {{}}, off() {{}},
  }};
  {VIEW}.render({{ model, el: document.getElementById("view") }});
  document.getElementById("twin").hidden = true;
}}
"""
_STYLE: Final = """
:root { color-scheme: light dark; }
body { margin: 16px; font-family: system-ui, sans-serif; }
body { color: light-dark(#1c1c1c, #f0f0f0); background: light-dark(#ffffff, #111111); }
h1 { font-size: 16px; margin: 0 0 12px; overflow-wrap: anywhere; }
"""


def standalone(*, title: str, esm: str, css: str, state: Mapping[str, Any], text: str) -> str:
    """Return the page.

    Parameters
    ----------
    title
        Heading.
    esm
        The view's module, made by :func:`relaxlab.widgets.bundle.bundle`; its default export has
        ``render({model, el})``.
    css
        Its style.
    state
        What ``model.get`` answers; JSON.
    text
        The text twin, shown where scripts do not run.

    Raises
    ------
    ValueError
        If the state holds a number that JSON has no word for, or the module is not bundled.
    """
    script = as_script(esm) + _SHIM
    style = css + _STYLE
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # a script element ends at the first "</", whatever is around it
    data = json.dumps(state, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return f"""<!DOCTYPE html>
<html lang="en" class="rl-standalone">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>{style}</style>
</head>
<body>
<main>
<h1>{html.escape(title)}</h1>
<div id="view"></div>
<pre id="twin">{html.escape(text)}</pre>
</main>
<script type="application/json" id="state">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
