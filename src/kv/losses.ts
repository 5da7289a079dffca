/** What each side of each layer loses by each format, as `kvant calibrate --losses` measured it; part of a calibration's file. */

import { kvFormatName } from '../device/kv.js';
import type { KvChoice } from './formats.js';

/** Of a layer: what it alone costs in nats, by the name of a format. A format that is not named was not measured. */
export interface KvLayerLosses {
  readonly key: Readonly<Record<string, number>>;
  readonly value: Readonly<Record<string, number>>;
}

export interface KvLosses {
  /** Positions that distributions were compared at. */
  readonly positions: number;
  /** Of the layers that attend, in order. */
  readonly layers: readonly KvLayerLosses[];
}

/**
 * The losses of a file; undefined where what it holds are none.
 *
 * @param layers that attend
 */
export function readKvLosses(value: unknown, layers: number): KvLosses | undefined {
  if (!isRecord(value)) return undefined;
  const { positions, layers: rows } = value;
  if (!Number.isSafeInteger(positions) || !Array.isArray(rows)) return undefined;
  if (rows.length !== layers) return undefined;
  if (!rows.every((row) => isRecord(row) && isNumbers(row.key) && isNumbers(row.value))) return undefined;
  return { positions: positions as number, layers: rows as KvLayerLosses[] };
}

/**
 * What the formats of all layers are expected to cost: small losses add up. Undefined where a format was not measured.
 *
 * @param choices of the layers that attend
 */
export function expectedLoss(choices: readonly KvChoice[], losses: KvLosses): number | undefined {
  let sum = 0;
  for (const [i, { key, value }] of choices.entries()) {
    const layer = losses.layers[i];
    const [k, v] = [lossOf(layer?.key, kvFormatName(key)), lossOf(layer?.value, kvFormatName(value))];
    if (k === undefined || v === undefined) return undefined;
    sum += k + v;
  }
  return sum;
}

/** Floats lose nothing. */
export function lossOf(
  side: Readonly<Record<string, number>> | undefined,
  format: string,
): number | undefined {
  return format === 'f16' || format === 'f32' ? 0 : side?.[format];
}

function isNumbers(value: unknown): value is Readonly<Record<string, number>> {
  return isRecord(value) && Object.values(value).every((one) => typeof one === 'number' && one >= 0);
}

const isRecord = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
