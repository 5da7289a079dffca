/** What a long prompt does to rows that decode beside it, and they to it; and what an aborted stream leaves behind. */
import type { Engine } from '../../engine/engine.js';
import type { Generation } from '../../engine/types.js';

export interface LatencyCase {
  /** Rows that decode. */
  readonly rows: number;
  /** Tokens of the prompt that comes beside them. */
  readonly prompt: number;
  /** Milliseconds that rows have decoded before it comes. */
  readonly windowMs: number;
}

export interface LatencyResult extends LatencyCase {
  readonly soloTtftMs: number;
  readonly ttftMs: number;
  /** Its time to the first token beside the rows, over that alone. */
  readonly ttftRatio: number;
  /** Tokens a second of all rows, of the same tokens: alone, and while the prompt was computed. */
  readonly rowsAlone: number;
  readonly rowsBeside: number;
  readonly rateKept: number;
  /** Longest time between two tokens of a row meanwhile, and how long after the prompt came it began. */
  readonly longestGapMs: number;
  readonly longestGapAtMs: number;
  /** Tokens a second of one stream: alone, beside another, and after that one was aborted. */
  readonly abort: AbortRates;
}

export interface AbortRates {
  readonly solo: number;
  readonly of2: number;
  readonly after: number;
  /** What the stream that stays has of its solo rate once the other one is gone. */
  readonly back: number;
}

/** Tokens that decoding rows start from. */
const SHORT = 16;
/** Tokens over which a stream is measured. */
const STRETCH = 128;

/**
 * Tokens a second by the times, in milliseconds, of a stream's tokens: over a stretch of so many from the one with index `from` on,
 * of which the first eighth does not count, as a step that still holds others may be under way. NaN where it has not come so far.
 */
export function stretchRate(times: readonly number[], from: number, tokens: number): number {
  const first = from + (tokens >> 3);
  const last = Math.min(from + tokens, times.length) - 1;
  return last > first ? (1000 * (last - first)) / (times[last]! - times[first]!) : Number.NaN;
}

/** The rates of a stream alone, and of one that had another beside it for all but its last stretch: of the same tokens. */
export function abortRates(alone: readonly number[], stays: readonly number[], stretch: number): AbortRates {
  // A sequence that grows gets slower by itself.
  const solo = stretchRate(alone, 2 * stretch, stretch);
  const after = stretchRate(stays, 2 * stretch, stretch);
  return { solo, of2: stretchRate(stays, stretch, stretch), after, back: after / solo };
}

/** A stream whose tokens are timed as they come, until it is cancelled. */
class Timed {
  readonly times: number[] = [];
  readonly generation: Generation;
  readonly done: Promise<void>;

  constructor(engine: Engine, prompt: number, row: number, maxTokens?: number) {
    const vocab = engine.info.model.vocabSize;
    this.generation = engine.generate({
      // No two begin alike, so that no cache of prefixes can help.
      prompt: Array.from({ length: prompt }, (_, i) => (row * 131 + i * 7919 + 17) % vocab),
      temperature: 0,
      ignoreEos: true,
      ...(maxTokens === undefined ? {} : { maxTokens }),
    });
    this.done = this.#read();
  }

  async #read(): Promise<void> {
    for await (const delta of this.generation) {
      const now = performance.now();
      for (const _ of delta.tokenIds) this.times.push(now);
      if (delta.error !== undefined) throw delta.error;
    }
  }

  async first(): Promise<number> {
    while (this.times.length === 0) {
      if ((await Promise.race([this.done.then(() => true), pause(1)])) === true && this.times.length === 0)
        throw new Error('a stream ended before its first token');
    }
    return this.times[0]!;
  }

  async reached(tokens: number): Promise<void> {
    while (this.times.length < tokens) await pause(1);
  }

  async stop(): Promise<void> {
    this.generation.cancel();
    await this.done;
  }
}

export async function measureLatency(engine: Engine, one: LatencyCase): Promise<LatencyResult> {
  const { rows, prompt, windowMs } = one;
  const ttft = async (row: number): Promise<number> => {
    const started = performance.now();
    const stream = new Timed(engine, prompt, row, 1);
    await stream.done;
    return stream.times[0]! - started;
  };
  // Once for the compilers, and for the engine to learn what steps cost.
  await ttft(900);
  const soloTtftMs = await ttft(901);

  const decode = (): Timed[] => Array.from({ length: rows }, (_, row) => new Timed(engine, SHORT, row));
  const streams = decode();
  await Promise.all(streams.map((stream) => stream.first()));
  await pause(windowMs);
  const sent = performance.now();
  const long = new Timed(engine, prompt, 902, 1);
  const first = await long.first();
  await Promise.all(streams.map((stream) => stream.stop()));
  // Sequences that grow get slower by themselves: so the same tokens again, with nothing beside them.
  const alone = decode();
  const wanted = streams.map(({ times }) => times.filter((t) => t <= first).length);
  await Promise.all(alone.map((stream, row) => stream.reached(wanted[row]!)));
  await Promise.all(alone.map((stream) => stream.stop()));
  return {
    ...one,
    soloTtftMs,
    ttftMs: first - sent,
    ttftRatio: (first - sent) / soloTtftMs,
    ...besideRates(
      streams.map(({ times }) => times),
      alone.map(({ times }) => times),
      sent,
      first,
    ),
    abort: await measureAbort(engine),
  };
}

/** Of rows that had something beside them from `sent` to `first`: their rate then, that of the same tokens alone, the longest gap. */
export function besideRates(
  beside: readonly (readonly number[])[],
  alone: readonly (readonly number[])[],
  sent: number,
  first: number,
): Pick<LatencyResult, 'rowsAlone' | 'rowsBeside' | 'rateKept' | 'longestGapMs' | 'longestGapAtMs'> {
  let rowsAlone = 0;
  let rowsBeside = 0;
  let longestGapMs = 0;
  let longestGapAtMs = 0;
  for (const [row, times] of beside.entries()) {
    const from = times.findIndex((t) => t > sent);
    const to = times.findLastIndex((t) => t <= first);
    const rate = (of: readonly number[]): number => (1000 * (to - from)) / (of[to]! - of[from]!);
    if (from < 0 || to <= from) continue;
    rowsBeside += rate(times);
    rowsAlone += rate(alone[row]!);
    for (let i = from; i < to; i++) {
      const gap = times[i + 1]! - times[i]!;
      if (gap > longestGapMs) [longestGapMs, longestGapAtMs] = [gap, times[i]! - sent];
    }
  }
  return { rowsAlone, rowsBeside, rateKept: rowsBeside / rowsAlone, longestGapMs, longestGapAtMs };
}

async function measureAbort(engine: Engine): Promise<AbortRates> {
  const alone = new Timed(engine, SHORT, 910, 3 * STRETCH);
  await alone.done;
  const stays = new Timed(engine, SHORT, 911, 3 * STRETCH);
  const goes = new Timed(engine, SHORT, 912);
  await stays.reached(2 * STRETCH);
  await goes.stop();
  await stays.done;
  return abortRates(alone.times, stays.times, STRETCH);
}

function pause(ms: number): Promise<false> {
  return new Promise((resolve) => setTimeout(() => resolve(false), ms));
}
