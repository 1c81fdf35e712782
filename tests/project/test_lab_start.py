"""`relaxlab lab`: JupyterLab on loopback, with a token, at the tour, until Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

import psutil
import pytest

from relaxlab.cli.lab.server import free_port, isolated_environment

# The notebooks of an installed wheel, which here is a folder with one empty notebook.
PROGRAM = """
import sys
from pathlib import Path
import relaxlab.cli.lab
import relaxlab.cli.lab.notebooks as notebooks
notebooks._INSTALLED = Path(sys.argv[1])
relaxlab.cli.lab.find_notebooks = lambda: notebooks._INSTALLED
sys.exit(relaxlab.cli.main(["lab", *sys.argv[2:]]))
"""
EMPTY = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'


def answers(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return response.status
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_lab_listens_on_loopback_with_a_token_and_stops_at_ctrl_c(tmp_path):
    installed = tmp_path / "installed"
    installed.mkdir()
    (installed / "00_tour.ipynb").write_text(EMPTY, encoding="utf-8")
    here = tmp_path / "here"
    here.mkdir()
    scratch = tmp_path / "scratch"
    port = free_port()
    words = [sys.executable, "-c", PROGRAM, str(installed), "--no-browser", "--port", str(port)]
    process = subprocess.Popen(
        words,
        cwd=here,
        env=isolated_environment(scratch),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        base = f"http://127.0.0.1:{port}/api/"
        deadline = time.monotonic() + 30
        while answers(base) != 200 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        try:
            connections = psutil.Process(process.pid).net_connections("inet")
            listening = {c.laddr for c in connections if c.status == psutil.CONN_LISTEN}
            refused = answers(base + "contents")
        finally:
            process.send_signal(signal.SIGINT)
            assert process.stdout is not None
            out = process.stdout.read()
        assert process.wait(timeout=15) == 0
    assert {address.ip for address in listening} == {"127.0.0.1"}
    assert refused == 403
    assert f"Starting JupyterLab in {here}" in out
    address = re.search(
        rf"http://127\.0\.0\.1:{port}/lab/tree/relaxlab-notebooks/00_tour\.ipynb\?token=(\w+)", out
    )
    assert address
    assert len(address[1]) >= 32
    assert "Traceback" not in out
    assert (here / "relaxlab-notebooks" / "00_tour.ipynb").is_file()
