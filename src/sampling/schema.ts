/**
 * What every sampling parameter takes. The library writes camelCase (`topP`), the HTTP body snake_case (`top_p`); some
 * have further names, those that users know from other servers.
 *
 * Plain tests of values: a schema library takes longer to load than the rest of a command's start, and this is on the
 * way to the first token.
 */

import { LOGPROBS_MODES, type SamplingOptions } from './options.js';

const MAX_STOP_STRINGS = 16;
const MAX_STOP_LENGTH = 1024;
const MAX_CHOICES = 128;
export const MAX_TOP_LOGPROBS = 20;
const MAX_BIASES = 4096;
const MAX_WORDS = 256;
const MAX_BREAKERS = 32;
const MAX_BREAKER_LENGTH = 40;

export type SamplingField = keyof SamplingOptions;

type Test = (value: unknown) => boolean;

/** How a command line says it: `--top-k <k>`, made of the field's name. */
export interface FlagRule {
  /** What stands for the value in the help, such as `<k>`; with dots in it the flag takes several. */
  readonly argument: string;
  readonly help: string;
  readonly shape: FlagShape;
  /** A request's own business, not a server's default: the seed, the end of an answer. */
  readonly requestOnly?: true;
  /** Where it is not the field's: one text a time, of a field that is a list. */
  readonly name?: string;
  /** Further names, which the help does not list. */
  readonly aliases?: readonly string[];
}

/** `texts`: as they are written; `escaped`: with \\n and \\t; `biases`: `id=bias`; a list: one of its numbers. */
export type FlagShape =
  | { readonly integer: readonly [from: number, to: number] }
  | { readonly number: readonly [from: number, to: number] }
  | { readonly oneOf: readonly number[] }
  | 'texts'
  | 'escaped'
  | 'ids'
  | 'biases';

export interface FieldRule {
  /** Its name in an HTTP body. */
  readonly wire: string;
  /** What it takes, in words that follow "takes". */
  readonly takes: string;
  readonly accepts: Test;
  /** What counts where neither request nor model says it. Absent: `resolveSampling` works it out beside other fields. */
  readonly fallback?: unknown;
  /** Absent: no flag. */
  readonly flag?: FlagRule;
}

const field = (wire: string, accepts: Test, takes: string): FieldRule => ({ wire, accepts, takes });

const flagged = (
  rule: FieldRule,
  argument: string,
  shape: FlagShape,
  help: string,
  more = {},
): FieldRule => ({
  ...rule,
  flag: { argument, shape, help, ...more },
});

const REQUEST = { requestOnly: true } as const;

const or = (fallback: unknown, rule: FieldRule): FieldRule => ({ ...rule, fallback });

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

const number = (
  wire: string,
  from: number,
  to: number,
  argument: string,
  help: string,
  note = '',
): FieldRule =>
  flagged(
    field(wire, within(from, to), `a number from ${from} to ${to}${note}`),
    argument,
    { number: [from, to] },
    help,
  );

const integer = (
  wire: string,
  from: number,
  takes: string,
  to: number = Number.MAX_SAFE_INTEGER,
): FieldRule => field(wire, whole(from, to), takes);

/** The same with a flag. */
const count = (
  wire: string,
  range: readonly [from: number, to: number],
  takes: string,
  argument: string,
  help: string,
  more = {},
): FieldRule => flagged(integer(wire, range[0], takes, range[1]), argument, { integer: range }, help, more);

const U31 = 2 ** 31 - 1;
const SAFE = Number.MAX_SAFE_INTEGER;
const isId = whole(0, U31);
const isStop = text(MAX_STOP_LENGTH);
const areStops = list(isStop, MAX_STOP_STRINGS);

