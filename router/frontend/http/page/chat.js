"use strict";

// --- Conversation ---

let messages = [];
let stop = null;  // AbortController of the answer in progress

function welcome() {
  messages = [];
  $("log").replaceChildren(make("p", "welcome", "Ask the model something. Point at a token to see its alternatives."));
}

function addTurn(role, text) {
  $("log").querySelector(".welcome")?.remove();
  const turn = make("div", `turn ${role}`);
  const body = make("div", "text", text);
  const facts = make("div", "facts");
  turn.append(body, facts);
  $("log").append(turn);
  $("log").scrollTop = $("log").scrollHeight;
  return { turn, body, facts };
}

function requestBody() {
  const body = { stream: true, stream_options: { include_usage: true } };
  if ($("temperature").value !== "") body.temperature = Number($("temperature").value);
  if ($("max").value !== "") body.max_tokens = Number($("max").value);
  if (status && !status.has_chat_template) {
    return ["/v1/completions", { ...body, max_tokens: body.max_tokens ?? 256, prompt: messages.at(-1).content }];
  }
  const system = $("system").value.trim();
  const all = system ? [{ role: "system", content: system }, ...messages] : messages;
  return ["/v1/chat/completions", { ...body, messages: all, logprobs: true, top_logprobs: 5, separate_reasoning: false }];
}

async function answer() {
  const { turn, body, facts } = addTurn("assistant", "");
  turn.classList.add("running");
  const asked = performance.now();
  const tokens = new TokenText(body);
  const conversation = messages;  // "New chat" may replace `messages` meanwhile
  let text = "";
  let first = 0;
  let n = 0;
  let reason = null;
  let lost = false;
  const tell = () => {
    const parts = [];
    if (first) parts.push(`first token after ${Math.round(first - asked)} ms`);
    const seconds = (performance.now() - first) / 1000;
    if (n > 1 && seconds > 0) parts.push(`${((n - 1) / seconds).toFixed(1)} tokens/s`, `${n} tokens`);
    if (reason === "length") parts.push("cut off: the token limit was reached");
    if (lost) parts.push("connection lost, reconnecting");
    facts.textContent = parts.join(" · ");
  };
  const showLost = (isLost) => {
    lost = isLost;
    turn.classList.toggle("lost", lost);
    tell();
  };
  stop = new AbortController();
  $("send").textContent = "Stop";
  try {
    const [path, request] = requestBody();
    for await (const event of answerEvents(path, request, stop.signal, showLost)) {
      if (event.error) throw new Error(event.error.message);
      const choice = event.choices[0];
      if (!choice) {
        n = event.usage.completion_tokens;
        continue;
      }
      const piece = choice.delta?.content ?? choice.text ?? "";
      const logprobs = choice.logprobs?.content ?? [];
      if (!first && (piece || logprobs.length)) first = performance.now();
      n += logprobs.length;
      text += piece;
      reason = choice.finish_reason ?? reason;
      const atEnd = $("log").scrollHeight - $("log").scrollTop - $("log").clientHeight < 60;
      tokens.push(piece, logprobs);
      if (atEnd) $("log").scrollTop = $("log").scrollHeight;
      tell();
    }
    tell();
  } catch (error) {
    showLost(false);
    const told = error.name === "AbortError" ? "stopped" : error.message;
    facts.append(make("span", error.name === "AbortError" ? "" : "failure", `${facts.textContent ? " · " : ""}${told}`));
  }
  tokens.flush();
  turn.classList.remove("running");
  $("send").textContent = "Send";
  stop = null;
  if (text) conversation.push({ role: "assistant", content: text });
  else conversation.pop();
}

function send() {
  const question = $("question").value.trim();
  if (stop || !question) return;
  $("question").value = "";
  grow();
  messages.push({ role: "user", content: question });
  addTurn("user", question);
  answer();
}

function grow() {
  $("question").style.height = "auto";
  $("question").style.height = `${Math.min(192, $("question").scrollHeight + 2)}px`;
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (stop) stop.abort();
  else send();
});
$("question").addEventListener("input", grow);
$("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    send();
  }
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop?.abort();
});
$("new").addEventListener("click", () => {
  stop?.abort();
  welcome();
  $("question").focus();
});
$("shade").addEventListener("change", () => $("log").classList.toggle("shaded", $("shade").checked));
addEventListener("pagehide", () => stop?.abort());
welcome();
poll();
