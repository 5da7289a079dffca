/**
 * Where the files of kvant lie that no import names: the scripts of its threads, and the kernels. They are found beside the
 * file that asks, so they must be there: a bundler that takes kvant into a file of its own leaves them behind.
 */
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { KvantError } from './errors.js';

const EXTERNAL =
  'esbuild --external:kvant, Vite ssr.external, Rollup external, webpack externals, Next serverExternalPackages: ["kvant"]';

/** Folders that hold kvant's package.json, and those that do not. */
const roots = new Map<string, boolean>();

/**
 * Worker threads load built JavaScript: beside this file when running from `dist`; when the sources run (tests), the
 * same path under `dist`, which the test set-up brings up to date.
 *
 * `from`: the `import.meta.url` of the file that asks; a bundler may have made it anything, or nothing.
 * Errors: `bundled`, `package-incomplete`.
 */
export function workerUrl(relative: string, from: string | undefined): URL {
  const root = packageRoot(from);
  if (root === null) throw bundled(relative, from);
  const url = new URL(relative, from);
  if (from!.endsWith('.ts')) url.pathname = url.pathname.replace(/\/src\/(?!.*\/src\/)/, '/dist/');
  if (!existsSync(url)) throw packageIncomplete(`${fileURLToPath(url)} is missing.`);
  return url;
}

/** `node --input-type=module -e …`: a thread that runs a file refuses this flag, so it inherits none. */
export function threadFlags(): { execArgv?: [] } {
  return process.execArgv.some((flag) => flag.startsWith('--input-type')) ? { execArgv: [] } : {};
}

/** `package-incomplete`, if that is what ended a thread: its script, or a file that the script imports, is not there. */
export function missingModule(cause: unknown): KvantError | null {
  const { code, message } = (cause ?? {}) as { readonly code?: unknown; readonly message?: unknown };
  if (code !== 'ERR_MODULE_NOT_FOUND' && code !== 'MODULE_NOT_FOUND') return null;
  return packageIncomplete(`${String(message)}.`, cause);
}

/** The folder of kvant's own package.json; null where the file that asks is no file of kvant's any more. */
function packageRoot(from: unknown): string | null {
  const root = typeof from === 'string' ? /^file:.*\/(?=(?:dist|src)\/)/.exec(from)?.[0] : undefined;
  if (root === undefined) return null;
  let known = roots.get(root);
  if (known === undefined) {
    known = isKvant(root);
    roots.set(root, known);
  }
  return known ? root : null;
}

function isKvant(root: string): boolean {
  try {
    const { name } = JSON.parse(readFileSync(new URL('package.json', root), 'utf8')) as { name?: unknown };
    return name === 'kvant';
  } catch {
    return false;
  }
}

function bundled(relative: string, from: unknown): KvantError {
  const into = typeof from === 'string' && from.startsWith('file:') ? ` (${fileURLToPath(from)})` : '';
  return new KvantError(
    'bundled',
    `kvant was bundled into another file${into}, and ${relative.replace('./', '')}, which it loads while it runs, is not beside that.`,
    {
      kind: 'unsupported',
      fix: `Mark kvant as external in the bundler, so that it is loaded from node_modules (${EXTERNAL}).`,
    },
  );
}

function packageIncomplete(what: string, cause?: unknown): KvantError {
  return new KvantError('package-incomplete', `A file of the package kvant cannot be loaded: ${what}`, {
    kind: 'unsupported',
    fix: 'Install kvant again. Where a tool copies or packs an application, mark kvant as external and take node_modules/kvant along whole, outside of an archive (Next standalone: outputFileTracingIncludes, Electron: asarUnpack).',
    ...(cause === undefined ? {} : { cause }),
  });
}
