"""Attention as LLVM IR with explicit vectors: one function for pages, new keys and latent rows.

Keys are given as *runs*: stretches of rows at equal distance, such as the used rows of a page. A
tile of query rows that share a key/value head goes through the runs of a chunk three times:

1. scores: as many keys as a vector has lanes at a time. The products of a query and a key stay
   in a register of their own and are added up by a tree of shuffles: one score per lane.
2. weights: running maximum, powers of two, their sum. This is the only place with masks: what a
   row does not see has the score minus infinity.
3. output: the weighted sum of value rows, with all of a tile's accumulators in registers.

Scores and sums are float32. Counterpart: TVM's decode and prefill kernels, as its scheduler would
write them for a CPU with wide vectors.

Examples
--------
>>> steps = {"k_row": 32, "k_head": 512, "v_row": 32, "v_head": 512}
>>> layout = Layout(heads=1, group=2, k_dim=32, v_dim=32, **steps)
>>> text = program(layout, 2, Host("generic", "", 64, masks=True, half=True))
>>> "define internal i32 @scores.32" in text, "define i32 @attend" in text
(True, True)
"""

from dataclasses import dataclass
from typing import Final

from relaxlab.codegen.attention.score_block import prefetch, scores
from relaxlab.codegen.llvm.builder import Builder, Value
from relaxlab.codegen.llvm.host import Host
from relaxlab.codegen.llvm.mathematics import helper_text
from relaxlab.errors import InternalError

__all__ = [
    "CHUNK_WORDS",
    "Layout",
    "RUN_WORDS",
    "lanes_of",
    "program",
    "rows_of_tile",
]

CHUNK_WORDS: Final = (
    "first_token",
    "tokens",
    "first_run",
    "last_run",
    "keys",
    # the keys that row t sees: from lo + t * lo_step to hi + t * hi_step, within 0 and keys
    "hi",
    "hi_step",
    "lo",
    "lo_step",
    # of a tree: what is added to the scores of keys from bias_start on, [tokens, bias_keys]
    "bias",
    "bias_start",
    "bias_keys",
)
"""The 64-bit words that describe a chunk."""

RUN_WORDS: Final = ("k_offset", "v_offset", "count")
"""The 64-bit words that describe a run; offsets are in elements."""

