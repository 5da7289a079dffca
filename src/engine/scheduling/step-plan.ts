/** What the scheduler reads and what it writes: plain data. */

/** What the scheduler sees of an admitted sequence. */
export interface RunningView {
  /** Tokens of the sequence, prompt and drawn; a token drawn by a step under way counts. */
  readonly length: number;
  /** Tokens whose K and V are stored, or will be by the steps under way. */
  readonly computed: number;
  /** By cache group: blocks in its table, those that it has given back included. */
  readonly blocks: ArrayLike<number>;
  /** By cache group: blocks at the start of its table that it has given back, as no layer of the group reads them any more. */
  readonly front: ArrayLike<number>;
  /** Its blocks of group 0 are float-start ones. */
  readonly floatStart: boolean;
  /** A chunk of its prompt ends here, if it comes so far: its state is copied there. More than `computed`; default: nowhere. */
  readonly cut?: number;
  /** `[from, to, from, to, …]`, rising: no chunk ends within one of these, as their tokens see later ones. Default: none. */
  readonly uncut?: readonly number[];
  /** While it is float-start: blocks of the main pool that it has already. */
  readonly reserved: number;
  /** Tokens that may still be drawn. 0: it waits for its last id. */
  readonly drawsLeft: number;
  /** Sits this step out: its next mask or token depends on an id that has not been read, or it is giving way. */
  readonly held: boolean;
  /**
   * It decodes, and the tokens that it has to go are known, since what its answer is held to left no choice: they go together, as its
   * part of the step. Default: what has more than one to go is a prompt.
   */
  readonly run?: boolean;
  /** Number of the last step that worked on it. */
  readonly lastStep: number;
  /** Whole number; a higher one goes first. */
  readonly priority: number;
  /** Index of the group (an API key) that the time is shared between. */
  readonly share: number;
  /** When it was asked for: milliseconds since the engine's start. */
  readonly arrival: number;
}

/** What the scheduler sees of a sequence that waits for admission. */
export interface WaitingView {
  readonly length: number;
  /** Tokens whose K and V are in cached blocks (of a prefix); fewer than `length`. Its work starts there. */
  readonly computed: number;
  /**
   * By cache group: blocks that are accounted for already, of the main pool, or float-start ones if it is float-start: the sequence holds
   * them, or they are cached and another row uses them. Cached blocks that no row uses count as free and not here. Those of
   * `front` count.
   */
  readonly blocks: ArrayLike<number>;
  /** By cache group: blocks before those, that it need not have as no layer of the group will read them. */
  readonly front: ArrayLike<number>;
  /** It starts in float-start blocks of group 0. */
  readonly floatStart: boolean;
  /** As of a running sequence. */
  readonly cut?: number;
  readonly uncut?: readonly number[];
  /** Not to be admitted now: a running row computes its prefix, or it is being read from disk. */
  readonly held: boolean;
  readonly priority: number;
  readonly share: number;
  readonly arrival: number;
  /** When it is too late to start, on the same clock; Infinity for never. */
  readonly deadline: number;
}

/**
 * Milliseconds that a step takes, as measured: `fixed + row · decoding rows`, and, with prompts, `chunk` and for each of their
 * tokens `token + depth · thousands of tokens before it`.
 */
export interface StepCosts {
  readonly fixed: number;
  readonly row: number;
  readonly chunk: number;
  /** 0 until it has been measured. */
  readonly token: number;
  readonly depth: number;
}

export interface SchedulerState {
  /** Number of the step that is being planned. */
  readonly step: number;
  /** Milliseconds since the engine's start. */
  readonly now: number;
  /** In order of admission. */
  readonly running: readonly RunningView[];
  readonly waiting: readonly WaitingView[];
  readonly freeSlots: number;
  /** By cache group: free blocks, and those that only a cache holds: they are free as soon as they are needed. */
  readonly freeBlocks: ArrayLike<number>;
  /** By cache group: blocks of sequences that have ended or give way and wait for their last step to retire: soon free. */
  readonly leavingBlocks: ArrayLike<number>;
  /** By cache group: blocks that nobody but waiting sequences holds: free if they are made to drop what they hold. */
  readonly queuedBlocks: ArrayLike<number>;
  readonly freeFloatStart: number;
  /** FloatStart blocks that are soon free: as above, or being converted. */
  readonly leavingFloatStart: number;
  readonly queuedFloatStart: number;
  /** Number of the last step that has retired. */
  readonly retired: number;
  readonly costs: StepCosts;
  /** Tokens served to each share, by index (share-ledger.ts). */
  readonly served: ArrayLike<number>;
  /** Milliseconds that prompts have saved beside decoding rows; less than 0 if they have had more than their part. */
  readonly credit: number;
  /** Steps since prompts began to save. */
  readonly saving: number;
  /** Steps so far that worked on prompts. */
  readonly chunkSteps: number;
}

/** What rows hold of a cache group. */
export interface SchedulerGroup {
  /** Tokens that its layers see: blocks behind them are given back; 0: they see all, and none are. */
  readonly window: number;
  /** Most blocks that a row holds at once. */
  readonly rowBlocks: number;
  /** Its layers are recurrent: a row has one block, its slot of state, from the first token to the last. `rowBlocks` is 1. */
  readonly state?: boolean;
  /** It is the float head of the first group: a row has `rowBlocks` blocks from the first token to the last. */
  readonly head?: boolean;
}

