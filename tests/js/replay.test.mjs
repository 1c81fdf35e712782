// The replay and its cursor do what Python does. The cases are made by tests/widgets/test_replay_js.py
// from random programs; RELAXLAB_CASES names the file. Without it only the fixed examples run.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

const source = readFileSync(new URL("../../relaxlab/widgets/static/replay.js", import.meta.url));
// through an address with the text in it: a .js file is a module for every Node only so
const { clamp, countUpTo, Cursor, cut, displayed, floatText, heatCells, logged, mark, narrowText, Replay } =
  await import(`data:text/javascript;base64,${source.toString("base64")}`);

const page = readFileSync(new URL("../../relaxlab/widgets/static/page.js", import.meta.url));
const { linkedNumber } = await import(`data:text/javascript;base64,${page.toString("base64")}`);

const { cases, floats, narrow } = process.env.RELAXLAB_CASES
  ? JSON.parse(readFileSync(process.env.RELAXLAB_CASES, "utf8"))
  : { cases: [], narrow: [[Math.fround(0.1), "0.1"]], floats: [[0.1, "0.1"], [1, "1.0"], [-0, "-0.0"], [1e16, "1e+16"], [1e-5, "1e-05"]] };

test("floats are written as Python writes them", () => {
  for (const [value, text] of floats) assert.equal(floatText(value), text);
  assert.deepEqual([NaN, Infinity, -Infinity].map(floatText), ["nan", "inf", "-inf"]);
});

test("narrow floats have the fewest digits", () => {
  for (const [value, text] of narrow) assert.equal(narrowText(value), text);
});

test("texts are cut by characters", () => {
  assert.equal(cut("abc", 3), "abc");
  assert.equal(cut("abcd", 3), "ab…");
  assert.equal(cut("😀😀😀", 3), "😀😀😀");
  assert.equal(cut("😀😀😀😀", 3), "😀😀…");
});

test("the number of entries up to a bound", () => {
  const sorted = [2, 2, 5, 9];
  const counts = [1, 2, 4, 5, 9, 10].map((bound) => countUpTo(sorted, bound));
  assert.deepEqual(counts, [0, 2, 2, 3, 4, 4]);
  assert.equal(clamp(7, 0, 5), 5);
});

test("watched values hold until the next change, and log lines up to a step", () => {
  const table = ["n", [0, 3, 7], ["1", "2", ""]];
  const values = [0, 2, 3, 6, 7, 99].map((position) => displayed(table, position));
  assert.deepEqual(values, ["1", "1", "2", "2", "", ""]);
  const logs = [[1, "a"], [1, "b"], [4, "c"]];
  assert.deepEqual(logged(logs, 0), []);
  assert.deepEqual(logged(logs, 3), logs.slice(0, 2));
  assert.deepEqual(logged(logs, 9, 1), [[4, "c"]]);
});

test("a fragment names a step, or none", () => {
  assert.equal(linkedNumber("#step=12", "step"), 12);
  assert.equal(linkedNumber("#event=0", "event"), 0);
  for (const other of ["", "#", "#step=", "#step=-1", "#step=1x", "#other=3"]) {
    assert.equal(linkedNumber(other, "step"), null);
  }
});

test("cells of a heat map have the recorded numbers and a gap where none were", () => {
  const value = ["tensor", "float32", [10], "cpu:0", 0, 0, [0, 1, null, 3], [9, 10], 0, 10, 1, 0];
  value[6][2] = "nan";
  assert.deepEqual(heatCells(value).map(([, shade]) => shade), [0, 0, -1, 1, null, 5, 5]);
  assert.deepEqual(heatCells(value).map(([text]) => text).slice(3, 5), ["3.0", "…"]);
  const unknown = ["tensor", "int64", [2], "cpu:0", 0, 0, [4, 4], [], null, null, null, null];
  assert.deepEqual(heatCells(unknown), [["4", -1], ["4", -1]]);
  const same = ["tensor", "int64", [2], "cpu:0", 0, 0, [4, 4], [], 4, 4, 0, 0];
  assert.deepEqual(heatCells(same), [["4", 0], ["4", 0]]);
});

