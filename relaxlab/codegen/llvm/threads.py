"""Worker threads that share the iterations of a kernel's outer loop.

A kernel asks for help with a loop through one word of memory: the address of ``launch``. Workers
are Python threads that never return from machine code, so they need no lock of the interpreter.
Whoever is free takes the next iterations from a common counter. A worker that comes late finds
nothing left and nobody waits for it: the thread that asked does all the work itself, at the cost
of waking the other. It stops asking for a while when nobody came, or when it had to wait longer
than it had worked: then the machine is busy with other things. Counterpart: TVM's thread pool,
whose environment variables it obeys.

``TVM_NUM_THREADS``, else ``OMP_NUM_THREADS``, else the processors that this process may use, say
how many threads work on a loop, the one that asked included. With 1 there are no workers. Nothing
is started before the first loop that is large enough; a forked child starts its own.

Examples
--------
>>> with use_threads(1):
...     num_threads()
1
"""

import _thread
import atexit
import ctypes
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

from relaxlab.codegen.llvm.cache import default_store, digest
from relaxlab.codegen.llvm.machine import machine

__all__ = ["LAUNCH", "PART", "Pool", "num_threads", "pool", "use_threads"]

#: A part of a loop: what it needs, first and last iteration, where details of an error go.
PART: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p
)
#: ``launch``: pool, part, what it needs, first and last iteration, what a chunk is a multiple of
#: (a power of two), cost of an iteration, where details of an error go.
LAUNCH: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    *[ctypes.c_void_p] * 3,
    *[ctypes.c_int64] * 4,
    ctypes.c_void_p,
)
_WORK: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)

#: The most threads that work on one loop.
_MOST: Final = 64
#: Cost (see parallel.py) of what is worth waking one more thread, and of the smallest chunk.
_SHARE: Final = 3_000_000
_GRAIN: Final = 1_000_000
#: Cost of what is done without asking again when all processors were busy.
_CROWDED: Final = 50_000_000
# how often to look before sleeping: some 20 microseconds for a worker, 100 for who asked
_WORKER_LOOKS: Final = 1000
_OWNER_LOOKS: Final = 5000

# the words of a pool
_WORDS: Final = {
    "launch": 0,
    "threads": 1,
    "busy": 2,
    "skip": 3,
    "done": 4,
    "misses": 5,
    "launches": 6,
    "helped": 7,
    "loads": 8,
    "processors": 9,
    # what threads fight for has a cache line (or two) of its own
    "gate": 16,
    "next": 32,
    "part": 48,
    "context": 49,
    "last": 50,
    "multiple": 51,
    "grain": 52,
    "helpers": 53,
}
# the words of each participant; number 0 is whoever asks
_FIRST: Final = 64
_EACH: Final = 32
_RECORD: Final = {"asleep": 0, "lock": 1, "begin": 2, "status": 3, "chunks": 4, "state": 8}
#: Words of details that an error may have.
_DETAILS: Final = 16
# the gate: a generation in the upper half, two flags, and how many workers are inside
_CLOSED: Final = 1 << 31
_WAITED: Final = 1 << 30
_COUNT: Final = 0xFFFF
_NEVER: Final = 2**63 - 1


