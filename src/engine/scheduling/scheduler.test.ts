import { describe, expect, it } from 'vitest';
import { LATENCY, newcomer, UNMEASURED } from '../../../test/engine/scheduler-views.js';
import { type SchedulerConfig, StepPlan, schedule } from './scheduler.js';

const NOTHING = { served: [0, 0], credit: 0, saving: 0 };

describe('schedule', () => {
  const config: SchedulerConfig = {
    maxBatchTokens: 64,
    blockTokens: 16,
    prefillReserve: 16,
    minChunk: 8,
    floatStartTokens: 0,
    ...LATENCY,
  };
  const decoding = (lastStep = 0) => ({
    length: 21,
    computed: 20,
    blocks: [2],
    front: [0],
    floatStart: false,
    reserved: 0,
    drawsLeft: 80,
    held: false,
    lastStep,
    priority: 0,
    share: 0,
    arrival: 0,
  });
  const prefilling = (length: number, computed = 0) => ({
    ...decoding(),
    length,
    computed,
    blocks: [Math.ceil(length / 16)],
  });
  const idle = {
    step: 1,
    now: 0,
    running: [],
    waiting: [],
    freeSlots: 8,
    freeBlocks: [1000],
    leavingBlocks: [0],
    queuedBlocks: [0],
    freeFloatStart: 0,
    leavingFloatStart: 0,
    queuedFloatStart: 0,
    retired: 0,
    costs: UNMEASURED,
    ...NOTHING,
    chunkSteps: 0,
  };
  const plan = new StepPlan();
  const work = () => plan.work.slice(0, plan.count).map(({ index, tokens }) => [index, tokens]);

  it('plans nothing when there is nothing', () => {
    schedule(idle, config, plan);
    expect(plan).toMatchObject({ count: 0, tokens: 0, admitted: 0 });
  });

  it('puts decoding rows first and gives prompts the rest, half and half of it', () => {
    const running = [decoding(), prefilling(500), prefilling(30), prefilling(500)];
    schedule({ ...idle, running }, config, plan);
    // Of 63: 32, then half of 31, then half of 15; the last 7 go to the oldest.
    expect(work()).toEqual([
      [0, 1],
      [1, 32 + 7],
      [2, 16],
      [3, 8],
    ]);
    expect(plan.tokens).toBe(64);
  });

  it('ends no chunk within a span: before it, or behind it where it begins there already', () => {
    const spans = (computed: number, ...uncut: number[]) => ({ ...prefilling(500, computed), uncut });
    const alone = (computed: number, ...uncut: number[]) => {
      schedule({ ...idle, running: [spans(computed, ...uncut)] }, { ...config, maxBatchTokens: 64 }, plan);
      return work();
    };
    expect(alone(0, 64, 100)).toEqual([[0, 64]]);
    expect(alone(0, 63, 100)).toEqual([[0, 63]]);
    expect(alone(0, 10, 20, 40, 90)).toEqual([[0, 40]]);
    expect(alone(40, 10, 20, 40, 104)).toEqual([[0, 64]]);
    expect(alone(50, 10, 20, 40, 90, 90, 120)).toEqual([[0, 40]]);
    // Of 64: half is not enough for the first one's picture, and what is left not for the second one's.
    schedule({ ...idle, running: [spans(40, 40, 90), spans(40, 40, 90)] }, config, plan);
    expect(work()).toEqual([[0, 50 + 14]]);
    // A newcomer whose picture does not fit comes later.
    const waiting = [{ ...newcomer(500), computed: 16, uncut: [16, 90] }];
    schedule({ ...idle, waiting }, config, plan);
    expect(plan).toMatchObject({ count: 0, admitted: 0 });
  });

  it('gives a lone prompt everything', () => {
    schedule({ ...idle, waiting: [newcomer(500)] }, config, plan);
    expect(work()).toEqual([[0, 64]]);
    expect(plan).toMatchObject({ admitted: 1, draws: 0 });
  });

  it('admits several prompts in one step, in order, as far as rows go', () => {
    const waiting = Array.from({ length: 5 }, () => newcomer(10));
    schedule({ ...idle, waiting, freeSlots: 3 }, config, plan);
    expect(work()).toEqual([
      [0, 10],
      [1, 10],
      [2, 10],
    ]);
    expect(plan).toMatchObject({ admitted: 3, draws: 3 });
  });

  it('keeps a share for prompts when decoding rows alone would fill the step, and takes turns', () => {
    const running = Array.from({ length: 70 }, (_, i) => decoding(i < 60 ? 5 : 3));
    schedule({ ...idle, running, waiting: [newcomer(40)] }, config, plan);
    const rows = work();
    expect(rows).toContainEqual([70, 16]);
    expect(rows).toHaveLength(49);
    for (let i = 60; i < 70; i++) expect(rows).toContainEqual([i, 1]);
  });

  it('fills a step up with runs as far as that costs nothing, where tokens do not cost alike', () => {
    const gpu = { ...config, maxBatchTokens: 256, minChunk: 64, evenTokens: 32 };
    /** Tokens of a step of so many rows, of which the first goes on by a run of so many. */
    const tokens = (rows: number, run: number, waiting = 0): number => {
      const first = { ...decoding(), length: 20 + run, run: true, blocks: [8] };
      const running = [first, ...Array.from({ length: rows - 1 }, () => decoding())];
      const prompts = Array.from({ length: waiting }, () => newcomer(100));
      schedule({ ...idle, running, waiting: prompts }, gpu, plan);
      return work().reduce((sum, [index, count]) => sum + (index! < rows ? count! : 0), 0);
    };
    expect(tokens(1, 9)).toBe(9);
    expect(tokens(1, 60)).toBe(32);
    expect(tokens(28, 9)).toBe(32);
    expect(tokens(32, 9)).toBe(32);
    expect(tokens(40, 9)).toBe(48);
    expect(tokens(40, 60)).toBe(64);
    // Beside a prompt the step is a long one anyway.
    expect(tokens(32, 9, 1)).toBe(40);
  });

  describe('with a target', () => {
    const paced = { ...config, chunkTokens: 32, targetItl: 10 };
    const measured = { ...idle, costs: { fixed: 2, row: 0.5, chunk: 1, token: 0.125, depth: 0 } };
    const rows = [decoding(), decoding(), decoding(), decoding()];

    it('gives prompts one smallest chunk beside decoding rows while nothing has been measured', () => {
      schedule({ ...idle, running: [decoding(), prefilling(500)] }, paced, plan);
      expect(work()).toEqual([
        [0, 1],
        [1, 8],
      ]);
      // Nobody to keep waiting: all there is.
      schedule({ ...idle, running: [prefilling(500)] }, paced, plan);
      expect(plan.tokens).toBe(64);
    });

    it('saves up for a chunk that is worth a step, and takes what that costs from the account', () => {
      const state = { ...measured, running: [...rows, prefilling(500)] };
      // A step of the rows takes 4 ms, and prompts weigh 1.9 of 4 rows: 1.9 ms a step. A chunk of 32 costs 5.
      schedule(state, paced, plan);
      expect(work()).toHaveLength(4);
      expect(plan.credit).toBeCloseTo(1.9, 9);
      expect(plan.saving).toBe(1);
      schedule({ ...state, credit: plan.credit, saving: 1 }, paced, plan);
      expect(plan.credit).toBeCloseTo(3.8, 9);
      schedule({ ...state, credit: plan.credit, saving: 2 }, paced, plan);
      // 5.7 ms buy 37 tokens.
      expect(work().at(-1)).toEqual([4, 37]);
      expect(plan.credit).toBeCloseTo(5.7 - 1 - 37 / 8, 9);
      expect(plan.saving).toBe(0);
    });

    it('plans no more than fits the target, but for one smallest chunk', () => {
      const state = { ...measured, running: [...rows, prefilling(500)], credit: 100 };
      schedule(state, paced, plan);
      // 10 − 4 − 1 ms are 40 tokens.
      expect(work().at(-1)).toEqual([4, 40]);
      schedule(state, { ...paced, targetItl: 4.5 }, plan);
      expect(work().at(-1)).toEqual([4, 8]);
    });

    it('lends a newcomer its first chunk, one at a time', () => {
      const state = { ...measured, running: [...rows, prefilling(500)], waiting: [newcomer(300)] };
      schedule(state, { ...paced, chunkTokens: 200 }, plan);
      expect(work().at(-1)).toEqual([5, 8]);
      expect(plan).toMatchObject({ admitted: 1, prefilled: 8 });
      schedule({ ...state, credit: -5 }, { ...paced, chunkTokens: 200 }, plan);
      expect(plan).toMatchObject({ admitted: 0, prefilled: 0 });
    });
  });

  it('begins where a prefix ends, with the blocks that are missing', () => {
    const waiting = [{ ...newcomer(100), computed: 64, blocks: [4] }];
    schedule({ ...idle, waiting }, config, plan);
    expect(plan.work[0]).toMatchObject({ index: 0, tokens: 36, newBlocks: [3], draws: true });
  });

  it('passes over those that are held, and has prefixes dropped where they keep everybody out', () => {
    const waiting = [{ ...newcomer(10), held: true }, newcomer(20)];
    schedule({ ...idle, waiting }, config, plan);
    expect([...plan.admits.slice(0, plan.admitted)]).toEqual([1]);
    schedule({ ...idle, waiting, freeBlocks: [1], queuedBlocks: [5] }, config, plan);
    expect(plan).toMatchObject({ dropHeld: true, count: 0 });
    schedule({ ...idle, waiting, freeBlocks: [1] }, config, plan);
    expect(plan).toMatchObject({ dropHeld: false, count: 0 });
  });

  it('leaves held rows out', () => {
    schedule({ ...idle, running: [decoding(), { ...decoding(), held: true }] }, config, plan);
    expect(work()).toEqual([[0, 1]]);
  });

  it('admits only what leaves the running rows a block each', () => {
    const waiting = [newcomer(32)];
    schedule({ ...idle, running: [decoding(), decoding()], waiting, freeBlocks: [3] }, config, plan);
    expect(plan.admitted).toBe(0);
    schedule({ ...idle, running: [decoding(), decoding()], waiting, freeBlocks: [4] }, config, plan);
    expect(plan.admitted).toBe(1);
    // Nothing runs: the whole pool is its own.
    schedule({ ...idle, waiting, freeBlocks: [2] }, config, plan);
    expect(plan.admitted).toBe(1);
  });

  describe('with float-start tokens', () => {
    const early = { ...config, floatStartTokens: 40 };
    const fresh = (length: number) => ({ ...newcomer(length), floatStart: true });
    const floatStart = {
      ...decoding(),
      floatStart: true,
      length: 41,
      computed: 40,
      blocks: [3],
      lastStep: 4,
    };
    const more = { ...idle, freeFloatStart: 10 };
    const first = () => plan.work[0]!;

    it('cuts chunks where a sequence is converted', () => {
      schedule({ ...more, waiting: [fresh(100)] }, early, plan);
      // FloatStart blocks for 40 tokens, and those of the main pool for all of them.
      expect(first()).toMatchObject({
        tokens: 40,
        newBlocks: [3],
        reserve: 7,
        converts: false,
        draws: false,
      });
      const running = [{ ...prefilling(100, 24), floatStart: true, blocks: [3], reserved: 7 }];
      schedule({ ...more, running }, early, plan);
      expect(first()).toMatchObject({
        tokens: 16,
        newBlocks: [0],
        reserve: 0,
        converts: false,
        draws: false,
      });
      schedule({ ...more, running: [{ ...running[0]!, computed: 40 }] }, early, plan);
      expect(first()).toMatchObject({ tokens: 60, newBlocks: [0], reserve: 0, converts: true, draws: true });
    });

    it('a short prompt needs no blocks of the main pool', () => {
      schedule({ ...more, freeBlocks: [0], waiting: [fresh(40)] }, early, plan);
      expect(first()).toMatchObject({ tokens: 40, newBlocks: [3], reserve: 0, draws: true });
      schedule({ ...more, freeBlocks: [2], waiting: [fresh(41)] }, early, plan);
      expect(plan.admitted).toBe(0);
      schedule({ ...more, freeFloatStart: 2, waiting: [fresh(40)] }, early, plan);
      expect(plan.admitted).toBe(0);
    });

    it('converts when no step under way names the row, to blocks for all it holds and the next token', () => {
      schedule({ ...more, running: [floatStart], retired: 3 }, early, plan);
      expect(plan.count).toBe(0);
      schedule({ ...more, running: [floatStart], retired: 4 }, early, plan);
      expect(first()).toMatchObject({ tokens: 1, newBlocks: [0], reserve: 3, converts: true });
      schedule({ ...more, running: [{ ...floatStart, reserved: 2 }], retired: 4 }, early, plan);
      expect(first()).toMatchObject({ reserve: 1, converts: true });
    });

    it('takes what the row of least progress has of the main pool, never what the one of most has', () => {
      const old = decoding();
      const state = { ...more, freeBlocks: [2], retired: 9 };
      schedule({ ...state, running: [old, floatStart, decoding()] }, early, plan);
      expect(plan.victim).toBe(2);
      const behind = { ...floatStart, computed: 20, blocks: [2] };
      schedule({ ...state, running: [old, floatStart, behind] }, early, plan);
      expect(plan.victim).toBe(0);
      schedule(
        { ...state, running: [{ ...old, computed: 60, length: 61, blocks: [4] }, floatStart, behind] },
        early,
        plan,
      );
      expect(plan.victim).toBe(-1);
      expect(plan.stalled).toBe(1);
      schedule({ ...state, running: [old, floatStart], leavingBlocks: [4] }, early, plan);
      expect(plan.victim).toBe(-1);
    });

    it('takes float-start blocks of the newest float-start row', () => {
      const growing = { ...floatStart, length: 17, computed: 16, blocks: [1] };
      const state = { ...more, freeFloatStart: 0, retired: 9 };
      schedule({ ...state, running: [growing, growing, decoding()] }, early, plan);
      expect(plan.victim).toBe(1);
      schedule({ ...state, running: [growing, growing, decoding()], leavingFloatStart: 1 }, early, plan);
      expect(plan.victim).toBe(-1);
    });
  });

  it('takes the newest row’s blocks when an older one has none left, once', () => {
    const full = { ...decoding(), length: 33, computed: 32, blocks: [2] };
    const state = {
      ...idle,
      running: [full, decoding(), decoding()],
      waiting: [newcomer(5)],
      freeBlocks: [0],
    };
    schedule(state, config, plan);
    expect(plan.victim).toBe(2);
    expect(work()).toEqual([[1, 1]]);
    expect(plan).toMatchObject({ stalled: 1, admitted: 0 });
    // While those blocks are on their way nobody else has to go.
    const giving = { ...decoding(), held: true };
    schedule({ ...state, running: [full, decoding(), giving], leavingBlocks: [2] }, config, plan);
    expect(plan.victim).toBe(-1);
    // The oldest never gives way, nor does anybody while a row is about to end.
    schedule({ ...state, running: [full] }, config, plan);
    expect(plan.victim).toBe(-1);
    schedule({ ...state, running: [full, { ...decoding(), drawsLeft: 0 }] }, config, plan);
    expect(plan.victim).toBe(-1);
  });
});
