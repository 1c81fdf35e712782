"""The warning for calls that are accepted although they are surely not meant.

TVM accepts them in silence. Here each one warns, and is told to the observer. Inside ``exact()``
there are no warnings. Warnings come before anything changes, so that a filter that turns them
into errors makes the call a refused one.

Examples
--------
>>> issubclass(KVCacheWarning, UserWarning)
True
"""

__all__ = ["KVCacheWarning"]


class KVCacheWarning(UserWarning):
    """A call on a cache was accepted, but it is surely not what the caller meant."""
