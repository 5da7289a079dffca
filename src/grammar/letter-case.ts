/** The other cases of letters, one code point for one. */

import { type CodePointRange, joinRanges } from './code-points.js';
import type { Budget } from './limits.js';

/** No letter behind it has two cases. */
const LAST_CASED = 0x1e943;
/** What looking for them costs, counted once a grammar. */
const CASE_WORK = 20_000;

let known: Map<number, readonly number[]> | null = null;

/** Code points that are the same letter in another case, by code point. */
function otherCases(): Map<number, readonly number[]> {
  if (known !== null) return known;
  const groups = new Map<string, number[]>();
  for (let point = 0; point <= LAST_CASED; point++) {
    const letter = String.fromCodePoint(point);
    const upper = letter.toUpperCase();
    // One that is written with two letters in the other case ("ß") stands for itself.
    if ([...upper].length !== 1) continue;
    const lower = upper.toLowerCase();
    if (upper === letter && lower === letter) continue;
    const group = groups.get(upper);
    if (group === undefined) groups.set(upper, [point]);
    else group.push(point);
  }
  known = new Map();
  for (const group of groups.values())
    if (group.length > 1) for (const point of group) known.set(point, group);
  return known;
}

/** A set of so few is looked up point by point. */
const FEW = 64;

/** These, and the same letters in other cases. */
export function anyCase(ranges: readonly CodePointRange[], budget: Budget): CodePointRange[] {
  budget.spendOnce('case', CASE_WORK);
  const cases = otherCases();
  const more: CodePointRange[] = [...ranges];
  const add = (point: number): void => {
    for (const other of cases.get(point) ?? []) more.push([other, other]);
  };
  for (const [low, high] of joinRanges(ranges)) {
    if (high - low < FEW) for (let point = low; point <= high; point++) add(point);
    else {
      budget.spend(cases.size);
      for (const point of cases.keys()) if (point >= low && point <= high) add(point);
    }
  }
  return joinRanges(more);
}
