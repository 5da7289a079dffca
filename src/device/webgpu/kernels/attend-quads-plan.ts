/** Attention by quads of lanes: its sizes, the shapes that it takes, and both sides of a cache as its lanes read them. */

import type { AffineKv } from '../../kv.js';
import { affineGroups } from '../../kv-formats/affine.js';
import { ATTENTION_SPLIT } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { count, type WordWidth, wordAt, wordOf, wordType, wordWidth } from './attend-words.js';
import { hasScales } from './kv-formats/list.js';
import type { KvLayout } from './kv-formats/side.js';
import { sideOf } from './kv-rows.js';

/** Lanes of a key. */
export const QUAD = 4;
/** Heads of a group that lanes of a quad can share out. */
const HEADS = 4;
const HEAD_DIMS: readonly number[] = [64, 128];
/** Positions of K that a quad takes at a time. */
export const SETS = 4;
/** Planes of bytes that queries are rounded to. */
export const PLANES = 2;

/** Keys, or values, with the dims that a lane has of a vector. */
export interface QuadsSide {
  readonly name: 'keys' | 'values';
  readonly format: AffineKv;
  readonly layout: KvLayout;
  /** Lanes of a vector; the dims of each, its loads of `width` words, and their type. */
  readonly lanes: number;
  readonly dims: number;
  readonly loads: number;
  readonly width: WordWidth;
  readonly type: string;
}

export interface QuadsPlan {
  readonly group: number;
  readonly lanes: number;
  /** Positions of K, and of V, that the subgroup takes with one load, and of a turn. */
  readonly keysAtOnce: number;
  readonly valuesAtOnce: number;
  readonly turn: number;
  /** Positions that are in one block wherever they start. */
  readonly run: number;
  /** Loads of V of a turn. */
  readonly valueLoads: number;
  readonly keys: QuadsSide;
  readonly values: QuadsSide;
  /** Words of bytes of a query that a lane multiplies. */
  readonly words: number;
  /**
   * Vectors of 16 bytes of the queries. Those of three and four heads lie where the last scores will (`overlaid`), which wait
   * in registers, two turns of them, where those cover the queries; `queriesAt` is where.
   */
  readonly queryVectors: number;
  readonly overlaid: boolean;
  readonly queriesAt: number;
  /** Floats of a position's scores: one for each head, three rounded up. */
  readonly cell: 1 | 2 | 4;
  readonly bytes: number;
}

/** `lanes`: of a subgroup, which must be the device's one and only size. Null where there is no such kernel. */
export function planQuads(shape: AttendShape, lanes: number): QuadsPlan | null {
  const { heads, kvHeads, headDim, blockTokens } = shape;
  const group = heads / kvHeads;
  if (group > HEADS || !HEAD_DIMS.includes(headDim) || blockTokens % 16 !== 0) return null;
  if (lanes < QUAD || lanes > 64 || (lanes & (lanes - 1)) !== 0) return null;
  const keys = sideFor(shape, 'keys', QUAD);
  const values = sideFor(shape, 'values', Math.min(8, lanes));
  if (keys === null || values === null || keys.dims % 16 !== 0) return null;
  // Codes of values are taken as linear-unpack.ts has them: those of 3 bits lie otherwise.
  if (values.format.bits === 3) return null;
  const keysAtOnce = lanes / QUAD;
  const valuesAtOnce = lanes / values.lanes;
  const turn = keysAtOnce * SETS;
  let run = 16;
  while (run < turn && blockTokens % (2 * run) === 0) run *= 2;
  const cell = group === 3 ? 4 : (group as 1 | 2 | 4);
  const queryVectors = (group * headDim * PLANES) / 16;
  const overlaid = cell === 4 && 2 * turn >= queryVectors;
  const whole =
    turn % valuesAtOnce === 0 &&
    ATTENTION_SPLIT % turn === 0 &&
    ATTENTION_SPLIT % blockTokens === 0 &&
    (values.dims % valuesAtOnce === 0 || valuesAtOnce === 1);
  if (!whole) return null;
  return {
    group,
    lanes,
    keysAtOnce,
    valuesAtOnce,
    turn,
    run: Math.min(run, turn),
    valueLoads: turn / valuesAtOnce,
    keys,
    values,
    words: keys.dims / 4,
    queryVectors,
    queriesAt: overlaid ? ATTENTION_SPLIT - queryVectors : 0,
    overlaid,
    cell,
    bytes: (ATTENTION_SPLIT * cell + ATTENTION_SPLIT / blockTokens) * 4 + (overlaid ? 0 : queryVectors * 16),
  };
}

