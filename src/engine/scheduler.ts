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
 * - A sequence is admitted when a row is free and its whole prompt has blocks. It then grows by one block at a
 *   time. A block is given only if afterwards some order remains in which every admitted sequence can run to its
 *   end (Dijkstra's banker): rows may wait for blocks, but they never wait for each other.
 */

/** What the scheduler sees of an admitted sequence. */
export interface RunningView {
  /** Tokens of the sequence, prompt and drawn; a token drawn by a step under way counts. */
  readonly length: number;
  /** Tokens whose K and V are stored, or will be by the steps under way. */
  readonly computed: number;
  /** Positions it stores at most, should it run to its limit. */
  readonly reach: number;
  /** Blocks in its table. */
  readonly blocks: number;
  /** Tokens that may still be drawn. 0: it waits for its last id. */
  readonly drawsLeft: number;
  /** Sits this step out: its next mask or token depends on an id that has not been read. */
  readonly held: boolean;
  /** Number of the last step that worked on it. */
  readonly lastStep: number;
}

/** What the scheduler sees of a sequence that waits for admission. */
export interface WaitingView {
  readonly length: number;
  readonly reach: number;
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
  /** Blocks of sequences that have ended and wait for their last step to retire: soon free. */
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

  clear(): void {
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
  const ledger = new Ledger(state, config);
  const reserve = prefillReserve(state, config, ledger);
  const rows = decodeRows(state, budget - reserve);
  const served = planDecode(state, config, plan, ledger, rows, 0, budget - reserve);
  planPrefill(state, config, plan, ledger, budget);
  // What no prompt took goes to the decoding rows that were put off.
  planDecode(state, config, plan, ledger, rows, served, budget);
}

function ready(row: RunningView): boolean {
  return !row.held && row.drawsLeft > 0 && row.computed < row.length;
}

function prefillReserve(state: SchedulerState, config: SchedulerConfig, ledger: Ledger): number {
  const budget = config.maxBatchTokens;
  const prefilling = state.running.some((row) => ready(row) && row.length - row.computed > 1);
  const first = state.waiting[0];
  const admissible = first !== undefined && state.freeSlots > 0 && ledger.mayAdmit(first);
  if (!prefilling && !admissible) return 0;
  if (budget === 1) return state.step & 1;
  return Math.min(Math.max(1, config.prefillReserve), budget - 1);
}

/** Indices of the rows with one token to go; those that waited longest first, if not all fit. */
function decodeRows(state: SchedulerState, budget: number): number[] {
  const rows: number[] = [];
  state.running.forEach((row, index) => {
    if (ready(row) && row.length - row.computed === 1) rows.push(index);
  });
  if (rows.length > budget) rows.sort((a, b) => state.running[a]!.lastStep - state.running[b]!.lastStep);
  return rows;
}

/** Serves rows from `from` on while the step holds less than `budget` tokens; answers how far it came. */
function planDecode(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  ledger: Ledger,
  rows: readonly number[],
  from: number,
  budget: number,
): number {
  let at = from;
  for (; at < rows.length && plan.tokens < budget; at++) {
    const index = rows[at]!;
    const row = state.running[index]!;
    const newBlocks = blocksFor(row.computed + 1, config.blockTokens) - row.blocks;
    if (newBlocks > 0 && !ledger.grow(index, newBlocks)) plan.stalled++;
    else plan.add(index, 1, Math.max(0, newBlocks), 1);
  }
  return at;
}

function planPrefill(
  state: SchedulerState,
  config: SchedulerConfig,
  plan: StepPlan,
  ledger: Ledger,
  budget: number,
): void {
  const first = plan.count;
  const take = (index: number, pending: number, newBlocks: number): void => {
    const left = budget - plan.tokens;
    const half = Math.max(config.minChunk, Math.ceil(left / 2));
    plan.add(index, Math.min(pending, left, half), newBlocks, pending);
  };
  state.running.forEach((row, index) => {
    const pending = row.length - row.computed;
    if (ready(row) && pending > 1 && plan.tokens < budget) take(index, pending, 0);
  });
  for (const next of state.waiting) {
    if (plan.tokens >= budget || plan.admitted >= state.freeSlots || !ledger.admit(next)) break;
    take(state.running.length + plan.admitted, next.length, blocksFor(next.length, config.blockTokens));
    plan.admitted++;
  }
  // The rest of the budget, oldest first.
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

/** The banker's book: what each admitted sequence has and may still claim. */
class Ledger {
  #free: number;
  readonly #leaving: number;
  readonly #held: number[] = [];
  readonly #claim: number[] = [];
  #claims = 0;
  readonly #blockTokens: number;

  constructor(state: SchedulerState, config: SchedulerConfig) {
    this.#free = state.freeBlocks;
    this.#leaving = state.leavingBlocks;
    this.#blockTokens = config.blockTokens;
    for (const row of state.running) {
      this.#enter(row.blocks, blocksFor(row.reach, config.blockTokens) - row.blocks);
    }
  }

  /** Whether the sequence could be admitted now. */
  mayAdmit(next: WaitingView): boolean {
    if (!this.admit(next)) return false;
    const held = this.#held.pop()!;
    this.#claims -= this.#claim.pop()!;
    this.#free += held;
    return true;
  }

  /** Takes the sequence in with blocks for all its tokens, if that is safe. */
  admit(next: WaitingView): boolean {
    const wanted = blocksFor(next.length, this.#blockTokens);
    if (wanted > this.#free) return false;
    this.#free -= wanted;
    this.#enter(wanted, blocksFor(next.reach, this.#blockTokens) - wanted);
    if (this.#safe()) return true;
    this.#free += wanted;
    this.#held.pop();
    this.#claims -= this.#claim.pop()!;
    return false;
  }

  /** Gives an admitted sequence more blocks, if that is safe. */
  grow(index: number, blocks: number): boolean {
    if (blocks > this.#free) return false;
    this.#move(index, blocks);
    if (this.#safe()) return true;
    this.#move(index, -blocks);
    return false;
  }

  #enter(held: number, claim: number): void {
    const claimed = Math.max(0, claim);
    this.#held.push(held);
    this.#claim.push(claimed);
    this.#claims += claimed;
  }

  #move(index: number, blocks: number): void {
    this.#free -= blocks;
    this.#held[index]! += blocks;
    this.#claim[index]! -= blocks;
    this.#claims -= blocks;
  }

  /** Can every sequence run to its end in some order? Smallest claim first finds one if there is one. */
  #safe(): boolean {
    let available = this.#free + this.#leaving;
    if (this.#claims <= available) return true;
    const order = this.#claim.map((_, index) => index).sort((a, b) => this.#claim[a]! - this.#claim[b]!);
    for (const index of order) {
      if (this.#claim[index]! > available) return false;
      available += this.#held[index]!;
    }
    return true;
  }
}
