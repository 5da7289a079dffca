/** The layer policy: which format each layer's cache is kept in, and why. */

import type { DeviceInfo } from '../device/device.js';
import {
  type FloatKv,
  isFloatKv,
  type KvFormat,
  type KvLayerSpec,
  kvFloatLayers,
  kvFormatName,
  kvSideBytes,
  kvUnusable,
} from '../device/kv.js';
import { type StateShape, stateBytes } from '../device/state.js';
import { KvantError } from '../errors.js';
import type { KvChoice } from './formats.js';
import { type CacheGroup, cacheGroups } from './groups.js';
import type { KvRequest } from './options.js';

/** What a layer caches, its format left open. */
export interface KvLayerShape {
  /** The layer of the model. Default: its place in the list. */
  readonly layer?: number;
  /** The layer is recurrent: it keeps a state of this shape, and no K and V (`kvHeads` is 0). */
  readonly state?: StateShape;
  readonly kvHeads: number;
  readonly headDim: number;
  /** The layer keeps latents: V is a view of K, its last so many numbers (KvLayerSpec). */
  readonly valueDim?: number;
  /** Tokens it looks back, null for all. */
  readonly window: number | null;
  readonly group: number;
}

/** How the KV cache of one layer is kept. */
export interface KvLayerInfo {
  readonly layer: number;
  /**
   * `sliding`: attention looks back so far only, and blocks behind the window are given back. `recurrent`: a sequence has one
   * state, always f32, however long it is. `latent`: a token has one vector, which is the key of all heads, and of which the values are a part.
   */
  readonly kind: 'full' | 'sliding' | 'recurrent' | 'latent';
  /** Effective formats, as people write them: `f16`, `affine8`, `turbo3`. Of latents they are one. */
  readonly key: string;
  readonly value: string;
  /** Bytes of one token's K over all heads: codes, scales, biases, norms and padding. */
  readonly keyBytes: number;
  /** 0 of latents, whose values are in the keys. */
  readonly valueBytes: number;
  /** Of a recurrent layer: bytes of a sequence's state. */
  readonly stateBytes?: number;
  /** Why the layer has another format than was asked for. */
  readonly reason?: string;
}

/** Sequences keep float KV in every layer until they hold `start` tokens. */
export interface KvFloatStartPlan {
  readonly start: number;
  readonly dtype: FloatKv['dtype'];
}

/** A head: the first `tokens` of every sequence are floats in every layer, for good, whole blocks. A tail: the newest ones, besides. */
export interface KvFloatHeadPlan {
  readonly tokens: number;
  readonly dtype: FloatKv['dtype'];
}

export interface KvPlan {
  readonly layers: readonly KvLayerSpec[];
  readonly info: readonly KvLayerInfo[];
  /** Layers that share blocks, the full ones first (groups.ts). */
  readonly groups: readonly CacheGroup[];
  /** Null: every token is stored in its layers' formats from the first on. */
  readonly floatStart: KvFloatStartPlan | null;
  /** Null: the first tokens are stored as the others. */
  readonly floatHead: KvFloatHeadPlan | null;
  /** Null: the newest tokens are read as they are stored. Of the layers that are quantised. */
  readonly floatTail: KvFloatHeadPlan | null;
}

const F32: FloatKv = { kind: 'float', dtype: 'f32' };

/** The format when none is asked for, and of layers that stay float: f16, but f32 where the arithmetic is the reference. */
export function defaultKvFormat(device: Pick<DeviceInfo, 'precision'>): FloatKv {
  return { kind: 'float', dtype: device.precision === 'reference' ? 'f32' : 'f16' };
}

/**
 * Gives every layer its format.
 * - Recurrent layers have no format: their state is f32.
 * - Sliding-window layers stay float: they hold few tokens, and each of them counts for much.
 * - The last attention layer stays float where more than two could be quantised, or those of `skipLayers`.
 * - A format that a layer cannot use gives way to float, for K and V apart.
 * - Latents have the format that was asked for K.
 *
 * `blockTokens`: a float head is whole blocks; `can`: what the device does. `context` is the longest sequence: one that never reaches `quantizedStart` stays float.
 *
 * Errors: `kv-layer-unknown`, where `skipLayers` names a layer that is not there; `kv-options-invalid`, where formats by layer are those of another model;
 * `kv-tail-unsupported`, where the device keeps no float tail, or none so long.
 */
