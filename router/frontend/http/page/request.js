"use strict";

// --- The request that asks for the next answer of a chat ---

const hasAnswer = (message) => Boolean(message.content || message.calls?.length);

function callMessages({ content, calls }) {
  const named = calls.map(({ id, name, args }) => ({ id, type: "function", function: { name, arguments: args } }));
  return [{ role: "assistant", content: content || null, tool_calls: named },
          ...calls.map(({ id, result }) => ({ role: "tool", tool_call_id: id, content: result }))];
}

// The conversation before message `end`. Questions without an answer are left out, because templates want turns to
// alternate; so are calls, if the model's template takes none.
function conversation(chat, end) {
  const all = [];
  if (chat.system.trim()) all.push({ role: "system", content: chat.system.trim() });
  let question = null;
  chat.messages.slice(0, end).forEach((message) => {
    if (message.role === "user") {
      question = message;
      return;
    }
    const useful = hasAnswer(message) && !(message.calls?.length && chat.plain);
    if (!useful) return;
    if (question) all.push({ role: "user", content: question.content });
    question = null;
    all.push(...(message.calls?.length ? callMessages(message) : [{ role: "assistant", content: message.content }]));
  });
  if (question) all.push({ role: "user", content: question.content });
  return all;
}

function sampling(chat) {
  const fields = {};
  for (const name of ["temperature", "top_p", "max_tokens", "seed"]) {
    if (chat[name] !== "") fields[name] = Number(chat[name]);
  }
  return fields;
}

// [path, body] for the answer `message` of the chat. `isFollowUp`: it comes after the results of tools.
function requestFor(chat, message, isFollowUp) {
  const body = { stream: true, stream_options: { include_usage: true }, ...sampling(chat) };
  const messages = conversation(chat, chat.messages.indexOf(message));
  if (status && !status.has_chat_template) {
    return ["/v1/completions", { ...body, max_tokens: body.max_tokens ?? 256, prompt: messages.at(-1).content }];
  }
  const chatBody = { ...body, messages, logprobs: true, top_logprobs: 5 };
  if (message.mode === "json") {
    return ["/v1/chat/completions", { ...body, messages, guided_json: JSON.parse(chat.schema),
                                      stream_options: { ...body.stream_options, json_events: true } }];
  }
  if (message.mode === "tool") {
    Object.assign(chatBody, { tools: [kDepartures], tool_choice: isFollowUp ? "auto" : chat.tool_choice, parallel_tool_calls: false });
  }
  return ["/v1/chat/completions", chatBody];
}
