/**
 * The oracle device's sampler: float64 (test/devices/sampling-reference.ts) over logits that are a hash of the tokens.
 * It holds the engine to the contract of src/device/sampling.ts: state is there when a step needs it, it says what the
 * sequence says, and nobody touches it while a step names its slot.
 */

import { randomWord } from '../../src/device/random.js';
import {
  ALL_FEATURES,
  FEATURE,
  HISTORY_FEATURES,
  RECORD_IDS,
  RECORD_LOGPROBS,
  RECORD_WORDS,
  type RowSpec,
  type SamplerRows,
  STATE_FEATURES,
} from '../../src/device/sampling.js';
import type { SamplingInputs } from '../../src/device/sampling-inputs.js';
import type { KvantError } from '../../src/errors.js';
import { type Outcome, type RowParams, sampleRow } from '../devices/sampling-reference.js';

interface State {
  readonly spec: RowSpec;
  readonly tokens: number[];
  readonly promptLength: number;
  mu: number;
  mask: Uint32Array | null;
}

/** Logits after tokens of this hash. */
export function oracleLogits(hash: number, vocab: number): Float32Array {
  return Float32Array.from({ length: vocab }, (_, v) => (randomWord(hash, 77, 0, 0, v) / 2 ** 32 - 0.5) * 8);
}

export class OracleRows implements SamplerRows {
  readonly features = ALL_FEATURES;
  readonly states = new Map<number, State>();
  /** Set to make the next syncs fail. */
  failNext: KvantError[] = [];
  /** Syncs wait so many turns of the event loop. */
  delay = 2;
  syncs = 0;
  readonly #names: (slot: number) => boolean;
  readonly #draws: (slot: number) => boolean;

  /** `names`: whether a step under way names a slot; `draws`: whether one draws for it. */
  constructor(names: (slot: number) => boolean, draws: (slot: number) => boolean) {
    this.#names = names;
    this.#draws = draws;
  }

  get slots(): number {
    return this.states.size;
  }

  get bytes(): number {
    return this.states.size * 1000;
  }

  async sync(slot: number, spec: RowSpec, history: Int32Array, promptLength: number): Promise<void> {
    this.#alone(slot);
    this.syncs++;
    const tokens = [...history];
    for (let i = 0; i < this.delay; i++) await new Promise((resolve) => setImmediate(resolve));
    const failure = this.failNext.shift();
    if (failure !== undefined) throw failure;
    if (spec.features & STATE_FEATURES) {
      this.states.set(slot, { spec, tokens, promptLength, mu: spec.mu, mask: null });
    }
  }

