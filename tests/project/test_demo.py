"""``relaxlab demo``: a tour of the terminal, and the same as pages."""

import re
import time

from relaxlab.cli import main
from relaxlab.widgets import demos


def test_the_tour_compiles_steps_and_shows_pages(capsys):
    clock = time.perf_counter()
    assert main(["demo"]) == 0
    assert time.perf_counter() - clock < 20
    said = capsys.readouterr().out
    assert said.count("\n== ") == 3
    for expected in ("R.nn.softmax", "call  vm.builtin.alloc_storage", "One step back: <Debug"):
        assert expected in said
    for phase in ("fetch", "decode", "read", "call", "write"):
        assert re.search(rf"^  {phase} +\S", said, re.MULTILINE)
    frames = re.findall(r"^event (\d+) of \d+: \d+ of \d+ pages", said, re.MULTILINE)
    assert len(frames) >= 12
    assert list(map(int, frames)) == sorted(map(int, frames))
    assert "is evicted: lru" in said.partition("in short:")[2]


def test_five_pages_are_written(tmp_path, capsys, monkeypatch):
    # the model that is always there: what is tested is the command
    monkeypatch.setattr(demos, "_model", lambda _: demos.open_model("tiny"))
    assert main(["demo", "--export", str(tmp_path / "new" / "pages")]) == 0
    found = sorted(path.name for path in (tmp_path / "new" / "pages").iterdir())
    assert found == sorted(f"{name}.html" for name in demos.names())
    assert len(capsys.readouterr().out.splitlines()) == len(demos.names()) == 5


def test_a_file_is_no_folder(tmp_path, capsys):
    (tmp_path / "x").write_text("mine")
    assert main(["demo", "--export", str(tmp_path / "x")]) == 2
    assert "expected a folder after --export" in capsys.readouterr().err
    assert (tmp_path / "x").read_text() == "mine"
