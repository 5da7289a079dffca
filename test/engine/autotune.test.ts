/** Tuning as the engine loads: what it tells, what it keeps on disk, and that `safe` changes no token. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { HostConfig, HostInfo } from '../../src/engine/messages.js';
import { resolveSampling } from '../../src/sampling/params.js';
import { NO_RULES } from '../../src/sampling/token-rules.js';
import { devices, narrowSubgroups } from '../devices/devices.js';
import { loadTiny } from './tiny-host.js';

const webgpu = narrowSubgroups[0] ?? devices.find((d) => d.name === 'webgpu default');

describe.skipIf(webgpu === undefined)('autotune at load', () => {
  const before = process.env.KVANT_CACHE;
  let cache: string;
  beforeAll(async () => {
    cache = await mkdtemp(join(tmpdir(), 'kvant-autotune-'));
    process.env.KVANT_CACHE = cache;
  });
  afterAll(async () => {
    if (before === undefined) delete process.env.KVANT_CACHE;
    else process.env.KVANT_CACHE = before;
    await rm(cache, { recursive: true });
  });
  const files = async (): Promise<string[]> => readdir(join(cache, 'tuning')).catch(() => []);

  /** One answer, and what loading told and took. */
  async function load(options: Partial<HostConfig>): Promise<{
    readonly tuning: HostInfo['tuning'];
    readonly ids: readonly number[];
    readonly buffers: number;
    readonly bytes: number;
  }> {
    const device = await webgpu!.create();
    const ids: number[] = [];
    let wake: () => void = () => {};
    const done = new Promise<void>((resolve) => {
      wake = resolve;
    });
    const host = await loadTiny(device, options, (events) => {
      for (const event of events) {
        ids.push(...event.ids);
        if (event.finish !== null) wake();
      }
    });
    const { buffers, bytes } = device.stats();
    host.core.add({
      id: 0,
      prompt: Int32Array.from([5, 9, 101, 77, 3]),
      sampling: resolveSampling({ maxTokens: 6, temperature: 0, ignoreEos: true }),
      rules: NO_RULES,
      continuation: true,
      receivedAt: 0,
    });
    await done;
    await host.close(false);
    return { tuning: host.info.tuning, ids, buffers, bytes };
  }

  it('off reads and writes nothing; safe measures, keeps what it learned, and goes on from there', async () => {
    const off = await load({});
    expect(off.tuning).toBeNull();
    expect(await files()).toEqual([]);

    const first = await load({ autotune: 'safe', autotuneMs: 1 });
    // Time for the first decision alone.
    expect(first.tuning).toMatchObject({ mode: 'safe', measured: 1, cached: 0 });
    expect(first.tuning!.left).toBe(first.tuning!.decisions - 1);
    const [file] = await files();
    expect(await files()).toEqual([expect.stringMatching(/^webgpu-[0-9a-f]{16}\.json$/)]);
    const kept = JSON.parse(await readFile(join(cache, 'tuning', file!), 'utf8'));
    expect(Object.keys(kept.entries)).toEqual([expect.stringMatching(/^safe linear .* rows1 /)]);

    const second = await load({ autotune: 'safe', autotuneMs: 0 });
    expect(second.tuning).toMatchObject({ mode: 'safe', measured: 0, cached: 1 });
    for (const { ids, buffers, bytes } of [first, second]) {
      expect(ids).toEqual(off.ids);
      expect([buffers, bytes]).toEqual([off.buffers, off.bytes]);
    }
  });
});
