/** What Python's `str.is…` ask of a text, and how it changes case. */

const DECIMAL = /^\p{Nd}$/u;
const NUMERIC_LETTERS = /^[\u3400-\u9fff\uf900-\ufaff\u{20000}-\u{3ffff}]$/u;
/** Ideographs that are numbers. */
const NUMBER_IDEOGRAPHS = new Set(
  '㐅㒃㠪㭍一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卄卅卌叁参參叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百秭穰肆萬貮貳贰阡陆陌陸零〇京溝澗正載弐',
);
/** Digits that are not decimal: in circles, superscript and the like. */
const DIGIT =
  /^[\u00b2\u00b3\u00b9\u1369-\u1371\u19da\u2070\u2074-\u2079\u2080-\u2089\u2460-\u2468\u2474-\u247c\u2488-\u2490\u24ea\u24f5-\u24fd\u24ff\u2776-\u277e\u2780-\u2788\u278a-\u2792\u{10a40}-\u{10a43}\u{10e60}-\u{10e68}\u{11052}-\u{1105a}\u{1f100}-\u{1f10a}]$/u;
const CASED = /^[\p{Lowercase}\p{Uppercase}\p{Lt}]$/u;
const UPPER = /^[\p{Uppercase}]$/u;
const LOWER = /^[\p{Lowercase}]$/u;
const TITLE = /^\p{Lt}$/u;

export const isDecimal = (character: string): boolean => DECIMAL.test(character);
export const isDigit = (character: string): boolean => DECIMAL.test(character) || DIGIT.test(character);

export function isNumeric(character: string): boolean {
  return /^\p{N}$/u.test(character) || (NUMERIC_LETTERS.test(character) && NUMBER_IDEOGRAPHS.has(character));
}

export function isAlphabetic(character: string): boolean {
  return /^\p{L}$/u.test(character);
}

export function isAlphanumeric(character: string): boolean {
  return isAlphabetic(character) || isDecimal(character) || isDigit(character) || isNumeric(character);
}

/** Every character is one of a kind, and there is one at least. */
export function all(text: string, holds: (character: string) => boolean): boolean {
  if (text === '') return false;
  for (const character of text) if (!holds(character)) return false;
  return true;
}

/** `text.islower()` and `text.isupper()`: no letter of the other case, and one of this. */
export function isCase(text: string, which: 'lower' | 'upper'): boolean {
  let found = false;
  for (const character of text) {
    if (
      which === 'lower'
        ? UPPER.test(character) || TITLE.test(character)
        : LOWER.test(character) || TITLE.test(character)
    ) {
      return false;
    }
    found ||= CASED.test(character);
  }
  return found;
}

/** `text.istitle()`: capitals only at the front of words, and small letters only behind letters. */
export function isTitle(text: string): boolean {
  let found = false;
  let inside = false;
  for (const character of text) {
    if (UPPER.test(character) || TITLE.test(character)) {
      if (inside) return false;
      inside = true;
      found = true;
    } else if (LOWER.test(character)) {
      if (!inside) return false;
      found = true;
    } else {
      inside = false;
    }
  }
  return found;
}

/** A character in the case that begins a title: of `ǆ` it is `ǅ`, of `ß` `Ss`. */
export function titleCase(character: string): string {
  const upper = TITLES.get(character);
  if (upper !== undefined) return upper;
  const whole = character.toUpperCase();
  // What becomes several letters has one capital: the first that has a case at all.
  const letters = [...whole];
  const first = letters.findIndex((letter) => CASED.test(letter));
  return letters.map((letter, i) => (i > first ? letter.toLowerCase() : letter)).join('');
}

/** Letters whose title case is neither their capital nor its first letter. */
const TITLES = new Map<string, string>();
for (const title of 'ǅǈǋǲ') {
  TITLES.set(title, title);
  TITLES.set(title.toLowerCase(), title);
  TITLES.set(title.toUpperCase(), title);
}
// The letters of Georgian have capitals for whole words alone.
for (let code = 0x10d0; code <= 0x10ff; code++) {
  const letter = String.fromCodePoint(code);
  if (letter.toUpperCase() !== letter) TITLES.set(letter, letter);
}
for (const [small, title] of [
  [0x1f80, 0x1f88],
  [0x1f90, 0x1f98],
  [0x1fa0, 0x1fa8],
] as const) {
  for (let i = 0; i < 8; i++) {
    TITLES.set(String.fromCodePoint(small + i), String.fromCodePoint(title + i));
    TITLES.set(String.fromCodePoint(title + i), String.fromCodePoint(title + i));
  }
}
for (const [small, title] of [
  ['ᾳ', 'ᾼ'],
  ['ῃ', 'ῌ'],
  ['ῳ', 'ῼ'],
] as const) {
  TITLES.set(small, title);
  TITLES.set(title, title);
}

/** The small letter of the character at a place: a sigma at the end of a word has one of its own. */
function lowerAt(text: string, at: number, character: string): string {
  return character === 'Σ'
    ? text.toLowerCase()[text.slice(0, at).toLowerCase().length]!
    : character.toLowerCase();
}

/** `text.title()` */
export function toTitle(text: string): string {
  let out = '';
  let inside = false;
  let at = 0;
  for (const character of text) {
    out += inside ? lowerAt(text, at, character) : titleCase(character);
    inside = CASED.test(character);
    at += character.length;
  }
  return out;
}

/** `text.capitalize()` */
export function capitalize(text: string): string {
  const [first = ''] = text;
  // A sigma at the end of the text is written as one: lower the whole.
  const lower = text.toLowerCase();
  const front = first.toLowerCase();
  return (
    titleCase(first) +
    (lower.startsWith(front) ? lower.slice(front.length) : text.slice(first.length).toLowerCase())
  );
}

/** `text.swapcase()` */
export function swapCase(text: string): string {
  let out = '';
  let at = 0;
  for (const character of text) {
    if (UPPER.test(character)) out += lowerAt(text, at, character);
    else out += LOWER.test(character) ? character.toUpperCase() : character;
    at += character.length;
  }
  return out;
}

/** `text.casefold()` */
export function caseFold(text: string): string {
  // A capital and back again makes of every letter the one that all its cases share; `ß` becomes `ss`.
  return [...text.toUpperCase()]
    .map((character) => character.toLowerCase())
    .join('')
    .replaceAll('ς', 'σ');
}
