// The pages of a cache over time: a grid of pages, the sequences that use them, the free stack.
//
// pool_replay.js knows which page holds what at every moment; here is what it looks like. The grid
// is a canvas, since a pool may have 65,000 pages; everything it shows can also be read: the chosen
// page in a sentence, sequences and the free stack as lists, events in words. With two runs beside
// each other, one clock counts calls: call n of one stands beside call n of the other.

import { entryWords, nodeWords, treeOf } from "./engine_replay.js";
import { bytesOf, EventStream } from "./event_stream.js";
import { element, icon, LiveLine, roving, set, write } from "./page.js";
import { chainOf, filledRows, freePages, PoolReplay, rowsIn, usersOf } from "./pool_replay.js";

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

const HELP = [
  ["] →", "step: one event"],
  ["[ ←", "back: undo one event"],
  ["n p", "to the next and to the last call"],
  ["Home End", "first and last event"],
  ["Space", "play or pause"],
  ["Shift+arrows", "choose a page in the grid"],
  ["? Esc", "open and close this help"],
  ["Tab, arrows", "from part to part; within a toolbar"],
];

function render({ model, el }) {
  const data = model.get("pool");
  let position = model.get("position");
  let playing = null;
  let told = 0;
  let drawing = null;
  const live = new LiveLine();
  const runs = data.runs.map((run) => makeRun(run));
  const onCalls = runs.length > 1;
  const end = Math.max(...runs.map((run) => onCalls ? run.calls.length : run.replay.end));
  position = Math.max(0, Math.min(end, position));

  /** A recording and the parts of the page that show it. */
  function makeRun(run) {
    const stream = new EventStream(bytesOf(run.stream), run.schema, run.texts);
    const replay = new PoolReplay(stream, run.num_pages, run.page_size);
    const calls = []; // index of the event that begins each call
    let serves = false; // whether an engine told something
    for (let index = 0; index < stream.length; index++) {
      if (stream.kind(index) === "Called") calls.push(index);
      serves ||= stream.kind(index) === "Submitted";
    }
    return { ...run, serves, streamOf: stream, replay, calls, chosen: null, cells: null, parts: null };
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
    helpButton);
  const tools = roving(toolbar, "button", ["ArrowLeft", "ArrowRight"]);
  const help = element("dl", { class: "rl-help", hidden: "" },
    ...HELP.flatMap(([keys, what]) => [element("dt", {}, keys), element("dd", {}, what)]));
  const slider = element("input", {
    type: "range", class: "rl-slider", "aria-label": "Position in the recording", step: "1",
    min: "0", max: String(end),
    oninput: () => { pause(); position = Number(slider.value); later(); },
    onchange: () => { goto(Number(slider.value)); },
  });
  const jump = element("input", {
    type: "number", class: "rl-number", "aria-label": `Go to ${unit}`, title: `Go to ${unit}`,
    min: "0", max: String(end), onchange: () => { pause(); goto(Number(jump.value)); },
  });
  const rate = element("input", {
    type: "number", min: "1", max: "10000", value: "4", class: "rl-number",
    "aria-label": `${unit}s a second`, title: `Speed of Play: ${unit}s a second`,
  });
  const field = (...parts) => element("span", { class: "rl-field" }, ...parts);
  const scrubber = element("div", { class: "rl-scrubber" }, slider,
    field(unit, jump, `of ${end}`), field("play", rate, `${unit}s/s`));
  const columns = element("div", { class: onCalls ? "rl-runs rl-two" : "rl-runs" },
    ...runs.map((run) => makeParts(run)));
  const root = element("section", {
    class: "rl-view rl-pool", tabindex: "0", "aria-label": "Page pool", onkeydown: onKey,
  }, toolbar, help, scrubber, columns, live.node);
  tools.choose(buttons.find(({ name }) => name === "Step").button);
  el.append(root);
  const shown = new ResizeObserver(() => later());
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
    const parts = {
      canvas, curve, grid,
      counters: element("p", { class: "rl-counters" }),
      call: element("p", { class: "rl-call" }),
      did: element("p", {}), next: element("p", {}),
      detail: element("p", { class: "rl-detail" }),
      sequences: element("ol", { class: "rl-sequences" }),
      free: element("p", { class: "rl-free" }),
      tokens: element("div", { class: "rl-tokens" }),
      requests: element("ol", { class: "rl-requests" }),
      tree: element("ol", { class: "rl-tree" }),
      savings: element("p", { class: "rl-savings" }),
      log: element("ol", { class: "rl-log" }),
    };
    run.parts = parts;
    const title = (text) => element("div", { class: "rl-title" }, text);
    return element("div", { class: "rl-run", role: "group", "aria-label": run.name },
      onCalls ? element("h2", { class: "rl-run-name" }, run.name) : "",
      parts.counters, curve, element("div", { class: "rl-said" }, parts.call, parts.did, parts.next),
      element("div", { class: "rl-pool-panes" },
        element("div", { class: "rl-pane" }, title("Pages"), grid, parts.detail),
        element("div", { class: "rl-pane" }, title("Sequences and their page tables"),
          element("div", { class: "rl-scroll rl-sequence-pane", role: "region", tabindex: "0",
            "aria-label": "Sequences and their page tables" }, parts.sequences),
          title("Free stack, next page first"), parts.free, parts.tokens)),
      parts.serving = element("div", { class: "rl-pool-panes rl-serving" },
        element("div", { class: "rl-pane" }, title("Requests"),
          element("div", { class: "rl-scroll rl-request-pane", role: "region", tabindex: "0",
            "aria-label": "Requests" }, parts.requests)),
        element("div", { class: "rl-pane" }, title("Prefix cache"),
          element("div", { class: "rl-scroll rl-request-pane", role: "region", tabindex: "0",
            "aria-label": "Prefix cache" }, parts.tree), parts.savings)),
      title("Events"),
      element("div", { class: "rl-scroll rl-log-pane", role: "region", tabindex: "0",
        "aria-label": "Events" }, parts.log));
  }

  // ---- acting

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
    model.set("position", position);
    model.save_changes();
  }

  function togglePlay() {
    if (playing) return pause();
    if (position >= end) position = 0;
    playing = { frame: 0, last: performance.now(), owed: 0 };
    set(playButton, "aria-pressed", "true");
    playButton.replaceChildren(icon("pause"), element("span", {}, "Pause"));
    const tick = (now) => {
      // the first picture may be older than the click
      playing.owed += (Math.max(0, now - playing.last) * (Number(rate.value) || 1)) / 1000;
      playing.last = now;
      const steps = Math.floor(playing.owed);
      playing.owed -= steps;
      if (steps) {
        position = Math.min(end, position + steps);
        draw();
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
    set(playButton, "aria-pressed", "false");
    playButton.replaceChildren(icon("play"), element("span", {}, "Play"));
    tell();
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
    const typing = target.matches("input[type=number]");
    if (event.ctrlKey || event.metaKey || event.altKey) {
      if (typing && /^[acvxyz]$/i.test(key)) event.stopPropagation();
      return;
    }
    // JupyterLab listens above: there, `x` would delete the cell
    event.stopPropagation();
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
    draw();
    if (run.chosen !== null) live.say(run.parts.detail.textContent);
  }

  function hover(run, page) {
    write(run.parts.detail, sentence(run, page ?? run.chosen));
  }

  // ---- words

  /** An event in words: the same templates that Python uses. */
  function wordsOf(run, index) {
    const event = run.streamOf.get(index);
    return run.words[event.is].replace(/\{(\w+)\}/g, (_, name) => {
      const value = event[name];
      if ((name === "entry" || name === "source") && Array.isArray(value)) return value.join(".");
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
      const place = view.free.indexOf(page);
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
    return `Page ${page}: block ${owner}, ${shared}; ${held.length} of ${run.page_size} rows hold ${
      tokens}.`;
  }

  // ---- drawing

  function later() {
    drawing ??= requestAnimationFrame(() => draw());
  }

  function draw() {
    cancelAnimationFrame(drawing);
    drawing = null;
    for (const { button, key, why, name } of buttons) {
      const reason = why();
      set(button, "aria-disabled", String(Boolean(reason)));
      set(button, "title", reason ? `${name}: ${reason}` : `${name} (${key})`);
    }
    for (const input of [slider, jump]) {
      if (input.value !== String(position)) input.value = String(position);
    }
    set(slider, "aria-valuetext", `${unit} ${position} of ${end}`);
    for (const run of runs) drawRun(run);
  }

  function drawRun(run) {
    const at = eventOf(run);
    const state = run.replay.at(at);
    run.view = { at, state, users: usersOf(state), free: freePages(state) };
    const { parts, view } = run;
    const used = run.num_pages - view.free.length;
    let tokens = 0;
    for (const { length } of state.sequences.values()) tokens += length;
    const filled = filledRows(state);
    const waste = used * run.page_size - filled;
    write(parts.counters, `${used} of ${run.num_pages} pages in use; ${filled} rows filled, ${
      waste} empty; ${state.sequences.size} sequence${state.sequences.size === 1 ? "" : "s"} of ${
      tokens} tokens${tokens > filled ? `, ${tokens - filled} saved by sharing` : ""}.`);
    const call = run.calls.findLast((index) => index < at || (index === at && onCalls));
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
    const listed = view.free.slice(0, PAGES_LISTED).join(" ");
    const more = view.free.length - PAGES_LISTED;
    write(parts.free, view.free.length ? `${listed}${more > 0 ? ` … ${more} more` : ""}` : "empty");
    drawTokens(run);
    drawServing(run);
    drawLog(run);
    write(parts.detail, sentence(run, run.chosen));
    const label = `${run.name}: ${parts.counters.textContent}`;
    set(parts.canvas, "aria-label", label);
  }

  function word(text) {
    return element("span", { class: "rl-word" }, text);
  }

  function colours() {
    const style = getComputedStyle(root);
    // a probe resolves light-dark(): a canvas does not know it
    const probe = element("span", { hidden: "" });
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
    const cells = run.cells = layout(run);
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
    const gap = cells.cellWidth > 8 ? 2 : cells.cellWidth > 4 ? 1 : 0;
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
      if (page === run.chosen) {
        context.strokeStyle = paint.fg;
        context.lineWidth = Math.min(3, Math.max(1, cells.cellWidth / 8));
        context.setLineDash([4, 2]);
        context.strokeRect(x + 1, y + 1, w - 2, h - 2);
        context.setLineDash([]);
      }
    }
  }

  function drawCell(run, context, paint, page, x, y, w, h, numbered) {
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
    const [front, back] = paint.sequences[((lead % COLOURS) + COLOURS) % COLOURS];
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
    const width = curve.clientWidth || 300;
    const height = curve.clientHeight || 36;
    curve.width = Math.round(width * ratio);
    curve.height = Math.round(height * ratio);
    const context = curve.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(run.parts.counters);
    const { used } = run.replay;
    const last = onCalls ? run.calls.length : run.replay.end;
    context.strokeStyle = context.fillStyle = style.color;
    context.globalAlpha = 0.3;
    context.beginPath();
    context.moveTo(0, height);
    for (let x = 0; x <= width; x++) {
      const at = eventOf(run, Math.round((x / width) * last));
      context.lineTo(x, height - (used[at] / run.num_pages) * (height - 2));
    }
    context.lineTo(width, height);
    context.fill();
    context.globalAlpha = 1;
    const here = last ? (Math.min(position, last) / last) * width : 0;
    context.fillRect(Math.min(width - 2, here), 0, 2, height);
  }

  function drawSequences(run) {
    const { state } = run.view;
    const ids = [...state.sequences.keys()].sort((a, b) => a - b);
    const items = ids.slice(0, SEQUENCES_SHOWN).map((id) => {
      const sequence = state.sequences.get(id);
      const marks = [`${sequence.length} token${sequence.length === 1 ? "" : "s"}`];
      if (sequence.window > 0) marks.push(`window ${sequence.window}, sink ${sequence.sink}`);
      if (sequence.retained) marks.push("kept for its contents");
      if (sequence.tree.length) marks.push(`tree of ${sequence.tree.length}`);
      const round = state.round && !state.round.finished ? state.round.ids.indexOf(id) : -1;
      if (round >= 0) marks.push(`+${state.round.lengths[round]} this round`);
      const swatch = element("span", { class: "rl-swatch", "aria-hidden": "true" });
      const colour = ((id % COLOURS) + COLOURS) % COLOURS;
      swatch.style.color = `var(--rl-seq${colour}-fg)`;
      swatch.style.background = `var(--rl-seq${colour}-bg)`;
      swatch.textContent = `s${id}`;
      let left = PAGES_LISTED;
      const tables = chainOf(state, id).map((index) => {
        const block = state.blocks.get(index);
        const pages = block.pages.slice(0, Math.max(0, left));
        left -= pages.length;
        const count = run.view.users.get(index).length;
        return element("span", {
          class: "rl-table", title: `block ${index}, tokens ${block.start} to ${
            block.start + block.length - 1}${count > 1 ? `, shared by ${count}` : ""}`,
        }, count > 1 ? element("span", { class: "rl-shared" }, `×${count} `) : "",
        ...pages.map((page) => element("button", {
          type: "button", class: page === run.chosen ? "rl-chip rl-chosen" : "rl-chip",
          tabindex: "-1", "aria-label": page < 0 ? "no page" : `page ${page}`,
          onclick: () => { if (page >= 0) choose(run, page); },
        }, page < 0 ? "–" : String(page))));
      });
      if (left <= 0) tables.push(element("span", {}, "…"));
      return element("li", { "data-sequence": String(id) }, swatch,
        element("span", { class: "rl-length" }, marks.join(", ")),
        element("span", { class: "rl-tables" }, ...tables));
    });
    if (ids.length > SEQUENCES_SHOWN) {
      items.push(element("li", {}, `… ${ids.length - SEQUENCES_SHOWN} more`));
    }
    if (!items.length) items.push(element("li", {}, "none"));
    run.parts.sequences.replaceChildren(...items);
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

  /** Requests in the order in which they run, then those that wait, then the others. */
  function drawServing(run) {
    const { parts } = run;
    const { engine } = run.view.state;
    parts.serving.hidden = !engine.told && !run.serves;
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
    write(parts.savings, `${engine.hits} hits, ${engine.hitTokens} tokens saved, ${
      engine.evictions} evictions, ${engine.preemptions} preemptions`);
  }

  function drawLog(run) {
    const { at } = run.view;
    const first = Math.max(0, at - LOG_LINES);
    const lines = [];
    for (let index = at - 1; index >= first; index--) {
      const isCall = run.streamOf.kind(index) === "Called";
      lines.push(element("li", { class: isCall ? "rl-log-call" : null },
        element("span", { class: "rl-pc" }, String(index)), ` ${wordsOf(run, index)}`));
    }
    run.parts.log.replaceChildren(...lines);
  }

  const onPosition = () => {
    if (model.get("position") === position) return;
    pause();
    position = model.get("position");
    draw();
  };
  model.on("change:position", onPosition);
  const dark = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
  dark?.addEventListener?.("change", later);
  draw();
  return () => {
    pause();
    live.stop();
    shown.disconnect();
    dark?.removeEventListener?.("change", later);
    model.off("change:position", onPosition);
  };
}

export default { render };
