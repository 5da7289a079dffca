/**
 * The scheduler: who does how much in the next step. A pure function over plain data: it reads the state, writes
 * the plan it was handed and nothing else.
 *
 * One budget of tokens a step is shared by decoding rows and prompt chunks.
 * - Decoding rows come first, each with one token. While a prompt waits, a part of the budget (`prefillReserve`)
 *   is not theirs, so prefill always moves; with more rows than budget they take turns, longest idle first, so
 *   decoding always moves too. A budget of 1 alternates.
 * - Prompts come in order of arrival. Each takes at most half of what is left (but not less than `minChunk`), so
 *   that a long prompt leaves room for short ones behind it; what then remains goes to the oldest.
 * - A sequence is admitted when a row is free and there are blocks for all its tokens and one more for every
 *   running row. It then grows by one block at a time.
 * - A row that finds no block takes those of the newest row: that one goes back to the head of the queue and is
 *   computed again later (its tokens are known, so nothing is drawn twice). The oldest row never gives way and the
 *   pool holds at least one sequence of full length, so somebody always comes to an end.
 */

/** What the scheduler sees of an admitted sequence. */
export interface RunningView {
  /** Tokens of the sequence, prompt and drawn; a token drawn by a step under way counts. */
  readonly length: number;
  /** Tokens whose K and V are stored, or will be by the steps under way. */
  readonly computed: number;
  /** Blocks in its table. */
  readonly blocks: number;
  /** Tokens that may still be drawn. 0: it waits for its last id. */
  readonly drawsLeft: number;
  /** Sits this step out: its next mask or token depends on an id that has not been read, or it is giving way. */
  readonly held: boolean;
  /** Number of the last step that worked on it. */
  readonly lastStep: number;
}

/** What the scheduler sees of a sequence that waits for admission. */
export interface WaitingView {
  readonly length: number;
}

export interface SchedulerState {
  /** Number of the step that is being planned. */
  readonly step: number;
  /** In order of admission. */
  readonly running: readonly RunningView[];
  /** In the order in which they shall be admitted. */
  readonly waiting: readonly WaitingView[];
  readonly freeSlots: number;
  readonly freeBlocks: number;
  /** Blocks of sequences that have ended or give way and wait for their last step to retire: soon free. */
  readonly leavingBlocks: number;
}

export interface SchedulerConfig {
  readonly maxBatchTokens: number;
  readonly blockTokens: number;
  /** Tokens of a step that decoding rows leave to waiting prompts. */
  readonly prefillReserve: number;
  /** Smallest chunk that a prompt is cut into, as far as the budget goes. */
  readonly minChunk: number;
}

/** Work for one sequence. Refilled, not made anew. */
export interface PlannedWork {
  /** Index into `running`; from `running.length` on, into `waiting`. */
  index: number;
  tokens: number;
  /** Blocks to append to its table before the step. */
  newBlocks: number;
  /** The step reaches the end of its tokens: one more is drawn. */
  draws: boolean;
}

/** A plan, reused from step to step. */
export class StepPlan {
  readonly work: PlannedWork[] = [];
  /** Entries of `work` that count. */
  count = 0;
  /** So many of the first waiting sequences are admitted. */
  admitted = 0;
  tokens = 0;
  draws = 0;
  /** Rows that had work and got no block. */
  stalled = 0;
  /** Index of the running row that has to give way, −1 for none. It has no work in this plan. */
  victim = -1;

  clear(): void {
    this.victim = -1;
    this.count = 0;
    this.admitted = 0;
    this.tokens = 0;
    this.draws = 0;
    this.stalled = 0;
  }

  add(index: number, tokens: number, newBlocks: number, pending: number): void {
    let work = this.work[this.count];
    if (work === undefined) {
      work = { index: 0, tokens: 0, newBlocks: 0, draws: false };
      this.work.push(work);
    }
    this.count++;
    work.index = index;
    work.tokens = tokens;
    work.newBlocks = newBlocks;
    work.draws = tokens === pending;
    this.tokens += tokens;
    if (work.draws) this.draws++;
  }
}

/** Plans one step. `plan.count` is 0 if nothing can run. */
export function schedule(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): void {
  plan.clear();
  const budget = config.maxBatchTokens;
  plan.victim = chooseVictim(state, config);
  const reserve = prefillReserve(state, config, plan.victim);
  const rows = decodeRows(state, budget - reserve, plan.victim);
  const blocks = { free: state.freeBlocks };
  const served = planDecode(state, config, plan, blocks, rows, 0, budget - reserve);
  planPrefill(state, config, plan, blocks, budget);
  // What no prompt took goes to the decoding rows that were put off.
  planDecode(state, config, plan, blocks, rows, served, budget);
}