def _program() -> str:
    """Return the module with ``launch`` and ``work``."""
    x86 = platform.machine().lower() in ("x86_64", "amd64")
    pause = "  call void @llvm.x86.sse2.pause()" if x86 else ""
    clock = "call i64 @llvm.readcyclecounter()" if x86 else "add i64 0, 0"
    declared = "declare void @llvm.x86.sse2.pause()\ndeclare i64 @llvm.readcyclecounter()"
    idle = _IDLE if sys.platform == "linux" else _ALWAYS_IDLE
    at = {
        name: f"  %{name}.at = getelementptr i64, ptr %pool, i64 {word}\n"
        for name, word in _WORDS.items()
    }

    def places(*names: str) -> str:
        return "".join(at[name] for name in names)

    def record(number: str, *names: str, prefix: str = "") -> str:
        own = (
            f"  %{prefix}offset = mul i64 {number}, {_EACH}\n"
            f"  %{prefix}word = add i64 %{prefix}offset, {_FIRST}\n"
            f"  %{prefix}own = getelementptr i64, ptr %pool, i64 %{prefix}word\n"
        )
        return own + "".join(
            f"  %{prefix}{name}.at = getelementptr i64, ptr %{prefix}own, i64 {_RECORD[name]}\n"
            for name in names
        )

    return f"""
declare i32 @PyThread_acquire_lock(ptr, i32)
declare void @PyThread_release_lock(ptr)
{declared if x86 else ""}
{idle}

; take iterations until none are left or one fails
define internal void @share(ptr %pool, i64 %me) noinline {{
entry:
{places("next", "part", "context", "last", "multiple", "grain", "helpers")}
{record("%me", "begin", "status", "chunks", "state")}
  %part = load ptr, ptr %part.at
  %context = load ptr, ptr %context.at
  %last = load i64, ptr %last.at
  %multiple = load i64, ptr %multiple.at
  %grain = load i64, ptr %grain.at
  %helpers = load i64, ptr %helpers.at
  %all = add i64 %helpers, 1
  %twice = shl i64 %all, 1
  %fill = sub i64 %multiple, 1
  %mask = sub i64 0, %multiple
  br label %take
take:
  %now = load atomic i64, ptr %next.at monotonic, align 8
  %left = sub i64 %last, %now
  %some = icmp sgt i64 %left, 0
  br i1 %some, label %size, label %end
size:
  %fair = udiv i64 %left, %twice
  %filled = add i64 %fair, %fill
  %even = and i64 %filled, %mask
  %small = icmp slt i64 %even, %grain
  %chunk = select i1 %small, i64 %grain, i64 %even
  %short = icmp slt i64 %left, %chunk
  %count = select i1 %short, i64 %left, i64 %chunk
  %stop = add i64 %now, %count
  %pair = cmpxchg ptr %next.at, i64 %now, i64 %stop monotonic monotonic, align 8
  %mine = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %mine, label %run, label %take
run:
  %chunks = load i64, ptr %chunks.at
  %more = add i64 %chunks, 1
  store i64 %more, ptr %chunks.at
  %status = call i32 %part(ptr %context, i64 %now, i64 %stop, ptr %state.at)
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %take, label %failed
failed:
  ; all iterations before these are taken, so that the first error is among those that come
  store i64 %now, ptr %begin.at
  %status.wide = sext i32 %status to i64
  store i64 %status.wide, ptr %status.at
  store atomic i64 %last, ptr %next.at monotonic, align 8
  br label %end
end:
  ret void
}}

define i32 @launch(ptr %pool, ptr %part, ptr %context, i64 %first, i64 %last, i64 %multiple,
                   i64 %cost, ptr %state) {{
entry:
{"".join(at.values())}
  %pair = cmpxchg ptr %busy.at, i64 0, i64 1 acquire monotonic, align 8
  %ours = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %ours, label %think, label %alone
alone:
  %status.alone = call i32 %part(ptr %context, i64 %first, i64 %last, ptr %state)
  ret i32 %status.alone
think:
  %total = sub i64 %last, %first
  %work = mul i64 %total, %cost
  %skip = load i64, ptr %skip.at
  %skipping = icmp sgt i64 %skip, 0
  br i1 %skipping, label %skipped, label %count
skipped:
  %skip.less = sub i64 %skip, %work
  store i64 %skip.less, ptr %skip.at
  br label %decline
crowd:
  store i64 {_CROWDED}, ptr %skip.at
  br label %decline
decline:
  store atomic i64 0, ptr %busy.at release, align 8
  br label %alone
count:
  %useful = sdiv i64 %work, {_SHARE}
  %threads = load i64, ptr %threads.at
  %others = sub i64 %threads, 1
  %few = icmp slt i64 %useful, %others
  %hoped.some = select i1 %few, i64 %useful, i64 %others
  ; no more than there are chunks
  %pieces = udiv i64 %total, %multiple
  %spare = sub i64 %pieces, 1
  %scarce = icmp slt i64 %spare, %hoped.some
  %hoped = select i1 %scarce, i64 %spare, i64 %hoped.some
  %none = icmp slt i64 %hoped, 1
  br i1 %none, label %decline, label %who
who:
  ; a worker that is still awake has a processor; to wake one there must be an idle one
{record("1", "asleep", prefix="one.")}
  %one.asleep = load atomic i64, ptr %one.asleep.at monotonic, align 8
  %awake = icmp eq i64 %one.asleep, 0
  br i1 %awake, label %open, label %ask
ask:
  %idle = call i64 @idle(ptr %pool)
  %crowded = icmp slt i64 %idle, %hoped
  %possible = select i1 %crowded, i64 %idle, i64 %hoped
  %nobody = icmp slt i64 %possible, 1
  br i1 %nobody, label %crowd, label %open
open:
  %helpers = phi i64 [ %hoped, %who ], [ %possible, %ask ]
  %per.bad = icmp slt i64 %cost, 1
  %per = select i1 %per.bad, i64 1, i64 %cost
  %least = udiv i64 {_GRAIN}, %per
  %fill = sub i64 %multiple, 1
  %mask = sub i64 0, %multiple
  %least.filled = add i64 %least, %fill
  %least.even = and i64 %least.filled, %mask
  %nothing = icmp slt i64 %least.even, %multiple
  %grain = select i1 %nothing, i64 %multiple, i64 %least.even
  store ptr %part, ptr %part.at
  store ptr %context, ptr %context.at
  store i64 %last, ptr %last.at
  store i64 %multiple, ptr %multiple.at
  store i64 %grain, ptr %grain.at
  store i64 %helpers, ptr %helpers.at
  store atomic i64 %first, ptr %next.at monotonic, align 8
  br label %clear
clear:
  %c = phi i64 [ 0, %open ], [ %c.next, %clear ]
{record("%c", "begin", "chunks", prefix="c.")}
  store i64 {_NEVER}, ptr %c.begin.at
  store i64 0, ptr %c.chunks.at
  %c.next = add i64 %c, 1
  %c.more = icmp sle i64 %c.next, %helpers
  br i1 %c.more, label %clear, label %begin
begin:
  %gate.old = load atomic i64, ptr %gate.at monotonic, align 8
  %generation.old = lshr i64 %gate.old, 32
  %generation = add i64 %generation.old, 1
  %gate.new = shl i64 %generation, 32
  %ignored = atomicrmw xchg ptr %gate.at, i64 %gate.new seq_cst, align 8
  br label %wake
wake:
  %w = phi i64 [ 1, %begin ], [ %w.next, %woken ]
{record("%w", "asleep", "lock", prefix="w.")}
  %w.asleep = atomicrmw xchg ptr %w.asleep.at, i64 0 seq_cst, align 8
  %w.sleeps = icmp ne i64 %w.asleep, 0
  br i1 %w.sleeps, label %shake, label %woken
shake:
  %w.lock = load ptr, ptr %w.lock.at
  call void @PyThread_release_lock(ptr %w.lock)
  br label %woken
woken:
  %w.next = add i64 %w, 1
  %w.more = icmp sle i64 %w.next, %helpers
  br i1 %w.more, label %wake, label %help
help:
  %t.start = {clock}
  call void @share(ptr %pool, i64 0)
  %t.worked = {clock}
  %gate.shut = atomicrmw or ptr %gate.at, i64 {_CLOSED} acq_rel, align 8
  br label %look
look:
  %looks = phi i64 [ 0, %help ], [ %looks.next, %again ]
  %gate.now = load atomic i64, ptr %gate.at acquire, align 8
  %inside = and i64 %gate.now, {_COUNT}
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %all, label %again
again:
{pause}
  %looks.next = add i64 %looks, 1
  %looks.more = icmp slt i64 %looks.next, {_OWNER_LOOKS}
  br i1 %looks.more, label %look, label %wait
wait:
  %gate.waited = atomicrmw or ptr %gate.at, i64 {_WAITED} acq_rel, align 8
  %inside.still = and i64 %gate.waited, {_COUNT}
  %empty.now = icmp eq i64 %inside.still, 0
  br i1 %empty.now, label %all, label %block
block:
  %done = load ptr, ptr %done.at
  %got = call i32 @PyThread_acquire_lock(ptr %done, i32 1)
  br label %all
all:
  %t.end = {clock}
  %worked = sub i64 %t.worked, %t.start
  %waited = sub i64 %t.end, %t.worked
  %late = icmp ugt i64 %waited, %worked
  br label %merge
merge:
  %m = phi i64 [ 0, %all ], [ %m.next, %merge ]
  %best = phi i64 [ {_NEVER}, %all ], [ %best.next, %merge ]
  %which = phi i64 [ 0, %all ], [ %which.next, %merge ]
  %taken = phi i64 [ 0, %all ], [ %taken.next, %merge ]
{record("%m", "begin", "chunks", prefix="m.")}
  %m.begin = load i64, ptr %m.begin.at
  %m.chunks = load i64, ptr %m.chunks.at
  %m.other = icmp ne i64 %m, 0
  %m.counts = select i1 %m.other, i64 %m.chunks, i64 0
  %taken.next = add i64 %taken, %m.counts
  %m.better = icmp slt i64 %m.begin, %best
  %best.next = select i1 %m.better, i64 %m.begin, i64 %best
  %which.next = select i1 %m.better, i64 %m, i64 %which
  %m.next = add i64 %m, 1
  %m.more = icmp sle i64 %m.next, %helpers
  br i1 %m.more, label %merge, label %judge
judge:
  %alone.again = icmp eq i64 %taken.next, 0
  %misses = load i64, ptr %misses.at
  %bad = or i1 %late, %alone.again
  ; two for a miss, three for a long wait, half of all for a hit
  %long = zext i1 %late to i64
  %more.misses = add i64 %misses, %long
  %misses.up = add i64 %more.misses, 2
  %misses.many = icmp sgt i64 %misses.up, 9
  %misses.capped = select i1 %misses.many, i64 9, i64 %misses.up
  %misses.down = lshr i64 %misses, 1
  %misses.new = select i1 %bad, i64 %misses.capped, i64 %misses.down
  store i64 %misses.new, ptr %misses.at
  %patient = icmp slt i64 %misses.new, 4
  %rest = shl i64 {_SHARE}, %misses.new
  %skip.new = select i1 %patient, i64 0, i64 %rest
  store i64 %skip.new, ptr %skip.at
  %launches = load i64, ptr %launches.at
  %launches.new = add i64 %launches, 1
  store i64 %launches.new, ptr %launches.at
  %helped = load i64, ptr %helped.at
  %helped.one = xor i1 %alone.again, true
  %helped.add = zext i1 %helped.one to i64
  %helped.new = add i64 %helped, %helped.add
  store i64 %helped.new, ptr %helped.at
  %good = icmp eq i64 %best.next, {_NEVER}
  br i1 %good, label %right, label %wrong
right:
  store atomic i64 0, ptr %busy.at release, align 8
  ret i32 0
wrong:
{record("%which.next", "status", "state", prefix="e.")}
  %e.status = load i64, ptr %e.status.at
  call void @llvm.memcpy.p0.p0.i64(ptr %state, ptr %e.state.at, i64 {8 * _DETAILS}, i1 false)
  %status = trunc i64 %e.status to i32
  store atomic i64 0, ptr %busy.at release, align 8
  ret i32 %status
}}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

; what a worker does for ever
define void @work(ptr %pool, i64 %me) {{
entry:
{places("gate", "done", "helpers")}
{record("%me", "asleep", "lock")}
  %lock = load ptr, ptr %lock.at
  br label %watch
watch:
  %seen = phi i64 [ -1, %entry ], [ %seen, %slept ], [ %seen, %lost ], [ %generation, %left ]
  br label %look
look:
  %looks = phi i64 [ 0, %watch ], [ %looks.next, %again ]
  %gate = load atomic i64, ptr %gate.at acquire, align 8
  %generation = lshr i64 %gate, 32
  %fresh = icmp ne i64 %generation, %seen
  %shut = and i64 %gate, {_CLOSED}
  %is.open = icmp eq i64 %shut, 0
  %go = and i1 %fresh, %is.open
  br i1 %go, label %enter, label %again
again:
{pause}
  %looks.next = add i64 %looks, 1
  %looks.more = icmp slt i64 %looks.next, {_WORKER_LOOKS}
  br i1 %looks.more, label %look, label %sleep
sleep:
  %ignored = atomicrmw xchg ptr %asleep.at, i64 1 seq_cst, align 8
  %gate.last = load atomic i64, ptr %gate.at seq_cst, align 8
  %generation.last = lshr i64 %gate.last, 32
  %fresh.last = icmp ne i64 %generation.last, %seen
  %shut.last = and i64 %gate.last, {_CLOSED}
  %open.last = icmp eq i64 %shut.last, 0
  %go.last = and i1 %fresh.last, %open.last
  br i1 %go.last, label %rise, label %block
rise:
  %was = atomicrmw xchg ptr %asleep.at, i64 0 seq_cst, align 8
  %alone = icmp ne i64 %was, 0
  br i1 %alone, label %slept, label %block
block:
  %got = call i32 @PyThread_acquire_lock(ptr %lock, i32 1)
  br label %slept
slept:
  br label %watch
enter:
  %helpers = load atomic i64, ptr %helpers.at monotonic, align 8
  %wanted = icmp sle i64 %me, %helpers
  br i1 %wanted, label %try, label %left
try:
  %gate.in = add i64 %gate, 1
  %pair = cmpxchg ptr %gate.at, i64 %gate, i64 %gate.in acq_rel monotonic, align 8
  %inside = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %inside, label %share, label %lost
lost:
  br label %watch
share:
  call void @share(ptr %pool, i64 %me)
  %gate.out = atomicrmw sub ptr %gate.at, i64 1 acq_rel, align 8
  %others = and i64 %gate.out, {_COUNT}
  %was.last = icmp eq i64 %others, 1
  %wait.bit = and i64 %gate.out, {_WAITED}
  %is.waited = icmp ne i64 %wait.bit, 0
  %tell = and i1 %was.last, %is.waited
  br i1 %tell, label %told, label %left
told:
  %done = load ptr, ptr %done.at
  call void @PyThread_release_lock(ptr %done)
  br label %left
left:
  br label %watch
}}
"""