export interface SchedulerConfig {
  /** The cache groups, at least one. Only the first one has float-start blocks, and it sees all where it has. */
  readonly groups: readonly SchedulerGroup[];
  readonly maxBatchTokens: number;
  readonly blockTokens: number;
  /** Tokens of a step that decoding rows leave to waiting prompts. */
  readonly prefillReserve: number;
  /** Smallest chunk that a prompt is cut into, as far as the budget goes. */
  readonly minChunk: number;
  /** Tokens of prompts that are worth a step of their own beside decoding rows. */
  readonly chunkTokens: number;
  /**
   * A step of decoding rows is about as dear with fewer tokens as with so many, or with the power of two that its rows come to: runs
   * fill it up so far and no further. 0, the default: every token costs alike.
   */
  readonly evenTokens?: number;
  /** Milliseconds that a step with decoding rows may take, but for one smallest chunk; 0: any. */
  readonly targetItl: number;
  /** Tokens at which a sequence is converted; 0: none is ever float-start. */
  readonly floatStartTokens: number;
  /** Milliseconds of waiting that weigh as much as one step of priority. */
  readonly ageingMs: number;
}

/** Work for one sequence. Refilled, not made anew. */
export interface PlannedWork {
  /** Index into `running`; from `running.length` on, of `StepPlan.admits`. */
  index: number;
  tokens: number;
  /** By cache group: blocks to append to its table before the step, of the kind it has. */
  readonly newBlocks: number[];
  /** Blocks of group 0's main pool to set aside for it before the step: what it is, or will be, converted to. */
  reserve: number;
  /** It is converted before the step. */
  converts: boolean;
  /** The step reaches the end of its tokens: one more is drawn. */
  draws: boolean;
}

/** A plan, reused from step to step. */
export class StepPlan {
  readonly work: PlannedWork[] = [];
  /** Entries of `work` that count. */
  count = 0;
  /** Indices into `waiting` of the sequences that come in, in order; the first `admitted` count. */
  readonly admits: number[] = [];
  admitted = 0;
  tokens = 0;
  /** Tokens of prompts, of those. */
  prefilled = 0;
  draws = 0;
  /** Indices into `waiting` of those whose deadline has passed; the first `expired` count. */
  readonly expires: number[] = [];
  expired = 0;
  /** Rows that had work and got no block. */
  stalled = 0;
  /** Index of the running row that has to give way, −1 for none. It has no work in this plan. */
  victim = -1;
  /** The waiting sequences are to drop the blocks they hold, and then it is planned again: this plan holds no work. */
  dropHeld = false;
  /** For the next plan: see `SchedulerState`. */
  credit = 0;
  saving = 0;
  /** Milliseconds that its prompts were taken from the account for. */
  spent = 0;

  // What follows is the scheduler's scratch paper: kept here so that planning makes nothing anew.
  /** Indices of the rows that want to decode; the first `rowCount` count. */
  readonly rows: number[] = [];
  rowCount = 0;
  /** Those with more of a prompt to go; the first `promptCount` count. */
  readonly prompts: number[] = [];
  promptCount = 0;
  /** What prompts may take, and whether that is lent to a newcomer. */
  promptTokens = 0;
  onCredit = false;
  /** Tokens of runs that it may still take beside the first of each row. */
  runTokens = 0;
  floatStartAdmitted = 0;
  /** By cache group: blocks that the plan has not handed out. */
  readonly blocksLeft: number[] = [];
  floatStartLeft = 0;
  /** By cache group: blocks that prompts in rows will still take: whoever comes in leaves them. */
  readonly owed: number[] = [];
  /** Blocks of each group's main pool, of those left, that only row `anchor` may take. */
  anchor = -1;
  readonly anchorBlocks: number[] = [];

  /** Empties the plan. `groups`: how many cache groups there are. */
  clear(groups: number): void {
    for (let group = 0; group < groups; group++) {
      this.blocksLeft[group] = 0;
      this.owed[group] = 0;
      this.anchorBlocks[group] = 0;
    }
    this.victim = -1;
    this.dropHeld = false;
    this.anchor = -1;
    this.rowCount = 0;
    this.promptCount = 0;
    this.promptTokens = 0;
    this.onCredit = false;
    this.runTokens = 0;
    this.floatStartAdmitted = 0;
    this.expired = 0;
    this.prefilled = 0;
    this.credit = 0;
    this.saving = 0;
    this.spent = 0;
    this.count = 0;
    this.admitted = 0;
    this.tokens = 0;
    this.draws = 0;
    this.stalled = 0;
  }

  /** Work that takes no blocks yet. */
  add(index: number, tokens: number, pending: number): PlannedWork {
    let work = this.work[this.count];
    if (work === undefined) {
      work = { index: 0, tokens: 0, newBlocks: [], reserve: 0, converts: false, draws: false };
      this.work.push(work);
    }
    this.count++;
    work.index = index;
    work.tokens = tokens;
    for (let group = 0; group < this.blocksLeft.length; group++) work.newBlocks[group] = 0;
    work.reserve = 0;
    work.converts = false;
    work.draws = tokens === pending;
    this.tokens += tokens;
    if (work.draws) this.draws++;
    return work;
  }
}

/**
 * What one plan leaves to the next: to be called for every plan that is carried out. `error`: milliseconds that steps since the
 * last plan took beyond what they were foretold.
 */
export function carry(
  state: { credit: number; saving: number; chunkSteps: number },
  { credit, saving, prefilled }: StepPlan,
  error: number,
): void {
  state.credit = credit - error;
  state.saving = saving;
  if (prefilled > 0) state.chunkSteps++;
}
