"""Conversations: nothing is computed twice, branches share pages, interruptions do no harm."""

import pytest

from relaxlab.models.paged_llama import PagedLlama
from relaxlab.runtime.kv import invariants
from relaxlab.serve.conversation import Conversation, Turn, template_of
from relaxlab.serve.engine import Engine
from relaxlab.serve.events import Advanced, PrefixHit
from relaxlab.serve.sampler import Sampling
from tests.serve.real_model import fresh


@pytest.fixture(scope="module")
def compiled(tiny_model):
    return PagedLlama(tiny_model, "numpy", page_size=8, capacity=256)


@pytest.fixture
def talk(compiled, tiny_model):
    events = []
    llama = fresh(compiled, page_size=8, capacity=512)
    engine = Engine(llama, tokenizer=tiny_model.tokenizer, observer=events.append)
    conversation = Conversation(engine, tiny_model.tokenizer)
    conversation.events, conversation.engine, conversation.llama = events, engine, llama
    return conversation


def _say(talk, text, **choices):
    return "".join(talk.say(text, **{"max_tokens": 20, **choices}))


def test_the_model_reads_what_was_said_as_it_was_said(talk, tiny_model):
    first = _say(talk, "hello")
    assert talk.turns == [Turn("user", "hello"), Turn("reply", first)]
    _say(talk, "more")
    said = tiny_model.tokenizer.decode(talk.tokens)
    assert said.startswith(f"User: hello\nReply: {first}\nUser: more\nReply: ")
    assert said.endswith("\n")
    assert "\n\n" not in said


def test_a_turn_runs_only_what_is_new(talk):
    _say(talk, "hello, this is a longer sentence than the others")
    before = len(talk.tokens)
    talk.events.clear()
    _say(talk, "x", max_tokens=4)
    (hit,) = [e.tokens for e in talk.events if isinstance(e, PrefixHit)]
    assert before - 8 <= hit <= before
    first = next(e for e in talk.events if isinstance(e, Advanced))
    assert first.computed == len("User: x\nReply: ") + before


def test_branches_share_pages_and_do_not_see_each_other(talk):
    _say(talk, "hello, this is a longer sentence than the others")
    branch = talk.fork()
    sampling = Sampling(temperature=1.0, seed=1)
    left, right = _say(talk, "left", sampling=sampling), _say(branch, "right", sampling=sampling)
    assert talk.turns[:2] == branch.turns[:2]
    assert talk.turns[2:] == [Turn("user", "left"), Turn("reply", left)]
    assert branch.turns[2:] == [Turn("user", "right"), Turn("reply", right)]
    cache = talk.llama.cache
    one, two = (cache.pages_of(sequence) for sequence in cache.sequence_ids())
    assert len(set(one) & set(two)) >= 7
    invariants.check(cache)


def test_a_reply_that_nobody_reads_on_stays_as_far_as_it_came(talk):
    reply = talk.say("hello", max_tokens=20)
    part = next(reply)
    reply.close()
    assert talk.turns[-1].text.startswith(part)
    assert not talk.engine.busy
    _say(talk, "go on", max_tokens=3)
    assert len(talk.turns) == 4
    invariants.check(talk.llama.cache)


def test_an_interrupted_round_does_no_harm(talk, monkeypatch):
    expected = _say(talk.fork(), "hello")
    reply = talk.say("hello", max_tokens=20)
    next(reply)
    vm = talk.llama.vm

    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(talk.llama, "vm", {"decode": interrupted, "prefill": interrupted})
    with pytest.raises(KeyboardInterrupt):
        list(reply)
    monkeypatch.setattr(talk.llama, "vm", vm)
    assert expected.startswith(talk.turns[-1].text)
    invariants.check(talk.llama.cache)
    talk.turns.clear()
    talk.tokens = []
    assert _say(talk, "hello") == expected


def test_a_full_conversation_says_so_and_stays_as_it_is(talk):
    with pytest.raises(ValueError, match=r"full: .* room for"):
        list(talk.say("x" * 2000))
    assert talk.turns == []
    assert talk.tokens == []


def test_smollm2_speaks_in_its_own_template(smollm2):
    template = template_of(smollm2.tokenizer)
    assert template.user == "<|im_start|>user\n"
    marks = smollm2.tokenizer.encode(template.end, special=True)
    assert marks[0] in smollm2.tokenizer.ends
