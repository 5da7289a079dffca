/**
 * The per-row parameters of a step and their one order: devices lay the columns out as this list says. Words are u32
 * or f32, four bytes each. Appended to, never reordered: kernels know the places.
 */
export const SAMPLING_FIELDS = [
  ['temperature', 'f32'],
  ['topK', 'u32'],
  ['topP', 'f32'],
  ['minP', 'f32'],
  ['seedLow', 'u32'],
  ['seedHigh', 'u32'],
  ['choice', 'u32'],
  ['position', 'u32'],
  ['features', 'u32'],
  ['typicalP', 'f32'],
  ['topNSigma', 'f32'],
  ['xtcProbability', 'f32'],
  ['xtcThreshold', 'f32'],
  ['mirostatTau', 'f32'],
  ['mirostatEta', 'f32'],
  ['repetitionPenalty', 'f32'],
  ['repetitionWindow', 'u32'],
  ['frequencyPenalty', 'f32'],
  ['presencePenalty', 'f32'],
  ['dryMultiplier', 'f32'],
  ['dryLogBase', 'f32'],
  ['dryAllowedLength', 'u32'],
  ['dryWindow', 'u32'],
  ['topLogprobs', 'u32'],
  ['forced', 'u32'],
] as const;

export type SamplingField = (typeof SAMPLING_FIELDS)[number][0];

/** Words of a row. */
export const SAMPLING_WORDS = SAMPLING_FIELDS.length;

/** Values that ask for nothing; 0 for the fields not named. */
const OFF: Partial<Record<SamplingField, number>> = { topP: 1, typicalP: 1, repetitionPenalty: 1 };

/**
 * Per-row sampling parameters, columns of one value a row. What they mean, and in which order they act, is in
 * sampling.ts. A column is looked at only if its bit in `features` is set (FEATURE); `temperature` 0, `topK` 0,
 * `topP` 1, `minP` 0 are off by value.
 */
export class SamplingInputs {
  readonly temperature: Float32Array;
  readonly topK: Uint32Array;
  readonly topP: Float32Array;
  readonly minP: Float32Array;
  /** The random number of token v is keyed by (seed, choice, position, v) and by nothing else: see random.ts. */
  readonly seedLow: Uint32Array;
  readonly seedHigh: Uint32Array;
  readonly choice: Uint32Array;
  /** Absolute position of the token being drawn: the tokens that the sequence has. */
  readonly position: Uint32Array;
  /** Bits of FEATURE. */
  readonly features: Uint32Array;
  readonly typicalP: Float32Array;
  readonly topNSigma: Float32Array;
  readonly xtcProbability: Float32Array;
  readonly xtcThreshold: Float32Array;
  readonly mirostatTau: Float32Array;
  readonly mirostatEta: Float32Array;
  readonly repetitionPenalty: Float32Array;
  /** Tokens that repetition looks back on; 0: all. */
  readonly repetitionWindow: Uint32Array;
  readonly frequencyPenalty: Float32Array;
  readonly presencePenalty: Float32Array;
  readonly dryMultiplier: Float32Array;
  /** ln of DRY's base, ≥ 0. */
  readonly dryLogBase: Float32Array;
  readonly dryAllowedLength: Uint32Array;
  /** Tokens that DRY looks back on; 0: all. */
  readonly dryWindow: Uint32Array;
  /** Alternatives wanted beside the token's own log-probability, 0 to MAX_TOP_LOGPROBS. */
  readonly topLogprobs: Uint32Array;
  readonly forced: Uint32Array;
  /** The same arrays in the order of SAMPLING_FIELDS. */
  readonly columns: readonly (Float32Array | Uint32Array)[];

  constructor(rows: number) {
    const columns: (Float32Array | Uint32Array)[] = [];
    const column = <T extends Float32Array | Uint32Array>(array: T): T => {
      const [field] = SAMPLING_FIELDS[columns.length]!;
      array.fill(OFF[field] ?? 0);
      columns.push(array);
      return array;
    };
    const f32 = (): Float32Array => column(new Float32Array(rows));
    const u32 = (): Uint32Array => column(new Uint32Array(rows));
    this.temperature = f32();
    this.topK = u32();
    this.topP = f32();
    this.minP = f32();
    this.seedLow = u32();
    this.seedHigh = u32();
    this.choice = u32();
    this.position = u32();
    this.features = u32();
    this.typicalP = f32();
    this.topNSigma = f32();
    this.xtcProbability = f32();
    this.xtcThreshold = f32();
    this.mirostatTau = f32();
    this.mirostatEta = f32();
    this.repetitionPenalty = f32();
    this.repetitionWindow = u32();
    this.frequencyPenalty = f32();
    this.presencePenalty = f32();
    this.dryMultiplier = f32();
    this.dryLogBase = f32();
    this.dryAllowedLength = u32();
    this.dryWindow = u32();
    this.topLogprobs = u32();
    this.forced = u32();
    this.columns = columns;
  }

  /** Sets a row to greedy without extras. */
  clearRow(row: number): void {
    for (let i = 0; i < SAMPLING_WORDS; i++) this.columns[i]![row] = OFF[SAMPLING_FIELDS[i]![0]] ?? 0;
  }
}

/** Where a field stands in a row of words. */
export function samplingField(name: SamplingField): number {
  return SAMPLING_FIELDS.findIndex(([field]) => field === name);
}