_STORED: Final = {"float32": "float", "float16": "half", "bfloat16": "i16"}
_START: Final = -5.0e4
_ACCUMULATORS: Final = 24
"""Registers for sums, of 32."""
_WRITTEN: Final = frozenset({"scratch", "queries", "keys", "out", "lse", "inverse"})


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things are, in elements.

    Attributes
    ----------
    heads, group
        Key/value heads, and query heads for each.
    k_dim, v_dim
        Features of a key and of a value.
    k_row, k_head, v_row, v_head
        Distance between neighbouring rows of a run, and between heads.
    dtype
        Element type of keys and values; queries and outputs are float32.
    """

    heads: int
    group: int
    k_dim: int
    v_dim: int
    k_row: int
    k_head: int
    v_row: int
    v_head: int
    dtype: str = "float32"

    def __post_init__(self) -> None:
        if self.dtype not in _STORED:
            raise InternalError(
                f"compiled attention: expected keys of {', '.join(_STORED)}, got {self.dtype}"
            )


def lanes_of(layout: Layout, host: Host) -> int:
    """Return the width of vectors: what fills a register and divides both dimensions."""
    lanes = host.lanes(32)
    while lanes > 1 and (layout.k_dim % lanes or layout.v_dim % lanes):
        lanes //= 2
    return lanes


def _columns(layout: Layout, lanes: int, rows: int) -> int:
    """Return how many vectors of an output row are summed at a time."""
    vectors, columns = layout.v_dim // lanes, max(_ACCUMULATORS // rows, 1)
    columns = min(vectors, columns)
    while vectors % columns:
        columns -= 1
    return columns


def rows_of_tile(layout: Layout, host: Host, *, rows: int) -> int:
    """Return how many of ``rows`` query rows are best taken together."""
    vectors = layout.v_dim // lanes_of(layout, host)
    most = max(min(_ACCUMULATORS // min(vectors, 8), 6), 1)
    tiles = -(-rows // most)
    return -(-rows // tiles)


def program(layout: Layout, rows: int, host: Host) -> str:
    """Return a module with ``attend`` for tiles of ``rows`` query rows.

    Its arguments: addresses of queries, keys, values, runs, chunks; number of chunks; addresses of
    biases, output, log-sum-exp, scratch; elements between scratch rows; factor on the scores.
    """
    lanes = lanes_of(layout, host)
    attend = _Attend(layout, lanes, rows)
    text, declared = attend.write(), dict(attend.b.declarations)
    # keys where they are, and keys copied to the stack
    for stride in sorted({layout.k_row, layout.k_dim}):
        block = scores(layout.k_dim, lanes, rows, stride)
        text += block.finish()
        declared.update(block.declarations)
    helpers = helper_text(attend.b.helpers, host)
    extra = "".join(f"{line}\n" for line in declared.values() if line not in helpers)
    return text + helpers + extra


class _Attend:
    """Writes ``attend``."""

    def __init__(self, layout: Layout, lanes: int, rows: int) -> None:
        self.layout, self.lanes, self.rows = layout, lanes, rows
        pointers = ("q", "k", "v", "runs", "chunks")
        more = ("biases", "out", "lse", "scratch")
        self.b = Builder(
            "attend",
            [
                *(("ptr", name) for name in pointers),
                ("i64", "count"),
                *(("ptr", name) for name in more),
                ("i64", "pitch"),
                ("float", "scale"),
            ],
            export=True,
        )
        b = self.b
        self.queries = b.allocate("float", rows * layout.k_dim, 64, "queries")
        self.keys = b.allocate("float", lanes * layout.k_dim, 64, "keys")
        self.inverse = b.allocate("float", rows, 64, "inverse")

    def write(self) -> str:
        """Return the text of the function."""
        b, n = self.b, self.b.int64
        with b.loop(n(0), b.argument("count"), 1, writes=_WRITTEN) as chunk:
            base = b.binary("mul", chunk.index, n(len(CHUNK_WORDS)))
            record = b.element(b.argument("chunks"), base, "i64")
            word = {
                name: b.load(b.element(record, n(i), "i64"), "i64", 0, 8, "chunks")
                for i, name in enumerate(CHUNK_WORDS)
            }
            all_rows = b.binary("mul", word["tokens"], n(self.layout.group))
            with (
                b.loop(n(0), n(self.layout.heads), 1, writes=_WRITTEN) as head,
                b.loop(n(0), all_rows, self.rows, writes=_WRITTEN) as tile,
            ):
                # the last tile begins earlier, so that it is full too
                last = b.binary("sub", all_rows, n(self.rows))
                start = b.intrinsic("smin", tile.index, last)
                self._tile(word, head.index, start)
        return b.finish()

    def _tile(self, word: dict[str, Value], head: Value, start: Value) -> None:
        b, n = self.b, self.b.int64
        first = self._token(start)
        last = self._token(b.binary("add", start, n(self.rows - 1)))
        lo, hi = self._lo(word, first), self._hi(word, last)
        self._copy_queries(word, head, start)
        self._all_scores(word, head, lo, hi)
        self._weights(word, head, start, lo, hi)
        columns = _columns(self.layout, self.lanes, self.rows)
        for column in range(0, self.layout.v_dim // self.lanes, columns):
            self._output(word, head, start, lo, hi, column * self.lanes, columns)

    def _token(self, row: Value) -> Value:
        return self.b.binary("udiv", row, self.b.int64(self.layout.group))

    def _lo(self, word: dict[str, Value], token: Value) -> Value:
        return self._within(word, "lo", "lo_step", token)

    def _hi(self, word: dict[str, Value], token: Value) -> Value:
        return self._within(word, "hi", "hi_step", token)

    def _within(self, word: dict[str, Value], base: str, step: str, token: Value) -> Value:
        b = self.b
        bound = b.binary("add", word[base], b.binary("mul", word[step], token))
        return b.intrinsic("smax", b.intrinsic("smin", bound, word["keys"]), b.int64(0))

    def _row_of(self, word: dict[str, Value], head: Value, row: Value) -> Value:
        """Return the number of a tile's row among all (token, query head)."""
        b, n, layout = self.b, self.b.int64, self.layout
        token = self._token(row)
        within = b.binary("sub", row, b.binary("mul", token, n(layout.group)))
        heads = n(layout.heads * layout.group)
        whole = b.binary("mul", b.binary("add", word["first_token"], token), heads)
        head_row = b.binary("add", b.binary("mul", head, n(layout.group)), within)
        return b.binary("add", whole, head_row)

    def _copy_queries(self, word: dict[str, Value], head: Value, start: Value) -> None:
        """Copy the tile's queries to the stack, times the factor on scores."""
        b, n, layout = self.b, self.b.int64, self.layout
        scale = b.splat(b.argument("scale"), self.lanes)
        with b.loop(n(0), n(self.rows), 1, writes=_WRITTEN) as row:
            source = self._row_of(word, head, b.binary("add", start, row.index))
            q = b.element(b.argument("q"), b.binary("mul", source, n(layout.k_dim)), "float")
            copy = b.element(self.queries, b.binary("mul", row.index, n(layout.k_dim)), "float")
            for d in range(0, layout.k_dim, self.lanes):
                part = b.load(b.element(q, n(d), "float"), "float", self.lanes, 4, "q")
                scaled = b.binary("fmul", part, scale)
                b.store(scaled, b.element(copy, n(d), "float"), 4, "queries")

    def _run(self, word: dict[str, Value], number: Value, name: str) -> Value:
        b, n = self.b, self.b.int64
        at = b.binary("add", word["first_run"], number)
        at = b.binary("add", b.binary("mul", at, n(len(RUN_WORDS))), n(RUN_WORDS.index(name)))
        return b.load(b.element(b.argument("runs"), at, "i64"), "i64", 0, 8, "runs")

    def _next(self, word: dict[str, Value], runs: Value, number: Value, name: str) -> Value:
        """Return an offset of the run after this one, or of the last one."""
        b, n = self.b, self.b.int64
        last = b.binary("sub", runs, n(1))
        after = b.intrinsic("smin", b.binary("add", number, n(1)), last)
        return self._run(word, after, name)

    def _all_scores(self, word: dict[str, Value], head: Value, lo: Value, hi: Value) -> None:
        """Compute the scores of keys ``lo`` to ``hi - 1``."""
        b, n, layout = self.b, self.b.int64, self.layout
        runs = b.binary("sub", word["last_run"], word["first_run"])
        elem = _STORED[layout.dtype]
        head_at = b.binary("mul", head, n(layout.k_head))
        with b.loop(n(0), runs, 1, carried=[n(0)], writes=_WRITTEN) as run:
            position = run.carried[0]
            after = b.binary("add", position, self._run(word, run.index, "count"))
            begin = b.intrinsic("smax", position, lo)
            end = b.intrinsic("smax", b.intrinsic("smin", after, hi), begin)
            offset = b.binary("add", self._run(word, run.index, "k_offset"), head_at)
            # row of a key: its number less that of the run's first key
            origin = b.binary("sub", offset, b.binary("mul", position, n(layout.k_row)))
            whole = begin
            soon = b.element(
                b.argument("k"),
                b.binary("add", self._next(word, runs, run.index, "k_offset"), head_at),
                elem,
            )
            if layout.dtype == "float32":
                blocks = b.binary("sdiv", b.binary("sub", end, begin), n(self.lanes))
                whole = b.binary("add", begin, b.binary("mul", blocks, n(self.lanes)))
                with b.loop(begin, whole, self.lanes, writes=_WRITTEN) as block:
                    at = b.binary("mul", block.index, n(layout.k_row))
                    keys = b.element(b.argument("k"), b.binary("add", origin, at), elem)
                    self._call_scores(keys, soon, layout.k_row, block.index)
            with b.loop(whole, end, self.lanes, writes=_WRITTEN) as block:
                # rows that are not there: the last one again; their scores are written over
                last = b.binary("sub", end, n(1))
                with b.loop(n(0), n(self.lanes), 1, writes=_WRITTEN) as lane:
                    key = b.intrinsic("smin", b.binary("add", block.index, lane.index), last)
                    at = b.binary("add", origin, b.binary("mul", key, n(layout.k_row)))
                    row = b.element(b.argument("k"), at, elem)
                    to = b.binary("mul", lane.index, n(layout.k_dim))
                    copy = b.element(self.keys, to, "float")
                    for d in range(0, layout.k_dim, self.lanes):
                        part = self._load(b.element(row, n(d), elem), "k")
                        b.store(part, b.element(copy, n(d), "float"), 4, "keys")
                self._call_scores(self.keys, self.keys, layout.k_dim, block.index)
            run.next[0] = after

    def _call_scores(self, keys: Value, soon: Value, stride: int, number: Value) -> None:
        b = self.b
        out = b.element(b.argument("scratch"), number, "float")
        arguments = (keys, soon, self.queries, out, b.argument("pitch"))
        b.line(f"call i32 @scores.{stride}({', '.join(a.typed for a in arguments)})")
        b.forget("scratch")

    def _load(self, address: Value, buffer: str) -> Value:
        """Load a vector of keys or values as float32."""
        b, lanes = self.b, self.lanes
        match self.layout.dtype:
            case "float16":
                return b.convert("fpext", b.load(address, "half", lanes, 2, buffer), "float")
            case "bfloat16":
                bits = b.convert("zext", b.load(address, "i16", lanes, 2, buffer), "i32")
                high = b.binary("shl", bits, b.literal(16, "i32", lanes))
                return b.convert("bitcast", high, "float")
            case _:
                return b.load(address, "float", lanes, 4, buffer)

    def _weights(
        self, word: dict[str, Value], head: Value, start: Value, lo: Value, hi: Value
    ) -> None:
        """Turn the scores of each row into weights; note the inverse of their sum and the LSE."""
        b, n, lanes = self.b, self.b.int64, self.lanes
        hidden = b.literal(float("-inf"), "float", lanes)
        with b.loop(n(0), n(self.rows), 1, writes=_WRITTEN) as row:
            line = b.element(
                b.argument("scratch"), b.binary("mul", row.index, b.argument("pitch")), "float"
            )
            b.store(hidden, b.element(line, hi, "float"), 4, "scratch")
            number = b.binary("add", start, row.index)
            token = self._token(number)
            self._hide(line, lo, b.intrinsic("smin", self._lo(word, token), hi))
            self._hide(line, b.intrinsic("smax", self._hi(word, token), lo), hi)
            self._add_bias(word, line, token)
            top = b.literal(_START, "float", lanes)
            with b.loop(lo, hi, lanes, carried=[top], writes=_WRITTEN) as block:
                part = b.load(b.element(line, block.index, "float"), "float", lanes, 4, "scratch")
                block.next[0] = b.intrinsic("maxnum", block.carried[0], part)
            highest = self._across("fmax", block.results[0])
            spread = b.splat(highest, lanes)
            zero = b.literal(0.0, "float", lanes)
            with b.loop(lo, hi, lanes, carried=[zero], writes=_WRITTEN) as block:
                place = b.element(line, block.index, "float")
                part = b.load(place, "float", lanes, 4, "scratch")
                weight = b.call_helper("exp2", "float", [b.binary("fsub", part, spread)])
                b.store(weight, place, 4, "scratch")
                block.next[0] = b.binary("fadd", block.carried[0], weight)
            total = b.splat(self._across("fadd", block.results[0]), lanes)
            beginning = b.binary("fsub", b.literal(_START, "float", lanes), spread)
            total = b.binary("fadd", total, b.call_helper("exp2", "float", [beginning]))
            one = b.literal(1.0, "float", lanes)
            inverse = b.extract(b.binary("fdiv", one, total), 0)
            b.store(inverse, b.element(self.inverse, row.index, "float"), 4, "inverse")
            log = b.binary("fadd", spread, b.call_helper("log2", "float", [total]))
            target = b.element(b.argument("lse"), self._row_of(word, head, number), "float")
            b.store(b.extract(log, 0), target, 4, "lse")

    def _across(self, op: str, vector: Value) -> Value:
        b, kind = self.b, vector.type
        name = f"llvm.vector.reduce.{op}.v{vector.lanes}f32"
        first = "float, " if op == "fadd" else ""
        b.declarations.setdefault(name, f"declare float @{name}({first}{kind})")
        first = "float -0.0, " if op == "fadd" else ""
        return b.fresh(f"call reassoc float @{name}({first}{vector.typed})", "float")

    def _hide(self, line: Value, first: Value, last: Value) -> None:
        b = self.b
        with b.loop(first, last, 1, writes=_WRITTEN) as key:
            hidden = b.literal(float("-inf"), "float")
            b.store(hidden, b.element(line, key.index, "float"), 4, "scratch")

    def _add_bias(self, word: dict[str, Value], line: Value, token: Value) -> None:
        b = self.b
        with b.loop(b.int64(0), word["bias_keys"], 1, writes=_WRITTEN) as key:
            at = b.binary("add", word["bias"], b.binary("mul", token, word["bias_keys"]))
            source = b.element(b.argument("biases"), b.binary("add", at, key.index), "float")
            place = b.element(line, b.binary("add", word["bias_start"], key.index), "float")
            bias = b.load(source, "float", 0, 4, "biases")
            score = b.load(place, "float", 0, 4, "scratch")
            b.store(b.binary("fadd", score, bias), place, 4, "scratch")

    def _output(
        self,
        word: dict[str, Value],
        head: Value,
        start: Value,
        lo: Value,
        hi: Value,
        column: int,
        columns: int,
    ) -> None:
        """Sum the values times their weights, for some columns of all rows of the tile."""
        b, n, layout, lanes = self.b, self.b.int64, self.layout, self.lanes
        runs = b.binary("sub", word["last_run"], word["first_run"])
        elem = _STORED[layout.dtype]
        head_at = b.binary("add", b.binary("mul", head, n(layout.v_head)), n(column))
        lines = [
            b.element(b.argument("scratch"), b.binary("mul", n(r), b.argument("pitch")), "float")
            for r in range(self.rows)
        ]
        zero = b.literal(0.0, "float", lanes)
        sums = [zero] * (self.rows * columns)
        with b.loop(n(0), runs, 1, carried=[n(0), *sums], writes=_WRITTEN) as run:
            position = run.carried[0]
            after = b.binary("add", position, self._run(word, run.index, "count"))
            begin = b.intrinsic("smax", position, lo)
            end = b.intrinsic("smax", b.intrinsic("smin", after, hi), begin)
            offset = b.binary("add", self._run(word, run.index, "v_offset"), head_at)
            origin = b.binary("sub", offset, b.binary("mul", position, n(layout.v_row)))
            following = b.binary("add", self._next(word, runs, run.index, "v_offset"), head_at)
            with b.loop(begin, end, 1, carried=run.carried[1:], writes=_WRITTEN) as key:
                ahead = b.binary("mul", b.binary("sub", key.index, begin), n(layout.v_row))
                soon = b.element(b.argument("v"), b.binary("add", following, ahead), elem)
                prefetch(b, soon, 0, columns * lanes)
                at = b.binary("add", origin, b.binary("mul", key.index, n(layout.v_row)))
                row = b.element(b.argument("v"), at, elem)
                values = [
                    self._load(b.element(row, n(c * lanes), elem), "v") for c in range(columns)
                ]
                for r, line in enumerate(lines):
                    place = b.element(line, key.index, "float")
                    weight = b.splat(b.load(place, "float", 0, 4, "scratch"), lanes)
                    for c, value in enumerate(values):
                        i = r * columns + c
                        key.next[i] = b.fma(weight, value, key.carried[i])
            run.next[0] = after
            run.next[1:] = key.results
        for r in range(self.rows):
            number = self._row_of(word, head, b.binary("add", start, n(r)))
            at = b.binary("add", b.binary("mul", number, n(layout.v_dim)), n(column))
            out = b.element(b.argument("out"), at, "float")
            factor = b.load(b.element(self.inverse, n(r), "float"), "float", 0, 4, "inverse")
            for c in range(columns):
                total = run.results[1 + r * columns + c]
                scaled = b.binary("fmul", total, b.splat(factor, lanes))
                b.store(scaled, b.element(out, n(c * lanes), "float"), 4, "out")
