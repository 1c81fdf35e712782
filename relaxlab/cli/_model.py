"""The words of a command that runs a model: which one, and how its tokens are chosen.

Shared by ``generate``, ``chat`` and ``demo``; a module whose name begins with an underscore is no
command.

Examples
--------
>>> parser = argparse.ArgumentParser()
>>> configure_sampling(parser, temperature=0.8, top_p=0.95)
>>> sampling_of(parser.parse_args(["--greedy", "--seed", "7"])).temperature
0.0
"""

import argparse

from relaxlab.cli import Mistake
from relaxlab.cli._files import MODEL, reading
from relaxlab.cli._progress import progress
from relaxlab.models.download import find_model
from relaxlab.models.language_model import LanguageModel, open_model
from relaxlab.serve.sampler import Sampling

__all__ = ["MODEL_HELP", "configure_sampling", "open_named", "sampling_of"]

MODEL_HELP = "smollm2 (see `relaxlab model --help`), tiny (nothing to download), or a GGUF file"


def configure_sampling(
    parser: argparse.ArgumentParser, *, temperature: float, top_p: float
) -> None:
    """Add the options that say how tokens are chosen, with these defaults."""
    parser.add_argument("--greedy", action="store_true", help="always take the most likely token")
    parser.add_argument(
        "--temperature",
        type=float,
        default=temperature,
        metavar="T",
        help=f"spread of the choice (default {temperature})",
    )
    parser.add_argument(
        "--top-p",
        type=float,
        default=top_p,
        metavar="P",
        help=f"share of probability kept (default {top_p})",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="seed of the choice (default 0)"
    )


def sampling_of(args: argparse.Namespace) -> Sampling:
    """Return what the options say; a number that means nothing is a :class:`Mistake`."""
    try:
        return Sampling(0.0 if args.greedy else args.temperature, top_p=args.top_p, seed=args.seed)
    except ValueError as error:
        name, _, rest = str(error).partition(":")
        raise Mistake(f"--{name.replace('_', '-')}:{rest}") from None


def open_named(name: str) -> LanguageModel:
    """Open a model; a file that is none is refused with what it is."""
    with progress(f"reading {name}"):
        if name == "tiny":
            return open_model(name)
        with reading(find_model(name), MODEL):
            return open_model(name)
