/** What both passes of attention of single-token rows go by: the sides of a cache, positions, and cells of workgroup memory. */

import type { AttendShape } from './attend.js';
import { type DecodeConfig, type DecodePlan, planDecode } from './attend-decode-plan.js';
import { PLANE_DIMS } from './attend-planes.js';
import { bookCopies, type Pair, unpackPairs } from './attend-unpack.js';
import { type WordWidth, wordAt, wordOf, wordType, wordWidth } from './attend-words.js';
import type { KvSideSpec } from './kv-format.js';
import { planarCodes } from './kv-layout.js';
import { sideOf } from './kv-rows.js';

/** Keys, or values, with what a lane takes of a vector. */
export interface DecodeSide extends KvSideSpec<'keys' | 'values'> {
  readonly quantised: boolean;
  /** Dims, and words, of a lane; lanes that share a vector; vectors that the workgroup takes at once. */
  readonly dims: number;
  readonly words: number;
  readonly lanes: number;
  readonly atOnce: number;
  /** Two lanes share a run of planes, and read the same words: `half` says which of them a lane is. */
  readonly halved: boolean;
  /** Loads of `width` words. */
  readonly loads: number;
  readonly width: WordWidth;
  readonly type: string;
  /** Index of the vector of position `c` of the split. */
  readonly row: string;
  /** Word that holds the norms of position `c`, of this head and its neighbour. */
  readonly normAt: string;
  readonly word: (at: string) => string;
  /** A lane's pairs from variables `PREFIX_0` …, and statements before them. */
  readonly pairs: (prefix: string) => { readonly text: string; readonly pairs: Pair[] };
}

export interface DecodeFrame extends DecodePlan {
  readonly shape: AttendShape;
  readonly threads: number;
  /** Lanes of a subgroup; subgroups. */
  readonly lanes: number;
  readonly subs: number;
  readonly unroll: number;
  readonly ahead: boolean;
  readonly keys: DecodeSide;
  readonly values: DecodeSide;
  readonly copies: number;
  /** The oldest position that a row sees, or null if all. */
  readonly low: string | null;
  /** A position of the split that this row sees: `c`, or the nearest to it. */
  readonly seenAt: (c: string) => string;
  /**
   * Scores, then weights, `[split, group]`: those of a token lie together. Then sums, `[parts, group, headDim]`. Elements
   * of `cells` are vectors of `vec`.
   */
  readonly vec: 1 | 2 | 4;
  readonly cell: (c: string, g: string) => string;
  readonly scalar: (i: string) => string;
  /** Parts of the sums that threads of the workgroup have apart. */
  readonly partGroups: number;
}

export function decodeFrame(shape: AttendShape, config: DecodeConfig): DecodeFrame {
  const plan = planDecode(shape, config);
  const { subgroupSize: lanes, threads, unroll, ahead = false } = config;
  const { group } = plan;
  const low = shape.window === null ? null : `max(last, ${shape.window - 1}u) - ${shape.window - 1}u`;
  const vec = group % 4 === 0 ? 4 : group % 2 === 0 ? 2 : 1;
  return {
    ...plan,
    shape,
    threads,
    lanes,
    subs: threads / lanes,
    unroll,
    ahead,
    keys: decodeSide(shape, 'keys', threads, lanes, plan.keyDims),
    values: decodeSide(shape, 'values', threads, lanes, plan.valueDims),
    copies: bookCopies(lanes),
    low,
    seenAt: (c) => (low === null ? `min(${c}, reach)` : `clamp(${c}, oldest, reach)`),
    vec,
    cell: (c, g) =>
      vec === 1
        ? `cells[${c} * ${group}u + ${g}]`
        : `cells[${c} * ${group / vec}u + (${g}) / ${vec}u][(${g}) % ${vec}u]`,
    scalar: (i) => (vec === 1 ? `cells[${i}]` : `cells[(${i}) / ${vec}u][(${i}) % ${vec}u]`),
    partGroups: threads / Math.max(plan.valueLanes, lanes),
  };
}

function decodeSide(
  shape: AttendShape,
  name: 'keys' | 'values',
  threads: number,
  subgroupSize: number,
  dims: number,
): DecodeSide {
  const { kvHeads, blockTokens, rows, headDim } = shape;
  const side = sideOf(name, shape);
  const { format, layout } = side;
  const halved = planarCodes(format) && dims < PLANE_DIMS;
  const words = (layout.words * (halved ? PLANE_DIMS : dims)) / headDim;
  const width = wordWidth(layout.words, words);
  const lanes = headDim / dims;
  const base = name === 'keys' ? rows.keyBase : rows.valueBase;
  const block = `(entries[c / ${blockTokens}u]${base === 0 ? '' : ` - ${base}u`})`;
  return {
    ...side,
    quantised: format.kind !== 'float',
    dims,
    words,
    lanes,
    atOnce: threads / lanes,
    halved,
    loads: Math.ceil(words / width),
    width,
    type: wordType(width),
    row: `(${block} * ${kvHeads}u + kv) * ${blockTokens}u + c % ${blockTokens}u`,
    normAt: `${layout.metaAt}u + (${block} * ${layout.metaHeads}u + kv / 2u) * ${blockTokens}u + c % ${blockTokens}u`,
    word: (at) => wordAt(name, width, at),
    pairs: (prefix) =>
      unpackPairs(
        name,
        format,
        headDim,
        dims,
        bookCopies(subgroupSize),
        (i) => wordOf(prefix, width, i),
        'half',
      ),
  };
}
