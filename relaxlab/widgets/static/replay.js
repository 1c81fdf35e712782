// A recorded run, replayed in the page: what was where at every step, and how a cursor moves.
//
// `Replay` decodes the compact trace (relaxlab/trace/compact.py says what it holds). Every frame of
// the run is kept once, with the changes of its registers in order, so the state at any position is
// a few binary searches away and scrubbing costs the same everywhere. `Cursor` moves as
// trace.DebugSession does. Neither knows a document: `node --test` compares both with Python.

const WRITE = 0;
const ENTER = 1;
const VM_FUNCTION = 1; // kind of an entry of the function table
const BUILTINS = "vm.builtin.";
const WORDS_SHOWN = 8; // of an instruction, as in trace/phases.py
const VISITS = 256; // places remembered, as in trace/debug_session.py
const GAP = "\u001a";
const SHORT = 200; // longest text of a tuple or a function, as in runtime/describe.py

/** Python's repr of a float: the same shortest digits as JavaScript's, another layout. */
export function floatText(value) {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value < 0 ? "-inf" : "inf";
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const [mantissa, power] = Math.abs(value).toExponential().split("e");
  const digits = mantissa.replace(".", "");
  const exponent = Number(power);
  if (exponent < -4 || exponent >= 16) {
    const tail = digits.length > 1 ? `.${digits.slice(1)}` : "";
    const size = String(Math.abs(exponent)).padStart(2, "0");
    return `${sign}${digits[0]}${tail}e${exponent < 0 ? "-" : "+"}${size}`;
  }
  if (exponent < 0) return `${sign}0.${"0".repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1).padEnd(exponent + 1, "0");
  return `${sign}${whole}.${digits.slice(exponent + 1) || "0"}`;
}

/** The same for a value of float32: the fewest digits that name it there. */
export function narrowText(value) {
  if (value === 0) return floatText(value); // no digits tell -0 from 0
  for (let digits = 1; digits < 9; digits++) {
    const short = rounded(value, digits);
    if (Math.fround(short) === value) return floatText(short);
  }
  return floatText(rounded(value, 9));
}

/** A float of so many digits; a tie goes to the even one as in Python, not away from zero. */
function rounded(value, digits) {
  const [mantissa, power] = value.toExponential(digits).split("e");
  const kept = mantissa.slice(0, -1).replace(/\.$/, "");
  const tie = mantissa.endsWith("5") && Number(`${mantissa}e${power}`) === value;
  if (tie && Number(kept[kept.length - 1]) % 2 === 0) return Number(`${kept}e${power}`);
  return Number(value.toExponential(digits - 1));
}

/** A text cut as Python's `_short` cuts it: by characters, not by UTF-16 units. */
export function cut(text, length = SHORT) {
  if (text.length <= length) return text;
  const characters = Array.from(text);
  return characters.length <= length ? text : `${characters.slice(0, length - 1).join("")}…`;
}

/** Number of entries of a sorted list that are at most `bound`. */
export function countUpTo(sorted, bound) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= bound) low = middle + 1;
    else high = middle;
  }
  return low;
}

export const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

/** A decoded trace. Positions are steps: position n is the moment before step n. */
export class Replay {
  constructor(trace) {
    this.trace = trace;
    this.first = trace.first_step;
    this.end = trace.first_step + trace.ops.length;
    this.rows = new Map(trace.code.pc.map((pc, row) => [pc, row]));
    // {number, depth, fn, target, below, waits, initial, entry, changes}; `waits` is where `below`
    // waits, `changes` maps a register to the positions `at` which it is given the values `to`
    this.frames = [];
    this.tops = new Int32Array(trace.ops.length + 1);
    this.texts = [];
    this.printedAt = trace.console.map(([step]) => step);
    this.#fold();
  }

  #fold() {
    const { trace } = this;
    const stack = [];
    const enter = (fn, pc, target, initial, entry) => {
      const below = stack.length ? stack[stack.length - 1] : null;
      const frame = {
        number: this.frames.length, depth: stack.length, fn, target, below,
        waits: below ? below.pc : -1, initial, entry, changes: null, pc,
      };
      this.frames.push(frame);
      stack.push(frame);
    };
    const apply = (ops, position) => {
      for (let at = 0; at < ops.length; ) {
        if (ops[at] === WRITE) {
          const frame = stack[ops[at + 1]];
          const register = ops[at + 2];
          frame.changes ??= new Map();
          let changes = frame.changes.get(register);
          if (!changes) frame.changes.set(register, (changes = { at: [], to: [] }));
          changes.at.push(position);
          changes.to.push(ops[at + 3]);
          at += 4;
        } else if (ops[at] === ENTER) {
          const end = at + 5 + ops[at + 4];
          const registers = ops.slice(at + 5, end);
          enter(ops[at + 1], ops[at + 2], ops[at + 3], registers, registers);
          at = end;
        } else {
          stack.pop();
          at += 1;
        }
      }
    };
    for (const [fn, pc, target, registers, entry] of trace.start) {
      enter(fn, pc, target, registers, entry);
    }
    apply(trace.before, this.first);
    for (let index = 0; ; index++) {
      const top = stack.length ? stack[stack.length - 1] : null;
      this.tops[index] = top ? top.number : -1;
      if (index === trace.ops.length) break;
      if (top) top.pc = trace.pc[index];
      apply(trace.ops[index], this.first + index + 1);
    }
  }

  // ---- frames and registers

  /** The frame that runs at a position; null when none is there. */
  top(position) {
    const number = this.tops[position - this.first];
    return number < 0 ? null : this.frames[number];
  }

  /** Depth of the frame that runs at a position; -1 when none is there. */
  depth(position) {
    return this.trace.depth[position - this.first];
  }

  /** Instruction that runs next at a position; -1 when none does. */
  pc(position) {
    return this.trace.pc[position - this.first];
  }

  /** [frame, its pc] of every frame at a position, innermost first. */
  *stack(position) {
    let pc = this.pc(position);
    for (let frame = this.top(position); frame; frame = frame.below) {
      yield [frame, pc];
      pc = frame.waits;
    }
  }

  /** [frame, its pc] of the frame of a depth; [null, -1] when it is not there. */
  frameAt(position, depth) {
    for (const found of this.stack(position)) if (found[0].depth <= depth) return found;
    return [null, -1];
  }

  /** Values (indices) in the registers of a frame at a position. */
  registers(frame, position) {
    const values = frame.initial.slice();
    if (frame.changes) {
      for (const [register, { at, to }] of frame.changes) {
        const count = countUpTo(at, position);
        if (count) values[register] = to[count - 1];
      }
    }
    return values;
  }

  /** Step that wrote a register last, before a position; null for an argument or nothing. */
  writer(frame, register, position) {
    const changes = frame.changes?.get(register);
    const count = changes ? countUpTo(changes.at, position) : 0;
    return count ? changes.at[count - 1] - 1 : null;
  }

  // ---- words

  line(index) {
    const [template, ...numbers] = this.trace.lines[index];
    const [head, ...rest] = this.trace.templates[template].split(GAP);
    return head + rest.map((words, gap) => `${numbers[gap]}${words}`).join("");
  }

  /** What the step at a position is going to do; at the end, how the run ended. */
  next(position) {
    return this.line(this.trace.say[position - this.first]);
  }

  /** What the step before a position did. */
  done(position) {
    return position > this.first ? this.line(this.trace.did[position - this.first - 1]) : "";
  }

  /** The last lines that the program had printed before a position. */
  printed(position, lines = 50) {
    const count = countUpTo(this.printedAt, position - 1);
    const pieces = this.trace.console.slice(Math.max(0, count - 4 * lines), count);
    const all = pieces.map(([, text]) => text).join("").split("\n");
    return all.slice(-lines - 1).join("\n");
  }

  name(fn) {
    return this.trace.functions[fn][0];
  }

  /** Entry of the function table that an instruction calls; null if it is no call. */
  callee(pc) {
    const row = this.rows.get(pc);
    if (row === undefined || this.trace.code.op[row] !== "call") return null;
    return this.trace.functions[Number.parseInt(this.trace.code.words[row][2], 16)] ?? null;
  }

  /** Whether an instruction calls one of the machine's own functions. */
  isBuiltinCall(pc) {
    return Boolean(this.callee(pc)?.[0].startsWith(BUILTINS));
  }

  /** [name, text] of each phase of the step at a position, as trace/phases.py tells them. */
  phases(position) {
    const { trace } = this;
    const top = this.top(position);
    if (!top) return [];
    const pc = this.pc(position);
    const row = this.rows.get(pc);
    const name = this.name(top.fn);
    const words = trace.code.words[row];
    const more = words.length > WORDS_SHOWN ? ` … (${words.length} words)` : "";
    const shown = words.slice(0, WORDS_SHOWN).map((word) => `0x${word}`).join(" ");
    const phases = [
      ["fetch", `instruction ${pc} of ${name}: ${shown}${more}`],
      ["decode", trace.code.text[row].trim().split(/\s+/).join(" ")],
      ["read", this.#read(top, position, row) || "nothing"],
    ];
    if (position < this.end) {
      phases.push(["call", this.#called(pc, row, name)], ["write", this.#written(position, top)]);
    }
    return phases;
  }

  #read(top, position, row) {
    const registers = this.registers(top, position);
    const parts = [];
    for (const operand of new Set(this.trace.code.operands[row])) {
      const [, register] = /^%(\d+)$/.exec(operand) ?? [];
      const [, constant] = /^c\[(\d+)\]$/.exec(operand) ?? [];
      if (register !== undefined && register < registers.length) {
        parts.push(`${operand} = ${this.text(registers[register])}`);
      } else if (constant !== undefined && constant in this.trace.constants) {
        parts.push(`${operand} = ${this.trace.constants[constant]}`);
      }
    }
    return parts.join(", ");
  }

  #called(pc, row, name) {
    const callee = this.callee(pc);
    if (callee) {
      return callee[1] === VM_FUNCTION ? `the Relax function ${callee[0]}: a frame is pushed`
        : callee[0];
    }
    return this.trace.code.op[row] === "ret" ? `nothing: the frame of ${name} is left` : "nothing";
  }

  #written(position, top) {
    const ops = this.trace.ops[position - this.first];
    const parts = [];
    for (let at = 0; at < ops.length; ) {
      if (ops[at] === WRITE) {
        const where = ops[at + 1] === top.depth ? "" : ` of #${ops[at + 1]}`;
        parts.push(`%${ops[at + 2]}${where} = ${this.text(ops[at + 3])}`);
        at += 4;
      } else if (ops[at] === ENTER) {
        parts.push(`the registers of a new frame of ${this.name(ops[at + 1])}`);
        at += 5 + ops[at + 4];
      } else at += 1;
    }
    const after = this.top(position + 1);
    const next = after ? `instruction ${this.pc(position + 1)} of ${this.name(after.fn)} is next`
      : "the run is over";
    return `${parts.join(", ") || "no register"}; ${next}`;
  }

  /** An instruction as function+offset. */
  place(pc) {
    const found = this.trace.functions.find(([, kind, start, end]) =>
      kind === 1 && start <= pc && pc < end);
    return found ? `${found[0]}+${pc - found[2]}` : String(pc);
  }

  /** A value in one line, as Python's `value.text` says it. */
  text(index) {
    return (this.texts[index] ??= this.#text(this.trace.values[index]));
  }

  #text([kind, ...rest]) {
    switch (kind) {
      case "tensor": {
        const [dtype, shape, , storage, offset, head, tail, , , nans] = rest;
        const shown = [head.map((one) => elementText(one, dtype)).join(", ")];
        if (tail.length) shown.push("…", tail.map((one) => elementText(one, dtype)).join(", "));
        const place = `s${storage}${offset ? `+${offset}` : ""}`;
        const count = nans ? ` ${nans} NaN` : "";
        return `${dtype}[${shape.join(", ")}] ${place} [${shown.join(", ")}]${count}`;
      }
      case "tuple": {
        const [length, ...items] = rest;
        let shown = items.map((item) => this.text(item)).join(", ");
        if (items.length < length) shown += `${items.length ? ", … " : ""}${length} elements`;
        return cut(`(${shown})`);
      }
      case "storage": {
        const [storage, block, nbytes, device] = rest;
        return `storage s${storage} (block ${block}, ${nbytes} bytes, ${device})`;
      }
      case "function":
      case "closure": {
        const [name, ...bound] = rest;
        const values = bound.map((item) => this.text(item)).join(", ");
        return cut(`${kind} ${name}${bound.length ? ` with (${values})` : ""}`);
      }
      default:
        return rest[0];
    }
  }

  /** Range of the elements of a tensor that is not shown as a whole, if Python looked at them. */
  range(index) {
    const [kind, , , , , , , tail] = this.trace.values[index];
    return kind === "tensor" && tail.length ? this.#range(index) : "";
  }

  #range(index) {
    const [, dtype, , , , , , , low, high] = this.trace.values[index];
    if (low === null) return "";
    return `min ${elementText(low, dtype)}, max ${elementText(high, dtype)}`;
  }

  /** What a hover says about a register beyond its line. */
  detail(frame, register, position, index) {
    const [kind, dtype, shape, device, storage, offset, , , , , nans] = this.trace.values[index];
    const words = [];
    if (kind === "tensor") {
      words.push(`${dtype}[${shape.join(", ")}] on ${device}`);
      words.push(`storage ${storage} at byte ${offset}`);
      const range = this.#range(index);
      if (nans === null) words.push("too large to look at every element");
      else words.push(`${range ? `${range}, ` : ""}${nans} NaN`);
    } else words.push(kind);
    const step = this.writer(frame, register, position);
    if (step !== null) words.push(`written by step ${step}`);
    return words.join("\n");
  }

  isNone(index) {
    return this.trace.values[index][0] === "none";
  }
}

