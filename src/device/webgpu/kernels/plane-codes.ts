/**
 * TurboQuant's codes of up to 4 bits as planes of bits, and integer centroids from them: every bit of a centroid is a function
 * of the bits of its code. A GPU does any function of three bits in one operation, and one of four in two or three; so codes
 * are stored by numbers of their own, under which most of a centroid's bits are bits of the number, or cheap to make.
 */

import { turboCodebook } from '../../turboquant/codebooks.js';
import { count } from './attend-words.js';

/** A function of the bits of a number: its value for every number. */
type Table = readonly boolean[];

/** Bits of an integer centroid. */
const BYTE = 8;

interface Planar {
  /** The number that a code is stored by: code i is the i-th centroid, ascending. */
  readonly numbers: readonly number[];
  /** Of each bit of a centroid, the lowest first. */
  readonly tables: readonly Table[];
}

const made = new Map<string, Planar>();

/** What a 1 of an integer centroid stands for: the greatest is 127. */
export function centroidUnit(headDim: number, bits: number): number {
  const { centroids } = turboCodebook(headDim, bits);
  return centroids[centroids.length - 1]! / 127;
}

/** The numbers that codes of `bits` bits are stored by, of the lowest centroid's first. */
export function codeNumbers(headDim: number, bits: number): readonly number[] {
  return planar(headDim, bits).numbers;
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
  const lines: string[] = [];
  const planes = count(bits).map(plane);
  const rows = planar(headDim, bits).tables.map((table, b) => {
    const row = `${name}_${b}`;
    const halves = split(table);
    if (halves === null) lines.push(`let ${row} = ${expression(table, planes)};`);
    else {
      const { inner, outer, x, y } = halves;
      lines.push(`let ${row}g = ${expression(inner, planes)};`);
      lines.push(`let ${row} = ${expression(outer, [planes[x]!, planes[y]!, `${row}g`])};`);
    }
    return row;
  });
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
  const unit = centroidUnit(headDim, bits);
  const bytes = Array.from(turboCodebook(headDim, bits).centroids, (c) => Math.round(c / unit) & 255);
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

/** The bits that a function depends on. */
function variables(table: Table): number[] {
  return count(Math.log2(table.length)).filter((v) =>
    table.some((value, i) => value !== table[i ^ (1 << v)]),
  );
}

/** By the values of functions as bits: a search comes by the same ones again and again. */
const operationsKnown = new Map<number, number>();

function operationsOf(table: Table): number {
  const key = table.reduce((bits, value, i) => (value ? bits | (1 << i) : bits), 1 << table.length);
  const operations = operationsKnown.get(key) ?? countOperations(table);
  operationsKnown.set(key, operations);
  return operations;
}

function countOperations(table: Table): number {
  const used = variables(table);
  if (used.length === 0) return 0;
  if (used.length === 1) return table[1 << used[0]!] ? 0 : 1;
  if (used.length <= 3) return 1;
  return split(table) === null ? 3 : 2;
}

interface Split {
  /** Of all bits, but not of y. */
  readonly inner: Table;
  /** Of bits x and y, and of what `inner` gives. */
  readonly outer: Table;
  readonly x: number;
  readonly y: number;
}

/**
 * A function of four bits as one of three bits, one of which is a function of three: for either value of x, what y chooses
 * between is constant, or one function of the other two bits, or its complement. Null where there are fewer bits, or no such x and y.
 */
function split(table: Table): Split | null {
  const used = variables(table);
  if (used.length < 4) return null;
  for (const x of used)
    for (const y of used) {
      if (x === y) continue;
      const rest = used.filter((v) => v !== x && v !== y);
      const at = (xv: number, yv: number, k: number): number =>
        (xv << x) | (yv << y) | ((k & 1) << rest[0]!) | ((k >> 1) << rest[1]!);
      const inner: boolean[] = table.map(() => false);
      const outer: boolean[] = new Array(8).fill(false);
      const fits = [0, 1].every((xv) => {
        const halves = [0, 1].map((yv) => count(4).map((k) => table[at(xv, yv, k)]!));
        const varying = halves.filter((half) => half.some((value) => value !== half[0]));
        const own = varying[0] ?? halves[0]!;
        for (const yv of [0, 1]) for (const k of count(4)) inner[at(xv, yv, k)] = own[k]!;
        return halves.every((half, yv) => {
          const constant = half.every((value) => value === half[0]);
          const alike = constant || half.every((value, k) => value === own[k]);
          if (!alike && !half.every((value, k) => value !== own[k])) return false;
          for (const g of [0, 1])
            outer[xv | (yv << 1) | (g << 2)] = constant ? half[0]! : (g === 1) === alike;
          return true;
        });
      });
      if (fits) return { inner, outer, x, y };
    }
  return null;
}

/**
 * A function of the bits of words, bit by bit, of any three of them at most in as few operators as there can be: compilers make
 * one operation of an expression of three words, but keep apart what several expressions share.
 */
function expression(table: Table, planes: readonly string[]): string {
  const used = variables(table);
  if (used.length > 3) {
    const half = table.length / 2;
    const [zero, one] = [table.slice(0, half), table.slice(half)].map((t) =>
      expression(t, planes.slice(0, -1)),
    );
    return `((${planes.at(-1)} & ${one}) | (~${planes.at(-1)} & ${zero}))`;
  }
  const inputs = [0, 1, 2].map((i) => used[i]);
  const bits = count(8).reduce((sum, i) => {
    const at = inputs.reduce<number>(
      (index, v, k) => (v === undefined ? index : index | (((i >> k) & 1) << v)),
      0,
    );
    return sum | (table[at] ? 1 << i : 0);
  }, 0);
  return shortest()[bits]!.replace(/[abc]/g, (name) => planes[inputs['abc'.indexOf(name)]!]!);
}

const COMPLEMENT = 1 / 16;

let forms: readonly string[] | null = null;

/**
 * The shortest expression of every function of three words `a`, `b` and `c`, by its values for 0 to 7 as bits. None is the
 * complement of an expression: a compiler does not make one operation of that and what it stands in.
 */
function shortest(): readonly string[] {
  if (forms !== null) return forms;
  const costs = new Float64Array(256).fill(Number.POSITIVE_INFINITY);
  const texts: string[] = new Array(256).fill('');
  const made: { operator: string; left: number; right: number }[] = [];
  const start = (bits: number, cost: number, text: string): void => {
    costs[bits] = cost;
    texts[bits] = text;
  };
  start(0, 0, '0u');
  start(255, 0, '0xffffffffu');
  for (const [i, name] of ['a', 'b', 'c'].entries()) {
    const bits = [0xaa, 0xcc, 0xf0][i]!;
    start(bits, 0, name);
    start(255 - bits, COMPLEMENT, `~${name}`);
  }
  for (let more = true; more; ) {
    more = false;
    for (let left = 1; left < 255; left++)
      for (let right = 1; right < left; right++) {
        const cost = costs[left]! + costs[right]! + 1;
        for (const operator of ['&', '^', '|']) {
          const bits = operator === '&' ? left & right : operator === '^' ? left ^ right : left | right;
          if (cost >= costs[bits]!) continue;
          costs[bits] = cost;
          made[bits] = { operator, left, right };
          more = true;
        }
      }
  }
  const text = (bits: number): string => {
    const of = made[bits];
    return of === undefined ? texts[bits]! : `(${text(of.left)} ${of.operator} ${text(of.right)})`;
  };
  forms = count(256).map(text);
  return forms;
}
