/**
 * The sampler contract: what happens between the logits of a row and its next token, and what a device keeps for a
 * row to that end. The parameters of a row are in SamplingInputs (sampling-inputs.ts); how state is rebuilt from a
 * history is in sampling-state.ts, and docs/sampling.md says the same for users.
 *
 * A row r of a step draws one token. `V` is the vocabulary, `l` the row's logits (f32, as all that ops hand on), `p` its
 * parameters, `t(0 … n − 1)` the tokens of its sequence so far, prompt first, where `n = p.position`. `F.X` means that
 * bit X is set in `p.features`. Ids outside the vocabulary in any list are passed over. "First" and "order" always
 * mean: descending by value, equal values by ascending id.
 *
 * **0. Check.** A NaN or +∞ anywhere in `l`, masked or not, makes the row INVALID_TOKEN: nothing below happens, no
 * state of the row changes, its record (see below) is all zeros. Other rows are not touched.
 *
 * **1. Penalties**, in this order, in f32, one id v at a time. A value that was finite stays finite: after each row's
 * last penalty it is clamped to ±1e30 (LOGIT_LIMIT). −∞ stays −∞.
 * - F.MASK: −∞ where bit `v & 31` of word `v >> 5` of the slot's mask is 0.
 * - F.BIAS: plus the slot's bias of v (listed ids only; −∞ suppresses).
 * - F.BANNED: −∞ for the last id of each banned sequence of length k whose first k − 1 ids are `t(n−k+1 … n−1)`.
 * - F.MIN_TOKENS: −∞ for the ids of the slot's `withheld` list (end of sequence, before min_tokens is reached).
 * - F.REPETITION: if v is among the last w of `t` (`w = p.repetitionWindow`, 0: all of them):
 *   `x / repetitionPenalty` if x > 0, else `x · repetitionPenalty`.
 * - F.COUNTS: if v was generated c > 0 times (prompt not counted): `x − (c · frequencyPenalty + presencePenalty)`.
 * - F.DRY: `x − dryMultiplier · exp((m − dryAllowedLength) · dryLogBase)` for an id with a match of length
 *   `m ≥ dryAllowedLength` (below), the penalty itself at most 1e30. Ids in `breakers.ids` are never penalised.
 * What results is called the *processed* logits, `x`. If none of them is finite the row is INVALID_TOKEN (as in 0).
 *
 * **DRY matches.** With N the last `min(n, dryWindow)` tokens (dryWindow 0: all): for a distance `d = 1 … |N| − 1` let
 * `L(d)` be the length of the longest common suffix of `t(0 … n−1)` and `t(0 … n−1−d)`, and
 * `m(d) = min(L(d), |N| − d, R)`, R the number of tokens after the last breaker that has come to its end in N (|N| if
 * there is none). The token that followed, `t(n − d)`, has the match m(d); an id has the largest of its matches.
 * A breaker is one id (`breakers.ids`) or a sequence of them (`breakers.sequences`). L(d) is updated in place when t(n)
 * comes: `L(d) ← t(n − d) == t(n) ? L(d) + 1 : 0` — diagonals do not touch each other, so one linear parallel pass
 * does it. This is llama.cpp's definition, in which L comes from a Z-scan of the whole window for every token.
 *
 * **2. Greedy.** `temperature` 0: the first id of x. Nothing is normalised; what follows is not looked at.
 *
 * **3. Temperature.** `z(v) = (x(v) − max x) / temperature`. S is the set of ids with finite x. Weights are `e^z`.
 *
 * **4. Mirostat 2** (F.MIROSTAT) takes the place of all filters: keeps the ids of S with
 * `−log2(e^z / Σ_S e^z) ≤ μ`, and always the first. Then draw (6) from the kept set K, and
 * `μ ← μ − eta · (−log2(e^z(drawn) / Σ_K e^z) − tau)`. A row with F.FORCED leaves μ as it is.
 *
 * **5. Filters**, each over the set S that the one before left:
 * - top-k (topK > 0): the first topK.
 * - top-p (topP < 1): the shortest start of the order whose weights reach `topP · Σ_S e^z`, at least one.
 * - min-p (minP > 0): those with `e^z ≥ minP` (the largest weight is 1), at least the first.
 * - typical-p (F.TYPICAL): with `q = e^z / Σ_S e^z`, `H = −Σ_S q ln q` and `δ = |−ln q − H|`: the shortest start of the
 *   ascending order of δ (equal δ by ascending id) whose q reach typicalP, at least one. The first id of x may go.
 * - top-n-sigma (F.SIGMA): those with `x ≥ max_S x − topNSigma · σ`, σ the population standard deviation of all finite
 *   processed logits of the row (not of S), untempered.
 * - XTC (F.XTC): let u be the uniform of the row's random word for the token XTC_TOKEN. If `u < xtcProbability`: of the
 *   ids of S with `q ≥ xtcThreshold` (q over S) all go but the last of the order. With none or one nothing goes.
 *
 * **6. Draw.** The id of S with the largest `z + gumbel(word(seedLow, seedHigh, choice, position, v))` (random.ts);
 * equal sums by lowest id. The key holds nothing else, so neighbours, batch and filters do not change a token's noise.
 *
 * **7. Force.** F.FORCED: the row's token is `p.forced`, whatever was drawn (the row has passed check 0).
 *
 * **8. Record**, for rows with F.LOGPROBS or F.MIROSTAT: see RECORD_WORDS. Log-probabilities are the log-softmax over
 * the whole row of `l` (raw) or, with F.PROCESSED, of x — in both cases without temperature and filters. Only rows with
 * F.LOGPROBS pay for it. The record is of the token of step 7.
 *
 * **9. State.** The token goes to the slot's last token and into its state: history, counts, windows, matches, μ. When
 * in time a device does this is its own business, as long as the next step finds it done: nothing waits for the host.
 *
 * Rules: a row's result depends on its own slot and parameters alone. State that was carried on token by token and
 * state that was rebuilt by `sync` hold the same integers, so the processed logits are bitwise the same. A step in
 * which no row has a feature launches nothing for it and reads no state; in a step where one row has it the others
 * leave at once. Sums and thresholds are within 1e-5 relative of float64.
 */

