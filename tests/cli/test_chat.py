"""``relaxlab chat``: turns, branches, pages, and mistakes."""

import io

import pytest

from relaxlab.cli import main


def _chat(monkeypatch, capsys, lines, *arguments):
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
    code = main(["chat", "--model", "tiny", "--page-size", "8", "-n", "12", *arguments])
    return code, capsys.readouterr().out.splitlines()


def test_it_answers_line_by_line_and_the_same_each_time(monkeypatch, capsys):
    first = _chat(monkeypatch, capsys, ["hello", "", "again"])
    assert first[0] == 0
    assert len(first[1]) == 2
    assert _chat(monkeypatch, capsys, ["hello", "again"]) == first
    assert _chat(monkeypatch, capsys, ["hello", "again"], "--seed", "5") != first


def test_a_fork_goes_its_own_way(monkeypatch, capsys):
    lines = ["hello", "/fork", "left", "/switch 0", "right", "/history"]
    _, out = _chat(monkeypatch, capsys, lines, "--greedy")
    assert out[1] == "branch 1: as branch 0 so far"
    assert out[3] == "branch 0: 2 turns"
    assert [line.split(": ")[0] for line in out[5:]] == ["user", "reply"] * 2
    assert out[7] == "user: right"


def test_pages_shows_who_has_them(monkeypatch, capsys):
    _, out = _chat(monkeypatch, capsys, ["a sentence of some length", "/fork", "b", "/pages"])
    text = "\n".join(out)
    assert "pages in use" in text
    assert "kept for its contents" in text
    _, out = _chat(monkeypatch, capsys, ["/pages"])
    assert out[0].startswith("0 of 513 pages in use")


def test_new_forgets_and_unknown_words_show_the_commands(monkeypatch, capsys):
    _, out = _chat(
        monkeypatch, capsys, ["hello", "/new", "/history", "/what", "/switch 7", "/quit", "x"]
    )
    assert out[1:] == [
        "branch 0: empty",
        "/fork  /switch N  /history  /pages  /new  /quit",
        "expected a branch from 0 to 0, got '7'",
    ]


def test_a_full_conversation_is_one_line(monkeypatch, capsys):
    _, out = _chat(monkeypatch, capsys, ["x" * 200, "ok"], "--capacity", "64")
    assert "full" in out[0]
    assert "/new" in out[0]
    assert len(out) == 2


@pytest.mark.parametrize(
    "arguments", [["-n", "0"], ["--page-size", "0"], ["--top-p", "2"], ["--model", "no/such.gguf"]]
)
def test_a_mistake_is_one_line(arguments, capsys):
    assert main(["chat", *arguments]) != 0
    out, err = capsys.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert "Traceback" not in err
