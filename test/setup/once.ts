/** What does not depend on the device under test is computed for the first of a file's devices and kept for the others. */
const kept = new Map<string, unknown>();

/** `key` says all that `make` depends on: it must make the same again. */
export function once<T>(key: string, make: () => T): T {
  if (!kept.has(key)) kept.set(key, make());
  return kept.get(key) as T;
}
