"""Whatever is written, the parser either understands it or shows where it does not."""

from itertools import islice

import pytest

from tests.script.mutations import Mutations, outcome


@pytest.mark.parametrize("seed", range(4))
def test_every_refusal_is_a_script_error_with_its_place(seed):
    texts = list(islice(Mutations(seed), 400))
    results = [outcome(text) for text in texts]
    wrong = [pair for pair in zip(results, texts, strict=True) if pair[0] not in KNOWN]
    assert wrong == []
    assert results.count("accepted") > 10
    assert results.count("refused") > 200


KNOWN = {"accepted", "refused"}