export function quadsFits(shape: AttendShape, lanes: number, workgroupBytes: number): boolean {
  const plan = planQuads(shape, lanes);
  return plan !== null && plan.bytes <= workgroupBytes;
}

function sideFor(shape: AttendShape, name: 'keys' | 'values', lanes: number): QuadsSide | null {
  const { format, layout, headDim } = sideOf(name, shape);
  if (!hasScales(format)) return null;
  const dims = headDim / lanes;
  const words = (layout.words * dims) / headDim;
  if (!Number.isInteger(words) || headDim % format.groupSize !== 0 || format.groupSize % dims !== 0)
    return null;
  const width = wordWidth(layout.words, words);
  return { name, format, layout, lanes, dims, loads: words / width, width, type: wordType(width) };
}

/** Text of addresses and loads of a side. */
export interface QuadsLoads {
  /** Statements that declare `PREFIXu_0` …, and `PREFIXmu`, scale and bias, for `loads` vectors of each lane. */
  readonly declare: () => string[];
  /** Statements that leave `NAME0` …, the vectors where runs of the turn at `base` begin. */
  readonly runs: (runName: string, base: string) => string[];
  /** Statements that load vector u of the turn whose runs are `runName`. */
  readonly load: (u: number, runName: string) => string[];
  readonly word: (u: number) => (i: number) => string;
  readonly meta: (u: number) => string;
  /** Position of vector u in the split. */
  readonly position: (u: number, base: string) => string;
}

export function quadsLoads(shape: AttendShape, plan: QuadsPlan, side: QuadsSide, prefix: string): QuadsLoads {
  const { kvHeads, blockTokens, rows, headDim } = shape;
  const { turn, run } = plan;
  const { name, layout, width, loads, dims, format, lanes } = side;
  const atOnce = plan.lanes / lanes;
  const vectors = turn / atOnce;
  const first = name === 'keys' ? rows.keyBase : rows.valueBase;
  const groups = affineGroups(format, headDim);
  return {
    declare: () =>
      count(vectors).flatMap((u) => [
        ...count(loads).map((i) => `  var ${prefix}${u}_${i}: ${side.type};`),
        `  var ${prefix}m${u}: u32;`,
      ]),
    runs: (runName, base) =>
      count(turn / run).map((r) => {
        const t = `(${base} + ${r * run}u)`;
        const block = `(entries[${t} / ${blockTokens}u]${first === 0 ? '' : ` - ${first}u`})`;
        return `  let ${runName}${r} = (${block} * ${kvHeads}u + kv) * ${blockTokens}u + ${t} % ${blockTokens}u + lane / ${lanes}u;`;
      }),
    load: (u, runName) => {
      const at = u * atOnce;
      const vector = `(${runName}${Math.floor(at / run)} + ${at % run}u)`;
      const group = groups === 1 ? '' : ` + lane % ${lanes}u / ${format.groupSize / dims}u`;
      return [
        ...count(loads).map(
          (i) =>
            `    ${prefix}${u}_${i} = ${name}[${vector} * ${layout.words / width}u + lane % ${lanes}u * ${loads}u + ${i}u];`,
        ),
        `    { let at = ${layout.metaAt}u + ${vector} * ${groups}u${group}; ${prefix}m${u} = ${wordAt(name, width, 'at')}; }`,
      ];
    },
    word: (u) => (i) => wordOf(`${prefix}${u}`, width, i),
    meta: (u) => `${prefix}m${u}`,
    position: (u, base) => `(${base} + ${u * atOnce}u + lane / ${lanes}u)`,
  };
}

/** A vector over the heads of a group, as WGSL. */
export function headVector(group: number): {
  readonly type: string;
  readonly of: (x: string) => string;
  readonly part: (name: string, h: number) => string;
} {
  const type = group === 1 ? 'f32' : `vec${group}<f32>`;
  return {
    type,
    of: (x) => (group === 1 ? x : `${type}(${x})`),
    part: (name, h) => (group === 1 ? name : `${name}.${'xyzw'[h]}`),
  };
}
