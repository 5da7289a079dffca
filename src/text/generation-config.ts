import { join } from 'node:path';
import { KvantError } from '../errors.js';
import type { Notice } from '../notice.js';
import { answerEnds } from './answer-ends.js';
import { isJsonObject, type JsonObject, readJsonObject } from './json-file.js';
import { readTokenIds } from './token-ids.js';

/** How a model wants to be sampled where a request does not say; a field that no file names is absent. */
export interface GenerationDefaults {
  /** False: greedy, whatever the temperature says. */
  readonly doSample: boolean;
  /** 0 where `doSample` is false. */
  readonly temperature?: number;
  /** 0 keeps all tokens. */
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly typicalP?: number;
  readonly repetitionPenalty?: number;
  readonly maxNewTokens?: number;
}

export interface GenerationConfig {
  readonly defaults: GenerationDefaults;
  /** Every id that ends a sequence, ascending; empty where no file names one. */
  readonly eosTokenIds: readonly number[];
  /** Keys of `generation_config.json` that ask for something which kvant leaves out, as the file has them. */
  readonly ignored: readonly string[];
  /** What of `generation_config.json` is broken, and so left out. */
  readonly notices: readonly Notice[];
}

/** What is needed of a tokenizer: the ids of its `eos_token`, and of a token by its text. */
export interface EosSource {
  readonly specialIds: ReadonlySet<number>;
  idOfSpecial(role: 'eos_token'): number | undefined;
  idOf(token: string): number | undefined;
}

const FILE = 'generation_config.json';

/**
 * Reads the sampling defaults and EOS ids of a model folder: `generation_config.json` (may be missing, or broken: what it says
 * are only defaults), the EOS ids of `config.json`, the tokenizer's `eos_token`, and its special tokens that end an answer in any model.
 * Models name their several EOS tokens in different files, or not all of them, so the union counts.
 *
 * @throws KvantError `config-broken`
 */
export async function loadGenerationConfig(folder: string, tokenizer?: EosSource): Promise<GenerationConfig> {
  const notices: Notice[] = [];
  const generation = await readJsonObject(folder, FILE, 'generation-config-broken').catch(
    (error: unknown) => {
      if (!(error instanceof KvantError)) throw error;
      notices.push({
        message: 'generation_config.json cannot be read; the model is used without it',
        fields: { reason: error.message, fix: error.fix },
      });
      return undefined;
    },
  );
  const config = await readJsonObject(folder, 'config.json', 'config-broken');
  const read = readGenerationConfig(generation, config, tokenizer, folder);
  return { ...read, notices: [...notices, ...read.notices] };
}

/** As {@link loadGenerationConfig}, from parsed files. */
export function readGenerationConfig(
  generation: JsonObject | undefined,
  config: JsonObject | undefined,
  tokenizer?: EosSource,
  folder = '',
): GenerationConfig {
  const notices: Notice[] = [];
  const leftOut: LeaveOut = (field, value, wanted) => {
    notices.push({
      message: 'generation_config.json holds a value that makes no sense; it is left out',
      fields: { field, value, wanted },
    });
  };
  const where = join(folder, 'config.json');
  const inner = config?.text_config;
  const ids = new Set<number>([
    ...generationEosIds(generation?.eos_token_id, tokenizer, leftOut),
    ...configEosIds(config?.eos_token_id, tokenizer, where),
    ...configEosIds(isJsonObject(inner) ? inner.eos_token_id : undefined, tokenizer, where),
  ]);
  const own = tokenizer?.idOfSpecial('eos_token');
  if (own !== undefined) ids.add(own);
  for (const id of tokenizer === undefined ? [] : answerEnds(specialOf(tokenizer))) ids.add(id);
  return {
    defaults: readDefaults(generation ?? {}, leftOut),
    notices,
    eosTokenIds: [...ids].sort((a, b) => a - b),
    ignored: Object.entries(generation ?? {}).flatMap(([key, value]) =>
      asksForMore(key, value) ? [key] : [],
    ),
  };
}

const specialOf =
  (tokenizer: EosSource) =>
  (token: string): number | undefined => {
    const id = tokenizer.idOf(token);
    return id !== undefined && tokenizer.specialIds.has(id) ? id : undefined;
  };

