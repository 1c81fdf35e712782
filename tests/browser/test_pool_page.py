"""The page pool as one HTML file: what is drawn is what its text twin says, at every step."""

import re

import pytest

from relaxlab.cli.bench.views import _SCRUB as SCRUB
from relaxlab.cli.bench.views import recording
from relaxlab.models.download import ModelNotFoundError
from relaxlab.trace.pool_events import explain_pool_event
from relaxlab.trace.pool_text import (
    counters,
    entry_words,
    free_pages,
    node_words,
    sequence_words,
    users_of,
)
from relaxlab.trace.pool_timeline import page_of
from relaxlab.widgets import PagePool, demos, scenes
from tests.trace.engine_runs import crowded
from tests.trace.pool_runs import random_run, story

COUNT_COLOURS = """() => {
  const canvas = document.querySelector(".rl-grid");
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4) seen.add(data.slice(at, at + 3).join());
  return seen.size;
}"""


def shown(page):
    return page.evaluate(
        """() => ({
          counters: document.querySelector(".rl-counters").textContent,
          free: document.querySelector(".rl-free").textContent,
          sequences: [...document.querySelectorAll(".rl-sequences li")].map((item) => [
            item.querySelector(".rl-swatch")?.textContent ?? "none",
            item.querySelector(".rl-length")?.textContent ?? "",
            [...item.querySelectorAll(".rl-chip")].map((chip) => chip.textContent)]),
        })"""
    )


def expected(timeline, position):
    state = timeline.state(position)
    blocks = {block.index: block for block in state.blocks}
    sequences = []
    for sequence in sorted(state.sequences, key=lambda one: one.seq_id):
        pages, at = [], sequence.last_block
        while at != -1:
            pages = [*("–" if page < 0 else str(page) for page in blocks[at].pages), *pages]
            at = blocks[at].parent
        sequences.append([f"s{sequence.seq_id}", sequence_words(state, sequence), pages])
    return {
        "counters": counters(state),
        "free": free_pages(state),
        "sequences": sequences or [["none", "", []]],
    }


def goto(page, position):
    field = page.get_by_label(re.compile("^Go to"))
    field.fill(str(position))
    field.press("Tab")
    page.wait_for_function(
        "(at) => document.querySelector('.rl-slider').value === at", arg=str(position)
    )


def test_a_recording_that_lost_its_beginning_says_so_and_goes_on(open_page):
    view = PagePool(random_run(3, operations=60, limit=20)[1])
    timeline = view.timelines[0]
    page = open_page(view)
    assert timeline.dropped > 20
    for position in range(1, len(timeline) + 1, 3):
        goto(page, position)
        assert shown(page) == expected(timeline, position), position
    goto(page, 1)
    page.get_by_text(f"The first {timeline.dropped} events were dropped").first.wait_for()


def test_a_fragment_is_a_link_to_an_event(open_page):
    page = open_page(PagePool(story()))
    goto(page, 7)
    link = page.get_by_role("link", name="Link to this event")
    assert link.get_attribute("href") == "#event=7"
    page.evaluate("() => { location.hash = '#event=3'; }")
    page.wait_for_function("() => document.querySelector('.rl-slider').value === '3'")
    page.evaluate("() => { location.hash = '#event=5'; location.reload(); }")
    page.wait_for_function("() => document.querySelector('.rl-slider')?.value === '5'")


@pytest.mark.parametrize("seed", range(4))
def test_every_step_shows_what_the_twin_says(open_page, seed):
    view = PagePool(random_run(seed, operations=15)[1])
    timeline = view.timelines[0]
    page = open_page(view)
    page.locator(".rl-pool").focus()
    page.keyboard.press("Home")
    for position in range(len(timeline) + 1):
        assert shown(page) == expected(timeline, position)
        page.keyboard.press("]")
    for position in reversed(range(0, len(timeline), 7)):
        goto(page, position)
        assert shown(page) == expected(timeline, position)