  setMask(slot: number, mask: Uint32Array): void {
    if (this.#draws(slot)) throw new Error(`slot ${slot} is masked while a step draws for it`);
    this.states.get(slot)!.mask = mask.slice();
  }

  take(slot: number, history: Int32Array, mu: number): void {
    if (this.#draws(slot)) throw new Error(`slot ${slot} takes tokens while a step draws for it`);
    const state = this.states.get(slot);
    if (state === undefined) return;
    const { spec, tokens } = state;
    if (spec.features & HISTORY_FEATURES && tokens.some((id, i) => history[i] !== id))
      throw new Error(`${history} does not continue ${tokens}`);
    tokens.splice(0, tokens.length, ...history);
    state.mu = mu;
  }

  release(slot: number): void {
    this.#alone(slot);
    this.states.delete(slot);
  }

  /** Draws a row whose sequence holds `tokens`; writes its record, if it wants one. */
  draw(
    inputs: SamplingInputs,
    row: number,
    slot: number,
    logits: Float32Array,
    tokens: readonly number[],
    record: Uint32Array | null,
  ): number {
    const features = inputs.features[row]!;
    const state = this.states.get(slot);
    if (features & STATE_FEATURES) {
      if (state === undefined) throw new Error(`slot ${slot} draws with ${features} and has no state`);
      if (state.spec.features & HISTORY_FEATURES && state.tokens.join() !== tokens.join())
        throw new Error(`the state of slot ${slot} is of ${state.tokens}, not ${tokens}`);
      if (features & ~state.spec.features) throw new Error(`slot ${slot} was not synced for ${features}`);
    }
    if (inputs.position[row] !== tokens.length) throw new Error(`slot ${slot} draws at the wrong position`);
    const params = rowParams(inputs, row, state ?? null, logits.length);
    const promptLength = state?.promptLength ?? 0;
    const outcome = sampleRow(logits, params, { history: tokens, promptLength }, state?.mu ?? 0);
    if (outcome.token < 0) return -1;
    if (record !== null) writeRecord(record, outcome);
    if (state !== undefined) {
      state.tokens.push(outcome.token);
      state.mu = outcome.mu;
    }
    return outcome.token;
  }

  #alone(slot: number): void {
    if (this.#names(slot)) throw new Error(`slot ${slot} is touched while a step names it`);
  }
}

/** A row's columns and state as the reference takes them. */
function rowParams(inputs: SamplingInputs, row: number, state: State | null, vocab: number): RowParams {
  const features = inputs.features[row]!;
  const on = (bit: number): boolean => (features & bit) !== 0;
  const spec = state?.spec;
  const ids = (from: Uint32Array): number[] => [...from];
  return {
    temperature: inputs.temperature[row]!,
    topK: inputs.topK[row]!,
    topP: inputs.topP[row]!,
    minP: inputs.minP[row]!,
    seed: [inputs.seedLow[row]!, inputs.seedHigh[row]!],
    choice: inputs.choice[row]!,
    ...(on(FEATURE.MASK) ? { mask: allowed(state!.mask!, vocab) } : {}),
    ...(on(FEATURE.BIAS)
      ? { bias: Object.fromEntries(ids(spec!.biasIds).map((id, i) => [id, spec!.biasValues[i]!])) }
      : {}),
    ...(on(FEATURE.BANNED) ? { banned: spec!.banned.map(ids) } : {}),
    ...(on(FEATURE.MIN_TOKENS) ? { withheld: ids(spec!.withheld) } : {}),
    ...(on(FEATURE.REPETITION)
      ? { repetition: { penalty: inputs.repetitionPenalty[row]!, window: inputs.repetitionWindow[row]! } }
      : {}),
    ...(on(FEATURE.COUNTS)
      ? { frequency: inputs.frequencyPenalty[row]!, presence: inputs.presencePenalty[row]! }
      : {}),
    ...(on(FEATURE.DRY)
      ? {
          dry: {
            multiplier: inputs.dryMultiplier[row]!,
            base: Math.exp(inputs.dryLogBase[row]!),
            allowedLength: inputs.dryAllowedLength[row]!,
            window: inputs.dryWindow[row]!,
            breakers: ids(spec!.breakers.ids),
            breakerSequences: spec!.breakers.sequences.map(ids),
          },
        }
      : {}),
    ...(on(FEATURE.MIROSTAT)
      ? { mirostat: { tau: inputs.mirostatTau[row]!, eta: inputs.mirostatEta[row]! } }
      : {}),
    ...(on(FEATURE.TYPICAL) ? { typicalP: inputs.typicalP[row]! } : {}),
    ...(on(FEATURE.SIGMA) ? { topNSigma: inputs.topNSigma[row]! } : {}),
    ...(on(FEATURE.XTC)
      ? { xtc: { probability: inputs.xtcProbability[row]!, threshold: inputs.xtcThreshold[row]! } }
      : {}),
    ...(on(FEATURE.FORCED) ? { forced: inputs.forced[row]! } : {}),
    ...(on(FEATURE.LOGPROBS) ? { logprobs: inputs.topLogprobs[row]!, processed: on(FEATURE.PROCESSED) } : {}),
  };
}

function allowed(mask: Uint32Array, vocab: number): number[] {
  return Array.from({ length: vocab }, (_, v) => v).filter((v) => (mask[v >> 5]! >>> (v & 31)) & 1);
}

function writeRecord(words: Uint32Array, { logprobs, mu }: Outcome): void {
  const floats = new Float32Array(words.buffer, words.byteOffset, RECORD_WORDS);
  floats[2] = mu;
  if (logprobs === null) return;
  floats[0] = logprobs.chosen;
  words[1] = logprobs.rank;
  words[3] = logprobs.ids.length;
  words.set(logprobs.ids, RECORD_IDS);
  floats.set(logprobs.values, RECORD_LOGPROBS);
}
