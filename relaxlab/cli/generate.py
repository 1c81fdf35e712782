"""Continue a text with a language model compiled by relaxlab.

Why it exists: the shortest way to see the whole path work, from Relax module to bytecode to tokens
of a real model. TVM has no counterpart; MLC's is ``mlc_llm chat``.

Examples
--------
>>> from relaxlab.cli import main
>>> main(["generate", "hello", "-n", "4", "--model", "tiny", "--greedy"])  # doctest: +SKIP
"""

import argparse
import sys

from relaxlab.cli import Mistake
from relaxlab.models.generation import CompiledLlama, generate, greedy, sampler
from relaxlab.models.language_model import open_model

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab generate "The capital of France is" -n 32 --model smollm2 --greedy
relaxlab generate "Once upon a time" -n 20 --model tiny --print-ids
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add prompt, length, model and the way tokens are chosen."""
    parser.add_argument("prompt", metavar="PROMPT", help="text to continue")
    parser.add_argument(
        "-n", type=int, default=32, metavar="N", help="tokens to generate (default 32)"
    )
    parser.add_argument(
        "--model",
        default="tiny",
        metavar="NAME|PATH",
        help="smollm2 (see `relaxlab model get`), tiny (nothing to download, the default), "
        "or a GGUF file",
    )
    parser.add_argument("--greedy", action="store_true", help="always take the most likely token")
    parser.add_argument(
        "--temperature", type=float, default=0.8, metavar="T", help="spread of the choice (0.8)"
    )
    parser.add_argument(
        "--top-p", type=float, default=0.95, metavar="P", help="share of probability kept (0.95)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice (default 0)")
    parser.add_argument(
        "--stop", action="store_true", help="stop when the model ends its text; else go on to N"
    )
    parser.add_argument(
        "--print-ids", action="store_true", help="end with one line `ids: 7042 30 ...`"
    )


def run(args: argparse.Namespace) -> int:
    """Print the continuation as it is made."""
    if args.n < 0:
        raise Mistake(f"-n must not be negative, got {args.n}")
    if args.temperature < 0 or not 0 < args.top_p <= 1:
        raise Mistake(
            f"expected --temperature >= 0 and 0 < --top-p <= 1, got {args.temperature} and "
            f"{args.top_p}"
        )
    model = open_model(args.model)
    tokens = model.tokenizer.encode(args.prompt)
    if not tokens:
        raise Mistake("the prompt is empty: there is nothing to continue")
    llama = CompiledLlama(model)
    choose = greedy if args.greedy else sampler(args.temperature, args.top_p, args.seed)
    text = model.tokenizer.stream(special=False)
    ids: list[int] = []
    stop = model.tokenizer.ends if args.stop else ()
    for token in generate(llama, tokens, args.n, choose, stop=stop):
        ids.append(token)
        sys.stdout.write(text.push(token))
        sys.stdout.flush()
    print(text.finish())
    if args.print_ids:
        print("ids:", *ids)
    return 0
