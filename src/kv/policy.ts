/**
 * The layer policy: which format each layer's cache is kept in, and why. So far every layer takes a float
 * format; a quantised one will be refused here by the layers that cannot use it, and the report says so.
 */

import type { DeviceInfo } from '../device/device.js';
import { type KvFormat, type KvLayerSpec, kvFormatName } from '../device/kv.js';
import { KvantError } from '../errors.js';

/** What a layer caches, its format left open. */
export interface KvLayerShape {
  readonly kvHeads: number;
  readonly headDim: number;
  /** Tokens it looks back, null for all. */
  readonly window: number | null;
  readonly group: number;
}

/** How the KV cache of one layer is kept. */
export interface KvLayerInfo {
  readonly layer: number;
  /** `sliding`: attention looks back so far only; the cache keeps all positions for now. */
  readonly kind: 'full' | 'sliding';
  /** Effective formats, as people write them: `f16`. */
  readonly key: string;
  readonly value: string;
  /** Why the layer has another format than was asked for. */
  readonly reason?: string;
}

export interface KvPlan {
  readonly layers: readonly KvLayerSpec[];
  readonly info: readonly KvLayerInfo[];
}

/** Formats by the names that options take. */
const FORMATS: Readonly<Record<string, KvFormat>> = {
  f16: { kind: 'float', dtype: 'f16' },
  f32: { kind: 'float', dtype: 'f32' },
};

export const KV_FORMAT_NAMES: readonly string[] = Object.keys(FORMATS);

/** Errors: `kv-format-unknown`. */
export function parseKvFormat(name: string): KvFormat {
  const format = Object.hasOwn(FORMATS, name) ? FORMATS[name] : undefined;
  if (format !== undefined) return format;
  throw new KvantError('kv-format-unknown', `There is no KV format ${JSON.stringify(name)}.`, {
    kind: 'invalid-request',
    where: 'kvFormat',
    fix: `Use one of: ${KV_FORMAT_NAMES.join(', ')}.`,
  });
}

/** The format when none is asked for: f16, but f32 where the arithmetic is the reference. */
export function defaultKvFormat(device: Pick<DeviceInfo, 'precision'>): KvFormat {
  return FORMATS[device.precision === 'reference' ? 'f32' : 'f16']!;
}

/** Gives every layer its format. */
export function planKvLayers(layers: readonly KvLayerShape[], wanted: KvFormat): KvPlan {
  const specs: KvLayerSpec[] = [];
  const info: KvLayerInfo[] = [];
  layers.forEach((shape, layer) => {
    const { kvHeads, headDim, group, window } = shape;
    specs.push({ kvHeads, headDim, key: wanted, value: wanted, group });
    const name = kvFormatName(wanted);
    info.push({ layer, kind: window === null ? 'full' : 'sliding', key: name, value: name });
  });
  return { layers: specs, info };
}
