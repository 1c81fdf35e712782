"""The recorded executables in tests/golden/vm: bytes, texts and results of the real TVM."""

import json
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "golden" / "vm"

REFUSED = ("eb_bad_goto", "eb_fallthrough", "eb_undefined_register", "eb_void_call_to_vm_func")
"""Programs that TVM builds and runs, and that the verifier must refuse."""


def names() -> list[str]:
    """Every recorded executable, in order of name."""
    return sorted(path.stem for path in FOLDER.glob("*_*.json"))


@cache
def case(name: str) -> dict[str, Any]:
    """Return one recorded executable; its keys are explained in tests/golden/vm/README.md."""
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def executable_bytes(name: str) -> bytes:
    """Return the bytes that TVM wrote."""
    return bytes.fromhex(case(name)["bytes_hex"])


def library(suffix: str) -> Path:
    """Return the path of a recorded shared library: ``"so"``, ``"dll"`` or ``"dylib"``."""
    return FOLDER / f"library.{suffix}"
