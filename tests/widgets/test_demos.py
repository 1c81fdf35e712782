"""The demos are real runs, each small enough to send."""

import pytest

from relaxlab.models.download import ModelNotFoundError
from relaxlab.models.language_model import open_model
from relaxlab.models.tokenizer import MissingExtraError
from relaxlab.widgets import demos
from relaxlab.widgets.view import View

MOST_BYTES = 8_000_000


def kinds(view):
    return {type(event).__name__ for event in view.timelines[0].events}


@pytest.mark.parametrize("name", demos.names())
def test_every_demo_fits_into_a_small_page(name, tmp_path):
    view = demos.demo(name)
    assert isinstance(view, View)
    assert demos.title(name).endswith(".")
    assert str(view)
    assert view.to_html(tmp_path / "x.html").stat().st_size < MOST_BYTES


def test_two_users_share_a_prompt_and_the_pool_runs_out():
    view = demos.two_users("tiny")
    timeline = view.timelines[0]
    assert {"PrefixHit", "PagesShared", "Evicted"} <= kinds(view)
    engine = timeline.engine(len(timeline))
    assert [len(entry.output) for entry in engine.entries.values()] == [4, 20, 20]
    assert engine.hit_tokens >= 60
    assert {entry.status for entry in engine.entries.values()} == {"finished"}


@pytest.mark.parametrize("error", [ModelNotFoundError, MissingExtraError])
def test_the_tiny_model_stands_in_for_one_that_cannot_be_opened(error, monkeypatch):
    def refuse(name):
        if name != "tiny":
            raise error(name)
        return open_model(name)

    monkeypatch.setattr(demos, "open_model", refuse)
    assert str(demos.two_users()) == str(demos.two_users("tiny"))


def test_an_unknown_demo_is_named():
    with pytest.raises(KeyError, match="stepper"):
        demos.demo("steper")
