/** `kvant serve` in a process of its own, for measurements of it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { KvantError } from '../errors.js';
import { KEY_VARIABLES } from './serve-keys.js';

/** What is kept of what it says, to be told where it fails. */
const KEPT = 4000;

export interface ServeProcess extends AsyncDisposable {
  readonly url: string;
  readonly pid: number;
}

/**
 * Starts it on a free port; resolves when it listens. It is told to go when it is disposed of.
 * Errors: `server-not-started`, with what it said.
 */
export async function startServe(args: readonly string[], signal: AbortSignal): Promise<ServeProcess> {
  const main = fileURLToPath(new URL('./main.js', import.meta.url));
  // Nobody is asked for a key, and thoughts are counted as text, as the engine itself gives them.
  const env = { ...process.env };
  for (const name of KEY_VARIABLES) delete env[name];
  const own = ['--port', '0', '--log-level', 'warn', '--reasoning-format', 'none'];
  const child = spawn(process.execPath, [main, 'serve', ...own, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env,
  });
  let said = '';
  const ended = once(child, 'close');
  const hear = (text: string): void => {
    said = (said + text).slice(-KEPT);
  };
  const stop = (): boolean => child.kill('SIGTERM');
  signal.addEventListener('abort', stop, { once: true });
  child.stderr.setEncoding('utf8').on('data', hear);
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      hear(text);
      const listens = / at (http:\S+)\/v1\n/.exec(said)?.[1];
      if (listens !== undefined) resolve(listens);
    });
    const fail = (): void => reject(signal.aborted ? signal.reason : notStarted(said));
    ended.then(fail, fail);
  });
  return { url, pid: child.pid!, [Symbol.asyncDispose]: () => end(child, ended) };
}

async function end(child: ChildProcess, ended: Promise<unknown>): Promise<void> {
  // The second ends it at once, should anything be under way.
  for (const again of [false, true]) {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill('SIGTERM');
    if (!again) await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 5000).unref())]);
  }
  await ended;
}

function notStarted(said: string): KvantError {
  return new KvantError(
    'server-not-started',
    `The server ended before it listened. It said: ${said.trim()}`,
    {
      kind: 'device',
      fix: 'Run kvant serve with the same flags.',
    },
  );
}