type LeaveOut = (field: string, value: unknown, wanted: string) => void;

const WANTED_IDS = 'a token id or a list of them';

/** Ids, or texts of tokens. */
function eosIds(value: unknown, tokenizer: EosSource | undefined): number[] | undefined {
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return readTokenIds(list.map((item) => (typeof item === 'string' && tokenizer?.idOf(item)) || item));
}

function generationEosIds(
  value: unknown,
  tokenizer: EosSource | undefined,
  leftOut: LeaveOut,
): readonly number[] {
  const ids = eosIds(value, tokenizer);
  if (ids === undefined) leftOut('eos_token_id', value, WANTED_IDS);
  return ids ?? [];
}

function configEosIds(value: unknown, tokenizer: EosSource | undefined, where: string): readonly number[] {
  const ids = eosIds(value, tokenizer);
  if (ids !== undefined) return ids;
  const shown = JSON.stringify(value);
  throw new KvantError('config-broken', `config.json: eos_token_id must be ${WANTED_IDS}, not ${shown}`, {
    kind: 'model',
    where,
    fix: 'Correct the file, or fetch the model again.',
  });
}

/** Name in the file, whether a value is in range, and the range in words. */
const FIELDS = {
  temperature: ['temperature', (x: number) => x >= 0, 'a number of at least 0'],
  // Some files write -1 for "all".
  topK: ['top_k', (x: number) => Number.isInteger(x), 'an integer of at least 0'],
  topP: ['top_p', (x: number) => x > 0 && x <= 1, 'a number above 0 and at most 1'],
  minP: ['min_p', (x: number) => x >= 0 && x <= 1, 'a number from 0 to 1'],
  typicalP: ['typical_p', (x: number) => x > 0 && x <= 1, 'a number above 0 and at most 1'],
  repetitionPenalty: ['repetition_penalty', (x: number) => x > 0, 'a number above 0'],
  maxNewTokens: ['max_new_tokens', (x: number) => Number.isInteger(x) && x > 0, 'a positive integer'],
} as const;

const APPLIED = new Set<string>([
  'do_sample',
  'eos_token_id',
  ...Object.values(FIELDS).map(([field]) => field),
]);
/** Of the file, of other ids, or of how another program computes: nothing that shows in a text. */
const SILENT = new Set([
  'transformers_version',
  '_from_model_config',
  'bos_token_id',
  'pad_token_id',
  'decoder_start_token_id',
  'use_cache',
  'cache_implementation',
]);
/** Numbers that turn a parameter off. */
const OFF: Readonly<Record<string, number>> = {
  num_beams: 1,
  num_beam_groups: 1,
  num_return_sequences: 1,
  length_penalty: 1,
  encoder_repetition_penalty: 1,
  guidance_scale: 1,
  diversity_penalty: 0,
  no_repeat_ngram_size: 0,
  encoder_no_repeat_ngram_size: 0,
  epsilon_cutoff: 0,
  eta_cutoff: 0,
  min_length: 0,
  min_new_tokens: 0,
};

function asksForMore(key: string, value: unknown): boolean {
  if (APPLIED.has(key) || SILENT.has(key) || /^(output|return)_/.test(key)) return false;
  if (value === null || value === false || value === OFF[key]) return false;
  return !(Array.isArray(value) && value.length === 0);
}

function readDefaults(source: JsonObject, leftOut: LeaveOut): GenerationDefaults {
  const found: Partial<Record<keyof typeof FIELDS, number>> = {};
  for (const name of Object.keys(FIELDS) as (keyof typeof FIELDS)[]) {
    const [field, inRange, wanted] = FIELDS[name];
    const value = source[field];
    if (value === undefined || value === null) continue;
    if (typeof value !== 'number' || !inRange(value) || !Number.isFinite(value))
      leftOut(field, value, wanted);
    else found[name] = name === 'topK' ? Math.max(0, value) : value;
  }
  const stated = source.do_sample ?? true;
  if (typeof stated !== 'boolean') leftOut('do_sample', stated, 'true or false');
  const doSample = stated !== false;
  return doSample ? { doSample, ...found } : { ...found, doSample, temperature: 0 };
}
