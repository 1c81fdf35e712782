"""Real models for tests: caches that are made anew, and failures at chosen operations."""

from contextlib import contextmanager

from relaxlab.errors import InternalError
from relaxlab.models.paged_llama import PagedLlama, paged_cache
from relaxlab.runtime.kv.attention import FAMILIES, Family, pick

OPERATIONS = ("add_sequence", "remove_sequence", "fork_sequence", "popn")
OPERATIONS += ("run", "commit", "save", "restore")


def fresh(llama: PagedLlama, **sizes) -> PagedLlama:
    """The same compiled model and weights with a new, empty cache."""
    copy = object.__new__(PagedLlama)
    copy.__dict__.update(llama.__dict__)
    copy.__dict__["params"] = llama.params
    copy.cache = paged_cache(llama.model, **sizes)
    return copy


class Failing:
    """A served model whose operations number ``fail_at`` are refused.

    A negative number lets a round fail after ``begin_forward``, in the middle of the model.
    """

    def __init__(self, llama: PagedLlama, fail_at=()) -> None:
        self._llama, self.fail_at = llama, frozenset(fail_at)
        self.operations, self.names = 0, []

    def __getattr__(self, name):
        value = getattr(self._llama, name)
        if name not in OPERATIONS:
            return value

        def operation(*arguments, **keywords):
            self.operations += 1
            self.names.append(name)
            if self.operations in self.fail_at:
                raise InternalError(f"injected: {name}")
            if name == "run" and -self.operations in self.fail_at:
                return self._broken_round(*arguments)
            return value(*arguments, **keywords)

        return operation

    def _broken_round(self, *arguments, **keywords):
        calls = []

        def break_second_layer():
            calls.append(1)
            if len(calls) == 2:  # the first layer has stored its rows already
                raise InternalError("injected: in the middle of a round")

        before_layer.append(break_second_layer)
        try:
            return self._llama.run(*arguments, **keywords)
        finally:
            before_layer.clear()


before_layer: list = []
"""What runs before each layer of a cache whose kernels are of the family ``breakable``."""


def _split_rotary(spec):
    kernel = pick("split_rotary", spec, "numpy")

    def split_rotary(*arguments):
        for action in before_layer:
            action()
        kernel(*arguments)

    return split_rotary


@contextmanager
def breakable():
    """Make kernels that call ``before_layer``; the name of their family."""
    FAMILIES.register(
        "breakable", Family("breakable", {"split_rotary": _split_rotary}, base="numpy", rank=-2)
    )
    try:
        yield "breakable"
    finally:
        FAMILIES.remove("breakable")
