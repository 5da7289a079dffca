/** Attention of single-token rows on subgroups: what can be chosen of its kernel, and what follows from that. */

import type { KvFormat } from '../../kv.js';
import { isFloatKv } from '../../kv.js';
import { affineGroups } from '../../kv-formats/affine.js';
import { ATTENTION_SPLIT } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { hasBytes, PLANE_DIMS } from './attend-planes.js';
import { bookCopies, bookEntries, TRANSPOSED_DIMS } from './attend-unpack.js';
import { codesInRuns, hasNorm, hasScales, isTransposed, unpacksWords } from './kv-formats/list.js';
import type { KvSideSpec } from './kv-formats/side.js';
import { TRANSPOSED_POSITIONS, TRANSPOSED_TOKENS } from './kv-formats/turbo-layout.js';
import { sideOf } from './kv-rows.js';

export interface DecodeConfig {
  /** Lanes of a subgroup: must be the device's one and only size. */
  readonly subgroupSize: number;
  readonly threads: number;
  /** Positions of an item; ATTENTION_SPLIT if omitted. */
  readonly split?: number;
  /** Pieces of K, and of V, that a thread has on their way at once. */
  readonly unroll: number;
  readonly valueUnroll?: number;
  /** Dims of K, and of V, that a lane takes; by format and group if omitted. */
  readonly keyDims?: number;
  readonly valueDims?: number;
  /** Loads run one turn ahead of their use. */
  readonly ahead?: boolean;
  /** The device has f16: codes become floats by way of halves. */
  readonly f16?: boolean;
  /** Keys are multiplied as bytes where they can, four at once; true if omitted. */
  readonly dot?: boolean;
}

export interface DecodePlan {
  readonly group: number;
  /** Dims of K a lane multiplies, and lanes that share a key. */
  readonly keyDims: number;
  readonly keyLanes: number;
  readonly valueDims: number;
  readonly valueLanes: number;
  /** Positions of a lane's piece of V: several of transposed values. */
  readonly valueTokens: number;
  readonly valueUnroll: number;
  readonly split: number;
  /** Affine groups of V. */
  readonly valueGroups: number;
  /** Keys are multiplied as bytes. */
  readonly dot: boolean;
  readonly bytes: number;
}

/** The fewest dims whose codes fill whole words. */
function leastDims(format: KvFormat): number {
  if (isFloatKv(format)) return 4;
  if (hasNorm(format)) return format.bits === 8 ? 4 : PLANE_DIMS;
  return { 2: 16, 3: 32, 4: 8, 5: 32, 6: 16, 8: 4 }[format.bits];
}

/** Dims of a lane's piece of transposed values: it is four words, one load. */
const TRANSPOSED_PIECE = 4 * TRANSPOSED_DIMS;

/** Dims of K of a lane that heads of more than 256 take at least, to have a key in one subgroup. */
function wideDims({ headDim }: AttendShape, { subgroupSize }: DecodeConfig): number {
  return headDim > 256 ? headDim / subgroupSize : 0;
}

