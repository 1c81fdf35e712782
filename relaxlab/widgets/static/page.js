// What all views draw with: elements, icons, one live line, and one tab stop for many buttons.

const SVG = "http://www.w3.org/2000/svg";
const QUIET_MS = 250; // a live line speaks when nothing has moved for so long

// Paths in a box of 12 by 12: glyphs of such symbols are missing from many fonts.
const ICONS = {
  restart: "M1 1h2v10H1zM11 1v10L4 6z",
  reverse: "M6 1v10L0 6zM12 1v10L6 6z",
  back: "M9 1v10L3 6z",
  step: "M3 1v10l6-5z",
  over: "M1 8a5 5 0 0 1 8-4l1-2 2 5H7l1-2a3 3 0 0 0-5 3zM5 9h3v3H5z",
  out: "M6 0l4 5H7v4H5V5H2zM1 10h10v2H1z",
  resume: "M0 1v10l6-5zM6 1v10l6-5z",
  play: "M2 1v10l8-5z",
  pause: "M2 1h3v10H2zM7 1h3v10H7z",
  arrow: "M0 5h6V2l6 4-6 4V7H0z",
  dot: "M6 1a5 5 0 1 0 .01 0z",
  diamond: "M6 0l6 6-6 6-6-6z",
  cross: "M2 0l4 4 4-4 2 2-4 4 4 4-2 2-4-4-4 4-2-2 4-4-4-4z",
  chosen: "M3 1v10l6-5z",
};

/** An element; attributes that start with "on" are listeners, null ones are left out. */
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** A picture beside words: readers of a screen do not hear it. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 12 12");
  svg.setAttribute("class", "rl-icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** Set a text only where it differs: drawing the same state again touches nothing. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function set(node, name, value) {
  if (value === null) node.removeAttribute(name);
  else if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** One polite line for screen readers: the last thing said, once things are quiet. */
export class LiveLine {
  constructor() {
    this.node = element("div", { class: "rl-hidden", role: "status", "aria-live": "polite" });
    this.timer = null;
  }

  say(text) {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => write(this.node, text), QUIET_MS);
  }

  stop() {
    clearTimeout(this.timer);
  }
}

/**
 * Make the controls of a container one stop of the Tab key; arrow keys move between them.
 *
 * Controls begin with tabindex -1. Returns a listener for `keydown`, which says whether it took the
 * key, and a function that makes one control the stop.
 */
export function roving(container, selector, [backwards, forwards]) {
  const controls = () => [...container.querySelectorAll(selector)];
  let stop = null;
  const choose = (chosen) => {
    if (stop) stop.tabIndex = -1;
    chosen.tabIndex = 0;
    stop = chosen;
  };
  container.addEventListener("focusin", (event) => {
    const control = event.target.closest(selector);
    if (control) choose(control);
  });
  const onKey = (event) => {
    const all = controls();
    const at = all.indexOf(event.target);
    if (at < 0 || (event.key !== backwards && event.key !== forwards)) return false;
    const to = at + (event.key === forwards ? 1 : -1);
    if (all[to]) all[to].focus();
    return true;
  };
  return { onKey, choose };
}

/** Scroll only the pane, never the page, and keep `margin` pixels around a row in view. */
export function keepInView(pane, row, margin = 0) {
  const view = pane.getBoundingClientRect();
  const box = row.getBoundingClientRect();
  if (!view.height || !box.height) return;
  const top = box.top - view.top - pane.clientTop;
  const over = top + box.height + margin - pane.clientHeight;
  if (top - margin < 0) pane.scrollTop += top - margin;
  else if (over > 0) pane.scrollTop += Math.min(over, top - margin);
}

const LINE = "li, p, tr, pre, dt, dd, h2, button, [role=row], [role=option], .rl-title, .rl-pane-title";
const UNTOLD = ".rl-toolbar, .rl-scrubber, .rl-help, .rl-hidden, .rl-icon, input, [hidden]";

/** What a view shows, as text: a line for each row, and the words of what is drawn. */
export function textOf(node) {
  if (node.matches(UNTOLD)) return [];
  if (node.getAttribute("role") === "img") return [node.getAttribute("aria-label") ?? ""];
  if (node.matches(LINE)) {
    if (node.tagName === "PRE") return node.textContent.trimEnd().split("\n");
    const here = node.getAttribute("aria-current") === "step" ? ["=>"] : [];
    const line = [...here, ...words(node)].join(" ").replace(/\s+/g, " ").trim();
    return line ? [line] : [];
  }
  return [...node.children].flatMap(textOf);
}

