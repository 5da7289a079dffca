/**
 * A sequence: one choice of one request, from the queue to its last id. The numbers the scheduler plans with, the
 * slot and blocks it holds, and its output.
 */

import type { KvantError } from '../errors.js';
import type { BlockTable } from '../kv/block-table.js';
import type { SamplingParams } from '../sampling/options.js';
import type { DrawState, RowSampling } from '../sampling/row-sampling.js';
import { seedWords } from '../sampling/seed.js';
import type { TokenRules } from '../sampling/token-rules.js';
import type { Constraint, ConstraintRule, ForcedRun } from './constraint.js';
import { PooledHidden } from './pooled-hidden.js';
import type { Pooling } from './pooling.js';
import type { SequencePrefix } from './prefix/sequence-prefix.js';
import type { RowGrammar } from './row-grammar.js';
import { ORDINARY_PLACE, type QueuePlace } from './scheduling/queue-place.js';
import type { RunningView, WaitingView } from './scheduling/scheduler.js';
import type { SequenceOutput } from './sequence-output.js';
import type { ThinkingBudget } from './thinking-budget.js';
import type { FinishReason, TokenLogprobs } from './types.js';
import { type PromptPicture, type PromptPictures, SequencePictures } from './vision/pictures.js';

/**
 * `waiting`: in the queue. `running`: has a slot. `leaving`: ended, but a step under way still names its slot and
 * blocks. `done`: holds nothing.
 */
export type SequencePhase = 'waiting' | 'running' | 'leaving' | 'done';

/** A request as the core takes it: tokens, no text. Plain data. */
export interface CoreRequest {
  /** The caller's number for it, unused so far. */
  readonly id: number;
  readonly prompt: Int32Array;
  readonly sampling: SamplingParams;
  /** What it says about tokens, in ids. */
  readonly rules: TokenRules;
  /** What its answers are held to. */
  readonly grammar?: RowGrammar;
  /** How long its answers may think. */
  readonly thinking?: ThinkingBudget;
  /** Only requests with the same salt, or all without one, share cached prefixes. */
  readonly cacheSalt?: string;
  /** The text goes on where the prompt ends (see Detokenizer). */
  readonly continuation: boolean;
  /** Special tokens that the text has nonetheless. Default: none. */
  readonly spelled?: readonly number[];
  /** In the order of their places in the prompt. Default: none. */
  readonly pictures?: readonly PromptPicture[];
  /** Its last hidden states are wanted, made one so, and no token. Default: tokens are drawn. */
  readonly hidden?: Pooling;
  /** Default: an ordinary one. */
  readonly place?: QueuePlace;
  /** Epoch milliseconds, fractional: when the caller asked. */
  readonly receivedAt: number;
}

/** Epoch milliseconds, fractional; 0 for what did not happen. */
export interface ChoiceTimes {
  readonly started: number;
  readonly firstToken: number;
  readonly finished: number;
}

/** What is new about one choice after a step. */
export interface ChoiceEvent {
  readonly request: number;
  readonly choice: number;
  readonly text: string;
  readonly ids: readonly number[];
  /** One for each id, null if they were not asked for. */
  readonly logprobs: readonly TokenLogprobs[] | null;
  readonly finish: FinishReason | null;
  readonly error: KvantError | null;
  /** With `finish`. */
  readonly times: ChoiceTimes | null;
  /** With `finish`: prompt tokens that it did not compute; null if it never started. */
  readonly cached: number | null;
  /** `[n]` the hidden states that were asked for, as one. */
  readonly hidden?: Float32Array;
}

/** How a sequence comes into the queue. */
export interface SequenceEntry {
  /** Milliseconds since the engine's start. */
  readonly arrival: number;
  /** Index of its share. */
  readonly share: number;
  /** It starts in float-start blocks. */
  readonly floatStart: boolean;
  /** Cache groups there are. */
  readonly groups: number;
  /** The one of recurrent layers, −1 for none. */
  readonly stateGroup: number;
  /** Default: none. */
  readonly pictures?: PromptPictures | null;
  /** Its prompt is computed in one step. Default false. */
  readonly whole?: boolean;
}

const NO_SPANS: readonly number[] = [];

