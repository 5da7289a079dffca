/** How much a model shall think, in everybody's words: OpenAI's, OpenRouter's, vLLM's, llama.cpp's, Anthropic's. */
import type { ChatRequest } from '../../engine/types.js';
import { KvantError } from '../../errors.js';
import { REASONING_EFFORTS, type ReasoningEffort } from '../../text/reasoning-effort.js';
import { type Body, refuseUnknown } from '../request-body.js';

/** Names of a budget; −1 is none. */
const BUDGETS = ['thinking_token_budget', 'thinking_budget', 'reasoning_budget'] as const;

export const REASONING_REQUEST_FIELDS = ['reasoning_effort', 'reasoning', 'thinking', ...BUDGETS] as const;

/** What is said of thoughts, and `enableThinking` for the template. Errors: `invalid-parameter`, `unknown-parameter`, `conflicting-parameters`. */
export function reasoningFields(
  body: Body,
): Pick<ChatRequest, 'reasoningEffort' | 'thinkingBudget'> & { readonly enableThinking?: boolean } {
  const efforts: [string, ReasoningEffort][] = [];
  const budgets: [string, number][] = [];
  const switches: [string, boolean][] = [];
  if (body.reasoning_effort != null)
    efforts.push(['reasoning_effort', effort('reasoning_effort', body.reasoning_effort)]);
  for (const name of BUDGETS) if (body[name] != null) budgets.push([name, budget(name, body[name])]);
  if (body.reasoning != null) {
    const given = objectAt('reasoning', body.reasoning);
    refuseUnknown(given, {
      names: new Set(['effort', 'max_tokens', 'enabled', 'summary']),
      prefix: 'reasoning.',
    });
    if (given.effort != null) efforts.push(['reasoning.effort', effort('reasoning.effort', given.effort)]);
    if (given.max_tokens != null)
      budgets.push(['reasoning.max_tokens', budget('reasoning.max_tokens', given.max_tokens)]);
    if (given.enabled != null) switches.push(['reasoning.enabled', flag('reasoning.enabled', given.enabled)]);
    if (given.summary != null && given.summary !== 'auto')
      throw takes('reasoning.summary', '"auto": thoughts are not summarised');
  }
  if (body.thinking != null) {
    const given = objectAt('thinking', body.thinking);
    refuseUnknown(given, { names: new Set(['type', 'budget_tokens']), prefix: 'thinking.' });
    if (given.type !== 'enabled' && given.type !== 'disabled' && given.type !== 'adaptive')
      throw takes('thinking.type', '"enabled", "disabled" or "adaptive"');
    // What is adaptive is left to the model.
    if (given.type !== 'adaptive') switches.push(['thinking.type', given.type === 'enabled']);
    if (given.budget_tokens != null)
      budgets.push(['thinking.budget_tokens', budget('thinking.budget_tokens', given.budget_tokens)]);
  }
  const reasoningEffort = oneOf(efforts);
  const tokens = oneOf(budgets);
  const enabled = oneOf(switches);
  const [asked] = efforts;
  if (asked !== undefined && enabled !== undefined && enabled !== (asked[1] !== 'none'))
    throw conflict(asked[0], switches[0]![0]);
  if (enabled === false && (tokens ?? 0) > 0) throw conflict(switches[0]![0], budgets[0]![0]);
  return {
    ...(reasoningEffort !== undefined
      ? { reasoningEffort }
      : enabled === false
        ? { reasoningEffort: 'none' }
        : {}),
    ...(tokens === undefined || tokens < 0 ? {} : { thinkingBudget: tokens }),
    ...(enabled === true ? { enableThinking: true } : {}),
  };
}

function oneOf<T>(given: readonly [string, T][]): T | undefined {
  const [first, ...others] = given;
  const other = others.find(([, value]) => value !== first![1]);
  if (other === undefined) return first?.[1];
  throw conflict(first![0], other[0]);
}

function conflict(field: string, other: string): KvantError {
  return new KvantError('conflicting-parameters', `\`${field}\` and \`${other}\` say different things.`, {
    kind: 'invalid-request',
    where: other,
    fix: 'Send one of them.',
  });
}

function effort(field: string, value: unknown): ReasoningEffort {
  const found = REASONING_EFFORTS.find((one) => one === value);
  if (found === undefined) throw takes(field, REASONING_EFFORTS.map((one) => `"${one}"`).join(', '));
  return found;
}

function budget(field: string, value: unknown): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= -1) return value;
  throw takes(field, 'a number of tokens, or -1 for any');
}

function flag(field: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  throw takes(field, 'true or false');
}

function objectAt(field: string, value: unknown): Body {
  if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Body;
  throw takes(field, 'an object');
}

function takes(field: string, wanted: string): KvantError {
  return new KvantError('invalid-parameter', `\`${field}\` takes ${wanted}.`, {
    kind: 'invalid-request',
    where: field,
    fix: `Send ${wanted}, or leave \`${field}\` out.`,
  });
}
