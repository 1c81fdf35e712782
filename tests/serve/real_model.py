"""Real models for tests: caches that are made anew, and failures at chosen operations."""

from relaxlab.errors import InternalError
from relaxlab.models.paged_llama import PagedLlama, paged_cache

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

    def _broken_round(self, sequences, counts, tokens, rows, parents=None):
        table = self._llama.cache._attention  # the kernels of the layers
        kernels, calls = table._kernels, []

        class Broken:
            def __getattr__(self, name):
                kernel = getattr(kernels, name)
                if name != "split_rotary":
                    return kernel

                def split_rotary(*arguments):
                    calls.append(name)
                    if len(calls) == 2:  # the first layer has stored its rows already
                        raise InternalError("injected: in the middle of a round")
                    kernel(*arguments)

                return split_rotary

        table._kernels = Broken()
        try:
            return self._llama.run(sequences, counts, tokens, rows, parents)
        finally:
            table._kernels = kernels
