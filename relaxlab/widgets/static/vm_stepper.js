// The stepper: one recorded run of the virtual machine, replayed in the page.
//
// Three layers, top to bottom: `Replay` decodes the compact trace (relaxlab/trace/compact.py says
// what it holds), `Cursor` moves through it as trace.DebugSession does, `render` draws. The first
// two know no document and are tested with `node --test`.

const WRITE = 0;
const ENTER = 1;
const CHECKPOINT = 256; // states kept for scrubbing: one in so many steps

/** A decoded trace: the state at every position, in time independent of the position. */
export class Replay {
  constructor(trace) {
    this.trace = trace;
    this.first = trace.first_step;
    this.end = trace.first_step + trace.ops.length;
    this.rows = new Map(trace.code.pc.map((pc, row) => [pc, row]));
    this.byName = new Map(trace.functions.map((f) => [f[0], f]));
    const frames = trace.start.map(([fn, pc, target, registers], depth) => ({
      number: `start:${depth}`, fn, pc, target, registers: [...registers], entry: [...registers],
    }));
    this.checkpoints = [this.#apply(frames, trace.before, 0)];
  }

  #apply(frames, ops, step) {
    for (let at = 0; at < ops.length; ) {
      if (ops[at] === WRITE) {
        frames[ops[at + 1]].registers[ops[at + 2]] = ops[at + 3];
        at += 4;
      } else if (ops[at] === ENTER) {
        const [, fn, pc, target, count] = ops.slice(at, at + 5);
        const registers = ops.slice(at + 5, at + 5 + count);
        // a frame is known by the step that entered it, so that a replay numbers it alike
        frames.push({ number: `${step}:${at}`, fn, pc, target, registers, entry: [...registers] });
        at += 5 + count;
      } else {
        frames.pop();
        at += 1;
      }
    }
    return frames;
  }

  /** Frames at a position, outermost first: {number, fn, pc, registers, entry}. */
  frames_at(position) {
    const target = position - this.first;
    let k = Math.min(Math.floor(target / CHECKPOINT), this.checkpoints.length - 1);
    let frames = copy(this.checkpoints[k]);
    for (let index = k * CHECKPOINT; index < target; index++) {
      this.#place(frames, index);
      frames = this.#apply(frames, this.trace.ops[index], index + 1);
      if ((index + 1) % CHECKPOINT === 0 && this.checkpoints.length === (index + 1) / CHECKPOINT) {
        this.checkpoints.push(copy(frames));
      }
    }
    this.#place(frames, target);
    return frames;
  }

  #place(frames, index) {
    if (index < this.trace.pc.length && frames.length) {
      frames[this.trace.depth[index]].pc = this.trace.pc[index];
    }
  }

  /** Depth of the frame that runs at a position; -1 at the end. */
  depth(position) {
    const depth = this.trace.depth[position - this.first];
    return depth === undefined ? -1 : depth;
  }

  pc(position) {
    return this.trace.pc[position - this.first];
  }

  line(index) {
    const [template, ...numbers] = this.trace.lines[index];
    const [head, ...rest] = this.trace.templates[template].split("\u001a");
    return head + rest.map((words, i) => `${numbers[i]}${words}`).join("");
  }

  next_sentence(position) {
    return this.line(this.trace.say[position - this.first]);
  }

  done_sentence(position) {
    return position > this.first ? this.line(this.trace.did[position - this.first - 1]) : "";
  }

  console(position) {
    return this.trace.console.filter(([step]) => step < position).map(([, text]) => text).join("");
  }

  function_name(index) {
    return this.trace.functions[index][0];
  }

  /** A value in one line, as Python's `value.text` says it. */
  text(index) {
    const [kind, ...rest] = this.trace.values[index];
    switch (kind) {
      case "tensor": {
        const [dtype, shape, , storage, offset, head, tail, , , nans] = rest;
        const shown = [...head, ...(tail.length ? ["…"] : []), ...tail];
        const number = (v) => (typeof v === "number" ? numberText(v, dtype) : pythonText(v));
        const place = `s${storage}${offset ? `+${offset}` : ""}`;
        const list = shown.map((v) => (v === "…" ? v : number(v))).join(", ");
        return `${dtype}[${shape.join(", ")}] ${place} [${list}]${nans ? ` ${nans} NaN` : ""}`;
      }
      case "tuple": {
        const [length, ...items] = rest;
        let shown = items.map((i) => this.text(i)).join(", ");
        if (items.length < length) shown += `${items.length ? ", … " : ""}${length} elements`;
        return `(${shown})`;
      }
      case "storage":
        return `storage s${rest[0]} (block ${rest[1]}, ${rest[2]} bytes, ${rest[3]})`;
      case "function":
      case "closure": {
        const [name, ...bound] = rest;
        const values = bound.map((i) => this.text(i)).join(", ");
        return `${kind} ${name}${bound.length ? ` with (${values})` : ""}`;
      }
      default:
        return rest[0];
    }
  }

  /** What a hover says beyond the line: range and number of NaN of a tensor. */
  detail(index) {
    const [kind, ...rest] = this.trace.values[index];
    if (kind !== "tensor") return this.text(index);
    const [dtype, shape, device, storage, offset, , , low, high, nans] = rest;
    const range = low === null || low === undefined ? "" : `, from ${low} to ${high}`;
    return `${dtype}[${shape.join(", ")}] on ${device}, storage ${storage} at byte ${offset}` +
      `${range}${nans ? `, ${nans} NaN` : ""}`;
  }
}

