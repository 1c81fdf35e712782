// The difference of two texts, line by line: Myers' algorithm, with a limit for unlike texts.

const MOST_EDITS = 2000; // beyond, what is between the equal ends counts as replaced

/**
 * [sign, line of the first text, line of the second] for each line: " " where both have it, "-" and
 * "+" where only one does; an index that does not apply is -1.
 */
export function difference(before, after) {
  let start = 0;
  while (start < before.length && start < after.length && before[start] === after[start]) start++;
  let endBefore = before.length;
  let endAfter = after.length;
  while (endBefore > start && endAfter > start && before[endBefore - 1] === after[endAfter - 1]) {
    endBefore--;
    endAfter--;
  }
  const rows = [];
  for (let at = 0; at < start; at++) rows.push([" ", at, at]);
  const middle = myers(before.slice(start, endBefore), after.slice(start, endAfter));
  for (const [sign, a, b] of middle) rows.push([sign, a < 0 ? a : a + start, b < 0 ? b : b + start]);
  for (let at = 0; at < before.length - endBefore; at++) {
    rows.push([" ", endBefore + at, endAfter + at]);
  }
  return rows;
}

function myers(before, after) {
  const most = Math.min(before.length + after.length, MOST_EDITS);
  const trace = [];
  let furthest = new Map([[1, 0]]);
  for (let edits = 0; edits <= most; edits++) {
    trace.push(new Map(furthest));
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits
        || (k !== edits && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
      let x = down ? furthest.get(k + 1) ?? 0 : (furthest.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < before.length && y < after.length && before[x] === after[y]) {
        x++;
        y++;
      }
      furthest.set(k, x);
      if (x >= before.length && y >= after.length) return walk(trace, before, after);
    }
    furthest = new Map(furthest);
  }
  return [...before.map((_, at) => ["-", at, -1]), ...after.map((_, at) => ["+", -1, at])];
}

function walk(trace, before, after) {
  const rows = [];
  let x = before.length;
  let y = after.length;
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const furthest = trace[edits];
    const k = x - y;
    const down = k === -edits
      || (k !== edits && (furthest.get(k - 1) ?? -1) < (furthest.get(k + 1) ?? -1));
    const from = down ? k + 1 : k - 1;
    const fromX = edits ? furthest.get(from) ?? 0 : 0;
    const fromY = fromX - from;
    while (x > (edits ? fromX : 0) && y > (edits ? fromY : 0)) {
      if (edits && x === fromX + (down ? 0 : 1) && y === fromY + (down ? 1 : 0)) break;
      rows.push([" ", --x, --y]);
    }
    if (edits) rows.push(down ? ["+", -1, --y] : ["-", --x, -1]);
  }
  return rows.reverse();
}

/** Rows side by side: [[line or null, line or null, changed], ...]; changes stand beside each other. */
export function sideBySide(rows) {
  const pairs = [];
  let gone = [];
  let come = [];
  const flush = () => {
    for (let at = 0; at < Math.max(gone.length, come.length); at++) {
      pairs.push([gone[at] ?? null, come[at] ?? null, true]);
    }
    gone = [];
    come = [];
  };
  for (const [sign, a, b] of rows) {
    if (sign === "-") gone.push(a);
    else if (sign === "+") come.push(b);
    else {
      flush();
      pairs.push([a, b, false]);
    }
  }
  flush();
  return pairs;
}
