/** Tools as clients send them: what no template could make a tool of is refused, naming the field. */
import { closestName } from '../did-you-mean.js';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import { isJsonObject, type JsonObject } from './json-file.js';

const EXAMPLE = '{"type": "function", "function": {"name": "…", "parameters": {…}}}';

/**
 * A list of function tools in OpenAI's form, or of bare functions (`{name, parameters}`) as other APIs have them. Further fields are
 * the template's business.
 *
 * @throws KvantError `invalid-tools` naming the field; `unsupported-tool` for tools that are no functions
 */
export function checkToolList(tools: unknown): readonly JsonObject[] {
  const objects = toolObjects(tools);
  const names = new Set<unknown>();
  for (const [i, tool] of objects.entries()) {
    const { name, where } = checkTool(tool, `tools[${i}]`);
    if (names.has(name))
      throw invalid(
        where,
        `is "${shown(name)}", as another tool is called: calls could not tell them apart`,
        'Give each a name of its own.',
      );
    names.add(name);
  }
  return objects;
}

/**
 * A list of objects, whatever they are.
 *
 * @throws KvantError `invalid-tools` naming the entry
 */
export function toolObjects(tools: unknown): readonly JsonObject[] {
  if (!Array.isArray(tools)) throw invalid('tools', 'must be a list', `Send [${EXAMPLE}].`);
  const bad = tools.findIndex((tool) => !isJsonObject(tool));
  if (bad >= 0) throw invalid(`tools[${bad}]`, 'must be an object', `Send ${EXAMPLE}.`);
  return tools as JsonObject[];
}

interface NamedAt {
  readonly name: string;
  readonly where: string;
}

function checkTool(tool: JsonObject, where: string): NamedAt {
  const { type } = tool;
  if (type !== undefined && typeof type !== 'string')
    throw invalid(`${where}.type`, 'must be a string', 'Send "type": "function".');
  if (type !== undefined && type !== 'function') throw unsupported(type, `${where}.type`);
  if (type === undefined && tool.function === undefined) return checkFunction(tool, where);
  if (isJsonObject(tool.function)) return checkFunction(tool.function, `${where}.function`);
  throw invalid(`${where}.function`, 'must be an object', `Send ${EXAMPLE}.`);
}

/** What is read of a function. Its other fields are the template's business, but for slips of these. */
const FUNCTION_FIELDS = ['name', 'description', 'parameters', 'strict', 'input_schema', 'inputSchema'];
/** Fields of MCP's tools that look like a slip and are none. */
const NO_SLIPS = ['output_schema', 'outputSchema'];

function checkFunction(body: JsonObject, where: string): NamedAt {
  const { name, description, strict } = body;
  if (typeof name !== 'string' || name === '')
    throw invalid(`${where}.name`, 'must be a string that is not empty', 'Give the function a name.');
  if (description !== undefined && description !== null && typeof description !== 'string')
    throw invalid(`${where}.description`, 'must be a string', 'Say in words what the function does.');
  if (strict !== undefined && strict !== null && typeof strict !== 'boolean')
    throw invalid(`${where}.strict`, 'must be true or false', 'Send a boolean, or leave it out.');
  for (const key of ['parameters', 'input_schema', 'inputSchema']) {
    const schema = body[key];
    if (schema === undefined || schema === null || isJsonObject(schema)) continue;
    throw invalid(`${where}.${key}`, 'must be an object', 'Send a JSON schema, or leave it out.');
  }
  for (const key of Object.keys(body)) {
    if (FUNCTION_FIELDS.includes(key) || NO_SLIPS.includes(key)) continue;
    const meant = closestName(key, FUNCTION_FIELDS);
    if (meant !== undefined)
      throw invalid(`${where}.${shown(key)}`, 'is read by nobody', `Did you mean "${meant}"?`);
  }
  return { name, where: `${where}.name` };
}

function invalid(where: string, what: string, fix: string): KvantError {
  return new KvantError('invalid-tools', `${where} ${what}`, { kind: 'invalid-request', where, fix });
}

function unsupported(type: string, where: string): KvantError {
  return new KvantError('unsupported-tool', `${where} is "${shown(type)}": only functions are supported`, {
    kind: 'unsupported',
    where,
    fix: `Send ${EXAMPLE}, or leave the tool out.`,
  });
}
