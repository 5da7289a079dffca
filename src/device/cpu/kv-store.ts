/**
 * A layer's cache in a memory, and its description for the kernels (kv-layout.ts): what lies where, and the tables that
 * its formats need.
 */
import { KvantError } from '../../errors.js';
import {
  type KvFormat,
  type KvLayerSpec,
  type KvPoolSpec,
  kvCodeBytes,
  kvFormatName,
  kvTokenBytes,
  type TurboKv,
} from '../kv.js';
import { affineGroups } from '../kv-formats/affine.js';
import { greatestInteger, turboCodebook } from '../turboquant/codebooks.js';
import { type KvSide, type Rotation, turboRotation } from '../turboquant/rotation.js';
import { f32Word } from './command.js';
import {
  BOOK_BYTES,
  BOOK_CENTROIDS,
  BOOK_INTEGERS,
  BOOK_MIDPOINTS,
  FORMAT_A2,
  FORMAT_A3,
  FORMAT_A4,
  FORMAT_A5,
  FORMAT_A6,
  FORMAT_A8,
  FORMAT_T2,
  FORMAT_T3,
  FORMAT_T4,
  FORMAT_T8,
  KIND_AFFINE,
  KIND_F16,
  KIND_F32,
  KIND_TURBO,
  ROTATION_SIGNS,
  SIDE_BITS,
  SIDE_BYTES,
  SIDE_CENTRE,
  SIDE_CODEBOOK,
  SIDE_CODES,
  SIDE_FORMAT,
  SIDE_GROUP,
  SIDE_HEAD_BYTES,
  SIDE_KIND,
  SIDE_META,
  SIDE_MOST,
  SIDE_PLAIN,
  SIDE_ROTATION,
  SIDE_UNIT,
  SIDE_VECTOR_BYTES,
  STORE_YOUNG,
} from './kv-layout.js';

const AFFINE_FORMATS = { 2: FORMAT_A2, 3: FORMAT_A3, 4: FORMAT_A4, 5: FORMAT_A5, 6: FORMAT_A6, 8: FORMAT_A8 };
const TURBO_FORMATS = { 2: FORMAT_T2, 3: FORMAT_T3, 4: FORMAT_T4, 8: FORMAT_T8 };

/** Tables that many layers share, as addresses in one memory. */
export type Tables = (name: string, bytes: number, fill: (to: DataView) => void) => number;

