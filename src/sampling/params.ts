/**
 * Sampling parameters: what a request may say, what it means, and a refusal that names the field for the rest.
 *
 * The library writes camelCase (`topP`), the HTTP body snake_case (`top_p`): one table serves both. A parameter
 * that kvant does not have is refused unless its value asks for nothing (`frequency_penalty: 0`).
 */

import { KvantError } from '../errors.js';

/** What a request may say. Null and undefined mean: take the default. */
export interface SamplingOptions {
  /** 0 (greedy) to 100. Below 1e-5 counts as 0. */
  readonly temperature?: number | null;
  /** Keep the smallest set of most likely tokens whose mass reaches it; 1 is off. */
  readonly topP?: number | null;
  /** Keep the k most likely tokens; 0 and −1 are off. */
  readonly topK?: number | null;
  /** Drop tokens less likely than so much of the most likely one; 0 is off. */
  readonly minP?: number | null;
  /** Any safe integer. Without one a seed is drawn and reported. */
  readonly seed?: number | null;
  /** Most tokens of a choice. Default: what the context leaves. */
  readonly maxTokens?: number | null;
  /** Up to 16 strings that end the text and are not part of it. */
  readonly stop?: string | readonly string[] | null;
  /** Independent answers to the same prompt. */
  readonly n?: number | null;
  /** Go on after an EOS token (benchmarks). */
  readonly ignoreEos?: boolean | null;
}

/** Parameters with every default filled in. */
export interface SamplingParams {
  /** 0: greedy. */
  readonly temperature: number;
  /** 0: off. */
  readonly topK: number;
  /** 1: off. */
  readonly topP: number;
  /** 0: off. */
  readonly minP: number;
  readonly seed: number;
  /** Null: as far as the context goes. */
  readonly maxTokens: number | null;
  readonly stop: readonly string[];
  readonly n: number;
  readonly ignoreEos: boolean;
}

type Field = keyof SamplingParams;

/** Temperatures below this are greedy: logits divided by less would overflow f32. */
export const MIN_TEMPERATURE = 1e-5;
export const MAX_STOP_STRINGS = 16;
export const MAX_STOP_LENGTH = 1024;
export const MAX_CHOICES = 128;

interface FieldRule {
  readonly wire: string;
  readonly takes: string;
  readonly test: (value: unknown) => boolean;
}

// By hand and not with a schema library: every start of the command would wait for it to load, twice.
const isNumber =
  (from: number, to: number) =>
  (value: unknown): boolean =>
    typeof value === 'number' && value >= from && value <= to;
const isInteger =
  (from: number, to: number) =>
  (value: unknown): boolean =>
    Number.isSafeInteger(value) && isNumber(from, to)(value);
const isStopString = (value: unknown): boolean =>
  typeof value === 'string' && value.length > 0 && value.length <= MAX_STOP_LENGTH;
const { MIN_SAFE_INTEGER, MAX_SAFE_INTEGER } = Number;

const FIELDS: Readonly<Record<Field, FieldRule>> = {
  temperature: {
    wire: 'temperature',
    takes: 'a number from 0 to 100',
    test: isNumber(0, 100),
  },
  topK: { wire: 'top_k', takes: 'an integer from 1, or 0 or -1 for off', test: isInteger(-1, 2 ** 31 - 1) },
  topP: { wire: 'top_p', takes: 'a number from 0 to 1', test: isNumber(0, 1) },
  minP: { wire: 'min_p', takes: 'a number from 0 to 1', test: isNumber(0, 1) },
  seed: {
    wire: 'seed',
    takes: 'an integer between -2^53 and 2^53',
    test: isInteger(MIN_SAFE_INTEGER, MAX_SAFE_INTEGER),
  },
  maxTokens: { wire: 'max_tokens', takes: 'an integer from 1', test: isInteger(1, MAX_SAFE_INTEGER) },
  stop: {
    wire: 'stop',
    takes: `a string or up to ${MAX_STOP_STRINGS} strings of 1 to ${MAX_STOP_LENGTH} characters`,
    test: (value) =>
      isStopString(value) ||
      (Array.isArray(value) && value.length <= MAX_STOP_STRINGS && value.every(isStopString)),
  },
  n: { wire: 'n', takes: `an integer from 1 to ${MAX_CHOICES}`, test: isInteger(1, MAX_CHOICES) },
  ignoreEos: { wire: 'ignore_eos', takes: 'true or false', test: (value) => typeof value === 'boolean' },
};

const NAMES = Object.keys(FIELDS) as Field[];

const isZero = (value: unknown): boolean => value === 0;
const isOne = (value: unknown): boolean => value === 1;
const isFalse = (value: unknown): boolean => value === false;
const isEmpty = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0;
const isTextFormat = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && 'type' in value && value.type === 'text';

/** Parameters other engines have, by wire name, with the values that ask for nothing. */
const UNSUPPORTED: Readonly<Record<string, (value: unknown) => boolean>> = {
  frequency_penalty: isZero,
  presence_penalty: isZero,
  repetition_penalty: isOne,
  repetition_context_size: () => false,
  logit_bias: isEmpty,
  logprobs: isFalse,
  top_logprobs: isZero,
  logprobs_mode: () => false,
  response_format: isTextFormat,
  grammar: () => false,
  best_of: isOne,
  min_tokens: isZero,
  bad_words: isEmpty,
  stop_token_ids: isEmpty,
  typical_p: isOne,
  top_n_sigma: (value) => value === 0 || value === -1,
  xtc_probability: isZero,
  xtc_threshold: () => false,
  mirostat: isZero,
  mirostat_mode: isZero,
  mirostat_tau: () => false,
  mirostat_eta: () => false,
  dry_multiplier: isZero,
  dry_base: () => false,
  dry_allowed_length: () => false,
  dry_sequence_breakers: () => false,
};