const copy = (frames) =>
  frames.map((f) => ({ ...f, registers: [...f.registers] }));

function numberText(value, dtype) {
  const text = String(value);
  return /float/.test(dtype) && /^-?\d+$/.test(text) ? `${text}.0` : text;
}

const pythonText = (value) =>
  value === true ? "True" : value === false ? "False" : String(value);

/** A cursor over a replay: it moves as trace.DebugSession does over a finished recording. */
export class Cursor {
  constructor(replay, position = replay.first, breakpoints = []) {
    this.replay = replay;
    this.position = clamp(position, replay.first, replay.end);
    this.breakpoints = new Set(breakpoints);
    this.selected = null;
    this.shown = new Map();
  }

  get frames() {
    return this.replay.frames_at(this.position);
  }

  /** The frame whose registers are looked at; undefined at the end. */
  frame() {
    const frames = this.frames;
    const depth = this.replay.depth(this.position);
    return frames[this.selected === null ? depth : Math.min(this.selected, depth)];
  }

  previous(frame) {
    return this.shown.get(frame.number) ?? frame.entry;
  }

  #remember() {
    const frame = this.frame();
    if (frame) this.shown.set(frame.number, frame.registers);
  }

  goto(position) {
    const to = clamp(position, this.replay.first, this.replay.end);
    if (to !== this.position) {
      this.#remember();
      this.selected = null;
      this.position = to;
    }
    return this;
  }

  select(depth) {
    this.#remember();
    this.selected = depth;
    return this;
  }

  #forward(floor) {
    const { replay } = this;
    for (let p = this.position + 1; p < replay.end; p++) {
      if (this.breakpoints.has(replay.pc(p))) return this.goto(p);
      if (floor !== null && replay.depth(p) <= floor) return this.goto(p);
    }
    return this.goto(replay.end);
  }

  #backward(floor) {
    const { replay } = this;
    for (let p = this.position - 1; p >= replay.first; p--) {
      if (this.breakpoints.has(replay.pc(p))) return this.goto(p);
      if (floor !== null && replay.depth(p) <= floor) return this.goto(p);
    }
    return this.goto(replay.first);
  }

  step() { return this.goto(this.position + 1); }
  back() { return this.goto(this.position - 1); }
  over() { return this.#forward(this.replay.depth(this.position)); }
  out() { return this.#forward(this.replay.depth(this.position) - 1); }
  resume() { return this.#forward(null); }
  reverse() { return this.#backward(null); }
  restart() { return this.goto(this.replay.first); }

  toggle(pc) {
    if (!this.breakpoints.delete(pc)) this.breakpoints.add(pc);
    return this;
  }
}

const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** Change mark of a register, as in the text twin: + new, - let go, * changed. */
export function mark(replay, before, now) {
  if (before === now) return "";
  if (replay.trace.values[before]?.[0] === "none") return "+";
  return replay.trace.values[now]?.[0] === "none" ? "-" : "*";
}

const MARK_WORDS = { "+": "new", "-": "let go", "*": "changed" };

// ---- drawing ---------------------------------------------------------------------------------

const COMMANDS = [
  // name, symbol, key shown, method, why it can do nothing (position, replay) => text or ""
  ["Restart", "|◀", "Home", "restart", atStart],
  ["Reverse", "◀◀", "Shift+F5", "reverse", atStart],
  ["Back", "◀", "[", "back", atStart],
  ["Step", "▶", "] or F11", "step", atEnd],
  ["Over", "↷", "F10", "over", atEnd],
  ["Out", "↥", "Shift+F11", "out", atEnd],
  ["Continue", "▶▶", "F5", "resume", atEnd],
];
const KEYS = {
  "Home": "restart", "End": "finish", "[": "back", "]": "step", "ArrowLeft": "back",
  "ArrowRight": "step", "F10": "over", "F11": "step", "Shift+F11": "out", "F5": "resume",
  "Shift+F5": "reverse",
};
const HELP = [
  ["] or F11 or →", "step: one instruction, into calls of Relax functions"],
  ["[ or ←", "back: undo one instruction"],
  ["F10", "over: run a called function to its end"],
  ["Shift+F11", "out: run until this function has returned"],
  ["F5, Shift+F5", "continue to the next breakpoint, or back to the last one"],
  ["F9", "breakpoint at the current instruction, or click the gutter"],
  ["Home, End", "first and last step"],
  ["Space", "play or pause"],
  ["?", "this help"],
];

function atStart(cursor) {
  if (cursor.position > cursor.replay.first) return "";
  return cursor.replay.first ? "earlier steps were dropped" : "before the first instruction";
}

function atEnd(cursor) {
  return cursor.position < cursor.replay.end ? "" : "the program is over";
}

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function render({ model, el }) {
  let cursor = fresh();
  let playing = null;
  const speed = { value: 8 }; // steps a second; outlives a restart

  function fresh() {
    const replay = new Replay(model.get("trace"));
    return new Cursor(replay, model.get("position"), model.get("breakpoints"));
  }

  // -- skeleton
  const buttons = COMMANDS.map(([name, symbol, key, method, why]) => {
    const button = element("button", {
      type: "button", class: "rl-button", "aria-label": name,
      onclick: () => { if (!why(cursor)) act(method); },
    }, element("span", { "aria-hidden": "true" }, symbol), ` ${name}`);
    return { button, key, why, name };
  });
  const play = element("button", {
    type: "button", class: "rl-button", "aria-label": "Play", "aria-pressed": "false",
    title: "Play (Space)", onclick: () => toggle_play(),
  }, "Play");
  const rate = element("input", {
    type: "number", min: "1", max: "60", value: String(speed.value), class: "rl-number",
    "aria-label": "Steps a second", title: "Steps a second",
    onchange: () => { speed.value = clamp(Number(rate.value) || 1, 1, 60); if (playing) { toggle_play(); toggle_play(); } },
  });
  const help_button = element("button", {
    type: "button", class: "rl-button", "aria-label": "Help", "aria-expanded": "false",
    title: "Keys (?)", onclick: () => toggle_help(),
  }, "?");
  const toolbar = element("div", { class: "rl-toolbar", role: "toolbar", "aria-label": "Stepping" },
    ...buttons.map((b) => b.button), play, rate, element("span", {}, "steps a second"), help_button);
  const help = element("dl", { class: "rl-help", hidden: "" },
    ...HELP.flatMap(([key, what]) => [element("dt", {}, key), element("dd", {}, what)]));
  const slider = element("input", {
    type: "range", class: "rl-slider", "aria-label": "Step",
    oninput: () => { pause(); cursor.goto(Number(slider.value)); changed(); },
  });
  const jump = element("input", {
    type: "number", class: "rl-number", "aria-label": "Go to step",
    onchange: () => { pause(); cursor.goto(Number(jump.value) || 0); changed(); },
  });
  const total = element("span", { class: "rl-total" });
  const scrubber = element("div", { class: "rl-scrubber" }, slider, jump, total);
  const sentence = element("p", { class: "rl-sentence", role: "status", "aria-live": "polite" });
  const code_title = element("h3", {});
  const code = element("ol", { class: "rl-code", tabindex: "0", "aria-label": "Code" });
  const registers_title = element("h3", {});
  const registers = element("table", { class: "rl-registers" });
  const frames = element("ol", { class: "rl-frames", "aria-label": "Frames" });
  const printed = element("pre", { class: "rl-console", "aria-label": "Printed" });
  const printed_title = element("h3", {}, "Printed");
  const root = element("section", {
    class: "rl-view rl-stepper", tabindex: "0", "aria-label": "Virtual machine stepper",
    onkeydown: on_key,
  },
    toolbar, help, scrubber, sentence,
    element("div", { class: "rl-panes" },
      element("div", { class: "rl-pane rl-pane-code" }, code_title, code),
      element("div", { class: "rl-pane rl-pane-registers" }, registers_title,
        element("div", { class: "rl-scroll", tabindex: "0", role: "region", "aria-label": "Registers" }, registers)),
      element("div", { class: "rl-pane rl-pane-frames" }, element("h3", {}, "Frames"), frames,
        printed_title, printed)));
  el.append(root);

  // -- acting
  function act(method) {
    pause();
    if (method === "finish") cursor.goto(cursor.replay.end);
    else cursor[method]();
    changed();
  }

  function changed() {
    draw();
    model.set("position", cursor.position);
    model.set("breakpoints", [...cursor.breakpoints].sort((a, b) => a - b));
    model.save_changes();
  }

  function toggle_play() {
    if (playing) return pause();
    if (cursor.position >= cursor.replay.end) cursor.restart();
    playing = setInterval(() => {
      cursor.step();
      const stop = cursor.position >= cursor.replay.end ||
        cursor.breakpoints.has(cursor.replay.pc(cursor.position));
      if (stop) pause();
      changed();
    }, 1000 / speed.value);
    play.setAttribute("aria-pressed", "true");
    play.textContent = "Pause";
  }

  function pause() {
    clearInterval(playing);
    playing = null;
    play.setAttribute("aria-pressed", "false");
    play.textContent = "Play";
  }

  function toggle_help() {
    help.hidden = !help.hidden;
    help_button.setAttribute("aria-expanded", String(!help.hidden));
  }

  function on_key(event) {
    // JupyterLab listens above: there, `x` would delete the cell
    event.stopPropagation();
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Tab") return;
    const typing = event.target instanceof HTMLInputElement;
    if (typing && !/^F\d+$/.test(event.key)) return;
    const key = event.shiftKey && event.key.startsWith("F") ? `Shift+${event.key}` : event.key;
    const on_button = event.target instanceof HTMLButtonElement;
    if (key === "?") toggle_help();
    else if (key === " " && !on_button) toggle_play();
    else if (key === "F9") { cursor.toggle(cursor.replay.pc(cursor.position)); changed(); }
    else if (KEYS[key]) {
      const command = COMMANDS.find(([, , , method]) => method === KEYS[key]);
      if (!command || !command[4](cursor)) act(KEYS[key]);
    } else return;
    event.preventDefault();
  }

  // -- drawing
  let drawn_function = null;

  function draw() {
    const { replay } = cursor;
    const frame = cursor.frame();
    for (const { button, key, why, name } of buttons) {
      const reason = why(cursor);
      button.setAttribute("aria-disabled", String(Boolean(reason)));
      button.title = reason ? `${name}: ${reason}` : `${name} (${key})`;
    }
    for (const input of [slider, jump]) {
      input.min = String(replay.first);
      input.max = String(replay.end);
      input.value = String(cursor.position);
    }
    total.textContent = `of ${replay.end}`;
    const did = replay.done_sentence(cursor.position);
    sentence.textContent =
      `${did ? `Done: ${did} ` : ""}${frame ? "Next: " : ""}${replay.next_sentence(cursor.position)}`;
    draw_code(frame);
    draw_registers(frame);
    draw_frames();
    const text = replay.console(cursor.position);
    printed.textContent = text;
    printed.hidden = printed_title.hidden = !text;
  }

  function draw_code(frame) {
    const { replay } = cursor;
    const fn = frame ? frame.fn : drawn_function;
    if (fn !== null && fn !== drawn_function) {
      drawn_function = fn;
      const [name, , start, end] = replay.trace.functions[fn];
      code_title.textContent = `Code of ${name}`;
      code.replaceChildren();
      for (let pc = start; pc < end; pc++) code.append(code_row(pc));
    }
    for (const row of code.children) {
      const pc = Number(row.dataset.pc);
      const current = frame !== undefined && pc === frame.pc;
      row.classList.toggle("rl-current", current);
      if (current) row.setAttribute("aria-current", "step");
      else row.removeAttribute("aria-current");
      row.querySelector(".rl-arrow").textContent = current ? "⇒" : "";
      const stop = cursor.breakpoints.has(pc);
      const gutter = row.querySelector(".rl-gutter");
      gutter.setAttribute("aria-pressed", String(stop));
      gutter.textContent = stop ? "●" : "○";
      if (current) keep_in_view(code, row);
    }
  }

  function code_row(pc) {
    const { trace } = cursor.replay;
    const row = cursor.replay.rows.get(pc);
    const words = trace.code.words[row].map((w) => `0x${w}`).join(" ");
    const constants = trace.code.operands[row]
      .map((o) => /^c\[(\d+)\]$/.exec(o)).filter(Boolean)
      .map(([whole, index]) => `${whole} = ${trace.constants[index]}`);
    return element("li", { "data-pc": String(pc), title: [`words ${words}`, ...constants].join("\n") },
      element("button", {
        type: "button", class: "rl-gutter", "aria-label": `Breakpoint at ${pc}`,
        onclick: () => { cursor.toggle(pc); changed(); },
      }),
      element("span", { class: "rl-arrow", "aria-hidden": "true" }),
      element("span", { class: "rl-pc" }, String(pc)),
      element("code", {}, trace.code.text[row]));
  }

  function draw_registers(frame) {
    const { replay } = cursor;
    registers.replaceChildren();
    if (!frame) {
      registers_title.textContent = "Result";
      const { outcome } = replay.trace;
      const text = "result" in outcome ? replay.text(outcome.result)
        : outcome.error ? `${outcome.error}: ${outcome.message}` : "none";
      registers.append(element("tbody", {}, element("tr", {}, element("td", {}, text))));
      return;
    }
    const [name, , , , parameters] = replay.trace.functions[frame.fn];
    registers_title.textContent = `Registers of #${depth_of(frame)} ${name}`;
    const before = cursor.previous(frame);
    const body = element("tbody");
    frame.registers.forEach((value, index) => {
      const sign = mark(replay, before[index], value);
      const was = sign === "*" || sign === "-" ? ` (was ${replay.text(before[index])})` : "";
      body.append(element("tr", { class: sign ? "rl-changed" : "" },
        element("td", { class: "rl-mark", title: MARK_WORDS[sign] ?? "" }, sign,
          element("span", { class: "rl-hidden" }, sign ? ` ${MARK_WORDS[sign]}` : "")),
        element("th", { scope: "row" }, `%${index}`, parameters[index] ? ` ${parameters[index]}` : ""),
        element("td", { title: replay.detail(value) }, replay.text(value),
          element("span", { class: "rl-was" }, was))));
    });
    registers.append(body);
  }

  function depth_of(frame) {
    return cursor.frames.findIndex((f) => f.number === frame.number);
  }

  function draw_frames() {
    const { replay } = cursor;
    const stack = cursor.frames;
    const top = replay.depth(cursor.position);
    const selected = cursor.selected === null ? top : Math.min(cursor.selected, top);
    frames.replaceChildren(...stack.slice(0, top + 1).map((frame, depth) =>
      element("li", {}, element("button", {
        type: "button", class: "rl-frame", "aria-pressed": String(depth === selected),
        onclick: () => { cursor.select(depth); draw(); },
      }, `${depth === selected ? "▸ " : ""}#${depth} ${replay.function_name(frame.fn)}, instruction ${frame.pc}`)))
      .reverse());
    if (!stack.length || top < 0) frames.replaceChildren(element("li", {}, "no frame: the run is over"));
  }

  const on_position = () => { cursor.goto(model.get("position")); draw(); };
  const on_breakpoints = () => { cursor.breakpoints = new Set(model.get("breakpoints")); draw(); };
  const on_trace = () => { pause(); cursor = fresh(); drawn_function = null; draw(); };
  model.on("change:position", on_position);
  model.on("change:breakpoints", on_breakpoints);
  model.on("change:trace", on_trace);
  draw();
  return () => {
    pause();
    model.off("change:position", on_position);
    model.off("change:breakpoints", on_breakpoints);
    model.off("change:trace", on_trace);
  };
}

/** Scroll only the pane, never the page, and keep two rows around the current one in view. */
function keep_in_view(pane, row) {
  const margin = 2 * row.offsetHeight;
  const top = row.offsetTop - pane.offsetTop;
  if (top - margin < pane.scrollTop) pane.scrollTop = top - margin;
  else if (top + row.offsetHeight + margin > pane.scrollTop + pane.clientHeight) {
    pane.scrollTop = top + row.offsetHeight + margin - pane.clientHeight;
  }
}

export default { render };
