// A stepper and the pages of the cache that its program is given, on one clock.
//
// Both views are here, and each moves the other: a step that changes the cache moves the pages, and
// the pages' own controls move the stepper to the instruction that makes the event. What the two say
// to Python goes in one message, so that Python never sees one of them without the other.

import { mountPool } from "./page_pool.js";
import { PoolClock } from "./pool_clock.js";
import { mountStepper } from "./vm_stepper.js";

function render({ model, el }) {
  const clock = new PoolClock(model.get("clock"));
  let hearing = false; // Python speaks: it knows already
  let saving = false;
  let leader = null;
  const heard = [];

  /** Tell Python where both are. What is not sent at once must not be in the model: an echo of what
   * was sent before would be taken for news. */
  function save() {
    saving = false;
    stepper.keep();
    pool.keep();
    model.save_changes();
  }

  /** The model as one of the views sees it: its `position` has another name for the other one. */
  function part(names) {
    const nameOf = (name) => names[name] ?? name;
    return {
      get: (name) => model.get(nameOf(name)),
      set: (name, value) => model.set(nameOf(name), value),
      save_changes: () => {
        if (hearing || saving) return;
        saving = true;
        queueMicrotask(save);
      },
      on: (change, listener) => {
        const event = `change:${nameOf(change.slice("change:".length))}`;
        const wrapped = () => {
          hearing = true;
          try { listener(); } finally { hearing = false; }
        };
        heard.push([event, wrapped]);
        model.on(event, wrapped);
      },
      off() {}, // all at once, below
    };
  }

  // Where each was sent by the other one. A picture in a hurry is drawn later, when the one that
  // leads may be elsewhere already: whoever was sent to a place does not lead from there.
  const sent = { stepper: null, pool: null };

  function lead(who, place, action) {
    if (leader || sent[who] === place) return;
    sent[who] = null;
    leader = who;
    try { action(); } finally { leader = null; }
  }

  let stepper = null;
  let pool = null;
  const above = document.createElement("div");
  const below = document.createElement("div");
  const both = document.createElement("div");
  const frame = document.createElement("div");
  both.className = "rl-both";
  frame.className = "rl-both-frame";
  both.append(above, below);
  frame.append(both);
  el.append(frame);
  pool = mountPool({
    model: part({ position: "event" }), el: below,
    moved: (event, hurrying) => stepper && lead("pool", event, () => {
      const step = clock.stepOf(event, stepper.at());
      if (step === stepper.at()) return;
      sent.stepper = step;
      stepper.show(step, hurrying);
    }),
  });
  stepper = mountStepper({
    model: part({}), el: above,
    moved: (step, hurrying) => lead("stepper", step, () => {
      if (clock.agree(step, pool.at())) return;
      sent.pool = clock.eventsBefore(step);
      pool.show(sent.pool, hurrying);
    }),
  });
  return () => {
    stepper.stop();
    pool.stop();
    for (const [event, listener] of heard) model.off(event, listener);
  };
}

export default { render };
