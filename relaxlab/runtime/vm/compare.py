"""What differs between two executables, function by function.

Indices of constants and functions shift whenever a program changes, so instructions are compared by
what they mean: constants by their content, callees by name. Counterpart: none; with TVM one
compares two disassemblies as text.

Examples
--------
>>> from relaxlab.runtime.vm.bytecode import VMFuncInfo
>>> from relaxlab.runtime.vm.executable import VMExecutable
>>> one = VMExecutable([VMFuncInfo(1, "f", 0, 1, 2, 2)], (), {}, [0], [2, 0])
>>> two = VMExecutable([VMFuncInfo(1, "f", 0, 1, 2, 2)], (), {}, [0], [2, 1])
>>> for difference in compare(one, two):
...     print(difference)
function f: 1 instruction, 1 differs
  -    0  ret   %0
  +    0  ret   %1
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.bytecode import ArgKind, Call, Instruction, VMFuncInfo, VMFuncKind
from relaxlab.runtime.vm.disassemble import (
    TextBudget,
    arg_text,
    call_text,
    constant_text,
    instruction_text,
    lines_of,
)
from relaxlab.runtime.vm.saved_kernels import SavedLibrary

if TYPE_CHECKING:
    from relaxlab.runtime.vm.executable import VMExecutable

__all__ = ["Difference", "compare"]

_CONTEXT: Final = 2
_KINDS: Final = {
    VMFuncKind.PACKED_FUNC: "host function",
    VMFuncKind.VM_FUNC: "function",
    VMFuncKind.VMTIR_FUNC: "compiled function",
}
_KERNEL: Final = re.compile(r"^    @T\.prim_func.*\n    def (\w+)\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that differs.

    Attributes
    ----------
    what
        ``"function"``, ``"host function"``, ``"constant"``, ``"kernel"``, ...
    name
        Its name.
    summary
        How it differs, in words.
    lines
        The details; the first character is ``-`` for the first executable, ``+`` for the second,
        and a blank for what both have.
    """

    what: str
    name: str
    summary: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        head = f"{self.what} {self.name}: {self.summary}"
        return "\n".join([head, *(f"  {line}".rstrip() for line in self.lines)])


def compare(one: "VMExecutable", two: "VMExecutable") -> list[Difference]:
    """Return what differs, in the order of the function tables; nothing if they mean the same.

    Raises
    ------
    InternalError
        If an instruction of either cannot be decoded.
    """
    return [*_tables(one, two), *_scopes(one, two), *_kernels(one, two)]


def _tables(one: "VMExecutable", two: "VMExecutable") -> Iterator[Difference]:
    before, after = ({info.name: info for info in ex.func_table} for ex in (one, two))
    budgets = TextBudget(one), TextBudget(two)
    for name, info in before.items():
        other = after.get(name)
        if other is None:
            yield Difference(_kind(info), name, "only in the first")
        elif other.kind != info.kind:
            yield Difference(_kind(info), name, f"in the second, it is: {_kind(other)}")
        else:
            yield from _function((one, two), (info, other), budgets)
    for name, info in after.items():
        if name not in before:
            yield Difference(_kind(info), name, "only in the second")


def _kind(info: VMFuncInfo) -> str:
    known = [kind for kind in _KINDS if kind == info.kind]
    return _KINDS[known[0]] if known else f"entry of kind {info.kind}"


def _function(
    programs: "tuple[VMExecutable, VMExecutable]",
    infos: tuple[VMFuncInfo, VMFuncInfo],
    budgets: tuple[TextBudget, TextBudget],
) -> Iterator[Difference]:
    name, facts = infos[0].name, []
    for what, values in (
        ("parameters", [info.num_args for info in infos]),
        ("parameter names", [", ".join(info.param_names) or "none" for info in infos]),
        ("registers", [info.register_file_size for info in infos]),
    ):
        if values[0] != values[1]:
            facts.append(f"{what} {values[0]} -> {values[1]}")
    lines: list[str] = []
    if infos[0].kind == VMFuncKind.VM_FUNC:
        texts = [
            [text for _, text in lines_of(ex, info, _meaning, budget=budget)]
            for ex, info, budget in zip(programs, infos, budgets, strict=True)
        ]
        changed, lines = _changes(*texts)
        if changed:
            counts = [len(text) for text in texts]
            total = str(counts[0]) if counts[0] == counts[1] else f"{counts[0]} -> {counts[1]}"
            plural = "" if total == "1" else "s"
            facts.append(f"{total} instruction{plural}, {changed} differ{'s' * (changed == 1)}")
    if facts:
        yield Difference(_kind(infos[0]), name, "; ".join(facts), tuple(lines))


