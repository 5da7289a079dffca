/**
 * A layer's cache in a memory, and its description for the kernels (kv-layout.ts): what lies where, and the tables that
 * its formats need.
 */
import { KvantError } from '../../errors.js';
import {
  isFloatKv,
  type KvFormat,
  type KvLayerSpec,
  type KvPoolSpec,
  kvCodeBytes,
  kvFormatName,
  kvSides,
  kvTokenBytes,
  kvUnusable,
} from '../kv.js';
import { stateBytes } from '../state.js';
import type { KvSide } from '../turboquant/rotation.js';
import type { Tables } from './kv-formats/codec.js';
import { codecOf, codedKinds } from './kv-formats/list.js';
import {
  SIDE_BYTES,
  SIDE_CODES,
  SIDE_HEAD_BYTES,
  SIDE_KIND,
  SIDE_META,
  SIDE_VECTOR_BYTES,
  STORE_FLOAT_START,
  STORE_HEAD,
} from './kv-layout.js';

/** Bytes of a layer's cache: K and V of all blocks, and the float-start ones where those are kept apart. */
export function layerBytes(layer: KvLayerSpec, spec: KvPoolSpec): number {
  if (layer.state !== undefined) return spec.blocks * stateBytes(layer.state);
  return planes(layer, spec).reduce((sum, { bytes }) => sum + bytes, 0);
}

interface Plane {
  readonly side: KvSide;
  readonly format: KvFormat;
  readonly blocks: number;
  /** The first block it holds. */
  readonly first: number;
  readonly bytes: number;
}

/** What is kept side by side: K, V unless it is a view of K, and those of float-start blocks unless they are stored like the others. */
function planes(layer: KvLayerSpec, spec: KvPoolSpec): Plane[] {
  const floatStart = spec.floatStart ?? null;
  const own: Plane[] = [];
  const apart: Plane[] = [];
  const plane = (side: KvSide, format: KvFormat, blocks: number, first: number): Plane => {
    const tokens = blocks * spec.blockTokens;
    return {
      side,
      format,
      blocks,
      first,
      bytes: roundUp(tokens * kvTokenBytes(format, layer.headDim, layer.kvHeads)),
    };
  };
  for (const side of kvSides(layer)) {
    const format = layer[side];
    const shared = floatStart !== null && isFloatKv(format) && format.dtype === floatStart.dtype;
    own.push(plane(side, format, spec.blocks + (shared ? floatStart.blocks : 0), 0));
    if (floatStart !== null && !shared) {
      apart.push(plane(side, { kind: 'float', dtype: floatStart.dtype }, floatStart.blocks, spec.blocks));
    }
  }
  return [...own, ...apart];
}

/** Writes the description of a layer whose cache begins at `at`. `to`: STORE_BYTES. */
export function writeStore(
  to: DataView,
  at: number,
  layer: KvLayerSpec,
  spec: KvPoolSpec,
  tables: Tables,
): void {
  const first = spec.floatStart ? spec.blocks : 0xffff_ffff;
  to.setUint32(STORE_FLOAT_START, first, true);
  to.setUint32(STORE_HEAD, headTokens(layer, spec), true);
  if (layer.state !== undefined) {
    to.setUint32(SIDE_CODES, at, true);
    return;
  }
  let place = at;
  for (const plane of planes(layer, spec)) {
    const floatStart = plane.first > 0;
    const side = plane.side === 'key' ? 0 : 1;
    writeSide(to, (floatStart ? 2 : 0) + side, plane, place, layer, spec, tables);
    // Until a plane of their own comes, float-start blocks lie behind the others.
    if (!floatStart) writeSide(to, 2 + side, plane, place, layer, spec, tables);
    place += plane.bytes;
  }
}

/** Positions whose vectors are floats while later ones are not; 0 where all are stored alike. */
export function headTokens(layer: KvLayerSpec, spec: KvPoolSpec): number {
  const apart = planes(layer, spec).some(({ first }) => first > 0);
  return apart ? (spec.floatStart?.head ?? 0) : 0;
}

function writeSide(
  to: DataView,
  index: number,
  { side, format, blocks, first }: Plane,
  at: number,
  layer: KvLayerSpec,
  spec: KvPoolSpec,
  tables: Tables,
): void {
  const { headDim, kvHeads } = layer;
  const put = (offset: number, word: number): void => to.setUint32(index * SIDE_BYTES + offset, word, true);
  // Nothing is left of the plane that was described here before.
  for (let offset = 0; offset < SIDE_BYTES; offset += 4) put(offset, 0);
  const vector = kvCodeBytes(format, headDim);
  const head = vector * spec.blockTokens;
  // Blocks are counted from 0 wherever the plane begins; addresses wrap around at 4 GiB.
  put(SIDE_CODES, (at - first * kvHeads * head) >>> 0);
  put(SIDE_HEAD_BYTES, head);
  put(SIDE_VECTOR_BYTES, vector);
  put(SIDE_META, at + blocks * kvHeads * head);
  const coded = codedKinds().find(({ kind }) => kind === format.kind);
  if (coded !== undefined) put(SIDE_KIND, coded.number);
  codecOf(format).describe(format, side, headDim, put, tables);
}

/** Errors: `kv-format-unsupported`. */
export function checkLayer(layer: KvLayerSpec, index: number): void {
  for (const format of [layer.key, layer.value]) {
    const takes =
      layer.valueDim === undefined
        ? codecOf(format).takes(format, layer.headDim)
        : kvUnusable(format, layer) === undefined;
    if (takes) continue;
    throw new KvantError(
      'kv-format-unsupported',
      `The CPU device cannot keep heads of ${layer.headDim} (layer ${index}) as ${kvFormatName(format)}.`,
      {
        kind: 'unsupported',
        fix: 'Use f16 or f32 for head sizes that are not multiples of 16, or above 256.',
      },
    );
  }
}

/** Groups of a V vector, for the scratch of attention; 0 for floats, and where V is a view of K, which is read as floats. */
export function valueGroups({ value, headDim, valueDim }: KvLayerSpec): number {
  return valueDim === undefined ? codecOf(value).groups(value, headDim) : 0;
}

export function isCoded({ key, value }: KvLayerSpec): boolean {
  return [key, value].some((format) => codecOf(format).assembly !== null);
}

function roundUp(bytes: number): number {
  return Math.ceil(bytes / 64) * 64;
}
