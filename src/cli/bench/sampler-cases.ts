/** What `kvant bench sampler` compares with greedy rows without extras, and how near to them it is meant to be. */
import type { SamplingOptions } from '../../sampling/options.js';

export interface SamplerCase {
  readonly name: string;
  /** Sampling of a row. */
  readonly sampling: (row: number) => SamplingOptions;
  /** Least share of the greedy rate: on a GPU, and on a CPU where that is another. Null: no aim. */
  readonly aim: { readonly webgpu: number | null; readonly cpu: number | null };
  /** Only with so many rows or more. */
  readonly leastRows?: number;
}

const PENALTIES: SamplingOptions = {
  repetitionPenalty: 1.1,
  frequencyPenalty: 0.3,
  presencePenalty: 0.3,
  dryMultiplier: 0.8,
  logitBias: { 11: -5, 13: 2 },
};
const FILTERS: SamplingOptions = { temperature: 0.8, topK: 50, topP: 0.95, minP: 0.02 };

/** Rows that have nothing in common. */
const MIXED: readonly SamplingOptions[] = [
  {},
  { temperature: 0.7 },
  { temperature: 0.8, topK: 40 },
  { temperature: 1, topP: 0.9 },
  { repetitionPenalty: 1.2 },
  { temperature: 0.9, frequencyPenalty: 0.5, presencePenalty: 0.2 },
  { dryMultiplier: 0.8, temperature: 0.6 },
  { temperature: 1, typicalP: 0.9 },
  { temperature: 1.2, topNSigma: 1.5 },
  { temperature: 1, xtcProbability: 0.5 },
  { temperature: 1, mirostat: 2 },
  { logitBias: { 5: -100, 9: 3 }, minP: 0.05, temperature: 1 },
  { logprobs: true, topLogprobs: 5 },
  { ...PENALTIES, ...FILTERS },
  { temperature: 0.5, repetitionPenalty: 1.1, repetitionContextSize: 64 },
  { minTokens: 6, suppressTokens: [1, 2, 3], temperature: 0.9, topP: 0.8 },
];

export const GREEDY = 'greedy';

export const SAMPLER_CASES: readonly SamplerCase[] = [
  { name: GREEDY, sampling: () => ({}), aim: { webgpu: null, cpu: null } },
  { name: 'temperature', sampling: () => ({ temperature: 0.8 }), aim: { webgpu: null, cpu: null } },
  { name: 'top-k + top-p + min-p', sampling: () => FILTERS, aim: { webgpu: null, cpu: null } },
  { name: 'repetition', sampling: () => ({ repetitionPenalty: 1.1 }), aim: { webgpu: 0.99, cpu: 0.97 } },
  {
    name: 'frequency + presence',
    sampling: () => ({ frequencyPenalty: 0.3, presencePenalty: 0.3 }),
    aim: { webgpu: 0.99, cpu: 0.97 },
  },
  { name: 'DRY', sampling: () => ({ dryMultiplier: 0.8 }), aim: { webgpu: 0.99, cpu: 0.97 } },
  { name: 'all penalties', sampling: () => PENALTIES, aim: { webgpu: null, cpu: 0.97 } },
  {
    name: 'all penalties + filters',
    sampling: () => ({ ...PENALTIES, ...FILTERS }),
    aim: { webgpu: 0.95, cpu: null },
  },
  {
    name: 'top-5 logprobs',
    sampling: () => ({ logprobs: true, topLogprobs: 5 }),
    aim: { webgpu: 0.97, cpu: null },
  },
  {
    name: 'all rows different',
    sampling: (row) => {
      // No two rows alike: those that share a kind differ in their seed and temperature.
      const kind = MIXED[row % MIXED.length]!;
      const { temperature } = kind;
      const warmer = temperature ? { temperature: temperature + Math.floor(row / MIXED.length) / 50 } : {};
      return { ...kind, ...warmer, seed: row };
    },
    aim: { webgpu: 0.95, cpu: null },
    leastRows: 2,
  },
];

/** The cases that make sense for so many rows. */
export function casesFor(rows: number): readonly SamplerCase[] {
  return SAMPLER_CASES.filter(({ leastRows = 1 }) => rows >= leastRows);
}