export function planDecode(shape: AttendShape, config: DecodeConfig): DecodePlan {
  const { key, value, headDim } = shape;
  const group = shape.heads / shape.kvHeads;
  const dot = hasBytes(key) && config.dot !== false;
  const transposed = isTransposed({ name: 'values', format: value, headDim });
  const keyDims =
    config.keyDims ??
    (isFloatKv(key)
      ? Math.max(group <= 4 ? 16 : 8, wideDims(shape, config))
      : Math.max(leastDims(key), dot && group <= 4 ? 32 : 16));
  // A lane has as many sums as dims times heads: of runs, whole ones of four heads, and halves of more.
  const valueDims =
    config.valueDims ??
    (isFloatKv(value)
      ? 8
      : transposed
        ? TRANSPOSED_PIECE
        : codesInRuns(value)
          ? PLANE_DIMS / (group <= 4 ? 1 : 2)
          : Math.max(leastDims(value), group <= 4 ? 16 : 8));
  const valueLanes = headDim / valueDims;
  const split = config.split ?? ATTENTION_SPLIT;
  const valueGroups = hasScales(value) ? affineGroups(value, headDim) : 1;
  const parts = config.threads / Math.max(valueLanes, config.subgroupSize);
  const books = [key, value].reduce(
    (sum, f) => sum + bookEntries(f) * bookCopies(config.subgroupSize) * 4,
    0,
  );
  const bytes =
    Math.max(split * group, Math.max(1, parts) * group * headDim) * 4 +
    (hasScales(value) ? split * valueGroups * 4 + group * valueGroups * 4 : 0) +
    books +
    (dot ? group * headDim * 6 + group * 4 : 0) +
    (hasNorm(value) ? split * 4 : 0) +
    (split / shape.blockTokens) * (hasNorm(key) || hasNorm(value) ? 8 : 4);
  return {
    group,
    keyDims,
    keyLanes: headDim / keyDims,
    valueDims,
    valueLanes,
    valueTokens: transposed ? TRANSPOSED_POSITIONS.length : 1,
    valueUnroll: config.valueUnroll ?? config.unroll,
    split,
    valueGroups,
    dot,
    bytes,
  };
}

/** Of the model that has the widest (Gemma 4). */
const WIDEST_HEAD = 512;

const powerOfTwo = (n: number): boolean => n > 0 && Number.isInteger(n) && (n & (n - 1)) === 0;

export function decodeFits(shape: AttendShape, config: DecodeConfig, workgroupBytes: number): boolean {
  const { headDim, valueDim } = shape;
  // Latents are left to the portable kernel.
  if (headDim > WIDEST_HEAD || valueDim !== undefined) return false;
  if (!unpacksWords(shape.key) || !unpacksWords(shape.value)) return false;
  const { subgroupSize: lanes, threads, unroll } = config;
  const plan = planDecode(shape, config);
  const { keyDims, keyLanes, valueDims, valueLanes, valueTokens, valueUnroll, split, group, bytes } = plan;
  const valuesAtOnce = (threads / valueLanes) * valueTokens;
  const whole = (side: KvSideSpec, dims: number): boolean => {
    const { format, layout, name } = side;
    // Of transposed values all lanes have to have whole tiles.
    if (isTransposed(side)) return dims === TRANSPOSED_PIECE && valuesAtOnce % TRANSPOSED_TOKENS === 0;
    // Of V two lanes may share a run of planes.
    if (name === 'values' && codesInRuns(format) && dims === PLANE_DIMS / 2)
      return headDim % PLANE_DIMS === 0;
    const words = (layout.words * dims) / headDim;
    if (!Number.isInteger(words)) return false;
    if (hasScales(format) && (format.groupSize % dims !== 0 || headDim % format.groupSize !== 0))
      return false;
    return isFloatKv(format) || dims % leastDims(format) === 0;
  };
  return (
    whole(sideOf('keys', shape), keyDims) &&
    whole(sideOf('values', shape), valueDims) &&
    powerOfTwo(keyLanes) &&
    (!plan.dot || keyDims % 16 === 0) &&
    powerOfTwo(valueLanes) &&
    valueLanes <= threads &&
    keyLanes <= lanes &&
    valueDims / Math.max(1, lanes / valueLanes) >= 1 &&
    group <= 8 &&
    threads % lanes === 0 &&
    split % shape.blockTokens === 0 &&
    split % ((threads / keyLanes) * unroll) === 0 &&
    split % (valuesAtOnce * valueUnroll) === 0 &&
    split % lanes === 0 &&
    bytes <= workgroupBytes
  );
}

/**
 * The order of the sums, as text: equal for configs that give the same bits. Threads decide which positions of V a sum
 * has; scores and softmax know nothing of them, and loads on their way change nothing.
 */
export function decodeOrder(shape: AttendShape, config: DecodeConfig): string {
  const { keyDims, valueDims, split, dot } = planDecode(shape, config);
  return `t${config.threads} k${keyDims} v${valueDims} s${split}${dot ? ' dot' : ''}`;
}
