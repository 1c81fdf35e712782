"""Chapters 09 and 11, pages and who has to go.

Examples
--------
>>> from relaxlab.exercises import check
>>> check("09.q1", 4)
09.q1 is right
True
"""

from typing import Any

from relaxlab.exercises.exercise import Wrong, exercise, shown
from relaxlab.models.language_model import open_model
from relaxlab.models.paged_llama import PagedLlama, paged_cache
from relaxlab.serve.engine import Engine


def _number(answer: Any, what: str) -> int:
    if isinstance(answer, bool) or not isinstance(answer, int):
        raise Wrong(f"a number of {what}", shown(answer), "count, or let the cache count")
    return answer


@exercise("09.q1")
def pages_after_fork(answer: Any) -> None:
    """Judge how many pages a fork in mid-page leaves in use."""
    pages = _number(answer, "pages")
    cache = paged_cache(open_model("tiny"), page_size=4, capacity=64)
    total = cache.get_num_available_pages()
    cache.add_sequence(0)
    cache.begin_forward([0], [11])
    cache.end_forward()
    before = total - cache.get_num_available_pages()
    cache.fork_sequence(0, 1, 6)
    right = total - cache.get_num_available_pages()
    if pages == right:
        return
    where = "which rows of which page does the child need for itself?"
    if pages == before:
        raise Wrong("what the child needs, too", f"{pages}, as before the fork", where)
    if pages == before + before:
        raise Wrong("shared pages counted once", f"{pages}, as if nothing were shared", where)
    raise Wrong("the pages in use after the fork", shown(pages), where)


@exercise("11.q1")
def hits_under_fifo(answer: Any) -> None:
    """Judge how many prefix hits there are under ``fifo``."""
    hits = _number(answer, "hits")
    model = open_model("tiny")
    engine = Engine(
        PagedLlama(model, page_size=8, capacity=48), tokenizer=model.tokenizer, policy="fifo"
    )
    often = "the capital of france"
    for prompt in (often, often, "somewhere over the rainbow", "a quick brown fox jumps", often):
        engine.submit(prompt, max_tokens=2)
        engine.run()
    right = engine.snapshot().hits
    if hits != right:
        raise Wrong(
            "the hits of five requests under fifo, one after the other",
            shown(hits),
            "which prompt came first, and is it still there when it comes for the third time?",
        )
