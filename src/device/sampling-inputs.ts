/**
 * The per-row parameters of a step and their one order: devices lay the columns out as this table says. Words are u32
 * or f32, four bytes each. Appended to, never reordered: kernels know the places. The third entry is the value that asks
 * for nothing; without one it is 0.
 */
export const SAMPLING_FIELDS = [
  ['temperature', 'f32'],
  ['topK', 'u32'],
  ['topP', 'f32', 1],
  ['minP', 'f32'],
  // The random number of token v is keyed by (seed, choice, position, v) and by nothing else: see random.ts.
  ['seedLow', 'u32'],
  ['seedHigh', 'u32'],
  ['choice', 'u32'],
  // Absolute position of the token being drawn: the tokens that the sequence has.
  ['position', 'u32'],
  // Bits of FEATURE.
  ['features', 'u32'],
  ['typicalP', 'f32', 1],
  ['topNSigma', 'f32'],
  ['xtcProbability', 'f32'],
  ['xtcThreshold', 'f32'],
  ['mirostatTau', 'f32'],
  ['mirostatEta', 'f32'],
  ['repetitionPenalty', 'f32', 1],
  // Tokens that repetition looks back on; 0: all.
  ['repetitionWindow', 'u32'],
  ['frequencyPenalty', 'f32'],
  ['presencePenalty', 'f32'],
  ['dryMultiplier', 'f32'],
  // ln of DRY's base, ≥ 0.
  ['dryLogBase', 'f32'],
  ['dryAllowedLength', 'u32'],
  // Tokens that DRY looks back on; 0: all.
  ['dryWindow', 'u32'],
  // Alternatives wanted beside the token's own log-probability, 0 to MAX_TOP_LOGPROBS.
  ['topLogprobs', 'u32'],
  // The id that is taken whatever is drawn, where features has FORCED.
  ['forced', 'u32'],
] as const satisfies readonly Column[];

type Column = readonly [name: string, type: 'f32' | 'u32', off?: number];
type Entry = (typeof SAMPLING_FIELDS)[number];
export type SamplingField = Entry[0];

/** One array of a value a row for each field. */
type Columns = {
  readonly [E in Entry as E[0]]: E[1] extends 'f32' ? Float32Array : Uint32Array;
};

/** Words of a row. */
export const SAMPLING_WORDS = SAMPLING_FIELDS.length;

const OFF: readonly number[] = SAMPLING_FIELDS.map(([, , off]: Column) => off ?? 0);

class AllColumns {
  /** The columns in the order of SAMPLING_FIELDS. */
  readonly columns: readonly (Float32Array | Uint32Array)[];

  constructor(rows: number) {
    this.columns = SAMPLING_FIELDS.map(([, type], i) =>
      (type === 'f32' ? new Float32Array(rows) : new Uint32Array(rows)).fill(OFF[i]!),
    );
    // Assigned, not defined: engines read plain properties five times as fast before they are warm.
    Object.assign(this, Object.fromEntries(SAMPLING_FIELDS.map(([name], i) => [name, this.columns[i]])));
  }

  /** Sets a row to greedy without extras. */
  clearRow(row: number): void {
    for (let i = 0; i < SAMPLING_WORDS; i++) this.columns[i]![row] = OFF[i]!;
  }
}

/**
 * Per-row sampling parameters, columns of one value a row. What they mean, and in which order they act, is in
 * sampling.ts. A column is looked at only if its bit in `features` is set (FEATURE); `temperature` 0, `topK` 0,
 * `topP` 1, `minP` 0 are off by value.
 *
 * @example const inputs = new SamplingInputs(8); inputs.temperature[3] = 0.7
 */
export const SamplingInputs = AllColumns as new (rows: number) => AllColumns & Columns;
export type SamplingInputs = AllColumns & Columns;

/** Where a field stands in a row of words. */
export function samplingField(name: SamplingField): number {
  return SAMPLING_FIELDS.findIndex(([field]) => field === name);
}
