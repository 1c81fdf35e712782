"""``relaxlab generate``: the real model's tokens, the tiny model's text, and mistakes."""

import pytest

from relaxlab.cli import main

PROMPT = "The capital of France is"
#: Greedy tokens of llama.cpp and of NumPy float32 after PROMPT.
TOKENS = (
    "7042 30 198 198 504 2988 314 42 216 34 32 33 40 29 32 33 29 34 34 216 33 34 42 33 34 42 37 "
    "35 30 2 198 1"
)


def test_smollm2_continues_as_llama_cpp_does(smollm2_path, smollm2, capsys):
    arguments = ["generate", PROMPT, "-n", "32", "--greedy", "--print-ids"]
    assert main([*arguments, "--model", str(smollm2_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(" Paris")
    assert lines[-1] == f"ids: {TOKENS}"


def test_the_tiny_model_needs_no_download(capsys):
    assert main(["generate", "hello", "-n", "8", "--model", "tiny", "--greedy", "--print-ids"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("ids: ")
    assert len(lines[-1].split()) == 9


def test_no_token_is_a_valid_wish(capsys):
    assert main(["generate", "hello", "-n", "0", "--model", "tiny", "--print-ids"]) == 0
    assert capsys.readouterr().out == "\nids:\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["", "-n", "1"], "empty"),
        (["x", "-n", "-1"], "negative"),
        (["x", "--temperature", "-1"], "temperature"),
        (["x", "--top-p", "0"], "top-p"),
        (["x", "--model", "no/such.gguf"], "no/such.gguf"),
    ],
)
def test_a_mistake_is_one_line(arguments, words, capsys):
    assert main(["generate", *arguments]) != 0
    out, err = capsys.readouterr()
    assert not out
    assert words in err
    assert err.count("\n") == 1
    assert "Traceback" not in err
