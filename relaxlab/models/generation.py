"""Text from a compiled decoder: prompt in, tokens out, one virtual machine call per step.

:class:`CompiledLlama` builds the module of :mod:`relaxlab.models.llama` and owns the machine;
:func:`generate` is the loop around it. Counterpart: MLC's chat loop.

Examples
--------
>>> from relaxlab.models.language_model import open_model
>>> llama = CompiledLlama(open_model("tiny"))
>>> len(list(generate(llama, [104, 105], 3)))
3
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab import relax, runtime
from relaxlab.ir import Target
from relaxlab.models.language_model import LanguageModel
from relaxlab.models.llama import decoder, rope_tables

__all__ = ["Chooser", "CompiledLlama", "generate", "greedy"]

#: Picks the next token from the logits ``(vocab,)``.
Chooser = Callable[[NDArray[np.float32]], int]


class CompiledLlama:
    """A language model compiled to bytecode, with its weights, ready to run.

    Parameters
    ----------
    model
        What :func:`relaxlab.models.language_model.open_model` returned.
    target
        As for :func:`relaxlab.relax.build`.

    Attributes
    ----------
    executable, vm
        The compiled module and the machine that runs it: both can be looked into.
    params
        Parameters in the module's order, as tensors.
    """

    def __init__(self, model: LanguageModel, target: str | Target | None = None) -> None:
        self.model = model
        self.executable = relax.build(decoder(model.config), target)
        self.vm = relax.VirtualMachine(self.executable, runtime.cpu())
        arrays = [*dict(model.weights).values(), *rope_tables(model.config)]
        self.params = tuple(runtime.tensor(array) for array in arrays)

    def empty_cache(self) -> tuple[Any, ...]:
        """Return the cache of no tokens."""
        c = self.model.config
        pair = (
            runtime.tensor(np.zeros((c.kv_heads, c.head_dim, 0), np.float32)),
            runtime.tensor(np.zeros((c.kv_heads, 0, c.head_dim), np.float32)),
        )
        return pair * c.layers

    def prefill(
        self, tokens: Sequence[int], caches: tuple[Any, ...]
    ) -> tuple[NDArray[np.float32], tuple[Any, ...]]:
        """Run tokens on top of a cache.

        Returns
        -------
        tuple
            Logits ``(vocab,)`` after the last token, and the longer cache.

        Raises
        ------
        ValueError
            If there is no token, a token is not in the vocabulary, or the context would overflow.
        """
        past = self._check(tokens, caches)
        new = np.arange(past, past + len(tokens), dtype=np.int64)
        later = np.arange(past + len(tokens))[None, :] > new[:, None]
        mask = np.where(later, np.float32(-1e30), np.float32(0.0))
        ids = np.array(tokens, np.int64)
        logits, updated = self.vm["prefill"](ids, new, mask, caches, self.params)
        return logits.numpy()[0], updated

    def decode(
        self, token: int, caches: tuple[Any, ...]
    ) -> tuple[NDArray[np.float32], tuple[Any, ...]]:
        """Run one token on top of a cache; as :meth:`prefill`, but faster."""
        past = self._check([token], caches)
        logits, updated = self.vm["decode"](
            np.array([token], np.int64), np.array([past], np.int64), caches, self.params
        )
        return logits.numpy()[0], updated

    def _check(self, tokens: Sequence[int], caches: tuple[Any, ...]) -> int:
        config = self.model.config
        past = int(caches[0].shape[2])
        if not tokens:
            raise ValueError("there is no token to run: the prompt is empty")
        for token in tokens:
            if not 0 <= token < config.vocab:
                raise ValueError(f"token {token} is not in the vocabulary of {config.vocab}")
        if past + len(tokens) > config.context:
            raise ValueError(
                f"{past} tokens in the cache and {len(tokens)} new ones exceed the context of "
                f"{config.context}; shorten the prompt or generate fewer tokens"
            )
        return past


def greedy(logits: NDArray[np.float32]) -> int:
    """Pick the most likely token."""
    return int(np.argmax(logits))


def generate(
    llama: CompiledLlama,
    prompt: Sequence[int],
    count: int,
    choose: Chooser = greedy,
    *,
    stop: Collection[int] = (),
) -> Iterator[int]:
    """Yield ``count`` tokens after ``prompt``.

    Fewer when the context is full, or after a token of ``stop``, which is yielded.
    """
    if count <= 0:
        return
    logits, caches = llama.prefill(prompt, llama.empty_cache())
    used = len(prompt)
    for produced in range(1, count + 1):
        token = choose(logits)
        yield token
        if produced == count or token in stop or used == llama.model.config.context:
            return
        logits, caches = llama.decode(token, caches)
        used += 1
