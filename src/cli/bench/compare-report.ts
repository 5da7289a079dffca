/** What `kvant bench compare` found: our figures, the peer's, and what the device could do at best, with ratios. */
import type { BenchResult } from './cases.js';
import type { Work } from './floor-count.js';
import type { Ceilings } from './floor-measure.js';
import type { BarGroup } from './svg-bars.js';

export const COMPARE_CASES = ['decode', 'prefill'] as const;
export type CompareCase = (typeof COMPARE_CASES)[number];

export const BOUNDS = ['bytes', 'operations', 'launches'] as const;
export type Bound = (typeof BOUNDS)[number];

/** The least time that a case can take, for each thing it needs; the largest of them is the floor. */
export interface Floor extends Work {
  /** Milliseconds; null where the ceiling could not be measured. */
  readonly parts: Readonly<Record<Bound, number | null>>;
  readonly ms: number;
  readonly boundBy: Bound;
  readonly tokensPerSecond: number;
  /** Our rate over the floor’s. */
  readonly share: number;
}

export interface CompareResult {
  readonly case: CompareCase;
  readonly rows: number;
  readonly prompt: number;
  readonly generate: number;
  readonly tokensPerSecond: number;
  /** Of a step of decoding, or of all prompts. */
  readonly ms: number;
  readonly peer: { readonly tokensPerSecond: number; readonly ratio: number } | null;
  readonly floor: Floor | null;
  /** The whole run that the rate is taken from. */
  readonly measured: BenchResult;
}

export interface CompareReport {
  readonly model: string;
  readonly vocab: number;
  readonly weightBytes: number;
  readonly kv: string;
  readonly device: string;
  readonly features: readonly string[];
  readonly date: string;
  readonly versions: Readonly<Record<string, string>>;
  readonly ceilings: Ceilings;
  /** The file of the peer’s figures. */
  readonly peer: string | null;
  readonly results: readonly CompareResult[];
}

/** Null where no ceiling could be measured. */
export function floorOf(
  work: Work,
  ceilings: Ceilings,
  tokens: number,
  tokensPerSecond: number,
): Floor | null {
  const { readBandwidth, products, launchSeconds } = ceilings;
  const parts = {
    bytes: readBandwidth === null ? null : (1000 * work.bytes) / readBandwidth,
    operations: products === null ? null : (1000 * work.operations) / products.operationsPerSecond,
    launches: launchSeconds === null ? null : 1000 * work.launches * launchSeconds,
  };
  const boundBy = BOUNDS.reduce((most, one) => ((parts[one] ?? 0) > (parts[most] ?? 0) ? one : most));
  const ms = parts[boundBy] ?? 0;
  if (ms === 0) return null;
  const rate = (1000 * tokens) / ms;
  return { ...work, parts, ms, boundBy, tokensPerSecond: rate, share: tokensPerSecond / rate };
}

/** A case as it was measured, beside the peer's rate and the work that it is. */
export function compared(
  name: CompareCase,
  measured: BenchResult,
  work: Work,
  ceilings: Ceilings,
  peer: number | null,
): CompareResult {
  const { rows, prompt, generate } = measured;
  const decodes = name === 'decode';
  const tokensPerSecond = decodes ? measured.decodeTokensPerSecond : measured.prefillTokensPerSecond;
  const tokens = decodes ? rows : rows * prompt;
  return {
    case: name,
    rows,
    prompt,
    generate,
    tokensPerSecond,
    ms: (1000 * tokens) / tokensPerSecond,
    peer: peer === null ? null : { tokensPerSecond: peer, ratio: tokensPerSecond / peer },
    floor: floorOf(work, ceilings, tokens, tokensPerSecond),
    measured,
  };
}

export function compareText(report: CompareReport): string {
  const { model, vocab, weightBytes, kv, device, ceilings, peer, results } = report;
  const { readBandwidth, products, launchSeconds } = ceilings;
  const reads = readBandwidth === null ? 'reads not measured' : `reads ${short(readBandwidth / 1e9)} GB/s`;
  const product =
    products === null
      ? 'no two measurements of products agreed'
      : `products ${short(products.operationsPerSecond / 1e12)} TOP/s (${products.size}³)`;
  const launch =
    launchSeconds === null
      ? 'the cost of a launch is lost in noise'
      : `a launch ${short(1e6 * launchSeconds)} µs`;
  const head = ['case', 'rows', 'prompt', 'tok/s', 'ms', 'peer tok/s', 'ratio', 'floor tok/s', 'reached'];
  const lines = [
    [...head, 'bytes ms', 'operations ms', 'launches ms', 'bound by'],
    ...results.map((one) => [
      one.case,
      String(one.rows),
      String(one.prompt),
      short(one.tokensPerSecond),
      short(one.ms),
      one.peer === null ? '–' : short(one.peer.tokensPerSecond),
      one.peer === null ? '–' : one.peer.ratio.toFixed(2),
      one.floor === null ? '–' : short(one.floor.tokensPerSecond),
      one.floor === null ? '–' : `${(100 * one.floor.share).toFixed(0)} %`,
      ...BOUNDS.map((bound) => {
        const part = one.floor?.parts[bound] ?? null;
        return part === null ? '–' : short(part);
      }),
      one.floor?.boundBy ?? '–',
    ]),
  ];
  const widths = lines[0]!.map((_, column) => Math.max(...lines.map((line) => line[column]!.length)));
  const table = lines.map((line) =>
    line.map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('  '),
  );
  return [
    `${model}, vocabulary ${vocab}, ${(weightBytes / 1e6).toFixed(0)} MB of weights, KV ${kv}, on ${device}`,
    `measured in this run: ${reads}, ${product}, ${launch}${peer === null ? '' : `; peer: ${peer}`}`,
    '',
    ...table,
    '',
  ].join('\n');
}

/** A group of bars for each case: ours, the peer's, and the floor's. */
export function compareBars({ results }: Pick<CompareReport, 'results'>): BarGroup[] {
  return results.map((one) => ({
    name: `${one.case}, ${one.rows} ${one.rows === 1 ? 'row' : 'rows'}`,
    bars: [
      { series: 0, value: one.tokensPerSecond, label: short(one.tokensPerSecond) },
      ...(one.peer === null
        ? []
        : [
            {
              series: 1,
              value: one.peer.tokensPerSecond,
              label: `${short(one.peer.tokensPerSecond)} (ours ${one.peer.ratio.toFixed(2)} ×)`,
            },
          ]),
      ...(one.floor === null
        ? []
        : [
            {
              series: 2,
              value: one.floor.tokensPerSecond,
              label: `${short(one.floor.tokensPerSecond)} (${one.floor.boundBy}; ours ${(100 * one.floor.share).toFixed(0)} %)`,
            },
          ]),
    ],
  }));
}

/** Three figures, and thousands apart. */
function short(value: number): string {
  if (value >= 100) return Math.round(value).toLocaleString('en-US');
  return String(Number(value.toPrecision(3)));
}
