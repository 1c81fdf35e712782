// The pages of a cache over time: a grid of pages, the sequences that use them, the free stack.
//
// pool_replay.js knows which page holds what at every moment; here is what it looks like. The grid
// is a canvas, since a pool may have 65,000 pages; everything it shows can also be read: the chosen
// page in a sentence, sequences and the free stack as lists, events in words. With two runs beside
// each other, one clock counts calls: call n of one stands beside call n of the other.

import { entryWords, nodeWords, treeOf } from "./engine_replay.js";
import { bytesOf, EventStream } from "./event_stream.js";
import {
  copyButton, element, icon, keepKeys, linkTo, LiveLine, roving, set, write,
} from "./page.js";
import {
  chainOf, countFree, filledRows, nextFree, placeInQueue, PoolReplay, rowsIn, slotOf, usersOf,
} from "./pool_replay.js";

const COLOURS = 8;
const PATTERNS = 4;
const SYNC_MS = 100;
const LOG_LINES = 12;
const SEQUENCES_SHOWN = 80;
const PAGES_LISTED = 64; // of one sequence, and of the free stack
const TOKENS_SHOWN = 400;
const LARGEST = [60, 44]; // pixels of a cell
const SMALLEST = 3;
const WITH_NUMBER = 22; // a cell as wide as this has room for its number
const GRID_HEIGHT = 380;
const FOUND_AT_ONCE = 20_000; // events that a search looks at between two pictures
const PLAIN = 7; // a cell up to this width is one colour, so that many are drawn at once
const SETTLE_MS = 120; // rows out of sight are written when nothing has moved for so long

const HELP = [
  ["] →", "step: one event"],
  ["[ ←", "back: undo one event"],
  ["n p", "to the next and to the last call"],
  ["Home End", "first and last event"],
  ["Space", "play or pause"],
  ["Shift+arrows", "choose a page in the grid; its tokens and its places in page tables are marked"],
  ["/", "find a text in the events; Enter and Shift+Enter go on"],
  ["? Esc", "open and close this help"],
  ["Tab, arrows", "from part to part; within a toolbar"],
];

/**
 * Put a pool into a page; returns how another view moves it, and how it is taken away.
 *
 * `moved(position, hurrying)` hears of every position that is drawn.
 */
