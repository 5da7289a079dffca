import { existsSync } from 'node:fs';
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bestPlan } from '../../src/engine/best-plan.js';
import { calibrateKv } from '../../src/engine/calibrate.js';
import { Engine } from '../../src/engine/engine.js';
import { LOSS_FORMATS, LossMeter, measureKvLosses } from '../../src/engine/kv-losses.js';
import { betterFormats, settleKvPlan } from '../../src/engine/kv-plan.js';
import { OfflineRunner } from '../../src/engine/offline-runner.js';
import type { EngineOptions, LogEntry } from '../../src/engine/types.js';
import { type KvCalibration, kvCalibration, writeKvCalibration } from '../../src/kv/calibration.js';
import { expectedLoss } from '../../src/kv/losses.js';
import { readKvOptions } from '../../src/kv/options.js';
import { type KvLayerShape, planKvLayers } from '../../src/kv/policy.js';

const fixture = (path: string): string => new URL(`../fixtures/${path}`, import.meta.url).pathname;
const CPU = { device: 'cpu', precision: 'reference', threads: 2, name: 'tiny' } as const;

let folder: string;
let model: string;
let file: string;
let shapes: readonly KvLayerShape[];
let calibration: KvCalibration;
let found: Awaited<ReturnType<typeof bestPlan>>;
/** Bytes of a token with turbo4 in all layers. */
let bytes: number;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-kv-plan-'));
  model = join(folder, 'model');
  await cp(fixture('models/qwen3-tied'), model, { recursive: true });
  await cp(fixture('text/byte-level'), model, { recursive: true });
  const { ids } = JSON.parse(await readFile(fixture('kv-calibration/qwen3-tied.json'), 'utf8')) as {
    ids: number[];
  };
  const cache = { kv: { kvFormat: 'f32' }, rows: 1, context: ids.length };
  await using runner = await OfflineRunner.open({ model }, CPU, [cache]);
  const texts = [Int32Array.from(ids)];
  const { caches } = runner.variant(cache);
  const plain = await calibrateKv(runner.model, runner.device, caches, texts);
  const meter = new LossMeter(runner, plain, texts);
  const { cache: layers } = runner.model.facts;
  shapes = layers;
  const losses = await measureKvLosses(meter, layers, 'f32');
  calibration = kvCalibration(plain.tokens, plain.layers, losses);
  file = join(folder, 'model.kvcal');
  await writeFile(file, writeKvCalibration(calibration));
  const turbo4 = runner.variant({ kv: { kvFormat: 'turbo4', kvSkipLayers: [] }, rows: 1, context: 16 });
  bytes = turbo4.plan.info.reduce((sum, { keyBytes, valueBytes }) => sum + keyBytes + valueBytes, 0);
  found = await bestPlan(meter, layers, losses, { bytes });
});
afterAll(() => rm(folder, { recursive: true }));

const load = (options: EngineOptions): Promise<Engine> => Engine.load(model, { ...CPU, ...options });
const formatsOf = ({ info }: Engine): string[] => info.kv.layers.map(({ key, value }) => `${key}/${value}`);

