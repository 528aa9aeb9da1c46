"use strict";

// Matches a stream's text with its tokens' log-probabilities. Text arrives in whole characters, tokens in bytes. Special
// tokens have no text.
class TokenText {
  constructor(body) {
    this.body = body;
    this.decoder = new TextDecoder();
    this.tokens = [];
    this.text = "";
    this.last = performance.now();
  }
  push(text, logprobs) {
    const now = performance.now();
    for (const one of logprobs) {
      this.tokens.push({ ...one, text: this.decoder.decode(new Uint8Array(one.bytes), { stream: true }), ms: now - this.last });
      this.last = now;
    }
    this.text += text;
    while (this.tokens.length && this.text) {
      const token = this.tokens[0];
      if (this.text.startsWith(token.text)) this.add(token);
      else if (token.text.startsWith(this.text)) break;
      this.tokens.shift();
    }
    if (!this.tokens.length) this.flush();
  }
  add(token) {
    if (!token.text) return;
    const span = make("span", "token", token.text);
    span.info = token;
    span.style.setProperty("--doubt", (Math.min(1, Math.sqrt(1 - Math.exp(token.logprob))) * 0.75).toFixed(2));
    this.body.append(span);
    this.text = this.text.slice(token.text.length);
  }
  flush() {
    if (this.text) this.body.append(this.text);
    this.text = "";
  }
}

// --- A token's alternatives ---

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
  const table = make("table");
  const row = (one, chosen) => {
    const line = make("tr", chosen ? "chosen" : "");
    line.append(make("td", "", visible(one.token)), make("td", "", percent(one.logprob)));
    table.append(line);
  };
  const isChosen = (one) => one.token === info.token && one.logprob === info.logprob;
  if (!info.top_logprobs.some(isChosen)) row(info, true);
  for (const one of info.top_logprobs) row(one, isChosen(one));
  $("tip").replaceChildren(table, make("p", "", `log-probability ${info.logprob.toFixed(3).replace("-0.000", "0.000")}, after ${Math.round(info.ms)} ms`));
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

$("log").addEventListener("pointerover", (event) => (event.target.info ? showTip(event.target) : hideTip()));
$("log").addEventListener("pointerleave", hideTip);
$("log").addEventListener("scroll", hideTip);
