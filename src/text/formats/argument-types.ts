/** What the schemas of a request's tools say about arguments that a model writes without quotes. */
import { isJsonObject, type JsonObject } from '../json-file.js';
import { CallInput } from './call-input.js';
import { jsonCharacters } from './json-text.js';
import { pythonValue } from './python-call.js';

const DEEPEST_SCHEMA = 16;
const ALL_TYPES = ['string', 'number', 'integer', 'boolean', 'object', 'array', 'null'];

/** The names of tools in OpenAI's form, with or without a `function` around each. */
export function toolNames(tools: readonly unknown[]): string[] {
  return tools.flatMap((tool) => {
    if (!isJsonObject(tool)) return [];
    const { name } = isJsonObject(tool.function) ? tool.function : tool;
    return typeof name === 'string' && name !== '' ? [name] : [];
  });
}

export class ArgumentTypes {
  readonly #schemas = new Map<string, JsonObject>();

  /** @param tools in OpenAI's form, with or without a `function` around each */
  constructor(tools: readonly unknown[]) {
    for (const tool of tools) {
      if (!isJsonObject(tool)) continue;
      const fn = isJsonObject(tool.function) ? tool.function : tool;
      const schema = fn.parameters ?? fn.input_schema;
      if (typeof fn.name === 'string' && isJsonObject(schema)) this.#schemas.set(fn.name, schema);
    }
  }

  /** The types that a tool's argument may have; null where nothing is said. */
  of(tool: string, argument: string): ReadonlySet<string> | null {
    const schema = this.#schemas.get(tool);
    if (schema === undefined) return null;
    const found = propertyOf(schema, argument, schema, 0);
    return found === undefined ? null : typesOf(found, schema, 0);
  }
}

function propertyOf(schema: JsonObject, name: string, root: JsonObject, depth: number): unknown {
  if (depth > DEEPEST_SCHEMA) return undefined;
  const { properties, additionalProperties: others } = schema;
  if (isJsonObject(properties) && Object.hasOwn(properties, name)) return properties[name];
  for (const part of partsOf(schema, root)) {
    const found = propertyOf(part, name, root, depth + 1);
    if (found !== undefined) return found;
  }
  return isJsonObject(others) ? others : undefined;
}

/** Schemas that this one is made of. */
function partsOf(schema: JsonObject, root: JsonObject): JsonObject[] {
  const lists = [schema.anyOf, schema.oneOf, schema.allOf].flatMap((list) =>
    Array.isArray(list) ? (list as unknown[]) : [],
  );
  const named = typeof schema.$ref === 'string' ? target(schema.$ref, root) : undefined;
  return [...lists, named].filter(isJsonObject);
}

function target(ref: string, root: JsonObject): unknown {
  if (!ref.startsWith('#')) return undefined;
  let at: unknown = root;
  for (const step of ref.split('/').slice(1)) {
    const key = step.replaceAll('~1', '/').replaceAll('~0', '~');
    if (!isJsonObject(at) || !Object.hasOwn(at, key)) return undefined;
    at = at[key];
  }
  return at;
}

function typesOf(schema: unknown, root: JsonObject, depth: number): ReadonlySet<string> | null {
  if (!isJsonObject(schema) || depth > DEEPEST_SCHEMA) return null;
  const { type } = schema;
  if (typeof type === 'string') return new Set([type]);
  if (Array.isArray(type)) return new Set(type.filter((one) => typeof one === 'string'));
  const values = 'const' in schema ? [schema.const] : schema.enum;
  if (Array.isArray(values)) return new Set(values.map(typeOfValue));
  const parts = partsOf(schema, root).map((part) => typesOf(part, root, depth + 1));
  if (parts.length > 0) return new Set(parts.flatMap((part) => [...(part ?? ALL_TYPES)]));
  if (isJsonObject(schema.properties)) return new Set(['object']);
  return 'items' in schema ? new Set(['array']) : null;
}

function typeOfValue(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'array';
  return typeof value;
}

/**
 * The JSON of a value written without quotes. What the schema lets be a text is one, but for a null, a list or an object where
 * those may be too; without a schema what can be read as JSON, or as Python, is that.
 *
 * @example
 * valueJson('5', new Set(['string'])) // '"5"'
 * valueJson('True', new Set(['boolean'])) // 'true'
 */
export function valueJson(raw: string, types: ReadonlySet<string> | null): string {
  const text = raw.trim();
  const quoted = `"${jsonCharacters(raw)}"`;
  const json = isJson(text) ? text : pythonJson(text);
  if (json === null) return quoted;
  if (types === null) return json;
  if (!types.has('string')) return json;
  const kind = json === 'null' ? 'null' : json[0] === '{' ? 'object' : json[0] === '[' ? 'array' : '';
  return types.has(kind) ? json : quoted;
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** A Python literal as JSON, null if it is none. */
function pythonJson(text: string): string | null {
  const input = new CallInput();
  input.push(text);
  input.end();
  let json = '';
  const reading = pythonValue(
    input,
    (piece) => {
      json += piece;
    },
    0,
  );
  // All the text is there: it ends at once.
  return reading.next().value === true && input.unread.trim() === '' ? json : null;
}
