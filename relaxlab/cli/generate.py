"""Continue a text with a language model compiled by relaxlab.

Why it exists: the shortest way to see the whole path work, from Relax module to bytecode to tokens
of a real model. TVM has no counterpart; MLC's is ``mlc_llm chat``.

Examples
--------
>>> from relaxlab.cli import main
>>> main(["generate", "hello", "-n", "4", "--model", "tiny", "--greedy"])  # doctest: +SKIP
"""

import argparse
import json
import sys
from collections.abc import Iterator

from relaxlab.cli import Mistake
from relaxlab.cli._model import MODEL_HELP, configure_sampling, open_named, sampling_of
from relaxlab.cli._progress import progress
from relaxlab.models.generation import CompiledLlama, generate
from relaxlab.models.language_model import LanguageModel
from relaxlab.models.paged_llama import PagedLlama
from relaxlab.serve.engine import Engine
from relaxlab.serve.sampler import Sampling, chooser

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab generate "The capital of France is" -n 32 --model smollm2 --greedy
relaxlab generate "Once upon a time" -n 20 --model tiny --print-ids
relaxlab generate "Once upon a time" -n 20 --model tiny --paged --page-size 4
relaxlab generate "Once upon a time" -n 20 --model tiny --json
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
        help=f"{MODEL_HELP} (default tiny)",
    )
    configure_sampling(parser, temperature=0.8, top_p=0.95)
    parser.add_argument(
        "--stop", action="store_true", help="stop when the model ends its text; else go on to N"
    )
    parser.add_argument(
        "--paged", action="store_true", help="keep keys and values in a paged cache"
    )
    parser.add_argument(
        "--page-size",
        type=int,
        metavar="P",
        help="tokens in a page (default 16); turns --paged on",
    )
    parser.add_argument(
        "--print-ids", action="store_true", help="end with one line `ids: 7042 30 ...`"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print an object with the keys text, ids and prompt_ids, when all is there",
    )


def run(args: argparse.Namespace) -> int:
    """Print the continuation as it is made."""
    if args.n < 0:
        raise Mistake(f"-n must not be negative, got {args.n}")
    if args.page_size is not None and args.page_size < 1:
        raise Mistake(f"--page-size: expected at least 1, got {args.page_size}")
    sampling = sampling_of(args)
    model = open_named(args.model)
    tokens = model.tokenizer.encode(args.prompt)
    if not tokens:
        raise Mistake("the prompt is empty: there is nothing to continue")
    ids: list[int] = []
    texts: list[str] = []
    is_paged = args.paged or args.page_size is not None
    for tokens_made, text in (_paged if is_paged else _dense)(model, tokens, sampling, args):
        ids += tokens_made
        texts.append(text)
        if not args.json:
            sys.stdout.write(text)
            sys.stdout.flush()
    if args.json:
        answer = {"text": "".join(texts), "ids": ids, "prompt_ids": list(tokens)}
        print(json.dumps(answer, indent=2))
    else:
        print()
    if len(ids) < args.n and not (args.stop and ids and ids[-1] in model.tokenizer.ends):
        print(
            f"relaxlab: stopped after {len(ids)} of {args.n} tokens: "
            f"the model's context of {model.config.context} is full",
            file=sys.stderr,
        )
    if args.print_ids and not args.json:
        print("ids:", *ids)
    return 0


def _dense(
    model: LanguageModel, tokens: list[int], sampling: Sampling, args: argparse.Namespace
) -> Iterator[tuple[list[int], str]]:
    """Yield tokens and text made with a cache that is one tensor per layer."""
    with progress(f"compiling {model.name}"):
        llama = CompiledLlama(model)
    choose = chooser(sampling, tokens)
    text = model.tokenizer.stream(special=False)
    stop = model.tokenizer.ends if args.stop else ()
    for token in generate(llama, tokens, args.n, choose, stop=stop):
        yield [token], text.push(token)
    yield [], text.finish()


def _paged(
    model: LanguageModel, tokens: list[int], sampling: Sampling, args: argparse.Namespace
) -> Iterator[tuple[list[int], str]]:
    """Yield tokens and text made with a paged cache that has room for just this."""
    if not args.n:
        return
    capacity = min(len(tokens) + args.n, model.config.context)
    with progress(f"compiling {model.name}"):
        llama = PagedLlama(model, page_size=args.page_size or 16, capacity=capacity)
    engine = Engine(llama, tokenizer=model.tokenizer, prefix=None)
    engine.submit(
        tokens,
        max_tokens=args.n,
        sampling=sampling,
        stop_tokens=sorted(model.tokenizer.ends) if args.stop else (),
    )
    for output in engine.stream():
        yield list(output.tokens), output.text
