/** Look-ahead at the beginning of a pattern: what the whole text has to be as well, or must not be. */

export interface LookAhead {
  /** What has to begin the text. */
  readonly pattern: string;
  /** Or must not. */
  readonly isNot: boolean;
}

/**
 * A pattern without what it begins with of look-ahead, and that; null where it has none there, or where that is not of the whole pattern
 * (`^(?!a)b|c`). `search`: the pattern may match anywhere, unless it begins with `^`.
 */
export function splitLookAhead(
  pattern: string,
  search: boolean,
): { readonly rest: string; readonly ahead: readonly LookAhead[] } | null {
  const start = pattern.startsWith('^') ? 1 : 0;
  if (search && start === 0) return null;
  const ahead: LookAhead[] = [];
  let at = start;
  for (;;) {
    const mark = pattern.slice(at, at + 3);
    if (mark !== '(?=' && mark !== '(?!') break;
    const end = endOfGroup(pattern, at + 3);
    if (end === null) return null;
    ahead.push({ pattern: pattern.slice(at + 3, end), isNot: mark === '(?!' });
    at = end + 1;
  }
  if (ahead.length === 0 || hasAlternatives(pattern, at)) return null;
  return { rest: pattern.slice(0, start) + pattern.slice(at), ahead };
}

/** Where the group that is open ends. */
function endOfGroup(pattern: string, from: number): number | null {
  for (const { sign, depth, at } of signs(pattern, from)) if (sign === ')' && depth < 0) return at;
  return null;
}

function hasAlternatives(pattern: string, from: number): boolean {
  for (const { sign, depth } of signs(pattern, from)) if (sign === '|' && depth === 0) return true;
  return false;
}

/** Characters that stand for no character: `depth` counts the groups around them, less the one that ends. */
function* signs(
  pattern: string,
  from: number,
): Generator<{ readonly sign: string; readonly depth: number; readonly at: number }> {
  let depth = 0;
  let inClass = false;
  for (let at = from; at < pattern.length; at++) {
    const sign = pattern[at]!;
    if (sign === '\\') at++;
    else if (inClass) inClass = sign !== ']';
    else if (sign === '[') inClass = true;
    else {
      if (sign === '(') depth++;
      if (sign === ')') depth--;
      yield { sign, depth, at };
    }
  }
}
