/** `tool_choice`: whether and which tools the model calls, in the words of OpenAI's chat completions (and of its responses). */
import { didYouMean } from '../../did-you-mean.js';
import { KvantError } from '../../errors.js';
import { shown } from '../../printable.js';
import type { ToolChoice } from '../../text/tool-choice.js';

/** Errors: `invalid-parameter`, `unknown-parameter` (400), naming the field. */
export function readToolChoice(value: unknown): ToolChoice {
  if (value === undefined || value === null || value === 'auto') return 'auto';
  if (value === 'none' || value === 'required') return value;
  if (typeof value !== 'object' || Array.isArray(value))
    throw invalid(
      'tool_choice',
      'takes "auto", "none", "required" or an object',
      'Send one of the words, {"type": "function", "function": {"name": "…"}}, or leave `tool_choice` out.',
    );
  const choice = value as Readonly<Record<string, unknown>>;
  const { type } = choice;
  if (type === 'function') return { name: namedTool(choice, 'tool_choice') };
  if (type === 'allowed_tools') {
    const flat = choice.allowed_tools === undefined && choice.tools !== undefined;
    refuseOthers(choice, ['type', ...(flat ? ['mode', 'tools'] : ['allowed_tools'])], 'tool_choice');
    const where = flat ? 'tool_choice' : 'tool_choice.allowed_tools';
    const allowed = flat ? choice : objectAt(choice, 'allowed_tools', 'tool_choice', ALLOWED);
    if (!flat) refuseOthers(allowed, ['mode', 'tools'], where);
    const { mode, tools } = allowed;
    if (mode !== 'auto' && mode !== 'required')
      throw invalid(`${where}.mode`, 'takes "auto" or "required"', ALLOWED);
    if (!Array.isArray(tools) || tools.length === 0)
      throw invalid(`${where}.tools`, 'takes a list of tools', ALLOWED);
    return { mode, tools: tools.map((tool, i) => allowedTool(tool, `${where}.tools[${i}]`)) };
  }
  throw invalid(
    'tool_choice.type',
    'takes "function" or "allowed_tools"',
    'Send one of them, "auto", "none" or "required", or leave `tool_choice` out.',
  );
}

const NAMED = 'Send {"type": "function", "function": {"name": "…"}}.';
const ALLOWED =
  'Send {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "…"}}]}}.';

/** The name in `{type, function: {name}}`, or in `{type, name}`. */
function namedTool(choice: Readonly<Record<string, unknown>>, where: string): string {
  const flat = choice.function === undefined && choice.name !== undefined;
  refuseOthers(choice, ['type', flat ? 'name' : 'function'], where);
  const named = flat ? choice : objectAt(choice, 'function', where, NAMED);
  if (!flat) refuseOthers(named, ['name'], `${where}.function`);
  const at = flat ? `${where}.name` : `${where}.function.name`;
  if (typeof named.name !== 'string' || named.name === '')
    throw invalid(at, 'takes the name of a tool', 'Name one of `tools`.');
  return named.name;
}

function allowedTool(tool: unknown, where: string): string {
  if (typeof tool !== 'object' || tool === null || Array.isArray(tool))
    throw invalid(where, 'takes a tool', ALLOWED);
  const given = tool as Readonly<Record<string, unknown>>;
  if (given.type !== 'function') throw invalid(`${where}.type`, 'takes "function"', ALLOWED);
  return namedTool(given, where);
}

function objectAt(
  value: Readonly<Record<string, unknown>>,
  name: string,
  prefix: string,
  fix: string,
): Readonly<Record<string, unknown>> {
  const inner = value[name];
  if (typeof inner === 'object' && inner !== null && !Array.isArray(inner))
    return inner as Readonly<Record<string, unknown>>;
  throw invalid(`${prefix}.${name}`, 'takes an object', fix);
}

function refuseOthers(
  value: Readonly<Record<string, unknown>>,
  known: readonly string[],
  prefix: string,
): void {
  for (const name of Object.keys(value)) {
    if (known.includes(name) || value[name] === undefined || value[name] === null) continue;
    const where = `${prefix}.${shown(name)}`;
    throw new KvantError('unknown-parameter', `\`${where}\` is not a parameter of this route.`, {
      kind: 'invalid-request',
      where,
      fix: didYouMean(name, known).trim() || 'Check the spelling, or leave it out.',
    });
  }
}

function invalid(where: string, takes: string, fix: string): KvantError {
  return new KvantError('invalid-parameter', `\`${where}\` ${takes}.`, {
    kind: 'invalid-request',
    where,
    fix,
  });
}
