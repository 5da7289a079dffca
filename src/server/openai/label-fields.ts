/**
 * Fields that name a request or its sender, or are hints to services that kvant does not have: billing tiers, caches that want to
 * be told, drafts of the answer. None of them changes what the model says, so they have no effect here; their values are
 * checked all the same.
 */
import { z } from 'zod';

/** OpenAI's limits. */
const MOST_PAIRS = 16;
const LONGEST_KEY = 64;
const LONGEST_VALUE = 512;
/** Of names that have no limit in OpenAI's documentation. */
const LONGEST_LABEL = 512;

const label = (longest: number): z.ZodType =>
  z.string('takes a string').refine((text) => characters(text) <= longest, {
    message: `takes a string of up to ${longest} characters`,
  });

const oneOf = (...known: readonly string[]): z.ZodType =>
  z.enum(known, `takes ${known.map((name) => `"${name}"`).join(', ')}`);

const hint = <T extends z.ZodRawShape>(shape: T): z.ZodType => z.looseObject(shape, 'takes an object');

export const LABELS = {
  user: label(LONGEST_LABEL).nullish(),
  safety_identifier: label(LONGEST_KEY).nullish(),
  prompt_cache_key: label(LONGEST_LABEL).nullish(),
  session_id: label(LONGEST_LABEL).nullish(),
  metadata: z.unknown().superRefine(checkMetadata).nullish(),
  service_tier: oneOf('auto', 'default', 'flex', 'scale', 'priority', 'fast').nullish(),
  prompt_cache_retention: oneOf('in_memory', 'in-memory', '24h').nullish(),
  prompt_cache_options: hint({
    mode: oneOf('implicit', 'explicit').nullish(),
    ttl: z.string('takes a string').nullish(),
  }).nullish(),
} as const;

/** Of chats alone. */
export const CHAT_LABELS = {
  prediction: hint({
    type: oneOf('content'),
    content: z.union([z.string(), z.array(z.unknown())], 'takes a string or a list of text parts'),
  }).nullish(),
} as const;

/** The names of what such an object may hold. */
export const HINT_FIELDS: Readonly<Record<string, readonly string[]>> = {
  prompt_cache_options: ['mode', 'ttl'],
  prediction: ['type', 'content'],
};

function checkMetadata(value: unknown, context: z.RefinementCtx): void {
  if (value === undefined || value === null) return;
  const refuse = (message: string, ...path: string[]): void =>
    context.addIssue({ code: 'custom', message, path });
  if (typeof value !== 'object' || Array.isArray(value)) {
    refuse('takes an object');
    return;
  }
  const pairs = Object.entries(value);
  if (pairs.length > MOST_PAIRS) {
    refuse(`takes up to ${MOST_PAIRS} keys, got ${pairs.length}`);
    return;
  }
  for (const [key, text] of pairs) {
    if (characters(key) > LONGEST_KEY) refuse(`takes keys of up to ${LONGEST_KEY} characters`);
    else if (typeof text !== 'string') refuse('takes a string', key);
    else if (characters(text) > LONGEST_VALUE) refuse(`takes up to ${LONGEST_VALUE} characters`, key);
    else continue;
    return;
  }
}

/** Code points, counted no further than matters. */
function characters(text: string): number {
  return text.length > 4 * LONGEST_VALUE ? text.length : [...text].length;
}
