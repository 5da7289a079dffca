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
  structuralTag: 'response_format',
};

/** Names of a form: bodies have several fields for each. */
const FORMS = new Set(['json', 'schema', 'regex', 'choice', 'grammar', 'structuralTag']);

/** `asked`: what is known of the body. */
export function wireError(error: KvantError, asked?: Pick<OpenAiAsked, 'formField'> | null): KvantError {
  const { where, kind, code, message, fix, retryAfter } = error;
  // The name is the client's own, and a library's name for something may well be what is wrong with it.
  if (code === 'unknown-parameter') return error;
  if (where === undefined || !Object.hasOwn(WIRE, where)) return inWireNames(error);
  const name = (FORMS.has(where) ? asked?.formField : null) ?? WIRE[where]!;
  const spell = (text: string): string => text.replaceAll(`\`${where}\``, `\`${name}\``);
  return new KvantError(code, spell(message), {
    kind,
    where: name,
    ...(fix === undefined ? {} : { fix: spell(fix) }),
    ...(retryAfter === undefined ? {} : { retryAfter }),
    cause: error,
  });
}
