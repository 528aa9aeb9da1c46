"use strict";

// --- The tokens of an answer, each with its alternatives ---

// Matches a stream's text with its tokens' log-probabilities. Text arrives in whole characters, tokens in bytes. Special
// tokens have no text.
class TokenText {
  constructor() {
    this.decoder = new TextDecoder();
    this.waiting = [];
    this.parts = [];  // tokens with `text`, and strings whose tokens are not known
    this.text = "";
    this.last = performance.now();
  }
  push(text, logprobs) {
    const now = performance.now();
    for (const one of logprobs) {
      const bytes = new Uint8Array(one.bytes);
      this.waiting.push({ ...one, text: this.decoder.decode(bytes, { stream: true }), ms: now - this.last });
      this.last = now;
    }
    this.text += text;
    while (this.waiting.length && this.text) {
      const token = this.waiting[0];
      if (token.text && this.text.startsWith(token.text)) {
        this.parts.push(token);
        this.text = this.text.slice(token.text.length);
      } else if (token.text.startsWith(this.text)) {
        break;
      }
      this.waiting.shift();
    }
    if (!this.waiting.length) this.flush();
  }
  flush() {
    if (this.text) this.parts.push(this.text);
    this.text = "";
  }
}

// The text as tokens, underlined where the model was not sure.
function tokenView(parts) {
  const view = make("div", "tokens");
  view.tabIndex = 0;
  view.setAttribute("role", "group");
  view.setAttribute("aria-label", "Tokens of the answer: the left and right arrow keys go through them");
  for (const part of parts) {
    if (typeof part === "string") {
      view.append(part);
      continue;
    }
    const span = make("span", "token", part.text);
    span.info = part;
    span.style.setProperty("--doubt", (Math.min(1, Math.sqrt(1 - Math.exp(part.logprob))) * 0.75).toFixed(2));
    view.append(span);
  }
  view.addEventListener("pointerover", (event) => (event.target.info ? showTip(event.target) : hideTip()));
  view.addEventListener("pointerleave", hideTip);
  view.addEventListener("blur", hideTip);
  view.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
    event.preventDefault();
    const all = [...view.querySelectorAll(".token")];
    const at = all.indexOf(view.querySelector(".shown"));
    const next = all[Math.max(0, Math.min(all.length - 1, at < 0 ? 0 : at + (event.key === "ArrowRight" ? 1 : -1)))];
    if (!next) return;
    next.scrollIntoView({ block: "nearest" });
    showTip(next);
    announce(`${next.info.token}: ${percent(next.info.logprob)}`);
  });
  return view;
}

function percent(logprob) {
  const share = Math.exp(logprob) * 100;
  return share >= 10 ? `${share.toFixed(0)} %` : share >= 0.1 ? `${share.toFixed(1)} %` : "< 0.1 %";
}

function visible(token) {
  return token.replaceAll("\n", "↵").replaceAll(" ", "·") || "(empty)";
}

function showTip(span) {
  document.querySelector(".token.shown")?.classList.remove("shown");
  span.classList.add("shown");
  const { info } = span;
  const list = make("ul");
  const row = (one, chosen) => {
    const line = make("li", chosen ? "chosen" : "");
    const bar = make("i");
    bar.style.width = `${Math.exp(one.logprob) * 100}%`;
    line.append(make("code", "", visible(one.token)), make("span", "", percent(one.logprob)), bar);
    list.append(line);
  };
  const isChosen = (one) => one.token === info.token && one.logprob === info.logprob;
  if (!info.top_logprobs.some(isChosen)) row(info, true);
  for (const one of info.top_logprobs) row(one, isChosen(one));
  $("tip").replaceChildren(list, make("p", "", `log-probability ${info.logprob.toFixed(3).replace("-0.000", "0.000")}, after ${Math.round(info.ms)} ms`));
  $("tip").hidden = false;
  const place = span.getClientRects()[0];
  const tip = $("tip").getBoundingClientRect();
  const left = Math.max(8, Math.min(place.left, innerWidth - tip.width - 8));
  const below = place.bottom + 8 + tip.height < innerHeight;
  $("tip").style.left = `${left}px`;
  $("tip").style.top = `${below ? place.bottom + 8 : Math.max(8, place.top - tip.height - 8)}px`;
}

function hideTip() {
  document.querySelector(".token.shown")?.classList.remove("shown");
  $("tip").hidden = true;
}
