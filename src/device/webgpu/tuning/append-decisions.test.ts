import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { F16 } from '../../../../test/devices/kv-cases.js';
import { Random, worstRow } from '../../../../test/devices/numbers.js';
import { LIMITS, record, stepOf, withProgram } from '../../../../test/devices/run.js';
import { randomMatrix, vectorSource } from '../../../../test/devices/sources.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import { kvCaches } from '../../kv.js';
import { makeRopeTable } from '../../rope.js';
import type { WebGpuDevice } from '../device.js';
import { findFusions } from '../fusion.js';
import type { GpuKvPool } from '../kv-pool.js';
import type { WebGpuProgram } from '../program.js';
import { entryName, type TuningEntries, textHash } from './decision.js';
import { linearDecisions } from './linear-decisions.js';
import { TunedChoices } from './tuned-choices.js';

const HIDDEN = 128;
const SHAPE = { heads: 4, kvHeads: 2, headDim: 64 };
const N = 8 * 64;

/** Two layers, one with norms of heads: two shapes of one product. */
async function makeModel(device: WebGpuDevice) {
  const random = new Random(5);
  const q4 = { kind: 'affine', bits: 4, groupSize: 32, dtype: 'f16' } as const;
  const load = async (rows: number, cols: number) =>
    device.loadMatrix([randomMatrix(random, rows, cols, q4).source], { use: 'linear' });
  const vector = (length: number) => device.loadVector(vectorSource(random.normals(length)));
  const gain = await vector(HIDDEN);
  const norm = { q: await vector(64), k: await vector(64), eps: 1e-6 };
  const rope = makeRopeTable({
    dims: 64,
    style: 'half',
    frequencies: Float64Array.from({ length: 32 }, (_, i) => 10000 ** (-i / 32)),
    attentionFactor: 1,
    maxContext: LIMITS.maxContext,
  });
  const weights = [await load(N, HIDDEN), await load(N, HIDDEN)];
  const { graph, tensors } = record((ops) => {
    const x = ops.input('tokens', HIDDEN);
    const q = weights.map((weight, layer) => {
      const qkv = ops.linear(ops.rmsNorm(x, gain, 1e-6), weight);
      return ops.keep(ops.ropeAppend(qkv, { ...SHAPE, layer, norm: layer === 0 ? norm : null, rope }));
    });
    return { x, q };
  });
  const pool = (maxBlocksPerSlot: number): GpuKvPool => {
    const layer = { kvHeads: SHAPE.kvHeads, headDim: SHAPE.headDim, key: F16, value: F16, group: 0 };
    const made = device.createKvPool({
      layers: [layer, layer],
      blocks: maxBlocksPerSlot,
      blockTokens: 16,
      slots: 1,
      maxBlocksPerSlot,
    });
    made.setBlocks(0, 0, Uint32Array.of(3, 1, 0, 2));
    return made;
  };
  const x = random.normals(HIDDEN);
  /** Rotated queries of both layers at position 37, and what launches there are. */
  const run = (on: GpuKvPool) =>
    withProgram(device, graph, on, async (program) => {
      program.write(tensors.x, x);
      await program.submit(stepOf([1], [37], [0]));
      const q = [];
      for (const tensor of tensors.q) q.push(...(await program.read(tensor, 1)));
      return { q: Float32Array.from(q), labels: (program as WebGpuProgram).describe(1, 0) };
    });
  return { graph, pool, run };
}

describe('products that append, as decisions', () => {
  let device: WebGpuDevice;
  beforeAll(async () => {
    ({ device } = await openTestDevice({ minLanes: 4 }));
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it('are measured as they run, a choice of their own each, and remembered for any context', async () => {
    const { graph, pool, run } = await makeModel(device);
    const [short, long] = [pool(4), pool(8)];
    const before = await run(short);
    expect(before.labels.map((label) => label.split(',')[0])).toEqual(['q k v appended', 'q k v appended']);

    const safe = (await device.tune(graph, LIMITS, { mode: 'safe', rows: [1], caches: short })).decisions;
    expect(safe.map(({ key }) => /append .*$/.exec(key)?.[0])).toEqual([
      'append 4/2x64 norm half64 f16 f16',
      'append 4/2x64 half64 f16 f16',
    ]);
    for (const { by, times, neutral } of safe) {
      expect(by).toBe('measured');
      expect(times.every((time) => time.neutral)).toBe(true);
      expect(neutral).toBe(true);
    }
    expect((await run(short)).q).toEqual(before.q);

    // Told to take another size, as if it had been measured with a shorter context.
    const bucket = { tokens: 1, outputs: 0 };
    const decisions = linearDecisions(
      graph,
      findFusions(graph),
      [bucket],
      kvCaches(short),
      device.capabilities,
      new TunedChoices(),
      () => {
        throw new Error('nothing is measured');
      },
    );
    expect(decisions.map(({ key }) => key)).toEqual(safe.map(({ key }) => key));
    const entries: TuningEntries = Object.fromEntries(
      decisions.map(({ key, candidates, textOf }) => {
        expect(candidates.every(({ id }) => id.startsWith('gemv'))).toBe(true);
        const [rule, choice] = [candidates[0]!.id, candidates.at(-1)!.id];
        const texts = textHash(`${textOf(0)}\n${textOf(candidates.length - 1)}`);
        return [entryName('full', key), { rule, choice, texts, ruleUs: 2, us: 1 }];
      }),
    );
    const store = { read: async () => entries, add: async () => {} };
    const options = { mode: 'full', rows: [1], caches: long, store, budgetMs: 0 } as const;
    const told = (await device.tune(graph, LIMITS, options)).decisions;
    expect(told.map(({ by, rule, choice }) => [by, choice === rule])).toEqual([
      ['cache', false],
      ['cache', false],
    ]);
    const after = await run(long);
    told.forEach(({ choice }, i) => {
      const [, s, r, k] = /^gemv s(\d+) r(\d+) k(\d+)/.exec(choice)!;
      expect(after.labels[i]).toMatch(new RegExp(`-s${s}r${r}k${k}$`));
    });
    expect(worstRow(after.q, before.q, 2, before.q.length / 2)).toBeLessThan(1e-5);
    short.dispose();
    long.dispose();
  });
});
