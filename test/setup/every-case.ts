/**
 * Which cases of an emulated kernel, or of a long walk, run. Each is compiled on its own, for seconds where a software adapter does it, so there
 * a test that lists cases beyond those in which every axis and every tail has its turn leaves out the others. All run on a
 * GPU (`KVANT_TEST_GPU=1`), and anywhere with `KVANT_TEST_ALL=1` (`npm run test:all`).
 */
export const everyCase = process.env.KVANT_TEST_GPU === '1' || process.env.KVANT_TEST_ALL === '1';

/** What runs of `always` and `more`, in that order. */
export function casesOf<T>(always: readonly T[], more: readonly T[]): readonly T[] {
  return everyCase ? [...always, ...more] : always;
}

/** All of them, or those that are not named. */
export function without<T extends { readonly name: string }>(
  cases: readonly T[],
  names: readonly string[],
): readonly T[] {
  const left = names.filter((name) => !cases.some((c) => c.name === name));
  if (left.length > 0) throw new Error(`There is no case ${left.join(', ')}.`);
  return everyCase ? cases : cases.filter(({ name }) => !names.includes(name));
}
