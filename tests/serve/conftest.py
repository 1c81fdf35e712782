"""Models with a paged cache: the tiny one, and the real one where it is."""

import pytest

from relaxlab.models.language_model import open_model
from relaxlab.models.paged_llama import PagedLlama
from tests.models.conftest import smollm2, smollm2_path

__all__ = ["smollm2", "smollm2_path"]


@pytest.fixture(scope="session")
def tiny_model():
    return open_model("tiny")


@pytest.fixture(scope="session")
def smollm2_paged(smollm2):
    """The real model, compiled once; use `fresh` for an empty cache of the wanted sizes."""
    return PagedLlama(smollm2, page_size=16, capacity=1024)
