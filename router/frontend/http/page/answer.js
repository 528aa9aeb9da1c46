"use strict";

// --- Answers in progress: one for each chat at most ---

const kMostRounds = 3;  // answers to one question, with calls of tools between them
const kSaveMs = 1000;
const running = new Map();  // chat.id -> {chat, message, view, controller}
let ended = [];  // the same of answers that ended since the last look at the pipeline

function takeUsage(message, usage) {
  const { facts } = message;
  facts.n = usage.completion_tokens;
  facts.prompt = usage.prompt_tokens;
  facts.cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  facts.stored = usage.prompt_tokens_details?.stored_tokens;
  facts.reasoning = usage.completion_tokens_details?.reasoning_tokens ?? 0;
}

function takeCalls(message, deltas) {
  message.calls ??= [];
  for (const { index, id, function: { name, arguments: args } } of deltas) {
    const call = (message.calls[index] ??= { id: "", name: "", args: "" });
    if (id) call.id = id;
    if (name) call.name = name;
    call.args += args ?? "";
  }
}

// Adds what an event brings to the message.
function takeEvent(message, event, text) {
  if (event.error) throw new Error(event.error.message);
  const choice = event.choices[0];
  if (!choice) return takeUsage(message, event.usage);
  const delta = choice.delta ?? { content: choice.text };
  const logprobs = choice.logprobs?.content ?? [];
  message.content += delta.content ?? "";
  message.thinking += delta.reasoning_content ?? "";
  if (delta.json_events) addJsonEvents(message.values, delta.json_events);
  if (delta.tool_calls) takeCalls(message, delta.tool_calls);
  text.push((delta.reasoning_content ?? "") + (delta.content ?? ""), logprobs);
  message.facts.n += logprobs.length;
  message.facts.reason = choice.finish_reason ?? message.facts.reason;
}

// Writes one answer; true if it ended by itself.
async function writeAnswer(run, isFollowUp) {
  const { chat, message, controller } = run;
  const { facts } = message;
  const asked = performance.now();
  const text = new TokenText();
  const isJson = message.mode === "json";
  let begun = 0;
  let saved = asked;
  const showLost = (isLost) => {
    facts.lost = isLost;
    run.view?.draw();
  };
  try {
    const [path, request] = requestFor(chat, message, isFollowUp);
    for await (const event of answerEvents(path, request, controller.signal, showLost)) {
      takeEvent(message, event, text);
      if (isJson) message.content = JSON.stringify(documentOf(message.values));
      const now = performance.now();
      if (!begun && event.choices?.length) {
        begun = now;
        facts.first = now - asked;
      }
      if (facts.n > 1 && now > begun) facts.rate = ((facts.n - 1) * 1000) / (now - begun);
      if (now - saved > kSaveMs) {
        saved = now;
        store.save(chat);
      }
      run.view?.draw();
    }
    return true;
  } catch (error) {
    facts.lost = false;
    if (error.name === "AbortError") facts.stopped = true;
    else message.error = error.message;
    if (isFollowUp && error instanceof Refused && error.status === 400) chat.plain = true;
    return false;
  } finally {
    text.flush();
    // Not kept in the browser's storage: they are many times as long as the text.
    Object.defineProperty(message, "tokens", { value: isJson ? [] : text.parts, enumerable: false, configurable: true });
  }
}

function newAnswer(mode) {
  return { role: "assistant", mode, content: "", thinking: "", ...(mode === "json" && { values: [] }), facts: { n: 0 } };
}

function callTools(message) {
  for (const call of message.calls) {
    const result = call.name === "departures" ? departures(call.args) : { error: `there is no tool ${call.name}` };
    call.result = JSON.stringify(result);
  }
}

// Answers the last question of the chat.
async function answer(chat) {
  const controller = new AbortController();
  let isFollowUp = false;
  for (let round = 0; round < kMostRounds; ++round) {
    const run = { chat, message: newAnswer(chat.mode), view: null, controller };
    chat.messages.push(run.message);
    chat.updated = Date.now();
    running.set(chat.id, run);
    showRun(run);
    const isWhole = await writeAnswer(run, isFollowUp);
    const { message } = run;
    const wantsTool = isWhole && message.calls?.length > 0 && !chat.plain;
    if (message.calls?.length && isWhole) callTools(message);
    if (isFollowUp && chat.plain) {
      message.error = undefined;
      message.notes = { plain: "The chat template of this model takes no results of tools. The result is above." };
    }
    ended.push(run);
    if (running.get(chat.id) === run) running.delete(chat.id);
    store.save(chat);
    run.view?.end();
    showRun(run);
    if (!wantsTool) break;
    isFollowUp = true;
  }
}

function stopAnswer(chat) {
  running.get(chat.id)?.controller.abort();
}

function answerAgain(chat, message) {
  if (running.has(chat.id)) return;
  let at = chat.messages.indexOf(message);
  while (at > 0 && chat.messages[at - 1].role !== "user") --at;
  chat.messages.length = at;
  showChat(chat);
  answer(chat);
}

function editQuestion(chat, message, content) {
  stopAnswer(chat);
  chat.messages.length = chat.messages.indexOf(message);
  askIn(chat, content);
}

function askIn(chat, content) {
  chat.messages.push({ role: "user", content });
  if (!chat.title) chat.title = content.slice(0, 80);
  showChat(chat);
  answer(chat);
}
