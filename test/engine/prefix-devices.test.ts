/** Cached prefixes on every device that keeps the promises bitwise, with a tiny model: hits, parts of blocks, shared rows. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { DeviceStats } from '../../src/device/device.js';
import type { HostConfig } from '../../src/engine/messages.js';
import type { KvOptions } from '../../src/kv/options.js';
import { resolveSampling } from '../../src/sampling/params.js';
import { NO_RULES } from '../../src/sampling/token-rules.js';
import { type DeviceSpec, devices } from '../devices/devices.js';
import { randomPrompt, seeded } from './core-harness.js';
import { loadTiny } from './tiny-host.js';

const WINDOW = new URL('../fixtures/models/mistral-window', import.meta.url).pathname;

const random = seeded(23);
const system = randomPrompt(random, 60);
const prompts = [
  [...system, ...randomPrompt(random, 12)],
  [...system.slice(0, 40), ...randomPrompt(random, 9)],
  [...system, ...randomPrompt(random, 3)],
  randomPrompt(random, 20),
];

interface Said {
  readonly ids: number[];
  cached: number;
}

/** Asks one after the other, again, and all at once. */
async function answers(
  spec: DeviceSpec,
  kv: KvOptions,
  prefixCache: boolean,
  prefixCacheDir?: string,
  own = prompts,
  more: Partial<HostConfig> = {},
): Promise<{ readonly rounds: Said[][]; readonly early: DeviceStats; readonly late: DeviceStats }> {
  const rounds = Array.from({ length: 3 }, () => own.map((): Said => ({ ids: [], cached: 0 })));
  let wake: () => void = () => {};
  let finished = 0;
  // Steps are dear to a software GPU; an answer still grows out of its block.
  const maxTokens = spec.slow ? 4 : 10;
  const options = { kv, prefixCache, prefixCacheDir, maxBatchTokens: 40, maxRows: 4, ...more };
  const host = await loadTiny(await spec.create(), options, (events) => {
    for (const { request, ids, finish, cached } of events) {
      const said = rounds[Math.floor(request / own.length)]![request % own.length]!;
      said.ids.push(...ids);
      if (finish === null) continue;
      said.cached = cached ?? 0;
      finished++;
    }
    wake();
  });
  const until = async (count: number): Promise<void> => {
    while (finished < count) await new Promise<void>((resolve) => (wake = resolve));
    while (host.core.stats().slotsUsed > 0) await new Promise((resolve) => setImmediate(resolve));
  };
  let early: DeviceStats | null = null;
  for (let id = 0; id < 3 * own.length; id++) {
    host.core.add({
      id,
      prompt: Int32Array.from(own[id % own.length]!),
      sampling: resolveSampling({ temperature: id % 2, seed: id % 4, maxTokens, ignoreEos: true }),
      rules: NO_RULES,
      continuation: true,
      receivedAt: 0,
    });
    if (id < 2 * own.length) await until(id + 1);
    if (id === own.length) early = host.core.stats().device;
  }
  await until(3 * own.length);
  const late = host.core.stats().device;
  await host.close(false);
  return { rounds, early: early!, late };
}

/** The same device, whose blocks go by another name. */
function laidOtherwise(spec: DeviceSpec): DeviceSpec {
  return {
    ...spec,
    create: async () => {
      const device = await spec.create();
      const createKvPool = device.createKvPool.bind(device);
      device.createKvPool = (pool) =>
        Object.defineProperty(createKvPool(pool), 'storage', { value: 'laid-otherwise' });
      return device;
    },
  };
}

const WAYS: readonly KvOptions[] = [
  { kvFormat: 'f32' },
  { kvFormat: 'affine8/turbo4', kvSkipLayers: [] },
  { kvBits: 3.5, kvSkipLayers: [], quantizedKvStart: 24 },
];

describe.each(devices.filter((spec) => spec.bitwise))('$name', (spec) => {
  it.each(WAYS)('%j: the same tokens wherever K and V come from', { timeout: 300_000 }, async (kv) => {
    const cold = await answers(spec, kv, false);
    const warm = await answers(spec, kv, true);
    const ids = (rounds: Said[][]) => rounds.map((round) => round.map((said) => said.ids));
    expect(ids(warm.rounds)).toEqual(ids(cold.rounds));
    expect(cold.rounds.flat().every(({ cached }) => cached === 0)).toBe(true);
    const [first, second, third] = warm.rounds.map((round) => round.map(({ cached }) => cached));
    // 40 tokens agree: two blocks, and half of another one.
    expect(first).toEqual([0, 40, 60, 0]);
    expect(second).toEqual([71, 48, 62, 16]);
    expect(third).toEqual(second);
    // What came after the first hits made nothing on the device that stays.
    expect(warm.late).toEqual(warm.early);
  });

  it('a float tail beside 3 bits: the same tokens, whole blocks of prefixes', {
    timeout: 300_000,
  }, async () => {
    const kv = { kvBits: 3.5, kvSkipLayers: [], kvFloatTail: 20, kvFloatHead: 32 };
    const cold = await answers(spec, kv, false);
    const warm = await answers(spec, kv, true);
    const ids = (rounds: Said[][]) => rounds.map((round) => round.map((said) => said.ids));
    expect(ids(warm.rounds)).toEqual(ids(cold.rounds));
    expect(warm.rounds.map((round) => round.map(({ cached }) => cached % 16))).toEqual(
      warm.rounds.map((round) => round.map(() => 0)),
    );
    expect(warm.rounds[1]!.some(({ cached }) => cached >= 48)).toBe(true);
    expect(warm.late).toEqual(warm.early);
  });

  it('windows: the same tokens, whatever was given back', { timeout: 300_000 }, async () => {
    const weights = { kind: 'folder', path: WINDOW } as const;
    const long = randomPrompt(random, 150);
    const own = [long, [...long.slice(0, 100), 5, 6, 7], [...long.slice(0, 70), 8], long.slice(0, 130)];
    const more = { weights, maxContext: 192 };
    const cold = await answers(spec, {}, false, undefined, own, more);
    const warm = await answers(spec, {}, true, undefined, own, more);
    const ids = (rounds: Said[][]) => rounds.map((round) => round.map((said) => said.ids));
    expect(ids(warm.rounds)).toEqual(ids(cold.rounds));
    expect(warm.rounds[1]!.map(({ cached }) => cached)).toEqual([149, 102, 70, 128]);
    expect(warm.late).toEqual(warm.early);
  });

  it('the same tokens from disk, float-start blocks and others', { timeout: 300_000 }, async () => {
    const folder = mkdtempSync(join(tmpdir(), 'kvant-disk-devices-'));
    try {
      const kv = WAYS[2]!;
      const first = await answers(spec, kv, true, folder);
      const second = await answers(spec, kv, true, folder);
      expect(second.rounds.map((round) => round.map(({ ids }) => ids))).toEqual(
        first.rounds.map((round) => round.map(({ ids }) => ids)),
      );
      // Whole blocks; the third goes on in a copy of what the first brought back.
      expect(second.rounds[0]!.map(({ cached }) => cached)).toEqual([64, 48, 60, 16]);
      expect(second.late).toEqual(second.early);
      // A device that lays blocks otherwise finds nothing of it, and says the same.
      const other = await answers(laidOtherwise(spec), kv, true, folder);
      expect(other.rounds.map((round) => round.map(({ ids }) => ids))).toEqual(
        first.rounds.map((round) => round.map(({ ids }) => ids)),
      );
      expect(other.rounds[0]!.map(({ cached }) => cached)).toEqual(
        first.rounds[0]!.map(({ cached }) => cached),
      );
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
