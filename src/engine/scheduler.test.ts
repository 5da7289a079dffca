import { describe, expect, it } from 'vitest';
import { carry, type SchedulerConfig, type SchedulerState, StepPlan, schedule } from './scheduler.js';
import { SAVING_STEPS } from './scheduler-prefill.js';
import type { StepCosts } from './step-plan.js';

/**
 * A model of the engine's book-keeping, small enough to walk through every state: requests arrive at any time,
 * every drawn token may be the last one, steps retire late.
 */
interface Row {
  readonly prompt: number;
  readonly draws: number;
  readonly priority: number;
  status: 'unborn' | 'waiting' | 'running' | 'leaving' | 'done';
  /** Gives way: back to the head of the queue when no step names it. */
  yielding: boolean;
  length: number;
  computed: number;
  blocks: number;
  /** Its blocks are young; what it has of the main pool is `reserved`. */
  young: boolean;
  reserved: number;
  drawsLeft: number;
  /** Ids that steps under way will bring. */
  coming: number;
  delivered: number;
  /** Steps since it was last worked on while it could have been. */
  age: number;
  stopped: boolean;
}

interface World {
  readonly rows: Row[];
  /** For each step under way: the rows it works on, and whether it draws for them. */
  readonly flight: { row: number; draws: boolean }[][];
  /** For each of them: young blocks of the rows converted before it, not free again until it retires. */
  readonly converting: number[];
  order: number[];
  queue: number[];
  parity: number;
  credit: number;
  saving: number;
  /** Of the steps that worked on prompts. */
  chunkParity: number;
}

interface Setup extends SchedulerConfig {
  readonly maxRows: number;
  readonly blocks: number;
  readonly youngBlocks: number;
  readonly depth: number;
  /** What steps cost, as measured. */
  readonly costs?: StepCosts;
}

const UNMEASURED = { fixed: 0, row: 0, chunk: 0, token: 0, depth: 0 };

/** Steps may take any time. */
const LATENCY = { ageingMs: 2000, chunkTokens: 1, targetItl: 0 };
const NOTHING = { served: [0, 0], credit: 0, saving: 0 };

const newcomer = (length: number) => ({
  length,
  computed: 0,
  blocks: 0,
  young: false,
  held: false,
  priority: 0,
  share: 0,
  arrival: 0,
  deadline: Number.POSITIVE_INFINITY,
});

/** How often a row had to give way, and was converted, in all that was walked through. */
let victims = 0;
let conversions = 0;

/** Walks through every state. A state that leads back to itself would be work for ever without an end. */
function explore(
  setup: Setup,
  requests: readonly (readonly [prompt: number, draws: number, priority?: number])[],
): number {
  const plan = new StepPlan();
  const seen = new Map<string, 'open' | 'closed'>();
  const visit = (world: World): void => {
    const key = JSON.stringify([
      world.rows.map(fingerprint),
      world.flight,
      world.converting,
      world.order,
      world.queue,
      world.parity,
      world.credit.toFixed(6),
      world.saving,
      world.chunkParity,
    ]);
    const before = seen.get(key);
    if (before === 'open') throw new Error(`no end: ${JSON.stringify({ setup, requests, world })}`);
    if (before === 'closed') return;
    seen.set(key, 'open');
    const unborn = world.rows.findIndex((row) => row.status === 'unborn');
    if (unborn >= 0) {
      const next = structuredClone(world);
      next.rows[unborn]!.status = 'waiting';
      next.queue.push(unborn);
      visit(next);
    }
    while (world.flight.length < setup.depth && step(world, setup, plan));
    if (world.flight.length > 0) {
      for (const after of retirements(world, setup)) visit(after);
    } else {
      const stuck = world.rows.find((row) => row.status === 'waiting' || row.status === 'running');
      if (stuck !== undefined) throw new Error(`stuck: ${JSON.stringify({ setup, requests, world })}`);
    }
    seen.set(key, 'closed');
  };
  visit({
    rows: requests.map(([prompt, draws, priority = 0]) => ({
      prompt,
      draws,
      priority,
      status: 'unborn',
      yielding: false,
      length: prompt,
      computed: 0,
      blocks: 0,
      young: setup.youngTokens > 0,
      reserved: 0,
      drawsLeft: draws,
      coming: 0,
      delivered: 0,
      age: 0,
      stopped: false,
    })),
    flight: [],
    converting: [],
    order: [],
    queue: [],
    parity: 0,
    credit: 0,
    saving: 0,
    chunkParity: 0,
  });
  return seen.size;
}

