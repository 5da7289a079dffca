/** llama.cpp's short names of flags, which have more than one letter. */
const SHORT: Readonly<Record<string, string>> = { '-ctk': '--cache-type-k', '-ctv': '--cache-type-v' };

/**
 * A command line with them written out.
 * @example writtenOut(['-ctk', 'q8_0']) // ['--cache-type-k', 'q8_0']
 */
export function writtenOut(words: readonly string[]): string[] {
  return words.map((word) => SHORT[word] ?? word);
}
