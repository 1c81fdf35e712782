// The stepper: code, registers and frames of one recorded run, with a cursor that moves both ways.
//
// replay.js knows what was where and how the cursor moves; here is only what it looks like, and how
// keys and buttons reach it. Each part draws from the cursor and touches only what differs.

import {
  copyButton, element, icon, keepInView, keepKeys, linkTo, LiveLine, roving, set, write,
} from "./page.js";
import { Cursor, displayed, heatCells, logged, mark, Replay } from "./replay.js";

const LINE = 18; // pixels, as in vm_stepper.css
const WIDEST_NAME = 10; // characters; a longer one is wrapped
const MANY = 200; // so many registers are laid out at once
const MOST_LINES = 16;
const FEWEST_LINES = 9;
const PLACES_SHOWN = 3;
const FRAMES_SHOWN = 60; // innermost ones; the two outermost are always there
const SYNC_MS = 100; // at most so often is Python told while the view plays
const MOST_A_SECOND = 100_000;

const atStart = ({ position, replay }) => position > replay.first ? ""
  : replay.first ? `the ${replay.first} steps before this one were dropped`
    : "this is before the first instruction";
const atEnd = ({ position, replay }) => position < replay.end ? "" : "the program is over";
const inNoFunction = (cursor) => atEnd(cursor);

// name, key as shown, method of the cursor, why it can do nothing now (or an empty text)
const COMMANDS = [
  ["Restart", "Home", "restart", atStart],
  ["Reverse", "r or Shift+F8", "reverse", atStart],
  ["Back", "[ or ←", "back", atStart],
  ["Step", "] or F11 or →", "step", atEnd],
  ["Over", "F10", "over", inNoFunction],
  ["Out", "Shift+F11", "out", inNoFunction],
  ["Continue", "c or F8", "resume", atEnd],
];
const KEYS = {
  "Home": "restart", "End": "finish", "[": "back", "]": "step", "ArrowLeft": "back",
  "ArrowRight": "step", "F10": "over", "F11": "step", "Shift+F11": "out", "c": "resume",
  "F8": "resume", "r": "reverse", "Shift+F8": "reverse",
};
const HELP = [
  ["] F11 →", "step: one instruction, into calls of Relax functions"],
  ["[ ←", "back: undo one instruction"],
  ["F10", "over: run a called function to its end"],
  ["Shift+F11", "out: run until this function has returned"],
  ["c F8", "continue to the next breakpoint or the end"],
  ["r Shift+F8", "reverse to the last breakpoint or the start"],
  ["F9", "breakpoint at the current instruction, or at the one with the focus"],
  ["Home End", "first and last step"],
  ["Space p", "play or pause"],
  ["b", "let Step and Back pass by calls of vm.builtin functions, or not"],
  ["i", "show what happens inside the instruction, or hide it"],
  ["t", "open or close all registers: pictures of tensors, and which step wrote them last; a click " +
    "on a register opens one"],
  ["/", "find a text in instructions, names and values; Enter and Shift+Enter go on"],
  ["? Esc", "open and close this help"],
  ["Tab, arrows", "from part to part; within a toolbar or a list of buttons"],
];
// a page of its own has an address that may name a step; a notebook's address is the notebook's
const SIGNS = { "+": "new", "-": "let go", "*": "changed" };

/**
 * Put a stepper into a page; returns how another view moves it, and how it is taken away.
 *
 * `moved(position, hurrying)` hears of every position that is drawn.
 */
