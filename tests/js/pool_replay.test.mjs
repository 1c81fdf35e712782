// The page's fold of a cache's events equals Python's after every event. The cases are made by
// tests/widgets/test_pool_replay_js.py; RELAXLAB_CASES names the file. Without it only the fixed
// examples run.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

const addressOf = (name) => {
  const path = new URL(`../../relaxlab/widgets/static/${name}`, import.meta.url);
  const source = readFileSync(path, "utf8")
    .replace(/from "\.\/([\w-]+\.js)"/g, (_, other) => `from "${addressOf(other)}"`);
  // through an address with the text in it: a .js file is a module for every Node only so
  return `data:text/javascript;base64,${Buffer.from(source).toString("base64")}`;
};
const load = (name) => import(addressOf(name));
const { bytesOf, EventStream } = await load("event_stream.js");
const { engineOf } = await load("engine_replay.js");
const { emptyPool, filledRows, fold, freePages, PoolReplay, rowsIn, slotOf, snapshotOf, usersOf } =
  await load("pool_replay.js");
const { PoolClock } = await load("pool_clock.js");

const { cases, clocks } = process.env.RELAXLAB_CASES
  ? JSON.parse(readFileSync(process.env.RELAXLAB_CASES, "utf8")) : { cases: [], clocks: [] };

const namesOf = (state, tokens) => Object.fromEntries([...state.blocks].map(([index, { names }]) =>
  [index, names.map((name) => tokens[name] ?? "?")]));

test("states and names equal Python's after every event, in any order of looking", () => {
  for (const { run, states, names, engines, seed } of cases) {
    const stream = new EventStream(bytesOf(run.stream), run.schema, run.texts);
    assert.equal(stream.length, states.length - 1);
    const replay = new PoolReplay(stream, run.num_pages, run.page_size);
    const order = [...states.keys()];
    for (let index = order.length - 1; index > 0; index--) { // shuffled, the same every time
      const other = (index * 7919 + seed * 104729) % (index + 1);
      [order[index], order[other]] = [order[other], order[index]];
    }
    for (const at of [...states.keys(), ...order]) {
      const state = replay.at(at);
      assert.deepEqual(snapshotOf(state), states[at], `seed ${seed}, event ${at}`);
      if (engines[at]) assert.deepEqual(engineOf(state.engine), engines[at], `seed ${seed}, ${at}`);
      const owned = state.owners.filter((block) => block >= 0).length;
      assert.equal(freePages(state).length, run.num_pages - owned);
      assert.equal(replay.used[at], owned);
      let filled = 0;
      for (const [index, block] of state.blocks) {
        for (const page of block.pages.filter((one) => one >= 0)) {
          const held = [...Array(block.length).keys()].map((token) => [slotOf(state, index, token), token])
            .filter(([[found]]) => found === page).map(([[, row], token]) => [row, token]);
          assert.deepEqual(rowsIn(state, index, page), held, `seed ${seed}, event ${at}`);
          filled += held.length;
        }
      }
      assert.equal(filledRows(state), filled);
    }
    assert.deepEqual(namesOf(replay.at(stream.length), run.tokens), names, `seed ${seed}`);
  }
});

test("an event out of order is refused", () => {
  const refused = [
    { is: "PagesAllocated", block: 0, pages: [3] },
    { is: "BlockLinked", block: 9, parent: -1 },
    { is: "TokensCounted", seq_id: 5, count: 1 },
    { is: "Unheard", of: 1 },
  ];
  for (const event of refused) assert.throws(() => fold(emptyPool(4, 2), event), Error);
  const state = emptyPool(4, 2);
  fold(state, { is: "BlockCreated", block: 0, start: 0 });
  fold(state, { is: "PagesAllocated", block: 0, pages: [0, 1] });
  fold(state, { is: "SequenceAdded", seq_id: 7, block: 0 });
  assert.deepEqual(usersOf(state), new Map([[0, [7]]]));
  assert.deepEqual(freePages(state), [2, 3]);
});

test("numbers beyond 32 bits survive", () => {
  const schema = [["N", [["value", "i"]]]];
  // zigzag of 2**40 and of -(2**40), seven bits a byte
  const bytes = Uint8Array.from([0, 128, 128, 128, 128, 128, 64, 0, 255, 255, 255, 255, 255, 63]);
  const stream = new EventStream(bytes, schema, []);
  assert.deepEqual([stream.get(0).value, stream.get(1).value], [2 ** 40, -(2 ** 40)]);
});

test("steps and events meet where Python's clock says", () => {
  for (const { data, before, steps } of clocks) {
    const clock = new PoolClock(data);
    assert.deepEqual(before.map((_, step) => clock.eventsBefore(step)), before);
    for (const [event, near, step] of steps) {
      assert.equal(clock.stepOf(event, near), step, `event ${event} near ${near}`);
      assert.ok(clock.agree(step, event));
    }
  }
  const empty = new PoolClock([[], [], [0]]);
  assert.deepEqual([empty.eventsBefore(3), empty.stepOf(3, 8)], [0, 8]);
});
