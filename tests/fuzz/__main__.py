"""Throw changed files at every loader: python -m tests.fuzz [TARGET…] --count N --seed S.

A failure is a crash, a hang (more than 10 s for one file), an error without a name in the target's
list or without words, or an allocation of more than 256 MiB. The same seed gives the same files.
Failing files are kept in the folder --keep.
"""

import argparse
import random
import signal
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

from tests.fuzz.targets import TARGETS, Target

LIMIT = 256 * 2**20
SLOW = 10


class Hang(BaseException):
    """One file took too long."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", metavar="TARGET", nargs="*", choices=[*TARGETS, []])
    parser.add_argument("--count", type=int, default=1000, help="files for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="a folder for failing files")
    args = parser.parse_args()
    if hasattr(signal, "SIGALRM"):
        signal.signal(signal.SIGALRM, hang)
    failures = 0
    for name in args.targets or TARGETS:
        failures += fuzz(name, TARGETS[name], args.count, args.seed, args.keep)
    print(f"{failures} failures")
    return 1 if failures else 0


def hang(*_):
    raise Hang


def fuzz(name: str, target: Target, count: int, seed: int, keep: Path | None) -> int:
    """Try ``count`` files and say what happened to them."""
    seeds = target.seeds()
    for data in seeds:
        use(target, data)  # whatever is loaded on first use is loaded now
    bound_memory()
    outcomes: Counter[str] = Counter()
    failures, slowest, start = 0, 0.0, time.perf_counter()
    for number in range(count):
        rng = random.Random(f"{name}/{seed}/{number}")
        data = target.mutate(rng, rng.choice(seeds), seeds)
        clock = time.process_time()
        outcome = use(target, data)
        slowest = max(slowest, time.process_time() - clock)
        outcomes[outcome.partition("\n")[0]] += 1
        if outcome.startswith("BUG"):
            failures += 1
            print(f"{name}, seed {seed}, file {number}: {outcome}")
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{name}-{seed}-{number}").write_bytes(data)
    shown = ", ".join(f"{times} {outcome}" for outcome, times in outcomes.most_common(12))
    took = time.perf_counter() - start
    print(f"{name}: {count} files, seed {seed}, {took:.0f} s, slowest {slowest:.2f} s: {shown}")
    sys.stdout.flush()
    return failures


def use(target: Target, data: bytes) -> str:
    """Return what happened to one file."""
    if hasattr(signal, "SIGALRM"):
        signal.alarm(SLOW)
    try:
        return "accepted" if target.use(data) else "refused by the verifier"
    except target.errors as error:
        if not str(error).strip():
            return f"BUG: {type(error).__name__} without words"
        return f"refused ({type(error).__name__})"
    except Hang:
        return "BUG: hang\n" + traceback.format_exc()
    except BaseException as error:  # noqa: BLE001  # finding these is what this is for
        return f"BUG: {type(error).__name__}: {error}\n" + traceback.format_exc()
    finally:
        if hasattr(signal, "SIGALRM"):
            signal.alarm(0)


def bound_memory() -> None:
    """Let the process grow by no more than the limit from here on."""
    if sys.platform != "linux":
        return
    import resource  # noqa: PLC0415  # not on every system

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + LIMIT
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    sys.exit(main())
