/** How Python writes the text of a string between quotes. */

export const ESCAPES: Readonly<Record<string, string>> = {
  '\\': '\\\\',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
};
/** What `str.isprintable` is false for; a space prints. */
const UNPRINTABLE = /[\p{C}\p{Z}]/u;

export function isPrintable(character: string): boolean {
  return character === ' ' || !UNPRINTABLE.test(character);
}

/** Single quotes, unless only double quotes save escaping; characters that do not print are escaped. */
export function quote(text: string, ascii = false): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  let out = '';
  for (const character of text) {
    const known = ESCAPES[character];
    if (known !== undefined) out += known;
    else if (character === mark) out += `\\${mark}`;
    else if (!isPrintable(character) || (ascii && character > '\x7f')) out += escapeCode(character);
    else out += character;
  }
  return mark + out + mark;
}

/** `\xe9`, `\u2603`, `\U0001f600` */
export function escapeCode(character: string): string {
  const code = character.codePointAt(0)!;
  if (code < 0x100) return `\\x${code.toString(16).padStart(2, '0')}`;
  if (code < 0x10000) return `\\u${code.toString(16).padStart(4, '0')}`;
  return `\\U${code.toString(16).padStart(8, '0')}`;
}
