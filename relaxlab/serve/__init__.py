"""Serving: many requests, one paged cache.

The cache itself shares pages only by explicit fork, evicts nothing and never preempts. What a
serving system builds around it is here, one noun per file: `request` says what is wanted,
`sampler` and `stop` decide what is answered, `prefix_tree` and its two indexes (`radix_tree`,
`block_hash_cache`) remember which prefixes are computed, `prefix_cache` maps them onto the cache's
sequences, `eviction` picks what is forgotten, `speculation` guesses ahead, `scheduler` decides who
runs, `pages` and `rounds` carry that out, and `engine` is the loop. `events` tells all of it, so
that it can be drawn. `conversation` is a chat on top; `disaggregate` puts prefill elsewhere, and
`neighbour` into a second process of the same machine. Counterpart: MLC's serving engine; the
sources of each rule are named where it is used.

Examples
--------
>>> from relaxlab.serve.sampler import Sampling
>>> Sampling(temperature=0.8, seed=3).greedy
False
"""
