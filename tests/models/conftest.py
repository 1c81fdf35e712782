"""The real model, for the tests that need it, and small files that look like it."""

import os

import pytest

from relaxlab.models import download
from relaxlab.models.language_model import open_model
from tests.models import gguf_bytes as b
from tests.models.llama_gguf import tiny_gguf_parts


@pytest.fixture(scope="session")
def smollm2_path():
    """The SmolLM2 file. CI and RELAXLAB_REQUIRE_MODEL=1 fetch it; elsewhere its absence skips."""
    if os.environ.get("CI") == "true" or os.environ.get("RELAXLAB_REQUIRE_MODEL") == "1":
        return download.get("smollm2")
    try:
        return download.find_model("smollm2")
    except download.ModelNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def smollm2(smollm2_path):
    """The real model, opened by its path; its tokenizer needs the extra ``llm``."""
    pytest.importorskip("tokenizers", reason="SmolLM2's tokenizer needs relaxlab[llm]")
    return open_model(str(smollm2_path))


@pytest.fixture(scope="session")
def smollm2_weights(smollm2):
    """All parameters of the real model, decoded once."""
    return dict(smollm2.weights)


@pytest.fixture
def tiny_parts():
    """Fresh dictionaries that a test may break before it writes them."""
    return tiny_gguf_parts()


@pytest.fixture
def write_gguf(tmp_path):
    """A function that writes a file and returns its path."""

    def write(metadata, tensors):
        path = tmp_path / "model.gguf"
        path.write_bytes(b.gguf(metadata, tensors))
        return path

    return write
