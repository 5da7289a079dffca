/**
 * Where a worker's script lies. Worker threads load built JavaScript: beside this file when running from `dist`;
 * when the sources run (tests), the same path under `dist`, which the test set-up brings up to date.
 */
export function workerUrl(relative: string, from: string): URL {
  const url = new URL(relative, from);
  if (from.endsWith('.ts')) url.pathname = url.pathname.replace(/\/src\/(?!.*\/src\/)/, '/dist/');
  return url;
}