import { KvantError } from '../errors.js';
import { NO_SLOT, type StepInputs } from './step.js';

/** Bits of `SamplingInputs.features`. Top-k, top-p and min-p have none: their off values say it. */
export const FEATURE = {
  MASK: 1 << 0,
  BIAS: 1 << 1,
  BANNED: 1 << 2,
  MIN_TOKENS: 1 << 3,
  REPETITION: 1 << 4,
  COUNTS: 1 << 5,
  DRY: 1 << 6,
  MIROSTAT: 1 << 7,
  TYPICAL: 1 << 8,
  SIGMA: 1 << 9,
  XTC: 1 << 10,
  FORCED: 1 << 11,
  LOGPROBS: 1 << 12,
  /** Beside LOGPROBS: of the processed logits. */
  PROCESSED: 1 << 13,
} as const;

/** Every feature there is. */
export const ALL_FEATURES = (1 << 14) - 1;
/** Features that change logits before the draw. */
export const PENALTY_FEATURES = 0x7f;
/** Features with something in the slot's state: their rows must have been synced. */
export const STATE_FEATURES = 0xff;
/** Features that need the row's tokens on the device. */
export const HISTORY_FEATURES = FEATURE.BANNED | FEATURE.REPETITION | FEATURE.COUNTS | FEATURE.DRY;

/** Finite processed logits lie within ± this. */
export const LOGIT_LIMIT = 1e30;
/** The token whose random word decides whether XTC strikes. No vocabulary reaches it. */
export const XTC_TOKEN = 0xffff_ffff;
/** Most alternatives of a token that can be asked for. */
export const MAX_TOP_LOGPROBS = 20;
/** Longest banned or breaking sequence, in tokens. */
export const MAX_SEQUENCE = 32;
/** Most tokens in all banned, or all breaking, sequences of a row together. */
export const MAX_SEQUENCE_TOKENS = 4096;

