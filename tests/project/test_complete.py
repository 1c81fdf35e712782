"""``relaxlab complete``: what a real shell offers when the key is pressed."""

import shlex
import shutil
import subprocess

import pytest

from relaxlab.cli import command_names, main
from relaxlab.cli.complete import script

DRIVE = r"""
source ./relaxlab.bash
[[ $(complete -p relaxlab) =~ -F\ ([^ ]+) ]]
function=${BASH_REMATCH[1]}
while read -r line; do
  eval "COMP_WORDS=($line)"
  COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )) COMPREPLY=()
  "$function"
  echo "${COMPREPLY[*]}"
done
"""
LINES = {
    "": command_names(),
    "d": ["demo", "diff", "dis", "doctor"],
    "--v": ["--version"],
    "dis mod": ["model.bin", "model.gguf"],
    "dis --s": ["--sections", "--stats"],
    "step model.bin main x": ["x.npy"],
    "trace model.bin main -o pag": ["pages"],
    "generate hi --model model.g": ["model.gguf"],
    "course ": ["release", "site"],
    "course release pag": ["pages"],
    "model g": ["get"],
    "model get ": ["smollm2"],
    "complete ": ["bash", "fish", "zsh"],
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_options_choices_and_files(tmp_path):
    (tmp_path / "relaxlab.bash").write_text(script("bash"), encoding="utf-8")
    for name in ("model.bin", "model.gguf", "x.npy"):
        (tmp_path / name).touch()
    (tmp_path / "pages").mkdir()
    typed = "".join(shlex.join(["relaxlab", *line.split(" ")]) + "\n" for line in LINES)
    done = subprocess.run(
        ["bash", "--norc", "-c", DRIVE],
        cwd=tmp_path,
        input=typed,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    offered = [sorted(line.split()) for line in done.stdout.splitlines()]
    assert dict(zip(LINES, offered, strict=True)) == LINES


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_its_script(shell, capsys):
    assert main(["complete", shell]) == 0
    printed = capsys.readouterr().out
    assert printed == script(shell) + "\n"
    for word in ("page-size", "release", "smollm2"):
        assert word in printed
