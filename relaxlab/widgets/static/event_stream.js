// Events out of the bytes that relaxlab/trace/event_stream.py writes.
//
// The stream is looked through once, for where each event begins; an event is decoded when it is
// asked for. So a million events cost a few megabytes and two bytes of attention each.

const GROUPS = { P: 2, T: 3 }; // numbers of one item

/** Bytes of a base64 text. */
export function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
  return bytes;
}

export class EventStream {
  /** `schema` is [[name, [[field, form], ...]], ...]; `texts` the table of texts. */
  constructor(bytes, schema, texts) {
    this.bytes = bytes;
    this.schema = schema;
    this.texts = texts;
    this.at = 0;
    this.names = schema.map(([name]) => name);
    [this.starts, this.kinds] = this.#index();
  }

  get length() {
    return this.starts.length;
  }

  #number() {
    const first = this.bytes[this.at];
    if (first < 128) { // most numbers are small
      this.at += 1;
      return first & 1 ? -((first + 1) >> 1) : first >> 1;
    }
    let low = 0;
    let scale = 1;
    for (;;) {
      const byte = this.bytes[this.at++];
      if (byte < 128) {
        low += byte * scale;
        // zigzag, without bit operations: they would cut at 32 bits
        return low % 2 ? -(low + 1) / 2 : low / 2;
      }
      low += (byte - 128) * scale;
      scale *= 128;
    }
  }

  #skip(count) {
    for (let left = count; left > 0; this.at++) if (this.bytes[this.at] < 128) left--;
  }

  #index() {
    const { bytes, schema } = this;
    let starts = new Uint32Array(1024);
    let kinds = new Uint8Array(1024); // a schema has far fewer than 256 classes
    let count = 0;
    const forms = schema.map(([, fields]) => fields.map(([, form]) => form));
    this.at = 0;
    while (this.at < bytes.length) {
      if (count === starts.length) {
        const more = new Uint32Array(2 * count);
        more.set(starts);
        starts = more;
        const moreKinds = new Uint8Array(2 * count);
        moreKinds.set(kinds);
        kinds = moreKinds;
      }
      starts[count++] = this.at;
      const kind = this.#number();
      kinds[count - 1] = kind;
      for (const form of forms[kind]) {
        if (form === "i" || form === "s") this.#skip(1);
        else this.#skip(this.#number() * (GROUPS[form] ?? 1));
      }
    }
    return [starts.subarray(0, count), kinds.subarray(0, count)];
  }

  /** Number of a class whose fields are these integers; -1 if there is none. */
  kindOf(name, fields) {
    return this.schema.findIndex(([known, found]) => known === name &&
      found.length === fields.length &&
      found.every(([field, form], at) => form === "i" && field === fields[at]));
  }

  /** Begin to read the fields of an event, one `number` after the other. */
  seek(index) {
    this.at = this.starts[index] + 1; // a class is one byte: there are fewer than 64
    if (this.bytes[this.at - 1] > 127) this.at += 1;
  }

  number() {
    return this.#number();
  }

  /** Indices of the events of a class. */
  all(name) {
    const wanted = this.names.indexOf(name);
    const found = [];
    if (wanted < 0) return found;
    const { kinds } = this;
    for (let index = 0; index < kinds.length; index++) if (kinds[index] === wanted) found.push(index);
    return found;
  }

  /** Name of an event's class, without decoding the rest. */
  kind(index) {
    return this.names[this.kinds[index]];
  }

  /** An event as {is: its class, field: value, ...}. */
  get(index) {
    this.at = this.starts[index];
    const [kind, fields] = this.schema[this.#number()];
    const event = { is: kind };
    for (const [name, form] of fields) {
      if (form === "i") event[name] = this.#number();
      else if (form === "s") event[name] = this.texts[this.#number()];
      else {
        const count = this.#number();
        const list = new Array(count);
        for (let item = 0; item < count; item++) {
          list[item] = form === "P" ? [this.#number(), this.#number()]
            : form === "T" ? [[this.#number(), this.#number()], this.#number()] : this.#number();
        }
        event[name] = form === "o" ? list[0] ?? null : list;
      }
    }
    return event;
  }
}
