/** KV formats by name, as options, tables and reports write them. */

import {
  AFFINE_BITS,
  AFFINE_GROUPS,
  type AffineKv,
  type FloatKv,
  type KvFormat,
  kvFormatName,
  TURBO_BITS,
  type TurboKv,
} from '../device/kv.js';
import { KvantError } from '../errors.js';

/** How K and V of a layer are stored: each for itself. */
export interface KvChoice {
  readonly key: KvFormat;
  readonly value: KvFormat;
}

/** Values per scale and bias where nothing else is said. */
export const DEFAULT_KV_GROUP = 64;

/** What the names look like, for help and errors. */
export const KV_FORMAT_NAMES: readonly string[] = [
  'f16',
  'f32',
  `affine${AFFINE_BITS.join('|')}[-g${AFFINE_GROUPS.join('|')}]`,
  `turbo${TURBO_BITS.join('|')}`,
  'turbo2.5|3.5',
  'K/V',
];

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
  const half = /^turbo(\d+)\.5(-plain)?$/.exec(name);
  const [key, value, ...rest] =
    half === null ? name.split('/') : [`turbo${half[1]}${half[2] ?? ''}`, `turbo${Number(half[1]) + 1}`];
  const k = formatOf(key ?? '');
  const v = formatOf(value ?? key ?? '');
  if (k === undefined || v === undefined || rest.length > 0) throw unknown(name);
  return { key: k, value: v };
}

/** The shortest name that `parseKvChoice` reads as this. */
export function kvChoiceName({ key, value }: KvChoice): string {
  const [k, v] = [kvFormatName(key), kvFormatName(value)];
  if (k === v) return k;
  const turbo = key.kind === 'turboquant' && value.kind === 'turboquant' && !value.plainKeys;
  if (turbo && value.bits === key.bits + 1) return `turbo${key.bits}.5${key.plainKeys ? '-plain' : ''}`;
  return `${k}/${v}`;
}

/** Undefined where TurboQuant, or the uniform scheme, has no such width. */
export function turboFormat(bits: number): TurboKv | undefined {
  const known = TURBO_BITS.find((b) => b === bits);
  return known === undefined ? undefined : { kind: 'turboquant', bits: known };
}

export function affineFormat(bits: number, groupSize: number): AffineKv | undefined {
  const known = AFFINE_BITS.find((b) => b === bits);
  const group = AFFINE_GROUPS.find((g) => g === groupSize);
  return known === undefined || group === undefined
    ? undefined
    : { kind: 'affine', bits: known, groupSize: group };
}

export function isFloat(format: KvFormat): format is FloatKv {
  return format.kind === 'float';
}

function formatOf(name: string): KvFormat | undefined {
  if (name === 'f16' || name === 'f32') return { kind: 'float', dtype: name };
  const match = /^(?:turbo(\d)(-plain)?|affine(\d)(?:-g(\d+))?)$/.exec(name);
  if (match === null) return undefined;
  const [, turbo, plain, bits, group] = match;
  if (turbo !== undefined) {
    const format = turboFormat(Number(turbo));
    return format === undefined || plain === undefined ? format : { ...format, plainKeys: true };
  }
  return affineFormat(Number(bits), Number(group ?? DEFAULT_KV_GROUP));
}

function unknown(name: string): KvantError {
  return new KvantError('kv-format-unknown', `There is no KV format ${JSON.stringify(name)}.`, {
    kind: 'invalid-request',
    where: 'kvFormat',
    fix: `Use one of: ${KV_FORMAT_NAMES.join(', ')}; for example affine8, affine4-g32, turbo3.5 or affine8/turbo4.`,
  });
}
