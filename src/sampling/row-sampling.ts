/** From a request's parameters to what a device takes: feature bits, the state of a row, the columns of a step. */

import { FEATURE, PENALTY_FEATURES, type RowSpec } from '../device/sampling.js';
import type { SamplingField, SamplingInputs } from '../device/sampling-inputs.js';
import { suppressedIds } from './draws-left.js';
import type { SamplingParams } from './options.js';
import type { TokenRules } from './token-rules.js';

/** What changes from draw to draw. */
export interface DrawState {
  /** Tokens that the sequence has. */
  readonly position: number;
  /** Of those, drawn ones. */
  readonly generated: number;
  readonly choice: number;
  readonly seedLow: number;
  readonly seedHigh: number;
  /** The draw is masked. */
  readonly masked: boolean;
  /** The id that is taken whatever is drawn, −1 for none. */
  readonly forced: number;
}

/** One for a request; its choices share it. */
export class RowSampling {
  /** Every feature that a step of the row may have. 0: nothing is kept on the device. */
  readonly features: number;
  readonly #params: SamplingParams;
  readonly #rules: TokenRules;
  readonly #withheld: Uint32Array;
  readonly #steady: number;

  /** `endIds`: what ends an answer. `constrained`: draws may be masked and forced. */
  constructor(params: SamplingParams, rules: TokenRules, endIds: Iterable<number>, constrained: boolean) {
    this.#params = params;
    this.#rules = rules;
    this.#withheld = params.minTokens > 0 ? Uint32Array.from(new Set(endIds)).sort() : new Uint32Array(0);
    this.#steady = steadyFeatures(params, rules, constrained);
    this.features =
      this.#steady |
      (this.#withheld.length > 0 ? FEATURE.MIN_TOKENS : 0) |
      (constrained ? FEATURE.MASK | FEATURE.FORCED : 0);
  }

  /** μ before the first draw. */
  get firstMu(): number {
    return 2 * (this.#params.mirostat?.tau ?? 0);
  }

  /** Whether results hold a record for the row. */
  get recorded(): boolean {
    return (this.features & (FEATURE.LOGPROBS | FEATURE.MIROSTAT)) !== 0;
  }

  /** Whether each token has to be drawn, a forced one too, as something is told of every draw. */
  get drawsAll(): boolean {
    return this.logprobs;
  }

  get logprobs(): boolean {
    return (this.features & FEATURE.LOGPROBS) !== 0;
  }

  spec(mu: number): RowSpec {
    const { biasIds, biasValues, banned, breakers } = this.#rules;
    return {
      features: this.features,
      repetitionWindow: this.#params.repetitionContextSize,
      dryWindow: this.#params.dry?.window ?? 0,
      biasIds,
      biasValues,
      withheld: this.#withheld,
      banned,
      breakers,
      mu,
    };
  }

  /**
   * Whether the request leaves nothing to draw after these tokens, `generated` of which were drawn: what is suppressed, what may
   * not end the answer yet and what would complete a banned sequence are all `vocabSize` ids.
   */
  forbidsAll(history: Int32Array, generated: number, vocabSize: number): boolean {
    const ids = suppressedIds(this.#rules);
    if (generated < this.#params.minTokens) for (const id of this.#withheld) ids.add(id);
    for (const sequence of this.#rules.banned) {
      const from = history.length - sequence.length + 1;
      if (from >= 0 && sequence.subarray(0, -1).every((id, i) => history[from + i] === id))
        ids.add(sequence[sequence.length - 1]!);
    }
    let known = 0;
    for (const id of ids) if (id < vocabSize) known++;
    return known >= vocabSize;
  }

  fill(inputs: SamplingInputs, row: number, draw: DrawState): void {
    const p = this.#params;
    inputs.temperature[row] = p.temperature;
    inputs.topK[row] = p.topK;
    inputs.topP[row] = p.topP;
    inputs.minP[row] = p.minP;
    inputs.seedLow[row] = draw.seedLow;
    inputs.seedHigh[row] = draw.seedHigh;
    inputs.choice[row] = draw.choice;
    inputs.position[row] = draw.position;
    let features = this.#steady;
    if (this.features !== 0) {
      if (this.#withheld.length > 0 && draw.generated < p.minTokens) features |= FEATURE.MIN_TOKENS;
      if (draw.masked) features |= FEATURE.MASK;
      if (draw.forced >= 0) features |= FEATURE.FORCED;
      this.#fillFeatures(inputs, row, draw);
    }
    inputs.features[row] = features;
  }

  #fillFeatures(inputs: SamplingInputs, row: number, draw: DrawState): void {
    for (const [column, value] of COLUMNS) inputs[column][row] = value(this.#params);
    inputs.forced[row] = Math.max(0, draw.forced);
  }
}

/** What a request puts into the columns that stay the same from draw to draw. Kernels read them where a feature says so. */
export const COLUMNS: readonly (readonly [column: SamplingField, value: (p: SamplingParams) => number])[] = [
  ['typicalP', (p) => p.typicalP],
  ['topNSigma', (p) => p.topNSigma],
  ['xtcProbability', (p) => p.xtc?.probability ?? 0],
  ['xtcThreshold', (p) => p.xtc?.threshold ?? 0],
  ['mirostatTau', (p) => p.mirostat?.tau ?? 0],
  ['mirostatEta', (p) => p.mirostat?.eta ?? 0],
  ['repetitionPenalty', (p) => p.repetitionPenalty],
  ['repetitionWindow', (p) => p.repetitionContextSize],
  ['frequencyPenalty', (p) => p.frequencyPenalty],
  ['presencePenalty', (p) => p.presencePenalty],
  ['dryMultiplier', (p) => p.dry?.multiplier ?? 0],
  ['dryLogBase', (p) => Math.log(p.dry?.base ?? 1)],
  ['dryAllowedLength', (p) => p.dry?.allowedLength ?? 0],
  ['dryWindow', (p) => p.dry?.window ?? 0],
  ['topLogprobs', (p) => p.logprobs ?? 0],
];

type Wanted = (p: SamplingParams, rules: TokenRules) => boolean;
const drawn =
  (wanted: (p: SamplingParams) => boolean): Wanted =>
  (p) =>
    p.temperature > 0 && wanted(p);

/** Which parameters ask for which feature of the kernels, in every draw of the request. */
export const WANTED: readonly (readonly [feature: number, wanted: Wanted])[] = [
  [FEATURE.BIAS, (_, rules) => rules.biasIds.length > 0],
  [FEATURE.BANNED, (_, rules) => rules.banned.length > 0],
  [FEATURE.REPETITION, (p) => p.repetitionPenalty !== 1],
  [FEATURE.COUNTS, (p) => p.frequencyPenalty !== 0 || p.presencePenalty !== 0],
  [FEATURE.DRY, (p) => p.dry !== null],
  [FEATURE.MIROSTAT, drawn((p) => p.mirostat !== null)],
  [FEATURE.TYPICAL, drawn((p) => p.typicalP < 1)],
  [FEATURE.SIGMA, drawn((p) => p.topNSigma > 0)],
  [FEATURE.XTC, drawn((p) => p.xtc !== null)],
  [FEATURE.LOGPROBS, (p) => p.logprobs !== null],
];

/** Features that every draw of the request has. */
function steadyFeatures(p: SamplingParams, rules: TokenRules, constrained: boolean): number {
  let features = 0;
  for (const [feature, wanted] of WANTED) if (wanted(p, rules)) features |= feature;
  // Without penalties the processed logits are the raw ones.
  const penalised = (features & PENALTY_FEATURES) !== 0 || p.minTokens > 0 || constrained;
  if (p.logprobs !== null && p.logprobsMode === 'processed' && penalised) features |= FEATURE.PROCESSED;
  return features;
}