def test_a_number_that_is_being_typed_is_not_written_over(open_page):
    view = PagePool(story())
    page = open_page(view)
    field = page.get_by_label("Go to event")
    field.fill("3")
    page.set_viewport_size({"width": 900, "height": 700})  # draws again
    page.wait_for_timeout(200)
    assert field.input_value() == "3"
    field.press("Enter")
    assert page.locator(".rl-slider").input_value() == "3"
    field.fill("99999")
    field.press("Enter")
    assert field.input_value() == str(len(view.timelines[0]))


def test_a_page_can_be_chosen_by_mouse_and_by_keys(open_page):
    view = PagePool(story())
    timeline = view.timelines[0]
    state = timeline.state(len(timeline))
    page = open_page(view)
    shared = next(block for block in state.blocks if len(users_of(state)[block.index]) > 1)
    number = shared.pages[0]
    page.get_by_role("button", name=f"page {number}", exact=True).first.click()
    detail = page.locator(".rl-detail").inner_text()
    assert detail.startswith(f"Page {number}: block {shared.index}, shared by sequences 0, 2;")
    assert (
        page.locator(".rl-token").all_text_contents()
        == timeline.names(len(timeline))[shared.index][:4]
    )
    page.locator(".rl-grid-pane").focus()
    page.keyboard.press("Shift+ArrowRight")
    assert page.locator(".rl-detail").inner_text().startswith(f"Page {number + 1}")
    page.locator(".rl-grid").click(position={"x": 10, "y": 10})
    assert page.locator(".rl-detail").inner_text().startswith("Page 0")


def marked(page):
    """Return what is marked: pages in tables, tokens with their pages, and the cell of the grid."""
    return page.evaluate(
        """() => {
          const ring = document.querySelector(".rl-ring");
          const canvas = document.querySelector(".rl-grid").getBoundingClientRect();
          const box = ring.getBoundingClientRect();
          return {
            chips: [...document.querySelectorAll(".rl-chip.rl-marked")].map((one) =>
              one.textContent),
            tokens: [...document.querySelectorAll(".rl-word-at.rl-marked")].map((one) =>
              [one.textContent, one.dataset.page]),
            cell: ring.hidden ? null
              : Math.round((box.top - canvas.top) / box.height) *
                Math.floor(canvas.width / box.width) +
                Math.round((box.left - canvas.left) / box.width),
          };
        }"""
    )


def test_pages_tables_and_tokens_point_at_each_other(open_page):
    view = PagePool(story())
    timeline = view.timelines[0]
    end = len(timeline)
    state, names = timeline.state(end), timeline.names(end)
    page = open_page(view)
    # every token of every sequence is there, and knows its page
    rows = page.locator(".rl-texts-of li")
    ordered = sorted(state.sequences, key=lambda one: one.seq_id)
    owners = {number: block for block in state.blocks for number in block.pages}
    for index, sequence in enumerate(ordered):
        chain, at = [], sequence.last_block
        while at != -1:
            block = next(one for one in state.blocks if one.index == at)
            chain, at = [*names[at], *chain], block.parent
        assert rows.nth(index).locator(".rl-word-at").all_text_contents() == chain
    shared = next(block for block in state.blocks if len(users_of(state)[block.index]) > 1)
    number = shared.pages[0]
    using = len(users_of(state)[shared.index])
    words = [names[shared.index][token] for _, token in page_of(shared, number, state.page_size)]
    wanted = {
        "chips": [str(number)] * using,
        "tokens": [[word, str(number)] for word in words] * using,
        "cell": number,
    }
    # from a page table, from a token, from the grid
    page.get_by_role("button", name=f"page {number}", exact=True).first.hover()
    assert marked(page) == wanted
    page.locator(f".rl-word-at[data-page='{number}']").last.hover()
    assert marked(page) == wanted
    assert (
        page.locator(".rl-detail").inner_text().startswith(f"Page {number}: block {shared.index}")
    )
    page.locator(".rl-title").first.hover()
    assert marked(page) == {"chips": [], "tokens": [], "cell": None}
    assert page.locator(".rl-detail").inner_text() == "Choose a page to see what it holds."
    page.locator(".rl-grid").hover(position={"x": 10, "y": 10})
    assert marked(page)["cell"] == 0
    assert marked(page)["chips"] == ["0"] * sum(
        0 in owners[0].pages for _ in users_of(state)[owners[0].index]
    )
    # and by keys: what is chosen in the grid is marked as well
    page.locator(".rl-title").first.hover()
    page.locator(".rl-grid-pane").focus()
    page.keyboard.press("Shift+ArrowRight")
    for _ in range(number):
        page.keyboard.press("Shift+ArrowRight")
    assert marked(page) == wanted