function fingerprint(row: Row): unknown[] {
  const { status, yielding, length, computed, blocks, young, reserved, coming, delivered, age, stopped } =
    row;
  return [status, yielding, length, computed, blocks, young, reserved, coming, delivered, age, stopped];
}

/** Plans and submits one step, checking everything a plan must keep; false if there is nothing to do. */
function step(world: World, setup: Setup, plan: StepPlan): boolean {
  const running = world.order.map((index) => world.rows[index]!);
  const waiting = world.queue.map((index) => world.rows[index]!);
  const leaving = world.rows.filter((row) => row.status === 'leaving');
  const main = (rows: readonly Row[]) =>
    rows.reduce((n, row) => n + (row.young ? row.reserved : row.blocks), 0);
  const young = (rows: readonly Row[]) => rows.reduce((n, row) => n + (row.young ? row.blocks : 0), 0);
  const held = [...running, ...leaving];
  const soon = [...leaving, ...running.filter((row) => row.yielding)];
  const converting = world.converting.reduce((sum, blocks) => sum + blocks, 0);
  const state: SchedulerState = {
    step: world.parity,
    now: 0,
    running: running.map((row) => ({
      length: row.length,
      computed: row.computed,
      blocks: row.blocks,
      young: row.young,
      reserved: row.reserved,
      drawsLeft: row.drawsLeft,
      held: row.yielding,
      lastStep: named(world, world.rows.indexOf(row)) ? 1 : -row.age,
      priority: row.priority,
      share: 0,
      arrival: 0,
    })),
    waiting: waiting.map(({ length, priority }) => ({
      ...newcomer(length),
      priority,
      young: setup.youngTokens > 0,
    })),
    freeSlots: setup.maxRows - running.length - leaving.length,
    freeBlocks: setup.blocks - main(held),
    leavingBlocks: main(soon),
    queuedBlocks: 0,
    freeYoung: setup.youngBlocks - young(held) - converting,
    leavingYoung: young(soon) + converting,
    queuedYoung: 0,
    retired: 0,
    costs: setup.costs ?? UNMEASURED,
    served: [0],
    credit: world.credit,
    saving: world.saving,
    chunkSteps: world.chunkParity,
  };
  const before = JSON.stringify(state);
  schedule(state, setup, plan);
  if (JSON.stringify(state) !== before) throw new Error('the state was changed');

  const fail = (why: string): never => {
    throw new Error(`${why}: ${JSON.stringify({ setup, state, plan })}`);
  };
  if (plan.admitted > state.freeSlots) fail('too many admitted');
  let tokens = 0;
  let newMain = 0;
  let newYoung = 0;
  let cut = false;
  let converted = 0;
  const worked = new Set<number>();
  const flight: { row: number; draws: boolean }[] = [];
  // By priority, then in order.
  const turns = [...waiting].sort((a, b) => b.priority - a.priority);
  const admitted = plan.admits.slice(0, plan.admitted).map((at) => waiting[at]!);
  if (admitted.some((row, i) => row !== turns[i])) fail('admitted out of turn');
  const all = [...running, ...admitted];
  for (const work of plan.work.slice(0, plan.count)) {
    const row = all[work.index] ?? fail('works on a sequence that is not admitted');
    const pending = row.length - row.computed;
    if (worked.has(work.index)) fail('a row twice');
    if (work.tokens < 1 || work.tokens > pending || row.drawsLeft < 1 || row.yielding)
      fail('work that is not there');
    if (work.draws !== (work.tokens === pending)) fail('draws at the wrong time');
    worked.add(work.index);
    tokens += work.tokens;
    newMain += work.reserve + (row.young ? 0 : work.newBlocks);
    newYoung += row.young ? work.newBlocks : 0;
    row.reserved += work.reserve;
    if (work.converts) {
      if (!row.young || row.computed !== setup.youngTokens) fail('converts at the wrong time');
      if (named(world, world.rows.indexOf(row))) fail('converts under a step');
      if (row.reserved < row.blocks || work.newBlocks > 0) fail('converts to blocks it has not');
      converted += row.blocks;
      Object.assign(row, { young: false, blocks: row.reserved, reserved: 0 });
      conversions++;
    } else if (!row.young && work.reserve > 0) fail('sets aside what it has no use for');
    row.blocks += work.newBlocks;
    row.computed += work.tokens;
    if (row.young && row.computed > setup.youngTokens) fail('writes floats where it should be converted');
    cut ||= row.young && row.computed === setup.youngTokens;
    row.age = 0;
    if (row.blocks * setup.blockTokens < row.computed) fail('writes where it has no block');
    if (work.draws) {
      row.length++;
      row.drawsLeft--;
      row.coming++;
    }
    flight.push({ row: world.rows.indexOf(row), draws: work.draws });
  }
  if (tokens !== plan.tokens || tokens > setup.maxBatchTokens) fail('over budget');
  const unlimited = setup.targetItl === 0;
  if (unlimited && plan.count > 0 && plan.draws === 0 && tokens !== setup.maxBatchTokens && !cut)
    fail('draws nothing, yet has room');
  if (newMain > state.freeBlocks || newYoung > state.freeYoung) fail('more blocks than there are');
  if (admitted.some((_, i) => !worked.has(running.length + i))) fail('admitted without work');
  const waits = (row: Row): boolean =>
    row.young && row.computed === setup.youngTokens && named(world, world.rows.indexOf(row));
  const could = (row: Row): boolean =>
    row.computed < row.length && row.drawsLeft > 0 && !row.yielding && !waits(row);
  if (plan.stalled === 0 && tokens < setup.maxBatchTokens) {
    const idle = (row: Row, i: number): boolean => !worked.has(i) && could(row) && plan.victim !== i;
    if (running.some((row, i) => idle(row, i) && (unlimited || row.length - row.computed === 1)))
      fail('a row idle beside budget');
  }
  if (plan.victim >= running.length) fail('nobody gives way');
  const victim = running[plan.victim];
  const least = state.running[plan.victim] ?? { computed: 0, priority: 0 };
  const outranked = state.running.some((row, i) => {
    const more = row.priority - least.priority || row.computed - least.computed;
    return row.drawsLeft > 0 && (more > 0 || (more === 0 && i < plan.victim));
  });
  if (victim !== undefined && !outranked) fail('the row with most progress gives way');
  if (victim !== undefined) {
    if (worked.has(plan.victim) || victim.yielding || plan.admitted > 0)
      fail('a victim at work, or beside newcomers');
    victim.yielding = true;
    victims++;
  }
  if (plan.count === 0) return victim !== undefined && requeue(world, setup.youngTokens);
  for (const [i, row] of running.entries()) {
    if (worked.has(i) || !could(row)) continue;
    if (row.computed === row.blocks * setup.blockTokens) continue; // waits for a block
    if (row.young && row.computed === setup.youngTokens) continue; // waits for those it is converted to
    row.age++;
    // The bound on starvation: a turn comes after at most two rounds of the rows.
    if (row.age > (unlimited ? 2 : SAVING_STEPS) * setup.maxRows) fail('starved');
  }
  for (const row of admitted) {
    const index = world.rows.indexOf(row);
    row.status = 'running';
    world.order.push(index);
    world.queue.splice(world.queue.indexOf(index), 1);
  }
  world.flight.push(flight);
  world.converting.push(converted);
  world.parity ^= 1;
  const carried = { credit: 0, saving: 0, chunkSteps: world.chunkParity };
  carry(carried, plan, 0);
  Object.assign(world, {
    credit: carried.credit,
    saving: carried.saving,
    chunkParity: carried.chunkSteps & 1,
  });
  return true;
}

