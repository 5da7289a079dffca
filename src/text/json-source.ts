/** The texts of the parts of a JSON text: writing a parsed value again would poison numbers that a double cannot hold. */
export interface JsonPart {
  /** Of an object's member; empty for the items of a list. */
  readonly key: string;
  readonly text: string;
}

/**
 * The members of an object, or the items of a list, each with its text.
 *
 * @param json the text of a valid JSON object or list
 * @example
 * partsOf('{"a": [1.0]}') // [{ key: 'a', text: '[1.0]' }]
 */
export function partsOf(json: string): JsonPart[] {
  const parts: JsonPart[] = [];
  const isList = json.trimStart().startsWith('[');
  let depth = 0;
  let key = '';
  let from = -1;
  for (let i = 0; i < json.length; i++) {
    const char = json[i]!;
    if (char === '"') {
      const start = i++;
      while (json[i] !== '"') i += json[i] === '\\' ? 2 : 1;
      if (depth === 1 && from < 0) key = JSON.parse(json.slice(start, i + 1)) as string;
    } else if (char === '{' || char === '[') {
      if (depth++ === 0 && isList) from = i + 1;
    } else if (char === ':' && depth === 1) {
      from = i + 1;
    } else if (char === ',' || char === '}' || char === ']') {
      if (depth === 1 && from >= 0) {
        const text = json.slice(from, i).trim();
        if (text !== '') parts.push({ key: isList ? '' : key, text });
        from = isList ? i + 1 : -1;
      }
      if (char !== ',') depth--;
    }
  }
  return parts;
}
