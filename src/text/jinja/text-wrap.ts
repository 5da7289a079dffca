import { valueError } from './errors.js';
import { charactersOf, lengthOf } from './text.js';

const SPACE = '\\t\\n\\v\\f\\r ';
const WORD_PUNCTUATION = '[\\w!"\'&.,?]';
const LETTER = '[^\\d\\W]';
/** Runs of spaces, words with a dash after them, and words that may be cut behind their hyphens. */
const WITH_HYPHENS = new RegExp(
  `([${SPACE}]+|(?<=${WORD_PUNCTUATION})-{2,}(?=\\w)|[^${SPACE}]+?` +
    `(?:-(?:(?<=${LETTER}{2}-)|(?<=${LETTER}-${LETTER}-))(?=${LETTER}-?${LETTER})|(?=[${SPACE}]|$)|(?<=${WORD_PUNCTUATION})(?=-{2,}\\w)))`,
);
const SPACES = new RegExp(`([${SPACE}]+)`);

/** `textwrap.wrap` of one line, with tabs and spaces as they are. */
export function wrapText(
  text: string,
  width: number,
  breakLongWords: boolean,
  breakOnHyphens: boolean,
): string[] {
  if (width <= 0) throw valueError(`invalid width ${width} (must be > 0)`);
  const chunks = text.split(breakOnHyphens ? WITH_HYPHENS : SPACES).filter((chunk) => chunk !== '');
  const isSpace = (chunk: string): boolean => /^[\t\n\v\f\r ]*$/.test(chunk);
  const lines: string[] = [];
  chunks.reverse();
  while (chunks.length > 0) {
    const line: string[] = [];
    let used = 0;
    if (isSpace(chunks.at(-1)!) && lines.length > 0) chunks.pop();
    while (chunks.length > 0 && used + lengthOf(chunks.at(-1)!) <= width) {
      const chunk = chunks.pop()!;
      line.push(chunk);
      used += lengthOf(chunk);
    }
    if (chunks.length > 0 && lengthOf(chunks.at(-1)!) > width) {
      if (breakLongWords) {
        const room = Math.max(1, width - used);
        const points = [...charactersOf(chunks.pop()!)];
        // A long word is cut behind a hyphen that still fits.
        let end = room;
        const hyphen = points.slice(0, room).lastIndexOf('-');
        if (breakOnHyphens && hyphen > 0 && points.slice(0, hyphen).some((point) => point !== '-'))
          end = hyphen + 1;
        line.push(points.slice(0, end).join(''));
        chunks.push(points.slice(end).join(''));
      } else if (line.length === 0) {
        line.push(chunks.pop()!);
      }
    }
    if (line.length > 0 && isSpace(line.at(-1)!)) line.pop();
    if (line.length > 0) lines.push(line.join(''));
  }
  return lines;
}
