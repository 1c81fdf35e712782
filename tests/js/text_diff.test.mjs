// A difference of texts gives back both texts, and finds what is equal.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

const source = readFileSync(new URL("../../relaxlab/widgets/static/text_diff.js", import.meta.url));
const { difference, sideBySide } =
  await import(`data:text/javascript;base64,${source.toString("base64")}`);

let seed = 1;
const random = (bound) => {
  seed = (seed * 48271) % 2147483647;
  return seed % bound;
};
const text = (length, letters) => Array.from({ length }, () => `line ${random(letters)}`);

function longestCommon(a, b) {
  const table = Array.from({ length: a.length + 1 }, () => new Array(b.length + 1).fill(0));
  for (let i = 1; i <= a.length; i++) {
    for (let j = 1; j <= b.length; j++) {
      table[i][j] = a[i - 1] === b[j - 1] ? table[i - 1][j - 1] + 1
        : Math.max(table[i - 1][j], table[i][j - 1]);
    }
  }
  return table[a.length][b.length];
}

test("both texts can be read off, and as much as possible is equal", () => {
  for (let round = 0; round < 400; round++) {
    const a = text(random(14), 1 + random(6));
    const b = text(random(14), 1 + random(6));
    const rows = difference(a, b);
    assert.deepEqual(rows.filter(([sign]) => sign !== "+").map(([, at]) => at), [...a.keys()]);
    assert.deepEqual(rows.filter(([sign]) => sign !== "-").map(([, , at]) => at), [...b.keys()]);
    const equal = rows.filter(([sign]) => sign === " ");
    for (const [, x, y] of equal) assert.equal(a[x], b[y]);
    assert.equal(equal.length, longestCommon(a, b));
  }
});

test("side by side, every line is there once and changes stand beside each other", () => {
  const a = ["same", "old 1", "old 2", "end"];
  const b = ["same", "new", "end", "more"];
  assert.deepEqual(sideBySide(difference(a, b)), [
    [0, 0, false], [1, 1, true], [2, null, true], [3, 2, false], [null, 3, true],
  ]);
});

test("long unlike texts are told quickly", () => {
  const a = Array.from({ length: 6000 }, (_, at) => `a${at}`);
  const b = Array.from({ length: 6000 }, (_, at) => `b${at}`);
  const rows = difference(["head", ...a, "tail"], ["head", ...b, "tail"]);
  assert.equal(rows.length, 12002);
  assert.deepEqual(rows[0], [" ", 0, 0]);
  assert.deepEqual(rows.at(-1), [" ", 6001, 6001]);
});