INK = """(box) => {
  const canvas = document.querySelector(".rl-grid");
  const ratio = canvas.width / canvas.clientWidth;
  const [x, y, w, h] = box.map((one) => Math.round(one * ratio));
  const { data } = canvas.getContext("2d").getImageData(x, y, w, h);
  const seen = new Set();
  for (let at = 0; at < data.length; at += 4) seen.add(data.slice(at, at + 3).join());
  return seen.size;
}"""


def test_a_page_that_began_as_a_copy_names_its_source(open_page):
    view = scenes.scene("fork")
    timeline = view.timelines[0]
    ((number, (source, rows)),) = timeline.copies(len(timeline)).items()
    assert f"←{source}" in str(view)
    page = open_page(view)
    for other, said in ((number, True), (source, False)):
        page.locator(".rl-grid").hover(position={"x": 60 * other + 20, "y": 20})
        detail = page.locator(".rl-detail").inner_text()
        assert (f"its first {rows} rows were copied from page {source}." in detail) == said
        # between the numbers and the rows, the cell of a copy has a mark
        assert (page.evaluate(INK, [60 * other + 2, 17, 54, 12]) > 1) == said
    page.get_by_role("button", name="Restart").click()
    page.locator(".rl-grid").hover(position={"x": 60 * number + 20, "y": 20})
    assert "copied" not in page.locator(".rl-detail").inner_text()


def test_an_event_can_be_found_by_its_words(open_page):
    view = PagePool(story())
    timeline = view.timelines[0]
    page = open_page(view)
    page.locator(".rl-pool").focus()
    page.keyboard.press("Home")
    page.keyboard.press("/")
    page.keyboard.type("FORK_SEQUENCE")
    places = []
    for _ in range(2):
        page.keyboard.press("Enter")
        places.append(int(page.locator(".rl-slider").input_value()))
    page.keyboard.press("Shift+Enter")
    places.append(int(page.locator(".rl-slider").input_value()))
    words = [explain_pool_event(event) for event in timeline.events]
    found = [at + 1 for at, text in enumerate(words) if "fork_sequence" in text]
    assert places == [found[0], found[1], found[0]]
    page.keyboard.press("Control+a")
    page.keyboard.type("no such words")
    page.keyboard.press("Enter")
    page.wait_for_timeout(400)
    assert page.get_by_role("status").inner_text() == 'No event after this has "no such words".'
    assert page.locator(".rl-slider").input_value() == str(found[0])


def test_the_log_and_the_badges_say_what_the_twin_says(open_page):
    view = PagePool(crowded(48)[1])
    timeline = view.timelines[0]
    page = open_page(view)
    for position in range(0, len(timeline) + 1, 41):
        goto(page, position)
        first = max(0, position - 12)
        words = [f"{at} {explain_pool_event(timeline.events[at])}" for at in range(first, position)]
        assert page.locator(".rl-log li").all_text_contents() == words[::-1]
        # how many sequences share a block stands before its pages, in order of the sequences
        state = timeline.state(position)
        users = users_of(state)
        blocks = {block.index: block for block in state.blocks}
        badges = []
        for sequence in sorted(state.sequences, key=lambda one: one.seq_id):
            chain, at = [], sequence.last_block
            while at != -1:
                chain, at = [at, *chain], blocks[at].parent
            badges += [f"×{len(users[one])} " for one in chain if len(users[one]) > 1]
        assert page.locator(".rl-shared").all_text_contents() == badges