/** Wire names that {@link samplingFromWire} knows, to honour or to refuse. */
export const KNOWN_WIRE_FIELDS: readonly string[] = [
  ...NAMES.map((name) => FIELDS[name].wire),
  ...Object.keys(UNSUPPORTED),
];

/**
 * Takes the sampling fields out of an HTTP body. `max_completion_tokens` is the newer name of `max_tokens`.
 * Errors: `invalid-parameter`, `unsupported-parameter` (both 400), `where` naming the wire field.
 */
export function samplingFromWire(body: Readonly<Record<string, unknown>>): SamplingOptions {
  refuseUnsupported(body, (name) => name);
  const options: Partial<Record<Field, unknown>> = {};
  for (const name of NAMES) {
    const { wire } = FIELDS[name];
    const value = body[wire];
    if (value === undefined || value === null) continue;
    check(name, wire, value);
    options[name] = value;
  }
  const completion = body.max_completion_tokens;
  if (completion !== undefined && completion !== null) {
    check('maxTokens', 'max_completion_tokens', completion);
    if (options.maxTokens !== undefined && options.maxTokens !== completion)
      throw new KvantError('invalid-parameter', '`max_tokens` and `max_completion_tokens` differ.', {
        kind: 'invalid-request',
        where: 'max_completion_tokens',
        fix: 'Send only `max_completion_tokens`.',
      });
    options.maxTokens = completion;
  }
  return options as SamplingOptions;
}

/**
 * Checks a library request and fills in defaults: the request's, else the model's, else greedy off, filters off.
 * `others` are the request's fields that are not about sampling; any field beyond those is refused.
 */
export function resolveSampling(
  request: SamplingOptions,
  defaults: SamplingOptions = {},
  others: readonly string[] = [],
): SamplingParams {
  const given = request as Readonly<Record<string, unknown>>;
  refuseUnsupported(given, camelCase);
  for (const name of Object.keys(given)) {
    if (given[name] === undefined || Object.hasOwn(FIELDS, name) || others.includes(name)) continue;
    // Looked at above, but only as the library spells it: another spelling must not pass in silence.
    if (Object.hasOwn(UNSUPPORTED, snakeCase(name)) && camelCase(name) === name) continue;
    throw unknownField(name);
  }
  for (const name of NAMES) {
    const value = given[name];
    if (value !== undefined && value !== null) check(name, name, value);
  }
  const temperature = request.temperature ?? defaults.temperature ?? 1;
  const topP = request.topP ?? defaults.topP ?? 1;
  const topK = Math.max(0, request.topK ?? defaults.topK ?? 0);
  const stop = request.stop ?? defaults.stop ?? [];
  return {
    temperature: temperature < MIN_TEMPERATURE ? 0 : temperature,
    // No mass at all still leaves the most likely token.
    topK: topP === 0 ? 1 : topK,
    topP: topP === 0 ? 1 : topP,
    minP: request.minP ?? defaults.minP ?? 0,
    seed: request.seed ?? drawSeed(),
    maxTokens: request.maxTokens ?? defaults.maxTokens ?? null,
    stop: typeof stop === 'string' ? [stop] : [...stop],
    n: request.n ?? 1,
    ignoreEos: request.ignoreEos ?? false,
  };
}

/** The two words of a seed, two's complement: what the device's random numbers are keyed by. */
export function seedWords(seed: number): { readonly low: number; readonly high: number } {
  const bits = BigInt.asUintN(64, BigInt(seed));
  return { low: Number(bits & 0xffff_ffffn), high: Number(bits >> 32n) };
}

/** A seed of 53 random bits: any number a client can hand back exactly. */
export function drawSeed(): number {
  const words = crypto.getRandomValues(new Uint32Array(2));
  return words[0]! + (words[1]! & 0x1f_ffff) * 2 ** 32;
}

function check(name: Field, shownAs: string, value: unknown): void {
  const { test, takes } = FIELDS[name];
  if (test(value)) return;
  throw new KvantError('invalid-parameter', `\`${shownAs}\` takes ${takes}, got ${show(value)}.`, {
    kind: 'invalid-request',
    where: shownAs,
    fix: `Send ${takes}, or leave \`${shownAs}\` out.`,
  });
}

function refuseUnsupported(given: Readonly<Record<string, unknown>>, spell: (wire: string) => string): void {
  for (const wire of Object.keys(UNSUPPORTED)) {
    const value = given[spell(wire)];
    if (value === undefined || value === null || UNSUPPORTED[wire]!(value)) continue;
    // OpenAI clients may send it beside `n`; drawing n and returning n is what kvant does anyway.
    if (wire === 'best_of' && value === given.n) continue;
    const name = spell(wire);
    throw new KvantError('unsupported-parameter', `\`${name}\` is not supported, got ${show(value)}.`, {
      kind: 'unsupported',
      where: name,
      fix: `Leave \`${name}\` out. kvant never ignores a parameter in silence.`,
    });
  }
}

function unknownField(name: string): KvantError {
  const camel = camelCase(name);
  const known = Object.hasOwn(FIELDS, camel);
  const fix = known ? `Write \`${camel}\`.` : 'Check the spelling, or leave it out.';
  return new KvantError('unknown-parameter', `\`${name}\` is not a parameter.`, {
    kind: 'invalid-request',
    where: name,
    fix,
  });
}

function camelCase(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}

function show(value: unknown): string {
  if (typeof value === 'number' || typeof value === 'bigint') return String(value);
  let text: string;
  try {
    text = JSON.stringify(value) ?? typeof value;
  } catch {
    text = typeof value;
  }
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
