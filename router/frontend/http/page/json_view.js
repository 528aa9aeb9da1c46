"use strict";

// --- A JSON answer whose values are shown while they are written: the stream's JSON events ---

// Adds events to `values`, [path, text] in the order of their beginning.
function addJsonEvents(values, events) {
  for (const { path, delta } of events) {
    const last = values.at(-1);
    if (last?.[0] === path) last[1] += delta;
    else values.push([path, delta]);
  }
}

const pathParts = (path) => path.split("/").slice(1).map((part) => part.replaceAll("~1", "/").replaceAll("~0", "~"));

// "/stops/0/name" -> "stops › 1 › name"
function pathName(path) {
  return pathParts(path).map((part) => (/^\d+$/.test(part) ? String(Number(part) + 1) : part)).join(" › ") || "value";
}

// The document with these values. Events have the text of a value and not its type, so text that is written like a number,
// true, false or null becomes one.
function documentOf(values) {
  const read = (text) => (/^(true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?)$/.test(text) ? JSON.parse(text) : text);
  const root = new Map();
  for (const [path, text] of values) {
    const parts = pathParts(path);
    if (!parts.length) return read(text);
    let at = root;
    for (const part of parts.slice(0, -1)) {
      if (!(at.get(part) instanceof Map)) at.set(part, new Map());
      at = at.get(part);
    }
    at.set(parts.at(-1), read(text));
  }
  const plain = (value) => {
    if (!(value instanceof Map)) return value;
    const keys = [...value.keys()];
    const items = [...value.values()].map(plain);
    const isList = keys.length > 0 && keys.every((key, i) => key === String(i));
    return isList ? items : Object.fromEntries(keys.map((key, i) => [key, items[i]]));
  };
  return plain(root);
}

class JsonView {
  constructor(body) {
    this.list = make("dl", "json");
    body.append(this.list);
    this.n = 0;  // values that are shown
  }
  show(values) {
    // Only the last one that is shown may have grown.
    for (let i = Math.max(0, this.n - 1); i < values.length; ++i) {
      const [path, text] = values[i];
      if (i >= this.n) {
        const row = make("div");
        row.append(make("dt", "", pathName(path)), make("dd"));
        this.list.append(row);
      }
      this.list.children[i].lastElementChild.textContent = text;
    }
    this.n = values.length;
  }
}
