"""The difference of texts in the page: see tests/js/text_diff.test.mjs."""

import shutil
import subprocess
from pathlib import Path

import pytest


def test_the_page_compares_texts():
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not here: apt-get install nodejs")
    done = subprocess.run(
        [node, "--test", "tests/js/text_diff.test.mjs"],
        cwd=Path(__file__).resolve().parents[2],
        env={"PATH": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
