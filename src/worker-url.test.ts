import { mkdtempSync, rmSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { KvantError } from './errors.js';
import { missingModule, workerUrl } from './worker-url.js';

const folder = mkdtempSync(join(tmpdir(), 'kvant-worker-url-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function files(...paths: readonly (readonly [string, string])[]): Promise<void> {
  for (const [path, text] of paths) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
  }
}

const at = (path: string): string => pathToFileURL(join(folder, path)).href;

function refusal(relative: string, from: string | undefined): KvantError {
  try {
    workerUrl(relative, from);
  } catch (error) {
    if (error instanceof KvantError) return error;
    throw error;
  }
  throw new Error('nothing was refused');
}

describe('where files of the package lie', () => {
  it('beside the built file; of the sources in dist', async () => {
    const built = new URL('../dist/engine/worker.js', import.meta.url).href;
    expect(workerUrl('./worker.js', new URL('./engine/thread.ts', import.meta.url).href).href).toBe(built);
    expect(workerUrl('./worker.js', new URL('../dist/engine/thread.js', import.meta.url).href).href).toBe(
      built,
    );
    await files(
      ['a b/node_modules/kvant/package.json', '{"name": "kvant"}'],
      ['a b/node_modules/kvant/dist/engine/worker.js', ''],
    );
    const spaced = workerUrl('./worker.js', at('a b/node_modules/kvant/dist/engine/thread.js'));
    expect(fileURLToPath(spaced)).toBe(join(folder, 'a b/node_modules/kvant/dist/engine/worker.js'));
  });

  it('a bundle is told from the package, also where it has a worker.js of its own', async () => {
    await files(
      ['app/package.json', '{"name": "app"}'],
      ['app/dist/worker.js', ''],
      ['app/out/worker.js', ''],
      ['bare/dist/worker.js', ''],
    );
    const bundles = [
      // What bundlers make of import.meta.url: the bundle's own place, nothing, an empty text, a name of their own.
      at('app/dist/app.js'),
      at('app/out/app.js'),
      at('bare/dist/app.js'),
      undefined,
      '',
      'app.js',
      '/srv/app/dist/app.js',
      'file:///$bunfs/root/app',
      'data:text/javascript,',
      // Where kvant lay on the machine that built it.
      'file:///gone/node_modules/kvant/dist/engine/thread.js',
    ];
    for (const from of bundles) {
      const { code, fix, status } = refusal('./worker.js', from);
      expect([from, code, status]).toEqual([from, 'bundled', 400]);
      expect(fix).toContain('Mark kvant as external');
    }
  });

  it('a package of which only a part was copied', async () => {
    await files(['part/node_modules/kvant/package.json', '{"name": "kvant"}']);
    const missing = refusal('./pool-worker.js', at('part/node_modules/kvant/dist/device/cpu/pool.js'));
    expect(missing).toMatchObject({
      code: 'package-incomplete',
      message: expect.stringContaining('part/node_modules/kvant/dist/device/cpu/pool-worker.js is missing'),
      fix: expect.stringContaining('mark kvant as external'),
    });
  });

  it('what ends a thread is told from a file that is not there', () => {
    const cause = Object.assign(new Error("Cannot find module '/x/host.js'"), {
      code: 'ERR_MODULE_NOT_FOUND',
    });
    expect(missingModule(cause)).toMatchObject({ code: 'package-incomplete', cause });
    expect(missingModule(cause)!.message).toContain('/x/host.js');
    for (const other of [new Error('no room'), undefined, null, 'x', { code: 'ERR_WORKER_OUT_OF_MEMORY' }])
      expect(missingModule(other)).toBeNull();
  });
});