export function mountPool({ model, el, moved = () => {} }) {
  const data = model.get("pool");
  let position = model.get("position");
  let playing = null;
  let told = 0;
  let drawing = null;
  let hurry = false;
  const live = new LiveLine();
  const dark = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  const contrast = globalThis.matchMedia?.("(forced-colors: active)");
  const runs = data.runs.map((run) => makeRun(run));
  const onCalls = runs.length > 1;
  const end = Math.max(...runs.map((run) => onCalls ? run.calls.length : run.replay.end));
  position = Math.max(0, Math.min(end, position));

  /** A recording and the parts of the page that show it. */
  function makeRun(run) {
    const stream = new EventStream(bytesOf(run.stream), run.schema, run.texts);
    const replay = new PoolReplay(stream, run.num_pages, run.page_size);
    const calls = stream.all("Called"); // index of the event that begins each call
    const serves = stream.all("Submitted").length > 0; // whether an engine told something
    return {
      ...run, serves, streamOf: stream, replay, calls, chosen: null, hovered: null, marked: null,
      cells: null, parts: null, rows: [], curve: null,
    };
  }

  // ---- the clock

  /** Event index of a run at the common position. */
  function eventOf(run, at = position) {
    if (!onCalls) return at;
    return at < run.calls.length ? run.calls[at] : run.replay.end;
  }

  function nextCall(step) {
    if (onCalls) return position + step;
    const { calls } = runs[0];
    if (step > 0) return calls.find((index) => index > position) ?? end;
    return calls.findLast((index) => index < position) ?? 0;
  }

  // ---- skeleton

  const atStart = () => position > 0 ? "" : "this is the beginning";
  const atEnd = () => position < end ? "" : "this is the end of the recording";
  const unit = onCalls ? "call" : "event";
  const commands = [
    ["Restart", "Home", "restart", atStart, () => 0],
    ["Last call", "p", "reverse", atStart, () => nextCall(-1)],
    ["Back", "[ or ←", "back", atStart, () => position - 1],
    ["Step", "] or →", "step", atEnd, () => position + 1],
    ["Next call", "n", "resume", atEnd, () => nextCall(1)],
  ].filter(([name]) => !onCalls || !/call/.test(name));
  const buttons = commands.map(([name, key, picture, why, where]) => {
    const button = element("button", {
      type: "button", class: "rl-button", "aria-label": name, tabindex: "-1",
      onclick: () => command(name),
    }, icon(picture), element("span", {}, name));
    return { button, name, key, why, where };
  });
  const playButton = element("button", {
    type: "button", class: "rl-button", "aria-label": "Play", "aria-pressed": "false",
    tabindex: "-1", title: "Play (Space)", onclick: () => togglePlay(),
  }, icon("play"), element("span", {}, "Play"));
  const helpButton = element("button", {
    type: "button", class: "rl-button", "aria-expanded": "false", tabindex: "-1",
    title: "Keys (?)", onclick: () => toggleHelp(),
  }, "? Keys");
  const toolbar = element("div", { class: "rl-toolbar", role: "toolbar", "aria-label": "Moving" },
    ...buttons.map(({ button }) => button), element("span", { class: "rl-gap" }), playButton,
    copyButton(() => root, live, "-1"), helpButton);
  const tools = roving(toolbar, "button", ["ArrowLeft", "ArrowRight"]);
  const help = element("dl", { class: "rl-help", hidden: "" },
    ...HELP.flatMap(([keys, what]) => [element("dt", {}, keys), element("dd", {}, what)]));
  const slider = element("input", {
    type: "range", class: "rl-slider", "aria-label": "Position in the recording", step: "1",
    min: "0", max: String(end),
    oninput: () => { pause(); position = Number(slider.value); later(true); },
    onchange: () => { goto(Number(slider.value)); },
  });
  const jump = element("input", {
    type: "number", class: "rl-number", "aria-label": `Go to ${unit}`, title: `Go to ${unit}`,
    min: "0", max: String(end),
    oninput: () => { typed = true; pause(); },
    onchange: () => { typed = false; pause(); goto(Number(jump.value)); },
    onblur: () => { typed = false; },
  });
  const rate = element("input", {
    type: "number", min: "1", max: "10000", value: "4", class: "rl-number",
    "aria-label": `${unit}s a second`, title: `Speed of Play: ${unit}s a second`,
  });
  const search = element("input", {
    type: "text", class: "rl-search", "aria-label": "Find an event", placeholder: "find (/)",
    title: "Find the next event whose words have this text: Enter, Shift+Enter",
  });
  const link = linkTo(unit);
  const field = (...parts) => element("span", { class: "rl-field" }, ...parts);
  const scrubber = element("div", { class: "rl-scrubber" }, slider,
    field(unit, jump, `of ${end}`), field("play", rate, `${unit}s/s`), search, link.node);
  const columns = element("div", { class: onCalls ? "rl-runs rl-two" : "rl-runs" },
    ...runs.map((run) => makeParts(run)));
  const root = element("section", {
    class: "rl-view rl-pool", tabindex: "0", "aria-label": "Page pool", onkeydown: onKey,
  }, toolbar, help, scrubber, columns, live.node);
  tools.choose(buttons.find(({ name }) => name === "Step").button);
  el.append(root);
  const letKeysGo = keepKeys(root);
  const shown = new ResizeObserver(() => {
    for (const run of runs) run.cells = run.sizes = null;
    later();
  });
  shown.observe(root);

  function makeParts(run) {
    const canvas = element("canvas", { class: "rl-grid", role: "img" });
    const curve = element("canvas", {
      class: "rl-curve", "aria-hidden": "true", title: "Pages in use over time; click to go there",
      onclick: (event) => {
        const share = event.offsetX / curve.clientWidth;
        pause();
        goto(Math.round(share * (onCalls ? run.calls.length : run.replay.end)));
      },
    });
    const grid = element("div", {
      class: "rl-grid-pane", role: "group", tabindex: "0",
      "aria-label": `Pages of ${run.name}: Shift and arrow keys choose one`,
      onclick: (event) => choose(run, cellAt(run, event)),
      onmousemove: (event) => hover(run, cellAt(run, event)),
      onmouseleave: () => hover(run, null),
    }, canvas);
    const ring = element("div", { class: "rl-ring", "aria-hidden": "true" });
    ring.hidden = true;
    grid.append(ring);
    const pointer = {
      onmouseover: (event) => hover(run, pageUnder(event)), onmouseleave: () => hover(run, null),
      onclick: (event) => choose(run, pageUnder(event)),
    };
    const parts = {
      canvas, curve, grid, ring,
      counters: element("p", { class: "rl-counters" }),
      call: element("p", { class: "rl-call" }),
      did: element("p", {}), next: element("p", {}),
      detail: element("p", { class: "rl-detail" }),
      sequences: element("ol", { class: "rl-sequences", ...pointer }),
      texts: element("ol", { class: "rl-texts-of", ...pointer }),
      free: element("p", { class: "rl-free" }),
      tokens: element("div", { class: "rl-tokens" }),
      requests: element("ol", { class: "rl-requests" }),
      tree: element("ol", { class: "rl-tree" }),
      savings: element("p", { class: "rl-savings" }),
      losses: element("ol", {
        class: "rl-losses",
        onclick: ({ target }) => {
          const { event } = target.closest("button")?.dataset ?? {};
          if (event === undefined) return;
          pause();
          arrive(runs.indexOf(run), Number(event));
        },
      }),
      log: element("ol", { class: "rl-log" }),
    };
    run.parts = parts;
    const digits = String(Math.max(1, run.num_pages - 1)).length;
    parts.sequences.style.setProperty("--rl-digits", String(digits));
    const title = (text) => element("div", { class: "rl-title" }, text);
    return element("div", { class: "rl-run", role: "group", "aria-label": run.name },
      onCalls ? element("h2", { class: "rl-run-name" }, run.name) : "",
      parts.counters, curve, element("div", { class: "rl-said" }, parts.call, parts.did, parts.next),
      element("div", { class: "rl-pool-panes" },
        element("div", { class: "rl-pane" }, title("Pages"), grid, parts.detail),
        element("div", { class: "rl-pane" }, title("Sequences and their page tables"),
          element("div", { class: "rl-scroll rl-sequence-pane", role: "region", tabindex: "0",
            "aria-label": "Sequences and their page tables" }, parts.sequences),
          title("Free stack, next page first"), parts.free)),
      parts.telling = element("div", { class: "rl-telling" }, title("Tokens, by sequence"),
        element("div", { class: "rl-scroll rl-text-pane", role: "region", tabindex: "0",
          "aria-label": "Tokens, by sequence" }, parts.texts), parts.tokens),
      parts.serving = element("div", { class: "rl-pool-panes rl-serving" },
        element("div", { class: "rl-pane" }, title("Requests"),
          element("div", { class: "rl-scroll rl-request-pane", role: "region", tabindex: "0",
            "aria-label": "Requests" }, parts.requests)),
        element("div", { class: "rl-pane" }, title("Prefix cache"),
          element("div", { class: "rl-scroll rl-request-pane", role: "region", tabindex: "0",
            "aria-label": "Prefix cache" }, parts.tree), parts.savings)),
      parts.lost = element("div", {}, title("Given up: which pages, why, who paid"),
        element("div", { class: "rl-scroll rl-loss-pane", role: "region", tabindex: "0",
          "aria-label": "Given up" }, parts.losses)),
      title("Events"),
      element("div", { class: "rl-scroll rl-log-pane", role: "region", tabindex: "0",
        "aria-label": "Events" }, parts.log));
  }

  // ---- acting

  let searching = null;

  /** Look for a text in the words of events, some at a time: a recording may have a million. */
  function find(backwards) {
    const wanted = search.value.trim().toLowerCase();
    if (!wanted) return;
    pause();
    const by = backwards ? -1 : 1;
    const from = runs.map((run) => eventOf(run) + (backwards ? -2 : 0));
    const look = () => {
      for (let count = 0; count < FOUND_AT_ONCE; count++) {
        let inside = false;
        for (let one = 0; one < runs.length; one++) {
          const at = from[one];
          if (at < 0 || at >= runs[one].replay.end) continue;
          inside = true;
          from[one] += by;
          if (wordsOf(runs[one], at).toLowerCase().includes(wanted)) return arrive(one, at);
        }
        if (!inside) {
          return live.say(`No event ${backwards ? "before" : "after"} this has "${wanted}".`);
        }
      }
      searching = requestAnimationFrame(look);
      return undefined;
    };
    cancelAnimationFrame(searching);
    look();
  }

  /** Go to just after an event; on a clock of calls, to the call that it belongs to. */
  function arrive(one, at) {
    if (!onCalls) return goto(at + 1);
    const call = runs[one].calls.findLastIndex((index) => index <= at);
    return goto(Math.max(0, call));
  }

  function command(name) {
    pause();
    const { why, where } = buttons.find((one) => one.name === name);
    const reason = why();
    if (reason) return live.say(`${name} is not possible: ${reason}.`);
    return goto(where());
  }

  function goto(to) {
    position = Math.max(0, Math.min(end, Math.round(to) || 0));
    draw();
    tell();
    live.say(runs.map((run) => `${run.parts.counters.textContent} ${run.parts.did.textContent}`)
      .join(" "));
  }

  function tell() {
    told = performance.now();
    keep();
    model.save_changes();
  }

  function keep() {
    model.set("position", position);
  }

  /** Go where another view of the page is; while that one hurries, it tells Python for both. */
  function show(to, hurrying) {
    if (to === position && !hurrying) return tell();
    pause();
    position = Math.max(0, Math.min(end, to));
    if (!hurrying) {
      draw();
      return tell();
    }
    return later(true);
  }

  function togglePlay() {
    if (playing) return pause();
    if (position >= end) position = 0;
    playing = { frame: 0, last: performance.now(), owed: 0 };
    showPlaying();
    const tick = (now) => {
      // the first picture may be older than the click
      playing.owed += (Math.max(0, now - playing.last) * (Number(rate.value) || 1)) / 1000;
      playing.last = now;
      const steps = Math.floor(playing.owed);
      playing.owed -= steps;
      if (steps) {
        position = Math.min(end, position + steps);
        draw(true);
        if (now - told > SYNC_MS) tell();
      }
      if (position >= end) return pause();
      playing.frame = requestAnimationFrame(tick);
      return undefined;
    };
    playing.frame = requestAnimationFrame(tick);
    return undefined;
  }

  function pause() {
    if (!playing) return;
    cancelAnimationFrame(playing.frame);
    playing = null;
    showPlaying();
    tell();
  }

  function showPlaying() {
    const name = playing ? "Pause" : "Play";
    set(playButton, "aria-pressed", String(Boolean(playing)));
    set(playButton, "aria-label", name);
    set(playButton, "title", `${name} (Space)`);
    playButton.replaceChildren(icon(name.toLowerCase()), element("span", {}, name));
  }

  function toggleHelp(open = help.hidden) {
    help.hidden = !open;
    set(helpButton, "aria-expanded", String(open));
  }

  const KEYS = {
    "]": "Step", ArrowRight: "Step", "[": "Back", ArrowLeft: "Back", Home: "Restart",
    n: onCalls ? "Step" : "Next call", p: onCalls ? "Back" : "Last call",
  };
  const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

  function onKey(event) {
    const { key, target } = event;
    const typing = target.matches("input[type=number], input[type=text]");
    if (event.ctrlKey || event.metaKey || event.altKey) {
      if (typing && /^[acvxyz]$/i.test(key)) event.stopPropagation();
      return;
    }
    // JupyterLab listens above: there, `x` would delete the cell
    event.stopPropagation();
    if (target === search && key === "Enter") {
      find(event.shiftKey);
      event.preventDefault();
      return;
    }
    if (target === search && key === "Escape") root.focus();
    if (key === "Tab" || (typing && key !== "Escape")) return;
    if (target === slider && /^(Arrow|Home|End|Page)/.test(key)) return;
    if (event.shiftKey && MOVES[key]) {
      const run = runs.find((one) => one.parts.grid.contains(target)) ?? runs[0];
      const [x, y] = MOVES[key];
      const columnCount = run.cells?.columns ?? 1;
      const from = run.chosen ?? 0;
      const to = run.chosen === null ? 0 : from + x + y * columnCount;
      if (to >= 0 && to < run.num_pages) choose(run, to);
    } else if (tools.onKey(event)) { /* moved within the toolbar */ }
    else if (key === "/") search.focus();
    else if (key === "?") toggleHelp();
    else if (key === "Escape") toggleHelp(false);
    else if (key === "End") { pause(); goto(end); }
    else if (key === " " && !target.matches("button")) togglePlay();
    else if (KEYS[key] && !(target.matches("button") && key === " ")) command(KEYS[key]);
    else return;
    event.preventDefault();
  }

  function choose(run, page) {
    if (page === null) return;
    run.chosen = run.chosen === page ? null : page;
    run.hovered = null; // what was chosen last is told, also while the pointer rests elsewhere
    draw();
    if (run.chosen !== null) live.say(run.parts.detail.textContent);
  }

  function hover(run, page) {
    run.hovered = page;
    write(run.parts.detail, sentence(run, page ?? run.chosen));
    markPage(run);
  }

  /** Mark the page under the pointer, or the chosen one: in the grid, the tables and the tokens. */
  function markPage(run) {
    const page = run.hovered ?? run.chosen;
    const { ring, sequences, texts } = run.parts;
    ring.hidden = page === null;
    if (page === null && run.marked === null) return; // most of the time: nothing to look for
    run.marked = page;
    if (page !== null) {
      const { columns: columnCount, cellWidth, cellHeight } = run.cells;
      ring.style.left = `${run.parts.canvas.offsetLeft + (page % columnCount) * cellWidth}px`;
      ring.style.top = `${run.parts.canvas.offsetTop + Math.floor(page / columnCount) * cellHeight}px`;
      ring.style.width = `${cellWidth}px`;
      ring.style.height = `${cellHeight}px`;
    }
    const name = String(page);
    for (const chip of sequences.querySelectorAll(".rl-chip")) {
      chip.classList.toggle("rl-marked", chip.textContent === name);
    }
    for (const token of texts.querySelectorAll("[data-page]")) {
      token.classList.toggle("rl-marked", token.dataset.page === name);
    }
  }

  /** The page of what the pointer is on: a page in a table, or a token; null elsewhere. */
  function pageUnder({ target }) {
    const node = target.closest?.(".rl-chip, [data-page]");
    const page = Number(node?.dataset.page ?? node?.textContent ?? "–");
    return page >= 0 ? page : null;
  }

  // ---- words

  /** An event in words: the same templates that Python uses. */
  function wordsOf(run, index) {
    const event = run.streamOf.get(index);
    return run.words[event.is].replace(/\{(\w+)\}/g, (_, name) => {
      const value = event[name];
      if ((name === "entry" || name === "source") && Array.isArray(value)) return value.join(".");
      if (name === "part") return value || "whole";
      if (Array.isArray(value)) {
        const items = value.map((one) => !Array.isArray(one) ? String(one)
          : Array.isArray(one[0]) ? `${one[0].join(".")} +${one[1]}` : `${one[0]} to ${one[1]}`);
        return items.length > 12 ? `${items.slice(0, 12).join(", ")}, … (${items.length})`
          : items.join(", ") || "none";
      }
      return value === null ? "None" : String(value);
    }).trim();
  }

  function sentence(run, page) {
    if (page === null || page === undefined) {
      return "Choose a page to see what it holds.";
    }
    const { view } = run;
    const owner = view.state.owners[page];
    if (owner < 0) {
      const place = placeInQueue(view.state, page);
      return `Page ${page} is free: ${place === 0 ? "it is taken next" : `${place} are taken before it`}.`;
    }
    const block = view.state.blocks.get(owner);
    const users = view.users.get(owner) ?? [];
    const held = rowsIn(view.state, owner, page);
    const first = held.length ? block.start + held[0][1] : 0;
    const tokens = held.length === 1 ? `token ${first}` :
      held.length ? `tokens ${first} to ${block.start + held[held.length - 1][1]}` : "no tokens yet";
    const shared = users.length > 1 ? `shared by sequences ${users.join(", ")}`
      : users.length ? `of sequence ${users[0]}` : "of no sequence";
    const [source, rows] = view.state.copied.get(page) ?? [];
    const copied = source === undefined ? "" : rows === 1 ? `; its first row was copied from page ${
      source}` : `; its first ${rows} rows were copied from page ${source}`;
    return `Page ${page}: block ${owner}, ${shared}; ${held.length} of ${run.page_size} rows hold ${
      tokens}${copied}.`;
  }

  // ---- drawing

  let settling = null;
  let typed = false;

  function later(hurrying = false) {
    drawing ??= requestAnimationFrame(() => draw(hurrying));
  }

  /** Draw; while things move, rows that are out of sight wait until nothing does. */
  function draw(hurrying = false) {
    cancelAnimationFrame(drawing);
    drawing = null;
    clearTimeout(settling);
    hurry = hurrying;
    link.show(position);
    if (hurrying) settling = setTimeout(() => draw(), SETTLE_MS);
    // what asks for sizes comes first: asking after a change would lay the page out once more
    for (const run of runs) {
      if (hurry) run.sight = rowsInSight(run);
      run.cells = layout(run);
    }
    for (const { button, key, why, name } of buttons) {
      const reason = why();
      set(button, "aria-disabled", String(Boolean(reason)));
      set(button, "title", reason ? `${name}: ${reason}` : `${name} (${key})`);
    }
    for (const input of [slider, jump]) {
      const half = input === jump && typed; // a number that is being typed stays
      if (!half && input.value !== String(position)) input.value = String(position);
    }
    set(slider, "aria-valuetext", `${unit} ${position} of ${end}`);
    for (const run of runs) drawRun(run);
    moved(position, hurrying);
  }

  function drawRun(run) {
    const at = eventOf(run);
    const state = run.replay.at(at);
    run.view = { at, state, users: usersOf(state), free: countFree(state) };
    const { parts, view } = run;
    const used = run.num_pages - view.free;
    let tokens = 0;
    for (const { length } of state.sequences.values()) tokens += length;
    const filled = filledRows(state);
    const waste = used * run.page_size - filled;
    write(parts.counters, `${used} of ${run.num_pages} pages in use; ${filled} rows filled, ${
      waste} empty; ${state.sequences.size} sequence${state.sequences.size === 1 ? "" : "s"} of ${
      tokens} tokens${tokens > filled ? `, ${tokens - filled} saved by sharing` : ""}.`);
    const call = lastCall(run, at);
    write(parts.call, call === undefined ? "" : `${onCalls && call === at ? "Next: " : ""}${wordsOf(run, call)}`);
    parts.did.replaceChildren();
    parts.next.replaceChildren();
    if (!onCalls) {
      if (at > 0) parts.did.append(word("Done: "), wordsOf(run, at - 1));
      parts.next.append(word("Next: "), at < run.replay.end ? wordsOf(run, at) : "nothing: the end");
    }
    drawGrid(run);
    drawCurve(run);
    drawSequences(run);
    const listed = nextFree(state, PAGES_LISTED).join(" ");
    const more = view.free - PAGES_LISTED;
    write(parts.free, view.free ? `${listed}${more > 0 ? ` … ${more} more` : ""}` : "empty");
    drawTokens(run);
    drawTexts(run);
    drawServing(run);
    markPage(run);
    drawLog(run);
    write(parts.detail, sentence(run, run.hovered ?? run.chosen));
    const label = `${run.name}: ${parts.counters.textContent}`;
    set(parts.canvas, "aria-label", label);
  }

  /** Index of the call that is going on (or, on a clock of calls, comes next) at an event. */
  function lastCall({ calls }, at) {
    let low = 0;
    let high = calls.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (calls[middle] < at || (calls[middle] === at && onCalls)) low = middle + 1;
      else high = middle;
    }
    return low ? calls[low - 1] : undefined;
  }

  function word(text) {
    return element("span", { class: "rl-word" }, text);
  }

  let painted = { key: "", found: null };

  /** The colours of the theme; they are looked up again only when it has changed. */
  function colours() {
    const style = getComputedStyle(root);
    const key = [style.color, style.backgroundColor, style.colorScheme,
      dark?.matches, contrast?.matches].join();
    if (painted.key !== key) painted = { key, found: lookUp(style) };
    return painted.found;
  }

  function lookUp(style) {
    // a probe resolves light-dark(): a canvas does not know it
    const probe = element("span", { hidden: "" });
    probe.style.forcedColorAdjust = "none"; // or all would be of one colour where colours are forced
    root.append(probe);
    const resolve = (name) => {
      probe.style.color = `var(--rl-${name})`;
      return getComputedStyle(probe).color;
    };
    const found = {
      fg: resolve("fg"), bg: resolve("bg"), edge: resolve("edge"), soft: resolve("soft-fg"),
      current: resolve("current-bg"), font: style.getPropertyValue("--rl-code"),
      sequences: Array.from({ length: COLOURS }, (_, index) =>
        [resolve(`seq${index}-fg`), resolve(`seq${index}-bg`)]),
    };
    probe.remove();
    return found;
  }

  function layout(run) {
    if (run.cells) return run.cells; // until the view has another size
    const width = Math.max(120, run.parts.grid.clientWidth - 4);
    let [cellWidth, cellHeight] = LARGEST;
    const fits = () => {
      const columnCount = Math.max(1, Math.floor(width / cellWidth));
      return Math.ceil(run.num_pages / columnCount) * cellHeight <= GRID_HEIGHT;
    };
    while (cellWidth > SMALLEST && !fits()) {
      cellWidth -= cellWidth > 20 ? 4 : 1;
      cellHeight = Math.max(SMALLEST, Math.round(cellWidth * (LARGEST[1] / LARGEST[0])));
    }
    const columnCount = Math.max(1, Math.min(run.num_pages, Math.floor(width / cellWidth)));
    const rowCount = Math.ceil(run.num_pages / columnCount);
    return { cellWidth, cellHeight, columns: columnCount, rows: rowCount, width };
  }

  function cellAt(run, event) {
    const { cells } = run;
    const box = run.parts.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / cells.cellWidth);
    const row = Math.floor((event.clientY - box.top) / cells.cellHeight);
    const page = row * cells.columns + column;
    const inside = column >= 0 && column < cells.columns && row >= 0 && page < run.num_pages;
    return inside ? page : null;
  }

  function drawGrid(run) {
    const { canvas } = run.parts;
    const { cells } = run;
    const ratio = globalThis.devicePixelRatio || 1;
    const width = cells.columns * cells.cellWidth;
    const height = cells.rows * cells.cellHeight;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.width = `${width}px`;
      canvas.style.height = `${height}px`;
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const paint = colours();
    context.fillStyle = paint.bg;
    context.fillRect(0, 0, width, height);
    if (cells.cellWidth <= PLAIN) {
      drawPlain(run, context, paint, cells, width, height);
      return;
    }
    const gap = cells.cellWidth > 8 ? 2 : 1;
    const numbered = cells.cellWidth >= WITH_NUMBER;
    context.font = `${Math.min(12, cells.cellHeight / 2.4)}px ${paint.font}`;
    context.textBaseline = "top";
    const fresh = changedPages(run);
    for (let page = 0; page < run.num_pages; page++) {
      const x = (page % cells.columns) * cells.cellWidth;
      const y = Math.floor(page / cells.columns) * cells.cellHeight;
      const w = cells.cellWidth - gap;
      const h = cells.cellHeight - gap;
      drawCell(run, context, paint, page, x, y, w, h, numbered);
      if (fresh.has(page) && cells.cellWidth > 8) {
        context.strokeStyle = paint.fg;
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, w - 2, h - 2);
      }
      if (page === run.chosen) drawChosen(context, paint, cells, x, y, w, h);
    }
  }

  function drawChosen(context, paint, cells, x, y, w, h) {
    context.strokeStyle = paint.fg;
    context.lineWidth = Math.min(3, Math.max(1, cells.cellWidth / 8));
    context.setLineDash([4, 2]);
    context.strokeRect(x + 1, y + 1, w - 2, h - 2);
    context.setLineDash([]);
  }

  /** Many small cells: an image of one point for each page, drawn larger in one go. */
  function drawPlain(run, context, paint, cells, width, height) {
    const { columns: columnCount, rows: rowCount, cellWidth, cellHeight } = cells;
    if (run.image?.canvas.width !== columnCount || run.image.canvas.height !== rowCount) {
      const canvas = element("canvas", { width: String(columnCount), height: String(rowCount) });
      const data = new ImageData(columnCount, rowCount);
      run.image = { canvas, data, points: new Uint32Array(data.data.buffer) };
    }
    const { canvas, data, points } = run.image;
    const { state, users } = run.view;
    const { owners } = state;
    paint.points ??= {
      empty: pointOf(paint.bg), sequences: paint.sequences.map(([, back]) => pointOf(back)),
    };
    const inks = new Map();
    for (const [block, using] of users) {
      inks.set(block, paint.points.sequences[colourOf(using[0] ?? 0)]);
    }
    points.fill(paint.points.empty);
    let block = -1;
    let ink = 0;
    for (let page = 0; page < owners.length; page++) {
      const owner = owners[page];
      if (owner < 0) continue;
      if (owner !== block) {
        block = owner;
        ink = inks.get(owner) ?? paint.points.sequences[0];
      }
      points[page] = ink;
    }
    canvas.getContext("2d").putImageData(data, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(canvas, 0, 0, width, height);
    const gap = cellWidth > 4 ? 1 : 0;
    if (gap) {
      context.fillStyle = paint.bg;
      for (let column = 1; column <= columnCount; column++) {
        context.fillRect(column * cellWidth - gap, 0, gap, height);
      }
      for (let row = 1; row <= rowCount; row++) context.fillRect(0, row * cellHeight - gap, width, gap);
    }
    if (run.chosen !== null) {
      const x = (run.chosen % columnCount) * cellWidth;
      const y = Math.floor(run.chosen / columnCount) * cellHeight;
      drawChosen(context, paint, cells, x, y, cellWidth - gap, cellHeight - gap);
    }
  }

  /** A colour as a point of an image, in the order of bytes of this machine. */
  function pointOf(colour) {
    const probe = element("canvas", { width: "1", height: "1" }).getContext("2d");
    probe.fillStyle = colour;
    probe.fillRect(0, 0, 1, 1);
    return new Uint32Array(probe.getImageData(0, 0, 1, 1).data.buffer)[0];
  }

  const colourOf = (id) => ((id % COLOURS) + COLOURS) % COLOURS;

  function drawCell(run, context, paint, page, x, y, w, h, numbered) {
    const { cells } = run;
    const { state, users } = run.view;
    const owner = state.owners[page];
    if (owner < 0) {
      if (w > 6) {
        context.strokeStyle = paint.edge;
        context.lineWidth = 1;
        context.strokeRect(x + 0.5, y + 0.5, w - 1, h - 1);
      }
      if (numbered) {
        context.fillStyle = paint.soft;
        context.fillText(String(page), x + 3, y + 3);
      }
      return;
    }
    const using = users.get(owner) ?? [];
    const lead = using[0] ?? 0;
    const [front, back] = paint.sequences[colourOf(lead)];
    context.fillStyle = back;
    context.fillRect(x, y, w, h);
    if (w >= 12) pattern(context, front, Math.floor(Math.abs(lead) / COLOURS) % PATTERNS, x, y, w, h);
    if (w >= 12) { // one stroke for each row that holds a token
      const held = rowsIn(state, owner, page);
      const width = (w - 4) / run.page_size;
      context.fillStyle = front;
      for (const [row] of held) {
        context.fillRect(x + 2 + row * width, y + h - 7, Math.max(1, width - 1), 5);
      }
    }
    if (numbered) {
      context.fillStyle = front;
      context.fillText(String(page), x + 3, y + 3);
      const badge = using.length > 1 ? `×${using.length}` : using.length ? `s${lead}` : "–";
      const size = context.measureText(badge).width;
      if (size + context.measureText(String(page)).width + 8 < w) {
        context.fillText(badge, x + w - size - 3, y + 3);
      }
      const [source] = state.copied.get(page) ?? [];
      const line = Math.min(12, cells.cellHeight / 2.4) + 4;
      if (source !== undefined && 2 * line + 8 < h) context.fillText(`←${source}`, x + 3, y + line);
    }
  }

  /** Eight colours and four patterns: 32 sequences look different, also without colour. */
  function pattern(context, front, kind, x, y, w, h) {
    if (!kind) return;
    context.save();
    context.beginPath();
    context.rect(x, y, w, h);
    context.clip();
    context.globalAlpha = 0.35;
    context.strokeStyle = front;
    context.lineWidth = 1;
    context.beginPath();
    for (let at = -h; at < w + h; at += 7) {
      if (kind === 1 || kind === 3) { context.moveTo(x + at, y + h); context.lineTo(x + at + h, y); }
      if (kind === 2 || kind === 3) { context.moveTo(x + at, y); context.lineTo(x + at + h, y + h); }
    }
    context.stroke();
    context.restore();
  }

  /** Pages that the last event touched. */
  function changedPages(run) {
    if (onCalls || run.view.at === 0) return new Set();
    const event = run.streamOf.get(run.view.at - 1);
    // events of the prefix cache count pages, those of the cache name them
    const pages = [event.pages, event.places].filter(Array.isArray).flat();
    if (event.page !== undefined) pages.push(event.page, event.source_page);
    return new Set(pages);
  }

  function drawCurve(run) {
    const { curve } = run.parts;
    const ratio = globalThis.devicePixelRatio || 1;
    run.sizes ??= [curve.clientWidth || 300, curve.clientHeight || 36];
    const [width, height] = run.sizes;
    const ink = colours().fg;
    const last = onCalls ? run.calls.length : run.replay.end;
    const key = [width, height, ratio, ink].join();
    // the curve itself stays; only the mark for the position moves
    if (run.curve?.key !== key) run.curve = { key, canvas: makeCurve(run, last, width, height, ratio, ink) };
    const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (curve.width !== wide || curve.height !== high) {
      curve.width = wide;
      curve.height = high;
    }
    const context = curve.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, wide, high);
    context.drawImage(run.curve.canvas, 0, 0);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const here = last ? (Math.min(position, last) / last) * width : 0;
    context.fillStyle = ink;
    context.fillRect(Math.min(width - 2, here), 0, 2, height);
  }

  function makeCurve(run, last, width, height, ratio, ink) {
    const canvas = element("canvas", {
      width: String(Math.round(width * ratio)), height: String(Math.round(height * ratio)),
    });
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const { used } = run.replay;
    context.fillStyle = ink;
    context.globalAlpha = 0.3;
    context.beginPath();
    context.moveTo(0, height);
    for (let x = 0; x <= width; x++) {
      const at = eventOf(run, Math.round((x / width) * last));
      context.lineTo(x, height - (used[at] / run.num_pages) * (height - 2));
    }
    context.lineTo(width, height);
    context.fill();
    return canvas;
  }

  /** Rows are kept, and written where they differ; while things move, only those in sight. */
  function drawSequences(run) {
    const { state } = run.view;
    const list = run.parts.sequences;
    const ids = [...state.sequences.keys()].sort((a, b) => a - b);
    const shownIds = ids.slice(0, SEQUENCES_SHOWN);
    const [first, last] = hurry ? run.sight : [0, shownIds.length];
    shownIds.forEach((id, index) => {
      const row = (run.rows[index] ??= makeSequenceRow());
      if (row.node.parentNode !== list) list.insertBefore(row.node, list.children[index] ?? null);
      if (index >= first && index < last) writeSequence(run, row, id);
    });
    const more = ids.length > SEQUENCES_SHOWN ? `… ${ids.length - SEQUENCES_SHOWN} more`
      : ids.length ? "" : "none";
    while (list.children.length > shownIds.length + 1 ||
      (list.children.length > shownIds.length && !list.lastChild.dataset.rest)) {
      list.children[shownIds.length].remove();
    }
    const rest = list.children[shownIds.length];
    if (!more) rest?.remove();
    else if (rest) write(rest, more);
    else list.append(element("li", { "data-rest": "1" }, more));
  }

  /** [first, end) of the rows that the pane of sequences shows, and a few around them. */
  function rowsInSight(run) {
    const pane = run.parts.sequences.parentNode;
    const { scrollTop, clientHeight, scrollHeight } = pane;
    const each = Math.max(16, scrollHeight / Math.max(1, run.parts.sequences.children.length));
    return [Math.floor(scrollTop / each) - 1, Math.ceil((scrollTop + clientHeight) / each) + 1];
  }

  function makeSequenceRow() {
    const swatch = element("span", { class: "rl-swatch", "aria-hidden": "true" });
    const length = element("span", { class: "rl-length" });
    const tables = element("span", { class: "rl-tables" });
    return { node: element("li", {}, swatch, length, tables), swatch, length, tables, state: "" };
  }

  function writeSequence(run, row, id) {
    const { state } = run.view;
    const sequence = state.sequences.get(id);
    const marks = [`${sequence.length} token${sequence.length === 1 ? "" : "s"}`];
    if (sequence.window > 0) marks.push(`window ${sequence.window}, sink ${sequence.sink}`);
    if (sequence.retained) marks.push("kept for its contents");
    if (sequence.tree.length) marks.push(`tree of ${sequence.tree.length}`);
    const round = state.round && !state.round.finished ? state.round.ids.indexOf(id) : -1;
    if (round >= 0) marks.push(`+${state.round.lengths[round]} this round`);
    if (row.id !== id) {
      row.id = id;
      set(row.node, "data-sequence", String(id));
      row.swatch.style.color = `var(--rl-seq${colourOf(id)}-fg)`;
      row.swatch.style.background = `var(--rl-seq${colourOf(id)}-bg)`;
      write(row.swatch, `s${id}`);
    }
    write(row.length, marks.join(", "));
    let left = PAGES_LISTED;
    const tables = chainOf(state, id).map((index) => {
      const block = state.blocks.get(index);
      const pages = block.pages.slice(0, Math.max(0, left));
      left -= pages.length;
      const count = run.view.users.get(index).length;
      const title = `block ${index}, tokens ${block.start} to ${block.start + block.length - 1}${
        count > 1 ? `, shared by ${count}` : ""}`;
      return { title, count, pages };
    });
    // what a title says changes with every token; the pages do so seldom
    tables.forEach(({ title }, at) => {
      const node = row.tables.children[at];
      if (node?.classList.contains("rl-table")) set(node, "title", title);
    });
    const now = tables.map(({ count, pages }) => `${count}:${pages.join()}`).join("|") +
      (left <= 0 ? "|…" : "");
    const chosen = tables.some(({ pages }) => pages.includes(run.chosen)) ? run.chosen : null;
    if (row.state === now && row.chosen === chosen) return;
    row.state = now;
    row.chosen = chosen;
    const nodes = row.tables.querySelectorAll(".rl-chip");
    let used = 0;
    const chip = (page) => {
      const node = nodes[used++] ?? element("button", { type: "button", tabindex: "-1" });
      set(node, "class", page === run.chosen ? "rl-chip rl-chosen" : "rl-chip");
      const name = page < 0 ? "–" : String(page);
      if (node.textContent !== name) {
        node.textContent = name;
        node.setAttribute("aria-label", page < 0 ? "no page" : `page ${page}`);
      }
      return node;
    };
    const layoutNow = tables.map(({ count, pages }) => `${count}:${pages.length}`).join() + (left <= 0);
    if (row.layout === layoutNow) { // the same boxes with other numbers
      for (const { pages } of tables) pages.forEach(chip);
      return;
    }
    row.layout = layoutNow;
    row.tables.replaceChildren(...tables.map(({ title, count, pages }) =>
      element("span", { class: "rl-table", title },
        count > 1 ? element("span", { class: "rl-shared" }, `×${count} `) : "",
        ...pages.map(chip))),
    ...(left <= 0 ? [element("span", {}, "…")] : []));
  }

  /** The tokens of the chosen page, row by row, if the recording knows them. */
  function drawTokens(run) {
    const { parts, view } = run;
    const page = run.chosen;
    const block = page === null ? null : view.state.blocks.get(view.state.owners[page]);
    const held = block?.names.length ? rowsIn(view.state, view.state.owners[page], page) : [];
    parts.tokens.replaceChildren(...(held.length ? [
      element("div", { class: "rl-title" }, `Tokens in page ${page}`),
      element("p", { class: "rl-token-row" }, ...held.slice(0, TOKENS_SHOWN).map(([row, token]) =>
        element("span", { class: "rl-token", title: `row ${row}, position ${block.start + token}` },
          run.tokens[block.names[token]] ?? "?"))),
    ] : []));
  }

  /** The tokens of every sequence, in order, as far as there is room; each knows its page. */
  function drawTexts(run) {
    const { parts, view } = run;
    parts.telling.hidden = !run.tokens.length;
    if (parts.telling.hidden) return;
    const { state } = view;
    const ids = [...state.sequences.keys()].sort((a, b) => a - b).slice(0, SEQUENCES_SHOWN);
    let left = TOKENS_SHOWN;
    const rows = ids.map((id) => {
      const tokens = [];
      let skipped = 0;
      for (const index of chainOf(state, id)) {
        const { names, start } = state.blocks.get(index);
        names.forEach((name, token) => {
          if (left <= 0) skipped += 1;
          else {
            left -= 1;
            const [page, row] = slotOf(state, index, token);
            tokens.push([run.tokens[name] ?? "?", page ?? -1, row, start + token]);
          }
        });
      }
      return { id, tokens, skipped };
    });
    const list = parts.texts;
    while (list.children.length > rows.length) list.lastChild.remove();
    rows.forEach(({ id, tokens, skipped }, at) => {
      const line = list.children[at] ?? list.appendChild(element("li", {},
        element("span", { class: "rl-swatch" }), element("span", { class: "rl-words" }),
        element("span", {})));
      const [swatch, text, rest] = line.children;
      write(swatch, `s${id}`);
      swatch.style.color = `var(--rl-seq${colourOf(id)}-fg)`;
      swatch.style.background = `var(--rl-seq${colourOf(id)}-bg)`;
      while (text.children.length > tokens.length) text.lastChild.remove();
      tokens.forEach(([word_, page, row, place], index) => {
        const node = text.children[index] ?? text.appendChild(element("span", { class: "rl-word-at" }));
        write(node, word_);
        set(node, "data-page", page < 0 ? null : String(page));
        set(node, "title", page < 0 ? `position ${place}, in no page`
          : `page ${page}, row ${row}, position ${place}`);
      });
      write(rest, skipped ? `… ${skipped} more` : "");
    });
  }

  /** Requests in the order in which they run, then those that wait, then the others. */
  function drawServing(run) {
    const { parts } = run;
    const { engine } = run.view.state;
    parts.serving.hidden = !engine.told && !run.serves;
    parts.lost.hidden = true;
    if (parts.serving.hidden) return;
    const others = [...engine.entries.keys()].filter((key) => !engine.running.includes(key));
    const items = [...engine.running, ...others].map((key) => {
      const entry = engine.entries.get(key);
      return element("li", { "data-status": entry.status },
        element("b", {}, key), ` ${entryWords(entry)}`);
    });
    parts.requests.replaceChildren(...items.length ? items : [element("li", {}, "none")]);
    const nodes = treeOf(engine).map(([depth, node]) => {
      const item = element("li", {}, nodeWords(node, engine.nodes.get(node), run.page_size));
      item.style.paddingLeft = `${6 + 14 * depth}px`;
      return item;
    });
    parts.tree.replaceChildren(...nodes.length ? nodes : [element("li", {}, "empty")]);
    drawLosses(run);
    write(parts.savings, `${engine.hits} hits, ${engine.hitTokens} tokens saved, ${
      engine.evictions} evictions, ${engine.preemptions} preemptions`);
  }

  /** What was given up so far, the last one first: each leads to its event. */
  function drawLosses(run) {
    const { parts, view } = run;
    const losses = (run.losses ?? []).filter(([event]) => event < view.at).reverse();
    parts.lost.hidden = !losses.length;
    const list = parts.losses;
    while (list.children.length > losses.length) list.lastChild.remove();
    losses.forEach(([event, text], at) => {
      const line = list.children[at] ?? list.appendChild(element("li", {},
        element("button", { type: "button", class: "rl-loss" })));
      const [button] = line.children;
      set(button, "data-event", String(event));
      set(button, "aria-current", event === view.at - 1 ? "true" : null);
      write(button, `event ${event}: ${text}`);
    });
  }

  function drawLog(run) {
    const { at } = run.view;
    const first = Math.max(0, at - LOG_LINES);
    const { log } = run.parts;
    while (log.children.length > at - first) log.lastChild.remove();
    while (log.children.length < at - first) {
      log.append(element("li", {}, element("span", { class: "rl-pc" }), element("span", {})));
    }
    for (let index = at - 1; index >= first; index--) {
      const line = log.children[at - 1 - index];
      line.classList.toggle("rl-log-call", run.streamOf.kind(index) === "Called");
      write(line.firstChild, String(index));
      write(line.lastChild, ` ${wordsOf(run, index)}`);
    }
  }

  const onPosition = () => {
    if (model.get("position") === position) return;
    pause();
    position = model.get("position");
    draw();
  };
  model.on("change:position", onPosition);
  const again = () => later();
  dark?.addEventListener?.("change", again);
  draw();
  const unlink = link.listen((to) => { pause(); goto(to); });
  const stop = () => {
    unlink();
    pause();
    cancelAnimationFrame(searching);
    clearTimeout(settling);
    live.stop();
    letKeysGo();
    shown.disconnect();
    dark?.removeEventListener?.("change", again);
    model.off("change:position", onPosition);
  };
  return { show, keep, stop, at: () => position };
}

export default { render: (context) => mountPool(context).stop };
