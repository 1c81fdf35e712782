// The state of a page pool at any moment of a recording: a fold of its events, as in Python.
//
// `fold` is relaxlab/runtime/kv/snapshot.py in the page, and a test compares the two after every
// event. `PoolReplay` keeps a copy of the state now and then, so that going anywhere in a recording
// costs a bounded number of folds. Neither knows a document.

import { copyEngine, emptyEngine, foldEngine, restoredEngine } from "./engine_replay.js";

const NONE = -1;
const NOTHING = [];
const COPIES = 64; // states kept at most, besides the current one
const LEAST_GAP = 512; // events between two of them

/** An empty pool. */
export function emptyPool(pages, pageSize) {
  return {
    pageSize, fresh: 0, freed: [], owners: new Int32Array(pages).fill(NONE),
    blocks: new Map(), freeBlocks: [], sequences: new Map(), round: null, imported: null,
    copied: new Map(), // page -> [page that its first rows were copied from, how many]
    coming: new Map(), // tokens named, but not appended yet, by sequence
    engine: emptyEngine(),
  };
}

/** A block; names of tokens are kept as far as any was named: most runs name none. */
class Block {
  constructor(start) {
    this.start = start;
    this.pages = [];
    this.length = 0;
    this.sink = 0;
    this.offset = 0;
    this.parent = NONE;
    this.given = [];
  }

  /** Name of each token; -1 for one that nobody named. */
  get names() {
    const { given, length } = this;
    return given.length < length ? given.concat(new Array(length - given.length).fill(NONE)) : given;
  }

  set names(names) {
    this.given = names.some((name) => name !== NONE) ? names : [];
  }

  get named() {
    return this.given.length > 0;
  }

  copy() {
    const copy = new Block(this.start);
    copy.pages = this.pages.slice();
    copy.length = this.length;
    copy.sink = this.sink;
    copy.offset = this.offset;
    copy.parent = this.parent;
    copy.given = this.given.slice();
    return copy;
  }
}

function copyOf(state) {
  const copy = (map) => new Map([...map].map(([key, value]) => [key, { ...value }]));
  const blocks = new Map();
  for (const [index, block] of state.blocks) blocks.set(index, block.copy());
  return {
    ...state, freed: state.freed.slice(), owners: state.owners.slice(), blocks,
    freeBlocks: state.freeBlocks.slice(), sequences: copy(state.sequences),
    round: state.round && { ...state.round }, engine: copyEngine(state.engine),
    copied: new Map(state.copied),
    coming: new Map([...state.coming].map(([id, names]) => [id, names.slice()])),
  };
}

function take(state, pages, block) {
  for (const page of pages) {
    const expected = state.freed.length ? state.freed.pop() : state.fresh++;
    if (expected !== page) throw new Error(`page ${page} was taken, but ${expected} was next`);
    state.owners[page] = block;
  }
}

function giveBack(state, pages) {
  for (const page of pages) {
    if (page === NONE) continue;
    state.owners[page] = NONE;
    state.copied.delete(page);
    state.freed.push(page);
  }
}

function found(map, key, what) {
  const value = map.get(key);
  if (!value) throw new Error(`an event names ${what} ${key}, which is not there`);
  return value;
}

