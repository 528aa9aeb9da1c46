// Tests the official openai package for Node against a server: `node openai_node.cjs BASE_URL MODULES`, and for tools
// and structured output `node openai_node.cjs BASE_URL MODULES LOGIT_BIAS`. Exits with 0 if everything works as an
// application expects.
const assert = require("node:assert/strict");
const { createRequire } = require("node:module");
const [baseURL, modules] = process.argv.slice(2);
const OpenAI = createRequire(`${modules}/`)("openai");

const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0 });
const messages = [{ role: "user", content: "When does the first coach leave Greywell on Sunday?" }];
const greedy = { model: "demo-model", temperature: 0 };

async function main() {
  const whole = await client.chat.completions.create({ ...greedy, messages });
  const text = whole.choices[0].message.content;
  assert.ok(text);
  assert.equal(whole.choices[0].finish_reason, "stop");
  assert.equal(whole.usage.prompt_tokens + whole.usage.completion_tokens, whole.usage.total_tokens);
  assert.ok(whole._request_id);

  const pieces = [];
  let usage = null;
  const stream = await client.chat.completions.create({ ...greedy, messages, stream: true, stream_options: { include_usage: true } });
  for await (const chunk of stream) {
    if (chunk.choices.length) pieces.push(chunk.choices[0].delta.content ?? "");
    else usage = chunk.usage;
  }
  assert.equal(pieces.join(""), text);
  assert.deepEqual(usage, whole.usage);

  const helper = client.chat.completions.stream({ ...greedy, messages, logprobs: true, top_logprobs: 2 });
  const seen = [];
  helper.on("content", (delta) => seen.push(delta));
  const final = await helper.finalChatCompletion();
  assert.equal(seen.join(""), text);
  assert.equal(final.choices[0].message.content, text);
  assert.equal(final.choices[0].logprobs.content.length, whole.usage.completion_tokens);

  const completion = await client.completions.create({ ...greedy, prompt: ["The coach", "A ticket"], max_tokens: 4, n: 2 });
  assert.deepEqual(completion.choices.map((choice) => choice.index), [0, 1, 2, 3]);

  const names = [];
  for await (const model of client.models.list()) names.push(model.id);
  assert.deepEqual(names, ["demo-model"]);

  await assert.rejects(client.chat.completions.create({ ...greedy, messages, top_p: 7 }), (error) =>
    error instanceof OpenAI.BadRequestError && error.param === "top_p");
  await assert.rejects(client.chat.completions.create({ model: "gpt-4", messages }), OpenAI.NotFoundError);

  // Leaves the stream early. Its remaining data must not reach the next request.
  const abandoned = await client.completions.create({ ...greedy, prompt: "The coach", max_tokens: 1000, stream: true, ignore_eos: true });
  for await (const chunk of abandoned) {
    assert.ok(chunk.id);
    break;
  }
  const again = await client.chat.completions.create({ ...greedy, messages });
  assert.equal(again.choices[0].message.content, text);
}

// For a server whose model has a template with tools.
async function tools(toolsURL, bias) {
  const client = new OpenAI({ baseURL: toolsURL, apiKey: "none", maxRetries: 0 });
  const parameters = {
    type: "object", properties: { city: { enum: ["Rome", "Oslo"] }, days: { type: "integer", minimum: 1, maximum: 9 } },
    required: ["city", "days"], additionalProperties: false };
  const request = {
    model: "qwen2", messages: [{ role: "user", content: "Hi" }], temperature: 2, seed: 1, max_tokens: 200, logit_bias: bias,
    tools: [{ type: "function", function: { name: "weather", parameters } }], parallel_tool_calls: false };
  for (const tool_choice of ["required", { type: "function", function: { name: "weather" } }]) {
    const whole = await client.chat.completions.create({ ...request, tool_choice });
    const [call] = whole.choices[0].message.tool_calls;
    assert.equal(whole.choices[0].finish_reason, "tool_calls");
    assert.ok(["Rome", "Oslo"].includes(JSON.parse(call.function.arguments).city));

    const helper = client.chat.completions.stream({ ...request, tool_choice });
    const pieces = [];
    helper.on("tool_calls.function.arguments.delta", (event) => pieces.push(event.arguments_delta));
    const final = await helper.finalChatCompletion();
    assert.ok(pieces.length > 1);
    assert.equal(pieces.join(""), call.function.arguments);
    assert.equal(final.choices[0].message.tool_calls[0].function.arguments, call.function.arguments);
  }

  const schema = { type: "object", properties: { answer: { type: "string", maxLength: 20 } }, required: ["answer"],
                   additionalProperties: false };
  const structured = {
    model: "qwen2", messages: request.messages, temperature: 2, seed: 2, max_tokens: 200, logit_bias: bias,
    response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema } } };
  const parsed = await client.chat.completions.parse(structured);
  assert.equal(typeof parsed.choices[0].message.parsed.answer, "string");
  let text = "";
  for await (const chunk of await client.chat.completions.create({ ...structured, stream: true })) {
    text += chunk.choices[0].delta.content ?? "";
  }
  assert.deepEqual(JSON.parse(text), parsed.choices[0].message.parsed);
}

const work = process.argv[4] ? tools(baseURL, JSON.parse(process.argv[4])) : main();
work.catch((error) => {
  console.error(error);
  process.exit(1);
});
