/**
 * JSON as the tools that write checkpoints read and write it: Python's `json` puts NaN and the infinities into it as words,
 * and some editors leave a byte-order mark.
 */

/** Stands for NaN, which JSON has no way to write. No text holds it: a NUL is escaped wherever it is written. */
const NAN = '\u0000NaN';
/** A string, which is passed over, or one of the words. */
const STRING_OR_WORD = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\bInfinity\b|\bNaN\b/g;

/**
 * `JSON.parse`, which also takes a byte-order mark, `NaN`, `Infinity` and `-Infinity`.
 *
 * @throws SyntaxError that of `JSON.parse` for a text that is no JSON even so
 * @example parseLenientJson('{"dropout": NaN}') // { dropout: NaN }
 */
export function parseLenientJson(source: string): unknown {
  const text = source.charCodeAt(0) === 0xfeff ? source.slice(1) : source;
  try {
    return JSON.parse(text);
  } catch (error) {
    if (!/\b(NaN|Infinity)\b/.test(text)) throw error;
    // 1e999 is a number beyond the largest: JSON.parse makes an infinity of it.
    const spelled = text.replace(STRING_OR_WORD, (found) =>
      found === 'NaN'
        ? JSON.stringify(NAN)
        : found.endsWith('Infinity')
          ? found.replace('Infinity', '1e999')
          : found,
    );
    try {
      return JSON.parse(spelled, (_, value: unknown) => (value === NAN ? Number.NaN : value));
    } catch {
      // The places in the first error are those of the file.
      throw error;
    }
  }
}