/** Change a state by one event. */
export function fold(state, event) {
  const block = (index) => found(state.blocks, index, "block");
  const sequence = (id) => found(state.sequences, id, "sequence");
  switch (event.is) {
    case "EarlierDropped":
      Object.assign(state, restored(JSON.parse(event.state)));
      break;
    case "CacheCleared":
      Object.assign(state, emptyPool(state.owners.length, state.pageSize), { engine: state.engine });
      break;
    case "BlockCreated":
      if (state.freeBlocks.length && state.freeBlocks.pop() !== event.block) {
        throw new Error(`block ${event.block} is not the next one`);
      }
      state.blocks.set(event.block, new Block(event.start));
      break;
    case "BlockLinked":
      block(event.block).parent = event.parent;
      break;
    case "BlockFreed":
      state.blocks.delete(event.block);
      state.freeBlocks.push(event.block);
      break;
    case "PagesAllocated":
      take(state, event.pages, event.block);
      block(event.block).pages.push(...event.pages);
      break;
    case "PagesFreed": {
      const one = block(event.block);
      const gone = new Set(event.pages);
      one.pages = one.pages.filter((page) => !gone.has(page));
      giveBack(state, event.pages);
      break;
    }
    case "PlacesBorrowed":
      for (let left = event.count; left > 0; left--) block(event.block).pages.push(NONE);
      break;
    case "PlacesFilled": {
      const { pages } = block(event.block);
      take(state, event.pages, event.block);
      const news = event.pages.slice();
      pages.forEach((page, place) => { if (page === NONE) pages[place] = news.shift(); });
      break;
    }
    case "PagesShared": {
      const source = block(event.source);
      const shared = block(event.block);
      shared.pages = event.pages.slice();
      shared.length = event.length;
      for (const page of event.pages) state.owners[page] = event.block;
      // the source still has all its tokens: its names are as long as they are
      if (source.named) {
        const { names } = source;
        shared.names = names.slice(0, event.length);
        source.names = names.slice(event.length);
      }
      source.pages.splice(0, event.pages.length);
      source.start += event.length;
      source.length -= event.length;
      source.sink = event.sink;
      source.offset = event.offset;
      break;
    }
    case "PartialPageCopied":
      state.copied.set(event.page, [event.source_page, event.rows]);
      block(event.block).length = event.rows;
      block(event.block).names = namesIn(state, event.source, event.source_page)
        .slice(0, event.rows);
      break;
    case "SequenceAdded":
      state.sequences.set(event.seq_id, newSequence(event.block, 0));
      break;
    case "SequenceForked":
      state.sequences.set(event.child, newSequence(event.block, event.position));
      break;
    case "SequenceMoved":
      sequence(event.seq_id).block = event.block;
      break;
    case "SequenceRenamed":
      state.sequences.set(event.new, sequence(event.old));
      state.sequences.delete(event.old);
      break;
    case "SequenceRemoved":
      state.sequences.delete(event.seq_id);
      break;
    case "SequenceRetained":
      sequence(event.seq_id).retained = true;
      break;
    case "SequenceRevived":
      sequence(event.seq_id).retained = false;
      break;
    case "WindowEnabled":
      Object.assign(sequence(event.seq_id), {
        window: event.window, sink: event.sink, lastBlockSink: event.last_block_sink,
      });
      break;
    case "SinkMoved":
      sequence(event.seq_id).lastBlockSink = event.last_block_sink;
      break;
    case "RoundStarted":
      state.round = {
        ids: event.seq_ids, lengths: event.append_lengths, tree: Boolean(event.tree), stored: [],
        finished: false,
      };
      break;
    case "RowsStored":
      state.round.stored = sorted([...state.round.stored, event.layer]);
      break;
    case "TokensCounted":
      sequence(event.seq_id).length += event.count;
      break;
    case "Called":
      if (event.refusal) state.coming.clear(); // what was named did not come
      break;
    case "TokensNamed":
      state.coming.set(event.seq_id, [...(state.coming.get(event.seq_id) ?? []), ...event.tokens]);
      break;
    case "TokensAppended": {
      const one = block(event.block);
      const names = state.coming.get(event.seq_id)?.splice(0, event.count) ?? NOTHING;
      if (names.length) { // names stay beside their tokens
        const { given } = one;
        while (given.length < one.length) given.push(NONE);
        for (let token = 0; token < names.length; token++) given[one.length + token] = names[token];
      }
      one.length += event.count;
      break;
    }
    case "Slid": {
      const one = block(event.block);
      one.pages.splice(event.first_place, event.places.length);
      giveBack(state, event.places);
      one.given.splice(event.sink, event.tokens);
      one.length -= event.tokens;
      one.sink = event.sink;
      one.offset = event.offset;
      sequence(event.seq_id).length -= event.tokens;
      break;
    }
    case "Popped": {
      const one = block(event.block);
      one.length -= event.tokens;
      one.given.length = Math.min(one.given.length, one.length);
      one.sink = event.sink;
      one.offset = event.offset;
      sequence(event.seq_id).length -= event.tokens;
      break;
    }
    case "TokensCompacted":
      moveNames(state, event.moves);
      break;
    case "TreeGrown":
      sequence(event.seq_id).tree = event.parents;
      break;
    case "TreeDropped":
      sequence(event.seq_id).tree = [];
      break;
    case "RoundFinished":
      state.round.finished = true;
      break;
    case "ImportPrepared":
      state.imported = [];
      break;
    case "GroupImported":
      state.imported = sorted([...state.imported, event.group]);
      break;
    case "ImportFinished":
      state.imported = null;
      break;
    case "SendMarked":
      sequence(event.seq_id).send = [event.begin, event.receiver, event.slots];
      break;
    case "KernelRan": case "PagesSent": case "TokensSent": case "SequenceExported": case "SequenceImported":
    case "GroupExported": case "Misused":
      break;
    default:
      if (!foldEngine(state.engine, event)) throw new Error(`an event that this page does not know: ${event.is}`);
  }
}

