// Calls operations of the TypeScript client: `node client.mjs URL`.
//
// The first line of the output is a JSON array of the names of all operations. Then each line of the input is a call,
// {"name", "path", "arguments"}, and each further line of the output its outcome: {"problems"}, what is wrong with the
// answer by the client's own types; {"items"}, what tells those of all pages apart, of a call with "every_page"; or
// {"status", "detail"}.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import Letta from "@letta-ai/letta-client";
import { Ajv } from "ajv";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const PROBLEMS_MAX = 4;
const IDENTITY = ["id", "file_id", "otid"];

const camel = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** The names of the operations of a client's resources, as in `agents.blocks.list`. */
function* operations(resource, prefix) {
  const own = Object.getOwnPropertyNames(Object.getPrototypeOf(resource));
  for (const name of own.filter((name) => name !== "constructor" && !name.startsWith("_"))) yield prefix + name;
  for (const [name, part] of Object.entries(resource)) {
    if (!name.startsWith("_")) yield* operations(part, `${prefix}${name}.`);
  }
}

function* allOperations(client) {
  yield "health";
  for (const [name, part] of Object.entries(client)) {
    if (part?._client === client) yield* operations(part, `${name}.`);
  }
}

/** What makes JSON Schemas of the types in a file. It takes seconds, also to load. */
async function schemaGenerator(file) {
  const schemas = await import("typescript-json-schema");
  const program = schemas.getProgramFromFiles([file], {
    strict: true,
    skipLibCheck: true,
    target: "es2022",
    module: "NodeNext",
    moduleResolution: "NodeNext",
  });
  return schemas.buildGenerator(program, { required: true, ref: true, ignoreErrors: true });
}

/** A function from an operation's name to the validators of its answer and of the events of its stream; its schemas. */
function validators(names) {
  const lines = [
    'import Letta from "@letta-ai/letta-client";',
    'import type { Stream } from "@letta-ai/letta-client/core/streaming";',
    'import type { AbstractPage } from "@letta-ai/letta-client/core/pagination";',
    "type Answer<F extends (...a: never[]) => unknown> = Awaited<ReturnType<F>>;",
    "type Whole<T> = [T] extends [void] ? null : T extends Stream<infer _> ? never : T extends AbstractPage<infer I> ? I[] : T;",
    "type Event<T> = T extends Stream<infer E> ? E : never;",
  ];
  names.forEach((name, number) => {
    const method = `Answer<Letta["${name.split(".").join('"]["')}"]>`;
    lines.push(`export interface Whole${number} { value: Whole<${method}> }`);
    lines.push(`export interface Event${number} { value: Event<${method}> }`);
  });
  const folder = `${HERE}node_modules/.cache`;
  mkdirSync(folder, { recursive: true });
  const source = lines.join("\n");
  writeFileSync(`${folder}/answers.mts`, source);
  const kept = new KeptSchemas(`${folder}/schemas.json`, source + readFileSync(fileURLToPath(import.meta.url)));
  const ajv = new Ajv({ strict: false, allErrors: true, logger: false });
  let generator;
  const validator = async (kind, name) => {
    const key = `${kind}${names.indexOf(name)}`;
    if (!kept.schemas[key]) {
      generator ??= await schemaGenerator(`${folder}/answers.mts`);
      kept.add(key, generator.getSchemaForSymbol(key));
    }
    if (!ajv.getSchema(key)) addSchema(ajv, key, kept.schemas[key]);
    return ajv.getSchema(key);
  };
  return [validator, kept];
}

/** Adds a schema, and each of its definitions as a schema of its own: others have the same ones. */
function addSchema(ajv, key, { definitions = {}, ...schema }) {
  const place = (name) => `https://types.example/${Buffer.from(name).toString("hex")}`;
  const toPlace = (word, value) =>
    word === "$ref" && typeof value === "string" ? place(decodeURIComponent(value.replace("#/definitions/", ""))) : value;
  const all = Object.entries(definitions).map(([name, one]) => [place(name), one]);
  for (const [id, one] of [...all, [key, schema]]) {
    if (!(id in ajv.schemas)) ajv.addSchema(JSON.parse(JSON.stringify(one), toPlace), id);
  }
}

