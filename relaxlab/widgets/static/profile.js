// A profile: rows as bars, sorted by any column, and the first calls on a line of time.

import {
  copyButton, element, findBox, helpOf, keepInView, keepKeys, LiveLine, set, write,
} from "./page.js";

const SVG = "http://www.w3.org/2000/svg";
const ROW = 18;
const SPANS_SHOWN = 2000;
const HELP = [
  ["Tab Enter", "from button to button; a column's button sorts by it, again the other way"],
  ["f i", "rows by function, rows by instruction"],
  ["/", "find a row; Enter and Shift+Enter go on"],
  ["? Esc", "open and close this help"],
];
const COLUMNS = [
  ["name", 0, false], ["kind", 1, false], ["calls", 2, true], ["µs", 3, true], ["share", 3, true],
  ["bytes", 4, true],
];

function render({ model, el }) {
  const { seconds, kernels, instructions, spans, dropped } = model.get("profile");
  let which = "kernels";
  let sorting = { column: 3, down: true };
  const live = new LiveLine();
  const help = helpOf(HELP);
  const choice = (name, label) => element("button", {
    type: "button", class: "rl-button", "aria-pressed": String(name === which),
    onclick: () => { which = name; draw(); },
  }, label);
  const choices = { kernels: choice("kernels", "By function"),
    instructions: choice("instructions", "By instruction") };
  let chosen = -1;
  const search = findBox("Find a row", live, (has, backwards) => {
    const texts = [...body.rows].map((row) => `${row.cells[0].textContent} ${row.cells[1].textContent}`);
    const found = texts.map((text, index) =>
      (backwards ? index < chosen : index > chosen) && has(text));
    const at = backwards ? found.lastIndexOf(true) : found.indexOf(true);
    if (at >= 0) choose(at);
    return at >= 0;
  });
  const summary = element("p", {});
  const heads = COLUMNS.map(([name, , numeric], column) => element("th", { scope: "col" },
    element("button", {
      type: "button", class: "rl-sort", onclick: () => {
        sorting = { column, down: sorting.column === column ? !sorting.down : numeric };
        draw();
        live.say(`sorted by ${name}, ${sorting.down ? "largest" : "smallest"} first`);
      },
    }, name)));
  const body = element("tbody", {});
  const table = element("table", { class: "rl-profile-table" },
    element("thead", {}, element("tr", {}, ...heads)), body);
  const timeline = element("div", { class: "rl-scroll rl-spans", role: "region", tabindex: "0",
    "aria-label": "Calls on a line of time" });
  const note = element("p", { class: "rl-note" });
  const pane = element("div", { class: "rl-scroll rl-profile-pane", role: "region", tabindex: "0",
    "aria-label": "Rows" }, table);
  const root = element("section", {
    class: "rl-view rl-profile", tabindex: "0", "aria-label": "Profile", onkeydown: onKey,
  }, element("div", { class: "rl-toolbar" }, ...Object.values(choices),
    search, copyButton(() => root, live), help.button), help.list, summary, timeline, note, pane,
  live.node);
  el.append(root);
  const letKeysGo = keepKeys(root);
  const shown = new ResizeObserver(() => drawSpans());
  shown.observe(timeline);

  function onKey(event) {
    // JupyterLab listens above: there, `x` would delete the cell
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    const { key } = event;
    if (key === "/") search.focus();
    else if (key === "?") help.toggle();
    else if (key === "Escape") help.toggle(false);
    else if (key === "f" || key === "i") {
      which = key === "f" ? "kernels" : "instructions";
      draw();
    } else return;
    event.preventDefault();
  }

  /** Mark a row and bring it into view. */
  function choose(at) {
    chosen = at;
    [...body.rows].forEach((row, index) => {
      row.classList.toggle("rl-current", index === at);
      set(row, "aria-current", index === at ? "true" : null);
    });
    keepInView(pane, body.rows[at], 18);
    live.say([...body.rows[at].cells].map((cell) => cell.textContent).join(", "));
  }

  function draw() {
    chosen = -1;
    const rows = [...(which === "kernels" ? kernels : instructions)];
    const [, field] = COLUMNS[sorting.column];
    const order = (a, b) => typeof a === "number" ? a - b : a < b ? -1 : a > b ? 1 : 0;
    rows.sort((a, b) => (sorting.down ? -1 : 1) * order(a[field], b[field]));
    const calls = rows.reduce((sum, row) => sum + row[2], 0);
    write(summary, `${(seconds * 1e6).toFixed(1)} µs in all, ${calls} calls in ${rows.length} rows.`);
    for (const [name, button] of Object.entries(choices)) {
      set(button, "aria-pressed", String(name === which));
    }
    heads.forEach((head, column) => set(head, "aria-sort", column !== sorting.column ? "none"
      : sorting.down ? "descending" : "ascending"));
    body.replaceChildren(...rows.map(([name, kind, count, time, bytes]) => {
      const share = seconds ? (100 * time) / seconds : 0;
      const bar = element("span", { class: "rl-share", "aria-hidden": "true" });
      bar.style.width = `${Math.max(0, Math.min(100, share))}%`;
      return element("tr", {}, element("th", { scope: "row" }, element("code", {}, name)),
        element("td", {}, kind), element("td", { class: "rl-count" }, String(count)),
        element("td", { class: "rl-count" }, (time * 1e6).toFixed(2)),
        element("td", { class: "rl-share-cell" }, bar, element("span", {}, `${share.toFixed(1)}%`)),
        element("td", { class: "rl-count" }, String(bytes)));
    }));
  }

  function drawSpans() {
    const some = spans.slice(0, SPANS_SHOWN);
    const left = dropped + spans.length - some.length;
    write(note, left ? `The last ${left} calls are not on the line of time.` : "");
    note.hidden = !left;
    if (!some.length) { timeline.hidden = true; return; }
    const width = Math.max(200, timeline.clientWidth - 4);
    const begin = Math.min(...some.map(([, , start]) => start));
    const end = Math.max(...some.map(([, , start, time]) => start + time));
    const depth = Math.max(...some.map(([, , , , at]) => at));
    const scale = width / Math.max(1e-12, end - begin);
    const svg = document.createElementNS(SVG, "svg");
    for (const [name, value] of Object.entries({ width, height: (depth + 1) * ROW + 4, role: "img",
      "aria-label": `${some.length} calls on a line of time` })) svg.setAttribute(name, value);
    for (const [name, category, start, time, at] of some) {
      const box = document.createElementNS(SVG, "rect");
      const place = { x: (start - begin) * scale, y: at * ROW + 2, height: ROW - 4,
        width: Math.max(0.5, time * scale), class: `rl-span rl-span-${category === "frame" ? 1 : 0}` };
      for (const [key, value] of Object.entries(place)) box.setAttribute(key, value);
      const title = document.createElementNS(SVG, "title");
      title.textContent = `${name}: ${(time * 1e6).toFixed(2)} µs`;
      box.append(title);
      svg.append(box);
    }
    timeline.replaceChildren(svg);
  }

  draw();
  drawSpans();
  return () => {
    letKeysGo();
    live.stop();
    shown.disconnect();
  };
}

export default { render };
