// Graphs captured and replayed: a row for each key, a history to step through.

import {
  copyButton, element, findBox, helpOf, icon, keepInView, keepKeys, LiveLine, set, write,
} from "./page.js";

const KERNELS_SHOWN = 40;
const HELP = [
  ["] →", "step: one moment of the history"],
  ["[ ←", "back: undo it"],
  ["Home End", "before the first capture; the end"],
  ["/", "find a text in the history; Enter and Shift+Enter go on"],
  ["? Esc", "open and close this help"],
];

function render({ model, el }) {
  const { history, calls, launches } = model.get("graphs");
  let position = model.get("position");
  const live = new LiveLine();
  const help = helpOf(HELP);
  const move = (name, picture, why, where) => {
    const button = element("button", {
      type: "button", class: "rl-button", onclick: () => {
        const reason = why();
        if (reason) live.say(`${name} is not possible: ${reason}.`);
        else goto(where());
      },
    }, icon(picture), element("span", {}, name));
    return { button, name, why };
  };
  const atStart = () => position > 0 ? "" : "nothing has happened yet";
  const atEnd = () => position < history.length ? "" : "this is the end of the history";
  const buttons = [
    move("Restart", "restart", atStart, () => 0), move("Back", "back", atStart, () => position - 1),
    move("Step", "step", atEnd, () => position + 1),
  ];
  const slider = element("input", {
    type: "range", class: "rl-slider", min: "0", max: String(history.length), step: "1",
    "aria-label": "Moment in the history", oninput: () => goto(Number(slider.value)),
  });
  const search = findBox("Find a moment", live, (has, backwards) => {
    const later = (index) => backwards ? index < position - 1 : index >= position;
    const found = history.map((moment, index) => later(index) && has(momentText(moment)));
    const at = backwards ? found.lastIndexOf(true) : found.indexOf(true);
    if (at >= 0) goto(at + 1);
    return at >= 0;
  });
  const counters = element("p", {});
  const rows = element("tbody", {});
  const table = element("table", { class: "rl-graphs" }, element("thead", {}, element("tr", {},
    ...["key", "kernels of the graph", "captured", "replayed", "abandoned", "launches saved"]
      .map((text) => element("th", { scope: "col" }, text)))), rows);
  const items = history.map(([, what, , , words], index) => element("li", {
    class: "rl-moment", onclick: () => goto(index + 1),
  }, element("span", { class: "rl-mark", "aria-hidden": "true" },
    { captured: "●", replayed: "▶", abandoned: "×" }[what]), ` ${words}`));
  const list = element("ol", { class: "rl-moments" }, ...items);
  const pane = element("div", {
    class: "rl-scroll rl-moment-pane", role: "region", tabindex: "0", "aria-label": "History",
  }, list);
  const strip = element("p", { class: "rl-strip" });
  const root = element("section", {
    class: "rl-view rl-graph-replay", tabindex: "0", "aria-label": "Captured graphs",
    onkeydown: onKey,
  }, element("div", { class: "rl-toolbar" }, ...buttons.map(({ button }) => button), slider,
    search, copyButton(() => root, live), help.button), help.list, counters,
  table, strip, element("div", { class: "rl-title" }, "History"), pane, live.node);
  el.append(root);
  const letKeysGo = keepKeys(root);

  function goto(to) {
    position = Math.max(0, Math.min(history.length, to));
    draw();
    model.set("position", position);
    model.save_changes();
    live.say(position ? history[position - 1][4] : "before the first capture");
  }

  function onKey(event) {
    const { key, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    // JupyterLab listens above: there, `x` would delete the cell
    event.stopPropagation();
    if (key === "Tab" || (target === slider && /^(Arrow|Home|End|Page)/.test(key))) return;
    if (target.matches("button") && (key === "Enter" || key === " ")) return;
    if (key === "]" || key === "ArrowRight") goto(position + 1);
    else if (key === "[" || key === "ArrowLeft") goto(position - 1);
    else if (key === "Home") goto(0);
    else if (key === "End") goto(history.length);
    else if (key === "/") search.focus();
    else if (key === "?") help.toggle();
    else if (key === "Escape") help.toggle(false);
    else return;
    event.preventDefault();
  }

  /** All that is said of a moment: its words, its key, its kernels. */
  function momentText([, what, key, kernels, words]) {
    return [words, what, key, ...kernels].join(" ");
  }

  /** What became of each key before the marked moment: as Python's `summary` adds it up. */
  function summary() {
    const found = new Map();
    for (const [, what, key, kernels] of history.slice(0, position)) {
      if (!found.has(key)) found.set(key, { kernels: [], captured: 0, replayed: 0, abandoned: 0, saved: 0 });
      const graph = found.get(key);
      graph[what] += 1;
      if (what === "captured") graph.kernels = kernels;
      if (what === "replayed") graph.saved += Math.max(0, kernels.length - 1);
    }
    return found;
  }

  function draw() {
    for (const { button, name, why } of buttons) {
      const reason = why();
      set(button, "aria-disabled", String(Boolean(reason)));
      set(button, "title", reason ? `${name}: ${reason}` : name);
    }
    slider.value = String(position);
    set(slider, "aria-valuetext", `moment ${position} of ${history.length}`);
    const found = summary();
    const saved = (graph) => graph.saved;
    const graphs = [...found.values()];
    const sum = (of) => graphs.reduce((total, graph) => total + of(graph), 0);
    write(counters, `${sum((graph) => Number(graph.captured > 0))} graphs captured, ${
      sum((graph) => graph.replayed)} replays, ${sum(saved)} launches saved`);
    rows.replaceChildren(...[...found].map(([key, graph]) => element("tr", {},
      element("th", { scope: "row" }, key),
      element("td", {}, kernelWords(graph.kernels)),
      ...[graph.captured, graph.replayed, graph.abandoned, saved(graph)].map((count) =>
        element("td", { class: "rl-count" }, String(count))))));
    items.forEach((item, index) => {
      item.classList.toggle("rl-current", index === position - 1);
      item.classList.toggle("rl-later", index >= position);
      set(item, "aria-current", index === position - 1 ? "step" : null);
    });
    if (position) keepInView(pane, items[position - 1], 18);
    const call = position ? history[position - 1][0] : -1;
    write(strip, call < 0 ? `${calls.length} calls were recorded`
      : `Call ${call} of ${calls.length}: ${launches[call]} kernels were launched one by one`);
  }

  function kernelWords(kernels) {
    if (!kernels.length) return "no graph";
    const shown = kernels.slice(0, KERNELS_SHOWN).join(" → ");
    return kernels.length > KERNELS_SHOWN ? `${shown} → … (${kernels.length})` : shown;
  }

  const onPosition = () => {
    if (model.get("position") === position) return;
    position = model.get("position");
    draw();
  };
  model.on("change:position", onPosition);
  draw();
  return () => {
    letKeysGo();
    live.stop();
    model.off("change:position", onPosition);
  };
}

export default { render };
