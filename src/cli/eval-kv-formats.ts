/** The formats that `kvant eval kv` takes, and what a vector costs in each. */

import { type KvFormat, type KvLayerSpec, kvTokenBytes } from '../device/kv.js';
import { parseKvChoice } from '../kv/formats.js';
import type { KvOptions } from '../kv/options.js';
import type { KvPlan } from '../kv/policy.js';

/** A cache to judge: the engine's options for it, under the name that was given. */
export interface EvalFormat {
  readonly name: string;
  readonly kv: KvOptions;
}

export const BASELINE = 'f16';

/** What is judged when nothing is named: every width, and the mixtures that make sense. */
const FORMATS = [
  BASELINE,
  ...[8, 6, 5, 4, 3, 2].map((bits) => `affine${bits}`),
  ...['8', '4', '3.5', '3', '2.5', '2'].map((bits) => `turbo${bits}`),
  'affine8/affine4',
  'affine8/turbo4',
];

/** Errors: `kv-format-unknown`. */
export function evalFormat(name: string): EvalFormat {
  parseKvChoice(name);
  return { name, kv: { kvFormat: name } };
}

export function allFormats(): EvalFormat[] {
  return FORMATS.map(evalFormat);
}

/** Bytes of a cache, padding and metadata counted. */
export interface CacheSize {
  /** Of one K vector and of one V vector, in the layers that have the format. */
  readonly keyBytes: number;
  readonly valueBytes: number;
  /** Mean of the two. */
  readonly bytesPerVector: number;
  readonly bitsPerValue: number;
  /** Of one token over all layers, those that stay float included. */
  readonly bytesPerToken: number;
}

export function cacheSize({ layers }: KvPlan): CacheSize {
  // The layers that have the format are those that take least: what falls back to float takes more.
  const sizes = layers.map((layer) => ({
    layer,
    bytes: vectorBytes(layer, layer.key) + vectorBytes(layer, layer.value),
  }));
  const { layer } = sizes.reduce((least, size) => (size.bytes < least.bytes ? size : least));
  const keyBytes = vectorBytes(layer, layer.key);
  const valueBytes = vectorBytes(layer, layer.value);
  const bytesPerVector = (keyBytes + valueBytes) / 2;
  return {
    keyBytes,
    valueBytes,
    bytesPerVector,
    bitsPerValue: (8 * bytesPerVector) / layer.headDim,
    bytesPerToken: layers.reduce(
      (sum, { key, value, headDim, kvHeads }) =>
        sum + kvTokenBytes(key, headDim, kvHeads) + kvTokenBytes(value, headDim, kvHeads),
      0,
    ),
  };
}

function vectorBytes({ headDim, kvHeads }: KvLayerSpec, format: KvFormat): number {
  return kvTokenBytes(format, headDim, kvHeads) / kvHeads;
}
