import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { calibrateKv } from '../../src/engine/calibrate.js';
import { Engine } from '../../src/engine/engine.js';
import { OfflineRunner } from '../../src/engine/offline-runner.js';
import { Scorer } from '../../src/engine/scorer.js';
import { type KvCalibration, readKvCalibration, writeKvCalibration } from '../../src/kv/calibration.js';

const fixture = (path: string): string => new URL(`../fixtures/${path}`, import.meta.url).pathname;
const CPU = { device: 'cpu', precision: 'reference', threads: 2, name: 'tiny' } as const;

interface Reference {
  readonly ids: number[];
  readonly layers: Record<'mean' | 'first' | 'keys' | 'queries', number[]>[];
}

/** Checkpoints with a tokenizer beside them: the tiny ones have none. */
let folder: string;
const model = (name: string): string => join(folder, name);

async function calibrated(name: string): Promise<{ calibration: KvCalibration; reference: Reference }> {
  const text = await readFile(fixture(`kv-calibration/${name}.json`), 'utf8');
  const reference = JSON.parse(text) as Reference;
  const cache = { kv: { kvFormat: 'f32' }, rows: 1, context: reference.ids.length };
  await using runner = await OfflineRunner.open({ model: model(name) }, CPU, [cache]);
  const { caches } = runner.variant(cache);
  const calibration = await calibrateKv(runner.model, runner.device, caches, [
    Int32Array.from(reference.ids),
  ]);
  return { calibration, reference };
}

describe('calibration of KV', () => {
  let calibration: KvCalibration;
  let reference: Reference;
  let file: string;
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'kvant-calibration-'));
    for (const name of ['qwen3-tied', 'hunyuan']) {
      await cp(fixture(`models/${name}`), model(name), { recursive: true });
      await cp(fixture('text/byte-level'), model(name), { recursive: true });
    }
    ({ calibration, reference } = await calibrated('qwen3-tied'));
    file = join(folder, 'qwen3.kvcal');
    await writeFile(file, writeKvCalibration(calibration));
  });
  afterAll(() => rm(folder, { recursive: true }));

  it.each(['qwen3-tied', 'hunyuan'])(
    '%s: finds what transformers has, norms before and after',
    async (name) => {
      const found = name === 'qwen3-tied' ? { calibration, reference } : await calibrated(name);
      found.reference.layers.forEach((want, layer) => {
        const have = found.calibration.layers[layer]!;
        for (const part of ['mean', 'first', 'keys', 'queries'] as const) {
          const most = Math.max(...want[part].map(Math.abs));
          want[part].forEach((value, d) => {
            expect(Math.abs(have[part][d]! - value), `${part} ${d} of layer ${layer}`).toBeLessThan(
              2e-3 * most,
            );
          });
        }
      });
    },
  );

  it('a file gives the same calibration; a broken one and one of another model are refused', async () => {
    const text = writeKvCalibration(calibration);
    expect(readKvCalibration(text, file)).toEqual(calibration);
    for (const broken of ['', '{}', text.slice(0, -100), text.replace(/"mean":"...."?/, '"mean":"')])
      expect(() => readKvCalibration(broken, file)).toThrow(
        expect.objectContaining({ code: 'kv-calibration-invalid' }),
      );
    const load = (name: string, kvCalibration: string) =>
      Engine.load(model(name), { device: 'cpu', kvBits: 8, kvCalibration });
    await expect(load('hunyuan', file)).rejects.toMatchObject({ code: 'kv-calibration-mismatch' });
    await expect(load('qwen3-tied', join(folder, 'none'))).rejects.toMatchObject({
      code: 'file-not-readable',
    });
  });

  it('coded keys are stored by it, of whole prompts and cut ones to the bit; float ones are not touched', async () => {
    const ids = Int32Array.from(reference.ids);
    const context = ids.length;
    const cache = { kv: { kvFormat: 'turbo3', kvSkipLayers: [] }, rows: 1, context };
    const scores = async (kvFormat: string, kvCalibration: string | null, chunk: number) => {
      const options = kvCalibration === null ? CPU : { ...CPU, kvCalibration };
      await using runner = await OfflineRunner.open({ model: model('qwen3-tied') }, options, [cache]);
      await using scorer = await Scorer.open(runner, { ...cache.kv, kvFormat }, context);
      const rows: number[] = [];
      for (let at = 0; at < context; at += chunk)
        rows.push(...(await scorer.step(ids, at, Math.min(at + chunk, context), 100)));
      return rows;
    };
    const want = await scores('f32', null, 200);
    const freed = await scores('affine8', file, 200);
    const plain = await scores('affine8', null, 200);
    expect(freed).not.toEqual(plain);
    // Random keys have no mean to speak of: it neither helps nor harms.
    const error = (of: number[]): number => of.reduce((sum, x, i) => sum + (x - want[i]!) ** 2, 0);
    expect(error(freed)).toBeLessThan(2 * error(plain));
    expect(await scores('affine8', file, 37)).toEqual(freed);
    expect(await scores('f32', file, 200)).toEqual(want);
  });

  it('auto: the first start makes it, the next has it; float keys have none', async () => {
    vi.stubEnv('KVANT_CACHE', join(folder, 'cache'));
    const told: string[] = [];
    const load = (options: object) =>
      Engine.load(model('qwen3-tied'), {
        device: 'cpu',
        kvBits: 8,
        kvSkipLayers: [],
        kvCalibration: 'auto',
        onLog: ({ message }) => told.push(message),
        ...options,
      });
    try {
      await using first = await load({});
      expect(first.info.kv.calibration).toMatch(/^[0-9a-f]{16}$/);
      expect(told).toContain('quantised keys are calibrated');
      await using next = await load({
        onLog: ({ message }: { message: string }) => expect(message).not.toMatch(/calibrated/),
      });
      expect(next.info.kv.calibration).toBe(first.info.kv.calibration);
      await using float = await load({ kvBits: undefined, kvSkipLayers: undefined });
      expect(float.info.kv.calibration).toBeNull();
    } finally {
      vi.unstubAllEnvs();
    }
  });

  it('engines say which they have', async () => {
    const load = (options: object) => Engine.load(model('qwen3-tied'), { device: 'cpu', ...options });
    await using plain = await load({ kvBits: 8 });
    expect(plain.info.kv.calibration).toBeNull();
    await using told = await load({ kvBits: 8, kvSkipLayers: [], kvCalibration: file });
    expect(told.info.kv.calibration).toBe(calibration.digest);
    await using float = await load({ kvCalibration: file });
    expect(float.info.kv.calibration).toBeNull();
  });
});
