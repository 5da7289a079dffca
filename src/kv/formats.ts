/** KV formats by name, as options, tables and reports write them. */

import { type KvFormat, kvFormatName } from '../device/kv.js';
import type { KvPair } from '../device/kv-formats/kind.js';
import { KV_FORMATS, kvFormatKind } from '../device/kv-formats/list.js';
import { KvantError } from '../errors.js';

/** How K and V of a layer are stored: each for itself. */
export interface KvChoice {
  readonly key: KvFormat;
  readonly value: KvFormat;
}

/** What the names look like, for help and errors. */
export function kvFormatNames(): string[] {
  return [
    ...KV_FORMATS.flatMap(({ names }) => names),
    ...KV_FORMATS.flatMap(({ pairs }) => pairs?.names ?? []),
    'K/V',
  ];
}

/**
 * One format: `f16`, `f32`, `affine4` (groups of 64), `affine8-g32`, `turbo3`; what `kvFormatName` writes. `turbo3-plain`
 * leaves out what corrects the norms of keys: `kvant eval kv` shows what that is worth.
 * Errors: `kv-format-unknown`.
 */
export function parseKvFormat(name: string): KvFormat {
  const format = formatOf(name);
  if (format === undefined) throw unknown(name);
  return format;
}

/**
 * Formats of K and V: one for both, `affine8/turbo4` for each its own, or `turbo3.5`: K at 3, V at 4 bits.
 * Errors: `kv-format-unknown`.
 */
export function parseKvChoice(name: string): KvChoice {
  for (const { pairs } of KV_FORMATS) {
    const pair = pairs?.parse(name);
    if (pair !== undefined) return pair as KvChoice;
  }
  const [key, value, ...rest] = name.split('/');
  const k = formatOf(key ?? '');
  const v = formatOf(value ?? key ?? '');
  if (k === undefined || v === undefined || rest.length > 0) throw unknown(name);
  return { key: k, value: v };
}

/** The shortest name that `parseKvChoice` reads as this. */
export function kvChoiceName({ key, value }: KvChoice): string {
  const [k, v] = [kvFormatName(key), kvFormatName(value)];
  if (k === v) return k;
  const { pairs } = kvFormatKind(key);
  const pair: KvPair = { key, value };
  return (key.kind === value.kind ? pairs?.name(pair) : undefined) ?? `${k}/${v}`;
}

function formatOf(name: string): KvFormat | undefined {
  for (const kind of KV_FORMATS) {
    const format = kind.parse(name);
    if (format !== undefined) return format as KvFormat;
  }
  return undefined;
}

function unknown(name: string): KvantError {
  return new KvantError('kv-format-unknown', `There is no KV format ${JSON.stringify(name)}.`, {
    kind: 'invalid-request',
    where: 'kvFormat',
    fix: `Use one of: ${kvFormatNames().join(', ')}; for example affine8, affine4-g32, turbo3.5 or affine8/turbo4.`,
  });
}