def test_the_curve_leads_to_the_moment_that_is_clicked(open_page):
    view = PagePool(story())
    page = open_page(view)
    assert page.evaluate(COUNT_COLOURS.replace(".rl-grid", ".rl-curve")) >= 2
    box = page.locator(".rl-curve").bounding_box()
    page.locator(".rl-curve").click(position={"x": box["width"] / 2, "y": 10})
    position = int(page.locator(".rl-slider").input_value())
    assert abs(position - view.end_of() / 2) <= 1
    assert shown(page) == expected(view.timelines[0], position)


def test_the_speed_survives_a_restart(open_page):
    page = open_page(PagePool(story()))
    rate = page.get_by_label("events a second")
    rate.fill("37")
    page.get_by_role("button", name="Restart").click()
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Pause").click()
    assert rate.input_value() == "37"


def test_calls_refusals_and_disabled_buttons_speak(open_page):
    view = PagePool(story())
    timeline = view.timelines[0]
    page = open_page(view)
    page.get_by_role("button", name="Restart").click()
    back = page.get_by_role("button", name="Back")
    assert back.get_attribute("aria-disabled") == "true"
    assert "beginning" in back.get_attribute("title")
    for at in timeline.calls[1:]:
        page.get_by_role("button", name="Next call").click()
        assert page.get_by_label("Go to event").input_value() == str(at)
    refused = next(at for at in timeline.calls if timeline.events[at].refusal)
    goto(page, refused + 1)
    assert "It was refused" in page.locator(".rl-call").inner_text()


def test_two_runs_share_one_clock(open_page):
    one, two = story(), story()
    one.name, two.name = "left", "right"
    view = PagePool(one, two)
    page = open_page(view)
    goto(page, 4)
    assert page.locator(".rl-run").count() == 2
    calls = page.locator(".rl-call").all_text_contents()
    assert calls == ["Next: Call: fork_sequence(0, 2)."] * 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [700, 1280])
