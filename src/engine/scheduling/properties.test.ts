/** Properties of single plans, over states drawn at random: whatever the engine may ever show the scheduler, and more. */
import { describe, expect, it } from 'vitest';
import { ALL_BLOCKS } from '../../kv/retention.js';
import { uniform } from './arrivals.js';
import {
  type RunningView,
  type SchedulerConfig,
  type SchedulerState,
  StepPlan,
  schedule,
  type WaitingView,
} from './scheduler.js';

type Draw = (below: number) => number;
const blocksFor = (tokens: number, blockTokens: number): number => Math.ceil(tokens / blockTokens);

function drawConfig(draw: Draw): SchedulerConfig {
  const maxBatchTokens = 1 + draw(200);
  const minChunk = 1 + draw(Math.min(16, maxBatchTokens));
  return {
    maxBatchTokens,
    blockTokens: 16,
    prefillReserve: Math.ceil(maxBatchTokens / 4),
    minChunk,
    chunkTokens: minChunk + draw(60),
    floatStartTokens: draw(2) * 40,
    ageingMs: 1000,
    targetItl: draw(3) * 20,
    groups: [{ window: 0, rowBlocks: ALL_BLOCKS }],
  };
}

/** A row as the engine could have it: blocks for what it holds, all of them while it still has a prompt. */
function drawRow(draw: Draw, { floatStartTokens, blockTokens }: SchedulerConfig, step: number): RunningView {
  const decoding = draw(2) === 0;
  const run = decoding && draw(3) === 0;
  // Many at the border of a block, where they need one.
  const length = decoding && draw(2) === 0 ? 1 + blockTokens * (1 + draw(18)) : 1 + draw(300);
  let computed = run ? length - 1 - draw(Math.min(length, 20)) : decoding ? length - 1 : draw(length);
  const floatStart = floatStartTokens > 0 && (decoding ? draw(2) === 0 : computed < floatStartTokens);
  if (floatStart) computed = Math.min(computed, floatStartTokens);
  const whole = run || (decoding && length - computed === 1) ? Math.max(1, computed) : length;
  const enters = floatStart && whole > floatStartTokens ? blocksFor(length, blockTokens) : 0;
  return {
    length,
    computed,
    floatStart,
    blocks: [blocksFor(floatStart ? Math.min(whole, floatStartTokens) : whole, blockTokens)],
    front: [0],
    reserved: enters,
    run,
    drawsLeft: draw(8) === 0 ? 0 : 1 + draw(50),
    held: draw(8) === 0,
    lastStep: step - 1 - draw(5),
    priority: draw(3) - 1,
    share: draw(3),
    arrival: draw(5000),
  };
}

function drawWaiting(draw: Draw, { floatStartTokens, blockTokens }: SchedulerConfig): WaitingView {
  const length = 1 + draw(300);
  const floatStart = floatStartTokens > 0 && draw(3) > 0;
  const computed = draw(2) === 0 ? 0 : draw(floatStart ? Math.min(length, floatStartTokens) : length);
  return {
    length,
    computed,
    floatStart,
    blocks: [blocksFor(computed, blockTokens)],
    front: [0],
    held: draw(5) === 0,
    priority: draw(3) - 1,
    share: draw(3),
    arrival: draw(5000),
    deadline: draw(6) === 0 ? draw(10_000) : Number.POSITIVE_INFINITY,
  };
}

function drawState(draw: Draw, config: SchedulerConfig): SchedulerState {
  const step = 10 + draw(100);
  const measured = draw(3) > 0;
  const scarce = draw(2) === 0;
  return {
    step,
    now: 5000 + draw(3000),
    running: Array.from({ length: draw(9) }, () => drawRow(draw, config, step)),
    waiting: Array.from({ length: draw(9) }, () => drawWaiting(draw, config)),
    freeSlots: draw(5),
    freeBlocks: [draw(scarce ? 6 : 200)],
    leavingBlocks: [draw(4) === 0 ? draw(4) : 0],
    queuedBlocks: [draw(4) === 0 ? draw(4) : 0],
    freeFloatStart: draw(scarce ? 4 : 100),
    leavingFloatStart: draw(4) === 0 ? draw(4) : 0,
    queuedFloatStart: draw(4) === 0 ? draw(4) : 0,
    retired: step - 1 - draw(3),
    costs: measured
      ? {
          fixed: 1 + draw(10),
          row: draw(10) / 10,
          chunk: draw(4),
          token: (1 + draw(50)) / 100,
          depth: draw(3) / 100,
        }
      : { fixed: 0, row: 0, chunk: 0, token: 0, depth: 0 },
    served: [draw(1000), draw(1000), draw(1000)],
    credit: draw(60) - 20,
    saving: draw(33),
    chunkSteps: draw(2),
  };
}

