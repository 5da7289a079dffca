/** `tool_choice`: whether the model may call tools. To make it call one takes structured output, which kvant does not have. */
import { didYouMean } from '../../did-you-mean.js';
import { KvantError } from '../../errors.js';
import { shown } from '../../printable.js';

/**
 * Errors: `invalid-parameter`, `unknown-parameter`, `unsupported-parameter` (400), naming the field.
 */
export function readToolChoice(value: unknown): 'auto' | 'none' {
  if (value === undefined || value === null || value === 'auto') return 'auto';
  if (value === 'none') return 'none';
  if (value === 'required') throw forced('"required"');
  if (typeof value !== 'object' || Array.isArray(value))
    throw invalid('tool_choice', 'takes "auto" or "none"', 'Send one of them, or leave `tool_choice` out.');
  const choice = value as Readonly<Record<string, unknown>>;
  const { type } = choice;
  if (type === 'function' || type === 'custom') {
    refuseOthers(choice, ['type', type], 'tool_choice');
    const named = objectAt(choice, type, 'tool_choice');
    refuseOthers(named, ['name'], `tool_choice.${type}`);
    if (typeof named.name !== 'string' || named.name === '')
      throw invalid(`tool_choice.${type}.name`, 'takes the name of a tool', 'Name one of `tools`.');
    throw forced(`the tool "${shown(named.name)}"`);
  }
  if (type === 'allowed_tools') {
    refuseOthers(choice, ['type', 'allowed_tools'], 'tool_choice');
    const allowed = objectAt(choice, 'allowed_tools', 'tool_choice');
    refuseOthers(allowed, ['mode', 'tools'], 'tool_choice.allowed_tools');
    throw new KvantError('unsupported-parameter', '`tool_choice` of type "allowed_tools" is not supported.', {
      kind: 'unsupported',
      where: 'tool_choice',
      fix: 'Send only the tools that the model may call, and "tool_choice": "auto".',
    });
  }
  throw invalid('tool_choice.type', 'takes "function"', 'Send "auto" or "none", or leave `tool_choice` out.');
}

function objectAt(
  value: Readonly<Record<string, unknown>>,
  name: string,
  prefix: string,
): Readonly<Record<string, unknown>> {
  const inner = value[name];
  if (typeof inner === 'object' && inner !== null && !Array.isArray(inner))
    return inner as Readonly<Record<string, unknown>>;
  throw invalid(
    `${prefix}.${name}`,
    'takes an object',
    'Send {"type": "function", "function": {"name": "…"}}.',
  );
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

function forced(what: string): KvantError {
  return new KvantError('unsupported-parameter', `\`tool_choice\` asks for ${what}: no call can be forced.`, {
    kind: 'unsupported',
    where: 'tool_choice',
    fix: 'Send "auto", and ask for the call in a message. Forcing one needs structured output, which is not supported.',
  });
}

function invalid(where: string, takes: string, fix: string): KvantError {
  return new KvantError('invalid-parameter', `\`${where}\` ${takes}.`, {
    kind: 'invalid-request',
    where,
    fix,
  });
}