/** Every parameter once. The flags of the command line stand in this order in the help. */
export const FIELDS: Readonly<Record<SamplingField, FieldRule>> = {
  maxTokens: or(null, count('max_tokens', [1, SAFE], 'an integer from 1', '<n>', 'most tokens to generate')),
  temperature: number('temperature', 0, 100, '<t>', '0 is greedy (default: the model’s)'),
  topK: count(
    'top_k',
    [-1, U31],
    'an integer from 1, or 0 or -1 for off',
    '<k>',
    'keep the k most likely tokens',
  ),
  topP: number('top_p', 0, 1, '<p>', 'keep the most likely tokens that hold so much probability'),
  minP: number('min_p', 0, 1, '<p>', 'drop tokens less likely than so much of the most likely'),
  typicalP: flagged(
    field('typical_p', above(0, 1), 'a number above 0 and at most 1, which is off'),
    '<p>',
    { number: [0, 1] },
    'keep tokens of typical surprise that hold so much probability',
  ),
  topNSigma: flagged(
    field(
      'top_n_sigma',
      (value) => value === -1 || within(0, 1000)(value),
      'a number above 0, or 0 or -1 for off',
    ),
    '<n>',
    { number: [-1, 1000] },
    'keep logits within n standard deviations of the largest',
  ),
  xtcProbability: number('xtc_probability', 0, 1, '<p>', 'how often the top choices are left out'),
  xtcThreshold: number('xtc_threshold', 0, 1, '<p>', 'what counts as a top choice (default: 0.1)'),
  mirostat: flagged(
    field('mirostat', oneOf(0, 2), '2 (mirostat 2), or 0 for off'),
    '<n>',
    { oneOf: [0, 2] },
    'mirostat 2 in place of the filters',
  ),
  mirostatTau: flagged(
    field('mirostat_tau', above(0, 100), 'a number above 0, at most 100'),
    '<bits>',
    { number: [0, 100] },
    'surprise that mirostat aims at (default: 5)',
  ),
  mirostatEta: number('mirostat_eta', 0, 1, '<n>', 'how fast mirostat adapts (default: 0.1)'),
  // Logits are divided by it, as f32: by far less they would be infinite.
  repetitionPenalty: or(
    1,
    flagged(
      field('repetition_penalty', within(0.01, 100), 'a number from 0.01 to 100; 1 is off'),
      '<n>',
      { number: [0.01, 100] },
      'weakens tokens seen in prompt or answer; 1 is off',
      { aliases: ['repeat-penalty'] },
    ),
  ),
  repetitionContextSize: count(
    'repetition_context_size',
    [-1, U31],
    'a number of tokens, or 0 or -1 for all',
    '<n>',
    'so many last tokens count for it (default: all)',
  ),
  frequencyPenalty: or(
    0,
    number('frequency_penalty', -2, 2, '<n>', 'weakens tokens by how often they were generated'),
  ),
  presencePenalty: or(0, number('presence_penalty', -2, 2, '<n>', 'weakens tokens once they were generated')),
  dryMultiplier: number(
    'dry_multiplier',
    0,
    100,
    '<n>',
    'strength of DRY, against repeated sequences; 0 is off',
    '; 0 is off',
  ),
  dryBase: number('dry_base', 1, 100, '<n>', 'growth of DRY with the length of a repetition (default: 1.75)'),
  dryAllowedLength: count(
    'dry_allowed_length',
    [1, U31],
    'an integer from 1',
    '<n>',
    'repetitions shorter than this are free (default: 2)',
  ),
  dryPenaltyLastN: count(
    'dry_penalty_last_n',
    [-1, U31],
    'a number of tokens, -1 for all, or 0 for off',
    '<n>',
    'tokens that DRY looks back on (default: -1, all)',
  ),
  drySequenceBreakers: flagged(
    field(
      'dry_sequence_breakers',
      list(text(MAX_BREAKER_LENGTH), MAX_BREAKERS),
      `a list of up to ${MAX_BREAKERS} strings of 1 to ${MAX_BREAKER_LENGTH} characters`,
    ),
    '<text...>',
    'escaped',
    'texts that end a repetition (default: newline : " *)',
    { name: 'dry-sequence-breaker' },
  ),
  logitBias: flagged(
    field(
      'logit_bias',
      isBiases,
      `an object of up to ${MAX_BIASES} token ids, each with a number from -100 to 100`,
    ),
    '<id=bias...>',
    'biases',
    'add to the logits of ids, e.g. 42=-100',
  ),
  badWords: or(
    [],
    flagged(
      field(
        'bad_words',
        list(text(256), MAX_WORDS),
        `a list of up to ${MAX_WORDS} strings of 1 to 256 characters`,
      ),
      '<text...>',
      'texts',
      'texts that are not to be generated',
    ),
  ),
  suppressTokens: or(
    [],
    flagged(
      field('suppress_tokens', list(isId, 1_000_000), 'a list of token ids'),
      '<ids>',
      'ids',
      'ids that are not to be generated, e.g. 5,17',
    ),
  ),
  minTokens: or(
    0,
    count('min_tokens', [0, SAFE], 'an integer from 0', '<n>', 'no end before so many tokens', REQUEST),
  ),
  seed: count(
    'seed',
    [-SAFE, SAFE],
    'an integer between -2^53 and 2^53',
    '<n>',
    'the same seed gives the same answer',
    REQUEST,
  ),
  stop: flagged(
    field(
      'stop',
      (value) => isStop(value) || areStops(value),
      `a string or up to ${MAX_STOP_STRINGS} strings of 1 to ${MAX_STOP_LENGTH} characters`,
    ),
    '<text...>',
    'texts',
    'end the answer before this text',
    REQUEST,
  ),
  stopTokenIds: or(
    [],
    flagged(
      field('stop_token_ids', list(isId, 128), 'a list of up to 128 token ids'),
      '<ids>',
      'ids',
      'ids that end the answer, e.g. 2,7',
      REQUEST,
    ),
  ),
  n: integer('n', 1, `an integer from 1 to ${MAX_CHOICES}`, MAX_CHOICES),
  bestOf: integer('best_of', 1, `an integer from 1 to ${MAX_CHOICES}`, MAX_CHOICES),
  ignoreEos: field('ignore_eos', isBoolean, 'true or false'),
  logprobs: field('logprobs', isBoolean, 'true or false'),
  topLogprobs: integer('top_logprobs', 0, `an integer from 0 to ${MAX_TOP_LOGPROBS}`, MAX_TOP_LOGPROBS),
  logprobsMode: or('raw', field('logprobs_mode', oneOf(...LOGPROBS_MODES), '"raw" or "processed"')),
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
