"""A whole model by name: configuration, parameters and tokenizer together.

Everything above this module (the compiled network, ``relaxlab generate``, the notebooks) takes a
`LanguageModel` and does not care whether it came from a download, from somebody's file, or was
made on the spot. Counterpart: an MLC model folder.

Examples
--------
>>> model = open_model("tiny")
>>> model.name, model.config.layers, model.tokenizer.encode("hi")
('tiny', 2, [104, 105])
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from relaxlab.models import tiny
from relaxlab.models.config import LlamaConfig
from relaxlab.models.download import find_model
from relaxlab.models.gguf import GGUFError, GGUFFile
from relaxlab.models.tokenizer import ByteTokenizer, Tokenizer, tokenizer_from_gguf
from relaxlab.models.weights import GGUFWeights

__all__ = ["LanguageModel", "open_model"]


@dataclass(frozen=True, slots=True, eq=False)
class LanguageModel:
    """What it takes to run a model.

    Attributes
    ----------
    name
        What it was asked for by.
    config
        Its sizes.
    weights
        float32 parameters by name, in the order and layout of `relaxlab.models.weights`. A file's
        are decoded each time they are asked for: take ``dict(model.weights)`` once.
    tokenizer
        Text to tokens and back.
    """

    name: str
    config: LlamaConfig
    weights: Mapping[str, NDArray[np.float32]] = field(repr=False)
    tokenizer: Tokenizer


def open_model(name: str) -> LanguageModel:
    """Open ``"tiny"``, a downloaded model by its name, or a GGUF file by its path.

    Raises
    ------
    ModelNotFoundError
        The model is not on this machine; the message says how to get it.
    GGUFError
        The file is damaged, or is not a model that we can run.
    MissingExtraError
        The tokenizer needs a library that is not installed.
    """
    if name == "tiny":
        return LanguageModel(name, tiny.CONFIG, tiny.weights(), ByteTokenizer())
    path = find_model(name)
    try:
        file = GGUFFile.open(path)
        weights = GGUFWeights(file)
        tokenizer = tokenizer_from_gguf(file)
    except GGUFError as error:
        raise GGUFError(f"{path}: {error}") from None
    return LanguageModel(name, weights.config, weights, tokenizer)
