"""Long weighted runs of random operations under pressure, each checked as in the state machines."""

import random

import pytest

from relaxlab.runtime.kv.cache_config import AttnKind
from tests.runtime.kv.modelled_cache import Modelled, small_config

WINDOWED = (AttnKind.MHA_SLIDING, AttnKind.MHA)
CONFIGS = {
    "plain": small_config(total_token_capacity=45),
    "page_of_one": small_config(page_size=1, total_token_capacity=20),
    "two_layers": small_config(
        layer_begin=1, layer_end=3, attn_kinds=(AttnKind.MHA,) * 3, total_token_capacity=45
    ),
    "sliding": small_config(support_sliding_window=True, total_token_capacity=30),
    "sliding_small_pages": small_config(
        support_sliding_window=True, page_size=2, total_token_capacity=16
    ),
    "layer_window": small_config(
        layer_end=2, attn_kinds=WINDOWED, layer_sliding_window_size=4, total_token_capacity=60
    ),
}


class Driver:
    """Draws operations with weights that reach the rare states often."""

    def __init__(self, name: str, seed: int, *, observed: bool = True) -> None:
        self.random = random.Random(seed)
        self.m = Modelled(CONFIGS[name], observed=observed)
        self.sliding = CONFIGS[name].support_sliding_window
        self.trees = not self.sliding and not CONFIGS[name].layer_sliding
        self.last: list[int] = []
        self.done = dict.fromkeys(("round", "tree", "fork", "popn", "window", "refused"), 0)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        for seq_id in list(self.m.held):
            self.m.remove(seq_id)
        assert self.m.cache.empty()

    def step(self) -> None:
        names = ("add", "remove", "fork", "popn", "round", "again", "swap", "retain", "clear")
        weights = [3, 2, 8, 8, 20, 8, 1, 1, 0.05]
        if self.trees:
            names, weights = (*names, "tree", "commit"), [*weights, 6, 6]
        if self.sliding:
            names, weights = (*names, "window"), [*weights, 6]
        name = self.random.choices(names, weights)[0]
        if name == "add" or not self.m.held:
            free = [s for s in range(5) if s not in self.m.held and s not in self.m.saved]
            if free:
                self.m.add(self.random.choice(free))
            return
        if self.m.cache.get_num_available_pages() < 2 and self.random.random() < 0.2:
            name = "remove"
        getattr(self, name)(self.random.choice(sorted(self.m.held)))

    def remove(self, seq_id: int) -> None:
        self.m.remove(seq_id)

    def fork(self, parent: int) -> None:
        free = [s for s in range(8) if s not in self.m.held and s not in self.m.saved]
        if free:
            length = len(self.m.held[parent])
            position = self.random.choice([length, self.random.randint(0, length)])
            self.done["fork"] += self.m.fork(parent, self.random.choice(free), position)

    def popn(self, seq_id: int) -> None:
        length = len(self.m.held[seq_id])
        self.m.popn(seq_id, self.random.choice([min(length, 2), self.random.randint(0, length)]))
        self.done["popn"] += 1

    def round(self, seq_id: int) -> None:
        ids = [seq_id, *(s for s in self.m.held if s != seq_id and self.random.random() < 0.4)]
        if self.random.random() < 0.9:
            ids = [s for s in ids if s not in self.m.trees] or ids
        decode = self.random.random() < 0.4
        batch = [(s, 1 if decode else self.random.randint(1, 6)) for s in ids]
        accepted = self.m.round(batch)
        self.done["round" if accepted else "refused"] += 1
        self.last = ids

    def again(self, _: int) -> None:
        for _ in range(self.random.randint(1, 5)):
            if self.last and set(self.last) <= set(self.m.held):
                self.m.round([(seq_id, 1) for seq_id in self.last])

    def tree(self, seq_id: int) -> None:
        ids = [seq_id, *(s for s in self.m.held if s != seq_id and self.random.random() < 0.3)]
        trees = {}
        for s in ids:
            old = len(self.m.trees.get(s, []))
            chain = self.random.random() < 0.4
            trees[s] = [
                old + n - 1 if chain else self.random.randint(-1, old + n - 1)
                for n in range(self.random.randint(1, 4))
            ]
        self.done["tree"] += self.m.round([(s, len(trees[s])) for s in ids], trees)

    def commit(self, _: int) -> None:
        ids = [s for s in self.m.trees if self.random.random() < 0.7]
        self.random.shuffle(ids)
        if ids:
            self.m.commit({s: self.random.randint(-1, len(self.m.trees[s]) - 1) for s in ids})

    def window(self, seq_id: int) -> None:
        size = self.random.randint(1, 9)
        self.done["window"] += self.m.window(seq_id, size, self.random.randint(0, size - 1))

    def swap(self, seq_id: int) -> None:
        if self.m.saved and self.random.random() < 0.7:
            self.m.restore(self.random.choice(sorted(self.m.saved)))
        elif seq_id not in self.m.trees:
            self.m.save(seq_id)

    def retain(self, seq_id: int) -> None:
        cache = self.m.cache
        (cache.retain_sequence if self.random.random() < 0.5 else cache.revive_sequence)(seq_id)
        self.m.verify()

    def clear(self, _: int) -> None:
        self.m.clear()


@pytest.mark.parametrize("observed", [True, False])
@pytest.mark.parametrize("name", CONFIGS)
def test_random_runs_under_pressure(name, observed):
    driver = Driver(name, seed=17, observed=observed)
    driver.run(400)
    assert driver.done["round"] > 30
    assert driver.done["refused"] > 5
    assert driver.done["tree"] > 5 or not driver.trees
    assert driver.done["window"] > 5 or not driver.sliding