/** Rows that gave way and that no step names go back to the head of the queue, newest last; false if none do. */
function requeue(world: World, youngTokens: number): boolean {
  let moved = false;
  for (const index of [...world.order].reverse()) {
    const row = world.rows[index]!;
    if (!row.yielding || named(world, index)) continue;
    const young = youngTokens > 0;
    Object.assign(row, {
      status: 'waiting',
      yielding: false,
      blocks: 0,
      reserved: 0,
      young,
      computed: 0,
      age: 0,
    });
    world.order = world.order.filter((at) => at !== index);
    world.queue.unshift(index);
    moved = true;
  }
  return moved;
}

function named(world: World, index: number): boolean {
  return world.flight.some((flight) => flight.some((work) => work.row === index));
}

/** The oldest step retires: every set of its rows may have drawn a stop. */
function retirements(world: World, setup: Setup): World[] {
  const drawn = world.flight[0]!.filter((work) => work.draws).map((work) => work.row);
  const worlds: World[] = [];
  for (let stops = 0; stops < 2 ** drawn.length; stops++) {
    const next = structuredClone(world);
    next.flight.shift();
    next.converting.shift();
    drawn.forEach((index, bit) => {
      const row = next.rows[index]!;
      row.coming--;
      if (row.stopped) return; // the extra token of a row that stopped
      row.delivered++;
      if (((stops >> bit) & 1) === 1) row.stopped = true;
      if (row.delivered === row.draws) row.stopped = true;
    });
    for (const [index, row] of next.rows.entries()) {
      if (row.status === 'running' && row.stopped) {
        row.status = 'leaving';
        row.yielding = false;
        next.order = next.order.filter((at) => at !== index);
      }
      if (row.status === 'leaving' && !named(next, index)) {
        row.status = 'done';
        row.blocks = 0;
        row.reserved = 0;
        if (row.coming !== 0) throw new Error('freed while ids are coming');
      }
    }
    requeue(next, setup.youngTokens);
    worlds.push(next);
  }
  return worlds;
}

