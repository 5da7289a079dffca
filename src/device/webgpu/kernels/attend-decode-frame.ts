/** What both passes of attention of single-token rows go by: the sides of a cache, positions, and cells of workgroup memory. */

import { isFloatKv } from '../../kv.js';
import type { AttendShape } from './attend.js';
import { type DecodeConfig, type DecodePlan, planDecode } from './attend-decode-plan.js';
import type { DecodeWalk } from './attend-decode-walk.js';
import { PLANE_DIMS } from './attend-planes.js';
import { bookCopies, type Pair, unpackPairs } from './attend-unpack.js';
import { count, type WordWidth, wordAt, wordOf, wordType, wordWidth } from './attend-words.js';
import { codesInRuns, hasNorm, hasScales, isTransposed } from './kv-formats/list.js';
import type { KvSideSpec } from './kv-formats/side.js';
import { TRANSPOSED_TOKENS } from './kv-formats/turbo-layout.js';
import { firstSeen } from './kv-head.js';
import { sideOf } from './kv-rows.js';

/** Keys, or values, with what a lane takes of a vector. */
export interface DecodeSide extends KvSideSpec<'keys' | 'values'> {
  readonly quantised: boolean;
  /** Four positions of a pair of dims lie in a word, and a lane's piece is some dims of four positions. */
  readonly transposed: boolean;
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
  /** The position, or the first, of a lane's piece, of those that the workgroup takes from `base` on. */
  readonly positionOf: (base: string) => string;
  /** Index of the vector of position `c` of the split, of whose block `entry` is. */
  readonly row: string;
  /** Word that holds the norms of position `c`, of this head and its neighbour. */
  readonly normAt: string;
  readonly word: (at: string) => string;
  /** A lane's pairs from variables `PREFIX_0` …, and statements before them; not of transposed values. */
  readonly pairs: (prefix: string) => { readonly text: string; readonly pairs: Pair[] };
}

export interface DecodeFrame extends DecodePlan {
  readonly shape: AttendShape;
  readonly threads: number;
  /** Lanes of a subgroup; subgroups. */
  readonly lanes: number;
  readonly subs: number;
  readonly keys: DecodeSide;
  readonly values: DecodeSide;
  readonly keyWalk: DecodeWalk;
  readonly valueWalk: DecodeWalk;
  /** Statements that fill `entries`, and its type. */
  readonly entries: { readonly text: string; readonly type: string };
  readonly copies: number;
  /** The oldest position that a row sees here, or null if all. */
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
  const low = firstSeen(shape, 'last');
  const vec = group % 4 === 0 ? 4 : group % 2 === 0 ? 2 : 1;
  const keys = decodeSide(shape, 'keys', threads, lanes, plan.keyDims, 1);
  const values = decodeSide(shape, 'values', threads, lanes, plan.valueDims, plan.valueTokens);
  const seenAt = (c: string): string => (low === null ? `min(${c}, reach)` : `clamp(${c}, oldest, reach)`);
  /** Of codes in runs a piece of V is a few hundred operations; of all else some hundred at most. */
  const body = (side: DecodeSide, pieces: number): number => {
    const shares = side.name === 'values' && codesInRuns(side.format) ? 4 : 2;
    return pieces % shares === 0 ? pieces / shares : pieces % 2 === 0 ? pieces / 2 : pieces;
  };
  const walk = (prefix: string, side: DecodeSide, pieces: number): DecodeWalk => ({
    prefix,
    parts: [
      ...count(side.loads).map((i) => [`_${i}`, side.type] as const),
      ...(side.name === 'keys' && side.quantised ? [['m', 'u32'] as const] : []),
    ],
    unroll: pieces,
    body: body(side, pieces),
    atOnce: side.atOnce,
    ahead,
    load: (name, u, base) =>
      loadText(shape, side, `${name}${u}`, seenAt(side.positionOf(`${base} + ${u * side.atOnce}u`))),
  });
  return {
    ...plan,
    shape,
    threads,
    lanes,
    subs: threads / lanes,
    keys,
    values,
    keyWalk: walk('k', keys, unroll),
    valueWalk: walk('v', values, plan.valueUnroll),
    entries: entriesText(shape, plan.split, threads, keys, values),
    copies: bookCopies(lanes),
    low,
    seenAt,
    vec,
    cell: (c, g) =>
      vec === 1
        ? `cells[${c} * ${group}u + ${g}]`
        : `cells[${c} * ${group / vec}u + (${g}) / ${vec}u][(${g}) % ${vec}u]`,
    scalar: (i) => (vec === 1 ? `cells[${i}]` : `cells[(${i}) / ${vec}u][(${i}) % ${vec}u]`),
    partGroups: threads / Math.max(plan.valueLanes, lanes),
  };
}

