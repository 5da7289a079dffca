/** The formats that `kvant eval kv` takes, and what a vector costs in each. */

import { readFileSync } from 'node:fs';
import { isFloatKv, type KvLayerSpec, kvSideBytes, kvVectorBytes } from '../../device/kv.js';
import type { EngineOptions } from '../../engine/types.js';
import { KvantError } from '../../errors.js';
import { parseKvChoice } from '../../kv/formats.js';
import { KV_OPTION_NAMES, type KvOptions, readKvOptions } from '../../kv/options.js';
import { readKvPlan } from '../../kv/plan-file.js';
import type { KvPlan } from '../../kv/policy.js';
import { systemReason } from '../../system-errors.js';

/** A cache to judge: the engine's options for it, under the name that was given. */
export interface EvalFormat {
  readonly name: string;
  readonly kv: KvOptions;
}

export const BASELINE = 'f16';

/**
 * What is judged when nothing is named: every width, the other groups, the mixtures that make sense; what correcting the
 * norms of keys is worth, and what leaving the last layer alone is.
 */
const FORMATS = [
  BASELINE,
  'f32',
  ...[8, 6, 5, 4, 3, 2].map((bits) => `affine${bits}`),
  ...['affine8-g32', 'affine4-g32', 'affine4-g128', 'affine3-g32'],
  ...['8', '4', '3.5', '3', '2.5', '2'].map((bits) => `turbo${bits}`),
  ...['affine8/affine4', 'affine8/turbo4', 'affine4/turbo3', 'turbo4/turbo2'],
  ...['turbo4-plain', 'turbo3-plain', 'turbo2-plain'],
  ...['affine8', 'affine4', 'turbo4', 'turbo3.5', 'turbo2'].map((name) => `${name}:all-layers`),
];

/**
 * What may stand behind a name: `affine4:all-layers` quantises the layers too that would stay float, `affine4:head` keeps the first 32 tokens
 * float, `affine4:tail128` the newest 128; `affine4:start1024` keeps all floats up to 1,024 tokens and converts them there, once.
 */
const VARIANTS: Readonly<Record<string, KvOptions>> = {
  'all-layers': { kvSkipLayers: [] },
  head: { kvFloatHead: 32 },
};

/** A format, or the file of a plan (`plan.json`). Errors: `kv-format-unknown`, also for a variant; those of the file. */
export function evalFormat(name: string): EvalFormat {
  const [kvFormat, ...variants] = name.split(':') as [string, ...string[]];
  const plan = /\.json$/.test(kvFormat);
  if (!plan) parseKvChoice(kvFormat);
  let kv: KvOptions = plan ? { kvLayerFormats: readPlanFile(kvFormat) } : { kvFormat };
  for (const variant of variants) {
    const [, kind, count] = /^(tail|start)([1-9]\d*)$/.exec(variant) ?? [];
    if (kind === undefined && !Object.hasOwn(VARIANTS, variant)) throw unknownVariant(kvFormat, variant);
    const counted = kind === 'tail' ? 'kvFloatTail' : 'quantizedKvStart';
    kv = { ...kv, ...(kind === undefined ? VARIANTS[variant] : { [counted]: Number(count) }) };
  }
  readKvOptions(kv);
  return { name, kv };
}

/** Errors: `file-not-readable`; those of the file. */
function readPlanFile(path: string): readonly string[] {
  try {
    return readKvPlan(readFileSync(path, 'utf8'), path);
  } catch (error) {
    if (error instanceof KvantError) throw error;
    throw new KvantError('file-not-readable', `${path} cannot be read: ${systemReason(error)}.`, {
      kind: 'invalid-request',
      where: '--formats',
      fix: 'Name a format, or a plan that is there (--kv-plan).',
    });
  }
}

function unknownVariant(format: string, variant: string): KvantError {
  const known = [...Object.keys(VARIANTS), 'tail64', 'start1024'];
  return new KvantError('kv-format-unknown', `There is no variant ${JSON.stringify(variant)} of ${format}.`, {
    kind: 'invalid-request',
    where: '--formats',
    fix: `Use one of: ${known.join(', ')}; for example ${format}:${known[0]}.`,
  });
}

/** Engine options that leave the cache to `--formats`. Errors: `invalid-flags`, where they do not. */
export function withoutKvOptions(options: EngineOptions): EngineOptions {
  const given = KV_OPTION_NAMES.find((name) => options[name] !== undefined);
  if (given === undefined) return options;
  throw new KvantError('invalid-flags', 'How the cache is kept is what --formats says here.', {
    kind: 'invalid-request',
    where: given,
    fix: 'Name the formats: --formats affine8,affine4-g32,turbo3.5,affine8/turbo4,affine4:all-layers.',
  });
}

export function allFormats(): EvalFormat[] {
  return FORMATS.map(evalFormat);
}

/** Bytes of a cache, padding and metadata counted. */
export interface CacheSize {
  /** Of one K vector and of one V vector, mean of the layers that are quantised. */
  readonly keyBytes: number;
  readonly valueBytes: number;
  /** Mean of the two. */
  readonly bytesPerVector: number;
  readonly bitsPerValue: number;
  /** Of one token over all layers, those that stay float included. */
  readonly bytesPerToken: number;
}

export function cacheSize({ layers }: KvPlan): CacheSize {
  // Where formats differ by layer, the mean of the layers that are quantised; of floats that of all.
  const attending = layers.filter(({ state }) => state === undefined);
  const coded = attending.filter(({ key, value }) => !isFloatKv(key) || !isFloatKv(value));
  const counted = coded.length > 0 ? coded : attending;
  const mean = (of: (layer: KvLayerSpec) => number): number =>
    counted.reduce((sum, layer) => sum + of(layer), 0) / counted.length;
  const keyBytes = mean((layer) => vectorBytes(layer, 'key'));
  const valueBytes = mean((layer) => vectorBytes(layer, 'value'));
  const bytesPerVector = (keyBytes + valueBytes) / 2;
  return {
    keyBytes,
    valueBytes,
    bytesPerVector,
    bitsPerValue: (8 * bytesPerVector) / mean(({ headDim }) => headDim),
    bytesPerToken: layers.reduce((sum, layer) => sum + kvVectorBytes(layer), 0),
  };
}

function vectorBytes(layer: KvLayerSpec, side: 'key' | 'value'): number {
  return kvSideBytes(layer, side, layer[side]) / layer.kvHeads;
}