describe('schedule, over its small state space', () => {
  const shapes = [
    [1, 5],
    [2, 2],
    [5, 1],
    [3, 4],
  ] as const;
  for (const maxBatchTokens of [1, 2, 3, 6]) {
    for (const maxRows of [1, 2, 3]) {
      it(`budget ${maxBatchTokens}, ${maxRows} rows: keeps its limits and every request ends`, () => {
        let states = 0;
        victims = 0;
        for (const [blocks, depth] of [
          [3, 2],
          [4, 2],
        ] as const) {
          for (const a of shapes) {
            for (const b of shapes) {
              for (const c of shapes) {
                const setup = { maxBatchTokens, maxRows, blocks, depth, blockTokens: 2 };
                const none = { youngTokens: 0, youngBlocks: 0 };
                states += explore({ ...setup, ...none, ...LATENCY, prefillReserve: 1, minChunk: 1 }, [
                  a,
                  b,
                  c,
                ]);
              }
            }
          }
        }
        expect(states).toBeGreaterThan(1000);
        if (maxRows > 1) expect(victims).toBeGreaterThan(100);
      });
    }
  }
});

describe('schedule with priorities and a target, over its small state space', () => {
  const shapes = [
    [1, 5, 1],
    [2, 2, 0],
    [7, 1, 0],
    [6, 3, 2],
  ] as const;
  const costs = { fixed: 3, row: 0, chunk: 1, token: 1, depth: 0 };
  for (const targetItl of [1, 4, 6]) {
    it(`target ${targetItl}: keeps its limits, and every request ends`, () => {
      let states = 0;
      victims = 0;
      for (const maxRows of [2, 3]) {
        for (const a of shapes) {
          for (const b of shapes) {
            for (const c of maxRows === 3 ? shapes.slice(2) : shapes) {
              const setup = { maxBatchTokens: 6, maxRows, blocks: 5, depth: 2, blockTokens: 2, costs };
              const rest = { youngTokens: 0, youngBlocks: 0, prefillReserve: 1, minChunk: 1, chunkTokens: 3 };
              states += explore({ ...setup, ...rest, ageingMs: 2000, targetItl }, [a, b, c]);
            }
          }
        }
      }
      expect(states).toBeGreaterThan(1000);
      expect(victims).toBeGreaterThan(100);
    });
  }
});

