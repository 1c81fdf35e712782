"""Carrying out a plan: one round of the model, or two, and the tokens that come of it.

Without guesses everything is one batch, prompts and decodes mixed. With guesses the decodes are a
batch of token trees, and the prompts follow as a second one. Counterpart: the batch actions of
MLC's engine.

Examples: see `relaxlab.serve.engine`.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from relaxlab.serve.answer import Answer
from relaxlab.serve.events import Advanced, Drafted, Emitted, Finished, Observer, Scheduled
from relaxlab.serve.pages import Pages
from relaxlab.serve.request import Entry, EntryId, Output, Status
from relaxlab.serve.sampler import choose
from relaxlab.serve.scheduler import Plan, Share
from relaxlab.serve.served_model import ServedModel
from relaxlab.serve.speculation import Draft, verify

__all__ = ["Rounds"]

Logits = NDArray[np.float32]


class Rounds:
    """Runs plans and turns logits into tokens.

    Parameters
    ----------
    model, pages, emit
        What it works with.
    answers
        Output of each entry, in the making.
    """

    def __init__(
        self, model: ServedModel, pages: Pages, answers: dict[EntryId, Answer], emit: Observer
    ) -> None:
        self._model, self._pages, self._answers, self._emit = model, pages, answers, emit

    def run(self, plan: Plan) -> list[Output]:
        """Carry out a plan and return what is new."""
        if any(share.draft is not None for share in plan.decodes):
            done = self._trees(plan.decodes)
            done += self._tokens(plan.chunks)
        else:
            done = self._tokens(plan.decodes + plan.chunks)
        outputs: list[Output] = []
        for share, logits in done:
            if len(logits):
                outputs += self._forks(share.entry, logits[0])
                outputs += self._settle(share.entry)
        return outputs

    def _tokens(self, shares: list[Share]) -> list[tuple[Share, Logits]]:
        """Run plain tokens; return the logits of each share, one row or none."""
        rows, tokens, end = [], [], 0
        for share in shares:
            entry = share.entry
            tokens += entry.tokens[entry.computed : entry.computed + share.count]
            end += share.count
            if share.count == entry.remaining:
                rows.append(end - 1)
        logits = self._run("tokens", shares, tokens, rows, None)
        if logits is None:
            return []
        results: list[tuple[Share, Logits]] = []
        at = 0
        for share in shares:
            complete = share.count == share.entry.remaining
            self._advance(share.entry, share.count)
            results.append((share, logits[at : at + complete]))
            if complete:
                self._accept(share.entry, logits[at])
            at += complete
        return results

    def _trees(self, shares: list[Share]) -> list[tuple[Share, Logits]]:
        """Run one token tree per entry; keep the path that was guessed right."""
        trees = [share.draft or Draft((share.entry.tokens[-1],), (-1,)) for share in shares]
        tokens = [token for tree in trees for token in tree.tokens]
        parents = [parent for tree in trees for parent in tree.parents]
        logits = self._run("tree", shares, tokens, range(len(tokens)), parents)
        if logits is None:
            return []
        results: list[tuple[Share, Logits]] = []
        leaves, at = [], 0
        for share, tree in zip(shares, trees, strict=True):
            own = logits[at : at + len(tree)]
            at += len(tree)

            def accept(node: int, entry: Entry = share.entry, own: Logits = own) -> int | None:
                return self._accept(entry, own[node])

            leaf = verify(tree, accept)
            leaves.append(leaf)
            if len(tree) > 1:
                self._emit(Drafted(share.entry.id, len(tree) - 1, tree.depth(leaf)))
            results.append((share, own))
        sequences = [_sequence(share.entry) for share in shares]
        try:
            self._model.commit(sequences, leaves)
        except RuntimeError as error:
            # the tokens are right, only the cache is not: compute them again
            for share in shares:
                self._pages.abandon(share.entry, "commit", error)
        else:
            for share, tree, leaf in zip(shares, trees, leaves, strict=True):
                self._advance(share.entry, tree.depth(leaf) + 1)
        return results

    def _run(
        self,
        kind: Literal["tokens", "tree"],
        shares: list[Share],
        tokens: Sequence[int],
        rows: Sequence[int],
        parents: Sequence[int] | None,
    ) -> Logits | None:
        """Run a batch; None if there is none, or it failed and its entries wait again."""
        if not shares:
            return None
        batch = tuple((share.entry.id, share.tokens) for share in shares)
        self._emit(Scheduled(kind, batch))
        sequences = [_sequence(share.entry) for share in shares]
        try:
            return self._model.run(sequences, [n for _, n in batch], tokens, rows, parents)
        except RuntimeError as error:
            for share in shares:
                self._pages.abandon(share.entry, "run", error)
            return None
        except KeyboardInterrupt as error:  # somebody may go on afterwards
            for share in shares:
                self._pages.abandon(share.entry, "run", error)
            raise

    def _advance(self, entry: Entry, tokens: int) -> None:
        entry.computed += tokens
        entry.retries = 0
        self._emit(Advanced(entry.id, entry.computed))

    def _accept(self, entry: Entry, logits: Logits) -> int | None:
        """Choose the next token of an entry; None if its output had ended."""
        answer = self._answers[entry.id]
        if answer.finished is not None or answer.error is not None:
            return None
        prompt = entry.request.prompt
        sampling = entry.request.sampling
        if entry.index:
            sampling = sampling.reseeded(entry.index)
        try:
            token = choose(logits, sampling, prompt, entry.output, answer.tokens)
        except ValueError as error:
            answer.error = str(error)
            return None
        entry.tokens.append(token)
        answer.push(token)
        if len(entry.tokens) > self._model.context:
            answer.cut()
        return token

    def _forks(self, leader: Entry, logits: Logits) -> list[Output]:
        """Start the other answers of a request from the prompt that was just computed."""
        outputs = []
        for entry in [e for e in self._pages.scheduler.waiting if e.leader is leader]:
            entry.leader = None
            if leader.sequence is not None and self._pages.fork(leader, entry):
                self._accept(entry, logits)
                outputs += self._settle(entry)
        return outputs

    def _settle(self, entry: Entry) -> list[Output]:
        """Tell what an entry has chosen, and close it if that was all."""
        answer = self._answers[entry.id]
        if entry.status is Status.FAILED:
            return []
        if answer.error is not None:
            self._pages.give_up(entry, answer.error)
            return []
        new = tuple(entry.output[entry.told :])
        entry.told += len(new)
        self._emit(Emitted(entry.id, new))
        if answer.finished is not None:
            self._pages.close(entry, Status.FINISHED)
            self._emit(Finished(entry.id, answer.finished))
        return [Output(entry.id, new, answer.news(), answer.finished)]


def _sequence(entry: Entry) -> int:
    assert entry.sequence is not None
    return entry.sequence
