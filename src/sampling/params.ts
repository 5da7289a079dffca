/**
 * From what a request says to parameters with every default filled in, or a refusal that names the field, what it got
 * and what it takes. A parameter that kvant does not have is refused unless its value asks for nothing.
 */

import { closestName } from '../did-you-mean.js';
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';
import type { DryParams, SamplingOptions, SamplingParams } from './options.js';
import { ALIASES, FIELD_NAMES, FIELDS, MAX_TOP_LOGPROBS, type SamplingField, UNSUPPORTED } from './schema.js';
import { drawSeed } from './seed.js';

/** Temperatures below this are greedy: logits divided by less would overflow f32. */
const MIN_TEMPERATURE = 1e-5;
/** llama.cpp's. */
const DEFAULT_BREAKERS: readonly string[] = ['\n', ':', '"', '*'];

type Given = Readonly<Record<string, unknown>>;
/** How a field is called where the request came from. */
type Spell = (name: SamplingField) => string;

/** Wire names that {@link samplingFromWire} knows, to honour or to refuse. */
export const KNOWN_WIRE_FIELDS: readonly string[] = [
  ...FIELD_NAMES.map((name) => FIELDS[name].wire),
  ...Object.keys(ALIASES),
  ...Object.keys(UNSUPPORTED),
  'repeat_last_n',
];

const WIRE: Spell = (name) => FIELDS[name].wire;
const OWN: Spell = (name) => name;

/**
 * Takes the sampling fields out of an HTTP body. `text` is the completions route, whose `logprobs` is a number.
 * Errors: `invalid-parameter`, `unsupported-parameter` (both 400), `where` naming the wire field.
 */
export function samplingFromWire(body: Given, route: 'chat' | 'text' = 'chat'): SamplingOptions {
  refuseUnsupported(body, (wire) => wire);
  const options: Partial<Record<SamplingField, unknown>> = {};
  const take = (name: SamplingField, wire: string): void => {
    const value = body[wire];
    if (value === undefined || value === null) return;
    if (name === 'logprobs' && route === 'text') {
      takeCount(value, options);
      return;
    }
    const read =
      name === 'logprobsMode' && typeof value === 'string' ? value.replace(/_logprobs$/, '') : value;
    check(name, wire, read, value);
    const before = options[name];
    if (before !== undefined && before !== read) throw differ(FIELDS[name].wire, wire);
    options[name] = read;
  };
  for (const name of FIELD_NAMES) take(name, FIELDS[name].wire);
  for (const [alias, name] of Object.entries(ALIASES)) take(name, alias);
  takeRepeatLastN(body, options);
  const sampling = options as SamplingOptions;
  checkTogether(sampling, sampling, WIRE);
  return sampling;
}

/** OpenAI's older route: `logprobs: 3` asks for three alternatives, `0` for the token's own alone. */
function takeCount(value: unknown, options: Partial<Record<SamplingField, unknown>>): void {
  if (value === false) return;
  if (!FIELDS.topLogprobs.accepts(value))
    throw invalid('logprobs', `an integer from 0 to ${MAX_TOP_LOGPROBS}`, value);
  options.logprobs = true;
  options.topLogprobs = value;
}

/** llama.cpp's window of the repetition penalty, of which 0 turns the penalty off. */
function takeRepeatLastN(body: Given, options: Partial<Record<SamplingField, unknown>>): void {
  const value = body.repeat_last_n;
  if (value === undefined || value === null) return;
  check('repetitionContextSize', 'repeat_last_n', value);
  if (value === 0) options.repetitionPenalty = 1;
  else if (options.repetitionContextSize === undefined) options.repetitionContextSize = value;
  else if (options.repetitionContextSize !== value) throw differ('repetition_context_size', 'repeat_last_n');
}

