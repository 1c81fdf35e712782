"""``relaxlab generate``: the real model's tokens, the tiny model's text, and mistakes."""

import json

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


def test_a_program_reads_the_same_as_a_reader(capsys):
    arguments = ["generate", "hello", "-n", "8", "--greedy"]
    assert main([*arguments, "--print-ids"]) == 0
    *lines, ids = capsys.readouterr().out.split("\n")[:-1]
    assert main([*arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["text"] == "\n".join(lines)
    assert answer["ids"] == [int(word) for word in ids.split()[1:]]
    assert answer["prompt_ids"] == list(b"hello")


@pytest.mark.parametrize("page_size", ["1", "5", "16"])
def test_a_paged_cache_changes_no_token(page_size, capsys):
    arguments = ["generate", "hello", "-n", "24", "--model", "tiny", "--greedy", "--print-ids"]
    assert main(arguments) == 0
    plain = capsys.readouterr().out
    assert main([*arguments, "--paged", "--page-size", page_size]) == 0
    assert capsys.readouterr().out == plain


def test_smollm2_continues_the_same_through_pages(smollm2_path, smollm2, capsys):
    arguments = ["generate", PROMPT, "-n", "32", "--greedy", "--print-ids", "--paged"]
    assert main([*arguments, "--model", str(smollm2_path), "--page-size", "16"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"ids: {TOKENS}"


@pytest.mark.parametrize("way", [[], ["--paged"]])
def test_no_token_is_a_valid_wish(way, capsys):
    assert main(["generate", "hello", "-n", "0", "--model", "tiny", "--print-ids", *way]) == 0
    assert capsys.readouterr().out == "\nids:\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["", "-n", "1"], "empty"),
        (["x", "-n", "-1"], "negative"),
        (["x", "--temperature", "-1"], "temperature"),
        (["x", "--top-p", "0"], "top-p"),
        (["x", "--paged", "--page-size", "0"], "page-size"),
        (["x" * 3000, "--paged"], "context"),
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


def test_a_seed_gives_the_same_text_with_and_without_pages(capsys):
    said = []
    for words in ([], ["--paged"], ["--page-size", "4"]):
        assert main(["generate", "hello", "-n", "12", "--seed", "3", "--print-ids", *words]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2]


@pytest.mark.parametrize("words", [[], ["--paged"]])
def test_a_full_context_is_told(words, capsys):
    assert main(["generate", "hello", "-n", "100000", "--greedy", *words]) == 0
    error = capsys.readouterr().err
    assert error.startswith("relaxlab: stopped after ")
    assert "context of" in error
    assert error.count("\n") == 1
    assert main(["generate", "hello", "-n", "3", "--greedy", *words]) == 0
    assert capsys.readouterr().err == ""