def test_the_grid_is_painted_and_fits(open_page, scheme, width):
    page = open_page(PagePool(story()), color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(COUNT_COLOURS) > 4


def test_playing_reaches_the_end(open_page):
    page = open_page(PagePool(story()))
    page.get_by_role("button", name="Restart").click()
    page.get_by_label("events a second").fill("1000")
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(
        "() => { const at = document.querySelector('.rl-slider'); return at.value === at.max; }"
    )
    page.get_by_role("button", name="Play").wait_for()


def test_requests_and_the_prefix_cache_are_shown(open_page):
    recorder = crowded(48)[1]
    view = PagePool(recorder)
    timeline = view.timelines[0]
    page = open_page(view)
    for position in range(0, len(timeline) + 1, 29):
        goto(page, position)
        engine = timeline.engine(position)
        order = [*engine.running, *(one for one in engine.entries if one not in engine.running)]
        requests = [f"{one[0]}.{one[1]} {entry_words(engine.entries[one])}" for one in order]
        assert page.locator(".rl-requests li").all_text_contents() == (requests or ["none"])
        shown_nodes = sorted(page.locator(".rl-tree li").all_text_contents())
        nodes = [node_words(*one, recorder.page_size) for one in engine.nodes.items()]
        assert shown_nodes == (sorted(nodes) or ["empty"])
        savings = page.locator(".rl-savings").inner_text()
        assert savings.startswith(f"{engine.hits} hits, {engine.hit_tokens} tokens saved")
    evicted = next(
        at for at, event in enumerate(timeline.events) if type(event).__name__ == "Evicted"
    )
    goto(page, evicted + 1)
    assert "is evicted: lru: " in page.locator(".rl-said").inner_text()


def test_a_pool_without_an_engine_has_no_panes_for_it(open_page):
    page = open_page(PagePool(story()))
    assert page.locator(".rl-serving").is_hidden()


def test_two_users_scrub_smoothly_and_the_page_says_who_gave_up_what(open_page):
    view = demos.two_users("tiny")
    timeline = view.timelines[0]
    page = open_page(view)
    times = sorted(page.evaluate(SCRUB, 60))
    assert times[len(times) // 2] < 40  # 17 ms at 60 Hz; the rest is for a loaded machine
    at = next(at for at, one in enumerate(timeline.events) if type(one).__name__ == "Evicted")
    goto(page, at + 1)
    done = page.locator(".rl-said").inner_text()
    assert "is evicted: lru: not used for" in done
    assert shown(page) == expected(timeline, at + 1)


def answers(page, timeline):
    """Assert that a page says which pages were given up, why and who paid; return its sentences."""
    page.locator(".rl-pool").focus()
    page.keyboard.press("End")
    told = page.locator(".rl-losses li").all_text_contents()
    assert told == [f"event {one.event}: {one.text}" for one in reversed(timeline.losses)]
    evicted = [one for one in told if "evicted" in one]
    assert re.fullmatch(
        r"event \d+: Pages? [\d, ]+, kept from request 0\.0, (?:was|were) evicted\. "
        r"Why: lru: not used for \d+ ticks \(.*\), the longest of all\. Taken by request \d\.0\. "
        r"Who paid: .+",
        evicted[-1],
    )
    # each leads to its event, and before it nothing is told of it
    first = timeline.losses[0].event
    page.locator(".rl-loss").last.click()
    assert page.locator(".rl-slider").input_value() == str(first + 1)
    assert page.locator(".rl-loss").count() == 1
    assert page.locator(".rl-loss").get_attribute("aria-current") == "true"
    goto(page, first)
    assert page.locator(".rl-loss").count() == 0
    return told


def test_the_page_of_two_users_answers_by_itself(open_page):
    view = demos.two_users("tiny")
    page = open_page(view)
    told = answers(page, view.timelines[0])
    assert all(one.partition(": ")[2] in str(view) for one in told)


def test_smollm2_opens_scrubs_and_answers_by_itself(open_page, tmp_path):
    try:
        view = demos.two_users("smollm2")
    except ModelNotFoundError as error:
        pytest.skip(f"SmolLM2 is not on this machine: {error}")
    path = view.to_html(tmp_path / "smollm2.html")
    assert path.stat().st_size < 8e6
    timeline = view.timelines[0]
    page = open_page(path)
    times = sorted(page.evaluate(SCRUB, 60))
    assert times[len(times) // 2] < 40  # 17 ms at 60 Hz; the rest is for a loaded machine
    told = answers(page, timeline)
    preempted = next(one for one in told if "preempted" in one)
    assert re.search(r"Why: .+ needs \d more pages; .* Who paid: it waits \d+ round", preempted)
    page.keyboard.press("End")
    rows = page.locator(".rl-texts-of li").all_text_contents()
    assert any("The capital of Spain is" in row for row in rows)
    chosen = [len(entry.output) for entry in timeline.engine(len(timeline)).entries.values()]
    assert chosen == [4, 20, 20]  # a guest, and two users


def test_rows_out_of_sight_are_written_once_the_slider_rests(open_page):
    view = PagePool(recording(pages=400, events=3_000, sequences=40))
    timeline = view.timelines[0]
    page = open_page(view)
    end = len(timeline)
    page.evaluate(
        """(at) => { const slider = document.querySelector(".rl-slider");
          slider.value = String(at); slider.dispatchEvent(new Event("input")); }""",
        end // 2,
    )
    page.wait_for_timeout(500)
    assert shown(page) == expected(timeline, end // 2)
