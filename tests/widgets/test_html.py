"""The exported page as text; tests/browser/test_exported_page.py opens it."""

import base64
import hashlib
import html
import json
import re

import pytest

from relaxlab.widgets import VMStepper
from relaxlab.widgets.html import standalone
from tests.trace.conftest import build

HOSTILE = "</script><script>alert(1)</script> <!-- \u2028 \u2029 & \" ' \x00 \U0001f600 \ud800"


def part(page, pattern):
    return re.search(pattern, page, re.DOTALL)[1]


def test_the_page_holds_everything_and_allows_nothing_else(stepper, tmp_path):
    stepper.step(2)
    path = stepper.to_html(tmp_path / "page.html")
    page = path.read_text("utf-8")
    policy = html.unescape(part(page, r'Content-Security-Policy" content="([^"]*)"'))
    script, style = (
        part(page, r'<script type="module">(.*?)</script>'),
        part(page, r"<style>(.*?)</style>"),
    )
    for kind, text in (("script", script), ("style", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    state = json.loads(part(page, r'id="state">(.*?)</script>'))
    assert state == {
        "trace": stepper.trace,
        "position": 2,
        "visits": stepper.visits,
        "breakpoints": [],
        **{name: [] for name in ("displays", "logs", "notes", "edited", "pictures")},
        "sources": {},
        "inside": False,
        "skip_builtins": False,
        "halts": [],
    }
    assert html.unescape(part(page, r'<pre id="twin">(.*?)</pre>')) == str(stepper)
    assert "<title>down: 12 steps</title>" in page
    assert list(tmp_path.iterdir()) == [path]


def test_unusual_characters_do_no_harm(tmp_path):
    def body(ib):
        ib.emit_call("vm.builtin.make_tuple", [ib.r(0)], dst=1)
        ib.emit_ret(ib.r(1))

    stepper = VMStepper(build(("main", 1, ["x"], body)), "main", HOSTILE)
    path = stepper.to_html(tmp_path / "page.html", title=HOSTILE)
    page = path.read_text("utf-8")
    assert page.count("<script") == 2
    assert "alert(1)" in part(page, r'id="state">(.*?)</script>')
    assert "<!-- " not in page


def test_a_file_is_replaced_as_a_whole_or_not_at_all(stepper, tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(OSError, match="absent"):
        stepper.to_html(tmp_path / "absent" / "page.html")
    monkeypatch.setattr(VMStepper, "_exported", ("trace", "nothing"))
    with pytest.raises(AttributeError):
        stepper.to_html(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    stepper.to_html(str(path))
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_state_that_json_cannot_hold_is_refused():
    module = "const relaxlab_view = {};\nexport default relaxlab_view;\n"
    with pytest.raises(ValueError, match="JSON"):
        standalone(title="t", esm=module, css="", state={"x": float("nan")}, text="")