describe('schedule with young blocks, over its small state space', () => {
  const shapes = [
    [1, 6],
    [2, 2],
    [6, 1],
    [3, 4],
  ] as const;
  // Where the conversion falls on the edge of a block and where it does not; more young blocks than needed, and few.
  for (const [youngTokens, youngBlocks, blocks] of [
    [1, 6, 3],
    [2, 6, 3],
    [3, 6, 3],
    [3, 2, 3],
    [4, 4, 4],
    [5, 3, 3],
  ] as const) {
    for (const maxBatchTokens of [1, 3, 6]) {
      it(`${youngTokens} young tokens, budget ${maxBatchTokens}: converts at that length, and every request ends`, () => {
        let states = 0;
        victims = 0;
        conversions = 0;
        for (const maxRows of [1, 2, 3]) {
          for (const a of shapes) {
            for (const b of shapes) {
              for (const c of maxRows === 3 ? shapes : shapes.slice(0, 1)) {
                const setup = { maxBatchTokens, maxRows, blocks, youngBlocks, youngTokens, depth: 2 };
                states += explore({ ...setup, blockTokens: 2, ...LATENCY, prefillReserve: 1, minChunk: 1 }, [
                  a,
                  b,
                  c,
                ]);
              }
            }
          }
        }
        expect(states).toBeGreaterThan(1000);
        expect(conversions).toBeGreaterThan(1000);
        // From three on, a row that has been converted holds so much of the pool that no second one can be.
        if (youngTokens < 3) expect(victims).toBeGreaterThan(0);
      });
    }
  }
});

