/**
 * The frequencies of rotary position embedding, in float64.
 *
 * Plain RoPE (Su et al., arXiv:2104.09864) turns pair i of a head by `position · θ_i` with
 * `θ_i = base^(−2i / dims)`. The variants stretch a trained model over longer contexts:
 *
 * - `linear` (position interpolation, Chen et al., arXiv:2306.15595): `θ_i / factor`.
 * - `llama3` (Llama 3.1's model code): by wavelength `λ = 2π / θ_i`. Short ones (λ < original / high) stay, long ones
 *   (λ > original / low) are divided by the factor, between them the two are mixed with
 *   `s = (original / λ − low) / (high − low)`: `(1 − s) · θ_i / factor + s · θ_i`.
 * - `yarn` (Peng et al., arXiv:2309.00071, §3.2-3.4): the same idea with a linear ramp over the pair's index. The index
 *   whose pair turns r times within the original context is `dims · ln(original / 2πr) / (2 ln base)`; the ramp
 *   goes from the one for `beta_fast` to the one for `beta_slow`. Scores are also sharpened: cos and sin are
 *   multiplied by `0.1 · ln(factor) + 1`, or by the quotient of two such terms where `mscale` and `mscale_all_dim` are
 *   given.
 * - `dynamic` (NTK-aware, base grown with the length of the sequence): it changes what earlier positions were
 *   rotated by, which a cache of rotated keys cannot follow. Up to the trained length it equals plain RoPE, and so
 *   it is taken as that, with contexts limited to that length.
 * - `ntk-alpha` (Hunyuan, whose configs call it dynamic): the base is grown once, to `base · α^(dims / (dims − 2))`.
 * - `proportional` (transformers' name): the first `turning` pairs turn by `θ_i / factor`, the others stand still. Exponents and
 *   pairs are those of the whole head, where a partial rotation has those of the part.
 * - `longrope` (Ding et al., arXiv:2402.13753; Phi-3): `θ_i / factor_i` with one list of factors for contexts up to the
 *   original one and another for longer ones. Keys of a cache must all have one of them: the served context decides.
 *
 * Where only a part of each head rotates, `dims` is its size; an odd size counts as it is in the exponent.
 */

/** As transformers calls them in config.json. */
export const ROPE_TYPES = [
  'default',
  'linear',
  'llama3',
  'yarn',
  'longrope',
  'dynamic',
  'proportional',
] as const;

export type RopeParameters =
  | { readonly type: 'default' | 'dynamic'; readonly theta: number }
  | { readonly type: 'ntk-alpha'; readonly theta: number; readonly alpha: number }
  | {
      readonly type: 'longrope';
      readonly theta: number;
      /** `[dims / 2]` for contexts up to the original one, and for longer ones. */
      readonly shortFactors: readonly number[];
      readonly longFactors: readonly number[];
      readonly originalMaxPositions: number;
      /** Multiplies cos and sin. */
      readonly attentionFactor: number;
    }
  | { readonly type: 'linear'; readonly theta: number; readonly factor: number }
  | {
      readonly type: 'proportional';
      readonly theta: number;
      readonly factor: number;
      /** Pairs that turn. */
      readonly turning: number;
    }
  | {
      readonly type: 'llama3';
      readonly theta: number;
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      /** Context the model was trained on before it was stretched. */
      readonly originalMaxPositions: number;
    }
  | {
      readonly type: 'yarn';
      readonly theta: number;
      readonly factor: number;
      readonly originalMaxPositions: number;
      readonly betaFast: number;
      readonly betaSlow: number;
      /** Multiplies cos and sin. */
      readonly attentionFactor: number;
      /** Round the ramp's ends outwards to whole indices. */
      readonly truncate: boolean;
    };

export interface RopeFrequencies {
  /** `[⌈dims / 2⌉]` radians a position. */
  readonly frequencies: Float64Array;
  /** Multiplies cos and sin of both q and k. */
  readonly attentionFactor: number;
}

/**
 * @param dims leading elements of a head that rotate
 * @param context longest context in tokens that is served
 * @example ropeFrequencies({ type: 'default', theta: 10000 }, 128, 4096).frequencies[0] // 1
 */
