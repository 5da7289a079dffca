/** Characters of a string as JSON writes them, one piece after another; quotes not included. */
export function jsonCharacters(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON escapes them
  return text.replaceAll(/["\\\u0000-\u001f]/g, (char) => JSON.stringify(char).slice(1, -1));
}