/** JSON Schemas of earlier runs. They follow from `source` and from the packages, with which the file is deleted. */
class KeptSchemas {
  constructor(file, source) {
    Object.assign(this, { file, source, schemas: {}, isNew: false });
    try {
      const { source: earlier, schemas } = JSON.parse(readFileSync(file));
      if (earlier === source) this.schemas = schemas;
    } catch {} // there is none, or only a part
  }

  add(key, schema) {
    this.schemas[key] = schema;
    this.isNew = true;
  }

  save() {
    if (!this.isNew) return;
    const part = `${this.file}.${process.pid}`;
    writeFileSync(part, JSON.stringify({ source: this.source, schemas: this.schemas }));
    renameSync(part, this.file);
  }
}

/** What is wrong with a value, as lines. */
function problems(validate, value) {
  if (validate({ value })) return [];
  const lines = validate.errors.map((error) => `${error.instancePath}: ${error.message}`);
  return [...new Set(lines)].slice(0, PROBLEMS_MAX);
}

/** The arguments of a TypeScript method: the last parameter of the path first, all others in one object. */
function positional(path, given) {
  const { extra_body: extra, ...named } = given;
  const last = path.match(/\{(\w+)\}[^{]*$/)?.[1];
  const values = { ...named, ...extra };
  if (Array.isArray(values.file)) {
    const [name, text, type] = values.file;
    values.file = new File([text], name, { type });
  }
  if (last === undefined) return [values];
  const { [last]: first, ...others } = values;
  return [first, others];
}

/** The items of a list, as the client's loop finds them; a list without a loop is read with `after`. */
async function allItems(send, given) {
  const items = [];
  const first = send(given);
  if (first[Symbol.asyncIterator]) {
    for await (const item of first) items.push(item);
    return items;
  }
  let page = await first;
  while (page.length) {
    items.push(...page);
    const last = items.at(-1);
    page = await send({ ...given, after: last.id ?? last });
  }
  return items;
}

/** The fields of an item that tell it from others: whole items of long lists are many megabytes. */
function identity(item) {
  if (typeof item === "string") return item;
  return Object.fromEntries(Object.entries(item).filter(([name]) => IDENTITY.includes(name)));
}

async function call(client, validator, { name, path, arguments: given, every_page: everyPage }) {
  const parts = name.split(".");
  const method = parts.pop();
  const resource = parts.reduce((place, part) => place[part], client);
  const send = (values) => resource[method](...positional(path, values));
  if (everyPage) return { items: (await allItems(send, given)).map(identity) };
  const answer = send(given);
  const value = await answer;
  if (value?.controller && value[Symbol.asyncIterator]) {
    const wrong = [];
    let events = 0;
    for await (const event of value) {
      events += 1;
      wrong.push(...problems(await validator("Event", name), event));
    }
    return { problems: events ? wrong.slice(0, PROBLEMS_MAX) : ["the stream has no event"] };
  }
  const whole = value?.getPaginatedItems ? value.getPaginatedItems() : value;
  return { problems: problems(await validator("Whole", name), whole ?? null) };
}

const client = new Letta({ baseURL: process.argv[2], apiKey: "none", maxRetries: 0, logLevel: "off" });
const names = [...allOperations(client)];
const [validator, kept] = validators(names);
console.log(JSON.stringify(names));
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  request.name = camel(request.name);
  try {
    console.log(JSON.stringify(await call(client, validator, request)));
  } catch (error) {
    console.log(JSON.stringify({ status: error.status ?? 0, detail: String(error.error?.detail ?? error.stack) }));
  }
}
kept.save();
