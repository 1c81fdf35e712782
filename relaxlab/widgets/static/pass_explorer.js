// The pipeline as a list, what each pass did to the text, and what became of each line.
//
// Texts are compared in the page (text_diff.js), since any two stages can be put side by side. The
// list keeps the focus and points at the chosen pass (aria-activedescendant).

import { copyButton, element, keepInView, keepKeys, LiveLine, set, write } from "./page.js";
import { difference, sideBySide } from "./text_diff.js";

const MARKS = { same: ".", equal: "=", changed: "*" };
const MEANS = {
  same: "the same module came back", equal: "rebuilt, but equal", changed: "changed the module",
};
const CONTEXT = 3; // equal lines around a change
const HELP = [
  ["↑ ↓ Home End", "choose a pass"],
  ["] [", "next and last pass that changed something"],
  ["/", "search names and changed lines"],
  ["n", "next pass that was found"],
  ["u", "hide or show passes that changed nothing"],
  ["1 2 3", "difference, program, graph"],
  ["? Esc", "open and close this help"],
];

let views = 0;

function render({ model, el }) {
  const { passes, texts, blamed, verdict, code, graphs } = model.get("record");
  const id = `rl-passes-${views++}`;
  let position = model.get("position");
  let against = "before"; // the stage on the left: "before", or the index of a text
  let hidden = false;
  let whole = false;
  let wanted = "";
  let tab = "difference";
  let chosenLine = null; // index into code.lines
  let chosenCode = null; // index into code.instructions
  let language = "TIR";
  const live = new LiveLine();
  const lines = texts.map((text) => text.split("\n"));

  // ---- skeleton

  const search = element("input", {
    type: "search", class: "rl-number rl-search", placeholder: "search",
    "aria-label": "Search names and changed lines", title: "Search names and changed lines (/)",
    oninput: () => { wanted = search.value.trim().toLowerCase(); seek(position - 1); },
  });
  const found = element("span", { class: "rl-found" });
  const toggle = (label, title, action) => {
    const button = element("button", {
      type: "button", class: "rl-button", "aria-pressed": "false", title, onclick: () => {
        const on = action();
        set(button, "aria-pressed", String(on));
        draw();
      },
    }, label);
    return button;
  };
  const hideButton = toggle("Hide unchanged", "Hide passes that changed nothing (u)", () => (hidden = !hidden));
  const wholeButton = toggle("Whole text", "Show unchanged lines too", () => (whole = !whole));
  const helpButton = element("button", {
    type: "button", class: "rl-button", "aria-expanded": "false", title: "Keys (?)",
    onclick: () => toggleHelp(),
  }, "? Keys");
  const help = element("dl", { class: "rl-help", hidden: "" },
    ...HELP.flatMap(([keys, what]) => [element("dt", {}, keys), element("dd", {}, what)]));
  const names = { difference: "Difference", program: "Program", graph: "Graph" };
  const tabs = Object.entries(names).filter(([name]) => name !== "program" || code)
    .map(([name, label]) => element("button", {
      type: "button", class: "rl-button", role: "tab", "aria-controls": `${id}-${name}`,
      id: `${id}-tab-${name}`, onclick: () => show(name),
    }, label));
  const list = element("div", {
    class: "rl-scroll rl-passes", role: "listbox", tabindex: "0", "aria-label": "Passes",
  });
  const rows = passes.map((one) => passRow(one));
  list.append(...rows);
  const stage = element("select", {
    class: "rl-select", "aria-label": "Compare with", title: "Compare with",
    onchange: () => { against = stage.value === "before" ? "before" : Number(stage.value); draw(); },
  }, element("option", { value: "before" }, "what it was given"),
  element("option", { value: String(passes[0].before_text) }, "the program as written"),
  ...passes.filter((one) => one.after_text !== null && one.change === "changed").map((one) =>
    element("option", { value: String(one.after_text) }, `after ${one.index} ${one.name}`)));
  const facts = element("p", { class: "rl-facts" });
  const panes = {
    difference: element("div", { class: "rl-scroll rl-difference-pane", role: "region", tabindex: "0",
      "aria-label": "Difference" }),
    program: element("div", { class: "rl-program" }),
    graph: element("div", { class: "rl-scroll rl-graph-pane", role: "region", tabindex: "0",
      "aria-label": "Graph" }),
  };
  const bodies = Object.entries(panes).map(([name, pane]) => {
    const head = name === "difference" ? element("div", { class: "rl-toolbar" },
      element("span", {}, "beside"), stage, wholeButton) : "";
    return element("div", {
      role: "tabpanel", id: `${id}-${name}`, "aria-labelledby": `${id}-tab-${name}`,
    }, head, pane);
  });
  const blame = element("p", { class: "rl-verdict" }, verdict);
  blame.hidden = !verdict;
  const root = element("section", {
    class: "rl-view rl-explorer", tabindex: "0", "aria-label": "Passes of a compilation",
    onkeydown: onKey,
  }, element("div", { class: "rl-toolbar" }, search, found, hideButton,
    element("span", { class: "rl-gap" }),
    element("div", { class: "rl-toolbar", role: "tablist", "aria-label": "What to show" }, ...tabs),
    copyButton(() => root, live), helpButton), help, blame, element("div", { class: "rl-explorer-panes" },
    element("div", {}, element("div", { class: "rl-title" }, "Passes"), list),
    element("div", { class: "rl-explorer-body" }, facts, ...bodies)), live.node);
  el.append(root);
  const letKeysGo = keepKeys(root);

  function passRow(one) {
    const mark = one.error ? "!" : MARKS[one.change] ?? "?";
    const row = element("div", {
      class: "rl-pass", role: "option", id: `${id}-pass-${one.index}`,
      title: one.error || MEANS[one.change], onclick: () => { choose(one.index); list.focus(); },
    }, element("span", { class: "rl-pc" }, String(one.index)),
    element("span", { class: "rl-mark", "aria-hidden": "true" }, mark),
    element("span", { class: "rl-hidden" }, one.error || MEANS[one.change] || ""),
    element("span", { class: "rl-pass-name" }, one.name),
    element("span", { class: "rl-ms" }, one.ms === null ? "" : `${one.ms.toFixed(1)} ms`));
    row.style.setProperty("--rl-depth", String(one.depth));
    if (one.index === blamed) row.classList.add("rl-failed");
    return row;
  }

  // ---- acting

  const isShown = (one) => !hidden || one.change === "changed" || one.error || one.index === position;

  function choose(index) {
    position = Math.max(0, Math.min(passes.length - 1, index));
    draw();
    model.set("position", position);
    model.save_changes();
    live.say(facts.textContent);
  }

  /** Choose the nearest pass in a direction that `accepts` it. */
  function move(step, accepts = isShown) {
    for (let at = position + step; at >= 0 && at < passes.length; at += step) {
      if (accepts(passes[at])) return choose(at);
    }
    return live.say("no more passes");
  }

  const changedLines = new Map();
  function isFound(one) {
    if (!wanted) return false;
    if (one.name.toLowerCase().includes(wanted)) return true;
    if (one.change !== "changed" || one.after_text === null) return false;
    let changed = changedLines.get(one.index);
    if (!changed) {
      const [before, after] = [lines[one.before_text], lines[one.after_text]];
      changed = difference(before, after).filter(([sign]) => sign !== " ")
        .map(([, a, b]) => (a >= 0 ? before[a] : after[b]).toLowerCase()).join("\n");
      changedLines.set(one.index, changed);
    }
    return changed.includes(wanted);
  }

  function seek(from = position) {
    const hits = passes.filter(isFound);
    write(found, wanted ? `${hits.length} found` : "");
    if (!hits.length) return draw();
    return choose((hits.find(({ index }) => index > from) ?? hits[0]).index);
  }

  function show(name) {
    tab = name;
    draw();
  }

  function toggleHelp(open = help.hidden) {
    help.hidden = !open;
    set(helpButton, "aria-expanded", String(open));
  }

  const MOVES = {
    ArrowDown: () => move(1), ArrowUp: () => move(-1), Home: () => choose(0),
    End: () => choose(passes.length - 1),
    "]": () => move(1, (one) => one.change === "changed"),
    "[": () => move(-1, (one) => one.change === "changed"),
    "/": () => search.focus(), n: () => seek(), u: () => hideButton.click(),
    1: () => show("difference"), 2: () => code && show("program"), 3: () => show("graph"),
    "?": () => toggleHelp(), Escape: () => toggleHelp(false),
  };

  function onKey(event) {
    const { key, target } = event;
    const typing = target === search;
    if (event.ctrlKey || event.metaKey || event.altKey) {
      if (typing && /^[acvxyz]$/i.test(key)) event.stopPropagation();
      return;
    }
    // JupyterLab listens above: there, `x` would delete the cell
    event.stopPropagation();
    if (key === "Tab" || target.matches("select")) return;
    if (typing) {
      if (key === "Enter") seek();
      else if (key === "Escape") list.focus();
      else return;
    } else if (target.matches("button") && (key === "Enter" || key === " ")) return;
    else if (/^(Arrow|Home|End)/.test(key) && target !== list && target !== root) return;
    else if (!MOVES[key]) return;
    else MOVES[key]();
    event.preventDefault();
  }

  // ---- drawing

  function draw() {
    for (const [index, row] of rows.entries()) {
      row.hidden = !isShown(passes[index]);
      const current = index === position;
      row.classList.toggle("rl-current", current);
      row.classList.toggle("rl-match", isFound(passes[index]));
      set(row, "aria-selected", String(current));
    }
    set(list, "aria-activedescendant", `${id}-pass-${position}`);
    keepInView(list, rows[position], 20);
    for (const button of tabs) {
      const chosen = button.id === `${id}-tab-${tab}`;
      set(button, "aria-selected", String(chosen));
    }
    for (const body of bodies) body.hidden = body.id !== `${id}-${tab}`;
    const one = passes[position];
    const size = (field) => {
      const [before, after] = [one.before[field], one.after?.[field] ?? one.before[field]];
      return before === after ? `${after} ${field}` : `${before} → ${after} ${field}`;
    };
    const what = one.error ? `raised ${one.error}` : MEANS[one.change] ?? "did not finish";
    write(facts, `${one.index} ${one.name} ${what}; ${size("functions")}, ${size("kernels")}, ${
      size("bindings")}${one.ms === null ? "" : `, ${one.ms.toFixed(1)} ms`}.`);
    if (tab === "difference") drawDifference(one);
    if (tab === "program") drawProgram();
  }

  let drawn = "";

  function drawDifference(one) {
    const left = against === "before" ? one.before_text : against;
    const right = one.after_text ?? one.before_text;
    const key = `${left} ${right} ${whole} ${wanted}`;
    if (drawn === key) return;
    drawn = key;
    const [before, after] = [lines[left], lines[right]];
    const pairs = sideBySide(difference(before, after));
    const near = pairs.map(() => whole);
    pairs.forEach(([, , changed], at) => {
      if (!changed) return;
      for (let row = at - CONTEXT; row <= at + CONTEXT; row++) if (row in near) near[row] = true;
    });
    const made = [];
    let skipped = 0;
    const gap = () => {
      if (skipped) {
        made.push(element("tr", { class: "rl-elided" },
          element("td", { colspan: "6" }, `… ${skipped} equal line${skipped === 1 ? "" : "s"}`)));
      }
      skipped = 0;
    };
    const side = (text, line, sign) => [
      element("td", { class: "rl-pc" }, line === null ? "" : String(line + 1)),
      element("td", { class: "rl-mark" }, line === null ? "" : sign),
      element("td", { class: line === null ? "rl-none" : sign.trim() ? "rl-differs" : "" },
        line === null ? "" : text[line]),
    ];
    pairs.forEach(([a, b, changed], at) => {
      if (!near[at]) { skipped += 1; return; }
      gap();
      made.push(element("tr", {}, ...side(before, a, changed ? "-" : " "),
        ...side(after, b, changed ? "+" : " ")));
    });
    gap();
    const table = element("table", { class: "rl-texts" }, element("tbody", {}, ...made));
    const same = !pairs.some(([, , changed]) => changed);
    panes.difference.replaceChildren(same && !whole ? element("p", {}, "The texts are equal.") : table);
    panes.difference.scrollTop = 0;
  }

  // -- the program: lines, instructions, kernels

  let parts = null;

  function makeProgram() {
    const column = (title, label) => {
      const pane = element("div", { class: "rl-scroll rl-program-pane", role: "region",
        tabindex: "0", "aria-label": label });
      return [element("div", { class: "rl-pane" }, element("div", { class: "rl-title" }, title), pane), pane];
    };
    const [first, source] = column("Lines of the program", "Lines of the program");
    const [second, instructions] = column("Instructions", "Instructions");
    const [third, kernel] = column("Kernel", "Kernel");
    const lineRows = code.lines.map(([, number, text], index) => element("button", {
      type: "button", class: "rl-code-row", onclick: () => chooseLine(index),
    }, element("span", { class: "rl-pc" }, String(number)), element("code", {}, text)));
    const codeRows = code.instructions.map(([pc, , text, , binding], index) => element("button", {
      type: "button", class: "rl-code-row", title: binding, onclick: () => chooseCode(index),
    }, element("span", { class: "rl-pc" }, String(pc)), element("code", {}, text)));
    source.append(...lineRows.length ? lineRows : [element("p", {}, "The program came from no text.")]);
    instructions.append(...codeRows);
    panes.program.append(first, second, third);
    parts = { source, instructions, kernel, lineRows, codeRows };
  }

  function chooseLine(index) {
    chosenLine = chosenLine === index ? null : index;
    const first = code.instructions.findIndex(([, , , , , places]) => places.includes(index));
    chosenCode = null;
    if (chosenLine !== null) {
      const calls = code.instructions.findIndex(([, , , kernel, , places]) =>
        kernel && places.includes(index));
      chosenCode = calls >= 0 ? calls : first;
    }
    draw();
    live.say(programWords());
  }

  function chooseCode(index) {
    chosenCode = chosenCode === index ? null : index;
    chosenLine = null;
    draw();
    live.say(programWords());
  }

  function programWords() {
    if (chosenCode === null) return "nothing is chosen";
    const [pc, fn, , kernel, binding, places] = code.instructions[chosenCode];
    const from = places.map((place) => code.lines[place][1]).join(", ");
    return `Instruction ${pc} of ${fn}${from ? `, from line ${from}` : ""}: ${binding}${
      kernel ? `, kernel ${kernel}` : ""}`;
  }

  function drawProgram() {
    const places = chosenLine !== null ? [chosenLine]
      : chosenCode !== null ? code.instructions[chosenCode][5] : [];
    parts.lineRows.forEach((row, index) => {
      row.classList.toggle("rl-chosen", places.includes(index));
      set(row, "aria-pressed", String(places.includes(index)));
    });
    parts.codeRows.forEach((row, index) => {
      const [, , , , , from] = code.instructions[index];
      const linked = chosenLine !== null && from.includes(chosenLine);
      row.classList.toggle("rl-current", index === chosenCode);
      row.classList.toggle("rl-chosen", linked && index !== chosenCode);
      set(row, "aria-pressed", String(index === chosenCode));
    });
    const firstLine = places[0];
    if (firstLine !== undefined) keepInView(parts.source, parts.lineRows[firstLine], 20);
    if (chosenCode !== null) keepInView(parts.instructions, parts.codeRows[chosenCode], 20);
    drawKernel();
  }

  function drawKernel() {
    const name = chosenCode === null ? null : code.instructions[chosenCode][3];
    const kernelTexts = name ? code.kernels[name] : null;
    if (!kernelTexts) {
      parts.kernel.replaceChildren(element("p", {}, name ? `The text of ${name} is not here.`
        : "Choose a line, or an instruction that calls a kernel."));
      return;
    }
    if (!kernelTexts[language]) language = "TIR";
    const choices = Object.keys(kernelTexts).map((one) => element("button", {
      type: "button", class: "rl-button", "aria-pressed": String(one === language),
      onclick: () => { language = one; drawKernel(); },
    }, one));
    parts.kernel.replaceChildren(element("div", { class: "rl-toolbar" }, element("b", {}, name), ...choices),
      element("pre", { class: "rl-kernel" }, kernelTexts[language]));
  }

  // -- graphs: drawn by Python where something can draw, else as text

  function makeGraphs() {
    const picker = element("select", {
      class: "rl-select", "aria-label": "Graph to show", title: "Graph to show",
      onchange: () => place(Number(picker.value)),
    }, ...graphs.map(({ name }, index) => element("option", { value: String(index) }, name)));
    const picture = element("div", { class: "rl-graph" });
    const place = (index) => {
      const { name, svg, dot } = graphs[index];
      if (!svg) { picture.replaceChildren(element("pre", {}, dot)); return; }
      const parsed = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement;
      set(parsed, "role", "img");
      set(parsed, "aria-label", name);
      picture.replaceChildren(document.importNode(parsed, true));
    };
    panes.graph.append(picker, picture);
    if (graphs.length) place(0);
  }

  const onPosition = () => {
    if (model.get("position") === position) return;
    position = model.get("position");
    draw();
  };
  model.on("change:position", onPosition);
  if (code) makeProgram();
  makeGraphs();
  draw();
  return () => {
    letKeysGo();
    live.stop();
    model.off("change:position", onPosition);
  };
}

export default { render };
