/** Tiles of K and V for attention of prompt tiles: how they come from memory, and how they are staged. */

import { isFloatKv } from '../../kv.js';
import type { AttendShape } from './attend.js';
import { codedTiles } from './attend-prefill-codes.js';
import type { TileSizes } from './attend-prefill-plan.js';
import { transposedTiles } from './attend-prefill-transposed.js';
import { count } from './attend-words.js';
import { cacheType, readerText } from './kv-format.js';
import { codecOf, isTransposed } from './kv-formats/list.js';
import type { KvSideSpec } from './kv-formats/side.js';
import { sideOf } from './kv-rows.js';

export interface TileSide {
  /** Halves and codes in pieces are on their way a tile ahead; words are read as they are staged. */
  readonly kind: 'halves' | 'pieces' | 'words';
  /** Type of the binding. */
  readonly type: string;
  /** Module-scope text; a function that sides may share; statements before anything is read. */
  readonly declarations: string;
  readonly helper: string;
  readonly prepare: string;
  /** Declarations of what is on its way; those of sides of one kind may be the same. */
  readonly variables: readonly string[];
  /** Statements that fetch the tile from position `base` on, and that stage what was fetched (that of `base`, if words). */
  readonly fetch: (base: string) => string[];
  readonly stage: () => string[];
  /** The dim that column `at` of a staged vector holds. */
  readonly dimOf: (at: string) => string;
}

export interface TilePlaces {
  /** Block of the buffer that holds position `t`. */
  readonly block: (t: string) => string;
  /**
   * A position that some row here sees: `t`, or the nearest to it. What lies before may be another sequence's by now. A
   * position beyond the last, or before the first, so repeats it: its weight is zero, and what is stored there is finite
   * or this row's own.
   */
  readonly seenAt: (t: string) => string;
}

export function tileSide(shape: AttendShape, c: TileSizes, name: 'keys' | 'values'): TileSide {
  const { blockTokens, maxBlocksPerSlot, window, rows } = shape;
  const base = name === 'keys' ? rows.keyBase : rows.valueBase;
  const places: TilePlaces = {
    block: (t) => `(tables[slot * ${maxBlocksPerSlot}u + ${t} / ${blockTokens}u] - ${base}u)`,
    seenAt: (t) => (window === null ? `min(${t}, last)` : `clamp(${t}, low_first, last)`),
  };
  const side = sideOf(name, shape);
  if (isFloatKv(side.format)) return halfTiles(shape, c, name, places);
  const coded = isTransposed(side) ? transposedTiles : codedTiles;
  return coded(shape, c, side, places) ?? wordTiles(shape, c, side, places);
}

/** Pieces of eight dims, thread by thread. */
function piecesOf(shape: AttendShape, c: TileSizes) {
  const { headDim } = shape;
  const { component, threads, stride } = c;
  const pieces = (c.keys * headDim) / 8;
  const unit = component === 'f16' ? 8 : 4;
  return {
    component,
    vectors: headDim / 8,
    each: Math.ceil(pieces / threads),
    /** Index of a thread's piece i, for one that there is. */
    clamped: (i: number): string =>
      (i + 1) * threads > pieces ? `min(lid + ${i * threads}u, ${pieces - 1}u)` : `lid + ${i * threads}u`,
    /** Begins a statement that stages piece i. */
    staging: (i: number): string =>
      `  ${(i + 1) * threads > pieces ? `if (lid + ${i * threads}u < ${pieces}u) ` : ''}{ let u = lid + ${i * threads}u; let to = (u / ${headDim / 8}u * ${stride}u + u % ${headDim / 8}u * 8u) / ${unit}u;`,
  };
}

const PLAIN = { declarations: '', helper: '', prepare: '', dimOf: (at: string): string => at };

/** Floats of 16 bits, in pieces of eight, in variables that K and V take in turn. */
function halfTiles(
  shape: AttendShape,
  c: TileSizes,
  name: 'keys' | 'values',
  { block, seenAt }: TilePlaces,
): TileSide {
  const { kvHeads, blockTokens } = shape;
  const { component, vectors, each, clamped, staging } = piecesOf(shape, c);
  return {
    ...PLAIN,
    kind: 'halves',
    type: 'array<vec4<u32>>',
    variables: count(each).map((i) => `  var piece${i}: vec4<u32>;`),
    fetch: (base) =>
      count(each).flatMap((i) => [
        `  { let u = ${clamped(i)}; let t = ${seenAt(`${base} + u / ${vectors}u`)};`,
        `    piece${i} = ${name}[((${block('t')} * ${kvHeads}u + kv) * ${blockTokens}u + t % ${blockTokens}u) * ${vectors}u + u % ${vectors}u]; }`,
      ]),
    stage: () =>
      count(each).flatMap((i) => [
        staging(i),
        ...(component === 'f16'
          ? [`    staged[to] = piece${i};`]
          : ['x, y', 'z, w'].map((pair, h) => {
              const [a, b] = pair.split(', ').map((e) => `unpack2x16float(piece${i}.${e})`);
              return `    staged[to + ${h}u] = vec4<f32>(${a}, ${b});`;
            })),
        '  }',
      ]),
  };
}

/** Codes read word by word as they are staged. */
function wordTiles(
  shape: AttendShape,
  c: TileSizes,
  side: KvSideSpec<'keys' | 'values'>,
  { block, seenAt }: TilePlaces,
): TileSide {
  const { kvHeads, blockTokens } = shape;
  const { component, vectors, each, staging } = piecesOf(shape, c);
  const { metaAt, tablesAt } = side.layout;
  const reader = readerText(side, {
    kvHeads: `${kvHeads}u`,
    blockTokens: `${blockTokens}u`,
    metaAt: `${metaAt}u`,
    tablesAt: `${tablesAt}u`,
  });
  // TurboQuant's norms are halves and its centroids below 1: nothing an f16 could not hold.
  const bounded = (four: string): string =>
    codecOf(side.format).bounded ? four : `clamp(${four}, vec4<f32>(-65504.0), vec4<f32>(65504.0))`;
  return {
    ...PLAIN,
    kind: 'words',
    type: cacheType(side.format),
    declarations: reader.declarations,
    prepare: reader.prepare(c.threads),
    variables: [],
    fetch: () => [],
    stage: () =>
      count(each).flatMap((i) => {
        const value = [0, 1].map((h) =>
          bounded(reader.four('from_block', 'kv', `t % ${blockTokens}u`, `vec + ${h}u`)),
        );
        return [
          staging(i),
          `    let t = ${seenAt(`base + u / ${vectors}u`)}; let from_block = ${block('t')}; let vec = u % ${vectors}u * 2u;`,
          component === 'f16'
            ? `    staged[to] = vec4<u32>(${value.map((v) => `bitcast<vec2<u32>>(vec4<f16>(${v}))`).join(', ')}); }`
            : `    staged[to] = ${value[0]}; staged[to + 1u] = ${value[1]}; }`,
        ];
      }),
  };
}