/** Who may come in first, by the rule as it is written down. */
function firstOf(state: SchedulerState, config: SchedulerConfig): WaitingView | undefined {
  const able = state.waiting.filter(({ held, deadline }) => !held && deadline > state.now);
  const top = Math.max(...able.map(({ priority }) => priority));
  const level = ({ priority, arrival }: WaitingView): number =>
    Math.min(top, priority + Math.floor((state.now - arrival) / config.ageingMs));
  return [...able].sort(
    (a, b) => level(b) - level(a) || state.served[a.share]! - state.served[b.share]! || a.arrival - b.arrival,
  )[0];
}

const CASES = 10_000;

function forAll(check: (state: SchedulerState, config: SchedulerConfig, plan: StepPlan) => void): void {
  const random = uniform(20_251);
  const draw: Draw = (below) => Math.floor(random() * below);
  const plan = new StepPlan();
  for (let i = 0; i < CASES; i++) {
    const config = drawConfig(draw);
    const state = drawState(draw, config);
    const before = JSON.stringify(state);
    schedule(state, config, plan);
    try {
      if (JSON.stringify(state) !== before) throw new Error('the state was changed');
      check(state, config, plan);
    } catch (error) {
      throw new Error(`case ${i}: ${JSON.stringify({ config, state, plan })}`, { cause: error });
    }
  }
}

const admittedOf = ({ waiting }: SchedulerState, plan: StepPlan): WaitingView[] =>
  plan.admits.slice(0, plan.admitted).map((at) => waiting[at]!);
const workOf = (plan: StepPlan) => plan.work.slice(0, plan.count);