#: Says how many processors do nothing: a line like ``0.61 0.90 1.01 3/151 16280`` has the
#: number of threads that want to run.
_IDLE: Final = f"""
declare i64 @pread(i32, ptr, i64, i64)

define internal i64 @idle(ptr %pool) noinline {{
entry:
  %line = alloca i8, i64 64
  %loads.at = getelementptr i64, ptr %pool, i64 {_WORDS["loads"]}
  %processors.at = getelementptr i64, ptr %pool, i64 {_WORDS["processors"]}
  %processors = load i64, ptr %processors.at
  %loads = load i64, ptr %loads.at
  %file = trunc i64 %loads to i32
  %length = call i64 @pread(i32 %file, ptr %line, i64 63, i64 0)
  %read = icmp sgt i64 %length, 0
  br i1 %read, label %scan, label %unknown
scan:
  %k = phi i64 [ 0, %entry ], [ %k.next, %step ]
  %spaces = phi i64 [ 0, %entry ], [ %spaces.next, %step ]
  %running = phi i64 [ 0, %entry ], [ %running.next, %step ]
  %letter.at = getelementptr i8, ptr %line, i64 %k
  %letter = load i8, ptr %letter.at
  %end = icmp eq i8 %letter, 47
  br i1 %end, label %known, label %step
step:
  %is.space = icmp eq i8 %letter, 32
  %space = zext i1 %is.space to i64
  %spaces.next = add i64 %spaces, %space
  %wide = zext i8 %letter to i64
  %digit = sub i64 %wide, 48
  %ten = mul i64 %running, 10
  %with = add i64 %ten, %digit
  %third = icmp eq i64 %spaces, 3
  %running.next = select i1 %third, i64 %with, i64 0
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %length
  br i1 %more, label %scan, label %unknown
known:
  %idle = sub i64 %processors, %running
  ret i64 %idle
unknown:
  ret i64 %processors
}}
"""
_ALWAYS_IDLE: Final = f"""
define internal i64 @idle(ptr %pool) noinline {{
  %processors.at = getelementptr i64, ptr %pool, i64 {_WORDS["processors"]}
  %processors = load i64, ptr %processors.at
  ret i64 %processors
}}
"""