export class Sequence implements RunningView, WaitingView, DrawState {
  readonly request: CoreRequest;
  readonly choice: number;
  readonly output: SequenceOutput;
  readonly row: RowSampling;
  readonly constraint: Constraint | null;
  readonly seedLow: number;
  readonly seedHigh: number;
  /** What the scheduler is told of it beyond its tokens. */
  readonly priority: number;
  readonly share: number;
  readonly arrival: number;
  /** Infinity once it has started: what has had its row does not come too late. */
  deadline: number;

  phase: SequencePhase = 'waiting';
  /** Its block tables, one a cache group, while it has a row. */
  tables: readonly BlockTable[] | null = null;
  readonly #blocks: number[] = [];
  readonly #front: number[] = [];
  length: number;
  computed = 0;
  drawsLeft: number;
  lastStep = -1;
  /** Gives its row and blocks up as soon as no step under way names them; then it waits again. */
  yielding = false;
  /** Ids delivered so far: what it is computed from again when it has given way. */
  readonly ids: number[] = [];

  /** Positions that are computed in one step. */
  readonly uncut: readonly number[];

  /** Null for a prompt of text alone. */
  readonly pictures: SequencePictures | null;

  /** What its hidden states come to; null for one that draws. */
  readonly hidden: PooledHidden | null;

  /** Null where no prefixes are cached. */
  prefix: SequencePrefix | null = null;

  /** The device makes its state ready: until then it has a slot and no work. */
  preparing = false;
  /** Mirostat's μ after the last id delivered. */
  mu: number;
  /** What its constraint says of the token after `ruledAt` drawn ones; −1: it has said nothing yet. */
  rule: ConstraintRule = null;
  ruledAt = -1;
  /** The tokens that come next, where they are forced: those from `runAt` on. Its rule is the first of them, until they are taken. */
  forcedRun: ForcedRun | null = null;
  runAt = 0;
  /** Tokens that it had computed when it took those of a run without drawing them; Infinity before. */
  decodesFrom = Number.POSITIVE_INFINITY;
  /** It has been asked at all. */
  asked = false;
  /** Draws that it was left out of since its last one, as the rule was not there in time. */
  late = 0;

  readonly #startsFloatStart: boolean;
  readonly #groups: number;
  readonly #stateGroup: number;
  startedAt = 0;
  firstTokenAt = 0;

  constructor(
    request: CoreRequest,
    choice: number,
    draws: number,
    output: SequenceOutput,
    row: RowSampling,
    constraint: Constraint | null,
    { arrival, share, floatStart, groups, stateGroup, pictures = null, whole = false }: SequenceEntry,
  ) {
    this.pictures = pictures === null ? null : new SequencePictures(pictures);
    this.uncut = whole ? [0, request.prompt.length] : (pictures?.uncut ?? NO_SPANS);
    this.#startsFloatStart = floatStart;
    this.#groups = groups;
    this.#stateGroup = stateGroup;
    const { priority, startWithinMs } = request.place ?? ORDINARY_PLACE;
    this.priority = priority;
    this.share = share;
    this.arrival = arrival;
    this.deadline = arrival + startWithinMs;
    this.row = row;
    this.mu = row.firstMu;
    this.constraint = constraint;
    this.request = request;
    this.hidden = request.hidden === undefined ? null : new PooledHidden(request.hidden);
    this.choice = choice;
    this.output = output;
    this.length = request.prompt.length;
    this.drawsLeft = draws;
    const { low, high } = seedWords(request.sampling.seed);
    this.seedLow = low;
    this.seedHigh = high;
  }