export function ropeFrequencies(rope: RopeParameters, dims: number, context: number): RopeFrequencies {
  const frequencies = new Float64Array(Math.ceil(dims / 2));
  const base = rope.type === 'ntk-alpha' ? rope.theta * rope.alpha ** (dims / (dims - 2)) : rope.theta;
  for (let i = 0; i < frequencies.length; i++) frequencies[i] = base ** ((-2 * i) / dims);
  switch (rope.type) {
    case 'default':
    case 'dynamic':
    case 'ntk-alpha':
      return { frequencies, attentionFactor: 1 };
    case 'longrope': {
      const factors = isLong(rope, context) ? rope.longFactors : rope.shortFactors;
      for (let i = 0; i < frequencies.length; i++) frequencies[i]! /= factors[i]!;
      return { frequencies, attentionFactor: rope.attentionFactor };
    }
    case 'linear':
      for (let i = 0; i < frequencies.length; i++) frequencies[i]! /= rope.factor;
      return { frequencies, attentionFactor: 1 };
    case 'proportional':
      for (let i = 0; i < frequencies.length; i++)
        frequencies[i] = i < rope.turning ? frequencies[i]! / rope.factor : 0;
      return { frequencies, attentionFactor: 1 };
    case 'llama3':
      for (let i = 0; i < frequencies.length; i++) frequencies[i] = llama3(frequencies[i]!, rope);
      return { frequencies, attentionFactor: 1 };
    case 'yarn':
      yarn(frequencies, rope, dims);
      return { frequencies, attentionFactor: rope.attentionFactor };
  }
}

/** Whether a context takes the factors of longer ones than the model was first trained on. */
function isLong(
  { originalMaxPositions }: { readonly originalMaxPositions: number },
  context: number,
): boolean {
  return context > originalMaxPositions;
}

/**
 * Which of its frequencies a rotation takes at a context, as text: keys that were rotated by others must not meet.
 * Empty where all contexts have the same.
 */
export function ropeVariant(rope: RopeParameters, context: number): string {
  if (rope.type !== 'longrope') return '';
  return isLong(rope, context) ? 'long' : 'short';
}

function llama3(frequency: number, rope: Extract<RopeParameters, { type: 'llama3' }>): number {
  const { factor, lowFreqFactor, highFreqFactor, originalMaxPositions } = rope;
  // Turns within the original context: original / λ.
  const turns = (originalMaxPositions * frequency) / (2 * Math.PI);
  if (turns > highFreqFactor) return frequency;
  if (turns < lowFreqFactor) return frequency / factor;
  const smooth = (turns - lowFreqFactor) / (highFreqFactor - lowFreqFactor);
  return ((1 - smooth) * frequency) / factor + smooth * frequency;
}

function yarn(
  frequencies: Float64Array,
  rope: Extract<RopeParameters, { type: 'yarn' }>,
  dims: number,
): void {
  const indexOf = (turns: number): number =>
    (dims * Math.log(rope.originalMaxPositions / (turns * 2 * Math.PI))) / (2 * Math.log(rope.theta));
  let low = indexOf(rope.betaFast);
  let high = indexOf(rope.betaSlow);
  if (rope.truncate) {
    low = Math.floor(low);
    high = Math.ceil(high);
  }
  low = Math.max(low, 0);
  high = Math.min(high, dims - 1);
  // A ramp of no width is a step.
  const width = high === low ? 0.001 : high - low;
  for (let i = 0; i < frequencies.length; i++) {
    const stretched = Math.min(1, Math.max(0, (i - low) / width));
    frequencies[i]! *= 1 - stretched + stretched / rope.factor;
  }
}

/**
 * The longest context the rotation was made for. `max_position_embeddings` as published means the stretched length
 * for llama3, the trained one for linear, and either for yarn.
 */
export function ropeMaxPositions(rope: RopeParameters, maxPositions: number): number {
  if (rope.type === 'linear') return Math.floor(maxPositions * rope.factor);
  if (rope.type === 'yarn')
    return Math.max(maxPositions, Math.floor(rope.originalMaxPositions * rope.factor));
  return maxPositions;
}