describe('schedule', () => {
  const config: SchedulerConfig = {
    maxBatchTokens: 64,
    blockTokens: 16,
    prefillReserve: 16,
    minChunk: 8,
    youngTokens: 0,
    ...LATENCY,
  };
  const decoding = (lastStep = 0) => ({
    length: 21,
    computed: 20,
    blocks: 2,
    young: false,
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
    blocks: Math.ceil(length / 16),
  });
  const idle = {
    step: 1,
    now: 0,
    running: [],
    waiting: [],
    freeSlots: 8,
    freeBlocks: 1000,
    leavingBlocks: 0,
    queuedBlocks: 0,
    freeYoung: 0,
    leavingYoung: 0,
    queuedYoung: 0,
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

  it('leaves held rows out', () => {
    schedule({ ...idle, running: [decoding(), { ...decoding(), held: true }] }, config, plan);
    expect(work()).toEqual([[0, 1]]);
  });

  it('admits only what leaves the running rows a block each', () => {
    const waiting = [newcomer(32)];
    schedule({ ...idle, running: [decoding(), decoding()], waiting, freeBlocks: 3 }, config, plan);
    expect(plan.admitted).toBe(0);
    schedule({ ...idle, running: [decoding(), decoding()], waiting, freeBlocks: 4 }, config, plan);
    expect(plan.admitted).toBe(1);
    // Nothing runs: the whole pool is its own.
    schedule({ ...idle, waiting, freeBlocks: 2 }, config, plan);
    expect(plan.admitted).toBe(1);
  });

  describe('with young tokens', () => {
    const early = { ...config, youngTokens: 40 };
    const fresh = (length: number) => ({ ...newcomer(length), young: true });
    const young = { ...decoding(), young: true, length: 41, computed: 40, blocks: 3, lastStep: 4 };
    const more = { ...idle, freeYoung: 10 };
    const first = () => plan.work[0]!;

    it('cuts chunks where a sequence is converted', () => {
      schedule({ ...more, waiting: [fresh(100)] }, early, plan);
      // Young blocks for 40 tokens, and those of the main pool for all of them.
      expect(first()).toMatchObject({ tokens: 40, newBlocks: 3, reserve: 7, converts: false, draws: false });
      const running = [{ ...prefilling(100, 24), young: true, blocks: 3, reserved: 7 }];
      schedule({ ...more, running }, early, plan);
      expect(first()).toMatchObject({ tokens: 16, newBlocks: 0, reserve: 0, converts: false, draws: false });
      schedule({ ...more, running: [{ ...running[0]!, computed: 40 }] }, early, plan);
      expect(first()).toMatchObject({ tokens: 60, newBlocks: 0, reserve: 0, converts: true, draws: true });
    });

    it('a short prompt needs no blocks of the main pool', () => {
      schedule({ ...more, freeBlocks: 0, waiting: [fresh(40)] }, early, plan);
      expect(first()).toMatchObject({ tokens: 40, newBlocks: 3, reserve: 0, draws: true });
      schedule({ ...more, freeBlocks: 2, waiting: [fresh(41)] }, early, plan);
      expect(plan.admitted).toBe(0);
      schedule({ ...more, freeYoung: 2, waiting: [fresh(40)] }, early, plan);
      expect(plan.admitted).toBe(0);
    });

    it('converts when no step under way names the row, to blocks for all it holds and the next token', () => {
      schedule({ ...more, running: [young], retired: 3 }, early, plan);
      expect(plan.count).toBe(0);
      schedule({ ...more, running: [young], retired: 4 }, early, plan);
      expect(first()).toMatchObject({ tokens: 1, newBlocks: 0, reserve: 3, converts: true });
      schedule({ ...more, running: [{ ...young, reserved: 2 }], retired: 4 }, early, plan);
      expect(first()).toMatchObject({ reserve: 1, converts: true });
    });

    it('takes what the row of least progress has of the main pool, never what the one of most has', () => {
      const old = decoding();
      const state = { ...more, freeBlocks: 2, retired: 9 };
      schedule({ ...state, running: [old, young, decoding()] }, early, plan);
      expect(plan.victim).toBe(2);
      const behind = { ...young, computed: 20, blocks: 2 };
      schedule({ ...state, running: [old, young, behind] }, early, plan);
      expect(plan.victim).toBe(0);
      schedule(
        { ...state, running: [{ ...old, computed: 60, length: 61, blocks: 4 }, young, behind] },
        early,
        plan,
      );
      expect(plan.victim).toBe(-1);
      expect(plan.stalled).toBe(1);
      schedule({ ...state, running: [old, young], leavingBlocks: 4 }, early, plan);
      expect(plan.victim).toBe(-1);
    });

    it('takes young blocks of the newest young row', () => {
      const growing = { ...young, length: 17, computed: 16, blocks: 1 };
      const state = { ...more, freeYoung: 0, retired: 9 };
      schedule({ ...state, running: [growing, growing, decoding()] }, early, plan);
      expect(plan.victim).toBe(1);
      schedule({ ...state, running: [growing, growing, decoding()], leavingYoung: 1 }, early, plan);
      expect(plan.victim).toBe(-1);
    });
  });

  it('takes the newest row’s blocks when an older one has none left, once', () => {
    const full = { ...decoding(), length: 33, computed: 32, blocks: 2 };
    const state = {
      ...idle,
      running: [full, decoding(), decoding()],
      waiting: [newcomer(5)],
      freeBlocks: 0,
    };
    schedule(state, config, plan);
    expect(plan.victim).toBe(2);
    expect(work()).toEqual([[1, 1]]);
    expect(plan).toMatchObject({ stalled: 1, admitted: 0 });
    // While those blocks are on their way nobody else has to go.
    const giving = { ...decoding(), held: true };
    schedule({ ...state, running: [full, decoding(), giving], leavingBlocks: 2 }, config, plan);
    expect(plan.victim).toBe(-1);
    // The oldest never gives way, nor does anybody while a row is about to end.
    schedule({ ...state, running: [full] }, config, plan);
    expect(plan.victim).toBe(-1);
    schedule({ ...state, running: [full, { ...decoding(), drawsLeft: 0 }] }, config, plan);
    expect(plan.victim).toBe(-1);
  });
});