function words(node) {
  if (node.nodeType === Node.TEXT_NODE) return [node.data];
  if (node.nodeType !== Node.ELEMENT_NODE || node.matches(UNTOLD)) return [];
  if (node.tagName === "SELECT") return [node.selectedOptions[0]?.textContent ?? ""];
  return [...node.childNodes].flatMap(words);
}

/** A button that copies what a view shows as text. */
export function copyButton(root, live, tabindex = null) {
  const done = (count) => live.say(`Copied ${count} lines.`);
  return element("button", {
    type: "button", class: "rl-button", tabindex, title: "Copy what is shown as text",
    onclick: async () => {
      const lines = textOf(root());
      const text = `${lines.join("\n")}\n`;
      try {
        await navigator.clipboard.writeText(text);
      } catch { // not in every page may a script write there: then as if somebody pressed the keys
        const area = element("textarea", { class: "rl-hidden", "aria-hidden": "true" });
        area.value = text;
        root().append(area);
        const focused = document.activeElement;
        area.select();
        document.execCommand("copy");
        area.remove();
        focused?.focus();
      }
      done(lines.length);
    },
  }, "Copy");
}

/**
 * A field that looks for a text; Enter and Shift+Enter ask `find` for the next place and the one
 * before, which says whether there is any.
 */
export function findBox(label, live, find) {
  const input = element("input", {
    type: "text", class: "rl-search", "aria-label": label, placeholder: "find (/)",
    onkeydown: (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      event.stopPropagation(); // no key of the view, nor of the notebook
      const wanted = input.value.trim().toLowerCase();
      if (event.key === "Escape") input.closest(".rl-view").focus();
      else if (event.key !== "Enter") return;
      else if (wanted && !find((text) => text.toLowerCase().includes(wanted), event.shiftKey)) {
        live.say(`Nothing ${event.shiftKey ? "before" : "after"} this has "${wanted}".`);
      }
      event.preventDefault();
    },
  });
  return input;
}

/** The number that a fragment such as `#step=12` gives for "step"; null if it gives none. */
export function linkedNumber(fragment, unit) {
  const [, name, number] = /^#([a-z]+)=(\d{1,15})$/.exec(fragment) ?? [];
  return name === unit ? Number(number) : null;
}

/**
 * A link to what a page of its own shows, and `listen`, which follows such links.
 *
 * In a notebook there is no link: its address is not the view's.
 */
export function linkTo(unit) {
  const standalone = document.documentElement.classList.contains("rl-standalone");
  const node = element("a", { class: "rl-link" }, `Link to this ${unit}`);
  node.hidden = !standalone;
  return {
    node,
    show(position) {
      set(node, "href", `#${unit}=${position}`);
      set(node, "title", `The address of this page at ${unit} ${position}: copy it from here`);
    },
    listen(goto) {
      const onLink = () => {
        const number = standalone ? linkedNumber(location.hash, unit) : null;
        if (number !== null) goto(number);
      };
      onLink();
      globalThis.addEventListener?.("hashchange", onLink);
      return () => globalThis.removeEventListener?.("hashchange", onLink);
    },
  };
}

/** The keys of a view, in words, and the button that opens and closes them. */
export function helpOf(rows) {
  const list = element("dl", { class: "rl-help", hidden: "" },
    ...rows.flatMap(([keys, what]) => [element("dt", {}, keys), element("dd", {}, what)]));
  const button = element("button", {
    type: "button", class: "rl-button", "aria-expanded": "false", title: "Keys (?)",
    onclick: () => toggle(),
  }, "? Keys");
  function toggle(open = list.hidden) {
    list.hidden = !open;
    set(button, "aria-expanded", String(open));
  }
  return { list, button, toggle };
}

/**
 * Keep a view's keys from the notebook, also from one that listens before the view does.
 *
 * JupyterLab hears of keys after the view, which stops them. Notebook 7 hears of them first, and
 * passes by an element with this attribute. What belongs to the notebook, as Ctrl+S does, is left
 * to it, but for keys that edit a text. Returns a function that ends it.
 */
export function keepKeys(root) {
  const decide = ({ target, key, ctrlKey, metaKey, altKey }) => {
    if (!(target instanceof Element) || !root.contains(target)) return;
    const ours = !(ctrlKey || metaKey || altKey) || /^[acvxyz]$/i.test(key);
    // on the element itself: those around it are looked at later, if at all
    set(target, "data-lm-suppress-shortcuts", ours ? "true" : null);
  };
  globalThis.addEventListener("keydown", decide, true);
  return () => globalThis.removeEventListener("keydown", decide, true);
}
