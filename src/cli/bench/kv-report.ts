/** What `kvant bench kv` found: medians, ratios to the fastest float cache, shares of the read bandwidth. */
import { isFloatKv } from '../../device/kv.js';
import { parseKvFormat } from '../../kv/formats.js';
import type { KvLayerInfo } from '../../kv/policy.js';

/** Times of one format, in seconds, one for each round. */
export interface Samples {
  readonly name: string;
  readonly layers: readonly KvLayerInfo[];
  readonly bytesPerToken: number;
  readonly poolBytes: number;
  readonly decode: number[];
  readonly attend: number[];
  readonly prefill: number[];
}

export interface FormatResult {
  readonly name: string;
  readonly layers: readonly KvLayerInfo[];
  /** Of K and V over all layers, those that stay float included. */
  readonly bytesPerToken: number;
  readonly poolBytes: number;
  readonly decode: {
    readonly stepMs: number;
    /** Of all rows. */
    readonly tokensPerSecond: number;
    /** Against the fastest float cache of the run. */
    readonly ratio: number | null;
    readonly samplesMs: readonly number[];
  };
  /** Attention over the whole context in all layers, alone. */
  readonly attention: {
    readonly ms: number;
    /** Bytes of K and V over that time. */
    readonly gigabytesPerSecond: number;
    /** Of the read bandwidth. */
    readonly share: number;
    readonly samplesMs: readonly number[];
  };
  readonly prefill: {
    readonly tokensPerSecond: number;
    readonly ratio: number | null;
    readonly samplesSeconds: readonly number[];
  } | null;
}

export interface BenchKvReport {
  readonly model: string;
  readonly vocab: number;
  readonly weightBytes: number;
  readonly device: string;
  readonly features: readonly string[];
  readonly date: string;
  readonly versions: Readonly<Record<string, string>>;
  readonly rows: number;
  readonly context: number;
  readonly steps: number;
  readonly rounds: number;
  readonly prefillTokens: number;
  /** Tokens in a step of prefill. */
  readonly chunk: number;
  readonly filledWith: string;
  /** GB/s before the first round and behind the last. */
  readonly readBandwidth: readonly [number, number];
  readonly formats: readonly FormatResult[];
}

export interface Run {
  readonly rows: number;
  readonly context: number;
  readonly prefillTokens: number;
  /** Bytes a second. */
  readonly readBandwidth: number;
}

export function results(samples: readonly Samples[], run: Run): FormatResult[] {
  const floats = samples.filter(({ layers }) =>
    layers.every(({ key, value }) => isFloat(key) && isFloat(value)),
  );
  const best = (of: (s: Samples) => number[]): number | null =>
    floats.length === 0 ? null : Math.min(...floats.map((s) => median(of(s))));
  const decodeBest = best((s) => s.decode);
  const prefillBest = best((s) => s.prefill);
  return samples.map((s) => {
    const step = median(s.decode);
    const attend = median(s.attend);
    const rate = (s.bytesPerToken * run.rows * run.context) / attend;
    return {
      name: s.name,
      layers: s.layers,
      bytesPerToken: s.bytesPerToken,
      poolBytes: s.poolBytes,
      decode: {
        stepMs: 1000 * step,
        tokensPerSecond: run.rows / step,
        ratio: decodeBest === null ? null : decodeBest / step,
        samplesMs: s.decode.map((x) => 1000 * x),
      },
      attention: {
        ms: 1000 * attend,
        gigabytesPerSecond: rate / 1e9,
        share: rate / run.readBandwidth,
        samplesMs: s.attend.map((x) => 1000 * x),
      },
      prefill:
        s.prefill.length === 0
          ? null
          : {
              tokensPerSecond: run.prefillTokens / median(s.prefill),
              ratio: prefillBest === null ? null : prefillBest / median(s.prefill),
              samplesSeconds: s.prefill,
            },
    };
  });
}

export function benchTable({ formats, prefillTokens }: BenchKvReport): string {
  const head = ['format', 'KiB/token', 'step ms', 'tok/s', 'ratio', 'attention ms', 'GB/s', 'of reads'];
  const rows = [
    [...head, ...(prefillTokens > 0 ? ['prefill tok/s', 'ratio'] : [])],
    ...formats.map(({ name, bytesPerToken, decode, attention, prefill }) => [
      name,
      (bytesPerToken / 1024).toFixed(1),
      decode.stepMs.toFixed(2),
      decode.tokensPerSecond.toFixed(1),
      ratio(decode.ratio),
      attention.ms.toFixed(2),
      attention.gigabytesPerSecond.toFixed(attention.gigabytesPerSecond < 100 ? 1 : 0),
      `${(100 * attention.share).toFixed(0)} %`,
      ...(prefill === null ? [] : [prefill.tokensPerSecond.toFixed(0), ratio(prefill.ratio)]),
    ]),
  ];
  const widths = rows[0]!.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows
    .map((row) =>
      row.map((cell, i) => (i === 0 ? cell.padEnd(widths[0]!) : cell.padStart(widths[i]!))).join('  '),
    )
    .map((line) => `${line}\n`)
    .join('');
}

function ratio(value: number | null): string {
  return value === null ? '–' : value.toFixed(2);
}

function isFloat(name: string): boolean {
  return isFloatKv(parseKvFormat(name));
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
