/** Texts as Python sees them: sequences of code points, with Python's own notion of white space and lines. */

const PAIRS = /[\ud800-\udbff]/;

/** `len(text)` */
export function lengthOf(text: string): number {
  if (!PAIRS.test(text)) return text.length;
  let length = 0;
  for (const _ of text) length++;
  return length;
}

/** The characters of a text, or the text itself where each of its units is one: both are indexed alike. */
export function charactersOf(text: string): ArrayLike<string> & Iterable<string> {
  return PAIRS.test(text) ? [...text] : text;
}

/** A position in UTF-16 units as one in characters. */
export function toCharacters(text: string, unit: number): number {
  return unit < 0 ? unit : lengthOf(text.slice(0, unit));
}

/** A position in characters as one in UTF-16 units. */
export function toUnits(text: string, character: number): number {
  if (!PAIRS.test(text)) return Math.min(character, text.length);
  let unit = 0;
  for (let left = character; left > 0 && unit < text.length; left--) {
    unit += text.codePointAt(unit)! > 0xffff ? 2 : 1;
  }
  return unit;
}

/** Orders texts by their code points, where JavaScript orders them by UTF-16 units. */
export function compareTexts(a: string, b: string): number {
  const shorter = Math.min(a.length, b.length);
  for (let i = 0; i < shorter; i++) {
    if (a.charCodeAt(i) === b.charCodeAt(i)) continue;
    // Where they part inside a pair, its first half is the same: go on with the whole code points.
    const low = i > 0 && a.charCodeAt(i) >= 0xdc00 && a.charCodeAt(i) < 0xe000 && PAIRS.test(a[i - 1]!);
    const at = low ? i - 1 : i;
    return a.codePointAt(at)! - b.codePointAt(at)!;
  }
  return a.length - b.length;
}

/** What `str.isspace` and `str.strip` know as white space: Unicode's, and the four separators of ASCII. */
const WHITESPACE =
  '\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000';
const WHITESPACE_SET = new Set(WHITESPACE);
/** The inside of a character class. */
export const WHITESPACE_CLASS =
  '\\t\\n\\v\\f\\r\\x1c-\\x1f \\x85\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';

export function isSpace(character: string): boolean {
  return WHITESPACE_SET.has(character);
}

/** `text.strip(characters)` and its one-sided forms. */
export function strip(text: string, characters?: string, side: 'both' | 'left' | 'right' = 'both'): string {
  const set = characters === undefined ? WHITESPACE_SET : new Set(characters);
  // Where no character of the set is a pair, no half of a pair is in it.
  const points = characters !== undefined && PAIRS.test(characters) ? [...text] : text;
  let from = 0;
  let to = points.length;
  if (side !== 'right') while (from < to && set.has(points[from]!)) from++;
  if (side !== 'left') while (to > from && set.has(points[to - 1]!)) to--;
  return typeof points === 'string' ? points.slice(from, to) : points.slice(from, to).join('');
}

/** `text.split(None, most)`: runs of white space separate, none in front. */
export function splitWhitespace(text: string, most = -1): string[] {
  const words: string[] = [];
  const word = new RegExp(`[^${WHITESPACE_CLASS}]+`, 'g');
  for (let match = word.exec(text); match !== null; match = word.exec(text)) {
    if (most >= 0 && words.length === most) {
      words.push(text.slice(match.index));
      break;
    }
    words.push(match[0]);
  }
  return words;
}

/** `text.rsplit(None, most)`: runs of white space separate, none at the end. */
export function rsplitWhitespace(text: string, most = -1): string[] {
  const words: string[] = [];
  let end = text.length;
  for (;;) {
    while (end > 0 && isSpace(text[end - 1]!)) end--;
    if (end === 0) break;
    let start = end;
    if (most >= 0 && words.length === most) start = 0;
    else while (start > 0 && !isSpace(text[start - 1]!)) start--;
    words.push(text.slice(start, end));
    end = start;
  }
  return words.reverse();
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: the ASCII separators end lines in Python.
const LINE = /([^\n\v\f\r\x1c-\x1e\x85\u2028\u2029]*)(\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]|$)/gy;

/** `text.splitlines(keep_ends)` */
export function splitLines(text: string, keepEnds = false): string[] {
  const lines: string[] = [];
  for (const [whole, line, end] of text.matchAll(LINE)) {
    if (end === '' && line === '') break;
    lines.push(keepEnds ? whole : line!);
    if (end === '') break;
  }
  return lines;
}

/** How often a part that is not empty is found, side by side. */
export function countOf(text: string, part: string): number {
  return part === '' ? lengthOf(text) + 1 : text.split(part).length - 1;
}

/** `text.replace(old, new, most)` */
export function replaceText(text: string, old: string, replacement: string, most = -1): string {
  if (old === '') {
    const points = [...text];
    const places = most < 0 ? points.length + 1 : Math.min(most, points.length + 1);
    let out = '';
    for (let i = 0; i <= points.length; i++) out += (i < places ? replacement : '') + (points[i] ?? '');
    return out;
  }
  const parts = text.split(old);
  if (most < 0 || parts.length <= most + 1) return parts.join(replacement);
  return [...parts.slice(0, most), parts.slice(most).join(old)].join(replacement);
}
