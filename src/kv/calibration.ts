/**
 * What a model's keys are like, measured once: where they stand before the rotation, and how far keys and their queries
 * spread. Quantised caches are freed of it (docs/kv-cache.md). A file of it depends on model and text alone.
 */

import { createHash } from 'node:crypto';
import { KvantError } from '../errors.js';
import { type KvLosses, readKvLosses } from './losses.js';

/** A layer. All are `[kvHeads · headDim]`, in the order of the heads; the two of a rope pair have one spread. */
export interface KvCalibrationLayer {
  readonly kvHeads: number;
  readonly headDim: number;
  /** Mean of the keys, each rotated back by its position. */
  readonly mean: Float32Array;
  /** Key of the first token of a text, mean over the texts: unlike all others, and what queries look at most. */
  readonly first: Float32Array;
  /** Mean square of the keys less `mean`. */
  readonly keys: Float32Array;
  /** Mean square of the queries of the heads that share the KV head. */
  readonly queries: Float32Array;
}

export interface KvCalibration {
  /** Of all numbers: caches of different ones never meet. */
  readonly digest: string;
  /** Tokens it was made of. */
  readonly tokens: number;
  readonly layers: readonly KvCalibrationLayer[];
  /** What formats cost, where that was measured. It says nothing of how keys are stored, and is in no digest. */
  readonly losses?: KvLosses;
}

const ARRAYS = ['mean', 'first', 'keys', 'queries'] as const;
const FORMAT = 'kvant-kv-calibration-1';

export function kvCalibration(
  tokens: number,
  layers: readonly KvCalibrationLayer[],
  losses?: KvLosses,
): KvCalibration {
  return { digest: digestOf(layers), tokens, layers, ...(losses === undefined ? {} : { losses }) };
}

/** As a file: JSON, numbers as f32 in base64. */
export function writeKvCalibration({ tokens, layers, losses }: KvCalibration): string {
  const written = layers.map(({ kvHeads, headDim, ...arrays }) => ({
    kvHeads,
    headDim,
    ...Object.fromEntries(Object.entries(arrays).map(([name, values]) => [name, base64(values)])),
  }));
  return `${JSON.stringify({ format: FORMAT, tokens, layers: written, losses })}\n`;
}

/** Errors: `kv-calibration-invalid`. */
export function readKvCalibration(text: string, where: string): KvCalibration {
  let file: { format?: unknown; tokens?: unknown; layers?: unknown; losses?: unknown };
  try {
    file = JSON.parse(text) as typeof file;
  } catch {
    throw invalid(where, 'is no JSON');
  }
  if (file === null || typeof file !== 'object' || file.format !== FORMAT || !Array.isArray(file.layers))
    throw invalid(where, `is no file of the format ${FORMAT}`);
  const layers = file.layers.map((layer: Record<string, unknown>, index) => {
    const { kvHeads, headDim } = (layer ?? {}) as { kvHeads: number; headDim: number };
    const length = kvHeads * headDim;
    if (!Number.isSafeInteger(length) || length < 1) throw invalid(where, `has no sizes for layer ${index}`);
    const array = (name: (typeof ARRAYS)[number]): Float32Array => {
      const given = layer[name];
      const bytes = Buffer.from(typeof given === 'string' ? given : '', 'base64');
      const values = new Float32Array(bytes.length >> 2);
      for (let i = 0; i < values.length; i++) values[i] = bytes.readFloatLE(i * 4);
      if (values.length !== length || !values.every(Number.isFinite))
        throw invalid(where, `has not ${length} numbers for "${name}" of layer ${index}`);
      return values;
    };
    const [mean, first, keys, queries] = ARRAYS.map(array) as [
      Float32Array,
      Float32Array,
      Float32Array,
      Float32Array,
    ];
    return { kvHeads, headDim, mean, first, keys, queries };
  });
  const losses = file.losses === undefined ? undefined : readKvLosses(file.losses, layers.length);
  if (file.losses !== undefined && losses === undefined) throw invalid(where, 'has losses that are none');
  return kvCalibration(typeof file.tokens === 'number' ? file.tokens : 0, layers, losses);
}

/**
 * Errors: `kv-calibration-mismatch`, where it is another model's. `all`: layers of the model; a calibration has nothing of those that
 * are recurrent, which have no KV heads, and of latents.
 */
export function checkKvCalibration(
  { layers }: KvCalibration,
  all: readonly { readonly kvHeads: number; readonly headDim: number; readonly valueDim?: number }[],
  where: string,
): void {
  const model = all.filter(({ kvHeads, valueDim }) => kvHeads > 0 && valueDim === undefined);
  const fits =
    layers.length === model.length &&
    layers.every(({ kvHeads, headDim }, i) => kvHeads === model[i]!.kvHeads && headDim === model[i]!.headDim);
  if (fits) return;
  const shape = (of: typeof all): string =>
    `${of.length} layers of ${of[0]?.kvHeads ?? 0} KV heads of ${of[0]?.headDim ?? 0}`;
  throw new KvantError(
    'kv-calibration-mismatch',
    `The calibration is one for ${shape(layers)}; the model has ${shape(model)}.`,
    { kind: 'invalid-request', where, fix: 'Make one of this model: kvant calibrate MODEL --out FILE.' },
  );
}

function digestOf(layers: readonly KvCalibrationLayer[]): string {
  const hash = createHash('sha256').update(FORMAT);
  for (const layer of layers) {
    hash.update(`${layer.kvHeads} ${layer.headDim} `);
    for (const name of ARRAYS) hash.update(bytesOf(layer[name]));
  }
  return hash.digest('hex').slice(0, 16);
}

function bytesOf(values: Float32Array): Buffer {
  const bytes = Buffer.alloc(values.length * 4);
  values.forEach((value, i) => {
    bytes.writeFloatLE(value, i * 4);
  });
  return bytes;
}

const base64 = (values: Float32Array): string => bytesOf(values).toString('base64');

function invalid(where: string, what: string): KvantError {
  return new KvantError('kv-calibration-invalid', `The calibration ${what}.`, {
    kind: 'invalid-request',
    where,
    fix: 'Make one: kvant calibrate MODEL --out FILE.',
  });
}