/** An element as `TensorValue.text` writes it: a float's JSON may have lost its point. */
function elementText(value, dtype) {
  if (value === true) return "True";
  if (value === false) return "False";
  if (typeof value !== "number" || !dtype.includes("float")) return String(value);
  return dtype.startsWith("float64") ? floatText(value) : narrowText(value);
}

/** Value of a watched expression at a position: [text, positions, values] holds its changes. */
export function displayed([, positions, values], position) {
  const count = countUpTo(positions, position);
  return count ? values[count - 1] : "";
}

/** The lines that log points had written up to a position, of a list of [step, line]. */
export function logged(logs, position, lines = 50) {
  const count = countUpTo(logs.map(([step]) => step), position);
  return logs.slice(Math.max(0, count - lines), count);
}

const SHADES = 6;

/** Cells of a heat map of the elements that a trace holds: [text, shade or -1 or null for a gap]. */
export function heatCells([, dtype, , , , , head, tail, low, high]) {
  const shade = (value) => {
    if (typeof value === "boolean") return value ? SHADES - 1 : 0;
    const number = Number(value);
    const [from, to] = [Number(low), Number(high)];
    if (low === null || ![number, from, to].every(Number.isFinite)) return -1;
    return to <= from ? 0 : Math.min(SHADES - 1, Math.floor((number - from) / (to - from) * SHADES));
  };
  const cell = (value) => [elementText(value, dtype), shade(value)];
  return [...head.map(cell), ...(tail.length ? [["…", null], ...tail.map(cell)] : [])];
}

