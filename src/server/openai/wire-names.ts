/** Errors of the engine, in the names that a request's body has for its fields. */
import { KvantError } from '../../errors.js';
import { inWireNames } from '../../sampling/params.js';
import type { OpenAiAsked } from './schemas.js';

/** Fields of a request that are not about sampling. */
const WIRE: Readonly<Record<string, string>> = {
  queueTimeoutMs: 'queue_timeout',
  cacheSalt: 'cache_salt',
  addSpecialTokens: 'add_special_tokens',
  addGenerationPrompt: 'add_generation_prompt',
  templateOptions: 'chat_template_kwargs',
  imageProcessor: 'mm_processor_kwargs',
  'imageProcessor.minPixels': 'mm_processor_kwargs.min_pixels',
  'imageProcessor.maxPixels': 'mm_processor_kwargs.max_pixels',
  toolChoice: 'tool_choice',
  reasoningEffort: 'reasoning_effort',
  thinkingBudget: 'thinking_token_budget',
  parallelToolCalls: 'parallel_tool_calls',
  json: 'response_format',
  schema: 'response_format',
  regex: 'structured_outputs',
  choice: 'structured_outputs',
  grammar: 'grammar',
  structuralTag: 'response_format',
};

/** Names of a form: bodies have several fields for each. */
const FORMS = new Set(['json', 'schema', 'regex', 'choice', 'grammar', 'structuralTag']);

/** `asked`: what is known of the body. */
export function wireError(error: KvantError, asked?: Pick<OpenAiAsked, 'formField'> | null): KvantError {
  const { where, kind, code, message, fix, retryAfter } = error;
  // The name is the client's own, and a library's name for something may well be what is wrong with it.
  if (code === 'unknown-parameter') return error;
  const nameOf = (own: string): string => (FORMS.has(own) ? asked?.formField : null) ?? WIRE[own] ?? own;
  if (where === undefined || !Object.hasOwn(WIRE, where)) {
    const named = inWireNames(error);
    if (code !== 'conflicting-parameters') return named;
    return withMessage(named, (text) => spellAll(text, nameOf));
  }
  // A field of another server that has such a name.
  if (code === 'unsupported-parameter' && FORMS.has(where) && asked == null) return error;
  const name = nameOf(where);
  const spell = (text: string): string => text.replaceAll(`\`${where}\``, `\`${name}\``);
  return new KvantError(code, spell(message), {
    kind,
    where: name,
    ...(fix === undefined ? {} : { fix: spell(fix) }),
    ...(retryAfter === undefined ? {} : { retryAfter }),
    cause: error,
  });
}

/** Every name of a field in a text that speaks of two. */
const spellAll = (text: string, nameOf: (own: string) => string): string =>
  text.replace(/`(\w+)`/g, (shown, own: string) => (Object.hasOwn(WIRE, own) ? `\`${nameOf(own)}\`` : shown));

function withMessage(error: KvantError, spell: (text: string) => string): KvantError {
  const { where, kind, code, message, fix } = error;
  const [spelled, spelledFix] = [spell(message), fix === undefined ? undefined : spell(fix)];
  if (spelled === message && spelledFix === fix) return error;
  return new KvantError(code, spelled, {
    kind,
    ...(where === undefined ? {} : { where }),
    ...(spelledFix === undefined ? {} : { fix: spelledFix }),
    cause: error,
  });
}
