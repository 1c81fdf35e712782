"""A model of no layers: logits are a hash of the history, pages are counted, failures injected."""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from relaxlab.errors import InternalError


@dataclass
class PaperModel:
    """`relaxlab.serve.served_model.ServedModel` on paper."""

    page_size: int = 4
    total_pages: int = 16
    vocab: int = 13
    context: int = 4096
    chunk: int = 16
    period: int = 0  # with a period the text repeats itself, so that guesses come true
    fail_at: frozenset[int] = frozenset()
    operations: int = 0
    names: list = field(default_factory=list)
    tokens: dict = field(default_factory=dict)
    pages: dict = field(default_factory=dict)  # sequence -> page objects
    users: dict = field(default_factory=dict)  # page -> sequences
    trees: dict = field(default_factory=dict)
    computed: int = 0
    _next: int = 0

    def available_pages(self):
        return self.total_pages - len(self.users)

    def _operation(self, name):
        self.operations += 1
        self.names.append(name)
        if self.operations in self.fail_at:
            raise InternalError(f"injected: {name}")

    def add_sequence(self, sequence):
        self._operation("add")
        assert sequence not in self.tokens
        self.tokens[sequence], self.pages[sequence] = [], []

    def retain_sequence(self, sequence):
        assert sequence in self.tokens

    def remove_sequence(self, sequence, cause="removed", reason=""):
        assert bool(reason) == (cause != "removed")
        self._operation("remove")
        for page in self.pages.pop(sequence):
            self._leave(page)
        del self.tokens[sequence]
        self.trees.pop(sequence, None)

    def fork_sequence(self, parent, child, position):
        self._operation("fork")
        assert child not in self.tokens
        assert parent not in self.trees
        assert 0 <= position <= len(self.tokens[parent])
        whole, part = divmod(position, self.page_size)
        if part and not self.available_pages():
            raise InternalError("cache is full")
        self.tokens[child] = self.tokens[parent][:position]
        self.pages[child] = self.pages[parent][:whole]
        for page in self.pages[child]:
            self.users[page] += 1
        if part:
            self._take(child)

    def popn(self, sequence, tokens):
        self._operation("popn")
        assert 0 <= tokens <= len(self.tokens[sequence])
        length = len(self.tokens[sequence]) - tokens
        assert length % self.page_size == 0, "serving pops whole pages only"
        del self.tokens[sequence][length:]
        while len(self.pages[sequence]) * self.page_size > length:
            self._leave(self.pages[sequence].pop())

    def run(self, sequences, counts, tokens, rows, parents=None):
        self._operation("run")
        assert len(set(sequences)) == len(sequences) == len(counts)
        assert sum(counts) == len(tokens) <= self.chunk
        histories, at = [], 0
        for sequence, count in zip(sequences, counts, strict=True):
            assert sequence not in self.trees
            before = list(self.tokens[sequence])
            assert len(before) + count <= self.context
            own = list(tokens[at : at + count])
            above = list(range(-1, count - 1)) if parents is None else parents[at : at + count]
            paths = []
            for token, parent in zip(own, above, strict=True):
                paths.append([*(paths[parent] if parent >= 0 else before), token])
            histories += paths
            self._append(sequence, own)
            if parents is not None:
                self.trees[sequence] = list(above)
            at += count
        if -self.operations in self.fail_at:
            raise InternalError("injected: in the middle of a round")
        self.computed += len(tokens)
        return np.array([self._logits(histories[row]) for row in rows], np.float32).reshape(
            len(rows), self.vocab
        )

    def commit(self, sequences, leaves):
        self._operation("commit")
        for sequence, leaf in zip(sequences, leaves, strict=True):
            above = self.trees.pop(sequence)
            base = len(self.tokens[sequence]) - len(above)
            path = []
            while leaf >= 0:
                path.append(self.tokens[sequence][base + leaf])
                leaf = above[leaf]
            self.tokens[sequence][base:] = path[::-1]
            while len(self.pages[sequence]) * self.page_size >= (
                len(self.tokens[sequence]) + self.page_size
            ):
                self._leave(self.pages[sequence].pop())

    def save(self, sequence, tokens):
        self._operation("save")
        return self.tokens[sequence][:tokens]

    def restore(self, sequence, saved, start):
        self._operation("restore")
        assert len(self.tokens[sequence]) == start
        self._append(sequence, saved[start:])

    def _append(self, sequence, tokens):
        self.tokens[sequence] += tokens
        while len(self.pages[sequence]) * self.page_size < len(self.tokens[sequence]):
            if not self.available_pages():
                raise InternalError("cache is full")
            self._take(sequence)

    def _take(self, sequence):
        self.pages[sequence].append(self._next)
        self.users[self._next] = 1
        self._next += 1

    def _leave(self, page):
        self.users[page] -= 1
        if not self.users[page]:
            del self.users[page]

    def _logits(self, history):
        seen = history[-self.period :] if self.period else history
        digest = hashlib.blake2b(bytes(t % 251 for t in seen), digest_size=2 * self.vocab).digest()
        return np.frombuffer(digest, np.uint16) / 8192.0

    def check(self):
        assert all(
            len(self.pages[s]) == -(-len(t) // self.page_size) for s, t in self.tokens.items()
        )
        counted: dict = {}
        for pages in self.pages.values():
            for page in pages:
                counted[page] = counted.get(page, 0) + 1
        assert counted == self.users
        assert len(self.users) <= self.total_pages

    def check_tree(self, tree):
        """Every page of a prefix tree is there once: holders have one copy of what they share."""
        owner = {}
        for node in tree.nodes.values():
            first, last = node.start // self.page_size, node.end // self.page_size
            below, holders = [node], set()
            for each in below:
                below += each.children.values()
                holders |= {each.holder} - {None}
            copies = {tuple(self.pages[holder][first:last]) for holder in holders}
            assert len(copies) == 1, f"{node!r} is there more than once"
            for page in copies.pop():
                assert owner.setdefault(page, node) is node
