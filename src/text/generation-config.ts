import { join } from 'node:path';
import { KvantError } from '../errors.js';
import { isJsonObject, type JsonObject, readJsonObject } from './json-file.js';

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
}

/** What is needed of a tokenizer: the id of its `eos_token`. */
export interface EosSource {
  idOfSpecial(role: 'eos_token'): number | undefined;
}

const CODE = 'generation-config-broken';

/**
 * Reads the sampling defaults and EOS ids of a model folder: `generation_config.json` (may be missing), the EOS
 * ids of `config.json` and the tokenizer's `eos_token`. Models name their several EOS tokens in different files,
 * so the union counts.
 *
 * @throws KvantError `generation-config-broken`, `config-broken`
 */
export async function loadGenerationConfig(folder: string, tokenizer?: EosSource): Promise<GenerationConfig> {
  const generation = await readJsonObject(folder, 'generation_config.json', CODE);
  const config = await readJsonObject(folder, 'config.json', 'config-broken');
  return readGenerationConfig(generation, config, tokenizer, folder);
}

/** As {@link loadGenerationConfig}, from parsed files. */
export function readGenerationConfig(
  generation: JsonObject | undefined,
  config: JsonObject | undefined,
  tokenizer?: EosSource,
  folder = '',
): GenerationConfig {
  const where = join(folder, 'generation_config.json');
  const configWhere = join(folder, 'config.json');
  const inner = config?.text_config;
  const ids = new Set<number>([
    ...eosIds(generation?.eos_token_id, where, CODE),
    ...eosIds(config?.eos_token_id, configWhere, 'config-broken'),
    ...eosIds(isJsonObject(inner) ? inner.eos_token_id : undefined, configWhere, 'config-broken'),
  ]);
  const own = tokenizer?.idOfSpecial('eos_token');
  if (own !== undefined) ids.add(own);
  return {
    defaults: readDefaults(generation ?? {}, where),
    eosTokenIds: [...ids].sort((a, b) => a - b),
  };
}

function broken(code: string, where: string, field: string, value: unknown, wanted: string): KvantError {
  const file = where.split(/[\\/]/).at(-1);
  return new KvantError(code, `${file}: ${field} must be ${wanted}, not ${JSON.stringify(value)}`, {
    kind: 'model',
    where,
    fix: 'Correct the file, or fetch the model again.',
  });
}

function eosIds(value: unknown, where: string, code: string): number[] {
  if (value === undefined || value === null) return [];
  const list: unknown[] = Array.isArray(value) ? value : [value];
  return list.map((id) => {
    if (typeof id === 'number' && Number.isInteger(id) && id >= 0) return id;
    throw broken(code, where, 'eos_token_id', value, 'a token id or a list of them');
  });
}

/** Name in the file, whether a value is in range, and the range in words. */
const FIELDS = {
  temperature: ['temperature', (x: number) => x >= 0, 'a number of at least 0'],
  // Some files write -1 for "all".
  topK: ['top_k', (x: number) => Number.isInteger(x) && x >= -1, 'an integer of at least 0'],
  topP: ['top_p', (x: number) => x > 0 && x <= 1, 'a number above 0 and at most 1'],
  minP: ['min_p', (x: number) => x >= 0 && x <= 1, 'a number from 0 to 1'],
  typicalP: ['typical_p', (x: number) => x > 0 && x <= 1, 'a number above 0 and at most 1'],
  repetitionPenalty: ['repetition_penalty', (x: number) => x > 0, 'a number above 0'],
  maxNewTokens: ['max_new_tokens', (x: number) => Number.isInteger(x) && x > 0, 'a positive integer'],
} as const;

function readDefaults(source: JsonObject, where: string): GenerationDefaults {
  const found: Partial<Record<keyof typeof FIELDS, number>> = {};
  for (const name of Object.keys(FIELDS) as (keyof typeof FIELDS)[]) {
    const [field, inRange, wanted] = FIELDS[name];
    const value = source[field];
    if (value === undefined || value === null) continue;
    if (typeof value !== 'number' || !inRange(value)) throw broken(CODE, where, field, value, wanted);
    found[name] = name === 'topK' ? Math.max(0, value) : value;
  }
  const doSample = source.do_sample ?? true;
  if (typeof doSample !== 'boolean') throw broken(CODE, where, 'do_sample', doSample, 'true or false');
  return doSample ? { doSample, ...found } : { ...found, doSample, temperature: 0 };
}
