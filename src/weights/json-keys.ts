/**
 * Finds a key that stands twice in one object of a JSON text. `JSON.parse` keeps the last in silence, so two
 * readers could see two different tensors in one file.
 *
 * @param text valid JSON
 * @returns the first key found twice, or undefined
 */
export function findDuplicateKey(text: string): string | undefined {
  // One set of keys per open object, null per open array.
  const open: (Set<string> | null)[] = [];
  let expectKey = false;
  for (let i = 0; i < text.length; i++) {
    switch (text[i]) {
      case '{':
        open.push(new Set());
        expectKey = true;
        break;
      case '[':
        open.push(null);
        expectKey = false;
        break;
      case '}':
      case ']':
        open.pop();
        expectKey = false;
        break;
      case ',':
        expectKey = open.at(-1) instanceof Set;
        break;
      case '"': {
        const start = i;
        for (i++; text[i] !== '"'; i++) if (text[i] === '\\') i++;
        if (!expectKey) break;
        expectKey = false;
        const key = JSON.parse(text.slice(start, i + 1)) as string;
        const keys = open.at(-1) as Set<string>;
        if (keys.has(key)) return key;
        keys.add(key);
        break;
      }
    }
  }
  return undefined;
}
