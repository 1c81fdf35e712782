"""Where a recording begins whose first events were dropped.

A recorder that keeps the last events only must still say what they happened to. The state before
them (cache, engine, names of tokens, copies) becomes the text of one event, which a page reads as
Python does. There is no TVM counterpart.

Examples
--------
>>> start = PoolStart(CacheState(num_pages=4, page_size=2))
>>> PoolStart.of(start.as_event(1000)) == start
True
"""

import json
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from relaxlab.runtime.kv.snapshot import BlockState, CacheState, RoundState, SequenceState
from relaxlab.serve.events import EngineState, EntryState, NodeState
from relaxlab.trace.pool_events import EarlierDropped

__all__ = ["PoolStart"]


@dataclass(frozen=True)
class PoolStart:
    """Everything that a recording tells of one moment.

    Attributes
    ----------
    cache
        The pages.
    engine
        The engine, if one told anything.
    names, coming
        Tokens, as indices into the recording's table of texts (-1: nobody named it): of each
        block, and of each sequence those that are named but not there yet.
    copies
        For each page that began as a copy, its source and how many rows.
    """

    cache: CacheState
    engine: EngineState | None = None
    names: dict[int, list[int]] = field(default_factory=dict)
    coming: dict[int, list[int]] = field(default_factory=dict)
    copies: dict[int, tuple[int, int]] = field(default_factory=dict)

    def as_event(self, count: int) -> EarlierDropped:
        """Return the event that stands for ``count`` events before this moment."""
        engine = self.engine
        told: Any = None
        if engine is not None:
            told = asdict(engine) | {
                "entries": [[list(key), asdict(one)] for key, one in engine.entries.items()],
                "nodes": [[key, asdict(one)] for key, one in engine.nodes.items()],
            }
        content = {
            "cache": asdict(self.cache),
            "engine": told,
            "names": [[key, names] for key, names in self.names.items()],
            "coming": [[key, names] for key, names in self.coming.items()],
            "copies": [[page, *source] for page, source in self.copies.items()],
        }
        return EarlierDropped(count, json.dumps(content, separators=(",", ":")))

    @staticmethod
    def of(event: EarlierDropped) -> "PoolStart":
        """Return the moment that an event tells; it must not be changed."""
        return _read(event.state)


@lru_cache(maxsize=8)
def _read(text: str) -> PoolStart:
    content = json.loads(text)
    cache: dict[str, Any] = content["cache"]
    cache = {key: _tuples(value) for key, value in cache.items()}
    cache["blocks"] = tuple(BlockState(**_fields(one)) for one in cache["blocks"])
    cache["sequences"] = tuple(SequenceState(**_fields(one)) for one in cache["sequences"])
    cache["round"] = None if cache["round"] is None else RoundState(**_fields(cache["round"]))
    engine = content["engine"]
    if engine is not None:
        engine = EngineState(
            **{key: _tuples(value) for key, value in engine.items()}
            | {
                "entries": {
                    _tuples(key): EntryState(**_fields(one)) for key, one in engine["entries"]
                },
                "nodes": {key: NodeState(**_fields(one)) for key, one in engine["nodes"]},
            }
        )
    return PoolStart(
        CacheState(**cache),
        engine,
        dict(content["names"]),
        dict(content["coming"]),
        {page: (source, rows) for page, source, rows in content["copies"]},
    )


def _fields(values: dict[str, Any]) -> dict[str, Any]:
    return {key: _tuples(value) for key, value in values.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