/**
 * A device writes a step's result as one u32 array (StepResult reads it): an id for each output row and then, only if some row has F.LOGPROBS or
 * F.MIROSTAT, a record of so many words for **each** output row in order (zeros for rows that asked for nothing):
 * - word 0: f32, the log-probability of the row's token;
 * - word 1: its rank, 1 + the ids before it in the order;
 * - word 2: f32, μ after the draw (F.MIROSTAT, else 0);
 * - word 3: alternatives that follow, `k = min(topLogprobs, V)`;
 * - words 4 … 4 + k: their ids, in order;
 * - words 24 … 24 + k: f32, their log-probabilities. −∞ where the logit is.
 */
export const RECORD_WORDS = 44;
export const RECORD_IDS = 4;
export const RECORD_LOGPROBS = 24;

/** Ids that break a DRY match when they come, and sequences that do when they have come whole. */
export interface DryBreakers {
  /** Ascending. May be thousands: every token with a newline in it. */
  readonly ids: Uint32Array;
  /** Two to MAX_SEQUENCE ids each. */
  readonly sequences: readonly Uint32Array[];
}

/** What a row keeps on the device from its first draw to its end. Plain data. */
export interface RowSpec {
  /** Features of the row's steps, all together. Those outside STATE_FEATURES are named so that kernels can be made. */
  readonly features: number;
  /** As in SamplingInputs, and the same there in every step. */
  readonly repetitionWindow: number;
  readonly dryWindow: number;
  /** F.BIAS: ascending ids, no id twice, and what is added to each. Never NaN or +∞. */
  readonly biasIds: Uint32Array;
  readonly biasValues: Float32Array;
  /** F.MIN_TOKENS: ascending. */
  readonly withheld: Uint32Array;
  /** F.BANNED: two to MAX_SEQUENCE ids each. */
  readonly banned: readonly Uint32Array[];
  /** F.DRY. */
  readonly breakers: DryBreakers;
  /** F.MIROSTAT: μ to begin with: 2 · tau, or what the row's last record said. */
  readonly mu: number;
}

/**
 * The state of rows, by slot. It exists for slots that were synced and until they are released: nothing is allocated
 * for others, and `bytes` says what is (part of DeviceStats too).
 */
export interface SamplerRows {
  /** Features this device's kernels have. A step with others is refused with `sampling-unsupported`. */
  readonly features: number;
  /** Bytes of state held now. 0 when no slot holds any and slabs have been given back. */
  readonly bytes: number;
  /** Slots that hold state. */
  readonly slots: number;
  /**
   * Makes a slot's state what `spec` and `history` say: `history` holds the tokens of the sequence, the first
   * `promptLength` of them the prompt. Allocates, and makes kernels that were not needed before; steps of other slots
   * go on meanwhile. Call it before the first step that draws for the slot with features, and whenever the host has
   * changed a history behind the device's back; never while a step under way names the slot.
   *
   * A slot that holds state with an equal spec (all but μ) and prompt length: what the state holds is compared token by
   * token. Equal: nothing is done. Continued: the tail is taken in. Shorter, or different anywhere (also with an
   * equal last token): it is rebuilt. μ is set to the spec's in all cases. Another spec: rebuilt.
   *
   * Errors: `sampling-unsupported`, `device-out-of-memory`; the slot then holds nothing.
   */
  sync(slot: number, spec: RowSpec, history: Int32Array, promptLength: number): Promise<void>;
  /**
   * Sets the mask `[ceil(V / 32)]` of a slot synced with F.MASK; a set bit allows the id. Not while a step under way
   * draws for the slot; between the halves of a step it may be set for the draw to come. It stays until it is set again.
   */
  setMask(slot: number, mask: Uint32Array): void;
  /**
   * Takes in tokens that a slot's sequence has gone on by without a draw: `history`, all of its tokens, continues what the state
   * holds. `mu`: Mirostat's μ as it is. As `setMask` not while a step under way draws for the slot; between the halves of a step
   * the draw to come is to leave the slot out. Nothing for slots without state.
   */
  take(slot: number, history: Int32Array, mu: number): void;
  /** Frees a slot's state, if it has any. Not while a step under way names the slot. */
  release(slot: number): void;
}