function differ(wire: string, alias: string): KvantError {
  return new KvantError('invalid-parameter', `\`${wire}\` and \`${alias}\` differ.`, {
    kind: 'invalid-request',
    where: alias,
    fix: `Send only \`${alias === 'max_completion_tokens' ? alias : wire}\`.`,
  });
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
  checkSampling(request, others);
  const said = <K extends SamplingField>(name: K): NonNullable<SamplingOptions[K]> | null =>
    (request[name] ?? defaults[name] ?? null) as NonNullable<SamplingOptions[K]> | null;
  checkTogether(request, { ...defaults, ...definedOf(request) }, OWN);
  const temperature = said('temperature') ?? 1;
  const mirostat = said('mirostat') === 2;
  // The filters of the model's own defaults give way to mirostat; the request's own were refused beside it.
  const filter = <T>(value: T | null, off: T): T => (mirostat ? off : (value ?? off));
  const topP = filter(said('topP'), 1);
  const topK = Math.max(0, filter(said('topK'), 0));
  const xtcProbability = filter(said('xtcProbability'), 0);
  const stop = said('stop') ?? [];
  const n = request.n ?? 1;
  const plain = Object.fromEntries(
    FIELD_NAMES.filter((name) => FIELDS[name].fallback !== undefined).map((name) => [
      name,
      copyOf(said(name) ?? FIELDS[name].fallback),
    ]),
  ) as unknown as Pick<SamplingParams, PlainField>;
  return {
    ...plain,
    temperature: temperature < MIN_TEMPERATURE ? 0 : temperature,
    // No mass at all still leaves the most likely token.
    topK: topP === 0 ? 1 : topK,
    topP: topP === 0 ? 1 : topP,
    minP: filter(said('minP'), 0),
    typicalP: filter(said('typicalP'), 1),
    topNSigma: Math.max(0, filter(said('topNSigma'), 0)),
    xtc:
      xtcProbability === 0 ? null : { probability: xtcProbability, threshold: said('xtcThreshold') ?? 0.1 },
    mirostat: mirostat ? { tau: said('mirostatTau') ?? 5, eta: said('mirostatEta') ?? 0.1 } : null,
    repetitionContextSize: Math.max(0, said('repetitionContextSize') ?? 0),
    dry: dryOf(said),
    logitBias: biasesOf(said('logitBias') ?? {}),
    seed: request.seed ?? drawSeed(),
    stop: typeof stop === 'string' ? [stop] : [...stop],
    n,
    bestOf: request.bestOf ?? n,
    ignoreEos: request.ignoreEos ?? false,
    logprobs: request.logprobs === true ? (request.topLogprobs ?? 0) : null,
  };
}

/** Parameters that stand alone: the value said, or the table's `fallback`. */
type PlainField =
  | 'maxTokens'
  | 'minTokens'
  | 'repetitionPenalty'
  | 'frequencyPenalty'
  | 'presencePenalty'
  | 'badWords'
  | 'suppressTokens'
  | 'stopTokenIds'
  | 'logprobsMode';

function copyOf(value: unknown): unknown {
  return Array.isArray(value) ? [...value] : value;
}

/**
 * Every field by itself. Errors: `invalid-parameter`, `unsupported-parameter`, `unknown-parameter` (400), `where` naming
 * it as the library spells it.
 */
export function checkSampling(request: SamplingOptions, others: readonly string[] = []): void {
  const given = request as Given;
  refuseUnsupported(given, camelCase);
  for (const name of Object.keys(given)) {
    if (given[name] === undefined || Object.hasOwn(FIELDS, name) || others.includes(name)) continue;
    // Looked at above, but only as the library spells it: another spelling must not pass in silence.
    if (Object.hasOwn(UNSUPPORTED, snakeCase(name)) && camelCase(name) === name) continue;
    throw unknownField(name, others);
  }
  for (const name of FIELD_NAMES) {
    const value = given[name];
    if (value !== undefined && value !== null) check(name, name, value);
  }
}

/** What contradicts itself. `all`: with the defaults that stand beside what was given. */
function checkTogether(given: SamplingOptions, all: SamplingOptions, spell: Spell): void {
  const clash = (name: SamplingField, other: SamplingField, why: string): KvantError =>
    new KvantError(
      'conflicting-parameters',
      `\`${spell(name)}\` is ${show(given[name])} and \`${spell(other)}\` is ${show(all[other] ?? null)}: ${why}.`,
      { kind: 'invalid-request', where: spell(name), fix: `Leave one of them out.` },
    );
  if (given.topLogprobs && given.logprobs !== true)
    throw clash('topLogprobs', 'logprobs', 'alternatives come with log-probabilities only');
  if (given.bestOf != null && given.bestOf < (given.n ?? 1))
    throw clash('bestOf', 'n', 'the best are chosen from at least as many');
  if (given.minTokens != null && all.maxTokens != null && given.minTokens > all.maxTokens)
    throw clash('minTokens', 'maxTokens', 'an answer cannot be longer than the most it may have');
  if (all.mirostat !== 2) return;
  const filters: readonly (readonly [SamplingField, (value: number) => boolean])[] = [
    ['topK', (value) => value > 0],
    ['topP', (value) => value < 1],
    ['minP', (value) => value > 0],
    ['typicalP', (value) => value < 1],
    ['topNSigma', (value) => value > 0],
    ['xtcProbability', (value) => value > 0],
  ];
  for (const [name, on] of filters) {
    const value = given[name] as number | null | undefined;
    if (value != null && on(value)) throw clash(name, 'mirostat', 'mirostat takes the place of the filters');
  }
}

