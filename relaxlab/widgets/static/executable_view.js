// The bytes of an executable: sections, rows of a few bytes with what they mean, and differences.
//
// A file may have 100,000 rows, so only those in sight are elements. The list keeps the focus and
// points at the chosen row (aria-activedescendant); everything else follows from its index.

import { copyButton, element, keepKeys, LiveLine, set, write } from "./page.js";

const ROW = 18; // pixels, as in executable_view.css
const AHEAD = 10; // rows made beyond what is in sight
const HELP = [
  ["↑ ↓ PgUp PgDn Home End", "choose a row"],
  ["] [", "next and last instruction"],
  ["/", "search bytes and words"],
  ["n N", "next and last row that was found"],
  ["? Esc", "open and close this help"],
  ["Tab", "from part to part"],
];

let views = 0;

function render({ model, el }) {
  const file = model.get("file");
  const id = `rl-file-${views++}`;
  let position = model.get("position");
  let wanted = "";
  const live = new LiveLine();
  const texts = file.rows.map(([section, offset, , hex, meaning, pc]) =>
    `${offset} ${hex} ${file.sections[section][0]} ${meaning} ${
      pc < 0 ? "" : file.instructions[pc]}`.toLowerCase());

  // ---- skeleton

  const search = element("input", {
    type: "search", class: "rl-number rl-search", "aria-label": "Search bytes and words",
    placeholder: "search", title: "Search bytes and words (/)",
    oninput: () => { wanted = search.value.trim().toLowerCase(); seek(1, position - 1); },
  });
  const places = element("select", {
    class: "rl-select", "aria-label": "Go to a function", title: "Go to a function",
    onchange: () => { instruction(Number(places.value)); },
  }, element("option", { value: "" }, "function…"), ...file.functions.map(([name, start]) =>
    element("option", { value: String(start) }, name)));
  const helpButton = element("button", {
    type: "button", class: "rl-button", "aria-expanded": "false", title: "Keys (?)",
    onclick: () => toggleHelp(),
  }, "? Keys");
  const help = element("dl", { class: "rl-help", hidden: "" },
    ...HELP.flatMap(([keys, what]) => [element("dt", {}, keys), element("dd", {}, what)]));
  const found = element("span", { class: "rl-found" });
  const toolbar = element("div", { class: "rl-toolbar" }, search, found, places,
    copyButton(() => root, live), helpButton);
  const largest = Math.max(1, ...file.sections.map(([, , size]) => size));
  const sections = element("ol", { class: "rl-sections" },
    ...file.sections.map(([name, offset, size, content], index) => element("li", {},
      element("button", {
        type: "button", class: "rl-section", "data-section": String(index),
        title: `${content}; bytes ${offset} to ${offset + size - 1}`, onclick: () => goto(offset),
      }, element("span", { class: "rl-section-name" }, name),
      element("span", { class: "rl-section-size" }, `${size} B`), bar(size)))));
  const sizer = element("div", { class: "rl-sizer", role: "presentation" });
  sizer.style.height = `${file.rows.length * ROW}px`;
  const rows = element("div", {
    class: "rl-scroll rl-bytes", role: "listbox", tabindex: "0", "aria-label": "Bytes",
    onscroll: () => later(),
  }, sizer);
  const chosen = element("p", { class: "rl-chosen-field" });
  const leftOut = element("p", { class: "rl-left-out" });
  leftOut.hidden = !file.left_out;
  write(leftOut, file.left_out ? `The last ${file.left_out} rows of the file were left out.` : "");
  const differences = element("div", { class: "rl-differences" });
  if (file.compared !== null) drawDifferences();
  const root = element("section", {
    class: "rl-view rl-executable", tabindex: "0", "aria-label": "Bytes of an executable",
    onkeydown: onKey,
  }, toolbar, help, element("div", { class: "rl-file-panes" },
    element("div", {}, element("div", { class: "rl-title" }, "Sections"),
      element("div", { class: "rl-scroll rl-section-pane", role: "region", tabindex: "0",
        "aria-label": "Sections" }, sections)),
    element("div", { class: "rl-byte-pane" },
      element("div", { class: "rl-title" }, `${file.name}, ${file.size} bytes`), rows)),
  chosen, leftOut, differences, live.node);
  el.append(root);
  const letKeysGo = keepKeys(root);
  const shown = new ResizeObserver(() => { reveal(); later(); });
  shown.observe(rows);

  /** A bar as long as its share of the largest section. */
  function bar(size) {
    const inner = element("span", { class: "rl-bar-inner" });
    inner.style.width = `${Math.max(1, (100 * size) / largest)}%`;
    return element("span", { class: "rl-bar", "aria-hidden": "true" }, inner);
  }

  // ---- moving

  function choose(index) {
    position = Math.max(0, Math.min(file.rows.length - 1, index));
    reveal();
    draw();
    model.set("position", position);
    model.save_changes();
    live.say(sentence());
  }

  /** Choose the row that holds a byte. */
  function goto(offset) {
    const index = file.rows.findIndex(([, start, size]) => start <= offset && offset < start + size);
    if (index >= 0) choose(index);
    else live.say("That part of the file was left out.");
  }

  function isWord(index) {
    return file.sections[file.rows[index][0]][0] === "instruction data" && file.rows[index][5] >= 0;
  }

  function instruction(pc) {
    const index = file.rows.findIndex((row, at) => row[5] === pc && isWord(at));
    if (index >= 0) choose(index);
  }

  /** Choose the first word of the next instruction, or of the last one. */
  function jump(step) {
    const here = file.rows[position][5];
    let index = position + step;
    while (index > 0 && index < file.rows.length && !(isWord(index) && file.rows[index][5] !== here)) {
      index += step;
    }
    if (index <= 0 || index >= file.rows.length) return live.say("no more instructions");
    while (index > 0 && isWord(index - 1) && file.rows[index - 1][5] === file.rows[index][5]) index--;
    return choose(index);
  }

  function seek(step, from = position) {
    const count = wanted ? texts.filter((text) => text.includes(wanted)).length : 0;
    write(found, wanted ? `${count} found` : "");
    if (!count) return draw();
    for (let gone = 1; gone <= texts.length; gone++) {
      const index = (((from + step * gone) % texts.length) + texts.length) % texts.length;
      if (texts[index].includes(wanted)) return choose(index);
    }
    return undefined;
  }

  function reveal() {
    const top = position * ROW;
    if (!rows.clientHeight) return;
    if (top < rows.scrollTop + 2 * ROW) rows.scrollTop = top - 2 * ROW;
    else if (top + 3 * ROW > rows.scrollTop + rows.clientHeight) {
      rows.scrollTop = top + 3 * ROW - rows.clientHeight;
    }
  }

  function toggleHelp(open = help.hidden) {
    help.hidden = !open;
    set(helpButton, "aria-expanded", String(open));
  }

  const MOVES = {
    ArrowDown: () => choose(position + 1), ArrowUp: () => choose(position - 1),
    PageDown: () => choose(position + page()), PageUp: () => choose(position - page()),
    Home: () => choose(0), End: () => choose(file.rows.length - 1),
    "]": () => jump(1), "[": () => jump(-1), n: () => seek(1), N: () => seek(-1),
    "/": () => search.focus(), "?": () => toggleHelp(), Escape: () => toggleHelp(false),
  };

  function page() {
    return Math.max(1, Math.floor(rows.clientHeight / ROW) - 1);
  }

  function onKey(event) {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      if (target.matches("input") && /^[acvxyz]$/i.test(key)) event.stopPropagation();
      return;
    }
    // JupyterLab listens above: there, `x` would delete the cell
    event.stopPropagation();
    if (key === "Tab") return;
    if (target === search) {
      if (key === "Enter") seek(event.shiftKey ? -1 : 1);
      else if (key === "Escape") rows.focus();
      else return;
      event.preventDefault();
      return;
    }
    if (target === places || (target.matches("button") && (key === "Enter" || key === " "))) return;
    if (!MOVES[key]) return;
    event.preventDefault();
    MOVES[key]();
  }

  // ---- drawing

  let drawing = null;

  function later() {
    drawing ??= requestAnimationFrame(() => {
      drawing = null;
      // without a height (a theme is just being exchanged) there is nothing to draw for; rows that
      // were drawn for the top of the file would stay when the old place comes back into view
      if (rows.clientHeight) draw();
    });
  }

  function sentence() {
    const [section, offset, size, hex, meaning, pc] = file.rows[position];
    const where = size === 1 ? `Byte ${offset}` : `Bytes ${offset} to ${offset + size - 1}`;
    const part = pc >= 0 ? `, of ${file.instructions[pc]}` : "";
    return `${where} (${file.sections[section][0]}): ${hex}: ${meaning}${part}`;
  }

  function draw() {
    cancelAnimationFrame(drawing);
    drawing = null;
    const first = Math.max(0, Math.floor(rows.scrollTop / ROW) - AHEAD);
    const last = Math.min(file.rows.length,
      Math.ceil((rows.scrollTop + (rows.clientHeight || 20 * ROW)) / ROW) + AHEAD);
    const made = [];
    for (let index = first; index < last; index++) made.push(makeRow(index));
    // the chosen row is always there, so that aria-activedescendant points at something
    if (position < first || position >= last) made.push(makeRow(position));
    sizer.replaceChildren(...made);
    set(rows, "aria-activedescendant", `${id}-${position}`);
    write(chosen, sentence());
    const section = String(file.rows[position][0]);
    for (const button of sections.querySelectorAll("button")) {
      set(button, "aria-current", button.dataset.section === section ? "true" : null);
    }
  }

  function makeRow(index) {
    const [section, offset, , hex, meaning, pc] = file.rows[index];
    const isChosen = index === position;
    const sameInstruction = pc >= 0 && pc === file.rows[position][5];
    const classes = ["rl-byte-row"];
    if (isChosen) classes.push("rl-current");
    else if (sameInstruction) classes.push("rl-chosen");
    if (wanted && texts[index].includes(wanted)) classes.push("rl-match");
    const starts = pc >= 0 && isWord(index) && (index === 0 || file.rows[index - 1][5] !== pc
      || !isWord(index - 1));
    const row = element("div", {
      class: classes.join(" "), role: "option", id: `${id}-${index}`,
      "aria-selected": String(isChosen), "aria-setsize": String(file.rows.length),
      "aria-posinset": String(index + 1), title: pc >= 0 ? file.instructions[pc] : null,
      onclick: () => { choose(index); rows.focus(); },
    }, element("span", { class: "rl-offset" }, String(offset)),
    element("span", { class: "rl-hex" }, hex), element("span", { class: "rl-meaning" }, meaning),
    element("span", { class: "rl-instruction" }, starts ? file.instructions[pc] : ""));
    row.style.top = `${index * ROW}px`;
    return row;
  }

  function drawDifferences() {
    const count = file.differences.length;
    const title = count ? `${count} difference${count === 1 ? "" : "s"} from ${file.compared}`
      : `The same program as ${file.compared}`;
    const items = file.differences.map(([what, name, summary, lines]) => element("li", {},
      element("button", {
        type: "button", class: "rl-button", title: "Go to it",
        onclick: () => {
          const at = file.functions.find(([one]) => one === name);
          if (at) instruction(at[1]);
          else { search.value = name; wanted = name.toLowerCase(); seek(1); }
        },
      }, `${what} ${name}`), ` ${summary}`,
      element("pre", { class: "rl-difference" }, lines.join("\n"))));
    differences.replaceChildren(element("div", { class: "rl-title" }, title),
      element("ol", { class: "rl-difference-list" }, ...items));
  }

  const onPosition = () => {
    if (model.get("position") === position) return;
    position = model.get("position");
    reveal();
    draw();
    live.say(sentence());
  };
  model.on("change:position", onPosition);
  draw();
  return () => {
    letKeysGo();
    live.stop();
    shown.disconnect();
    model.off("change:position", onPosition);
  };
}

export default { render };
