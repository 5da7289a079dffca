/**
 * The token ids of a config field such as `eos_token_id`: one, or a list of them. Where there is none some tools write -1, as
 * transformers lets them; `null` and a number's text count as well.
 *
 * @returns undefined where it is something else
 * @example readTokenIds([2, -1]) // [2]
 */
export function readTokenIds(value: unknown): number[] | undefined {
  const list: unknown[] = Array.isArray(value) ? value : [value];
  const ids: number[] = [];
  for (const item of list) {
    if (item === null || item === undefined) continue;
    const id = typeof item === 'string' && /^\s*-?\d+\s*$/.test(item) ? Number(item) : item;
    if (typeof id !== 'number' || !Number.isSafeInteger(id)) return undefined;
    if (id >= 0) ids.push(id);
  }
  return ids;
}
