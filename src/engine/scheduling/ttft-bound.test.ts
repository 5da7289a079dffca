import { describe, expect, it } from 'vitest';
import { schedulerConfig } from '../host-options.js';
import { SAVING_STEPS } from './prefill.js';
import { carry, type RunningView, type SchedulerState, StepPlan, schedule } from './scheduler.js';
import { ttftSteps } from './ttft-bound.js';

/** Much like Qwen3-0.6B's shapes on an H200; the same on a CPU a hundred times slower. */
const GPU = { fixed: 1, row: 0.05, chunk: 8, token: 0.008, depth: 0.0018 };
const CPU = { fixed: 20, row: 8, chunk: 5, token: 3, depth: 0.1 };

type Row = { -readonly [K in keyof RunningView]: RunningView[K] };

const row = (length: number, computed: number): Row => ({
  length,
  computed,
  blocks: [Math.ceil(length / 16)],
  front: [0],
  floatStart: false,
  reserved: 0,
  drawsLeft: 100_000,
  held: false,
  lastStep: 0,
  priority: 0,
  share: 0,
  arrival: 0,
});

/** Steps that are planned until a prompt that comes while so many rows decode has its token drawn, and its chunks. */
function play(
  config: ReturnType<typeof schedulerConfig>,
  costs: typeof GPU,
  decoding: number,
  prompt: number,
): { steps: number; chunks: number[]; longestPause: number } {
  const running = Array.from({ length: decoding }, () => row(21, 20));
  const next = { ...row(prompt, 0), blocks: [0], deadline: Number.POSITIVE_INFINITY };
  const waiting = [next];
  const state: { -readonly [K in keyof SchedulerState]: SchedulerState[K] } = {
    step: 0,
    now: 0,
    running,
    waiting,
    freeSlots: 1,
    freeBlocks: [100_000],
    leavingBlocks: [0],
    queuedBlocks: [0],
    freeFloatStart: 0,
    leavingFloatStart: 0,
    queuedFloatStart: 0,
    retired: -1,
    costs,
    served: [0],
    credit: 0,
    saving: 0,
    chunkSteps: 0,
  };
  const plan = new StepPlan();
  const chunks: number[] = [];
  let pause = 0;
  let longestPause = 0;
  for (let steps = 1; ; steps++) {
    schedule(state, config, plan);
    let drawn = false;
    if (plan.admitted > 0) {
      running.push(waiting.pop()!);
      state.freeSlots = 0;
    }
    for (const { index, tokens, draws } of plan.work.slice(0, plan.count)) {
      const one = running[index]!;
      one.computed += tokens;
      one.lastStep = state.step;
      one.blocks = [Math.max(one.blocks[0]!, Math.ceil((one.length + 1) / 16))];
      if (draws) one.length++;
      if (index < decoding) continue;
      chunks.push(tokens);
      longestPause = Math.max(longestPause, pause);
      pause = -1;
      drawn = draws;
    }
    pause++;
    if (drawn) return { steps, chunks, longestPause };
    carry(state, plan, 0);
    state.step++;
    if (steps > 1e6) throw new Error('no end');
  }
}

describe('the first token of a prompt that finds a free row, in steps', () => {
  for (const [kind, costs, targets, longest] of [
    ['webgpu', GPU, [0, 5, 20, 50, 100], 32_000],
    ['cpu', CPU, [0, 50, 200, 1000], 4000],
  ] as const)
    for (const targetItlMs of targets)
      it(`${kind}, target ${targetItlMs} ms: its first chunk is planned in the next step, and the rest as it is written down`, () => {
        const maxBatchTokens = kind === 'cpu' ? 256 : 2048;
        const config = schedulerConfig({ maxBatchTokens, targetItlMs }, kind, 16, 0);
        for (const decoding of [0, 1, 4, 8, 15])
          for (const prompt of [1, 16, 17, 64, 65, 300, 3000, longest]) {
            const where = JSON.stringify({ decoding, prompt });
            const { steps, chunks, longestPause } = play(config, costs, decoding, prompt);
            const bound = ttftSteps({ scheduler: config, costs, decoding, prompt });
            expect(steps, where).toBeLessThanOrEqual(bound - 2);
            expect(chunks[0], where).toBeGreaterThanOrEqual(Math.min(prompt, config.minChunk));
            expect(longestPause, where).toBeLessThanOrEqual(SAVING_STEPS);
            if (decoding === 0 || targetItlMs === 0) {
              expect(steps, where).toBe(Math.ceil(prompt / (maxBatchTokens - decoding)));
              continue;
            }
            // Where the account decides, the bound is that: no more than twice what happens.
            if (prompt === longest) expect(steps, where).toBeGreaterThan(bound / 2);
          }
      });
});
