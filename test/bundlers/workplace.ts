/** A temporary folder with the bundlers, and in it an application with kvant as it would be published. */
import { execFile, spawn } from 'node:child_process';
import { cpSync, existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const here = fileURLToPath(new URL('.', import.meta.url));
const root = fileURLToPath(new URL('../..', import.meta.url));
const execute = promisify(execFile);

export const MODEL = join(root, 'models/demo-text');

/** What the programs print, and the routes answer. */
export interface Answer {
  readonly text?: string;
  readonly known?: boolean;
  readonly code?: string;
  readonly fix?: string;
}

export class Workplace {
  readonly folder = mkdtempSync(join(tmpdir(), 'kvant-bundlers-'));
  readonly app = join(this.folder, 'app');
  readonly #env: NodeJS.ProcessEnv = { ...process.env, MODEL, NEXT_TELEMETRY_DISABLED: '1' };

  constructor() {
    // What this test runner says of itself is not for the programs.
    for (const name of ['NODE_ENV', 'VITEST', 'TEST', 'DEV', 'PROD', 'MODE', 'NODE_OPTIONS'])
      delete this.#env[name];
  }

  /** Packs kvant, installs the bundlers, and kvant without its optional packages. */
  async install(): Promise<void> {
    const npm = (cwd: string, ...args: string[]): Promise<unknown> =>
      execute('npm', [...args, '--no-audit', '--no-fund'], { cwd, maxBuffer: 2 ** 26 });
    await npm(root, 'run', '-s', 'build');
    await npm(root, 'pack', '--silent', '--pack-destination', this.folder);
    cpSync(join(here, 'tools/package.json'), join(this.folder, 'package.json'));
    cpSync(join(here, 'app'), this.app, { recursive: true });
    await npm(this.folder, 'install');
    const { version } = (await import(join(root, 'package.json'), { with: { type: 'json' } })).default;
    await npm(this.app, 'install', '--omit=optional', join(this.folder, `kvant-${version}.tgz`));
    for (const name of ['webgpu', '@huggingface/hub'])
      if (existsSync(join(this.app, 'node_modules', name))) throw new Error(`${name} was installed`);
  }

  /** Runs an installed program in the application's folder, or in one of its folders. Rejects with what it printed. */
  async tool(name: string, args: readonly string[], cwd = '.', env: NodeJS.ProcessEnv = {}): Promise<string> {
    const program = join(this.folder, 'node_modules/.bin', name);
    const ran = await execute(program, args, {
      cwd: join(this.app, cwd),
      env: { ...this.#env, ...env },
      maxBuffer: 2 ** 26,
    }).catch((error: Error & { stdout?: string; stderr?: string }) => {
      throw new Error(`${name} failed:\n${error.stdout}\n${error.stderr}`);
    });
    return ran.stdout + ran.stderr;
  }

  /** The one line that a program prints. A crash is a failure. */
  async run(path: string): Promise<Answer> {
    const { stdout } = await execute(process.execPath, [path], { cwd: this.app, env: this.#env });
    return JSON.parse(stdout) as Answer;
  }

  /** Starts a server, asks it once, ends it. */
  async ask(script: string, port: number, path = '/api/ask'): Promise<string> {
    const server = spawn(process.execPath, [script], {
      cwd: this.app,
      env: { ...this.#env, PORT: String(port), HOSTNAME: '127.0.0.1' },
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    try {
      await new Promise<void>((resolve, reject) => {
        server.stdout.on('data', (data) => /Ready/.test(String(data)) && resolve());
        server.on('exit', (code) => reject(new Error(`the server ended with ${code}`)));
      });
      return await (await fetch(`http://127.0.0.1:${port}${path}`)).text();
    } finally {
      server.kill();
    }
  }

  /** As on another machine: what was installed is gone while `work` runs. */
  async elsewhere<T>(work: () => Promise<T>): Promise<T> {
    const away = join(this.folder, 'away');
    renameSync(join(this.app, 'node_modules'), away);
    try {
      return await work();
    } finally {
      renameSync(away, join(this.app, 'node_modules'));
    }
  }

  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
