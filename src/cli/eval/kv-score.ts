/** The teacher-forced half of `kvant eval kv`: every text through every cache, side by side, whole and cut. */
import { createHash, type Hash } from 'node:crypto';
import { BaselineRow, type DistanceSummary, Distances } from '../../engine/kv-compare.js';
import type { OfflineRunner } from '../../engine/offline-runner.js';
import { Scorer } from '../../engine/scorer.js';
import type { KvLayerInfo } from '../../kv/policy.js';
import { type CacheSize, cacheSize, type EvalFormat } from './kv-formats.js';
import type { ScoredText } from './kv-texts.js';

/** Odd, and none a multiple of a block: steps begin and end anywhere in blocks and splits. */
const CUTS = [37, 5, 61, 1, 23, 101, 13, 7] as const;

export interface Scores extends DistanceSummary {
  readonly groups: Readonly<Record<string, DistanceSummary>>;
}

export interface CacheScores {
  readonly name: string;
  readonly size: CacheSize;
  /** The effective format of each layer. */
  readonly layers: readonly KvLayerInfo[];
  readonly whole: Scores;
  /** With every text cut into odd chunks; null where that was left out. */
  readonly cut: Scores | null;
  /** Whether whole and cut gave the same logits, bit for bit. */
  readonly identical: boolean | null;
}

/** Tokens of the longest text; where there is none, of a small cache. */
export function longestOf(texts: readonly ScoredText[]): number {
  return Math.max(32, ...texts.map(({ ids }) => ids.length));
}

/** @param formats the first is the baseline */
export async function scoreCaches(
  bench: OfflineRunner,
  formats: readonly EvalFormat[],
  texts: readonly ScoredText[],
  cut: boolean,
  onTokens: (done: number, total: number) => void,
): Promise<CacheScores[]> {
  const context = longestOf(texts);
  const total = texts.reduce((sum, { ids }) => sum + ids.length, 0) * formats.length * (cut ? 2 : 1);
  let done = 0;
  const count = (tokens: number): void => {
    done += tokens;
    onTokens(done, total);
  };
  const scorers: Scorer[] = [];
  try {
    for (const { kv } of formats) scorers.push(await Scorer.open(bench, kv, context));
    const whole = await scorePass(scorers, texts, wholeChunks, count);
    const pieces = cut ? await scorePass(scorers, texts, oddChunks, count) : null;
    return formats.map(({ name }, i) => {
      const { plan } = scorers[i]!;
      return {
        name,
        size: cacheSize(plan),
        layers: plan.info,
        whole: whole[i]!.scores,
        cut: pieces?.[i]?.scores ?? null,
        identical: pieces === null ? null : pieces[i]!.digest === whole[i]!.digest,
      };
    });
  } finally {
    for (const scorer of scorers) await scorer[Symbol.asyncDispose]();
  }
}

type Chunks = (length: number, most: number) => number[];

/** As few steps as can be. */
const wholeChunks: Chunks = (length, most) =>
  Array.from({ length: Math.ceil(length / most) }, (_, i) => Math.min(most, length - i * most));

export const oddChunks: Chunks = (length, most) => {
  const chunks: number[] = [];
  for (let left = length; left > 0; left -= chunks.at(-1)!)
    chunks.push(Math.min(CUTS[chunks.length % CUTS.length]!, most, left));
  return chunks;
};

async function scorePass(
  scorers: readonly Scorer[],
  texts: readonly ScoredText[],
  chunks: Chunks,
  onTokens: (tokens: number) => void,
): Promise<{ scores: Scores; digest: string }[]> {
  const results = scorers.map(() => ({ distances: new Distances(), hash: createHash('sha256') }));
  const most = Math.min(...scorers.map(({ chunk }) => chunk));
  let baseline: BaselineRow[] = [];
  for (const { ids, from, group } of texts) {
    // The last token foretells what is not there.
    const length = ids.length - 1;
    let at = 0;
    for (const tokens of chunks(length, most)) {
      const end = at + tokens;
      const first = Math.max(at, from - 1);
      for (const [i, scorer] of scorers.entries()) {
        const logits = await scorer.step(ids, at, end, from - 1);
        const { distances, hash } = results[i]!;
        digest(hash, logits);
        const vocab = logits.length / Math.max(1, end - first);
        if (i === 0) baseline = growTo(baseline, end - first, vocab);
        for (let row = 0; row < end - first; row++) {
          const next = ids[first + row + 1]!;
          if (i === 0) baseline[row]!.take(logits, row, next);
          distances.add(baseline[row]!, logits, row, next, group);
        }
        onTokens(tokens);
      }
      at = end;
    }
  }
  return results.map(({ distances, hash }) => ({
    scores: { ...distances.summary(), groups: distances.groups() },
    digest: hash.digest('hex'),
  }));
}

function growTo(rows: BaselineRow[], count: number, vocab: number): BaselineRow[] {
  while (rows.length < count) rows.push(new BaselineRow(vocab));
  return rows;
}

function digest(hash: Hash, logits: Float32Array): void {
  hash.update(new Uint8Array(logits.buffer, logits.byteOffset, logits.byteLength));
}