export function planKvLayers(
  layers: readonly KvLayerShape[],
  request: KvRequest,
  float: FloatKv,
  context = Number.POSITIVE_INFINITY,
  blockTokens = 16,
  can: Pick<DeviceInfo, 'floatHeads' | 'floatTails'> = {},
): KvPlan {
  // Where a float format was named, it is the one for all that stays float.
  const named = [request.key, request.value].find((format) => format !== null && isFloatKv(format));
  const ask = named ?? float;
  const one: KvChoice = { key: request.key ?? ask, value: request.value ?? ask };
  const byLayer = formatsByLayer(request.layers, layers.length);
  const skipped = skippedLayers(layers, request.skipLayers ?? (byLayer === null ? null : []));
  const late = request.quantizedStart >= context && request.quantizedStart > 0;
  const specs: KvLayerSpec[] = [];
  const info: KvLayerInfo[] = [];
  layers.forEach((shape, place) => {
    const { layer = place, kvHeads, headDim, valueDim, group, window, state } = shape;
    if (state !== undefined) {
      specs.push({ state, kvHeads: 0, headDim: 0, key: F32, value: F32, group });
      const kept = { key: 'f32', value: 'f32', keyBytes: 0, valueBytes: 0, stateBytes: stateBytes(state) };
      info.push({ layer, kind: 'recurrent', ...kept });
      return;
    }
    const whole = late
      ? `no sequence of ${context} tokens reaches the ${request.quantizedStart} at which it would be quantised`
      : window !== null
        ? 'sliding-window layers stay float'
        : skipped.get(place);
    const wanted = byLayer?.[place] ?? one;
    const key = effective(wanted.key, ask, shape, whole);
    const value = valueDim === undefined ? effective(wanted.value, ask, shape, whole) : key;
    const reason = key.reason ?? value.reason;
    const latent = valueDim === undefined ? {} : { valueDim };
    specs.push({ kvHeads, headDim, ...latent, key: key.format, value: value.format, group });
    info.push({
      layer,
      kind: valueDim !== undefined ? 'latent' : window === null ? 'full' : 'sliding',
      key: kvFormatName(key.format),
      value: kvFormatName(value.format),
      keyBytes: kvSideBytes(shape, 'key', key.format),
      valueBytes: kvSideBytes(shape, 'value', value.format),
      ...(reason === undefined ? {} : { reason }),
    });
  });
  const quantised = specs.some(({ key, value }) => !isFloatKv(key) || !isFloatKv(value));
  const floatStart = quantised && request.quantizedStart > 0;
  const groups = cacheGroups(layers.map(({ window, state }) => (state === undefined ? window : 'state')));
  const headTokens = request.floatHead === 'auto' ? (can.floatHeads ? AUTO_HEAD : 0) : request.floatHead;
  const floatHead =
    quantised && headTokens > 0 ? { tokens: wholeHead(headTokens, blockTokens), dtype: ask.dtype } : null;
  const { floatTail: tailTokens } = request;
  const { floatTails: mostTail = 0 } = can;
  if (tailTokens > mostTail) throw tailUnsupported(tailTokens, mostTail);
  const floatTail = quantised && tailTokens > 0 ? { tokens: tailTokens, dtype: ask.dtype } : null;
  const coded = groups[0]!.layers.filter((layer) =>
    [specs[layer]!.key, specs[layer]!.value].some((format) => !isFloatKv(format)),
  );
  return {
    layers: specs,
    info,
    groups: [
      ...groups,
      ...(floatTail === null ? [] : [{ window: floatTail.tokens, layers: coded, tail: true }]),
      ...(floatHead === null ? [] : [{ window: null, layers: groups[0]!.layers, head: floatHead.tokens }]),
    ],
    floatHead,
    floatTail,
    floatStart: floatStart ? { start: request.quantizedStart, dtype: ask.dtype } : null,
  };
}

