"""Builtins for choosing the next token: penalties, softmax, sampling.

They are defined by the order of their float32 operations, so the loops are written out where
that order matters and are NumPy expressions where it does not. Counterpart: TVM's
``vm/lm_support.cc``.

Examples
--------
>>> import numpy as np
>>> prob = np.array([[0.1, 0.6, 0.3]], "float32")
>>> sample_top_p_from_prob(prob, 1.0, 0.5), sample_top_p_from_prob(prob, 1.0, 0.95)
(1, 0)
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxlab.errors import InternalError
from relaxlab.runtime.tensor import Tensor, tensor
from relaxlab.runtime.vm.builtin.table import as_array, as_float, as_tensor, builtin

__all__: list[str] = []


@builtin("vm.builtin.sample_top_p_from_logits")
def sample_top_p_from_logits(
    logits: Any, temperature: Any, top_p: Any, uniform_sample: Any, /
) -> int:
    """Return a token drawn from the softmax of the logits, restricted to the top ``top_p``.

    ``uniform_sample`` in [0, 1) decides; a temperature below 1e-6 means the largest logit.

    Parameters
    ----------
    logits
        float32, compact; all axes but the last are of extent 1.
    temperature
        Divides the logits.
    top_p
        How much probability the candidates have together.
    uniform_sample
        In [0, 1).

    Raises
    ------
    InternalError
        If the logits are of another type or shape, or the sample is too large.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.sample_top_p_from_logits``.
    """
    me = "vm.builtin.sample_top_p_from_logits"
    row = _single_row(as_array(logits, me, "logits", "float32"), me)
    heat = as_float(temperature, me, "temperature")
    cutoff, uniform = as_float(top_p, me, "top_p"), as_float(uniform_sample, me, "uniform_sample")
    if row.size == 0:
        raise InternalError(f"{me}: logits: expected at least one element")
    order = np.argsort(-row, kind="stable")
    if heat < 1e-6:
        return int(order[0])
    scale = np.float32(1.0 / heat)
    weights = np.exp((row[order] - row[order[0]]) * scale, dtype=np.float32)
    weights /= weights.sum(dtype=np.float32)
    sums = np.cumsum(weights, dtype=np.float32)
    before = np.concatenate([np.zeros(1, np.float32), sums[:-1]])
    kept = weights[before < np.float32(cutoff)].sum(dtype=np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        chosen = np.flatnonzero(np.float32(uniform) < sums / kept)
    if chosen.size:
        return int(order[chosen[0]])
    if not np.float32(uniform) <= sums[0]:
        raise InternalError(
            f"{me}: expected a uniform sample below 1, got {uniform} (top_p {cutoff})"
        )
    return int(order[0])


@builtin("vm.builtin.sample_top_p_from_prob")
def sample_top_p_from_prob(prob: Any, top_p: Any, uniform_sample: Any, /) -> int:
    """Return a token drawn from the probabilities, restricted to the top ``top_p``.

    Parameters
    ----------
    prob
        float32, compact; all axes but the last are of extent 1.
    top_p
        How much probability the candidates have together.
    uniform_sample
        In [0, 1).

    Raises
    ------
    InternalError
        If the probabilities are of another type or shape, or all are NaN.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.sample_top_p_from_prob``.
    """
    me = "vm.builtin.sample_top_p_from_prob"
    row = _single_row(as_array(prob, me, "prob", "float32"), me)
    limit, uniform = as_float(top_p, me, "top_p"), as_float(uniform_sample, me, "uniform_sample")
    if limit < 1:
        # small probabilities are rarely needed and make the sort long
        found = _sample_from_prob(row, np.float32(limit), np.float32(uniform), limit / 1024)
        if found is not None:
            return found
    found = _sample_from_prob(row, np.float32(limit), np.float32(uniform), 0.0)
    if found is None:
        what = "all are NaN" if np.isnan(row).all() else "no probability is >= 0"
        raise InternalError(f"{me}: prob: cannot sample: {what}")
    return found


def _sample_from_prob(
    row: NDArray[np.float32], top_p: np.float32, uniform: np.float32, cutoff: float
) -> int | None:
    """Try with the probabilities from ``cutoff`` on; None if they do not reach ``top_p``."""
    kept = np.flatnonzero(row >= np.float32(cutoff))
    if kept.size == 0:
        return None
    kept = kept[np.argsort(-row[kept], kind="stable")]
    values = row[kept]
    with np.errstate(divide="ignore", invalid="ignore"):
        if uniform < values[0] / top_p:
            return int(kept[0])
        sums = np.cumsum(values, dtype=np.float32)
        reached = np.flatnonzero(sums >= top_p)
        if reached.size == 0 and cutoff != 0:
            return None
        last = int(reached[0]) if reached.size else sums.size - 1
        # entries behind the stop keep their own probability, as TVM compares them
        compared = values.copy()
        compared[: last + 1] = sums[: last + 1]
        chosen = np.flatnonzero(uniform < compared / sums[last])
    return int(kept[chosen[0]]) if chosen.size else int(kept[-1])


@builtin("vm.builtin.multinomial_from_uniform")
def multinomial_from_uniform(prob: Any, uniform_sample: Any, /) -> Tensor:
    """Return one token per row of probabilities, int64 of shape [rows, 1].

    Parameters
    ----------
    prob
        float32 ``[rows, …, tokens]``.
    uniform_sample
        float32, one for each row.

    Raises
    ------
    InternalError
        If types or sizes are others.
    TypeError
        If an argument is no tensor.

    Notes
    -----
    Source: TVM's ``vm.builtin.multinomial_from_uniform``.
    """
    me = "vm.builtin.multinomial_from_uniform"
    weights = as_array(prob, me, "prob", "float32")
    uniform = as_array(uniform_sample, me, "uniform_sample", "float32").reshape(-1)
    if weights.ndim < 1 or uniform.size < weights.shape[0] or weights.shape[-1] < 1:
        raise InternalError(
            f"{me}: expected a row of probabilities and a uniform sample for each, got shapes "
            f"{weights.shape} and {as_tensor(uniform_sample, me, 'uniform_sample').shape}"
        )
    rows, columns = weights.shape[0], weights.shape[-1]
    sums = np.cumsum(weights.reshape(-1, columns)[:rows], axis=1, dtype=np.float32)
    above = sums > uniform[:rows, None]
    chosen = np.where(above.any(axis=1), above.argmax(axis=1), columns - 1)
    return tensor(chosen.astype(np.int64).reshape(rows, 1))


@builtin("vm.builtin.apply_repetition_penalty")
def apply_repetition_penalty(logits: Any, token_ids: Any, penalty: Any, /) -> None:
    """Make the logits of the given tokens less likely, in place, once per occurrence.

    Parameters
    ----------
    logits
        float32, compact.
    token_ids
        int32.
    penalty
        Divides a positive logit, and multiplies another one.

    Raises
    ------
    InternalError
        If types are others, or an id is outside the logits.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.apply_repetition_penalty``. TVM writes outside the logits.
    """
    me = "vm.builtin.apply_repetition_penalty"
    row = as_array(logits, me, "logits", "float32").reshape(-1)
    ids = _token_ids(token_ids, me, row.size)
    factor = np.float32(as_float(penalty, me, "penalty"))
    with np.errstate(all="ignore"):  # a penalty of 0 gives inf, as it does in C
        for token in ids:
            row[token] = row[token] * factor if row[token] <= 0 else row[token] / factor


@builtin("vm.builtin.apply_presence_and_frequency_penalty")
def apply_presence_and_frequency_penalty(
    logits: Any,
    token_ids: Any,
    token_freqs: Any,
    presence_penalty: Any,
    frequency_penalty: Any,
    /,
) -> None:
    """Lower the logits of the given tokens in place, by ``freq * frequency + presence``.

    Parameters
    ----------
    logits
        float32, compact.
    token_ids, token_freqs
        int32: tokens, and how often each occurred.
    presence_penalty, frequency_penalty
        Numbers.

    Raises
    ------
    InternalError
        If types are others, an id is outside the logits, or a frequency is missing.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.apply_presence_and_frequency_penalty``. TVM writes outside the
    logits.
    """
    me = "vm.builtin.apply_presence_and_frequency_penalty"
    row = as_array(logits, me, "logits", "float32").reshape(-1)
    ids = _token_ids(token_ids, me, row.size)
    freqs = as_array(token_freqs, me, "token_freqs", "int32").reshape(-1)
    if freqs.size < ids.size:
        raise InternalError(f"{me}: expected a frequency per token, got {freqs.size}/{ids.size}")
    presence = np.float32(as_float(presence_penalty, me, "presence_penalty"))
    frequency = np.float32(as_float(frequency_penalty, me, "frequency_penalty"))
    for token, count in zip(ids, freqs, strict=False):
        row[token] -= np.float32(count) * frequency + presence


@builtin("vm.builtin.apply_softmax_with_temperature")
def apply_softmax_with_temperature(logits: Any, temperature: Any, /) -> None:
    """Replace the first row of logits by ``softmax(logits / temperature)``, in place.

    Very negative rows are normalized by their own maximum (TVM's underflow to NaN), and a
    temperature of 0 gives the one-hot of the largest.

    Parameters
    ----------
    logits
        float32, compact.
    temperature
        Divides the logits.

    Raises
    ------
    InternalError
        If the logits are of another type.
    TypeError
        If an argument is of the wrong kind.

    Notes
    -----
    Source: TVM's ``vm.builtin.apply_softmax_with_temperature``.
    """
    me = "vm.builtin.apply_softmax_with_temperature"
    values = as_array(logits, me, "logits", "float32")
    heat = as_float(temperature, me, "temperature")
    width = values.shape[-1] if values.ndim else 1
    row = values.reshape(-1)[:width]
    if row.size == 0:
        return
    if heat == 0:
        largest = int(row.argmax())
        row[...] = 0
        row[largest] = 1
        return
    exps = np.exp((row - row.max()) / np.float32(heat), dtype=np.float32)
    row[...] = exps / exps.sum(dtype=np.float64)


def _single_row(values: NDArray[Any], me: str) -> NDArray[Any]:
    if any(extent != 1 for extent in values.shape[:-1]):
        raise InternalError(f"{me}: expected one row of values, got shape {values.shape}")
    return values.reshape(-1)


def _token_ids(value: Any, me: str, vocabulary: int) -> NDArray[Any]:
    """Return the token ids after checking that each is one: TVM writes out of bounds."""
    ids = as_array(value, me, "token_ids", "int32").reshape(-1)
    bad = ids[(ids < 0) | (ids >= vocabulary)]
    if bad.size:
        raise InternalError(f"{me}: token id {bad[0]} is outside the {vocabulary} logits")
    return ids
