/**
 * What every sampling parameter takes. The library writes camelCase (`topP`), the HTTP body snake_case (`top_p`); some
 * have further names, those that users know from other servers.
 *
 * Plain tests of values: a schema library takes longer to load than the rest of a command's start, and this is on the
 * way to the first token.
 */

import { LOGPROBS_MODES, type SamplingOptions } from './options.js';

export const MAX_STOP_STRINGS = 16;
export const MAX_STOP_LENGTH = 1024;
export const MAX_CHOICES = 128;
export const MAX_TOP_LOGPROBS = 20;
export const MAX_BIASES = 4096;
export const MAX_WORDS = 256;
export const MAX_BREAKERS = 32;
export const MAX_BREAKER_LENGTH = 40;

export type SamplingField = keyof SamplingOptions;

type Test = (value: unknown) => boolean;

export interface FieldRule {
  /** Its name in an HTTP body. */
  readonly wire: string;
  /** What it takes, in words that follow "takes". */
  readonly takes: string;
  readonly accepts: Test;
}

const field = (wire: string, accepts: Test, takes: string): FieldRule => ({ wire, accepts, takes });

const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);
const within =
  (from: number, to: number): Test =>
  (value) =>
    isNumber(value) && value >= from && value <= to;
const above =
  (from: number, to: number): Test =>
  (value) =>
    isNumber(value) && value > from && value <= to;
const whole =
  (from: number, to: number): Test =>
  (value) =>
    Number.isSafeInteger(value) && (value as number) >= from && (value as number) <= to;
const oneOf =
  (...known: readonly unknown[]): Test =>
  (value) =>
    known.includes(value);
const text =
  (longest: number): Test =>
  (value) =>
    typeof value === 'string' && value.length >= 1 && value.length <= longest;
const list =
  (each: Test, most: number): Test =>
  (value) =>
    Array.isArray(value) && value.length <= most && value.every(each);
const isBoolean: Test = (value) => typeof value === 'boolean';

function isBiases(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return false;
  const made: unknown = Object.getPrototypeOf(value);
  if (made !== Object.prototype && made !== null) return false;
  const entries = Object.entries(value);
  const isBias = within(-100, 100);
  return entries.length <= MAX_BIASES && entries.every(([id, bias]) => /^\d{1,10}$/.test(id) && isBias(bias));
}

const number = (wire: string, from: number, to: number, note = ''): FieldRule =>
  field(wire, within(from, to), `a number from ${from} to ${to}${note}`);

const integer = (
  wire: string,
  from: number,
  takes: string,
  to: number = Number.MAX_SAFE_INTEGER,
): FieldRule => field(wire, whole(from, to), takes);

const U31 = 2 ** 31 - 1;
const isId = whole(0, U31);
const isStop = text(MAX_STOP_LENGTH);
const areStops = list(isStop, MAX_STOP_STRINGS);

export const FIELDS: Readonly<Record<SamplingField, FieldRule>> = {
  temperature: number('temperature', 0, 100),
  topK: integer('top_k', -1, 'an integer from 1, or 0 or -1 for off', U31),
  topP: number('top_p', 0, 1),
  minP: number('min_p', 0, 1),
  typicalP: field('typical_p', above(0, 1), 'a number above 0 and at most 1, which is off'),
  topNSigma: field(
    'top_n_sigma',
    (value) => value === -1 || within(0, 1000)(value),
    'a number above 0, or 0 or -1 for off',
  ),
  xtcProbability: number('xtc_probability', 0, 1),
  xtcThreshold: number('xtc_threshold', 0, 1),
  mirostat: field('mirostat', oneOf(0, 2), '2 (mirostat 2), or 0 for off'),
  mirostatTau: field('mirostat_tau', above(0, 100), 'a number above 0, at most 100'),
  mirostatEta: number('mirostat_eta', 0, 1),
  // Logits are divided by it, as f32: by far less they would be infinite.
  repetitionPenalty: number('repetition_penalty', 0.01, 100, '; 1 is off'),
  repetitionContextSize: integer(
    'repetition_context_size',
    -1,
    'a number of tokens, or 0 or -1 for all',
    U31,
  ),
  frequencyPenalty: number('frequency_penalty', -2, 2),
  presencePenalty: number('presence_penalty', -2, 2),
  dryMultiplier: number('dry_multiplier', 0, 100, '; 0 is off'),
  dryBase: number('dry_base', 1, 100),
  dryAllowedLength: integer('dry_allowed_length', 1, 'an integer from 1', U31),
  dryPenaltyLastN: integer('dry_penalty_last_n', -1, 'a number of tokens, -1 for all, or 0 for off', U31),
  drySequenceBreakers: field(
    'dry_sequence_breakers',
    list(text(MAX_BREAKER_LENGTH), MAX_BREAKERS),
    `a list of up to ${MAX_BREAKERS} strings of 1 to ${MAX_BREAKER_LENGTH} characters`,
  ),
  logitBias: field(
    'logit_bias',
    isBiases,
    `an object of up to ${MAX_BIASES} token ids, each with a number from -100 to 100`,
  ),
  badWords: field(
    'bad_words',
    list(text(256), MAX_WORDS),
    `a list of up to ${MAX_WORDS} strings of 1 to 256 characters`,
  ),
  suppressTokens: field('suppress_tokens', list(isId, 1_000_000), 'a list of token ids'),
  minTokens: integer('min_tokens', 0, 'an integer from 0'),
  stopTokenIds: field('stop_token_ids', list(isId, 128), 'a list of up to 128 token ids'),
  seed: integer('seed', Number.MIN_SAFE_INTEGER, 'an integer between -2^53 and 2^53'),
  maxTokens: integer('max_tokens', 1, 'an integer from 1'),
  stop: field(
    'stop',
    (value) => isStop(value) || areStops(value),
    `a string or up to ${MAX_STOP_STRINGS} strings of 1 to ${MAX_STOP_LENGTH} characters`,
  ),
  n: integer('n', 1, `an integer from 1 to ${MAX_CHOICES}`, MAX_CHOICES),
  bestOf: integer('best_of', 1, `an integer from 1 to ${MAX_CHOICES}`, MAX_CHOICES),
  ignoreEos: field('ignore_eos', isBoolean, 'true or false'),
  logprobs: field('logprobs', isBoolean, 'true or false'),
  topLogprobs: integer('top_logprobs', 0, `an integer from 0 to ${MAX_TOP_LOGPROBS}`, MAX_TOP_LOGPROBS),
  logprobsMode: field('logprobs_mode', oneOf(...LOGPROBS_MODES), '"raw" or "processed"'),
};

export const FIELD_NAMES = Object.keys(FIELDS) as SamplingField[];

/** Other names of the same thing, in HTTP bodies. */
export const ALIASES: Readonly<Record<string, SamplingField>> = {
  max_completion_tokens: 'maxTokens',
  repeat_penalty: 'repetitionPenalty',
  typ_p: 'typicalP',
  mirostat_mode: 'mirostat',
};

/** Parameters other servers have and kvant does not, by wire name, with the values that ask for nothing. */
export const UNSUPPORTED: Readonly<Record<string, (value: unknown) => boolean>> = {
  use_beam_search: (value) => value === false,
  length_penalty: (value) => value === 1,
  dynatemp_range: (value) => value === 0,
  no_repeat_ngram_size: (value) => value === 0,
  prompt_logprobs: (value) => value === false,
};
