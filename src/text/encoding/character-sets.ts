import {
  CHINESE,
  COMBINING_MARKS,
  CONTROLS,
  FOREIGN_TO_NORMAL_FORMS,
  NONSPACING_MARKS,
  PUNCTUATION,
  WITHOUT_SCRIPT,
} from './unicode-sets.js';

/** The inside of a character class (without its brackets) of a packed set: see unicode-sets.ts. */
function unpack(packed: string): string {
  let last = 0;
  let inside = '';
  for (const part of packed.split(' ')) {
    const [gap, more] = part.split('.') as [string, string?];
    const start = last + Number.parseInt(gap, 36);
    last = start + (more === undefined ? 0 : Number.parseInt(more, 36));
    inside += `\\u{${start.toString(16)}}-\\u{${last.toString(16)}}`;
  }
  return inside;
}

/** Insides of character classes for expressions with the flag `u`. */
export const CLASSES = {
  punctuation: unpack(PUNCTUATION),
  combiningMarks: unpack(COMBINING_MARKS),
  nonspacingMarks: unpack(NONSPACING_MARKS),
  controls: unpack(CONTROLS),
  chinese: unpack(CHINESE),
  foreignToNormalForms: unpack(FOREIGN_TO_NORMAL_FORMS),
  withoutScript: unpack(WITHOUT_SCRIPT),
  /** What Rust calls white space; `\s` has U+FEFF too, and lacks U+0085. */
  space: '\\p{White_Space}',
  /** What Rust calls numeric: ½, ② and ٣ too. */
  numeric: '\\p{N}',
  /** `\w` of Rust's expressions. */
  word: '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}',
} as const;
