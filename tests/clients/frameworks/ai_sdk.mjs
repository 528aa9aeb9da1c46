// Vercel's AI SDK over both APIs: a tool, its result, structured output, streams.
// `node ai_sdk.mjs BASE_URL MODEL MODULES`
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const [baseURL, name, modules] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { generateText, jsonSchema, Output, stepCountIs, streamText, tool } = require("ai");
const { createOpenAICompatible } = require("@ai-sdk/openai-compatible");
const { createOpenAI } = require("@ai-sdk/openai");

const question = "When does the first coach from Greywell to Coldwater leave on Monday?";
const text = { type: "string" };
const calls = [];
const departures = tool({
  description: "Looks up when coaches leave.",
  inputSchema: jsonSchema({ type: "object", properties: { from: text, to: text, day: text }, required: ["from", "to", "day"],
                            additionalProperties: false }),
  execute: async (input) => {
    calls.push(input);
    return '{"departures": ["07:41"]}';
  },
});
const clock = { ...text, pattern: "^\\d\\d:\\d\\d$" };
const schema = jsonSchema({ type: "object", properties: { to: text, departure: clock }, required: ["to", "departure"],
                            additionalProperties: false });

const models = [
  createOpenAICompatible({ name: "stagecoach", baseURL, supportsStructuredOutputs: true })(name),
  createOpenAI({ baseURL, apiKey: "none" }).responses(name),
];
for (const model of models) {
  const options = { model, tools: { departures }, stopWhen: stepCountIs(3), maxRetries: 0, temperature: 0 };
  const whole = await generateText({ ...options, prompt: question });
  assert.equal(whole.steps.length, 2);
  assert.ok(whole.text && whole.finishReason === "stop");
  assert.deepEqual(Object.keys(calls.pop()).sort(), ["day", "from", "to"]);

  const streamed = streamText({ ...options, prompt: question, onError: ({ error }) => { throw error; } });
  let said = "";
  for await (const piece of streamed.textStream) said += piece;
  assert.equal(said, whole.text);
  assert.equal(calls.length, 1);

  const typed = await generateText({ ...options, prompt: `${question} Answer as JSON.`, output: Output.object({ schema }) });
  assert.match(typed.output.departure, /^\d\d:\d\d$/);
  calls.length = 0;
}