/** Change mark of a register, as in the text twin: + new, - let go, * changed, or nothing. */
export function mark(replay, before, now) {
  if (before === now) return "";
  if (replay.isNone(before)) return "+";
  return replay.isNone(now) ? "-" : "*";
}

/**
 * A cursor over a replay: it moves as trace.DebugSession does over a finished recording.
 *
 * `breakpoints` is a list of instructions. `halts` are stops that only Python can make (breakpoints
 * with conditions, watches): [text, instruction or -1, positions that stop forwards, backwards].
 * `visits` says what was looked at so far: {count, last: [[position, selected depth or -1], ...]}.
 */
export class Cursor {
  constructor(replay, { breakpoints = [], halts = [], visits = null } = {}) {
    this.replay = replay;
    this.breakpoints = new Set(breakpoints);
    this.setHalts(halts);
    this.position = replay.first;
    this.selected = null;
    this.reason = "";
    this.skipBuiltins = false;
    this.visits = [];
    this.count = 0;
    const last = (visits?.last ?? []).filter(([position]) => position >= replay.first);
    if (last.length) {
      this.position = clamp(last[0][0], replay.first, replay.end);
      this.selected = last[0][1] < 0 ? null : last[0][1];
    }
    this.#visit();
    for (const [position, selected] of last.slice(1)) {
      this.goto(position);
      if (selected >= 0) this.select(selected);
    }
    this.count = visits?.count ?? 1;
  }

