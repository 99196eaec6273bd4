// Asks an agent and a model with memory by OpenAI's JavaScript client and by the AI SDK: `node openai.mjs URL`.
//
// The output is one JSON object: name of a case -> {"problems"}, what is wrong with its answers by the client's own
// types, and what it found.
import { mkdirSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, isStepCount, stepCountIs, streamText, tool } from "ai";
import { Ajv } from "ajv";
import OpenAI from "openai";
import * as schemas from "typescript-json-schema";
import { z } from "zod";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const TYPES = `
import type OpenAI from "openai";
export interface CheckedModel { value: OpenAI.Models.Model }
export interface CheckedCompletion { value: OpenAI.Chat.Completions.ChatCompletion }
export interface CheckedChunk { value: OpenAI.Chat.Completions.ChatCompletionChunk }
export interface CheckedResponse { value: OpenAI.Responses.Response }
export interface CheckedEvent { value: OpenAI.Responses.ResponseStreamEvent }
`;

/** A function that says what is wrong with a value of a type of `TYPES`, as lines. */
function checker() {
  const folder = `${HERE}node_modules/.cache`;
  mkdirSync(folder, { recursive: true });
  const file = `${folder}/openai.mts`;
  writeFileSync(file, TYPES);
  const options = { strict: true, skipLibCheck: true, target: "es2022", module: "NodeNext", moduleResolution: "NodeNext" };
  const program = schemas.getProgramFromFiles([file], options);
  const generator = schemas.buildGenerator(program, { required: true, ref: true, ignoreErrors: true });
  const ajv = new Ajv({ strict: false, allErrors: true, logger: false });
  const known = {};
  return (kind, value) => {
    known[kind] ??= ajv.compile(generator.getSchemaForSymbol(`Checked${kind}`));
    const copy = JSON.parse(JSON.stringify(value));
    for (const whole of [copy, copy.response ?? {}]) {
      if (whole.object !== "response") continue;
      whole.model = "gpt-4o"; // the generator reads `string & {}` as an object
      whole.output_text ??= ""; // the client adds it
    }
    if (known[kind]({ value: copy })) return [];
    return [...new Set(known[kind].errors.map((error) => `${kind}${error.instancePath}: ${error.message}`))].slice(0, 6);
  };
}

const LOOK = { type: "object", properties: { at: { type: "string" } }, required: ["at"], additionalProperties: false };
const TOOL = { type: "function", function: { name: "look", description: "Look.", parameters: LOOK } };
const PIXEL = Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), Buffer.alloc(60)]).toString("base64");

const address = process.argv[2];
const client = new OpenAI({ baseURL: `${address}/openai/v1`, apiKey: "none", maxRetries: 0 });
const sdk = createOpenAI({ baseURL: `${address}/openai/v1`, apiKey: "none" });
const check = checker();

const lookTool = tool({
  description: "Look.",
  inputSchema: z.object({ at: z.string() }),
  execute: async ({ at }) => `the ${at} is blue`,
});

const CASES = {
  async models() {
    const models = [];
    for await (const one of client.models.list()) models.push(one);
    return { problems: models.flatMap((one) => check("Model", one)), found: models.map((one) => one.id) };
  },
  async chat() {
    const answer = await client.chat.completions.create({ model: "ann", messages: [{ role: "user", content: "say chat" }] });
    return { problems: check("Completion", answer), found: answer.choices[0].message.content };
  },
  async stream() {
    const options = { model: "ann", messages: [{ role: "user", content: "say a b c" }], stream: true };
    const stream = await client.chat.completions.create({ ...options, stream_options: { include_usage: true } });
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    const text = chunks.map((one) => one.choices[0]?.delta.content ?? "").join("");
    return { problems: chunks.flatMap((one) => check("Chunk", one)), found: text, usage: chunks.at(-1).usage !== null };
  },
  async tools() {
    const function_ = async ({ at }) => `the ${at} is blue`;
    const runnable = { ...TOOL, function: { ...TOOL.function, function: function_, parse: JSON.parse } };
    const runner = client.chat.completions.runTools({ model: "ann", messages: [{ role: "user", content: "call look" }], tools: [runnable] });
    const completions = [];
    runner.on("chatCompletion", (one) => completions.push(one));
    const found = await runner.finalContent();
    return { problems: completions.flatMap((one) => check("Completion", one)), found, count: completions.length };
  },
  async images() {
    const content = [
      { type: "text", text: "say images" },
      { type: "image_url", image_url: { url: `data:image/png;base64,${PIXEL}` } },
    ];
    const answer = await client.chat.completions.create({ model: "ann", messages: [{ role: "user", content }] });
    return { problems: check("Completion", answer), found: answer.choices[0].message.content };
  },
  async responses() {
    const first = await client.responses.create({ model: "ann", input: "say first" });
    const second = await client.responses.create({ model: "ann", input: "say second", previous_response_id: first.id });
    return { problems: [first, second].flatMap((one) => check("Response", one)), found: [first.output_text, second.output_text] };
  },
  async responseStream() {
    const stream = await client.responses.create({ model: "ann", input: "say x y z", stream: true });
    const events = [];
    for await (const event of stream) events.push(event);
    return { problems: events.flatMap((one) => check("Event", one)), found: events.at(-1).response.output[0].content[0].text };
  },
  async proxy() {
    const answer = await client.chat.completions.create({ model: "memory/test/scripted", messages: [{ role: "user", content: "say proxied" }] });
    return { problems: check("Completion", answer), found: answer.choices[0].message.content };
  },
};

for (const [name, model] of [["Chat", sdk.chat("ann")], ["Responses", sdk.responses("ann")]]) {
  CASES[`sdkText${name}`] = async () => {
    const { text, usage } = await generateText({ model, prompt: `say sdk ${name}` });
    return { problems: usage.totalTokens > 0 ? [] : ["no usage"], found: text };
  };
  CASES[`sdkStream${name}`] = async () => {
    let text = "";
    for await (const piece of streamText({ model, prompt: `say s d k ${name}` }).textStream) text += piece;
    return { problems: [], found: text };
  };
  CASES[`sdkTools${name}`] = async () => {
    const stop = (isStepCount ?? stepCountIs)(4);
    const { text, steps } = await generateText({ model, prompt: `call look ${name}`, tools: { look: lookTool }, stopWhen: stop });
    return { problems: [], found: text, count: steps.length };
  };
  CASES[`sdkHistory${name}`] = async () => {
    const messages = [{ role: "user", content: `say one ${name}` }];
    const first = await generateText({ model, messages });
    messages.push(...first.response.messages, { role: "user", content: `say two ${name}` });
    const second = await generateText({ model, messages });
    return { problems: [], found: [first.text, second.text] };
  };
  CASES[`sdkImage${name}`] = async () => {
    const content = [{ type: "text", text: `say image ${name}` }, { type: "file", mediaType: "image/png", data: Buffer.from(PIXEL, "base64") }];
    const { text } = await generateText({ model, messages: [{ role: "user", content }] });
    return { problems: [], found: text };
  };
}

const outcomes = {};
for (const [name, run] of Object.entries(CASES)) {
  try {
    outcomes[name] = await run();
  } catch (error) {
    outcomes[name] = { problems: [String(error.stack).slice(0, 600)] };
  }
}
console.log(JSON.stringify(outcomes));