export function mountStepper({ model, el, moved = () => {} }) {
  let cursor = fresh();
  let gliding = false; // the slider is being dragged
  let playing = null; // {frame: request, last: time, owed: steps}
  let told = 0; // when Python was told last
  const live = new LiveLine();

  function fresh() {
    const made = new Cursor(new Replay(model.get("trace")), {
      breakpoints: model.get("breakpoints"), halts: model.get("halts"), visits: model.get("visits"),
    });
    made.skipBuiltins = Boolean(model.get("skip_builtins"));
    return made;
  }

  // ---- skeleton

  const buttons = COMMANDS.map(([name, key, method, why]) => {
    const button = element("button", {
      type: "button", class: "rl-button", "aria-label": name, tabindex: "-1",
      onclick: () => command(method),
    }, icon(method), element("span", {}, name));
    return { button, name, key, method, why };
  });
  const playButton = element("button", {
    type: "button", class: "rl-button", "aria-label": "Play", "aria-pressed": "false",
    tabindex: "-1", title: "Play (Space)", onclick: () => togglePlay(),
  }, icon("play"), element("span", {}, "Play"));
  const toggle = (name, trait, title) => element("button", {
    type: "button", class: "rl-button", "aria-pressed": String(Boolean(model.get(trait))),
    tabindex: "-1", title, onclick: () => flip(trait),
  }, name);
  const skipButton = toggle("Skip builtins", "skip_builtins",
    "Step and Back pass by calls of vm.builtin functions (b)");
  const insideButton = toggle("Inside", "inside",
    "What happens inside the instruction: fetch, decode, read, call, write (i)");
  const helpButton = element("button", {
    type: "button", class: "rl-button", "aria-expanded": "false",
    tabindex: "-1", title: "Keys (?)", onclick: () => toggleHelp(),
  }, "? Keys");
  const toolbar = element("div", { class: "rl-toolbar", role: "toolbar", "aria-label": "Stepping" },
    ...buttons.map(({ button }) => button), element("span", { class: "rl-gap" }), playButton,
    skipButton, insideButton, copyButton(() => root, live, "-1"), helpButton);
  const tools = roving(toolbar, "button", ["ArrowLeft", "ArrowRight"]);
  const help = element("dl", { class: "rl-help", hidden: "" },
    ...HELP.flatMap(([keys, what]) => [element("dt", {}, keys), element("dd", {}, what)]));

  const slider = element("input", {
    type: "range", class: "rl-slider", "aria-label": "Position in the run", step: "1",
    oninput: () => { pause(); gliding = true; cursor.glide(Number(slider.value)); later(); },
    onchange: () => { gliding = false; cursor.goto(Number(slider.value)); changed(); },
  });
  const jump = element("input", {
    type: "number", class: "rl-number", "aria-label": "Go to step", title: "Go to step",
    oninput: () => pause(), // or the next picture would write over what is being typed
    onchange: () => { pause(); cursor.goto(Math.round(Number(jump.value))); changed(); },
  });
  const total = element("span", {});
  const rate = element("input", {
    type: "number", min: "1", max: String(MOST_A_SECOND), value: "4", class: "rl-number",
    "aria-label": "Steps a second", title: "Speed of Play: steps a second",
  });
  const field = (...parts) => element("span", { class: "rl-field" }, ...parts);
  const search = element("input", {
    type: "text", class: "rl-search", "aria-label": "Find a step", placeholder: "find (/)",
    title: "Find the next step whose instruction or sentence has this text: Enter, Shift+Enter",
  });
  const scrubber = element("div", { class: "rl-scrubber" }, slider,
    field("step", jump, total), field("play", rate, "steps/s"), search);
  const dropped = element("p", { class: "rl-dropped" });
  const did = element("p", {});
  const next = element("p", {});
  const said = element("div", { class: "rl-said" }, did, next);
  const edited = element("p", { class: "rl-edited" });
  const source = element("div", { class: "rl-source", role: "group", "aria-label": "Source" });
  const phases = element("ol", { class: "rl-phases", "aria-label": "Inside the instruction" });
  const watched = element("dl", { class: "rl-watched", "aria-label": "Watched expressions" });
  const logLines = element("ol", {});
  const log = element("div", { class: "rl-scroll rl-logged", role: "region", tabindex: "0",
    "aria-label": "Logged" }, logLines);
  const remark = element("input", {
    type: "text", class: "rl-remark", "aria-label": "Note on this step", maxlength: "400",
    placeholder: "Note on this step, then Enter",
    onchange: () => addNote(),
  });
  const link = linkTo("step");
  const notes = element("ul", { class: "rl-notes", "aria-label": "Notes" });
  const remarks = element("div", { class: "rl-remarks" }, remark, link.node, notes);

  const codeTitle = element("div", { class: "rl-title" });
  const picker = element("select", {
    class: "rl-select", "aria-label": "Function to show", title: "Function to show",
    onchange: () => { browsed = Number(picker.value); drawCode(); },
  });
  const code = element("div", { class: "rl-scroll rl-code", role: "region", tabindex: "0" });
  const lines = roving(code, ".rl-gutter", ["ArrowUp", "ArrowDown"]);
  const registersTitle = element("div", { class: "rl-title" });
  const registers = element("div", { class: "rl-registers", role: "table" });
  const registerPane = element("div", {
    class: "rl-scroll rl-register-pane", role: "region", tabindex: "0",
  }, registers);
  const framesTitle = element("div", { class: "rl-title" }, "Frames");
  const frames = element("ol", {});
  const framePane = element("div", {
    class: "rl-scroll rl-frames", role: "region", "aria-label": "Frames", tabindex: "0",
  }, frames);
  const frameKeys = roving(framePane, ".rl-frame", ["ArrowUp", "ArrowDown"]);
  const printedTitle = element("div", { class: "rl-title" }, "Printed");
  const printed = element("pre", {
    class: "rl-scroll rl-console", role: "region", "aria-label": "Printed", tabindex: "0",
  });
  const panes = element("div", { class: "rl-panes" },
    element("div", { class: "rl-pane" },
      element("div", { class: "rl-pane-title" }, codeTitle, picker), code),
    element("div", { class: "rl-pane" },
      element("div", { class: "rl-pane-title" }, registersTitle), registerPane),
    element("div", { class: "rl-pane rl-pane-frames" },
      element("div", { class: "rl-pane-title" }, framesTitle), framePane, printedTitle, printed));
  const root = element("section", {
    class: "rl-view rl-stepper", tabindex: "0", "aria-label": "Virtual machine stepper",
    onkeydown: onKey,
  }, toolbar, help, scrubber, dropped, edited, said, source, phases, watched,
  log, panes, remarks, live.node);
  tools.choose(buttons.find(({ name }) => name === "Step").button);
  el.append(root);
  const letKeysGo = keepKeys(root);
  // an output that was not laid out, or was scrolled out of a long notebook, could not scroll
  const shown = new ResizeObserver(() => centre());
  shown.observe(root);

  // ---- acting

  function flip(trait) {
    model.set(trait, !model.get(trait));
    model.save_changes();
    onSwitches();
    const button = trait === "inside" ? insideButton : skipButton;
    live.say(`${button.textContent} is ${model.get(trait) ? "on" : "off"}.`);
  }

  function onSwitches() {
    cursor.skipBuiltins = Boolean(model.get("skip_builtins"));
    set(skipButton, "aria-pressed", String(cursor.skipBuiltins));
    set(insideButton, "aria-pressed", String(Boolean(model.get("inside"))));
    drawAround();
  }

  function addNote() {
    const text = remark.value.trim();
    if (!text) return;
    remark.value = "";
    const all = [...(model.get("notes") ?? []), [cursor.position, text]];
    model.set("notes", all.sort(([a], [b]) => a - b));
    model.save_changes();
    drawNotes();
    live.say(`Noted at step ${cursor.position}.`);
  }

  function find(backwards) {
    const text = search.value.trim();
    if (!text) return;
    pause();
    if (cursor.find(text, backwards)) changed();
    else announce(`No step ${backwards ? "before" : "after"} ${cursor.position} has "${text}".`);
  }

  function command(method) {
    pause();
    const found = buttons.find((one) => one.method === method);
    const reason = found?.why(cursor);
    if (reason) return announce(`${found.name} is not possible: ${reason}.`);
    cursor[method]();
    return changed();
  }

  function changed() {
    browsed = null;
    draw();
    tell();
    speak();
  }

  /** Let Python know; while playing not at every step, and never again what it said itself. */
  function tell() {
    told = performance.now();
    keep();
    model.save_changes();
  }

  function keep() {
    model.set("position", cursor.position);
    model.set("visits", cursor.trail());
  }

  /** Go where another view of the page is; while that one hurries, it tells Python for both. */
  function show(position, hurrying) {
    if (position === cursor.position && !hurrying) return tell();
    pause();
    cursor.goto(position);
    browsed = null;
    if (!hurrying) {
      draw();
      return tell();
    }
    return later();
  }

  function speak() {
    live.say(`Step ${cursor.position} of ${cursor.replay.end}. ${did.textContent} ${next.textContent}`);
  }

  function announce(text) {
    write(did, text);
    live.say(text);
  }

  function toggleBreakpoint(pc) {
    const special = haltsAt(pc)[0];
    if (special) return announce(`${special[0]} was set from Python, and is changed there.`);
    cursor.toggle(pc);
    model.set("breakpoints", [...cursor.breakpoints].sort((a, b) => a - b));
    model.save_changes();
    drawBreakpoints();
    return live.say(`${cursor.breakpoints.has(pc) ? "Breakpoint at" : "No breakpoint at"} ` +
      `instruction ${pc}.`);
  }

  function haltsAt(pc) {
    return cursor.halts.filter((halt) => halt[1] === pc);
  }

  function togglePlay() {
    if (playing) {
      pause();
      changed();
      return;
    }
    if (atEnd(cursor)) cursor.restart();
    playing = { owed: 0, last: performance.now() };
    playing.request = requestAnimationFrame(tick);
    showPlaying();
  }

  function tick(now) {
    // many steps a second are taken in one go, and drawn once
    const speed = Math.max(1, Math.min(MOST_A_SECOND, Number(rate.value) || 1));
    playing.owed += Math.max(0, now - playing.last) / 1000 * speed;
    playing.last = now;
    playing.request = requestAnimationFrame(tick);
    const steps = Math.floor(playing.owed);
    if (!steps) return;
    playing.owed -= steps;
    if (!cursor.play(steps)) {
      pause();
      changed();
      return;
    }
    browsed = null;
    draw();
    if (now - told > SYNC_MS) tell();
  }

  function pause() {
    if (!playing) return;
    cancelAnimationFrame(playing.request);
    playing = null;
    showPlaying();
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

  function onKey(event) {
    const { key, target } = event;
    const typing = target.matches("input[type=number], input[type=text], select");
    if (event.ctrlKey || event.metaKey || event.altKey) {
      // Ctrl+S is the notebook's; what edits a text must not edit its cells
      if (typing || "acvxyz".includes(key.toLowerCase())) event.stopPropagation();
      return;
    }
    // JupyterLab listens above: there, `x` would delete the cell
    event.stopPropagation();
    if (key === "Enter" && (target === remark || target === search)) {
      if (target === remark) addNote();
      else find(event.shiftKey);
      event.preventDefault();
      return;
    }
    if (target === search && key === "Escape") root.focus();
    if (key === "Tab" || (typing && !/^(F\d+|Escape)$/.test(key))) return;
    const named = event.shiftKey && /^F\d/.test(key) ? `Shift+${key}` : key;
    const native = target === slider && /^(Arrow|Home|End|Page)/.test(key);
    if (native) return;
    if (tools.onKey(event) || lines.onKey(event) || frameKeys.onKey(event)) {
      event.preventDefault();
    } else if (key === "?") toggleHelp();
    else if (key === "Escape") toggleHelp(false);
    else if (key === "p" || (key === " " && !target.matches("button"))) togglePlay();
    else if (key === "b") flip("skip_builtins");
    else if (key === "i") flip("inside");
    else if (key === "/") search.focus();
    else if (key === "t") openAll();
    else if (key === "F9") {
      const row = target.closest("li[data-pc]");
      const pc = row ? Number(row.dataset.pc) : cursor.frame[1];
      if (pc >= 0) toggleBreakpoint(pc);
    } else if (KEYS[named]) command(KEYS[named]);
    else return;
    event.preventDefault();
  }

  // ---- drawing

  let drawing = null;

  /** Draw once before the next picture, however often the slider moves until then. */
  function later() {
    drawing ??= requestAnimationFrame(() => draw());
  }

  function draw() {
    cancelAnimationFrame(drawing);
    drawing = null;
    for (const { button, key, why, name } of buttons) {
      const reason = why(cursor);
      set(button, "aria-disabled", String(Boolean(reason)));
      set(button, "title", reason ? `${name}: ${reason}` : `${name} (${key})`);
    }
    drawPosition();
    drawSentences();
    drawAround();
    drawNotes();
    drawCode();
    drawRegisters();
    drawFrames();
    const text = cursor.replay.printed(cursor.position);
    write(printed, text);
    printed.hidden = printedTitle.hidden = !text;
    if (text) printed.scrollTop = printed.scrollHeight;
    moved(cursor.position, gliding || Boolean(playing));
  }

  function drawPosition() {
    const { replay, position } = cursor;
    for (const input of [slider, jump]) {
      set(input, "min", String(replay.first));
      set(input, "max", String(replay.end));
      if (input.value !== String(position)) input.value = String(position);
    }
    set(slider, "aria-valuetext", `step ${position} of ${replay.end}`);
    write(total, `of ${replay.end}`);
    dropped.hidden = !replay.first;
    write(dropped, replay.first
      ? `The first ${replay.first} steps were dropped: only the last ${replay.trace.ops.length} are kept.`
      : "");
  }

  function drawSentences() {
    const { replay, position } = cursor;
    const over = position === replay.end;
    const failed = over && replay.trace.outcome.error;
    const sentence = over ? "" : replay.done(position);
    did.replaceChildren();
    if (cursor.reason) did.append(word("Stopped: "), `${cursor.reason}. `);
    if (sentence) did.append(word("Done: "), sentence);
    const ending = replay.next(position);
    next.replaceChildren(word(over ? failed ? "Failed: " : "Finished: " : "Next: "));
    next.append(failed ? element("span", { class: "rl-failed" }, ending) : ending);
  }

  /** What surrounds the sentences: source, phases, watched expressions, what was logged. */
  function drawAround() {
    const { replay, position } = cursor;
    const edits = model.get("edited") ?? [];
    edited.hidden = !edits.length;
    write(edited, edits.map((one) =>
      `Edited ${one}: from there on this is no run of the program.`).join(" "));
    const [places, binding, kernel] = model.get("sources")?.[cursor.frame[1]] ?? [[], "", ""];
    source.hidden = !places.length && !binding;
    source.replaceChildren(
      ...places.slice(0, PLACES_SHOWN).map((place) => element("code", {}, place)),
      ...(binding ? [element("code", {}, `IR: ${binding}`)] : []),
      ...(kernel ? [element("code", {}, `kernel: ${kernel}`)] : []));
    const inside = model.get("inside") ? replay.phases(position) : [];
    phases.hidden = !inside.length;
    phases.replaceChildren(...inside.map(([name, text]) =>
      element("li", {}, element("b", {}, name), " ", text)));
    const shownOnes = model.get("displays") ?? [];
    watched.hidden = !shownOnes.length;
    const isTop = cursor.depth === replay.depth(position);
    watched.replaceChildren(...shownOnes.flatMap((one) => [
      element("dt", {}, one[0]),
      element("dd", {}, isTop ? displayed(one, position) || "(the program is over)"
        : "(look at the top frame to see it)"),
    ]));
    const lines = logged(model.get("logs") ?? [], position);
    log.hidden = !lines.length;
    logLines.replaceChildren(...lines.map(([step, line]) => element("li", {}, `step ${step}: ${line}`)));
    if (lines.length) log.scrollTop = log.scrollHeight;
  }

  function drawNotes() {
    const { position, replay } = cursor;
    link.show(position);
    const all = (model.get("notes") ?? []).filter(([step]) => step >= replay.first);
    notes.hidden = !all.length;
    const state = JSON.stringify([all, position]);
    if (notes.dataset.state === state) return;
    notes.dataset.state = state;
    notes.replaceChildren(...all.map(([step, text]) => element("li", {}, element("button", {
      type: "button", class: "rl-note", "aria-current": step === position ? "true" : null,
      onclick: () => { pause(); cursor.goto(step); changed(); },
    }, `step ${step}: ${text}`))));
  }

  function word(text) {
    return element("span", { class: "rl-word" }, text);
  }

  // -- code: the rows of a function are made once

  const listings = new Map();
  let browsed = null; // a function chosen by the reader, until the next move
  let listing = null;
  let markedRow = null; // the current line, or the one that failed
  let markedState = "";

  /** [function, instruction, whether it failed] to show: at the end, where the run ended. */
  function place() {
    const { replay, position } = cursor;
    const [frame, pc] = cursor.frame;
    if (frame) return [frame.fn, pc, false];
    if (position === replay.first) return [null, -1, false];
    const failed = Boolean(replay.trace.outcome.error);
    return [replay.top(position - 1).fn, replay.pc(position - 1), failed];
  }

  function drawCode() {
    const { replay } = cursor;
    const [fn, pc, failed] = place();
    const shown = browsed ?? fn;
    if (shown === null) return;
    const made = listings.get(shown) ?? makeListing(shown);
    if (made !== listing) {
      listing = made;
      unmark();
      code.replaceChildren(made.list);
      set(code, "aria-label", `Code of ${replay.name(shown)}`);
      write(codeTitle, picker.hidden ? `Code of ${replay.name(shown)}` : "Code of");
      drawBreakpoints();
    }
    picker.value = String(shown);
    const over = cursor.frame[0] === null;
    const row = shown === fn && (!over || failed) ? made.rows.get(pc) : null;
    const state = row ? (failed ? "rl-failed" : "rl-current") : "";
    if (markedRow !== row || markedState !== state) {
      unmark();
      if (row) markRow(row, state);
    }
    if (row) {
      if (!code.contains(document.activeElement)) lines.choose(row.gutter);
      keepInView(code, row.node, 2 * LINE);
    }
  }

  function unmark() {
    if (!markedRow) return;
    markedRow.node.classList.remove("rl-current", "rl-failed");
    set(markedRow.node, "aria-current", null);
    markedRow.arrow.replaceChildren();
    markedRow = null;
  }

  function markRow(row, state) {
    const failed = state === "rl-failed";
    row.node.classList.add(state);
    if (!failed) set(row.node, "aria-current", "step");
    row.arrow.append(icon(failed ? "cross" : "arrow"));
    if (failed) row.arrow.append(element("span", { class: "rl-hidden" }, "failed here"));
    markedRow = row;
    markedState = state;
  }

  function makeListing(fn) {
    const { replay } = cursor;
    const [, , start, end] = replay.trace.functions[fn];
    const rows = new Map();
    const list = element("ol", {});
    list.style.setProperty("--rl-digits", String(String(end - 1).length));
    for (let pc = start; pc < end; pc++) {
      const row = makeRow(pc);
      rows.set(pc, row);
      list.append(row.node);
    }
    const made = { list, rows };
    listings.set(fn, made);
    return made;
  }

  function makeRow(pc) {
    const { trace, rows } = cursor.replay;
    const row = rows.get(pc);
    const words = trace.code.words[row].map((hex) => `0x${hex}`).join(" ");
    const constants = trace.code.operands[row]
      .map((operand) => /^c\[(\d+)\]$/.exec(operand)).filter(Boolean)
      .map(([operand, index]) => `${operand} = ${trace.constants[index]}`);
    const [places, binding] = model.get("sources")?.[pc] ?? [[], ""];
    const from = places.length ? places : binding ? [binding] : [];
    const beside = from.length ? from[0].replace(/^.*?:\d+: /, "") : "";
    const gutter = element("button", {
      type: "button", class: "rl-gutter", "aria-label": `Breakpoint at ${pc}`, tabindex: "-1",
      onclick: () => toggleBreakpoint(pc),
    }, icon("dot"));
    const arrow = element("span", { class: "rl-arrow" });
    const node = element("li", {
      "data-pc": String(pc), title: [...from, `words ${words}`, ...constants].join("\n"),
    }, gutter, arrow, element("span", { class: "rl-pc" }, String(pc)),
    element("code", {}, trace.code.text[row]),
    ...(beside ? [element("span", { class: "rl-beside" }, `; ${beside}`)] : []));
    return { node, gutter, arrow };
  }

  function drawBreakpoints() {
    for (const [pc, { gutter }] of listing?.rows ?? []) {
      const special = haltsAt(pc)[0];
      const pressed = String(cursor.breakpoints.has(pc) || Boolean(special));
      if (gutter.getAttribute("aria-pressed") !== pressed) {
        set(gutter, "aria-pressed", pressed);
        gutter.replaceChildren(icon(special ? "diamond" : "dot"));
      }
      set(gutter, "title", special ? special[0] : `Breakpoint at ${pc} (F9)`);
    }
  }

  // -- registers: rows are kept, and written where they differ

  const registerRows = [];
  let shownRegisters = null; // {frame, values} of the rows; null while the outcome is shown

  function drawRegisters() {
    const { replay } = cursor;
    const [frame] = cursor.frame;
    if (!frame) {
      drawOutcome();
      return;
    }
    const names = replay.trace.functions[frame.fn][4];
    const title = `Registers of #${frame.depth} ${replay.name(frame.fn)}`;
    write(registersTitle, title);
    set(registerPane, "aria-label", title);
    set(registers, "aria-label", title);
    const values = cursor.registers(frame);
    const before = cursor.previous(frame);
    let changed = null;
    values.forEach((value, index) => {
      const row = (registerRows[index] ??= makeRegister(index));
      const sign = mark(replay, before[index], value);
      if (sign) changed ??= row.node;
      drawRegister(row, names[index] ?? "", sign, value, before[index]);
    });
    const opened = registerRows.slice(0, values.length).filter((row) => row.opened);
    if (shownRegisters?.frame.fn !== frame.fn) {
      const widths = values.map((_, index) => label(index, names[index]).length);
      const width = Math.min(WIDEST_NAME, widths.reduce((a, b) => Math.max(a, b), 0));
      registers.style.setProperty("--rl-name", `${width}ch`);
      registers.classList.toggle("rl-many", values.length > MANY);
      registers.replaceChildren(...registerRows.slice(0, values.length).map(({ node }) => node));
    }
    shownRegisters = { frame, values };
    for (const row of opened) drawHeat(row);
    if (changed) settle(registerPane, changed);
  }

  /** Keep a row in view while rows above it are laid out, whose heights were only guessed. */
  function settle(pane, row, pictures = 6, position = cursor.position) {
    if (position !== cursor.position) return;
    keepInView(pane, row);
    if (pictures && registers.classList.contains("rl-many") && !playing) {
      requestAnimationFrame(() => settle(pane, row, pictures - 1, position));
    }
  }

  function makeRegister(index) {
    const row = { state: "", index };
    row.sign = element("span", { "aria-hidden": "true" });
    row.word = element("span", { class: "rl-hidden" });
    row.mark = element("span", { class: "rl-mark", role: "cell" }, row.sign, row.word);
    row.name = element("span", { role: "rowheader" });
    row.value = element("span", { class: "rl-value" });
    row.more = element("span", { class: "rl-more" });
    row.written = element("span", { class: "rl-written" });
    row.heat = element("span", { class: "rl-heat", role: "cell" });
    row.heat.hidden = true;
    row.node = element("div", {
      class: "rl-register", role: "row", onclick: () => open(row),
      onmouseenter: () => {
        const { frame, values } = shownRegisters;
        set(row.node, "title",
          cursor.replay.detail(frame, index, cursor.position, values[index]));
      },
    }, row.mark, row.name, element("span", { role: "cell" }, row.value, row.more, row.written),
    row.heat);
    return row;
  }

  /** Open or close the picture of a register's tensor, in whichever frame it is shown. */
  function open(row, wanted = !row.opened) {
    if (String(getSelection?.() ?? "")) return; // somebody copies text
    row.opened = wanted;
    drawHeat(row);
  }

  function openAll() {
    const shownRows = registerRows.slice(0, shownRegisters?.values.length ?? 0);
    const wanted = !shownRows.some((row) => row.opened);
    for (const row of shownRows) open(row, wanted);
    live.say(wanted ? "Registers are open." : "Registers are closed.");
  }

  function drawHeat(row) {
    const { replay, position, depth } = cursor;
    const writer = row.opened && shownRegisters
      ? replay.writer(shownRegisters.frame, row.index, position) : null;
    write(row.written, writer === null ? "" : ` written by step ${writer}`);
    const value = row.opened && shownRegisters
      ? replay.trace.values[shownRegisters.values[row.index]] : null;
    row.heat.hidden = value?.[0] !== "tensor";
    if (row.heat.hidden) {
      row.heat.replaceChildren();
      return;
    }
    const whole = (model.get("pictures") ?? []).find(([at, deep, register]) =>
      at === position && deep === depth && register === row.index)?.[3];
    const elements = value[2].reduce((a, b) => a * b, 1);
    const grid = whole ? whole.texts.map((texts, y) => texts.map((text, x) =>
      [text, whole.levels[y][x]])) : [heatCells(value)];
    const recorded = value[6].length + value[7].length;
    const words = whole ? whole.heading : recorded < elements
      ? `${recorded} of ${elements} elements were recorded; stepper.picture(${row.index}) in Python ` +
        "opens all of them" : `all ${elements} elements`;
    row.heat.replaceChildren(
      element("span", { class: whole ? "rl-cells rl-whole" : "rl-cells", role: "img",
        "aria-label": words },
      ...grid.map((cells) => element("span", { class: "rl-cell-row" }, ...cells.map(
        ([text, shade]) => shade === null ? element("span", {}, text) : element("span", {
          class: `rl-cell rl-shade${shade}`, title: text,
        }, whole ? "" : text))))),
      element("span", { class: "rl-heat-words" }, words));
  }

  function drawRegister(row, name, sign, value, was) {
    const { replay } = cursor;
    const old = sign === "*" || sign === "-" ? was : -1;
    const state = `${name} ${sign} ${value} ${old}`;
    if (row.state === state) return;
    row.state = state;
    row.node.classList.toggle("rl-changed", Boolean(sign));
    write(row.sign, sign);
    write(row.word, SIGNS[sign] ?? "");
    set(row.mark, "title", SIGNS[sign] ?? null);
    write(row.name, label(row.index, name));
    write(row.value, replay.text(value));
    const more = [replay.range(value), old < 0 ? "" : `(was ${replay.text(old)})`];
    write(row.more, more.filter(Boolean).join(" "));
  }

  function label(index, name) {
    return name ? `%${index} ${name}` : `%${index}`;
  }

  function drawOutcome() {
    const { replay } = cursor;
    const { outcome } = replay.trace;
    const failed = "error" in outcome;
    write(registersTitle, failed ? "Error" : "Result");
    set(registerPane, "aria-label", failed ? "Error" : "Result");
    set(registers, "aria-label", failed ? "Error" : "Result");
    const text = failed ? `${outcome.error}: ${outcome.message}`
      : "result" in outcome ? replay.text(outcome.result) : "the run was given up";
    registers.replaceChildren(element("div", { class: "rl-outcome", role: "row" },
      element("span", { role: "cell" }, text)));
    shownRegisters = null;
  }

  // -- frames: the innermost ones, and the two that everything began with

  function drawFrames() {
    const { replay, position, depth } = cursor;
    const rows = [];
    const top = replay.depth(position);
    write(framesTitle, top < 1 ? "Frames" : `Frames (${top + 1})`);
    let skipped = 0;
    for (const [frame, pc] of replay.stack(position)) {
      const chosen = frame.depth === depth;
      if (rows.length >= FRAMES_SHOWN && frame.depth > 1 && !chosen) {
        skipped += 1;
        continue;
      }
      if (skipped) rows.push(elided(skipped));
      skipped = 0;
      rows.push(element("li", {}, element("button", {
        type: "button", class: "rl-frame", "aria-pressed": String(chosen),
        "data-depth": String(frame.depth), tabindex: chosen ? "0" : "-1",
        onclick: () => choose(frame.depth),
      }, icon("chosen"), `#${frame.depth} ${replay.name(frame.fn)}, instruction ${pc}`)));
    }
    const focused = framePane.contains(document.activeElement) && document.activeElement !== framePane;
    frames.replaceChildren(...(rows.length ? rows : [
      element("li", { class: "rl-elided" }, "none: the run is over"),
    ]));
    const button = frames.querySelector("[aria-pressed=true]");
    if (focused) (button ?? framePane).focus();
    if (button) keepInView(framePane, button, LINE);
  }

  function elided(count) {
    return element("li", { class: "rl-elided" }, `… ${count} more`);
  }

  function choose(depth) {
    pause();
    cursor.select(depth);
    changed();
  }

  /** Bring what matters into view again. */
  function centre() {
    if (markedRow) keepInView(code, markedRow.node, 2 * LINE);
    const chosen = frames.querySelector("[aria-pressed=true]");
    if (chosen) keepInView(framePane, chosen, LINE);
    const changedRow = registers.querySelector(".rl-changed");
    if (changedRow) keepInView(registerPane, changedRow);
  }

  // ---- the run, and what the model says about it

  function begin() {
    const { trace } = cursor.replay;
    listings.clear();
    listing = markedRow = shownRegisters = null;
    registerRows.length = 0;
    const known = [...trace.functions.keys()].filter((fn) =>
      trace.functions[fn][1] === 1 && cursor.replay.rows.has(trace.functions[fn][2]));
    picker.replaceChildren(...known.map((fn) =>
      element("option", { value: String(fn) }, trace.functions[fn][0])));
    picker.hidden = known.length < 2;
    // as tall as the largest function needs: a height that changes with every call is hard to read
    const sizes = known.map((fn) => Math.max(trace.functions[fn][3] - trace.functions[fn][2],
      trace.functions[fn][5]));
    const tallest = Math.max(FEWEST_LINES, Math.min(MOST_LINES, Math.max(0, ...sizes)));
    panes.style.setProperty("--rl-lines", String(tallest));
    draw();
  }

  const onPlace = () => {
    const moved = cursor.follow(model.get("visits"));
    if (!moved && cursor.position === model.get("position")) return;
    pause();
    cursor.goto(model.get("position"), cursor.reason);
    browsed = null;
    draw();
    speak();
  };
  const onBreakpoints = () => {
    cursor.breakpoints = new Set(model.get("breakpoints"));
    cursor.setHalts(model.get("halts"));
    drawBreakpoints();
  };
  const onTrace = () => {
    pause();
    cursor = fresh();
    browsed = null;
    begin();
  };
  const heard = [["position", onPlace], ["visits", onPlace], ["breakpoints", onBreakpoints],
    ["halts", onBreakpoints], ["trace", onTrace], ["notes", () => drawNotes()],
    ["displays", () => drawAround()], ["logs", () => drawAround()],
    ["pictures", () => registerRows.forEach((row) => row.opened && drawHeat(row))],
    ["inside", onSwitches], ["skip_builtins", onSwitches]];
  for (const [name, listener] of heard) model.on(`change:${name}`, listener);
  begin();
  const unlink = link.listen((step) => {
    pause();
    cursor.goto(step);
    changed();
  });
  const stop = () => {
    unlink();
    pause();
    live.stop();
    letKeysGo();
    shown.disconnect();
    for (const [name, listener] of heard) model.off(`change:${name}`, listener);
  };
  return { show, keep, stop, at: () => cursor.position };
}

export default { render: (context) => mountStepper(context).stop };
