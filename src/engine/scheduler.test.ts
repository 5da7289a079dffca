import { describe, expect, it } from 'vitest';
import { type SchedulerConfig, type SchedulerState, StepPlan, schedule } from './scheduler.js';

/**
 * A model of the engine's book-keeping, small enough to walk through every state: requests arrive at any time,
 * every drawn token may be the last one, steps retire late.
 */
interface Row {
  readonly prompt: number;
  readonly draws: number;
  status: 'unborn' | 'waiting' | 'running' | 'leaving' | 'done';
  /** Gives way: back to the head of the queue when no step names it. */
  yielding: boolean;
  length: number;
  computed: number;
  blocks: number;
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
  order: number[];
  queue: number[];
  parity: number;
}

interface Setup extends SchedulerConfig {
  readonly maxRows: number;
  readonly blocks: number;
  readonly depth: number;
}

/** How often a row had to give way in all that was walked through. */
let victims = 0;

/** Walks through every state. A state that leads back to itself would be work for ever without an end. */
function explore(setup: Setup, requests: readonly (readonly [number, number])[]): number {
  const plan = new StepPlan();
  const seen = new Map<string, 'open' | 'closed'>();
  const visit = (world: World): void => {
    const key = JSON.stringify([
      world.rows.map(fingerprint),
      world.flight,
      world.order,
      world.queue,
      world.parity,
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
      for (const after of retirements(world)) visit(after);
    } else {
      const stuck = world.rows.find((row) => row.status === 'waiting' || row.status === 'running');
      if (stuck !== undefined) throw new Error(`stuck: ${JSON.stringify({ setup, requests, world })}`);
    }
    seen.set(key, 'closed');
  };
  visit({
    rows: requests.map(([prompt, draws]) => ({
      prompt,
      draws,
      status: 'unborn',
      yielding: false,
      length: prompt,
      computed: 0,
      blocks: 0,
      drawsLeft: draws,
      coming: 0,
      delivered: 0,
      age: 0,
      stopped: false,
    })),
    flight: [],
    order: [],
    queue: [],
    parity: 0,
  });
  return seen.size;
}

function fingerprint(row: Row): unknown[] {
  const { status, yielding, length, computed, blocks, coming, delivered, age, stopped } = row;
  return [status, yielding, length, computed, blocks, coming, delivered, age, stopped];
}

/** Plans and submits one step, checking everything a plan must keep; false if there is nothing to do. */
function step(world: World, setup: Setup, plan: StepPlan): boolean {
  const running = world.order.map((index) => world.rows[index]!);
  const waiting = world.queue.map((index) => world.rows[index]!);
  const leaving = world.rows.filter((row) => row.status === 'leaving');
  const held = [...running, ...leaving].reduce((sum, row) => sum + row.blocks, 0);
  const state: SchedulerState = {
    step: world.parity,
    running: running.map((row) => ({
      length: row.length,
      computed: row.computed,
      blocks: row.blocks,
      drawsLeft: row.drawsLeft,
      held: row.yielding,
      lastStep: -row.age,
    })),
    waiting: waiting.map((row) => ({ length: row.length })),
    freeSlots: setup.maxRows - running.length - leaving.length,
    freeBlocks: setup.blocks - held,
    leavingBlocks: [...leaving, ...running.filter((row) => row.yielding)].reduce(
      (n, row) => n + row.blocks,
      0,
    ),
  };
  const before = JSON.stringify(state);
  schedule(state, setup, plan);
  if (JSON.stringify(state) !== before) throw new Error('the state was changed');

  const fail = (why: string): never => {
    throw new Error(`${why}: ${JSON.stringify({ setup, state, plan })}`);
  };
  if (plan.admitted > state.freeSlots) fail('too many admitted');
  let tokens = 0;
  let newBlocks = 0;
  const worked = new Set<number>();
  const flight: { row: number; draws: boolean }[] = [];
  const admitted = waiting.slice(0, plan.admitted);
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
    newBlocks += work.newBlocks;
    row.blocks += work.newBlocks;
    row.computed += work.tokens;
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
  if (plan.count > 0 && plan.draws === 0 && tokens !== setup.maxBatchTokens)
    fail('draws nothing, yet has room');
  if (newBlocks > state.freeBlocks) fail('more blocks than there are');
  if (admitted.some((_, i) => !worked.has(running.length + i))) fail('admitted without work');
  const could = (row: Row): boolean => row.computed < row.length && row.drawsLeft > 0 && !row.yielding;
  if (plan.stalled === 0 && tokens < setup.maxBatchTokens) {
    if (running.some((row, i) => !worked.has(i) && could(row) && plan.victim !== i))
      fail('a row idle beside budget');
  }
  if (plan.victim === 0 || plan.victim >= running.length) fail('the oldest gives way');
  const victim = running[plan.victim];
  if (victim !== undefined) {
    if (worked.has(plan.victim) || victim.yielding || plan.admitted > 0)
      fail('a victim at work, or beside newcomers');
    victim.yielding = true;
    victims++;
  }
  if (plan.count === 0) return victim !== undefined && requeue(world);
  for (const [i, row] of running.entries()) {
    if (worked.has(i) || !could(row)) continue;
    if (row.computed === row.blocks * setup.blockTokens) continue; // waits for a block
    row.age++;
    // The bound on starvation: a turn comes after at most two rounds of the rows.
    if (row.age > 2 * setup.maxRows) fail('starved');
  }
  for (const row of admitted) {
    row.status = 'running';
    world.order.push(world.queue.shift()!);
  }
  world.flight.push(flight);
  world.parity ^= 1;
  return true;
}

/** Rows that gave way and that no step names go back to the head of the queue, newest last; false if none do. */
function requeue(world: World): boolean {
  let moved = false;
  for (const index of [...world.order].reverse()) {
    const row = world.rows[index]!;
    if (!row.yielding || named(world, index)) continue;
    Object.assign(row, { status: 'waiting', yielding: false, blocks: 0, computed: 0, age: 0 });
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
function retirements(world: World): World[] {
  const drawn = world.flight[0]!.filter((work) => work.draws).map((work) => work.row);
  const worlds: World[] = [];
  for (let stops = 0; stops < 2 ** drawn.length; stops++) {
    const next = structuredClone(world);
    next.flight.shift();
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
        if (row.coming !== 0) throw new Error('freed while ids are coming');
      }
    }
    requeue(next);
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
                states += explore({ ...setup, prefillReserve: 1, minChunk: 1 }, [a, b, c]);
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

describe('schedule', () => {
  const config: SchedulerConfig = { maxBatchTokens: 64, blockTokens: 16, prefillReserve: 16, minChunk: 8 };
  const decoding = (lastStep = 0) => ({
    length: 21,
    computed: 20,
    blocks: 2,
    drawsLeft: 80,
    held: false,
    lastStep,
  });
  const prefilling = (length: number, computed = 0) => ({
    ...decoding(),
    length,
    computed,
    blocks: Math.ceil(length / 16),
  });
  const idle = { step: 1, running: [], waiting: [], freeSlots: 8, freeBlocks: 1000, leavingBlocks: 0 };
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
    schedule({ ...idle, waiting: [{ length: 500 }] }, config, plan);
    expect(work()).toEqual([[0, 64]]);
    expect(plan).toMatchObject({ admitted: 1, draws: 0 });
  });

  it('admits several prompts in one step, in order, as far as rows go', () => {
    const waiting = Array.from({ length: 5 }, () => ({ length: 10 }));
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
    schedule({ ...idle, running, waiting: [{ length: 40 }] }, config, plan);
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
    const waiting = [{ length: 32 }];
    schedule({ ...idle, running: [decoding(), decoding()], waiting, freeBlocks: 3 }, config, plan);
    expect(plan.admitted).toBe(0);
    schedule({ ...idle, running: [decoding(), decoding()], waiting, freeBlocks: 4 }, config, plan);
    expect(plan.admitted).toBe(1);
    // Nothing runs: the whole pool is its own.
    schedule({ ...idle, waiting, freeBlocks: 2 }, config, plan);
    expect(plan.admitted).toBe(1);
  });

  it('takes the newest row’s blocks when an older one has none left, once', () => {
    const full = { ...decoding(), length: 33, computed: 32, blocks: 2 };
    const state = {
      ...idle,
      running: [full, decoding(), decoding()],
      waiting: [{ length: 5 }],
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
