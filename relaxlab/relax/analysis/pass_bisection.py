"""Find the pass that breaks a program.

A pipeline is run once, with a :class:`~relaxlab.relax.pass_recorder.PassRecorder` watching. Then
the modules between the passes are examined in order: is the module well-formed, can it still be
lowered by the few passes that nothing works without, does it run, and is the result that of the
program as it was before the first pass? The first pass after which one of these is not so is the
one. A pass that runs others is blamed only for what it did itself. There is no TVM counterpart.

Examples
--------
>>> import numpy as np
>>> from relaxlab.script import from_source
>>> mod = from_source('''
... @I.ir_module
... class Module:
...     @R.function
...     def main(x: R.Tensor((2,), "float32")):
...         y = R.add(x, x)
...         return y
... ''')
>>> print(bisect_passes(mod, [np.ones(2, "float32")], target="numpy"))
20 passes, none broke the program
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from relaxlab.codegen import default_target
from relaxlab.ir import IRModule, Pass, Sequential, Target
from relaxlab.relax import backend, transform
from relaxlab.relax.analysis.well_formed import well_formed
from relaxlab.relax.pass_recorder import PassRecorder
from relaxlab.relax.pipeline import get_pipeline
from relaxlab.relax.vm_build import build
from relaxlab.runtime.container import ShapeTuple
from relaxlab.runtime.device import cpu
from relaxlab.runtime.tensor import Tensor
from relaxlab.runtime.vm.virtual_machine import VirtualMachine

__all__ = ["Bisection", "Fault", "bisect_passes", "compare_results"]

#: What can be wrong after a pass, in the order in which it is looked for.
Fault = Literal["", "raised", "ill-formed", "cannot be built", "fails", "differs"]

#: Relative and absolute tolerance by dtype; what is not here is compared exactly.
_TOLERANCES: Final[Mapping[str, tuple[float, float]]] = {
    "bfloat16": (3e-2, 3e-2),
    "float16": (5e-3, 5e-3),
    "float32": (1e-4, 1e-5),
    "float64": (1e-9, 1e-12),
}
_DIFF_LINES: Final = 30
#: What a pass or a program may raise when it is wrong.
_ERRORS: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True)
class Bisection:
    """What :func:`bisect_passes` found.

    Attributes
    ----------
    fault
        What is wrong; empty when nothing is.
    index
        The pass, as an index into ``recorder.passes``; None when nothing is wrong.
    name
        Its name.
    message
        The error that was raised, the rule that is broken, or where the results differ.
    expected, got
        The results that differ, as NumPy arrays, tuples of such, or plain values.
    max_error
        The largest absolute difference of numbers that differ.
    recorder
        All passes that ran, with the modules between them.
    """

    fault: Fault
    index: int | None
    name: str
    message: str
    recorder: PassRecorder
    expected: Any = None
    got: Any = None
    max_error: float | None = None

    @property
    def ok(self) -> bool:
        """Whether no pass broke the program."""
        return not self.fault

    def diff(self) -> str:
        """Return what the pass changed, as a unified difference of the texts."""
        return "" if self.index is None else self.recorder.diff(self.index)

    def __str__(self) -> str:
        if self.index is None:
            return f"{len(self.recorder)} passes, none broke the program"
        lines = [f"{self.name} (pass {self.index} of {len(self.recorder)}): {_SAYS[self.fault]}"]
        lines += [f"  {line}" for line in self.message.splitlines()]
        diff = self.diff().splitlines()
        lines += diff[:_DIFF_LINES]
        if len(diff) > _DIFF_LINES:
            lines.append(f"... {len(diff) - _DIFF_LINES} more lines")
        return "\n".join(lines)


_SAYS: Final[Mapping[str, str]] = {
    "raised": "it raised an error",
    "ill-formed": "the module is ill-formed after it",
    "cannot be built": "the module cannot be built any more after it",
    "fails": "the program fails after it",
    "differs": "the result differs after it",
}


def bisect_passes(
    mod: IRModule,
    inputs: Sequence[Any],
    pipeline: str | Pass | None = None,
    *,
    function: str = "main",
    target: str | Target | None = None,
    tolerance: tuple[float, float] | None = None,
) -> Bisection:
    """Name the first pass after which a program is ill-formed or its result differs.

    Parameters
    ----------
    mod
        The program before any pass.
    inputs
        Arguments of ``function``: arrays, tensors, tuples of such, numbers.
    pipeline
        What to examine: a pass (usually a sequence of passes), the name of a pipeline, or None for
        the one that ``relax.build`` runs.
    function
        The function that is run.
    target
        What kernels are compiled for; None picks the best that is installed.
    tolerance
        Relative and absolute tolerance of floating-point results; None takes one that suits the
        dtype. Integers must be equal.

    Returns
    -------
    Bisection
        What is wrong after which pass; ``ok`` when nothing is.

    Raises
    ------
    ValueError
        If the program is ill-formed, or fails on these inputs, before any pass.

    Notes
    -----
    The reference is the program lowered without fusion, memory planning or kills. The same
    lowering is put behind the passes to run the modules between them.
    """
    chosen = default_target() if target is None else Target(target)
    if pipeline is None or isinstance(pipeline, str):
        pipeline = get_pipeline(pipeline or "default")

    def run(program: IRModule) -> tuple[Fault, str, Any]:
        try:
            well_formed(program)
        except _ERRORS as error:
            return "ill-formed", _text(error), None
        try:
            machine = VirtualMachine(build(program, chosen, relax_pipeline=_minimal()), cpu())
        except _ERRORS as error:
            return "cannot be built", _text(error), None
        try:
            return "", "", _plain(machine[function](*map(_copy, inputs)))
        except _ERRORS as error:
            return "fails", _text(error), None

    fault, message, expected = run(mod)
    if fault:
        raise ValueError(
            f"the program is wrong before any pass, so no pass can be blamed: {fault}: {message}"
        )

    def examine(program: IRModule) -> _Finding | None:
        fault, message, got = run(program)
        if fault:
            return _Finding(fault, message)
        difference = compare_results(expected, got, tolerance, function)
        if difference is None:
            return None
        return _Finding("differs", difference[0], expected, got, difference[1])

    recorder = PassRecorder()
    with recorder.recording(), chosen:
        try:
            pipeline(mod)
        except _ERRORS:
            if not any(record.error for record in recorder.passes):
                raise  # not from inside a pass
    found = _Search(recorder, mod, examine).first(recorder.roots())
    if found is None:
        return Bisection("", None, "", "", recorder)
    index, finding = found
    return Bisection(
        finding.fault,
        index,
        recorder.passes[index].name,
        finding.message,
        recorder,
        finding.expected,
        finding.got,
        finding.max_error,
    )


@dataclass(frozen=True, slots=True)
class _Finding:
    fault: Fault
    message: str
    expected: Any = None
    got: Any = None
    max_error: float | None = None


class _Search:
    """Looks through the tree of passes for the first that is to blame."""

    def __init__(
        self,
        recorder: PassRecorder,
        mod: IRModule,
        examine: Callable[[IRModule], _Finding | None],
    ) -> None:
        self.recorder = recorder
        self.records = recorder.passes
        self.examine = examine
        #: What is known of each module; modules stay alive in the recorder.
        self.known: dict[int, _Finding | None] = {id(mod): None}

    def first(self, indices: Iterable[int]) -> tuple[int, _Finding] | None:
        """Return the first of these passes that is to blame, or one inside of it."""
        for index in indices:
            found = self.blame(index)
            if found is not None:
                return found
        return None

    def blame(self, index: int) -> tuple[int, _Finding] | None:
        inside = self.recorder.children(index)
        if self.only_runs_others(index):
            return self.first(inside)
        finding = self.after(index)
        if finding is None:
            return None
        for child in inside:
            # a child is to blame if it was given a good module
            if self.of(self.recorder.before(child)) is None:
                found = self.blame(child)
                if found is not None:
                    return found
        return index, finding

    def only_runs_others(self, index: int) -> bool:
        """Whether a pass hands its module from one of its children to the next."""
        inside = self.recorder.children(index)
        now: IRModule | None = self.recorder.before(index)
        for child in inside:
            if now is None or self.recorder.before(child) is not now:
                return False
            now = self.recorder.after(child)
        return bool(inside) and now is self.recorder.after(index)

    def after(self, index: int) -> _Finding | None:
        record = self.records[index]
        if record.error:
            return _Finding("raised", record.error)
        after = self.recorder.after(index)
        assert after is not None
        if record.change != "changed":
            self.known.setdefault(id(after), self.of(self.recorder.before(index)))
        return self.of(after)

    def of(self, mod: IRModule) -> _Finding | None:
        if id(mod) not in self.known:
            self.known[id(mod)] = self.examine(mod)
        return self.known[id(mod)]


def _minimal() -> Pass:
    """Return the lowering without which nothing runs; it does nothing to what is lowered."""
    return Sequential(
        (
            transform.LambdaLift(),
            backend.DispatchSampling(),
            backend.DispatchSortScan(),
            transform.LegalizeOps(),
            transform.ToNonDataflow(),
            transform.RemovePurityChecking(),
            transform.CallTIRRewrite(),
            transform.LowerAllocTensor(),
            transform.LowerRuntimeBuiltin(),
            transform.ComputePrimValue(),
            transform.VMShapeLower(),
            transform.AttachGlobalSymbol(),
        ),
        name="minimal",
    )


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _copy(value: Any) -> Any:
    """Return an argument that the program may write to."""
    match value:
        case ShapeTuple():
            return value
        case Tensor():
            return value.numpy().copy()
        case np.ndarray():
            return value.copy()
        case tuple() | list():
            return tuple(map(_copy, value))
        case _:
            return value


def _plain(value: Any) -> Any:
    """Return a result as arrays, tuples and plain values, independent of the machine."""
    match value:
        case Tensor():
            return value.numpy().copy()
        case ShapeTuple():
            return ("shape", *value)
        case tuple() | list():
            return tuple(map(_plain, value))
        case None | bool() | int() | float() | str():
            return value
        case _ if isinstance(value, Sequence):
            return tuple(map(_plain, value))
        case _:
            return f"a {type(value).__name__}"  # a closure, which cannot be compared


def compare_results(
    expected: Any,
    got: Any,
    tolerance: tuple[float, float] | None = None,
    where: str = "result",
) -> tuple[str, float | None] | None:
    """Say where two results differ and by how much; None when they do not.

    Parameters
    ----------
    expected, got
        Arrays, tuples of such, plain values.
    tolerance
        Relative and absolute tolerance; None takes one that suits the dtype.
    where
        What the message calls the result.
    """
    if isinstance(expected, tuple) and isinstance(got, tuple):
        if len(expected) != len(got):
            return f"{where}: expected {len(expected)} fields, got {len(got)}", None
        for i, (one, other) in enumerate(zip(expected, got, strict=True)):
            found = compare_results(one, other, tolerance, f"{where}[{i}]")
            if found is not None:
                return found
        return None
    if isinstance(expected, np.ndarray) and isinstance(got, np.ndarray):
        return _compare_arrays(expected, got, tolerance, where)
    if type(expected) is type(got) and (expected == got or (expected != expected and got != got)):
        return None
    return f"{where}: expected {expected!r}, got {got!r}", None


def _compare_arrays(
    expected: Any, got: Any, tolerance: tuple[float, float] | None, where: str
) -> tuple[str, float | None] | None:
    before, after = (f"{a.dtype} {a.shape}" for a in (expected, got))
    if before != after:
        return f"{where}: expected {before}, got {after}", None
    exact = str(expected.dtype) not in _TOLERANCES
    relative, absolute = (0.0, 0.0) if exact else tolerance or _TOLERANCES[str(expected.dtype)]
    if exact:
        same = np.asarray(expected == got)
    else:
        same = np.isclose(
            got.astype("float64"), expected.astype("float64"), relative, absolute, equal_nan=True
        )
    if same.all():
        return None
    with np.errstate(invalid="ignore"):
        errors = np.abs(got.astype("float64") - expected.astype("float64"))
    errors = np.where(np.isnan(errors), np.inf, np.where(same, 0.0, errors))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(errors)), errors.shape))
    largest = float(errors.max())
    return (
        f"{where}: {int((~same).sum())} of {same.size} elements differ; at {at} expected "
        f"{expected[at]}, got {got[at]}, largest error {largest:g}"
    ), largest