function ready(row: RunningView): boolean {
  return !row.held && row.drawsLeft > 0 && row.computed < row.length;
}

/**
 * If the rows need more blocks than are free, and none are about to be: the newest row. Never the oldest: alone it
 * always has enough.
 */
function chooseVictim(state: SchedulerState, config: SchedulerConfig): number {
  if (state.leavingBlocks > 0) return -1;
  let needed = 0;
  for (const row of state.running) {
    // It ends with the steps under way, and its blocks come back.
    if (row.drawsLeft === 0) return -1;
    if (ready(row)) needed += newBlocks(row, config);
  }
  if (needed <= state.freeBlocks) return -1;
  for (let index = state.running.length - 1; index > 0; index--)
    if (!state.running[index]!.held) return index;
  return -1;
}

/** Blocks that a row lacks for its next token. */
function newBlocks(row: RunningView, config: SchedulerConfig): number {
  return Math.max(0, blocksFor(row.computed + 1, config.blockTokens) - row.blocks);
}

function prefillReserve(state: SchedulerState, config: SchedulerConfig, victim: number): number {
  const budget = config.maxBatchTokens;
  const prefilling = state.running.some(
    (row, index) => index !== victim && ready(row) && row.length - row.computed > 1,
  );
  const next = state.waiting[0];
  const admissible =
    next !== undefined &&
    victim < 0 &&
    state.freeSlots > 0 &&
    state.freeBlocks >= admissionBlocks(next, config, state.running.length);
  if (!prefilling && !admissible) return 0;
  if (budget === 1) return state.step & 1;
  return Math.min(Math.max(1, config.prefillReserve), budget - 1);
}

/** Blocks that must be free for a sequence to come in: its own, and one for each row that may grow. */
function admissionBlocks(next: WaitingView, config: SchedulerConfig, rows: number): number {
  return blocksFor(next.length, config.blockTokens) + rows;
}

/** Indices of the rows with one token to go; those that waited longest first, if not all fit. */
function decodeRows(state: SchedulerState, budget: number, victim: number): number[] {
  const rows: number[] = [];
  state.running.forEach((row, index) => {
    if (index !== victim && ready(row) && row.length - row.computed === 1) rows.push(index);
  });
  if (rows.length > budget) rows.sort((a, b) => state.running[a]!.lastStep - state.running[b]!.lastStep);
  return rows;
}

/** Serves rows from `from` on while the step holds less than `budget` tokens; answers how far it came. */
function planDecode(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  blocks: { free: number },
  rows: readonly number[],
  from: number,
  budget: number,
): number {
  let at = from;
  for (; at < rows.length && plan.tokens < budget; at++) {
    const index = rows[at]!;
    const row = state.running[index]!;
    const more = newBlocks(row, config);
    if (more > blocks.free) {
      plan.stalled++;
      continue;
    }
    blocks.free -= more;
    plan.add(index, 1, more, 1);
  }
  return at;
}

function planPrefill(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  blocks: { free: number },
  budget: number,
): void {
  const first = plan.count;
  const take = (index: number, pending: number, blocksTaken: number): void => {
    const left = budget - plan.tokens;
    const half = Math.max(config.minChunk, Math.ceil(left / 2));
    plan.add(index, Math.min(pending, left, half), blocksTaken, pending);
  };
  state.running.forEach((row, index) => {
    const pending = row.length - row.computed;
    if (index !== plan.victim && ready(row) && pending > 1 && plan.tokens < budget) take(index, pending, 0);
  });
  for (const next of state.waiting) {
    const rows = state.running.length + plan.admitted;
    if (plan.tokens >= budget || plan.admitted >= state.freeSlots) break;
    if (plan.stalled > 0 || plan.victim >= 0) break;
    if (blocks.free < admissionBlocks(next, config, rows)) break;
    const own = blocksFor(next.length, config.blockTokens);
    blocks.free -= own;
    take(rows, next.length, own);
    plan.admitted++;
  }
  spendRest(state, plan, first, budget);
}

/** What is left of the budget goes to the prompts that the plan has already, oldest first. */
function spendRest(state: SchedulerState, plan: StepPlan, first: number, budget: number): void {
  for (let i = first; i < plan.count && plan.tokens < budget; i++) {
    const work = plan.work[i]!;
    if (work.draws) continue;
    const row = state.running[work.index];
    const waiting = state.waiting[work.index - state.running.length];
    const pending = row !== undefined ? row.length - row.computed : waiting!.length;
    const more = Math.min(pending - work.tokens, budget - plan.tokens);
    work.tokens += more;
    plan.tokens += more;
    if (work.tokens === pending) {
      work.draws = true;
      plan.draws++;
    }
  }
}

function blocksFor(tokens: number, blockTokens: number): number {
  return Math.ceil(tokens / blockTokens);
}
