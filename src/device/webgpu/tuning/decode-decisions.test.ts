import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AttentionCase, AttentionBench as Bench } from '../../../../test/devices/attention-bench.js';
import { narrowSubgroups } from '../../../../test/devices/devices.js';
import { attentionBound, F16, turbo } from '../../../../test/devices/kv-cases.js';
import { worstRow } from '../../../../test/devices/numbers.js';
import { LIMITS, record } from '../../../../test/devices/run.js';
import { casesOf } from '../../../../test/setup/every-case.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { Graph } from '../../graph.js';
import { kvCaches } from '../../kv.js';
import { Allocator } from '../allocator.js';
import type { WebGpuDevice } from '../device.js';
import type { GpuKvPool } from '../kv-pool.js';
import { TuningBench } from './bench.js';
import { type Decision, entryName, type TuningEntries, textHash } from './decision.js';
import { decodeDecisions } from './decode-decisions.js';
import { TunedChoices } from './tuned-choices.js';

const CASE = { heads: 4, kvHeads: 2, headDim: 64, rope: null } as const;

function graphOf({ heads, kvHeads, headDim, window = null }: Omit<AttentionCase, 'key' | 'value'>): Graph {
  const shape = { heads, kvHeads, headDim, layer: 0 };
  return record((ops) => {
    const qkv = ops.input('tokens', (heads + 2 * kvHeads) * headDim);
    const q = ops.ropeAppend(qkv, { ...shape, norm: null, rope: null });
    return { out: ops.keep(ops.attend(q, { ...shape, window, softcap: null })) };
  }).graph;
}

describe('decode attention as decisions', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  let allocator: Allocator;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice({ minLanes: 4 }, {}, true));
    allocator = new Allocator(raw);
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  function poolOf(key: AttentionCase['key'], value: AttentionCase['value']): GpuKvPool {
    const layer = { kvHeads: CASE.kvHeads, headDim: CASE.headDim, key, value, group: 0 };
    return device.createKvPool({
      layers: [layer],
      blocks: 4,
      blockTokens: 16,
      slots: 1,
      maxBlocksPerSlot: 4,
    });
  }
  function decisionsOf(pool: GpuKvPool, bench?: TuningBench, window: number | null = null): Decision[] {
    return decodeDecisions(
      graphOf({ ...CASE, window }),
      kvCaches(pool)!,
      device.capabilities,
      new TunedChoices(),
      () => bench!,
    );
  }

  it('are one for each band and width of items, and none for windows', () => {
    const pool = poolOf(F16, F16);
    const decisions = decisionsOf(pool);
    expect(decisions.map((d) => d.key.split(' ').slice(-2).join(' '))).toEqual([
      'splits1 band0',
      'splits1 band1',
      'splits1 band2',
      'splits1 band3',
      'splits2 band0',
    ]);
    const rows = decisions.slice(0, 4).map((d) => d.rows * 4 * CASE.kvHeads);
    [400, 1200, 3000, Number.POSITIVE_INFINITY].forEach((below, i, list) => {
      expect(rows[i]).toBeLessThan(below);
      expect(rows[i]).toBeGreaterThanOrEqual(list[i - 1] ?? 1);
    });
    for (const { candidates } of decisions) {
      expect(candidates[0]!.neutral).toBe(true);
      const of = (neutral: boolean) => candidates.filter((c) => c.neutral === neutral).length;
      expect([of(true), of(false)].every((n) => n >= 3)).toBe(true);
    }
    expect(decisionsOf(pool, undefined, 32)).toEqual([]);
    pool.dispose();
  });

  type Formats = readonly [string, AttentionCase['key'], AttentionCase['value']];
  it.each(casesOf<Formats>([['f16', F16, F16]], [['TurboQuant', turbo(3), turbo(4)]]))(
    '%s: neutral candidates give the same bits, the others come close',
    async (_, key, value) => {
      const pool = poolOf(key, value);
      const bench = new TuningBench(raw, allocator);
      const decision = decisionsOf(pool, bench)[0]!;
      const contest = await decision.open();
      const all = [...decision.candidates.keys()];
      // Of either kind some, those with loads a turn ahead among them.
      const named = (kind: boolean, ids: RegExp): number[] =>
        all.filter(
          (i) => i > 0 && decision.candidates[i]!.neutral === kind && ids.test(decision.candidates[i]!.id),
        );
      const some = [...named(true, /u1 v2|u4 v8/), ...named(false, /t128 u2 v4( [kd]\d+)?$/)];
      expect(some.length).toBeGreaterThanOrEqual(4);
      expect(await contest.prepare([0, ...some])).toEqual([0, ...some]);
      for (const index of some) {
        const { id, neutral: same } = decision.candidates[index]!;
        const how = await contest.compare(index);
        if (same) expect(how, id).toBe('same');
        else expect(['same', 'close'], id).toContain(how);
      }
      const [times] = await contest.time([0], 1);
      expect(times![0]).toBeGreaterThan(0);
      contest.close();
      bench.close();
      expect(allocator.buffers).toBe(0);
      pool.dispose();
    },
  );

  it('a choice that the cache knows is what programs attend with, and agrees with float64', async () => {
    const { device: own } = await openTestDevice({ minLanes: 4 }, {}, true);
    try {
      const pool = poolOf(F16, F16);
      const decision = decisionsOf(pool)[0]!;
      const index = decision.candidates.findIndex((c) => /t128 u1 v2 ahead/.test(c.id));
      expect(index).toBeGreaterThan(0);
      const entries: TuningEntries = {
        [entryName('full', decision.key)]: {
          rule: decision.candidates[0]!.id,
          choice: decision.candidates[index]!.id,
          texts: textHash(`${decision.textOf(0)}\n${decision.textOf(index)}`),
          ruleUs: 2,
          us: 1,
        },
      };
      const store = { read: async () => entries, add: async () => {} };
      // Another pool of the same formats: choices do not depend on its size.
      const layer = { kvHeads: CASE.kvHeads, headDim: CASE.headDim, key: F16, value: F16, group: 0 };
      const other = own.createKvPool({
        layers: [layer],
        blocks: 99,
        blockTokens: 16,
        slots: 3,
        maxBlocksPerSlot: 33,
      });
      const report = await own.tune(graphOf(CASE), LIMITS, {
        mode: 'full',
        rows: [],
        caches: other,
        store,
        budgetMs: 0,
      });
      expect(report.decisions.map((d) => d.by)).toEqual(['cache', ...Array(4).fill('skipped')]);
      const bench = await Bench.open(own, { ...CASE, key: F16, value: F16 }, 5);
      for (const [slots, lengths] of [
        [
          [0, 1],
          [150, 17],
        ],
        [
          [0, 1],
          [1, 1],
        ],
      ] as const) {
        const { out, expected, rows } = await bench.step([...slots], [...lengths]);
        const bound = attentionBound(narrowSubgroups[0]!);
        expect(worstRow(out, expected, rows, CASE.heads * CASE.headDim)).toBeLessThan(bound);
      }
      await bench.close();
      pool.dispose();
    } finally {
      await own[Symbol.asyncDispose]();
    }
  });
});