describe('formats by layer', () => {
  it('lose less with each bit, on either side, and what layers lose adds up', () => {
    const { layers } = calibration.losses!;
    for (const side of ['key', 'value'] as const)
      for (let i = 1; i < LOSS_FORMATS.length; i++) {
        const sum = (format: string): number => layers.reduce((all, layer) => all + layer[side][format]!, 0);
        expect(sum(LOSS_FORMATS[i]!)).toBeLessThan(sum(LOSS_FORMATS[i - 1]!));
      }
    for (const { kl, expected, bytes: taken } of found.all) {
      expect(kl / expected).toBeGreaterThan(0.5);
      expect(kl / expected).toBeLessThan(2);
      expect(taken).toBeLessThanOrEqual(bytes);
    }
    expect(found.all.map(({ kl }) => kl)).toEqual(found.all.map(({ kl }) => kl).sort((a, b) => a - b));
  });

  it('are losses also where nothing is lost', async () => {
    const layers = [{ kvHeads: 2, headDim: 64, window: null, group: 0 }];
    const meter = { positions: 1, loss: async () => 0 } as unknown as LossMeter;
    const { layers: rows } = await measureKvLosses(meter, layers, 'f32');
    const zeros = Object.fromEntries(LOSS_FORMATS.map((format) => [format, 0]));
    expect(rows).toEqual([{ key: zeros, value: zeros }]);
  });

  it('are picked for a number of bytes, written down, and read again', async () => {
    const kvPlan = join(folder, 'plan.json');
    const told: LogEntry[] = [];
    const onLog = (entry: LogEntry) => told.push(entry);
    const ask = { kvBytesPerToken: bytes, kvCalibration: file };
    const request = {
      prompt: Array.from({ length: 50 }, (_, i) => 5 + i),
      maxTokens: 8,
      temperature: 0,
      ignoreEos: true,
    };
    const generate = async (engine: Engine): Promise<readonly number[]> =>
      (await engine.generate(request).result).tokenIds;
    const source = { calibration: file, layers: shapes, float: { kind: 'float', dtype: 'f32' } as const };
    await settleKvPlan({ kvBytesPerToken: bytes, kvPlan }, { ...source, writes: false });
    expect(existsSync(kvPlan)).toBe(false);
    await using picked = await load({ ...ask, kvPlan, onLog });
    expect(told.map(({ message }) => message)).toContain('formats of layers are picked by what they lose');
    expect(picked.info.kv.bytesPerToken).toBeLessThanOrEqual(bytes);
    expect(picked.info.kv.calibration).toBe(calibration.digest);
    await using read = await load({ kvPlan, kvCalibration: file });
    await using unwritten = await load(ask);
    const { layers } = JSON.parse(await readFile(kvPlan, 'utf8')) as { layers: string[] };
    await using listed = await load({ kvLayerFormats: layers, kvCalibration: file });
    for (const other of [read, unwritten, listed]) {
      expect(formatsOf(other)).toEqual(formatsOf(picked));
      expect(await generate(other)).toEqual(await generate(picked));
    }
    // What a plan takes is held against the bytes that are given beside it.
    await expect(load({ ...ask, kvBytesPerToken: bytes - 100, kvPlan })).rejects.toMatchObject({
      code: 'kv-plan-mismatch',
    });
  });

  it('that lose less at no more bytes are told of, where that was measured', async () => {
    const { layers } = calibration.losses!;
    // As on a published model: what keys lose counts for more.
    const dear = layers.map(({ key, value }) => ({
      key: Object.fromEntries(Object.entries(key).map(([name, loss]) => [name, 10 * loss])),
      value,
    }));
    const losses = { ...calibration.losses!, layers: dear };
    const other = join(folder, 'dear.kvcal');
    await writeFile(other, writeKvCalibration({ ...calibration, losses }));
    const told: LogEntry[] = [];
    const options = { kvBits: 3.5, kvSkipLayers: [], kvCalibration: other };
    await using engine = await load({ ...options, onLog: (entry) => told.push(entry) });
    // K 3, V 4 all the same.
    expect(formatsOf(engine)).toEqual(formatsOf(engine).map(() => 'turbo3/turbo4'));
    const line = told.find(({ message }) => message.includes('lose less at no more bytes'))!;
    const { better, betterKl, expectedKl } = line.fields as Record<string, unknown>;
    expect(better).not.toContain('turbo3.5');
    expect(betterKl).toBeLessThan(0.9 * Number(expectedKl));
    const turbo35 = [...Array(layers.length)].map(() => ({ key: T3, value: T4 }));
    expect(expectedKl).toBeCloseTo(expectedLoss(turbo35, losses)!, 2);
  });

  it('count what layers take that slide, whatever a plan says of them', async () => {
    const full = { kvHeads: 2, headDim: 64, window: null, group: 0 };
    const layers = [full, { ...full, window: 32 }];
    const kvPlan = join(folder, 'sliding.json');
    await writeFile(kvPlan, JSON.stringify({ format: 'kvant-kv-plan-1', layers: ['turbo4', 'turbo4'] }));
    const source = { calibration: undefined, layers, float: { kind: 'float', dtype: 'f16' } } as const;
    // 2 heads of K and of V: 64 codes of 4 bits and a norm in f16; 64 numbers in f16.
    const bytes = 4 * (32 + 2) + 4 * 128;
    expect(await settleKvPlan({ kvPlan, kvBytesPerToken: bytes }, source)).toMatchObject({
      kvLayerFormats: ['turbo4', 'turbo4'],
    });
    await expect(settleKvPlan({ kvPlan, kvBytesPerToken: bytes - 1 }, source)).rejects.toMatchObject({
      code: 'kv-plan-mismatch',
    });
  });

  it('are not told of where what stays float was asked for in fewer bytes than it has unasked', () => {
    const full = { kvHeads: 2, headDim: 64, window: null, group: 0 };
    const shapes = [full, ...Array.from({ length: 5 }, () => ({ ...full, window: 32 }))];
    const side = { turbo4: 1 };
    const losses = { positions: 1, layers: shapes.map(() => ({ key: side, value: side })) };
    const request = readKvOptions({ kvFormat: 'turbo4/f16', kvSkipLayers: [] });
    const float = { kind: 'float', dtype: 'f32' } as const;
    const plan = planKvLayers(shapes, request, float, 1024);
    expect(betterFormats(plan, shapes, { losses }, float)).toBeUndefined();
  });

  it('keys of fewer bytes than values have a hint where nothing was measured', () => {
    const shapes = Array.from({ length: 3 }, () => ({ kvHeads: 2, headDim: 64, window: null, group: 0 }));
    const float = { kind: 'float', dtype: 'f16' } as const;
    const hint = (kvFormat: string): LogEntry | undefined =>
      betterFormats(planKvLayers(shapes, readKvOptions({ kvFormat }), float, 1024), shapes, {}, float);
    expect(hint('turbo3.5')).toMatchObject({
      level: 'info',
      fields: { asked: 'turbo3.5', instead: 'turbo4/turbo3' },
    });
    for (const kvFormat of ['turbo4/turbo3', 'turbo4', 'f16/turbo4', 'affine4/f16', 'f16'])
      expect(hint(kvFormat), kvFormat).toBeUndefined();
  });

  it.each<[string, EngineOptions, string]>([
    ['no calibration', { kvBytesPerToken: 1000 }, 'kv-losses-missing'],
    ['no losses', { kvBytesPerToken: 1000, kvCalibration: 'auto' }, 'kv-losses-missing'],
    ['too few bytes', { kvBytesPerToken: 10, kvCalibration: 'FILE' }, 'kv-bytes-too-few'],
    ['no plan', { kvPlan: '/none/plan.json' }, 'file-not-readable'],
    [
      'no folder',
      { kvPlan: '/none/plan.json', kvBytesPerToken: 4000, kvCalibration: 'FILE' },
      'file-not-writable',
    ],
    ['a format too', { kvBytesPerToken: 1000, kvFormat: 'turbo4' }, 'kv-options-invalid'],
    ['bits too', { kvPlan: 'a', kvBits: 4 }, 'kv-options-invalid'],
    ['no number', { kvBytesPerToken: 1.5 }, 'kv-options-invalid'],
    ['layers of another model', { kvLayerFormats: ['turbo4'] }, 'kv-options-invalid'],
    ['no formats', { kvLayerFormats: [] }, 'kv-options-invalid'],
  ])('refused: %s', async (_, options, code) => {
    const named = options.kvCalibration === 'FILE' ? { ...options, kvCalibration: file } : options;
    await expect(load(named)).rejects.toMatchObject({ code });
  });
});

const T3 = { kind: 'turboquant', bits: 3 } as const;
const T4 = { kind: 'turboquant', bits: 4 } as const;
