/** Runs the built command as a process. */
import { type ChildProcessWithoutNullStreams, execFile, spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const main = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));

export interface Ran {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  readonly input?: string;
  readonly env?: NodeJS.ProcessEnv;
  /** Arguments of node itself. */
  readonly node?: readonly string[];
  /** Looks at the process while it runs. */
  readonly during?: (child: ChildProcessWithoutNullStreams) => void;
}

export function kvant(args: readonly string[], options: RunOptions = {}): Promise<Ran> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [...(options.node ?? []), main, ...args], {
      env: { ...process.env, ...options.env },
    });
    options.during?.(child);
    let stdout = '';
    let stderr = '';
    child.stdout.on('data', (data) => {
      stdout += data;
    });
    child.stderr.on('data', (data) => {
      stderr += data;
    });
    child.on('error', reject);
    child.on('close', (code) => resolve({ code, stdout, stderr }));
    child.stdin.on('error', () => {});
    child.stdin.end(options.input ?? '');
  });
}

const inTurn = fileURLToPath(new URL('./kvant-in-turn.mjs', import.meta.url));

/** Runs the command for each list of arguments, all in one process: starting one takes longer than most of what is refused. */
export function kvantInTurn(lists: readonly (readonly string[])[], env: NodeJS.ProcessEnv): Promise<Ran[]> {
  return new Promise((resolve, reject) => {
    const child = execFile(
      process.execPath,
      [inTurn],
      { env: { ...process.env, ...env } },
      (error, stdout, stderr) =>
        error === null ? resolve(JSON.parse(stdout) as Ran[]) : reject(new Error(stderr, { cause: error })),
    );
    child.stdin!.end(JSON.stringify(lists));
  });
}

export interface Serving {
  readonly url: string;
  readonly child: ChildProcessWithoutNullStreams;
  stop(signal: NodeJS.Signals): Promise<Ran>;
}

/** Starts `kvant serve` on a free port and waits until it says where it listens. */
export function kvantServe(args: readonly string[], env: NodeJS.ProcessEnv = {}): Promise<Serving> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [main, 'serve', '--port', '0', ...args], {
      env: { ...process.env, ...env },
    });
    let stdout = '';
    let stderr = '';
    const ended = new Promise<Ran>((done) => {
      child.on('close', (code) => done({ code, stdout, stderr }));
    });
    child.stderr.on('data', (data) => {
      stderr += data;
    });
    child.stdout.on('data', (data) => {
      stdout += data;
      const url = /at (http:\S+)\/v1/.exec(stdout)?.[1];
      if (url !== undefined) {
        resolve({
          url,
          child,
          stop: (signal) => {
            child.kill(signal);
            return ended;
          },
        });
      }
    });
    ended.then((ran) => reject(new Error(`kvant serve ended: ${JSON.stringify(ran)}`)));
  });
}
