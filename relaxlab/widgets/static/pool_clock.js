// Steps of the machine and events of a cache on one clock, as relaxlab/trace/pool_clock.py has it.

import { countUpTo } from "./replay.js";

export class PoolClock {
  /** `data` is [steps, numbers of events before them, [the last step]]. */
  constructor([steps, counts, [end]]) {
    Object.assign(this, { steps, counts, end });
  }

  /** How many events had happened when a step began. */
  eventsBefore(step) {
    const at = countUpTo(this.steps, step) - 1;
    return this.counts.length ? this.counts[Math.max(at, 0)] : 0;
  }

  /** The step, as near to another one as possible, during which an event was next. */
  stepOf(event, near) {
    const { steps, counts } = this;
    const at = countUpTo(counts, event) - 1;
    if (at < 0) return steps.length ? steps[0] : near;
    const last = at + 1 === counts.length ? this.end : steps[at + 1] - 1;
    return event > counts[at] ? last : Math.min(Math.max(steps[at], near), last);
  }

  agree(step, event) {
    return this.stepOf(event, step) === step;
  }
}