/** The state that a recording begins with whose first events were dropped. */
function restored({ cache, engine, names, coming, copies }) {
  const state = emptyPool(cache.num_pages, cache.page_size);
  const named = new Map(names);
  for (const one of cache.blocks) {
    const block = new Block(one.start);
    const { pages, length, sink, offset, parent } = one;
    Object.assign(block, { pages, length, sink, offset, parent });
    block.names = named.get(one.index) ?? [];
    state.blocks.set(one.index, block);
    for (const page of pages) if (page !== NONE) state.owners[page] = one.index;
  }
  for (const one of cache.sequences) {
    state.sequences.set(one.seq_id, {
      block: one.last_block, length: one.length, window: one.window, sink: one.sink,
      lastBlockSink: one.last_block_sink, retained: one.retained, tree: one.tree, send: one.send,
    });
  }
  const { round } = cache;
  return {
    ...state, fresh: cache.fresh, freed: cache.freed, freeBlocks: cache.free_blocks,
    imported: cache.imported,
    round: round && {
      ids: round.seq_ids, lengths: round.append_lengths, tree: round.tree, stored: round.stored,
      finished: round.finished,
    },
    copied: new Map(copies.map(([page, source, rows]) => [page, [source, rows]])),
    coming: new Map(coming),
    engine: engine ? restoredEngine(engine) : emptyEngine(),
  };
}

/** Names of a block's tokens that lie in one page. */
function namesIn(state, index, page) {
  const { names } = state.blocks.get(index);
  return names.filter((_, token) => slotOf(state, index, token)[0] === page);
}

/** Let names follow the rows that move within the pages. */
function moveNames(state, moves) {
  const places = new Map(); // slot -> [block, token]
  for (const [index, one] of state.blocks) {
    for (let token = 0; token < one.length; token++) {
      const [page, row] = slotOf(state, index, token);
      places.set(page * state.pageSize + row, [one, token]);
    }
  }
  for (const [from, to] of moves) {
    const [source, token] = places.get(from) ?? [];
    const [target, place] = places.get(to) ?? [];
    if (!source || !target || (!source.named && !target.named)) continue;
    while (target.given.length <= place) target.given.push(NONE);
    target.given[place] = source.given[token] ?? NONE;
  }
}

function newSequence(block, length) {
  return {
    block, length, window: NONE, sink: 0, lastBlockSink: 0, retained: false, tree: [], send: null,
  };
}

/** Numbers in order, each once. */
function sorted(numbers) {
  return [...new Set(numbers)].sort((a, b) => a - b);
}

/** The state as relaxlab/runtime/kv/snapshot.py takes it, for comparison. */
export function snapshotOf(state) {
  const references = new Map([...state.blocks.keys()].map((index) => [index, 0]));
  const refer = (index) => references.set(index, references.get(index) + 1);
  for (const { parent } of state.blocks.values()) if (parent !== NONE) refer(parent);
  for (const { block } of state.sequences.values()) refer(block);
  const { round } = state;
  return {
    num_pages: state.owners.length, page_size: state.pageSize, fresh: state.fresh,
    freed: state.freed, free_blocks: state.freeBlocks, imported: state.imported,
    blocks: [...state.blocks.keys()].sort((a, b) => a - b).map((index) => {
      const { start, pages, length, sink, offset, parent } = state.blocks.get(index);
      return {
        index, start, pages, length, sink, offset, parent, references: references.get(index),
      };
    }),
    sequences: [...state.sequences].map(([seq_id, one]) => ({
      seq_id, last_block: one.block, length: one.length, window: one.window, sink: one.sink,
      last_block_sink: one.lastBlockSink, tree: one.tree, retained: one.retained, send: one.send,
    })),
    round: round && {
      seq_ids: round.ids, append_lengths: round.lengths, tree: round.tree, stored: round.stored,
      finished: round.finished,
    },
  };
}

