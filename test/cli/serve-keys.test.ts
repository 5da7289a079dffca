/** `kvant serve` with keys from a file and the environment, signals, and folders that will not do. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { kvant, kvantServe, type Serving } from './kvant.js';

const demo = ['models/demo-text', '--device', 'cpu', '--max-context', '1024'];
const sha256 = (text: string): string => createHash('sha256').update(text).digest('hex');

let folder: string;
let file: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-serve-'));
  file = join(folder, 'keys.jsonl');
});
afterAll(async () => {
  await rm(folder, { recursive: true });
});

/** Sends a signal and waits for what the log says to it. */
async function signalled({ child }: Serving, signal: NodeJS.Signals, awaited: RegExp): Promise<void> {
  let heard = '';
  child.kill(signal);
  while (!awaited.test(heard)) heard += String((await once(child.stderr, 'data'))[0]);
}

const statusOf = async ({ url }: Serving, key: string, path = '/v1/models'): Promise<number> =>
  (await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${key}` } })).status;

describe('kvant serve', () => {
  it('takes keys from a file and the environment, reads the file again on SIGHUP, and drains in the open', async () => {
    await writeFile(
      file,
      `{"name": "web", "key": "sk-web"}\n{"sha256": "${sha256('sk-ops')}", "admin": true}\n`,
      {
        mode: 0o600,
      },
    );
    const serving = await kvantServe([...demo, '--api-key-file', file, '--log-level', 'debug'], {
      KVANT_API_KEY: 'sk-env-1, sk-env-2',
      KVANT_ADMIN_KEY: 'sk-admin',
    });
    const statuses = async (path?: string): Promise<number[]> => {
      const all = [];
      for (const key of [
        'sk-web',
        'sk-ops',
        'sk-env-1',
        'sk-env-2',
        'sk-admin',
        'sk-new',
        'sk-env-1, sk-env-2',
      ])
        all.push(await statusOf(serving, key, path));
      return all;
    };
    expect(await statuses()).toEqual([200, 200, 200, 200, 200, 401, 401]);
    expect(await statuses('/metrics')).toEqual([403, 200, 403, 403, 200, 401, 401]);

    await writeFile(file, '\ufeff{"name": "web", "key": "sk-new"}\r\n');
    await signalled(serving, 'SIGHUP', /read again/);
    expect(await statuses()).toEqual([401, 401, 200, 200, 200, 200, 401]);
    await writeFile(file, '{"name": "web", "key": "sk-newer"}\n{"name": "sk-newest"\n');
    await signalled(serving, 'SIGHUP', /stay as they were.*Line 2/);
    await rm(file);
    await signalled(serving, 'SIGHUP', /stay as they were.*no such file/);
    expect(await statuses()).toEqual([401, 401, 200, 200, 200, 200, 401]);

    const body = { prompt: 'Once', max_tokens: 600, ignore_eos: true, stream: true, cache_salt: 'pepper' };
    const authorization = 'Bearer sk-new';
    const ask = () =>
      fetch(`${serving.url}/v1/completions`, {
        method: 'POST',
        headers: { authorization },
        body: JSON.stringify(body),
      });
    const streaming = await ask();
    await signalled(serving, 'SIGTERM', /shutting down/);
    const health = await fetch(`${serving.url}/health`);
    expect([health.status, await health.json()]).toMatchObject([503, { status: 'stopping' }]);
    expect((await ask()).status).toBe(503);
    expect(await streaming.text()).toContain('data: [DONE]');
    const ran = await serving.stop('SIGHUP');
    expect(ran.code).toBe(0);
    const said = ran.stdout + ran.stderr;
    expect(said).toContain('"key":"web"');
    for (const key of ['sk-web', 'sk-ops', 'sk-new', 'sk-env', 'sk-admin']) {
      expect(said).not.toContain(key);
      expect(said).not.toContain(sha256(key));
    }
  });

  it('serves on when its terminal is gone', async () => {
    const serving = await kvantServe(demo);
    await signalled(serving, 'SIGHUP', /SIGHUP/);
    expect((await fetch(`${serving.url}/health`)).status).toBe(200);
    // Without keys everything is open.
    expect(await statusOf(serving, 'none', '/metrics')).toBe(200);
    expect((await serving.stop('SIGTERM')).code).toBe(0);
  });

  it('refuses keys that are none before it loads anything, and quotes none', async () => {
    const secret = 'sk-secret';
    const refused = async (
      args: readonly string[],
      env: NodeJS.ProcessEnv,
      message: RegExp,
    ): Promise<void> => {
      const { code, stdout, stderr } = await kvant(['serve', ...demo, '--port', '0', ...args], { env });
      expect([code, stdout, stderr]).toEqual([2, '', expect.stringMatching(message)]);
      expect(stderr).not.toMatch(new RegExp(`loading|${secret}`));
    };
    await writeFile(file, `{"key": "a"}\n${secret}\n`);
    const message = /Line 2 of .*keys\.jsonl.*api-key-file-invalid/;
    await refused([], { KVANT_API_KEY_FILE: file }, message);
    await refused(['--api-key', `${secret}\u00e9`], {}, /cannot be sent/);
  });

  it('refuses a folder for prefixes that cannot be made, at once and with the reason', async () => {
    await writeFile(join(folder, 'plain'), '');
    await symlink('circle', join(folder, 'circle'));
    const cases: [string, RegExp][] = [
      [join(folder, 'plain', 'x'), /plain is a file, not a folder/],
      [join(folder, 'circle', 'x'), /in a circle/],
    ];
    if (process.platform === 'linux') cases.push(['/proc/x', /takes none/]);
    for (const [path, message] of cases) {
      // A model that is nowhere: nothing is looked for before the folder is found fit.
      const { code, stderr } = await kvant(['serve', 'org/none', '--offline', '--prefix-cache-dir', path]);
      expect([code, stderr]).toEqual([2, expect.stringMatching(message)]);
    }
  });
});
