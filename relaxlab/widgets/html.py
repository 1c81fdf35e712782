"""One HTML file from a view: its code, its style and its state inlined, and nothing else.

The page carries a strict content security policy: only the script and style in it, by their
digests, may run, and nothing may be fetched. There is no TVM counterpart.

Examples
--------
>>> page = standalone(title="t", esm="export default {render(){}}", css="", state={}, text="twin")
>>> "default-src 'none'" in page
True
"""

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["standalone"]

# The part of a widget model that views use, over the state in the page.
_SHIM = """
const state = JSON.parse(document.getElementById("state").textContent);
const model = {
  get: (name) => state[name],
  set: (name, value) => { state[name] = value; },
  save_changes() {}, on() {}, off() {},
};
view.render({ model, el: document.getElementById("view") });
document.getElementById("twin").hidden = true;
"""


def standalone(*, title: str, esm: str, css: str, state: Mapping[str, Any], text: str) -> str:
    """Return the page.

    Parameters
    ----------
    title
        Heading.
    esm
        The view's module; its ``export default`` has ``render({model, el})``.
    css
        Its style.
    state
        What ``model.get`` answers; JSON.
    text
        The text twin, shown where scripts do not run.
    """
    script = _as_script(esm) + _SHIM
    style = (
        css + "\nbody { margin: 16px; font-family: system-ui, sans-serif; } h1 { font-size: 16px; }"
    )
    style += (
        "\n@media (prefers-color-scheme: dark) { body { color: #f0f0f0; background: #111; } }\n"
    )
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    # a script element ends at the first "</", whatever is around it
    data = json.dumps(state, separators=(",", ":")).replace("<", "\\u003c")
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


def _as_script(esm: str) -> str:
    """Turn a module into a script with its default export in ``view``."""
    return esm.replace("export default ", "const view = ").replace("export ", "")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
