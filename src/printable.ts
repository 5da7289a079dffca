/**
 * Text of others, made fit to be printed: no character that moves a cursor, hides or turns text around, and no more of
 * it than one wants to read. What a client sends comes back in error messages and goes into logs, and both end on
 * terminals.
 */

/** Characters of one value that are shown. */
export const SHOWN_CHARACTERS = 200;

/**
 * Control characters (C0, DEL, C1), line and paragraph separators, characters of direction or no width, tags, fillers
 * that look like nothing, and halves of surrogate pairs. The variation selector of emoji is none of them.
 */
const UNPRINTABLE = /(?!\uFE0F)[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u;
const EACH_UNPRINTABLE = new RegExp(UNPRINTABLE, 'gu');
const SHORT: Readonly<Record<string, string>> = { '\n': '\\n', '\r': '\\r', '\t': '\\t' };

/**
 * Escapes what is not to be printed as JSON would: JSON text stays the same JSON.
 *
 * @example
 * printable('a\u001b[2Jb'); // 'a\\u001b[2Jb'
 */
export function printable(text: string): string {
  return UNPRINTABLE.test(text) ? text.replace(EACH_UNPRINTABLE, escaped) : text;
}

/** The same for text of several lines: line breaks and tabs stay. */
export function printableLines(text: string): string {
  if (!UNPRINTABLE.test(text)) return text;
  return text.replace(EACH_UNPRINTABLE, (found) =>
    found === '\n' || found === '\t' ? found : escaped(found),
  );
}

/**
 * One value as it is shown in a message or a log: printable, and cut at `limit` characters with its length.
 *
 * @example
 * shown('x'.repeat(900_000)); // 'xxx…xxx… (900000 characters)'
 */
export function shown(value: string, limit: number = SHOWN_CHARACTERS): string {
  const whole = value.length <= limit ? printable(value) : '';
  if (value.length <= limit && whole.length <= limit) return whole;
  let head = printable(value.slice(0, limit)).slice(0, limit);
  // Neither half an escape nor half a character.
  head = head.replace(/\\(?:u[0-9a-f]{0,3})?$/, '').replace(/\\ud[89ab][0-9a-f]{2}$/, '');
  return `${head}… (${value.length} characters)`;
}

/**
 * Both ends of a sentence or more that was made with text of others: printable, and where it passes `limit` without its
 * middle, for how a sentence begins and ends tells more. `lines`: line breaks and tabs stay.
 */
export function shownEnds(text: string, limit: number, lines = false): string {
  const make = lines ? printableLines : printable;
  if (text.length <= limit) {
    const whole = make(text);
    if (whole.length <= limit) return whole;
  }
  const tail = Math.floor(limit / 3);
  const head = limit - tail;
  return `${make(text.slice(0, head)).slice(0, head)} … (${text.length} characters) … ${make(text.slice(-tail)).slice(-tail)}`;
}

function escaped(found: string): string {
  let text = '';
  for (let i = 0; i < found.length; i++)
    text += SHORT[found[i]!] ?? `\\u${found.charCodeAt(i).toString(16).padStart(4, '0')}`;
  return text;
}