/** The same refusal as a client of the HTTP route spells the field. */
export function inWireNames(error: KvantError): KvantError {
  const { where, kind, code, message, fix, retryAfter } = error;
  if (where === undefined || !Object.hasOwn(FIELDS, where)) return error;
  const { wire } = FIELDS[where as SamplingField];
  const spell = (text: string): string =>
    text.replace(/`(\w+)`/g, (shown, name: string) =>
      Object.hasOwn(FIELDS, name) ? `\`${FIELDS[name as SamplingField].wire}\`` : shown,
    );
  return new KvantError(code, spell(message), {
    kind,
    where: wire,
    ...(fix === undefined ? {} : { fix: spell(fix) }),
    ...(retryAfter === undefined ? {} : { retryAfter }),
    cause: error,
  });
}

/** Ids that the model does not have. Errors: `token-unknown` (400), naming the field. */
export function checkIds(params: SamplingParams, vocabSize: number): void {
  const lists: readonly (readonly [SamplingField, readonly number[]])[] = [
    ['logitBias', params.logitBias.map(([id]) => id)],
    ['suppressTokens', params.suppressTokens],
    ['stopTokenIds', params.stopTokenIds],
  ];
  for (const [name, ids] of lists) {
    const unknown = ids.find((id) => id >= vocabSize);
    if (unknown === undefined) continue;
    throw new KvantError(
      'token-unknown',
      `\`${name}\` names the id ${unknown}; the model knows 0 to ${vocabSize - 1}.`,
      { kind: 'invalid-request', where: name, fix: 'Send ids of the model’s own tokenizer.' },
    );
  }
}

function dryOf(
  said: <K extends SamplingField>(name: K) => NonNullable<SamplingOptions[K]> | null,
): DryParams | null {
  const multiplier = said('dryMultiplier') ?? 0;
  const window = said('dryPenaltyLastN') ?? -1;
  if (multiplier === 0 || window === 0) return null;
  return {
    multiplier,
    base: said('dryBase') ?? 1.75,
    allowedLength: said('dryAllowedLength') ?? 2,
    window: Math.max(0, window),
    breakers: [...(said('drySequenceBreakers') ?? DEFAULT_BREAKERS)],
  };
}

function biasesOf(biases: Readonly<Record<string, number>>): (readonly [number, number])[] {
  // "5" and "05" are the same id; the later one counts, as in JSON.
  const byId = new Map(Object.entries(biases).map(([id, bias]) => [Number(id), bias]));
  return [...byId].filter(([, bias]) => bias !== 0).sort(([a], [b]) => a - b);
}

function definedOf(options: SamplingOptions): SamplingOptions {
  return Object.fromEntries(
    Object.entries(options).filter(([, value]) => value !== undefined && value !== null),
  );
}

function check(name: SamplingField, shownAs: string, value: unknown, got: unknown = value): void {
  const { accepts, takes } = FIELDS[name];
  if (!accepts(value)) throw invalid(shownAs, takes, got);
}

function invalid(shownAs: string, takes: string, value: unknown): KvantError {
  return new KvantError('invalid-parameter', `\`${shownAs}\` takes ${takes}, got ${show(value)}.`, {
    kind: 'invalid-request',
    where: shownAs,
    fix: `Send ${takes}, or leave \`${shownAs}\` out.`,
  });
}

function refuseUnsupported(given: Given, spell: (wire: string) => string): void {
  for (const wire of Object.keys(UNSUPPORTED)) {
    const name = spell(wire);
    const value = given[name];
    if (value === undefined || value === null || UNSUPPORTED[wire]!(value)) continue;
    throw new KvantError('unsupported-parameter', `\`${name}\` is not supported, got ${show(value)}.`, {
      kind: 'unsupported',
      where: name,
      fix: `Leave \`${name}\` out. kvant never ignores a parameter in silence.`,
    });
  }
}

function unknownField(name: string, others: readonly string[]): KvantError {
  const alias = Object.hasOwn(ALIASES, name) ? ALIASES[name] : undefined;
  const meant = alias ?? closestName(name, [...FIELD_NAMES, ...others]);
  const fix = meant === undefined ? 'Check the spelling, or leave it out.' : `Did you mean \`${meant}\`?`;
  const where = shown(name);
  return new KvantError('unknown-parameter', `\`${where}\` is not a parameter.`, {
    kind: 'invalid-request',
    where,
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
  return shown(text, 80);
}