/** A lane's part of the vector of position `c` into `NAME_0` …, and for keys what goes with it into `NAMEm`. */
function loadText(shape: AttendShape, side: DecodeSide, name: string, c: string): string[] {
  const { format, layout, quantised, transposed, halved, width, loads, lanes, dims, words } = side;
  const lane = `lid % ${lanes}u${halved ? ' / 2u' : ''}`;
  // Floats of a lane of K come in pieces that lie apart, so that the lanes of a key read side by side.
  const apart = side.name === 'keys' && !quantised;
  // Of transposed values the lanes of a tile read it from end to end. Any position of it gives its address: where one is seen, all are in
  // its block.
  const tile = (layout.words * TRANSPOSED_TOKENS) / words;
  const first = transposed
    ? `row / ${TRANSPOSED_TOKENS}u * ${tile}u + lid % ${tile}u`
    : `row * ${layout.words / width}u + ${apart ? lane : `${lane} * ${loads}u`}`;
  const lines = [
    `    { let c = ${c}; ${entryText(shape)} let row = ${side.row};`,
    `      let a = ${first};`,
    ...count(loads).map((i) => `      ${name}_${i} = ${side.name}[a + ${apart ? i * lanes : i}u];`),
  ];
  if (side.name === 'keys' && !isFloatKv(format)) {
    const at = hasScales(format)
      ? `${layout.metaAt}u + row * ${layout.groups}u + ${lane} / ${format.groupSize / dims}u`
      : side.normAt;
    lines.push(`      let at = ${at}; ${name}m = ${side.word('at')};`);
  }
  return [...lines, '    }'];
}

/** Leaves `entry`, of the block of position `c`: for vectors, or for vectors and norms. */
export const entryText = ({ blockTokens }: AttendShape): string =>
  `let entry = entries[c / ${blockTokens}u];`;

/**
 * What stands in `entries` makes the vector's index of a position when it is added, modulo 2³²; a second number makes that of
 * its norms.
 */
function entriesText(
  { kvHeads, blockTokens, maxBlocksPerSlot }: AttendShape,
  split: number,
  threads: number,
  keys: DecodeSide,
  values: DecodeSide,
): DecodeFrame['entries'] {
  const turbo = [keys, values].find(({ format }) => hasNorm(format));
  const type = turbo === undefined ? 'u32' : 'vec2<u32>';
  const row = `(block * ${kvHeads}u + kv - i) * ${blockTokens}u`;
  const norm = turbo && `(block * ${turbo.layout.metaHeads}u + kv / 2u - i) * ${blockTokens}u`;
  const blocks = split / blockTokens;
  const fill = `let block = tables[slot * ${maxBlocksPerSlot}u + first / ${blockTokens}u + min(i, reach / ${blockTokens}u)];
    entries[i] = ${norm === undefined ? row : `vec2<u32>(${row}, ${norm})`};`;
  return { type, text: eachOf('i', blocks, threads, fill) };
}

/** Statements for each number `i` below `length`, shared out among threads. */
export function eachOf(i: string, length: number, threads: number, text: string): string {
  if (length === threads) return `  { let ${i} = lid;\n    ${text}\n  }`;
  if (length < threads) return `  if (lid < ${length}u) { let ${i} = lid;\n    ${text}\n  }`;
  return `  for (var ${i} = lid; ${i} < ${length}u; ${i} += ${threads}u) {\n    ${text}\n  }`;
}

function decodeSide(
  shape: AttendShape,
  name: 'keys' | 'values',
  threads: number,
  subgroupSize: number,
  dims: number,
  tokens: number,
): DecodeSide {
  const { kvHeads, blockTokens, rows, headDim } = shape;
  const side = sideOf(name, shape);
  const { format, layout } = side;
  const transposed = isTransposed(side);
  const halved = codesInRuns(format) && !transposed && dims < PLANE_DIMS;
  const words = (layout.words * tokens * (halved ? PLANE_DIMS : dims)) / headDim;
  const width = wordWidth(layout.words, words);
  const lanes = headDim / dims;
  const base = (name === 'keys' ? rows.keyBase : rows.valueBase) * blockTokens;
  const turbo = hasNorm(shape.key) || hasNorm(shape.value);
  const less = (vectors: number): string => (vectors === 0 ? '' : ` - ${vectors >>> 0}u`);
  return {
    ...side,
    quantised: !isFloatKv(format),
    transposed,
    dims,
    words,
    lanes,
    atOnce: (threads / lanes) * tokens,
    halved,
    loads: Math.ceil(words / width),
    width,
    type: wordType(width),
    positionOf: (base) =>
      transposed
        ? `${base} + lid / ${(lanes * TRANSPOSED_TOKENS) / tokens}u * ${TRANSPOSED_TOKENS}u + lid / ${lanes}u % ${TRANSPOSED_TOKENS / tokens}u`
        : `${base} + lid / ${lanes}u`,
    row: `(entry${turbo ? '.x' : ''} + c${less(base * kvHeads)})`,
    normAt: `${layout.metaAt}u + (entry.y + c${less(base * layout.metaHeads)})`,
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
