"use strict";

// --- Markdown as elements. marked splits the text; everything here makes elements and text nodes of the parts, so no text
// is ever read as HTML: HTML in the text is shown as it is written. ---

const kSafeLinks = new Set(["http:", "https:", "mailto:"]);
const kLongestMarkdown = 300_000;  // longer text is shown as it is
const kEntities = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };

function decodeEntities(text) {
  return text.replace(/&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-z]{2,4}));/g, (all, decimal, hex, name) => {
    if (name) return kEntities[name] ?? all;
    const code = decimal ? Number(decimal) : parseInt(hex, 16);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : all;
  });
}

function link(href, title, children) {
  let safe = null;
  try {
    const url = new URL(href);  // relative ones throw: they would point into this server
    if (kSafeLinks.has(url.protocol)) safe = url.href;
  } catch {
    // not a link
  }
  if (!safe) {
    const span = make("span");
    span.append(...children);
    return span;
  }
  const a = make("a");
  a.href = safe;
  a.rel = "noopener noreferrer";
  a.target = "_blank";
  if (title) a.title = title;
  a.append(...children);
  return a;
}

function codeBlock(token) {
  const figure = make("figure", "code");
  const caption = make("figcaption");
  const code = make("code", "", token.text);
  caption.append(make("span", "", token.lang?.split(/\s/)[0] || "code"), copyButton("Copy code", () => code.textContent));
  const pre = make("pre");
  pre.tabIndex = 0;
  pre.append(code);
  figure.append(caption, pre);
  return figure;
}

function table(token) {
  const cells = (row, tag) => {
    const line = make("tr");
    for (const cell of row) {
      const made = make(tag, cell.align ? `to-${cell.align}` : "");
      if (tag === "th") made.scope = "col";
      made.append(...inlines(cell.tokens));
      line.append(made);
    }
    return line;
  };
  const made = make("table");
  const head = make("thead");
  const body = make("tbody");
  head.append(cells(token.header, "th"));
  body.append(...token.rows.map((row) => cells(row, "td")));
  made.append(head, body);
  const scroll = make("div", "table");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "group");
  scroll.setAttribute("aria-label", "Table");
  scroll.append(made);
  return scroll;
}

function list(token) {
  const made = make(token.ordered ? "ol" : "ul");
  if (token.ordered && Number(token.start) !== 1) made.start = Number(token.start);
  for (const item of token.items) {
    const li = make("li");
    li.append(...blocks(item.tokens));
    made.append(li);
  }
  return made;
}

const wrap = (tag, tokens, className = "") => {
  const made = make(tag, className);
  made.append(...inlines(tokens));
  return made;
};

const kBlocks = {
  // In a list or a quotation: no part of the outline.
  heading: (token) => wrap("strong", token.tokens, `depth-${token.depth}`),
  paragraph: (token) => wrap("p", token.tokens),
  code: codeBlock,
  table,
  list,
  blockquote: (token) => {
    const quote = make("blockquote");
    quote.append(...blocks(token.tokens));
    return quote;
  },
  hr: () => make("hr"),
  html: (token) => make("p", "as-written", token.text),
  def: () => null,
  space: () => null,
};

const kInlines = {
  strong: (token) => wrap("strong", token.tokens),
  em: (token) => wrap("em", token.tokens),
  del: (token) => wrap("del", token.tokens),
  codespan: (token) => make("code", "", token.text),
  br: () => make("br"),
  link: (token) => link(token.href, token.title, inlines(token.tokens)),
  // Nothing is loaded from elsewhere.
  image: (token) => link(token.href, token.title, [document.createTextNode(token.text || token.href)]),
  escape: (token) => document.createTextNode(token.text),
  html: (token) => document.createTextNode(token.text),
  checkbox: (token) => document.createTextNode(token.checked ? "☑ " : "☐ "),
  text: (token) => (token.tokens ? inlines(token.tokens) : [document.createTextNode(decodeEntities(token.text))]),
};

function inlines(tokens = []) {
  return tokens.flatMap((token) => kInlines[token.type]?.(token) ?? [document.createTextNode(token.raw)]);
}

function blocks(tokens) {
  return tokens.flatMap((token) => (token.type in kBlocks ? kBlocks[token.type](token) ?? [] : inlines([token])));
}

// Shows a text that grows. Blocks that did not change keep their elements.
class MarkdownView {
  constructor(body) {
    this.body = body;
    this.shown = [];  // {raw, type, nodes, outline} of each block; `outline`: the depths of the headings that it is below
  }
  // Headings of an answer are below that of the page, and leave out no level, whatever the model wrote.
  heading(token) {
    const outline = (this.shown.at(-1)?.outline ?? []).filter((depth) => depth < token.depth);
    outline.push(token.depth);
    return { outline, nodes: [wrap(`h${Math.min(6, outline.length + 1)}`, token.tokens, `depth-${token.depth}`)] };
  }
  // Returns how many blocks are complete, as far as can be told.
  show(text) {
    let tokens;
    try {
      if (text.length > kLongestMarkdown) throw new RangeError("too long");
      tokens = marked.lexer(text, { gfm: true, breaks: true }).filter((token) => token.type !== "space");
    } catch {  // nested too deeply, or too long
      tokens = [{ type: "html", raw: text, text }];
    }
    let n = 0;
    while (n < this.shown.length && n < tokens.length && this.shown[n].raw === tokens[n].raw) ++n;
    if (n === this.shown.length - 1 && this.grow(this.shown[n], tokens[n])) ++n;
    for (const old of this.shown.splice(n)) old.nodes.forEach((node) => node.remove());
    for (const token of tokens.slice(n)) {
      const block = { raw: token.raw, type: token.type, outline: this.shown.at(-1)?.outline };
      try {
        Object.assign(block, token.type === "heading" ? this.heading(token) : { nodes: blocks([token]) });
      } catch {  // nested too deeply
        block.nodes = [make("p", "as-written", token.raw)];
      }
      this.shown.push(block);
      this.body.append(...block.nodes);
    }
    return Math.max(0, this.shown.length - 1);
  }
  // Code that grows keeps its element, with the reader's selection and place in it.
  grow(old, token) {
    if (old.type !== "code" || token?.type !== "code") return false;
    const [figure] = old.nodes;
    if (figure.querySelector("figcaption span").textContent !== (token.lang?.split(/\s/)[0] || "code")) return false;
    figure.querySelector("code").textContent = token.text;
    old.raw = token.raw;
    return true;
  }
  textOf(n) {
    return this.shown[n].nodes.map((node) => node.textContent).join(" ");
  }
}