/** Bytes of a layer's cache: K and V of all blocks, and the young ones where those are kept apart. */
export function layerBytes(layer: KvLayerSpec, spec: KvPoolSpec): number {
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

/** What is kept side by side: K, V, and K and V of young blocks unless they are stored like the others. */
function planes(layer: KvLayerSpec, spec: KvPoolSpec): Plane[] {
  const young = spec.young ?? null;
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
  for (const side of ['key', 'value'] as const) {
    const format = layer[side];
    const shared = young !== null && format.kind === 'float' && format.dtype === young.dtype;
    own.push(plane(side, format, spec.blocks + (shared ? young.blocks : 0), 0));
    if (young !== null && !shared) {
      apart.push(plane(side, { kind: 'float', dtype: young.dtype }, young.blocks, spec.blocks));
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
  const first = spec.young ? spec.blocks : 0xffff_ffff;
  to.setUint32(STORE_YOUNG, first, true);
  let place = at;
  for (const plane of planes(layer, spec)) {
    const young = plane.first > 0;
    const side = plane.side === 'key' ? 0 : 1;
    writeSide(to, (young ? 2 : 0) + side, plane, place, layer, spec, tables);
    // Until a plane of their own comes, young blocks lie behind the others.
    if (!young) writeSide(to, 2 + side, plane, place, layer, spec, tables);
    place += plane.bytes;
  }
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
  const vector = kvCodeBytes(format, headDim);
  const head = vector * spec.blockTokens;
  // Blocks are counted from 0 wherever the plane begins; addresses wrap around at 4 GiB.
  put(SIDE_CODES, (at - first * kvHeads * head) >>> 0);
  put(SIDE_HEAD_BYTES, head);
  put(SIDE_VECTOR_BYTES, vector);
  put(SIDE_META, at + blocks * kvHeads * head);
  if (format.kind === 'float') {
    put(SIDE_KIND, format.dtype === 'f16' ? KIND_F16 : KIND_F32);
    return;
  }
  put(SIDE_BITS, format.bits);
  if (format.kind === 'affine') {
    put(SIDE_KIND, KIND_AFFINE);
    put(SIDE_GROUP, format.groupSize);
    put(SIDE_FORMAT, AFFINE_FORMATS[format.bits]);
    put(SIDE_CENTRE, 2 ** (format.bits - 1));
    put(SIDE_UNIT, f32Word(1));
    put(SIDE_MOST, f32Word(32767));
    return;
  }
  const book = integerCentroids(format, side, headDim);
  put(SIDE_KIND, KIND_TURBO);
  put(SIDE_PLAIN, format.plainKeys ? 1 : 0);
  put(SIDE_GROUP, headDim);
  put(SIDE_FORMAT, TURBO_FORMATS[format.bits]);
  put(SIDE_CENTRE, book.centre);
  put(SIDE_UNIT, f32Word(book.unit));
  put(SIDE_MOST, f32Word(book.most));
  const rotation = turboRotation(headDim, side);
  put(
    SIDE_ROTATION,
    tables(`rotation ${side} ${headDim}`, ROTATION_SIGNS + 4 * (headDim + rotation.matrix.length), (view) =>
      writeRotation(view, rotation),
    ),
  );
  put(
    SIDE_CODEBOOK,
    tables(`codebook ${side} ${headDim} ${format.bits}`, BOOK_BYTES, (view) =>
      writeBook(view, format.bits, side, headDim, book.integers),
    ),
  );
}

function writeRotation(view: DataView, { headDim, base, power, scale, signs, matrix }: Rotation): void {
  view.setUint32(0, base, true);
  view.setUint32(4, power, true);
  view.setFloat32(8, scale, true);
  signs.forEach((sign, d) => {
    view.setFloat32(ROTATION_SIGNS + d * 4, sign, true);
  });
  matrix.forEach((entry, i) => {
    view.setFloat32(ROTATION_SIGNS + (headDim + i) * 4, entry, true);
  });
}

interface IntegerCentroids {
  readonly integers: Int32Array;
  readonly centre: number;
  readonly unit: number;
  /** The largest integer of a query. */
  readonly most: number;
}

/**
 * Up to 4 bits the centroids are whole multiples of a unit (codebooks.ts) and fit 8 bits. Those of 8 bits are rounded
 * here: of V so that 32 of them times weights of 15 bits stay within 31 bits; of K so that a query of 13 bits times a
 * unit vector does, whatever its direction (Cauchy–Schwarz).
 */
function integerCentroids({ bits }: TurboKv, side: KvSide, headDim: number): IntegerCentroids {
  const { centroids } = turboCodebook(headDim, bits, side);
  const top = centroids[centroids.length - 1]!;
  const most = bits < 8 || side === 'value' ? 32767 : 8191;
  const largest =
    bits < 8
      ? greatestInteger(headDim, bits, side)
      : side === 'value'
        ? 2047
        : Math.min(32767, Math.floor((2 ** 31 / (1.1 * most * Math.sqrt(headDim))) * top));
  const unit = top / largest;
  return {
    integers: Int32Array.from(centroids, (c) => Math.round(c / unit)),
    centre: bits < 8 ? 128 : 0,
    unit,
    most,
  };
}

function writeBook(view: DataView, bits: number, side: KvSide, headDim: number, integers: Int32Array): void {
  const { centroids, midpoints } = turboCodebook(headDim, bits, side);
  midpoints.forEach((m, i) => {
    view.setFloat32(BOOK_MIDPOINTS + i * 4, m, true);
  });
  centroids.forEach((c, i) => {
    view.setFloat32(BOOK_CENTROIDS + i * 4, c, true);
  });
  if (bits === 8) {
    integers.forEach((n, i) => {
      view.setInt16(BOOK_INTEGERS + i * 2, n, true);
    });
    return;
  }
  // An index of 4 bits may hold more than the code: below it in the second table, above it in the first.
  for (let i = 0; i < 16; i++) {
    view.setUint8(i, 128 + integers[i % integers.length]!);
    view.setUint8(16 + i, 128 + integers[(i >> 2) % integers.length]!);
  }
}

/** Errors: `kv-format-unsupported`. */
export function checkLayer(layer: KvLayerSpec, index: number): void {
  for (const format of [layer.key, layer.value]) {
    if (format.kind === 'float' || layer.headDim % 16 === 0) continue;
    throw new KvantError(
      'kv-format-unsupported',
      `The CPU device cannot keep heads of ${layer.headDim} (layer ${index}) as ${kvFormatName(format)}.`,
      { kind: 'unsupported', fix: 'Use f16 or f32 for head sizes that are not multiples of 16.' },
    );
  }
}

/** Groups of a V vector, for the scratch of attention; 0 for floats. */
export function valueGroups({ value, headDim }: KvLayerSpec): number {
  if (value.kind === 'float') return 0;
  return value.kind === 'affine' ? affineGroups(value, headDim) : 1;
}

export function isCoded({ key, value }: KvLayerSpec): boolean {
  return key.kind !== 'float' || value.kind !== 'float';
}

function roundUp(bytes: number): number {
  return Math.ceil(bytes / 64) * 64;
}