/** The log-probabilities of one row, read from a step's result. */
export interface RowRecord {
  readonly logprob: number;
  readonly rank: number;
  readonly mu: number;
  readonly ids: readonly number[];
  readonly logprobs: readonly number[];
}

/** Copies a row's record out of a step's result, into plain arrays: typed ones cost ten times as much to make. */
export function readRecord(result: Uint32Array, outputs: number, row: number): RowRecord {
  const at = outputs + row * RECORD_WORDS;
  const floats = new Float32Array(result.buffer, result.byteOffset + 4 * at, RECORD_WORDS);
  const count = Math.min(result[at + 3]!, MAX_TOP_LOGPROBS);
  const ids: number[] = [];
  const logprobs: number[] = [];
  for (let i = 0; i < count; i++) {
    ids.push(result[at + RECORD_IDS + i]!);
    logprobs.push(floats[RECORD_LOGPROBS + i]!);
  }
  return { logprob: floats[0]!, rank: result[at + 1]!, mu: floats[2]!, ids, logprobs };
}

/** All bits that any output of a step has that is drawn for. */
export function featuresOf({ sampling, outputSlot, outputCount }: StepInputs): number {
  let features = 0;
  for (let row = 0; row < outputCount; row++)
    if (outputSlot[row] !== NO_SLOT) features |= sampling.features[row]!;
  return features;
}

/**
 * Several outputs of a step may draw for one slot, at positions of its sequence that rise; the last one's token is what the slot drew last.
 * Only rows without state may (STATE_FEATURES, masks among them): state takes in one token after the other, and a slot has one mask.
 * `recurrent`: of a model with recurrent layers, whose state cannot go back behind a draft that is not taken; there a slot draws once.
 * Errors: `invalid-step`.
 */
export function checkDrawOrder(
  { outputs, outputSlot, outputCount, sampling }: StepInputs,
  recurrent: boolean,
): void {
  let before = -1;
  for (let i = 0; i < outputCount; i++) {
    const slot = outputSlot[i]!;
    if (slot === NO_SLOT) continue;
    if (before >= 0 && outputSlot[before] === slot) {
      if (recurrent)
        throw severalDraws(`slot ${slot} draws several tokens in a step of a model with recurrent layers`);
      const state = (sampling.features[before]! | sampling.features[i]!) & STATE_FEATURES;
      if (state !== 0)
        throw severalDraws(`slot ${slot} draws several tokens in a step with ${featureNames(state)}`);
      if (outputs[i]! <= outputs[before]!)
        throw severalDraws(`slot ${slot} draws at token ${outputs[i]} behind token ${outputs[before]}`);
    }
    before = i;
  }
}

function severalDraws(message: string): KvantError {
  return new KvantError('invalid-step', `Step: ${message}.`, {
    where: 'submit',
    fix: 'This is a fault of the caller: rows with state, and those of recurrent models, draw one token a step, others in the order of their positions.',
  });
}

/** Errors: `sampling-unsupported`, naming the features that a device has no kernels for. */
export function requireFeatures(wanted: number, supported: number, device: string): void {
  const missing = wanted & ~supported;
  if (missing === 0) return;
  throw new KvantError(
    'sampling-unsupported',
    `The ${device} device has no kernels for ${featureNames(missing)}.`,
    { kind: 'unsupported', fix: 'Leave these parameters out, or run on another device.' },
  );
}

/** `repetition, dry`, for people. */
export function featureNames(features: number): string {
  return Object.entries(FEATURE)
    .filter(([, bit]) => features & bit)
    .map(([name]) => name.toLowerCase())
    .join(', ');
}

/** For a device without row state: it holds nothing and refuses features. */
export class NoSamplerRows implements SamplerRows {
  readonly features = 0;
  readonly bytes = 0;
  readonly slots = 0;
  readonly #device: string;

  constructor(device: string) {
    this.#device = device;
  }

  async sync(_slot: number, spec: RowSpec): Promise<void> {
    requireFeatures(spec.features, 0, this.#device);
  }

  setMask(): void {
    requireFeatures(FEATURE.MASK, 0, this.#device);
  }

  take(): void {}

  release(): void {}
}