describe('every plan', () => {
  it('keeps the budget, works on each sequence once, and on nobody who may not', () => {
    let worked = 0;
    forAll((state, config, plan) => {
      const all: (RunningView | WaitingView)[] = [...state.running, ...admittedOf(state, plan)];
      let tokens = 0;
      let draws = 0;
      for (const work of workOf(plan)) {
        const one = all[work.index]!;
        tokens += work.tokens;
        worked++;
        expect(work.tokens).toBeGreaterThan(0);
        expect(work.tokens).toBeLessThanOrEqual(one.length - one.computed);
        expect(work.draws).toBe(work.tokens === one.length - one.computed);
        expect(one.held).toBe(false);
        if ('drawsLeft' in one) expect(one.drawsLeft).toBeGreaterThan(0);
        else expect(one.deadline).toBeGreaterThan(state.now);
        if (work.draws) draws++;
        const after = one.computed + work.tokens;
        const floatStart = one.floatStart && !work.converts;
        if (floatStart) expect(after).toBeLessThanOrEqual(config.floatStartTokens);
        // What it writes has a block.
        const has = work.converts
          ? (one as RunningView).reserved + work.reserve
          : one.blocks[0]! + work.newBlocks[0]!;
        expect(has * config.blockTokens).toBeGreaterThanOrEqual(after);
      }
      expect(tokens).toBe(plan.tokens);
      expect(draws).toBe(plan.draws);
      expect(tokens).toBeLessThanOrEqual(config.maxBatchTokens);
      expect(new Set(workOf(plan).map(({ index }) => index)).size).toBe(plan.count);
      expect(plan.admitted).toBeLessThanOrEqual(state.freeSlots);
      expect(new Set(plan.admits.slice(0, plan.admitted)).size).toBe(plan.admitted);
    });
    expect(worked).toBeGreaterThan(CASES);
  });

  it('hands out no block twice', () => {
    forAll((state, config, plan) => {
      const all: (RunningView | WaitingView)[] = [...state.running, ...admittedOf(state, plan)];
      let main = 0;
      let floatStart = 0;
      for (const { index, newBlocks, reserve, converts } of workOf(plan)) {
        const one = all[index]!;
        main += reserve + (one.floatStart && !converts ? 0 : newBlocks[0]!);
        floatStart += one.floatStart ? newBlocks[0]! : 0;
      }
      expect(main).toBeLessThanOrEqual(state.freeBlocks[0]!);
      expect(floatStart).toBeLessThanOrEqual(state.freeFloatStart);
      // Those that run keep a block each to grow by.
      const entered = workOf(plan).filter(({ index }) => index >= state.running.length);
      if (entered.some(({ newBlocks }) => newBlocks[0]! > 0) && config.floatStartTokens === 0)
        expect(main).toBeLessThanOrEqual(state.freeBlocks[0]! - Math.min(1, state.running.length));
    });
  });

  it('lets in who is first by level, share and arrival, or nobody', () => {
    let entered = 0;
    forAll((state, config, plan) => {
      if (plan.admitted === 0) return;
      entered++;
      const first = firstOf(state, config)!;
      const [chosen] = admittedOf(state, plan);
      // Two may be alike.
      expect([chosen!.priority, chosen!.arrival, chosen!.share]).toEqual([
        first.priority,
        first.arrival,
        first.share,
      ]);
    });
    expect(entered).toBeGreaterThan(CASES / 10);
  });

  it('names those whose time is over, and nobody else', () => {
    let late = 0;
    forAll((state, _, plan) => {
      const over = state.waiting.flatMap(({ deadline }, at) => (deadline <= state.now ? [at] : []));
      expect(plan.expires.slice(0, plan.expired)).toEqual(over);
      late += over.length;
    });
    expect(late).toBeGreaterThan(1000);
  });

  it('takes blocks from the lowest rank, never from the highest, and only when the others have dropped theirs', () => {
    const seen = { victims: 0, drops: 0 };
    const rank = ({ priority, arrival }: RunningView, { ageingMs }: SchedulerConfig): number =>
      priority - Math.floor(arrival / ageingMs);
    forAll((state, config, plan) => {
      if (plan.dropHeld) {
        seen.drops++;
        expect(plan.count).toBe(0);
        expect(state.queuedBlocks[0]! + state.queuedFloatStart).toBeGreaterThan(0);
      }
      const victim = state.running[plan.victim];
      if (victim === undefined) return;
      seen.victims++;
      expect(victim.held).toBe(false);
      expect(plan.admitted).toBe(0);
      expect(workOf(plan).some(({ index }) => index === plan.victim)).toBe(false);
      const above = state.running.filter(
        (row, index) =>
          row.drawsLeft > 0 &&
          index !== plan.victim &&
          (rank(row, config) > rank(victim, config) ||
            (rank(row, config) === rank(victim, config) && row.computed >= victim.computed)),
      );
      expect(above.length).toBeGreaterThan(0);
    });
    expect(seen.victims).toBeGreaterThan(100);
    expect(seen.drops).toBeGreaterThan(100);
  });

  it('beside decoding rows no step is foretold to take longer than the target and one smallest chunk', () => {
    let limited = 0;
    let long = 0;
    const decodes = ({ length, computed, run }: RunningView): boolean =>
      run === true || length - computed <= 1;
    forAll((state, config, plan) => {
      const { costs } = state;
      const decoding = state.running.filter(
        (row, index) => index !== plan.victim && row.drawsLeft > 0 && decodes(row),
      ).length;
      const runs = workOf(plan).filter(({ index }) => state.running[index]?.run === true);
      const runTokens = runs.reduce((sum, { tokens }) => sum + tokens - 1, 0);
      if (runTokens > 0) long++;
      if (config.targetItl === 0 || decoding === 0 || plan.prefilled === 0) return;
      limited++;
      if (costs.token === 0) {
        expect(plan.prefilled + runTokens).toBeLessThanOrEqual(config.minChunk);
        return;
      }
      const base = costs.fixed + costs.row * decoding;
      const all: (RunningView | WaitingView)[] = [...state.running, ...admittedOf(state, plan)];
      const prompts = workOf(plan).filter(
        ({ index }) => all[index]!.length - all[index]!.computed > 1 && state.running[index]?.run !== true,
      );
      const deep = prompts.reduce(
        (sum, { index, tokens }) => sum + tokens * (all[index]!.computed + tokens / 2),
        0,
      );
      const ms =
        base + costs.chunk + costs.token * (plan.prefilled + runTokens) + (costs.depth * deep) / 1000;
      const most = costs.token + (costs.depth * 600) / 1000;
      const smallest = costs.chunk + most * config.minChunk;
      expect(ms).toBeLessThanOrEqual(Math.max(base, config.targetItl) + smallest + 1e-9);
    });
    expect(limited).toBeGreaterThan(1000);
    expect(long).toBeGreaterThan(1000);
  });

  it('is not empty while somebody could run', () => {
    forAll((state, config, plan) => {
      if (plan.count > 0 || plan.dropHeld || plan.victim >= 0 || plan.stalled > 0) return;
      for (const row of state.running) {
        const waits =
          row.floatStart && row.computed >= config.floatStartTokens && row.lastStep > state.retired;
        expect(row.held || row.drawsLeft === 0 || row.computed >= row.length || waits).toBe(true);
      }
      const first = firstOf(state, config);
      if (first === undefined || state.freeSlots === 0 || state.running.length > 0 || first.floatStart)
        return;
      // Alone, it comes in if the pool has what it lacks.
      expect(blocksFor(first.length, config.blockTokens) - first.blocks[0]!).toBeGreaterThan(
        state.freeBlocks[0]!,
      );
    });
  });
});
