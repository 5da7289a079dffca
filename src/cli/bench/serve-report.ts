/** What `kvant bench serve` says. */

import { ascending, percentile, type Spread, spread, spreadText } from './percentile.js';
import type { RoundResult } from './serve.js';

export interface ServeTurn {
  readonly http: RoundResult;
  readonly direct: RoundResult;
  /** Milliseconds that the server's threads computed in the round over HTTP; absent where the system does not tell. */
  readonly server?: { readonly main: number; readonly others: number };
}

export interface Percentiles {
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
}

export interface ServeSide {
  /** The median of the rounds. */
  readonly tokensPerSecond: number;
  readonly tokensPerPiece: number;
  readonly ttftMs: Percentiles;
  readonly gapMs: Percentiles;
}

export interface ServeReport {
  readonly model: string;
  readonly device: string;
  readonly clients: number;
  readonly rows: number;
  readonly requests: number;
  readonly rounds: number;
  readonly http: ServeSide;
  readonly direct: ServeSide;
  /** Tokens a second over HTTP, over those without it: the median of the rounds, the lowest and the highest. */
  readonly ratio: Spread;
  /** The same of the fastest rounds of either: what it is where others keep the machine busy. */
  readonly bestRatio: number;
  /** CPU time of the server's main thread, and of all its others, in microseconds a token; null where nobody tells. */
  readonly serverMicroseconds: { readonly main: number; readonly others: number } | null;
}

type Head = Pick<ServeReport, 'model' | 'device' | 'clients' | 'rows' | 'requests'>;

export function serveReport(head: Head, turns: readonly ServeTurn[]): ServeReport {
  const tokens = turns.reduce((sum, { http }) => sum + http.tokens, 0);
  const told = turns.flatMap(({ server }) => (server === undefined ? [] : [server]));
  const each = (of: (times: { main: number; others: number }) => number): number =>
    (1000 * told.reduce((sum, times) => sum + of(times), 0)) / tokens;
  return {
    ...head,
    rounds: turns.length,
    http: side(turns.map(({ http }) => http)),
    direct: side(turns.map(({ direct }) => direct)),
    ratio: spread(turns.map(({ http, direct }) => http.tokensPerSecond / direct.tokensPerSecond)),
    bestRatio:
      Math.max(...turns.map(({ http }) => http.tokensPerSecond)) /
      Math.max(...turns.map(({ direct }) => direct.tokensPerSecond)),
    serverMicroseconds:
      told.length < turns.length ? null : { main: each((t) => t.main), others: each((t) => t.others) },
  };
}

function side(rounds: readonly RoundResult[]): ServeSide {
  const sum = (of: (round: RoundResult) => number): number => rounds.reduce((all, r) => all + of(r), 0);
  return {
    tokensPerSecond: percentile(ascending(rounds.map((r) => r.tokensPerSecond)), 0.5),
    tokensPerPiece: sum((r) => r.tokens) / sum((r) => r.pieces),
    ttftMs: percentiles(rounds.flatMap((r) => r.ttftMs)),
    gapMs: percentiles(rounds.flatMap((r) => r.gapsMs)),
  };
}

function percentiles(values: readonly number[]): Percentiles {
  const all = ascending(values);
  return { p50: percentile(all, 0.5), p95: percentile(all, 0.95), p99: percentile(all, 0.99) };
}

export function serveText(report: ServeReport): string {
  const { model, device, clients, rows, requests, rounds, serverMicroseconds: cost } = report;
  const head = `${model} on ${device}: ${clients} clients, ${requests} requests a round, ${rows} rows, ${rounds} rounds\n`;
  const names = ['', 'tok/s', 'tokens/piece', 'TTFT ms p50', 'p95', 'p99', 'gap ms p50', 'p95', 'p99'];
  const row = (cells: readonly string[]): string =>
    `${cells.map((cell, i) => (i === 0 ? cell.padEnd(14) : cell.padStart(13))).join('')}\n`;
  const line = (name: string, { tokensPerSecond, tokensPerPiece, ttftMs, gapMs }: ServeSide): string =>
    row([
      name,
      tokensPerSecond.toFixed(1),
      tokensPerPiece.toFixed(2),
      ...[ttftMs.p50, ttftMs.p95, ttftMs.p99].map((ms) => ms.toFixed(1)),
      ...[gapMs.p50, gapMs.p95, gapMs.p99].map((ms) => ms.toFixed(2)),
    ]);
  return (
    head +
    row(names) +
    line('over HTTP', report.http) +
    line('without', report.direct) +
    `ratio ${spreadText(report.ratio)}, of the best rounds ${report.bestRatio.toFixed(3)}\n` +
    (cost === null
      ? ''
      : `the server’s main thread computes ${cost.main.toFixed(1)} µs a token, its others ${cost.others.toFixed(1)} µs\n`)
  );
}
