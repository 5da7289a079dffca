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

  // What follows is the scheduler's scratch paper: kept here so that planning makes nothing anew.
  /** Indices of the rows that want to decode; the first `rowCount` count. */
  readonly rows: number[] = [];
  rowCount = 0;
  /** Blocks that the plan has not handed out. */
  blocksLeft = 0;

  clear(): void {
    this.victim = -1;
    this.rowCount = 0;
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
  plan.blocksLeft = state.freeBlocks;
  plan.victim = chooseVictim(state, config);
  const budget = config.maxBatchTokens;
  const forDecode = budget - prefillReserve(state, config, plan.victim);
  listDecodeRows(state, plan, forDecode);
  const served = planDecode(state, config, plan, 0, forDecode);
  planPrefill(state, config, plan);
  // What no prompt took goes to the decoding rows that were put off.
  planDecode(state, config, plan, served, budget);
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
  const { running } = state;
  let needed = 0;
  for (let index = 0; index < running.length; index++) {
    const row = running[index]!;
    // It ends with the steps under way, and its blocks come back.
    if (row.drawsLeft === 0) return -1;
    if (ready(row)) needed += newBlocks(row, config);
  }
  if (needed <= state.freeBlocks) return -1;
  for (let index = running.length - 1; index > 0; index--) if (!running[index]!.held) return index;
  return -1;
}

/** Blocks that a row lacks for its next token. */
function newBlocks(row: RunningView, config: SchedulerConfig): number {
  return Math.max(0, blocksFor(row.computed + 1, config.blockTokens) - row.blocks);
}

function prefillReserve(state: SchedulerState, config: SchedulerConfig, victim: number): number {
  const budget = config.maxBatchTokens;
  if (!prefills(state, victim) && !admits(state, config, victim)) return 0;
  if (budget === 1) return state.step & 1;
  return Math.min(Math.max(1, config.prefillReserve), budget - 1);
}

function prefills(state: SchedulerState, victim: number): boolean {
  for (let index = 0; index < state.running.length; index++) {
    const row = state.running[index]!;
    if (index !== victim && ready(row) && row.length - row.computed > 1) return true;
  }
  return false;
}

function admits(state: SchedulerState, config: SchedulerConfig, victim: number): boolean {
  const next = state.waiting[0];
  if (next === undefined || victim >= 0 || state.freeSlots === 0) return false;
  return state.freeBlocks >= admissionBlocks(next, config, state.running.length);
}

/** Blocks that must be free for a sequence to come in: its own, and one for each row that may grow. */
function admissionBlocks(next: WaitingView, config: SchedulerConfig, rows: number): number {
  return blocksFor(next.length, config.blockTokens) + rows;
}

/** Lists the rows with one token to go; those that waited longest first, if not all fit. */
function listDecodeRows(state: SchedulerState, plan: StepPlan, budget: number): void {
  const { running } = state;
  const { rows, victim } = plan;
  for (let index = 0; index < running.length; index++) {
    const row = running[index]!;
    if (index !== victim && ready(row) && row.length - row.computed === 1) rows[plan.rowCount++] = index;
  }
  if (plan.rowCount <= budget) return;
  rows.length = plan.rowCount;
  rows.sort((a, b) => running[a]!.lastStep - running[b]!.lastStep);
}

/** Serves listed rows from `from` on while the step holds less than `budget` tokens; answers how far it came. */
function planDecode(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  from: number,
  budget: number,
): number {
  let at = from;
  for (; at < plan.rowCount && plan.tokens < budget; at++) {
    const index = plan.rows[at]!;
    const more = newBlocks(state.running[index]!, config);
    if (more > plan.blocksLeft) {
      plan.stalled++;
      continue;
    }
    plan.blocksLeft -= more;
    plan.add(index, 1, more, 1);
  }
  return at;
}

function planPrefill(state: SchedulerState, config: SchedulerConfig, plan: StepPlan): void {
  const { running, waiting } = state;
  const budget = config.maxBatchTokens;
  const first = plan.count;
  for (let index = 0; index < running.length && plan.tokens < budget; index++) {
    const row = running[index]!;
    const pending = row.length - row.computed;
    if (index !== plan.victim && ready(row) && pending > 1) planChunk(config, plan, index, pending, 0);
  }
  const closed = plan.stalled > 0 || plan.victim >= 0;
  while (!closed && plan.admitted < waiting.length) {
    const next = waiting[plan.admitted]!;
    const rows = running.length + plan.admitted;
    if (plan.tokens >= budget || plan.admitted >= state.freeSlots) break;
    if (plan.blocksLeft < admissionBlocks(next, config, rows)) break;
    const own = blocksFor(next.length, config.blockTokens);
    plan.blocksLeft -= own;
    planChunk(config, plan, rows, next.length, own);
    plan.admitted++;
  }
  spendRest(state, plan, first, budget);
}

/** At most half of what the budget has left, but not less than `minChunk`. */
function planChunk(
  config: SchedulerConfig,
  plan: StepPlan,
  index: number,
  pending: number,
  blocks: number,
): void {
  const left = config.maxBatchTokens - plan.tokens;
  const half = Math.max(config.minChunk, (left + 1) >> 1);
  plan.add(index, Math.min(pending, left, half), blocks, pending);
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
  // As integers: a quotient would be a number of the heap.
  return ((tokens + blockTokens - 1) / blockTokens) | 0;
}
