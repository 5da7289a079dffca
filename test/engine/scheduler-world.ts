import { SAVING_STEPS } from '../../src/engine/scheduling/prefill.js';
import {
  carry,
  type SchedulerConfig,
  type SchedulerState,
  StepPlan,
  schedule,
} from '../../src/engine/scheduling/scheduler.js';
import type { StepCosts } from '../../src/engine/scheduling/step-plan.js';
import { newcomer, UNMEASURED } from './scheduler-views.js';

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
  /** By cache group. */
  blocks: number[];
  /** Of those, given back. */
  front: number[];
  /** Its blocks of group 0 are float-start; what it has of the main pool is `reserved`. */
  floatStart: boolean;
  reserved: number;
  drawsLeft: number;
  /** Ids that steps under way will bring. */
  coming: number;
  delivered: number;
  /** Steps since it was last worked on while it could have been. */
  age: number;
  stopped: boolean;
}

interface Work {
  readonly row: number;
  readonly draws: boolean;
  /** Tokens that the row has stored then. */
  readonly reached: number;
}

interface World {
  readonly rows: Row[];
  /** For each step under way: the rows it works on, and whether it draws for them. */
  readonly flight: (readonly Work[])[];
  /** For each of them: float-start blocks of the rows converted before it, not free again until it retires. */
  readonly converting: number[];
  order: number[];
  queue: number[];
  parity: number;
  credit: number;
  saving: number;
  /** Of the steps that worked on prompts. */
  chunkParity: number;
}

export interface Setup extends SchedulerConfig {
  readonly maxRows: number;
  /** Of each group's pool. */
  readonly blocks: readonly number[];
  readonly floatStartBlocks: number;
  readonly depth: number;
  /** What steps cost, as measured. */
  readonly costs?: StepCosts;
}

/** How often a row had to give way, and was converted, in all that was walked through. */
export const walked = { victims: 0, conversions: 0 };

