// Storages against time: a row for each storage, a bar for each tensor, a curve of bytes needed.
//
// Everything is drawn in SVG, since a bar should have words for a reader of a screen; a function of
// many storages shows those that are used near the marked step first.

import { copyButton, element, findBox, keepKeys, LiveLine, set, write } from "./page.js";

const SVG = "http://www.w3.org/2000/svg";
const ROW = 24;
const CURVE = 56;
const LABEL = 110;
const MOST_ROWS = 200;
const COLOURS = 8;
const HELP = [
  ["← →", "the step before, the step after"],
  ["Home End", "first and last step"],
  ["p", "the step that needs most"],
  ["/", "find an instruction, a tensor or a storage; Enter and Shift+Enter go on"],
  ["? Esc", "open and close this help"],
];

function shape(tag, attributes, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function render({ model, el }) {
  const plan = model.get("plan");
  let name = model.get("function");
  let position = model.get("position");
  const live = new LiveLine();

  const picker = element("select", {
    class: "rl-select", "aria-label": "Function to show", title: "Function to show",
    onchange: () => enter(picker.value),
  }, ...plan.map((one) => element("option", { value: one.function }, one.function)));
  picker.hidden = plan.length < 2;
  const slider = element("input", {
    type: "range", class: "rl-slider", "aria-label": "Step", step: "1",
    oninput: () => goto(Number(slider.value)),
  });
  const peakButton = element("button", {
    type: "button", class: "rl-button", title: "The step that needs most (p)",
    onclick: () => goto(current().peak_step),
  }, "Peak");
  const search = findBox("Find a step", live, (has, backwards) => {
    const { first_step: first, steps, storages } = current();
    const begin = steps.map((text) => [text]);
    for (const storage of storages) {
      begin[storage.first - first]?.push(storage.name);
      for (const tensor of storage.tensors) begin[tensor.first - first]?.push(tensor.name);
    }
    const here = position - first;
    const found = begin.map((texts, index) =>
      (backwards ? index < here : index > here) && texts.some(has));
    const at = backwards ? found.lastIndexOf(true) : found.indexOf(true);
    if (at >= 0) goto(first + at);
    return at >= 0;
  });
  const helpButton = element("button", {
    type: "button", class: "rl-button", "aria-expanded": "false", title: "Keys (?)",
    onclick: () => toggleHelp(),
  }, "? Keys");
  const help = element("dl", { class: "rl-help", hidden: "" },
    ...HELP.flatMap(([keys, what]) => [element("dt", {}, keys), element("dd", {}, what)]));
  const summary = element("p", { class: "rl-summary" });
  const step = element("p", { class: "rl-step" });
  const detail = element("p", { class: "rl-detail" });
  const picture = element("div", { class: "rl-scroll rl-plan", role: "region", tabindex: "0",
    "aria-label": "Storages against time" });
  const root = element("section", {
    class: "rl-view rl-memory", tabindex: "0", "aria-label": "Memory plan", onkeydown: onKey,
  }, element("div", { class: "rl-toolbar" }, picker, slider, peakButton,
    search, copyButton(() => root, live), helpButton), help, summary,
  step, picture, detail, live.node);
  el.append(root);
  const letKeysGo = keepKeys(root);
  const shown = new ResizeObserver(() => draw());
  shown.observe(root);

  const current = () => plan.find((one) => one.function === name);
  const endOf = (memory) => memory.first_step + memory.steps.length;

  // ---- acting

  function goto(to) {
    const memory = current();
    position = Math.max(memory.first_step, Math.min(endOf(memory), to));
    draw();
    tell();
    live.say(step.textContent);
  }

  function enter(chosen) {
    name = chosen;
    const memory = current();
    if (position < memory.first_step || position > endOf(memory)) position = memory.first_step;
    draw();
    tell();
  }

  function tell() {
    model.set("function", name);
    model.set("position", position);
    model.save_changes();
  }

  function toggleHelp(open = help.hidden) {
    help.hidden = !open;
    set(helpButton, "aria-expanded", String(open));
  }

  function onKey(event) {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    // JupyterLab listens above: there, `x` would delete the cell
    event.stopPropagation();
    if (key === "Tab" || target === picker || (target === slider && /^(Arrow|Home|End|Page)/.test(key))) {
      return;
    }
    if (target.matches("button") && (key === " " || key === "Enter")) return;
    const memory = current();
    if (key === "ArrowRight") goto(position + 1);
    else if (key === "ArrowLeft") goto(position - 1);
    else if (key === "Home") goto(memory.first_step);
    else if (key === "End") goto(endOf(memory));
    else if (key === "p") goto(memory.peak_step);
    else if (key === "/") search.focus();
    else if (key === "?") toggleHelp();
    else if (key === "Escape") toggleHelp(false);
    else return;
    event.preventDefault();
  }

  // ---- words

  const bytes = (count) => count === null ? "a size known at run time" : `${count} bytes`;

  /** What is needed at the marked step: as Python's `sentence` says it. */
  function sentence(memory) {
    const text = memory.steps[position - memory.first_step] ?? "the end";
    const needed = memory.storages.filter(({ first, last }) => first <= position && position <= last);
    const total = needed.reduce((sum, { nbytes }) => sum + (nbytes ?? 0), 0);
    const held = needed.map((storage) => {
      const inside = storage.tensors.filter(({ first, last }) => first <= position && position <= last)
        .map((tensor) => tensor.name).join(", ");
      return `${storage.name} (${inside || "nothing yet, or no longer"})`;
    });
    return `Step ${position}: ${text}. Needed: ${
      needed.length ? `${total} bytes in ${held.join("; ")}` : "no storage"}.`;
  }

  // ---- drawing

  function draw() {
    const memory = current();
    picker.value = name;
    set(slider, "min", String(memory.first_step));
    set(slider, "max", String(endOf(memory)));
    slider.value = String(position);
    set(slider, "aria-valuetext", `step ${position} of ${endOf(memory)}`);
    const saved = memory.unplanned_bytes - memory.planned_bytes;
    const tensors = memory.storages.reduce((sum, storage) => sum + storage.tensors.length, 0);
    const share = memory.unplanned_bytes ? ` (${((100 * saved) / memory.unplanned_bytes).toFixed(1)}%)` : "";
    write(summary, `${tensors} tensors in ${memory.storages.length} storages; ${
      memory.unplanned_bytes} bytes of tensors in ${memory.planned_bytes}: planning saved ${saved}${
      share}; the peak is ${memory.peak} at step ${memory.peak_step}${
      memory.dynamic ? `; ${memory.dynamic} sizes are known at run time only` : ""}.`);
    write(step, sentence(memory));
    drawPicture(memory);
  }

  function drawPicture(memory) {
    const first = memory.first_step;
    const count = memory.steps.length + 1;
    const width = Math.max(240, picture.clientWidth - LABEL - 24);
    const x = (at) => LABEL + ((at - first) / count) * width;
    const near = ({ first: begin, last }) =>
      position < begin ? begin - position : position > last ? position - last : 0;
    const order = memory.storages.length <= MOST_ROWS ? memory.storages
      : [...memory.storages].sort((a, b) => near(a) - near(b)).slice(0, MOST_ROWS)
        .sort((a, b) => a.index - b.index);
    const height = CURVE + order.length * ROW + 8;
    const svg = shape("svg", {
      viewBox: `0 0 ${LABEL + width + 8} ${height}`, width: LABEL + width + 8, height, role: "group",
      "aria-label": `Storages of ${memory.function} against time`,
    });
    svg.append(curve(memory, x, width, count));
    order.forEach((storage, row) => svg.append(...rowOf(storage, row, x, memory)));
    const here = x(position) + width / count / 2;
    svg.append(shape("line", { class: "rl-now", x1: here, x2: here, y1: 0, y2: height }));
    svg.addEventListener("click", (event) => {
      const box = svg.getBoundingClientRect();
      const at = first + Math.floor(((event.clientX - box.left - LABEL) / width) * count);
      if (event.clientX - box.left >= LABEL) goto(at);
    });
    picture.replaceChildren(svg);
  }

  /** Bytes needed at each step, as stairs. */
  function curve(memory, x, width, count) {
    const change = new Array(count + 1).fill(0);
    for (const { first, last, nbytes } of memory.storages) {
      change[first - memory.first_step] += nbytes ?? 0;
      change[Math.min(count, last + 1 - memory.first_step)] -= nbytes ?? 0;
    }
    const most = Math.max(1, memory.peak);
    let now = 0;
    let path = `M${LABEL} ${CURVE - 8}`;
    for (let index = 0; index < count; index++) {
      now += change[index];
      const y = CURVE - 8 - (now / most) * (CURVE - 16);
      path += `L${x(memory.first_step + index)} ${y}L${x(memory.first_step + index + 1)} ${y}`;
    }
    path += `L${LABEL + width} ${CURVE - 8}Z`;
    return shape("g", {}, shape("text", { x: 4, y: 20, class: "rl-label" }, "bytes needed"),
      shape("text", { x: 4, y: 36, class: "rl-soft" }, `most ${memory.peak}`),
      shape("path", { d: path, class: "rl-stairs" }));
  }

  function rowOf(storage, row, x, memory) {
    const y = CURVE + row * ROW;
    const label = storage.name.length > 14 ? `${storage.name.slice(0, 13)}…` : storage.name;
    const title = `${storage.name}: ${bytes(storage.nbytes)}, ${storage.scope}, steps ${
      storage.first} to ${storage.last}`;
    const nodes = [
      shape("text", { x: 4, y: y + 16, class: "rl-label" }, label),
      shape("rect", {
        class: "rl-storage", x: x(storage.first), y: y + 2, height: ROW - 4,
        width: Math.max(2, x(storage.last + 1) - x(storage.first)),
      }, shape("title", {}, title)),
    ];
    storage.tensors.forEach((tensor) => {
      const words = `${tensor.name}: ${tensor.shape} ${tensor.dtype}, ${bytes(tensor.nbytes)}${
        tensor.offset ? ` at byte ${tensor.offset}` : ""}, steps ${tensor.first} to ${tensor.last}, in ${
        storage.name}`;
      const left = x(tensor.first);
      const wide = Math.max(2, x(tensor.last + 1) - left);
      const colour = tensor.order % COLOURS;
      const bar = shape("g", {
        class: `rl-tensor rl-tensor-${colour}`, tabindex: "0", role: "img", "aria-label": words,
      }, shape("rect", { x: left, y: y + 4, width: wide, height: ROW - 8 }),
      shape("title", {}, words));
      if (wide > 9 * tensor.name.length) {
        bar.append(shape("text", { x: left + 4, y: y + 16 }, tensor.name));
      }
      const show = () => write(detail, words);
      bar.addEventListener("mouseenter", show);
      bar.addEventListener("focus", show);
      nodes.push(bar);
    });
    return nodes;
  }

  for (const memory of plan) {
    const all = memory.storages.flatMap((storage) => storage.tensors);
    all.sort((a, b) => a.first - b.first).forEach((tensor, order) => { tensor.order = order; });
  }
  const onChange = () => {
    if (model.get("position") === position && model.get("function") === name) return;
    name = model.get("function");
    position = model.get("position");
    draw();
  };
  model.on("change:position", onChange);
  model.on("change:function", onChange);
  draw();
  return () => {
    letKeysGo();
    live.stop();
    shown.disconnect();
    model.off("change:position", onChange);
    model.off("change:function", onChange);
  };
}

export default { render };