class Pool:
    """The workers of this process; see :func:`pool`.

    Attributes
    ----------
    address
        Of its first word, which is the address of ``launch``, or 0 to do without help.
    started
        How many workers there are.
    """

    def __init__(self) -> None:
        # aligned, so that words that are apart are on different cache lines
        self._memory = (ctypes.c_int64 * (_FIRST + _EACH * _MOST + 16))()
        start = ctypes.addressof(self._memory)
        self.address = (start + 127) & -128
        self._words = (ctypes.c_int64 * (_FIRST + _EACH * _MOST)).from_address(self.address)
        self._starting = LAUNCH(self._start_and_launch)
        self._native: Any = None
        self._work: Any = None
        self.started = 0
        self.look_at(-1)
        self.processors = os.cpu_count() or 1
        self._forget_threads()
        self.resize(_wanted())
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forget_threads)

    @property
    def size(self) -> int:
        """How many threads work on a loop."""
        return self._words[_WORDS["threads"]]

    @property
    def launches(self) -> int:
        """How many loops were offered to workers."""
        return self._words[_WORDS["launches"]]

    @property
    def helped(self) -> int:
        """How many of them workers took a part of."""
        return self._words[_WORDS["helped"]]

    @property
    def processors(self) -> int:
        """How many processors there are for all processes."""
        return self._words[_WORDS["processors"]]

    @processors.setter
    def processors(self, count: int) -> None:
        self._words[_WORDS["processors"]] = count

    def look_at(self, file: int) -> None:
        """Read from this file (a descriptor) how many threads of the machine want to run."""
        self._words[_WORDS["loads"]] = file

    def put_to_sleep(self, number: int) -> None:
        """Note that a worker waits for its lock."""
        place = _FIRST + _EACH * number
        self._words[place + _RECORD["lock"]] = _new_lock()
        self._words[place + _RECORD["asleep"]] = 1

    def resize(self, count: int) -> None:
        """Let so many threads work on a loop from now on."""
        self._words[_WORDS["threads"]] = min(count, _MOST)
        self._words[_WORDS["skip"]] = self._words[_WORDS["misses"]] = 0
        self._point()

    def _point(self) -> None:
        """Say what a kernel that asks for help shall call."""
        function: Any = None
        if self.size > 1:
            function = self._native if self.started >= self.size - 1 else self._starting
        address = 0 if function is None else ctypes.cast(function, ctypes.c_void_p).value or 0
        self._words[_WORDS["launch"]] = address

    def _forget_threads(self) -> None:
        """Begin anew: as at the start, and in a forked child, which has none of the threads."""
        self._starts = threading.Lock()
        self.started = 0
        for word in ("busy", "skip", "misses"):
            self._words[_WORDS[word]] = 0
        self._words[_WORDS["gate"]] = _CLOSED
        self._words[_WORDS["done"]] = _new_lock()
        for number in range(_MOST):
            self._words[_FIRST + _EACH * number + _RECORD["asleep"]] = 0
        self._point()

    def _start_and_launch(self, *given: int) -> int:
        """Start workers and do what ``launch`` does; called by the first large loop."""
        try:
            self._start()
            status: int = self._native(*given)
        except Exception:  # noqa: BLE001  # no thread is to be had: the loop is done without
            self.resize(1)
            return _alone(*given)
        except KeyboardInterrupt:
            status = _alone(*given)
            # asked again where Python code runs that may end by it
            _thread.interrupt_main()
        return status

    def prepare(self) -> None:
        """Have the machine code ready."""
        if self._native is not None:
            return
        compiler, store = machine(), default_store()
        text = _program()
        key = digest(text, compiler.host.cpu, compiler.host.features, compiler.version)
        code = store.get("code", key)
        if code is None:
            code = compiler.compile(text)
            store.put("code", key, code)
        linked = compiler.link(code, ("launch", "work"))
        self._work = _WORK(linked.addresses["work"])
        # the code lives as long as the function
        self._work.linked = linked
        self._native = LAUNCH(linked.addresses["launch"])
        with suppress(OSError):
            self.look_at(os.open("/proc/loadavg", os.O_RDONLY))
        atexit.register(self._settle)

    def _start(self) -> None:
        with self._starts:
            self.prepare()
            while self.started < self.size - 1:
                number = self.started + 1
                self._words[_FIRST + _EACH * number + _RECORD["lock"]] = _new_lock()
                name = f"relaxlab-{number}"
                threading.Thread(
                    target=self._work, args=(self.address, number), name=name, daemon=True
                ).start()
                self.started = number
            self._point()

    def _settle(self) -> None:
        """Let no worker run any more when the interpreter goes."""
        self._words[_WORDS["launch"]] = 0
        until = time.monotonic() + 0.2
        places = [_FIRST + _EACH * k + _RECORD["asleep"] for k in range(1, self.started + 1)]
        while not all(self._words[p] for p in places) and time.monotonic() < until:
            time.sleep(0.0002)


