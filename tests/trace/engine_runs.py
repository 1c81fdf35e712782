"""A tiny model under an engine, recorded: shared prompts, a small pool, evictions, preemptions."""

from functools import cache

from relaxlab.models.language_model import open_model
from relaxlab.models.paged_llama import PagedLlama
from relaxlab.serve.engine import Engine
from relaxlab.trace.pool_recorder import PoolRecorder

__all__ = ["crowded"]

PROMPTS = [
    "the capital of france",
    "once upon a time",
    "a quick brown fox",
    "the capital of france is",
]


@cache
def _model():
    return open_model("tiny")


def crowded(capacity=64, policy="lru", prompts=PROMPTS, max_tokens=12):
    """Return engine and recorder after requests whose prompts begin alike."""
    model = _model()
    llama = PagedLlama(model, page_size=8, capacity=capacity)
    recorder = PoolRecorder.of_model(
        llama, lambda token: model.tokenizer.decode([token]), name=f"{policy}, {capacity} tokens"
    )
    engine = Engine(llama, tokenizer=model.tokenizer, policy=policy, observer=recorder.note)
    for prompt in prompts:
        engine.submit(prompt, max_tokens=max_tokens)
    engine.run()
    return engine, recorder