  setHalts(halts) {
    this.halts = halts;
    const table = (column) =>
      new Map(halts.flatMap((halt) => halt[column].map((position) => [position, halt[0]])));
    this.forwardHalts = table(2);
    this.backwardHalts = table(3);
  }

  // ---- what is looked at

  /** Depth of the frame that is looked at: the top one, unless another was selected. */
  get depth() {
    const top = this.replay.depth(this.position);
    return this.selected === null ? top : Math.min(this.selected, top);
  }

  /** [frame, pc] that is looked at; [null, -1] at the end. */
  get frame() {
    return this.replay.frameAt(this.position, this.depth);
  }

  registers(frame) {
    return this.replay.registers(frame, this.position);
  }

  /** Registers of a frame when another step showed it last, or when it was entered. */
  previous(frame) {
    for (let index = this.visits.length - 1; index >= 0; index--) {
      const visit = this.visits[index];
      if (visit.frame === frame.number && visit.position !== this.position) {
        return this.replay.registers(frame, visit.position);
      }
    }
    return frame.entry;
  }

  #visit() {
    const [frame] = this.frame;
    this.visits.push({
      position: this.position, selected: this.selected, frame: frame ? frame.number : -1,
    });
    if (this.visits.length > VISITS) this.visits.shift();
    this.count += 1;
  }

  /** What was looked at, for Python and for other views of the same run. */
  trail() {
    return {
      count: this.count,
      last: this.visits.map(({ position, selected }) => [position, selected ?? -1]),
    };
  }

  /** Go where another view or Python went; whether that is new. */
  follow({ count, last }) {
    const fresh = clamp(count - this.count, 0, last.length);
    for (const [position, selected] of last.slice(last.length - fresh)) {
      this.goto(position);
      if (selected >= 0) this.select(selected);
    }
    this.count = Math.max(this.count, count);
    return fresh > 0;
  }

  // ---- moving

  goto(position, reason = "") {
    const to = clamp(position, this.replay.first, this.replay.end);
    const last = this.visits[this.visits.length - 1];
    this.reason = reason;
    this.position = to;
    this.selected = to === last.position ? last.selected : null;
    if (to !== last.position) this.#visit();
    return this;
  }

  /** Move while a slider is dragged: the next `goto` counts as one move from where it began. */
  glide(position) {
    this.position = clamp(position, this.replay.first, this.replay.end);
    this.selected = null;
    this.reason = "";
    return this;
  }

  select(depth) {
    this.selected = depth;
    this.#visit();
    return this;
  }

  /** Why the run stops at a position, or an empty text. */
  stops(position, halts) {
    const pc = this.replay.pc(position);
    if (pc >= 0 && this.breakpoints.has(pc)) return `breakpoint at ${this.replay.place(pc)}`;
    return halts.get(position) ?? "";
  }

  #forward(floor) {
    const { replay } = this;
    for (let p = this.position + 1; p < replay.end; p++) {
      const reason = this.stops(p, this.forwardHalts);
      if (reason || (floor !== null && replay.depth(p) <= floor)) return this.goto(p, reason);
    }
    return this.goto(replay.end);
  }

  #backward(floor) {
    const { replay } = this;
    for (let p = this.position - 1; p >= replay.first; p--) {
      const reason = this.stops(p, this.backwardHalts);
      if (reason || (floor !== null && replay.depth(p) <= floor)) return this.goto(p, reason);
    }
    return this.goto(replay.first);
  }

  /** Whether a step by hand does not stop at a position. */
  #skipped(position) {
    return this.skipBuiltins && this.replay.isBuiltinCall(this.replay.pc(position));
  }

  step() {
    const { replay } = this;
    let to = this.position + 1;
    let reason = "";
    while (to < replay.end && this.#skipped(to) && !reason) {
      reason = ++to < replay.end ? this.stops(to, this.forwardHalts) : "";
    }
    return this.goto(to, reason);
  }

  back() {
    const { replay } = this;
    let to = this.position - 1;
    let reason = "";
    while (to > replay.first && this.#skipped(to) && !reason) {
      reason = this.stops(--to, this.backwardHalts);
    }
    return this.goto(to, reason);
  }

  over() { return this.#forward(this.replay.depth(this.position)); }
  out() { return this.#forward(this.replay.depth(this.position) - 1); }
  resume() { return this.#forward(null); }
  reverse() { return this.#backward(null); }
  restart() { return this.goto(this.replay.first); }
  finish() { return this.goto(this.replay.end); }

  /** Go to the next step (or the last one) that has a text; whether there is one. */
  find(text, backwards = false) {
    const { replay } = this;
    const wanted = text.toLowerCase();
    const { code } = replay.trace;
    const lines = new Map(code.pc.map((pc, row) => [pc, code.text[row].toLowerCase().includes(wanted)]));
    const by = backwards ? -1 : 1;
    for (let p = this.position + by; p >= replay.first && p < replay.end; p += by) {
      if (lines.get(replay.pc(p)) || replay.next(p).toLowerCase().includes(wanted)) {
        this.goto(p, `found ${text}`);
        return true;
      }
    }
    return false;
  }

  /** Go up to `steps` steps on; a breakpoint stops it. Whether there is more to run. */
  play(steps) {
    const { replay } = this;
    const last = Math.min(this.position + steps, replay.end);
    for (let p = this.position + 1; p <= last; p++) {
      const reason = p < replay.end ? this.stops(p, this.forwardHalts) : "";
      if (reason) {
        this.goto(p, reason);
        return false;
      }
    }
    this.goto(last);
    return last < replay.end;
  }

  toggle(pc) {
    if (!this.breakpoints.delete(pc)) this.breakpoints.add(pc);
    return this;
  }
}
