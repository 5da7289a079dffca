import { KvantError } from '../errors.js';

/** As deep as Python's `json` reads. A template takes a value apart by recursion. */
export const MOST_NESTED = 1000;

/**
 * Refuses a value that is nested too deeply, or refers to itself.
 *
 * @throws KvantError `nested-too-deeply` naming `where`
 */
export function checkDepth(value: unknown, where: string): void {
  const rest: { readonly value: unknown; readonly depth: number }[] = [{ value, depth: 0 }];
  for (let next = rest.pop(); next !== undefined; next = rest.pop()) {
    const { value: at, depth } = next;
    if (typeof at !== 'object' || at === null) continue;
    if (depth >= MOST_NESTED)
      throw new KvantError('nested-too-deeply', `${where} is nested more than ${MOST_NESTED} levels deep`, {
        kind: 'invalid-request',
        where,
        fix: 'Send it flatter. An object that refers to itself has no end.',
      });
    for (const item of at instanceof Map ? at.values() : Array.isArray(at) ? at : Object.values(at))
      if (typeof item === 'object' && item !== null) rest.push({ value: item, depth: depth + 1 });
  }
}