/** Walks through every state. A state that leads back to itself would be work for ever without an end. */
export function explore(
  setup: Setup,
  requests: readonly (readonly [prompt: number, draws: number, priority?: number])[],
): number {
  const plan = new StepPlan();
  const seen = new Map<string, 'open' | 'closed'>();
  const visit = (world: World): void => {
    const key = keyOf(world);
    const before = seen.get(key);
    if (before === 'open') throw new Error(`no end: ${JSON.stringify({ setup, requests, world })}`);
    if (before === 'closed') return;
    seen.set(key, 'open');
    const unborn = world.rows.findIndex((row) => row.status === 'unborn');
    if (unborn >= 0) {
      const next = copyOf(world);
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
      blocks: setup.groups.map(() => 0),
      front: setup.groups.map(() => 0),
      floatStart: setup.floatStartTokens > 0,
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

/** Field by field: spreads of so many took most of the walk. Works are never changed, so they are shared. */
function copyOf(world: World): World {
  const { parity, credit, saving, chunkParity } = world;
  return {
    rows: world.rows.map(copyOfRow),
    flight: world.flight.slice(),
    converting: world.converting.slice(),
    order: world.order.slice(),
    queue: world.queue.slice(),
    parity,
    credit,
    saving,
    chunkParity,
  };
}

function copyOfRow(row: Row): Row {
  return {
    prompt: row.prompt,
    draws: row.draws,
    priority: row.priority,
    status: row.status,
    yielding: row.yielding,
    length: row.length,
    computed: row.computed,
    blocks: row.blocks.slice(),
    front: row.front.slice(),
    floatStart: row.floatStart,
    reserved: row.reserved,
    drawsLeft: row.drawsLeft,
    coming: row.coming,
    delivered: row.delivered,
    age: row.age,
    stopped: row.stopped,
  };
}

const STATUS = { unborn: 0, waiting: 1, running: 2, leaving: 3, done: 4 };
const codes: number[] = [];

/** All of a world that differs between two of one walk, a character each: as JSON it took most of the walk. */
function keyOf(world: World): string {
  codes.length = 0;
  for (const row of world.rows) {
    codes.push(
      STATUS[row.status],
      (row.yielding ? 1 : 0) + (row.floatStart ? 2 : 0) + (row.stopped ? 4 : 0),
      row.length,
      row.computed,
      row.reserved,
      row.coming,
      row.delivered,
      row.age,
    );
    for (const blocks of row.blocks) codes.push(blocks);
    for (const blocks of row.front) codes.push(blocks);
  }
  for (const works of world.flight) {
    codes.push(works.length);
    for (const { row, draws, reached } of works) codes.push(row, draws ? 1 : 0, reached);
  }
  codes.push(END);
  for (const list of [world.converting, world.order, world.queue]) {
    for (const n of list) codes.push(n);
    codes.push(END);
  }
  codes.push(world.parity, world.saving, world.chunkParity);
  if (codes.some((code) => code !== (code & END))) throw new Error(`no key: ${JSON.stringify(world)}`);
  return String.fromCharCode(...codes) + world.credit.toFixed(6);
}
const END = 0xffff;

const { freeze } = Object;
const SERVED = freeze([0]);

/** Plans and submits one step, checking everything a plan must keep; false if there is nothing to do. */
function step(world: World, setup: Setup, plan: StepPlan): boolean {
  const running = world.order.map((index) => world.rows[index]!);
  const waiting = world.queue.map((index) => world.rows[index]!);
  const leaving = world.rows.filter((row) => row.status === 'leaving');
  const groups = setup.groups.map((_, group) => group);
  const main = (rows: readonly Row[]) =>
    groups.map((group) =>
      rows.reduce(
        (n, row) =>
          n + (row.floatStart && group === 0 ? row.reserved : row.blocks[group]! - row.front[group]!),
        0,
      ),
    );
  const floatStart = (rows: readonly Row[]) =>
    rows.reduce((n, row) => n + (row.floatStart ? row.blocks[0]! : 0), 0);
  /** Of which a row takes blocks as it goes. */
  const growing = groups.filter((group) => !setup.groups[group]!.state);
  const held = [...running, ...leaving];
  const soon = [...leaving, ...running.filter((row) => row.yielding)];
  const converting = world.converting.reduce((sum, blocks) => sum + blocks, 0);
  const zeros = freeze(groups.map(() => 0));
  // Frozen: a scheduler that writes to what it reads throws.
  const state: SchedulerState = freeze({
    step: world.parity,
    now: 0,
    running: freeze(
      running.map((row) =>
        freeze({
          length: row.length,
          computed: row.computed,
          blocks: freeze(row.blocks.slice()),
          front: freeze(row.front.slice()),
          floatStart: row.floatStart,
          reserved: row.reserved,
          drawsLeft: row.drawsLeft,
          held: row.yielding,
          lastStep: named(world, world.rows.indexOf(row)) ? 1 : -row.age,
          priority: row.priority,
          share: 0,
          arrival: 0,
        }),
      ),
    ),
    waiting: freeze(
      waiting.map(({ length, priority }) =>
        freeze({
          ...newcomer(length),
          blocks: zeros,
          front: zeros,
          priority,
          floatStart: setup.floatStartTokens > 0,
        }),
      ),
    ),
    freeSlots: setup.maxRows - running.length - leaving.length,
    freeBlocks: freeze(main(held).map((blocks, group) => setup.blocks[group]! - blocks)),
    leavingBlocks: freeze(main(soon)),
    queuedBlocks: zeros,
    freeFloatStart: setup.floatStartBlocks - floatStart(held) - converting,
    leavingFloatStart: floatStart(soon) + converting,
    queuedFloatStart: 0,
    retired: 0,
    costs: setup.costs ?? UNMEASURED,
    served: SERVED,
    credit: world.credit,
    saving: world.saving,
    chunkSteps: world.chunkParity,
  });
  schedule(state, setup, plan);

  const fail = (why: string): never => {
    throw new Error(`${why}: ${JSON.stringify({ setup, state, plan })}`);
  };
  if (plan.admitted > state.freeSlots) fail('too many admitted');
  let tokens = 0;
  const newMain = groups.map(() => 0);
  let newFloatStart = 0;
  let cut = false;
  let converted = 0;
  const worked = new Set<number>();
  const flight: Work[] = [];
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
    for (const group of groups)
      newMain[group]! +=
        group > 0 ? work.newBlocks[group]! : work.reserve + (row.floatStart ? 0 : work.newBlocks[0]!);
    newFloatStart += row.floatStart ? work.newBlocks[0]! : 0;
    row.reserved += work.reserve;
    if (work.converts) {
      if (!row.floatStart || row.computed !== setup.floatStartTokens) fail('converts at the wrong time');
      if (named(world, world.rows.indexOf(row))) fail('converts under a step');
      if (row.reserved < row.blocks[0]! || work.newBlocks[0]! > 0) fail('converts to blocks it has not');
      converted += row.blocks[0]!;
      row.blocks[0] = row.reserved;
      Object.assign(row, { floatStart: false, reserved: 0 });
      walked.conversions++;
    } else if (!row.floatStart && work.reserve > 0) fail('sets aside what it has no use for');
    for (const group of groups) row.blocks[group]! += work.newBlocks[group]!;
    row.computed += work.tokens;
    if (row.floatStart && row.computed > setup.floatStartTokens)
      fail('writes floats where it should be converted');
    cut ||= row.floatStart && row.computed === setup.floatStartTokens;
    // A row with a window may be at the end of its blocks.
    cut ||= groups.some(
      (group) =>
        setup.groups[group]!.window > 0 &&
        row.computed + setup.blockTokens > row.blocks[group]! * setup.blockTokens,
    );
    row.age = 0;
    if (growing.some((group) => row.blocks[group]! * setup.blockTokens < row.computed))
      fail('writes where it has no block');
    if (groups.some((group) => setup.groups[group]!.state && row.blocks[group] !== 1))
      fail('has no slot of state, or several');
    if (work.draws) {
      row.length++;
      row.drawsLeft--;
      row.coming++;
    }
    flight.push({ row: world.rows.indexOf(row), draws: work.draws, reached: row.computed });
    if (groups.some((group) => row.blocks[group]! - row.front[group]! > setup.groups[group]!.rowBlocks + 1))
      fail('holds more than a row may');
  }
  if (tokens !== plan.tokens || tokens > setup.maxBatchTokens) fail('over budget');
  const unlimited = setup.targetItl === 0;
  if (unlimited && plan.count > 0 && plan.draws === 0 && tokens !== setup.maxBatchTokens && !cut)
    fail('draws nothing, yet has room');
  if (
    groups.some((group) => newMain[group]! > state.freeBlocks[group]!) ||
    newFloatStart > state.freeFloatStart
  )
    fail('more blocks than there are');
  if (admitted.some((_, i) => !worked.has(running.length + i))) fail('admitted without work');
  const waits = (row: Row): boolean =>
    row.floatStart && row.computed === setup.floatStartTokens && named(world, world.rows.indexOf(row));
  const could = (row: Row): boolean =>
    row.computed < row.length && row.drawsLeft > 0 && !row.yielding && !waits(row);
  if (plan.stalled === 0 && tokens < setup.maxBatchTokens) {
    const atLimit = (row: Row): boolean =>
      groups.some(
        (group) =>
          setup.groups[group]!.window > 0 &&
          row.computed === row.blocks[group]! * setup.blockTokens &&
          (row.blocks[group]! - row.front[group]! >= setup.groups[group]!.rowBlocks ||
            newMain[group]! + plan.anchorBlocks[group]! >= state.freeBlocks[group]!),
      );
    const idle = (row: Row, i: number): boolean =>
      !worked.has(i) && could(row) && plan.victim !== i && !atLimit(row);
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
    walked.victims++;
  }
  if (plan.count === 0) return victim !== undefined && requeue(world, setup.floatStartTokens);
  for (const [i, row] of running.entries()) {
    if (worked.has(i) || !could(row)) continue;
    // Waits for a block.
    if (growing.some((group) => row.computed === row.blocks[group]! * setup.blockTokens)) continue;
    if (row.floatStart && row.computed === setup.floatStartTokens) continue; // waits for those it is converted to
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

/** Blocks of a sliding group that no token from `computed` on sees. */
function behindWindow(computed: number, window: number, blockTokens: number): number {
  return Math.floor(Math.max(0, computed - window + 1) / blockTokens);
}

/** Rows that gave way and that no step names go back to the head of the queue, newest last; false if none do. */
function requeue(world: World, floatStartTokens: number): boolean {
  let moved = false;
  for (const index of [...world.order].reverse()) {
    const row = world.rows[index]!;
    if (!row.yielding || named(world, index)) continue;
    const floatStart = floatStartTokens > 0;
    Object.assign(row, {
      status: 'waiting',
      yielding: false,
      blocks: row.blocks.map(() => 0),
      front: row.front.map(() => 0),
      reserved: 0,
      floatStart,
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
  const reached = world.flight[0]!;
  const worlds: World[] = [];
  for (let stops = 0; stops < 2 ** drawn.length; stops++) {
    const next = copyOf(world);
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
    setup.groups.forEach(({ window }, group) => {
      if (window === 0) return;
      for (const work of reached) {
        const row = next.rows[work.row]!;
        row.front[group] = Math.max(row.front[group]!, behindWindow(work.reached, window, setup.blockTokens));
      }
    });
    for (const [index, row] of next.rows.entries()) {
      if (row.status === 'running' && row.stopped) {
        row.status = 'leaving';
        row.yielding = false;
        next.order = next.order.filter((at) => at !== index);
      }
      if (row.status === 'leaving' && !named(next, index)) {
        row.status = 'done';
        row.blocks.fill(0);
        row.front.fill(0);
        row.reserved = 0;
        if (row.coming !== 0) throw new Error('freed while ids are coming');
      }
    }
    requeue(next, setup.floatStartTokens);
    worlds.push(next);
  }
  return worlds;
}
