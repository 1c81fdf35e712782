"""Talk with a language model, fork the conversation, and watch its pages.

Why it exists: prefix sharing is best understood by talking: each turn runs only what is new, and a
fork shares every page until the branches part. TVM has no counterpart; MLC's is ``mlc_llm chat``.

Lines that begin with ``/`` are commands: ``/fork`` starts a branch from here, ``/switch N`` goes to
branch N, ``/history`` shows the turns, ``/pages`` the pool, ``/new`` starts anew, ``/quit`` ends.

Examples
--------
>>> from relaxlab.cli import main
>>> main(["chat", "--model", "tiny"])  # doctest: +SKIP
"""

import argparse
import sys
from collections.abc import Iterator

from relaxlab.cli import Mistake
from relaxlab.cli._model import MODEL_HELP, configure_sampling, open_named, sampling_of
from relaxlab.cli._progress import progress
from relaxlab.models.paged_llama import PagedLlama
from relaxlab.runtime.kv.paged_kv_cache import PagedAttentionKVCache
from relaxlab.runtime.kv.snapshot import snapshot
from relaxlab.serve.conversation import Conversation
from relaxlab.serve.engine import Engine
from relaxlab.serve.sampler import Sampling
from relaxlab.trace.pool_text import counters, sequence_words, users_of

__all__ = ["EXAMPLE", "configure", "pages_text", "run"]

EXAMPLE = """
relaxlab chat --model smollm2
echo "Hello!" | relaxlab chat --model smollm2 --greedy
"""

_HELP = "/fork  /switch N  /history  /pages  /new  /quit"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the model, the sizes of its cache and the way tokens are chosen."""
    parser.add_argument(
        "--model",
        default="smollm2",
        metavar="NAME|PATH",
        help=f"{MODEL_HELP} (default smollm2)",
    )
    parser.add_argument(
        "-n", type=int, default=256, metavar="N", help="longest reply in tokens (default 256)"
    )
    configure_sampling(parser, temperature=0.7, top_p=0.9)
    parser.add_argument(
        "--page-size", type=int, default=16, metavar="P", help="tokens in a page (default 16)"
    )
    parser.add_argument(
        "--capacity", type=int, default=4096, metavar="T", help="tokens in the cache (default 4096)"
    )
    parser.epilog = f"{parser.epilog}\n\nCommands in the conversation: {_HELP}"


def run(args: argparse.Namespace) -> int:
    """Read lines, answer them, until the input ends."""
    if args.n < 1 or args.page_size < 1 or args.capacity < 1:
        raise Mistake(
            f"expected -n, --page-size and --capacity to be at least 1, got {args.n}, "
            f"{args.page_size} and {args.capacity}"
        )
    sampling = sampling_of(args)
    model = open_named(args.model)
    with progress(f"compiling {model.name}"):
        llama = PagedLlama(model, page_size=args.page_size, capacity=args.capacity)
    engine = Engine(llama, tokenizer=model.tokenizer)
    branches = [Conversation(engine, model.tokenizer)]
    current = 0
    for line in _lines():
        word, _, rest = line.partition(" ")
        talk = branches[current]
        match word:
            case "/quit":
                break
            case "/fork":
                branches.append(talk.fork())
                current = len(branches) - 1
                print(f"branch {current}: as branch {branches.index(talk)} so far")
            case "/switch":
                if not rest.isdigit() or int(rest) >= len(branches):
                    print(f"expected a branch from 0 to {len(branches) - 1}, got {rest!r}")
                else:
                    current = int(rest)
                    print(f"branch {current}: {len(branches[current].turns)} turns")
            case "/history":
                for turn in talk.turns:
                    print(f"{turn.role}: {turn.text}")
            case "/pages":
                print(pages_text(llama.cache))
            case "/new":
                branches[current] = Conversation(engine, model.tokenizer)
                print(f"branch {current}: empty")
            case _ if word.startswith("/"):
                print(_HELP)
            case _:
                _answer(talk, line, args.n, sampling)
    return 0


def _lines() -> Iterator[str]:
    """Yield what the user types, without empty lines."""
    interactive = sys.stdin.isatty()
    if interactive:
        print(_HELP)
    while True:
        if interactive:
            sys.stdout.write("> ")
            sys.stdout.flush()
        line = sys.stdin.readline()
        if not line:
            if interactive:
                print()  # the shell's prompt gets a line of its own
            return
        if line.strip():
            yield line.strip()


def _answer(talk: Conversation, line: str, limit: int, sampling: Sampling) -> None:
    try:
        for text in talk.say(line, max_tokens=limit, sampling=sampling):
            sys.stdout.write(text)
            sys.stdout.flush()
        print()
    except ValueError as error:
        print(f"{error}; /new starts anew")
    except KeyboardInterrupt:
        print(" …")  # the reply ends here, the conversation goes on


def pages_text(cache: PagedAttentionKVCache) -> str:
    """Return who has which pages, one line per block and one per sequence."""
    state = snapshot(cache)
    users = users_of(state)
    lines = [counters(state)]
    for block in sorted(state.blocks, key=lambda b: (b.start, b.index)):
        if block.pages:
            pages = " ".join(map(str, block.pages))
            names = ", ".join(map(str, users[block.index]))
            shared = "shared by" if len(users[block.index]) > 1 else "of"
            lines.append(
                f"  tokens {block.start} to {block.start + block.length - 1}: pages {pages} "
                f"({shared} {names})"
            )
    lines += [f"  sequence {s.seq_id}: {sequence_words(state, s)}" for s in state.sequences]
    return "\n".join(lines)
