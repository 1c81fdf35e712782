// The state of a serving engine: a fold of its events, as relaxlab/serve/events.py folds them.

/** An engine that nobody asked anything yet. */
export function emptyEngine() {
  return {
    told: false, entries: new Map(), running: [], nodes: new Map(), hits: 0, hitTokens: 0,
    evictions: 0, preemptions: 0, proposed: 0, accepted: 0,
  };
}

/** An engine as the event tells it that stands for events that were dropped. */
export function restoredEngine(told) {
  return {
    told: true,
    entries: new Map(told.entries.map(([entry, one]) => [keyOf(entry), one])),
    running: told.running.map(keyOf), nodes: new Map(told.nodes),
    hits: told.hits, hitTokens: told.hit_tokens, evictions: told.evictions,
    preemptions: told.preemptions, proposed: told.proposed, accepted: told.accepted,
  };
}

export function copyEngine(engine) {
  const copy = (map) => new Map([...map].map(([key, value]) => [key, { ...value }]));
  return {
    ...engine, entries: copy(engine.entries), running: engine.running.slice(),
    nodes: copy(engine.nodes),
  };
}

const keyOf = (entry) => entry.join(".");

function begin(engine, event, computed) {
  Object.assign(engine.entries.get(keyOf(event.entry)), {
    status: "running", sequence: event.sequence, computed,
  });
  engine.running.push(keyOf(event.entry));
}

function leave(engine, event, status) {
  const key = keyOf(event.entry);
  Object.assign(engine.entries.get(key), { status, sequence: null, computed: 0 });
  engine.running = engine.running.filter((one) => one !== key);
}

/** Change a state by one event; returns whether it was an event of an engine. */
export function foldEngine(engine, event) {
  const { entries, nodes } = engine;
  switch (event.is) {
    case "Submitted":
      entries.set(keyOf(event.entry), {
        status: "waiting", sequence: null, computed: 0, tokens: event.prompt, output: [],
      });
      break;
    case "Admitted": begin(engine, event, event.cached); break;
    case "Resumed": begin(engine, event, event.restored); break;
    case "Forked": begin(engine, event, event.computed); break;
    case "Advanced": entries.get(keyOf(event.entry)).computed = event.computed; break;
    case "Emitted": {
      const entry = entries.get(keyOf(event.entry));
      entry.tokens += event.tokens.length;
      entry.output = [...entry.output, ...event.tokens];
      break;
    }
    case "Preempted":
      engine.preemptions += 1;
      leave(engine, event, "waiting");
      break;
    case "Retried": leave(engine, event, "waiting"); break;
    case "Finished": leave(engine, event, "finished"); break;
    case "Cancelled": leave(engine, event, "cancelled"); break;
    case "Failed": leave(engine, event, "failed"); break;
    case "PrefixHit":
      engine.hits += 1;
      engine.hitTokens += event.tokens;
      break;
    case "Drafted":
      engine.proposed += event.proposed;
      engine.accepted += event.accepted;
      break;
    case "Evicted": engine.evictions += 1; break;
    case "Scheduled": case "Missed": break;
    case "NodeAdded":
      nodes.set(event.node, {
        parent: event.parent, start: event.start, pages: event.pages, holder: null, pins: 0,
      });
      break;
    case "NodeSplit": {
      const node = nodes.get(event.node);
      nodes.set(event.upper, { ...node, pages: event.pages, holder: null });
      nodes.set(event.node, {
        ...node, parent: event.upper, start: node.start + event.pages,
        pages: node.pages - event.pages,
      });
      break;
    }
    case "NodePinned":
      for (let at = event.node; at; at = nodes.get(at).parent) nodes.get(at).pins += event.change;
      break;
    case "HolderMoved": nodes.get(event.node).holder = event.holder; break;
    case "NodeRemoved": nodes.delete(event.node); break;
    default: return false;
  }
  engine.told = true;
  return true;
}

/** The state as Python's EngineState, for comparison. */
export function engineOf(engine) {
  return {
    entries: Object.fromEntries(engine.entries), running: engine.running,
    nodes: Object.fromEntries(engine.nodes), hits: engine.hits, hit_tokens: engine.hitTokens,
    evictions: engine.evictions, preemptions: engine.preemptions, proposed: engine.proposed,
    accepted: engine.accepted,
  };
}

/** What there is to say of a request. */
export function entryWords({ status, sequence, computed, tokens, output }) {
  const words = [status];
  if (sequence === null) words.push(`${tokens} tokens`);
  else words.push(`sequence ${sequence}`, `${computed} of ${tokens} tokens computed`);
  if (output.length) words.push(`${output.length} chosen`);
  return words.join(", ");
}

/** What there is to say of a node of the prefix cache. */
export function nodeWords(node, { start, pages, holder, pins }, pageSize) {
  const held = holder === null ? "by nobody now" : `by sequence ${holder}`;
  return `node ${node}: tokens ${start * pageSize} to ${(start + pages) * pageSize - 1}, held ${
    held}${pins ? `, in use by ${pins}` : ""}`;
}

/** [depth, node] of the prefix cache, parents before their children. */
export function treeOf(engine) {
  const children = new Map();
  for (const node of [...engine.nodes.keys()].sort((a, b) => a - b)) {
    const { parent } = engine.nodes.get(node);
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(node);
  }
  const rows = [];
  const pending = (children.get(0) ?? []).map((node) => [0, node]).reverse();
  while (pending.length) {
    const [depth, node] = pending.pop();
    rows.push([depth, node]);
    pending.push(...(children.get(node) ?? []).map((child) => [depth + 1, child]).reverse());
  }
  return rows;
}
