/** The characters that have a property of Unicode. */

import { ANY_CODE_POINT, type CodePointRange, intersectRanges } from './code-points.js';

const properties = new Map<string, readonly CodePointRange[] | null>();
const MAX_PROPERTIES = 64;
/** Steps of work that it takes to find one out. */
export const PROPERTY_WORK = 150_000;
let everyCharacter: string | null = null;

/** Found by asking the engine's own regular expressions, once. Null for a name that Unicode does not have. */
export function propertyRanges(name: string): readonly CodePointRange[] | null {
  const known = properties.get(name);
  if (known !== undefined) return known;
  if (!/^[A-Za-z_=0-9]{1,64}$/.test(name)) return null;
  let runs: RegExp;
  try {
    runs = new RegExp(`\\p{${name}}+`, 'gu');
  } catch {
    return null;
  }
  const ranges: CodePointRange[] = [];
  everyCharacter ??= ANY_CODE_POINT.map(([low, high]) => charactersOf(low, high)).join('');
  // A run may go on across the surrogates, which no text holds.
  for (const { index, 0: run } of everyCharacter.matchAll(runs))
    ranges.push([codePointAt(index), codePointAt(index + run.length) - 1]);
  const joined = intersectRanges(ranges, ANY_CODE_POINT);
  if (properties.size >= MAX_PROPERTIES) properties.clear();
  properties.set(name, joined);
  return joined;
}

function charactersOf(low: number, high: number): string {
  let all = '';
  for (let code = low; code <= high; code++) all += String.fromCodePoint(code);
  return all;
}

/** At a place in the text of all characters; that behind the last at its end. */
function codePointAt(index: number): number {
  const surrogates = 0x800;
  const plane = 0x10000;
  if (index < 0xd800) return index;
  if (index < plane - surrogates) return index + surrogates;
  return plane + (index - (plane - surrogates)) / 2;
}