def _meaning(ex: "VMExecutable", instruction: Instruction) -> str:
    """Return the text of an instruction with constants by content."""
    if not isinstance(instruction, Call):
        return instruction_text(ex, instruction)
    operands = [
        f"c[{_content(ex.constants[arg.value])}]"
        if arg.kind == ArgKind.CONST_IDX and 0 <= arg.value < len(ex.constants)
        else arg_text(ex, arg)
        for arg in instruction.args
    ]
    return call_text(ex, instruction, operands)


def _content(value: Any) -> str:
    text = constant_text(value)
    if isinstance(value, Tensor):
        digest = hashlib.sha256(value.array.tobytes()).hexdigest()
        return f"{value.dtype}{text if text != 'scalar' else '[]'} {digest[:8]}"
    if len(text) > 60:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{text[:48]}… {digest[:8]}"
    return text


def _changes(one: list[str], two: list[str]) -> tuple[int, list[str]]:
    """Return how many instructions differ, and the lines that show them with their neighbours."""
    if one == two:
        return 0, []
    changed = 0
    lines: list[str] = []
    matcher = SequenceMatcher(None, one, two, autojunk=len(one) + len(two) > 2000)
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        if lines:
            lines.append(" ...")
        for tag, a, b, c, d in group:
            if tag == "equal":
                lines += [f"  {pc:4}  {one[pc].rstrip()}" for pc in range(a, b)]
                continue
            changed += max(b - a, d - c)
            lines += [f"- {pc:4}  {one[pc].rstrip()}" for pc in range(a, b)]
            lines += [f"+ {pc:4}  {two[pc].rstrip()}" for pc in range(c, d)]
    return changed, lines


def _scopes(one: "VMExecutable", two: "VMExecutable") -> Iterator[Difference]:
    """Compare the memory scopes of constants, by content."""

    def scopes(ex: "VMExecutable") -> dict[str, str]:
        pairs = [(index, scope) for index, scope in ex.memory_scopes.items() if scope]
        return {
            _content(ex.constants[index]): scope
            for index, scope in pairs
            if 0 <= index < len(ex.constants)
        }

    before, after = scopes(one), scopes(two)
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            summary = f"memory scope {before.get(name, 'none')} -> {after.get(name, 'none')}"
            yield Difference("constant", name, summary)


def _kernels(one: "VMExecutable", two: "VMExecutable") -> Iterator[Difference]:
    """Compare kernels by name, and by text where both are kept as text."""
    before, after = _named_kernels(one), _named_kernels(two)
    for name in {**before, **after}:
        if name not in after:
            yield Difference("kernel", name, "only in the first")
        elif name not in before:
            yield Difference("kernel", name, "only in the second")
        else:
            texts = before[name], after[name]
            changed, lines = _changes(*texts) if all(texts) else (0, [])
            if changed:
                plural = "line differs" if changed == 1 else "lines differ"
                yield Difference("kernel", name, f"{changed} {plural}", tuple(lines))


def _named_kernels(ex: "VMExecutable") -> dict[str, list[str]]:
    """Return the lines of each kernel by name; none for one that is not kept as text."""
    found: dict[str, list[str]] = {}
    pending: list[Any] = list(ex.imports)
    while pending:
        library = pending.pop(0)
        pending += library.imports
        texts = _split(library.saved.text) if isinstance(library, SavedLibrary) else {}
        for name in getattr(library, "names", None) or ():
            found.setdefault(name, texts.get(name, []))
    return found


def _split(text: str) -> dict[str, list[str]]:
    """Cut the text of a module into its kernels; good enough to show, no parser is needed."""
    starts = [*_KERNEL.finditer(text), None]
    return {
        match[1]: text[match.start() : following and following.start()].rstrip().splitlines()
        for match, following in pairwise(starts)
        if match is not None
    }