  /**
   * By cache group: blocks that it need not be given: those in its table; while it waits, those of its prefix that are in use
   * anyway. Those of `front` count. The array is used again.
   */
  get blocks(): readonly number[] {
    const { tables, prefix } = this;
    for (let group = 0; group < this.#groups; group++)
      this.#blocks[group] =
        tables !== null
          ? tables[group]!.length
          : prefix === null || group === this.#stateGroup
            ? 0
            : prefix.takes.chains[group]!.length - prefix.cold[group]!;
    return this.#blocks;
  }

  /**
   * By cache group: blocks at its beginning that no layer will read: those it gave back, or those its prefix begins behind. The
   * array is used again.
   */
  get front(): readonly number[] {
    const { tables, prefix } = this;
    for (let group = 0; group < this.#groups; group++)
      this.#front[group] =
        tables !== null
          ? tables[group]!.front
          : prefix === null || group === this.#stateGroup
            ? 0
            : prefix.takes.chains[group]!.first;
    return this.#front;
  }

  /** Its state slot, while it has a row. */
  get slot(): number {
    return this.tables![0]!.slot;
  }

  /** Tokens it has, those under way included: where the next one is drawn. */
  get position(): number {
    return this.length;
  }

  get generated(): number {
    return this.length - this.request.prompt.length;
  }

  /** It is known what holds for the next token. */
  get ruled(): boolean {
    return this.constraint === null || this.ruledAt === this.generated;
  }

  get masked(): boolean {
    return typeof this.rule === 'object' && this.rule !== null && this.ruled;
  }

  get forced(): number {
    return typeof this.rule === 'number' && this.ruled ? this.rule : -1;
  }

  get run(): boolean {
    return this.computed >= this.decodesFrom;
  }

  /**
   * Whether what is forced is taken without drawing it. The first token is drawn, as the prompt is to be computed before there is one.
   * To skip one draw gains nothing where the device has the logits for it already.
   */
  get skipsDraws(): boolean {
    const { forcedRun, phase, row } = this;
    if (forcedRun === null || phase !== 'running' || !this.ruled || row.drawsAll) return false;
    const left = forcedRun.run.length - this.runAt;
    return this.ids.length > 0 && left > (this.recurrent ? 0 : 1);
  }

  /** The ids that are forced, each counted as a token of its own when it is asked for. */
  *skipDraws(): Generator<number> {
    const { run } = this.forcedRun!;
    this.decodesFrom = this.computed;
    while (this.runAt < run.length) {
      this.length++;
      this.drawsLeft--;
      yield run[this.runAt++]!;
    }
  }

  get floatStart(): boolean {
    if (this.tables !== null) return this.tables[0]!.floatStart;
    return this.prefix === null ? this.#startsFloatStart : this.prefix.takes === this.prefix.floatStart;
  }

  get reserved(): number {
    return this.tables === null ? 0 : this.tables[0]!.reserved;
  }

  /** Ids that steps under way will bring. */
  get coming(): number {
    return this.length - this.request.prompt.length - this.ids.length;
  }

  get held(): boolean {
    if (this.phase === 'waiting')
      return this.pictures?.isReady(this.prefix?.tokens ?? 0) === false || (this.prefix?.awaits ?? false);
    if (this.yielding || this.preparing) return true;
    if (this.ruled) return false;
    // A rule that came too late twice is waited for; with state always, as it cannot take in a position again.
    return this.late > 1 || (this.recurrent && this.length - this.computed <= 1);
  }

  /** It has layers whose state takes in every position once. */
  get recurrent(): boolean {
    return this.#stateGroup >= 0;
  }

  /** Where its state is copied next, Infinity for nowhere. */
  get cut(): number {
    return this.prefix === null || !this.recurrent
      ? Number.POSITIVE_INFINITY
      : this.prefix.nextSnapshot(this);
  }

  /** The tokens that the host knows: the prompt and the ids delivered. */
  history(): Int32Array {
    const { prompt } = this.request;
    const tokens = new Int32Array(prompt.length + this.ids.length);
    tokens.set(prompt);
    tokens.set(this.ids, prompt.length);
    return tokens;
  }

  /**
   * The id at a position, undefined for one that so far only the device knows. For a token of a picture, a word that tells the picture
   * and the place in it.
   */
  tokenAt(position: number): number | undefined {
    const { prompt } = this.request;
    if (this.pictures !== null) {
      const key = this.pictures.prompt.keyAt(position);
      if (key !== undefined) return key;
    }
    return position < prompt.length ? prompt[position] : this.ids[position - prompt.length];
  }

  /** What keys of blocks depend on besides ids. */
  wordsIn(from: number, to: number): Uint32Array | null {
    return this.pictures === null ? null : this.pictures.prompt.wordsIn(from, to);
  }
}
