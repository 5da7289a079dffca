/** Which tools an answer may call, and whether it has to: what a request says, and what its answer is held to for that. */
import { didYouMean } from '../did-you-mean.js';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import { ANY_ARGUMENTS, type AskedTool, type ToolsAsk } from './formats/tool-grammar.js';
import { isJsonObject, type JsonObject } from './json-file.js';

/**
 * `auto`: the model calls tools or answers. `none`: it answers, and sees no tools. `required`: it calls some. `{name}`: it
 * calls this one, once. `{mode, tools}`: of all that it sees it may, or has to, call these.
 */
export type ToolChoice =
  | 'auto'
  | 'none'
  | 'required'
  | { readonly name: string }
  | { readonly mode: 'auto' | 'required'; readonly tools: readonly string[] };

/** Errors: `invalid-parameter`, where `toolChoice`. */
export function checkToolChoice(choice: unknown): ToolChoice {
  if (choice === undefined) return 'auto';
  if (choice === 'auto' || choice === 'none' || choice === 'required') return choice;
  if (isJsonObject(choice)) {
    const { name, mode, tools } = choice;
    if (typeof name === 'string' && name !== '') return { name };
    const named = Array.isArray(tools) && tools.every((one) => typeof one === 'string');
    if ((mode === 'auto' || mode === 'required') && named && tools.length > 0)
      return { mode, tools: tools as string[] };
  }
  throw new KvantError(
    'invalid-parameter',
    '`toolChoice` takes "auto", "none", "required" or names of tools.',
    {
      kind: 'invalid-request',
      where: 'toolChoice',
      fix: 'Send one of the words, {name: …} for one tool, or {mode: "required", tools: [names]}.',
    },
  );
}

/** What a request with tools says of its calls. */
export interface ToolRequest {
  readonly tools?: readonly unknown[] | undefined;
  readonly toolChoice?: unknown;
  readonly parallelToolCalls?: boolean | undefined;
  readonly parseToolCalls?: boolean | undefined;
}

/**
 * What calls are held to; null where they are free. Calls that have to be are held to the schemas of their tools. Those that may
 * be are where a tool has `strict`, or some tools only may be called, or the rest of the answer has a form (`formed`).
 *
 * @param format name of the model's
 * Errors: `invalid-parameter`, `conflicting-parameters`, where `toolChoice`.
 */
export function readToolsAsk(request: ToolRequest, format: string, formed: boolean): ToolsAsk | null {
  const { tools: given = [], parallelToolCalls = true, parseToolCalls = true } = request;
  const choice = checkToolChoice(request.toolChoice);
  if (choice === 'none') return null;
  if (given.length === 0) {
    if (choice === 'auto') return null;
    throw wrong(
      'conflicting-parameters',
      '`toolChoice` asks for calls, and there are no tools.',
      'Send `tools`.',
    );
  }
  if (!parseToolCalls && choice === 'auto') return null;
  const tools = given.filter(isJsonObject).map(askedTool);
  const named = typeof choice === 'string' ? null : 'name' in choice ? [choice.name] : choice.tools;
  const allowed = named === null ? tools : named.map((name) => toolNamed(tools, name));
  const one = typeof choice !== 'string' && 'name' in choice;
  const required =
    choice === 'required' ||
    one ||
    (typeof choice !== 'string' && 'mode' in choice && choice.mode === 'required');
  const strict = allowed.some((tool) => tool.strict);
  if (!required && !strict && named === null && !formed) return null;
  return {
    format,
    // What may be called freely need not have a schema that can be enforced.
    tools: allowed.map((tool) => (required || tool.strict ? tool : { ...tool, schema: ANY_ARGUMENTS })),
    required,
    several: parallelToolCalls && !one,
  };
}

function askedTool(tool: JsonObject, i: number): AskedTool {
  const wrapped = isJsonObject(tool.function);
  const fn = wrapped ? (tool.function as JsonObject) : tool;
  const key = ['parameters', 'input_schema', 'inputSchema'].find((one) => fn[one] != null);
  return {
    name: String(fn.name ?? ''),
    schema: key === undefined ? null : JSON.stringify(fn[key]),
    strict: fn.strict === true,
    where: `tools[${i}]${wrapped ? '.function' : ''}.${key ?? 'parameters'}`,
  };
}

function toolNamed(tools: readonly AskedTool[], name: string): AskedTool {
  const tool = tools.find((one) => one.name === name);
  if (tool !== undefined) return tool;
  const names = tools.map((one) => one.name);
  const fix = `${didYouMean(name, names)} Name one of \`tools\`.`.trim();
  throw wrong('invalid-parameter', `\`toolChoice\` names "${shown(name)}", which is none of the tools.`, fix);
}

function wrong(code: string, message: string, fix: string): KvantError {
  return new KvantError(code, message, { kind: 'invalid-request', where: 'toolChoice', fix });
}
