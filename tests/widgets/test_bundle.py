"""Modules put into one script: names cannot meet, and what is not understood is refused."""

import json
import re
import shutil
import subprocess

import pytest

from relaxlab.widgets.bundle import as_script, bundle, stylesheet
from relaxlab.widgets.view import STATIC


@pytest.fixture
def folder(tmp_path):
    def write(**modules):
        for name, text in modules.items():
            (tmp_path / f"{name}.js").write_text(text, encoding="utf-8")
        return tmp_path / "main.js"

    return write


def run(script):
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not here: apt-get install nodejs")
    done = subprocess.run(
        [node, "--input-type=module", "-"],
        input=script,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return json.loads(done.stdout)


def test_names_of_two_files_do_not_meet(folder):
    main = folder(
        main='import { twice } from "./one.js";\n'
        'import {\n  half,\n  Name$,\n} from "./two.js";\n'
        'const view = 1, state = "mine", model = 3, secret = 4;\n'
        "export function render() {\n"
        "  return [view, state, model, secret, twice(5), half(6), Name$];\n}\n"
        "export default { render };\n",
        one='import { half } from "./two.js";\n'
        "const secret = 2;\nexport const twice = (x) => secret * x * half(2);\n",
        two="const secret = 0.5;\nexport class Name$ {}\nName$.toJSON = () => 'N';\n"
        "export function half(x) { return x * secret; }\n",
    )
    module = bundle(main)
    tail = "const view = 7, render = 8; console.log(JSON.stringify(relaxlab_view.render()));"
    assert run(as_script(module) + tail) == [1, "mine", 3, 4, 10, 3, "N"]
    # each module once, before those that use it
    assert module.count("const secret = 0.5") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "export { a as b };\nexport default {};",
            "main.js, line 1: not understood: 'export { a as b };'",
        ),
        ("const a = 1;\nexport * from './one.js';", "main.js, line 2: not understood"),
        ('import x from "./one.js";\nexport default x;', "line 1: not understood: 'import x from"),
        ('import { a } from "https://cdn/x.js";\nexport default a;', "line 1: not understood"),
        ('import { b } from "./one.js";\nexport default b;', "one.js does not export b"),
        (
            'import { a } from "./main.js";\nexport default a;',
            "main.js imports itself: main -> main",
        ),
        ("const a = '</script>';\nexport default a;", "main.js, line 1: a script cannot hold"),
        ("export default {};\n// <!-- no", "main.js, line 2: a script cannot hold"),
        ("export default 1;\nexport default 2;", "main.js, line 2: not understood"),
        ("export default function () {}", "not understood"),
        ("const a = 1;", "main.js does not export default"),
        ("const relaxlab_module_one = 1;\nexport default {};", "a script cannot hold"),
    ],
)
def test_what_is_not_understood_is_refused(folder, text, message):
    main = folder(main=text, one="export const a = 1;\n")
    with pytest.raises(ValueError, match=re.escape(message)):
        bundle(main)


def test_a_module_that_is_not_bundled_has_no_script():
    with pytest.raises(ValueError, match=r"expected a module made by bundle\(\)"):
        as_script("export default {};\n")


def test_a_style_cannot_end_its_element(tmp_path):
    (tmp_path / "x.css").write_text("a::after { content: '</style>' }")
    with pytest.raises(ValueError, match="would end the style element"):
        stylesheet(tmp_path / "x.css")


def test_the_views_are_modules_that_node_can_read():
    module = bundle(STATIC / "vm_stepper.js")
    assert run(as_script(module) + "console.log(JSON.stringify(Object.keys(relaxlab_view)));") == [
        "render"
    ]
    for name in ("fetch(", "import(", "http://", "https://", "eval(", "innerHTML"):
        text = module.replace("http://www.w3.org/2000/svg", "")
        assert name not in text
