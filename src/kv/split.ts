/** Bits by side and layer: of all ways to spend so many bytes a token, the one that is expected to lose least. */

import { type FloatKv, type KvFormat, kvFormatName, kvSideBytes, kvSides, kvUnusable } from '../device/kv.js';
import { KvantError } from '../errors.js';
import { type KvChoice, parseKvFormat } from './formats.js';
import { type KvLosses, lossOf } from './losses.js';
import { type KvLayerShape, skippedPlaces } from './policy.js';

export interface KvSplit {
  /** Of every layer of the model. */
  readonly choices: readonly KvChoice[];
  /** Of one token in all layers. */
  readonly bytes: number;
  /** What is expected of it, in nats. */
  readonly loss: number;
}

/** A side of a layer: what it may be, least bytes first. */
interface Side {
  readonly layer: number;
  readonly side: 'key' | 'value';
  readonly options: readonly { readonly format: KvFormat; readonly bytes: number; readonly loss: number }[];
}

/**
 * The split with the least expected loss among those of at most `bytes` a token: exact, by dynamic programming over bytes. Losses of sides and layers add
 * up. Layers that slide or are recurrent, and those of `skip`, stay float and count.
 *
 * Errors: `kv-bytes-too-few`, `kv-layer-unknown`.
 *
 * @param layers of the model
 * @example splitKvBytes(layers, losses, 30 * 2 * 3 * 36, { kind: 'float', dtype: 'f16' })
 */
export function splitKvBytes(
  layers: readonly KvLayerShape[],
  losses: KvLosses,
  bytes: number,
  float: FloatKv,
  skip: readonly number[] = [],
): KvSplit {
  const sides = sidesOf(layers, losses, float, skip);
  const least = sides.reduce((sum, { options }) => sum + options[0]!.bytes, 0);
  const unit = sides.flatMap(({ options }) => options.map((one) => one.bytes)).reduce(divisor, 0) || 1;
  const most = sides.reduce((sum, { options }) => sum + options.at(-1)!.bytes, 0);
  const room = Math.floor((Math.min(bytes, most) - least) / unit);
  if (room < 0)
    throw new KvantError(
      'kv-bytes-too-few',
      `The least that a token can take is ${least} bytes; ${bytes} were given.`,
      { kind: 'invalid-request', where: 'kvBytesPerToken', fix: `Give at least ${least}.` },
    );
  // best[r]: the least loss of the sides so far with r units beyond the least that each of them takes.
  let best = new Float64Array(room + 1);
  const taken: Uint8Array[] = [];
  for (const { options } of sides) {
    const next = new Float64Array(room + 1).fill(Number.POSITIVE_INFINITY);
    const chosen = new Uint8Array(room + 1);
    options.forEach(({ bytes: own, loss }, option) => {
      const more = (own - options[0]!.bytes) / unit;
      for (let r = more; r <= room; r++) {
        const sum = best[r - more]! + loss;
        if (sum < next[r]!) {
          next[r] = sum;
          chosen[r] = option;
        }
      }
    });
    best = next;
    taken.push(chosen);
  }
  const formats = layers.map(() => ({ key: float as KvFormat, value: float as KvFormat }));
  let left = room;
  let sum = 0;
  for (let i = sides.length - 1; i >= 0; i--) {
    const { layer, side, options } = sides[i]!;
    const option = options[taken[i]![left]!]!;
    formats[layer]![side] = option.format;
    sum += option.bytes;
    left -= (option.bytes - options[0]!.bytes) / unit;
  }
  return { choices: formats, bytes: sum, loss: best[room] ?? 0 };
}

function sidesOf(
  layers: readonly KvLayerShape[],
  losses: KvLosses,
  float: FloatKv,
  skip: readonly number[],
): Side[] {
  const attending = layers.flatMap(({ state }, layer) => (state === undefined ? [layer] : []));
  const skipped = new Set(skippedPlaces(layers, skip));
  return attending.flatMap((layer, i) =>
    kvSides(layers[layer]!).map((side): Side => {
      const shape = layers[layer]!;
      const measured = losses.layers[i]?.[side] ?? {};
      const names = shape.window !== null || skipped.has(layer) ? [] : Object.keys(measured);
      const coded = names.map(parseKvFormat).filter((one) => kvUnusable(one, shape) === undefined);
      const options = [...coded, float].map((format) => ({
        format,
        bytes: kvSideBytes(shape, side, format),
        loss: lossOf(measured, kvFormatName(format)) ?? 0,
      }));
      return { layer, side, options: options.sort((a, b) => a.bytes - b.bytes || a.loss - b.loss) };
    }),
  );
}

const divisor = (a: number, b: number): number => (b === 0 ? a : divisor(b, a % b));
