/**
 * TurboQuant's codes of 2 and 4 bits, but for values of 4 at head_dim 128, as planes of bits, and integer centroids from them: every bit of a centroid is a function
 * of the bits of its code (bit-functions.ts). Codes are stored by numbers of their own, under which most of a centroid's bits are bits
 * of the number, or cheap to make.
 */

import { computesSixteen, greatestInteger, turboCodebook } from '../../turboquant/codebooks.js';
import type { KvSide } from '../../turboquant/rotation.js';
import { count } from './attend-words.js';
import { type BitTable, functionText, operationsOf } from './bit-functions.js';
import { FIELD_BITS, fieldNumbers } from './code-fields.js';

/** Bits of an integer centroid. */
const BYTE = 8;

interface Planar {
  /** The number that a code is stored by: code i is the i-th centroid, ascending. */
  readonly numbers: readonly number[];
  /** Of each bit of a centroid, the lowest first. */
  readonly tables: readonly BitTable[];
}

const made = new Map<string, Planar>();

/** What a 1 of an integer centroid stands for. */
export function centroidUnit(headDim: number, bits: number, side: KvSide): number {
  const { centroids } = turboCodebook(headDim, bits, side);
  return centroids[centroids.length - 1]! / greatestInteger(headDim, bits, side);
}

/** The numbers that codes of 2, 3 or 4 bits are stored by, of the lowest centroid's first. */
export function codeNumbers(headDim: number, bits: number, side: KvSide): readonly number[] {
  return bits === FIELD_BITS || computesSixteen(headDim, bits, side)
    ? fieldNumbers(bits)
    : planar(headDim, bits).numbers;
}

/**
 * Statements that make the eight planes of integer centroids of the planes of their codes, and expressions of those planes, lowest
 * bit first; variables begin with `name`.
 */
export function centroidRows(
  headDim: number,
  bits: number,
  name: string,
  plane: (bit: number) => string,
): { readonly text: string; readonly rows: readonly string[] } {
  const planes = count(bits).map(plane);
  const rows = count(BYTE).map((b) => `${name}_${b}`);
  const lines = planar(headDim, bits).tables.map((table, b) => functionText(table, rows[b]!, planes));
  return { text: lines.join('\n'), rows };
}

function planar(headDim: number, bits: number): Planar {
  const key = `${headDim} ${bits}`;
  let found = made.get(key);
  if (found === undefined) {
    found = cheapest(headDim, bits);
    made.set(key, found);
  }
  return found;
}

/** Of numberings by bits of the centroids themselves, and of the codes' own, the one whose functions take fewest operations. */
function cheapest(headDim: number, bits: number): Planar {
  // Planes are of those that have the nearest to the optimum, which keys have whatever values do.
  const unit = centroidUnit(headDim, bits, 'key');
  const bytes = Array.from(turboCodebook(headDim, bits, 'key').centroids, (c) => Math.round(c / unit) & 255);
  let best: { readonly planar: Planar; readonly operations: number } | null = null;
  for (const numbers of numberings(bytes, bits)) {
    const of: number[] = [];
    numbers.forEach((number, i) => {
      of[number] = bytes[i]!;
    });
    const tables = count(BYTE).map((b) => of.map((byte) => ((byte >> b) & 1) === 1));
    let operations = 0;
    for (const table of tables) {
      operations += operationsOf(table);
      if (best !== null && operations >= best.operations) break;
    }
    if (best === null || operations < best.operations) best = { planar: { numbers, tables }, operations };
  }
  return best!.planar;
}

/** The codes as they are; by as many bits of their centroids; by one bit less, and one that tells apart what shares those. */
function* numberings(bytes: readonly number[], bits: number): Generator<readonly number[]> {
  yield bytes.map((_, i) => i);
  const taken = (byte: number, chosen: readonly number[]): number =>
    chosen.reduce((number, b, i) => number | (((byte >> b) & 1) << i), 0);
  for (const chosen of subsets(bits)) {
    const numbers = bytes.map((byte) => taken(byte, chosen));
    if (new Set(numbers).size === bytes.length) yield numbers;
  }
  const free = 2 ** (bits - 1);
  for (const chosen of subsets(bits - 1)) {
    const shared = bytes.map((byte) => taken(byte, chosen));
    const second = shared.map((number, i) => (shared.indexOf(number) < i ? 1 : 0));
    const distinct = new Set(shared.map((number, i) => number * 2 + second[i]!));
    if (distinct.size < bytes.length) continue;
    for (const flips of count(2 ** (free - 1)))
      yield shared.map((number, i) => number | ((second[i]! ^ ((flips >> number) & 1)) * free));
  }
}

/** Ascending bits of a byte, so many at a time. */
function subsets(size: number, from = 0): number[][] {
  if (size === 0) return [[]];
  return count(BYTE - from).flatMap((i) =>
    subsets(size - 1, from + i + 1).map((rest) => [from + i, ...rest]),
  );
}