/** Pages of a recorded cache at any position; position n is the moment before event n. */
export class PoolReplay {
  constructor(stream, pages, pageSize) {
    this.stream = stream;
    this.end = stream.length;
    this.pages = pages;
    this.pageSize = pageSize;
    this.gap = Math.max(LEAST_GAP, Math.ceil(this.end / COPIES));
    this.state = emptyPool(pages, pageSize);
    this.position = 0;
    this.counted = stream.kindOf("TokensCounted", ["seq_id", "count"]);
    this.appended = stream.kindOf("TokensAppended", ["seq_id", "block", "count"]);
    this.used = new Int32Array(this.end + 1); // taken pages at each position, for the curve
    this.copies = [];
    for (let index = 0; ; index++) {
      this.used[index] = this.state.fresh - this.state.freed.length;
      if (index % this.gap === 0) this.copies.push(copyOf(this.state));
      if (index === this.end) break;
      this.#apply(index);
    }
    this.position = this.end;
  }

  /** The state at a position; it is this object's own, and changes when another is asked for. */
  at(position) {
    const copy = Math.floor(position / this.gap);
    if (position < this.position || copy * this.gap > this.position) {
      this.state = copyOf(this.copies[copy]);
      this.position = copy * this.gap;
    }
    while (this.position < position) this.#apply(this.position++);
    return this.state;
  }

  /** Fold event number `index`; the two kinds that are most of any recording, without an object. */
  #apply(index) {
    const { stream, state } = this;
    const kind = stream.kinds[index];
    if (kind === this.counted) {
      stream.seek(index);
      const one = state.sequences.get(stream.number());
      if (one) {
        one.length += stream.number();
        return;
      }
    } else if (kind === this.appended && state.coming.size === 0) {
      stream.seek(index);
      stream.number(); // the sequence
      const block = state.blocks.get(stream.number());
      if (block) {
        block.length += stream.number();
        return;
      }
    }
    fold(state, stream.get(index)); // also to say what is wrong
  }
}

/** Blocks of a sequence, from the root to its end. */
export function chainOf(state, id) {
  const chain = [];
  for (let at = state.sequences.get(id).block; at !== NONE; at = state.blocks.get(at).parent) {
    chain.unshift(at);
  }
  return chain;
}

/** For each block, the sequences that pass through it, in order of their ids. */
export function usersOf(state) {
  const users = new Map([...state.blocks.keys()].map((index) => [index, []]));
  const ids = [...state.sequences.keys()].sort((a, b) => a - b);
  for (const id of ids) for (const index of chainOf(state, id)) users.get(index).push(id);
  return users;
}

/** Where token `token` of a block lies: [page, row]; the page may be -1. */
export function slotOf(state, index, token) {
  const block = state.blocks.get(index);
  const row = token < block.sink ? token : token - block.sink + block.offset;
  return [block.pages[Math.floor(row / state.pageSize)], row % state.pageSize];
}

/** [row, token] of what a block holds in one of its pages. */
export function rowsIn(state, index, page) {
  const block = state.blocks.get(index);
  const held = [];
  const first = block.pages.indexOf(page) * state.pageSize;
  // the rows of a page are neighbours among the tokens, but for those of a sink
  for (let row = 0; row < state.pageSize; row++) {
    const at = first + row;
    let token = at < block.sink ? at : at - block.offset + block.sink;
    if (at >= block.sink && (at < block.offset || token < block.sink)) token = NONE;
    if (token >= 0 && token < block.length) held.push([row, token]);
  }
  return held;
}

/** How many rows of the pool hold a token. */
export function filledRows(state) {
  let filled = 0;
  for (const [index, block] of state.blocks) {
    const rows = block.length > block.sink ? block.length - block.sink + block.offset : block.length;
    // in the middle of a call, a block may have no pages yet for its last tokens
    const whole = rows <= block.pages.length * state.pageSize && !block.pages.includes(NONE);
    if (whole) filled += block.length;
    else for (const page of block.pages) {
      if (page !== NONE) filled += rowsIn(state, index, page).length;
    }
  }
  return filled;
}

/** How many pages are free. */
export function countFree({ freed, owners, fresh }) {
  return freed.length + owners.length - fresh;
}

/** The first free pages, the one that is taken next first. */
export function nextFree({ freed, owners, fresh }, most) {
  const pages = [];
  for (let at = freed.length - 1; at >= 0 && pages.length < most; at--) pages.push(freed[at]);
  for (let page = fresh; page < owners.length && pages.length < most; page++) pages.push(page);
  return pages;
}

/** How many free pages are taken before this free one. */
export function placeInQueue({ freed, fresh }, page) {
  const at = freed.lastIndexOf(page);
  return at < 0 ? freed.length + page - fresh : freed.length - 1 - at;
}

/** The free pages, the one that is taken next first. */
export function freePages(state) {
  const pages = state.freed.slice().reverse();
  for (let page = state.fresh; page < state.owners.length; page++) pages.push(page);
  return pages;
}