def _alone(*given: int) -> int:
    _, part, context, first, last, _, _, state = given
    status: int = PART(part)(context, first, last, state)
    return status


def _new_lock() -> int:
    """Return the address of a lock of the interpreter that is held."""
    api = ctypes.pythonapi
    allocate = ctypes.PYFUNCTYPE(ctypes.c_void_p)(("PyThread_allocate_lock", api))
    acquire = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)(
        ("PyThread_acquire_lock", api)
    )
    lock: int | None = allocate()
    if lock is None:
        raise MemoryError("no memory for a lock")
    acquire(lock, 0)
    return lock


def _wanted() -> int:
    """Return how many threads this process shall use."""
    for name in ("TVM_NUM_THREADS", "OMP_NUM_THREADS"):
        given = os.environ.get(name, "").strip()
        if given.isdecimal() and int(given):
            return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@cache
def pool() -> Pool:
    """Return the workers of this process; none is started yet."""
    return Pool()


def num_threads() -> int:
    """Return how many threads work on a kernel's outer loop, as ``tvm.runtime.num_threads``."""
    return pool().size


@contextmanager
def use_threads(count: int) -> Iterator[None]:
    """Let kernels of this process use so many threads inside ``with``; 1 means no workers.

    Raises
    ------
    ValueError
        If it is less than one.
    """
    if count < 1:
        raise ValueError(f"use_threads({count}): expected at least 1 thread")
    chosen = pool()
    before = chosen.size
    chosen.resize(count)
    try:
        yield
    finally:
        chosen.resize(before)