function state(replay, position) {
  const frames = [...replay.stack(position)].reverse();
  return frames.map(([frame, pc]) => [
    replay.name(frame.fn), pc, frame.target,
    replay.registers(frame, position).map((value) => replay.text(value)),
  ]);
}

for (const [number, one] of cases.entries()) {
  test(`case ${number}: every state, forwards and in any order`, () => {
    const replay = new Replay(one.trace);
    assert.equal(replay.end - replay.first, one.states.length - 1);
    const order = one.states.map((_, index) => index);
    for (const index of [...order, ...order.reverse()]) {
      const position = replay.first + index;
      const expected = one.states[index];
      assert.deepEqual(state(replay, position), expected.frames, one.program);
      assert.equal(replay.depth(position), expected.frames.length - 1);
      assert.equal(replay.printed(position, 1000), expected.printed);
      assert.equal(replay.next(position), expected.next);
      assert.equal(replay.done(position), expected.done);
      assert.deepEqual(replay.phases(position), expected.phases, one.program);
    }
    assert.equal(one.outcome, "result" in one.trace.outcome
      ? replay.text(one.trace.outcome.result) : one.trace.outcome.error);
  });

  test(`case ${number}: moves and marks`, () => {
    const replay = new Replay(one.trace);
    const cursor = new Cursor(replay, one.start);
    for (const [step, [name, argument, expected]] of one.moves.entries()) {
      if (name === "halts") cursor.setHalts(argument);
      else if (name === "skip") cursor.skipBuiltins = argument;
      else cursor[name](...argument);
      const [frame, pc] = cursor.frame;
      const marks = [];
      if (frame) {
        const now = cursor.registers(frame);
        const before = cursor.previous(frame);
        now.forEach((value, index) => {
          const sign = mark(replay, before[index], value);
          if (sign) marks.push([index, sign, replay.text(before[index])]);
        });
      }
      const found = { position: cursor.position, depth: cursor.depth, pc, marks };
      const where = `move ${step}, ${name} ${JSON.stringify(argument)}\n${one.program}`;
      assert.deepEqual(found, expected.place, where);
      assert.deepEqual(cursor.trail(), expected.visits, where);
    }
    // a page that is opened later shows the same from what was looked at
    const later = new Cursor(replay, { ...one.start, visits: cursor.trail() });
    assert.deepEqual(later.trail(), cursor.trail());
    assert.equal(later.position, cursor.position);
    // and so does one that was not told at once
    const behind = new Cursor(replay, one.start);
    const news = behind.count < cursor.count;
    assert.equal(behind.follow(cursor.trail()), news);
    if (cursor.count <= 256) assert.deepEqual(behind.trail(), cursor.trail());
  });
}

test("playing stops where a breakpoint is, and at the end", () => {
  for (const one of cases) {
    const replay = new Replay(one.trace);
    for (const speed of [1, 3, 1000]) {
      const cursor = new Cursor(replay);
      while (cursor.play(speed)) assert.ok(cursor.position < replay.end);
      assert.equal(cursor.position, replay.end);
      if (replay.end - replay.first < 2) continue;
      const pc = replay.pc(replay.end - 1);
      cursor.restart().toggle(pc);
      const expected = new Cursor(replay, { breakpoints: [pc] }).resume().position;
      while (cursor.play(speed));
      assert.equal(cursor.position, expected);
    }
  }
});

test("a slider that is dragged counts as one move from where it began", () => {
  for (const one of cases) {
    const replay = new Replay(one.trace);
    const dragged = new Cursor(replay).step();
    const jumped = new Cursor(replay).step();
    for (let position = replay.end; position >= replay.first; position--) dragged.glide(position);
    const target = Math.min(replay.first + 2, replay.end);
    dragged.glide(target).goto(target);
    jumped.goto(target);
    assert.deepEqual(dragged.trail(), jumped.trail());
    const back = new Cursor(replay).step().select(0);
    const { position } = back;
    back.glide(replay.end).glide(position).goto(position);
    assert.equal(back.selected, 0);
  }
});
