/** The same requests over HTTP and straight into an engine, in turns, as so many clients send them one after another. */
import type { Engine } from '../../engine/engine.js';
import type { BenchClient, StreamTimes } from './serve-client.js';
import type { LoadRequest } from './serve-load.js';

export interface RoundResult {
  /** Of all clients, from the first request to the last answer's end. */
  readonly tokensPerSecond: number;
  readonly tokens: number;
  /** Pieces of text that they came in. */
  readonly pieces: number;
  readonly ttftMs: readonly number[];
  /** Between two pieces of one answer. */
  readonly gapsMs: readonly number[];
  readonly seconds: number;
}

type Send = (one: LoadRequest) => Promise<StreamTimes>;

export const overHttp =
  (client: BenchClient): Send =>
  (one) =>
    client.stream(one);

/** As the server asks it, and read as it comes. */
export const intoEngine =
  (engine: Engine): Send =>
  async ({ text, maxTokens }) => {
    const sent = performance.now();
    const generation = engine.chat({
      messages: [{ role: 'user', content: text }],
      temperature: 0,
      maxTokens,
      ignoreEos: true,
      parseReasoning: false,
    });
    const pieces: number[] = [];
    let tokens = 0;
    for await (const delta of generation) {
      if (delta.error !== undefined) throw delta.error;
      tokens += delta.tokenIds.length;
      if (delta.text !== '') pieces.push(performance.now());
    }
    return { sent, pieces, ended: performance.now(), tokens };
  };

/** Client `i` sends requests `i`, `i + clients`, …, the next when the last has been answered. */
export async function runRound(
  load: readonly LoadRequest[],
  clients: number,
  send: Send,
): Promise<RoundResult> {
  const started = performance.now();
  const answers = await Promise.all(
    Array.from({ length: clients }, async (_, client) => {
      const own: StreamTimes[] = [];
      for (let at = client; at < load.length; at += clients) own.push(await send(load[at]!));
      return own;
    }),
  );
  const all = answers.flat();
  const seconds = (Math.max(...all.map(({ ended }) => ended)) - started) / 1000;
  const tokens = all.reduce((sum, one) => sum + one.tokens, 0);
  const wanted = load.reduce((sum, { maxTokens }) => sum + maxTokens, 0);
  if (tokens !== wanted) throw new Error(`${wanted} tokens were asked for, and ${tokens} came`);
  return {
    tokens,
    seconds,
    tokensPerSecond: tokens / seconds,
    pieces: all.reduce((sum, { pieces }) => sum + pieces.length, 0),
    ttftMs: all.flatMap(({ sent, pieces }) => (pieces.length > 0 ? [pieces[0]! - sent] : [])),
    gapsMs: all.flatMap(({ pieces }) => pieces.slice(1).map((at, i) => at - pieces[i]!)),
  };
}
