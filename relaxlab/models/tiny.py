"""A decoder with random weights: everything a real model has, and nothing to download.

It writes nonsense, the same nonsense on every machine: weights come from NumPy's frozen legacy
generator. Tokens are bytes, and the output projection barely sees the unprintable ones, so that
what it writes can be read. Counterpart: the toy modules of TVM's own tests.

Examples
--------
>>> parameters = weights()
>>> parameters["layers.1.down"].shape, CONFIG.parameters
((128, 64), 106816)
"""

import numpy as np
from numpy.typing import NDArray

from relaxlab.models.config import LlamaConfig
from relaxlab.models.weights import parameter_shapes

__all__ = ["CONFIG", "weights"]

CONFIG = LlamaConfig(
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=16,
    width=64,
    ff=128,
    vocab=256,
    context=2048,
    tied=False,
)
"""Two layers, 64 wide, one token per byte."""

_PRINTABLE = [*range(ord("a"), ord("z") + 1), *b" ,.\n"]


def weights(config: LlamaConfig = CONFIG, seed: int = 0) -> dict[str, NDArray[np.float32]]:
    """Return the parameters of `relaxlab.models.weights`, drawn from a seeded generator.

    Parameters
    ----------
    config
        Any sizes; a test may ask for a wider or deeper one.
    seed
        Same seed, same weights, on every machine and NumPy version.
    """
    random = np.random.RandomState(seed)
    parameters: dict[str, NDArray[np.float32]] = {}
    for name, shape in parameter_shapes(config).items():
        if name.endswith("norm"):
            parameters[name] = np.ones(shape, np.float32)
            continue
        spread = 1.0 if name == "embed" else 2.0 / np.sqrt(shape[0])
        parameters[name] = (random.standard_normal(shape) * spread).astype(np.float32)
    if config.tied:
        parameters["head"] = np.ascontiguousarray(parameters["embed"].T)
    else:
        loud = np.full(config.vocab, 0.02, np.float32)
        loud[[token for token in _PRINTABLE if token < config.vocab]] = 1.0
        parameters["head"] *= loud
    return parameters
