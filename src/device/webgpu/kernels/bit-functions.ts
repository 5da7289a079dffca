/**
 * Functions of the bits of words, bit by bit, in as few operations as they take: NVIDIA's GPUs do any function of three words in one
 * (LOP3), and one of four in two or three. Where a GPU has fewer such operations these are still the shortest expressions.
 */

import { count } from './attend-words.js';

/** A function of the bits of a number: its value for every number of two, three or four bits. */
export type BitTable = readonly boolean[];

/** Statements that leave the function of `words`, whose bits are those of the numbers, lowest first, in a variable `name`. */
export function functionText(table: BitTable, name: string, words: readonly string[]): string {
  const halves = split(table);
  if (halves === null) return `let ${name} = ${expression(table, words)};`;
  const { inner, outer, x, y } = halves;
  return `let ${name}g = ${expression(inner, words)};
let ${name} = ${expression(outer, [words[x]!, words[y]!, `${name}g`])};`;
}

/** The bits that a function depends on. */
function variables(table: BitTable): number[] {
  return count(Math.log2(table.length)).filter((v) =>
    table.some((value, i) => value !== table[i ^ (1 << v)]),
  );
}

/** By the values of functions as bits: a search comes by the same ones again and again. */
const operationsKnown = new Map<number, number>();

/** Operations that such a function takes. */
export function operationsOf(table: BitTable): number {
  const key = table.reduce((bits, value, i) => (value ? bits | (1 << i) : bits), 1 << table.length);
  const operations = operationsKnown.get(key) ?? countOperations(table);
  operationsKnown.set(key, operations);
  return operations;
}

function countOperations(table: BitTable): number {
  const used = variables(table);
  if (used.length === 0) return 0;
  if (used.length === 1) return table[1 << used[0]!] ? 0 : 1;
  if (used.length <= 3) return 1;
  return split(table) === null ? 3 : 2;
}

interface Split {
  /** Of all bits, but not of y. */
  readonly inner: BitTable;
  /** Of bits x and y, and of what `inner` gives. */
  readonly outer: BitTable;
  readonly x: number;
  readonly y: number;
}

/**
 * A function of four bits as one of three bits, one of which is a function of three: for either value of x, what y chooses
 * between is constant, or one function of the other two bits, or its complement. Null where there are fewer bits, or no such x and y.
 */
function split(table: BitTable): Split | null {
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
function expression(table: BitTable, planes: readonly string[]): string {
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