function tailUnsupported(tokens: number, most: number): KvantError {
  const [kept, fix] =
    most === 0
      ? ['no float tail', 'Leave it out, or run on the CPU.']
      : [`float tails of up to ${most} tokens`, `Give ${most} or less, or run on the CPU.`];
  return new KvantError(
    'kv-tail-unsupported',
    `This device keeps ${kept}; ${tokens} tokens were asked for.`,
    { kind: 'unsupported', where: 'kvFloatTail', fix },
  );
}

function formatsByLayer(of: KvRequest['layers'], layers: number): readonly KvChoice[] | null {
  if (of === null) return null;
  if (of !== 'open' && of.length === layers) return of;
  const [where, what, fix] =
    of === 'open'
      ? ([
          'kvBytesPerToken',
          'The formats of layers are still to be picked.',
          'Give kvLayerFormats here.',
        ] as const)
      : ([
          'kvLayerFormats',
          `There are formats for ${of.length} layers; the model has ${layers}.`,
          'Give one for each layer.',
        ] as const);
  throw new KvantError('kv-options-invalid', what, { kind: 'invalid-request', where, fix });
}

/** First tokens differ most from the others: what more than these gain is little. */
const AUTO_HEAD = 32;
/** Tokens of a tile of attention, which are stored alike. */
const HEAD_UNIT = 32;

function wholeHead(tokens: number, blockTokens: number): number {
  const unit = Math.max(HEAD_UNIT, blockTokens);
  return Math.ceil(tokens / unit) * unit;
}

/** The layers of a cache group, as it keeps them. */
export function groupLayers(
  { layers, floatHead, floatTail }: KvPlan,
  { layers: own, head, tail = false }: CacheGroup,
): KvLayerSpec[] {
  const formats = own.map((layer) => layers[layer]!);
  const float = tail ? floatTail : head === undefined ? null : floatHead;
  return float === null ? formats : kvFloatLayers(formats, float.dtype);
}

function effective(
  wanted: KvFormat,
  float: FloatKv,
  shape: KvLayerShape,
  whole: string | undefined,
): { format: KvFormat; reason?: string } {
  if (isFloatKv(wanted)) return { format: wanted };
  const reason = whole ?? kvUnusable(wanted, shape);
  return reason === undefined ? { format: wanted } : { format: float, reason };
}

/** Places of layers that are not quantised by choice, with the reason. */
function skippedLayers(
  layers: readonly KvLayerShape[],
  skip: readonly number[] | null,
): ReadonlyMap<number, string> {
  if (skip === null) {
    const full = layers.flatMap(({ window, state }, place) =>
      window === null && state === undefined ? [place] : [],
    );
    return full.length > 2 ? new Map([[full.at(-1)!, 'the last attention layer stays float']]) : new Map();
  }
  return new Map(skippedPlaces(layers, skip).map((place) => [place, 'it is one of the layers to skip']));
}

/**
 * Where the K and V of layers stand in the list, which may have a state beside them, or nothing of a layer.
 *
 * Errors: `kv-layer-unknown`.
 */
export function skippedPlaces(layers: readonly KvLayerShape[], skip: readonly number[]): number[] {
  const count = 1 + Math.max(-1, ...layers.map(({ layer }, place) => layer ?? place));
  return skip.flatMap((layer) => {
    const index = layer < 0 ? count + layer : layer;
    if (index < 0 || index >= count)
      throw new KvantError('kv-layer-unknown', `There is no layer ${layer} of ${count}.`, {
        kind: 'invalid-request',
        where: 'kvSkipLayers',
        fix: `Give layers from 0 to ${count - 1}, or from the end: −1 is the last.`,
      });
    const place = layers.findIndex((one, at) => (one.layer ?? at) === index && one.state === undefined);
    return place < 0 ? [] : [place];
  });
}
