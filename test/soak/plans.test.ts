/** Promise 3 on the host: planning a step makes nothing, not even what the collector would take away again. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import { StepPlan, schedule } from '../../src/engine/scheduling/scheduler.js';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

it('a plan of decoding rows, running prompts and newcomers leaves no litter', () => {
  const config = {
    maxBatchTokens: 64,
    blockTokens: 16,
    prefillReserve: 16,
    minChunk: 8,
    floatStartTokens: 100,
    ageingMs: 2000,
    chunkTokens: 16,
    groups: [{ window: 0, rowBlocks: 0x3fffffff }],
    targetItl: 50,
  };
  const row = (length: number, computed: number, floatStart: boolean) => ({
    length,
    computed,
    blocks: [Math.ceil(length / 16)],
    front: [0],
    floatStart,
    reserved: floatStart ? 12 : 0,
    drawsLeft: 80,
    held: false,
    lastStep: 0,
    priority: 0,
    share: 0,
    arrival: 0,
  });
  const next = (length: number) => ({
    length,
    computed: 0,
    blocks: [0],
    front: [0],
    floatStart: true,
    held: false,
    priority: 0,
    share: 0,
    arrival: 0,
    deadline: Number.POSITIVE_INFINITY,
  });
  const state = {
    step: 1,
    now: 1000.25,
    running: [row(21, 20, false), row(33, 32, true), row(500, 0, false), row(190, 0, true)],
    waiting: [next(30), { ...next(500), share: 1, arrival: 700.5 }],
    freeSlots: 8,
    freeBlocks: [1000],
    leavingBlocks: [0],
    queuedBlocks: [0],
    freeFloatStart: 1000,
    leavingFloatStart: 0,
    queuedFloatStart: 0,
    retired: 0,
    costs: { fixed: 1.5, row: 0.1, chunk: 0.5, token: 0.01, depth: 0.001 },
    served: Float64Array.of(1000.5, 2000.5),
    credit: 0.5,
    saving: 0,
    chunkSteps: 0,
  };
  const plan = new StepPlan();
  const plans = 50_000;
  const litter = (): number => {
    collect();
    const before = process.memoryUsage().heapUsed;
    for (let i = 0; i < plans; i++) schedule(state, config, plan);
    return (process.memoryUsage().heapUsed - before) / plans;
  };
  const samples = [litter(), litter(), litter(), litter()];
  expect(plan).toMatchObject({ count: 6, admitted: 2, tokens: 64 });
  // Bytes a plan; one array would be 16, one object 24.
  expect(Math.min(...samples)).toBeLessThan(8);
});
