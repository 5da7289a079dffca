// What the scripts here read from their command line, and where they find the build that they measure.

/** The words of the command line. */
export const args = process.argv.slice(2);

/** The word behind `name` ('--rows'), or `fallback` where it is not given. */
export const option = (name, fallback) => (args.includes(name) ? args[args.indexOf(name) + 1] : fallback);

const dist = process.env.KVANT_DIST ?? '../dist';

/** A module of the build ('device/step.js'). `KVANT_DIST` names another build, seen from this folder. */
export const built = (path) => import(new URL(`${dist}/${path}`, import.meta.url));

/** Tells how many of `seconds` are left from now on. */
export function countdown(seconds) {
  const began = performance.now();
  return () => seconds - (performance.now() - began) / 1000;
}
