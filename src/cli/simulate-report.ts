/** What `kvant simulate` found: rates, waiting and gaps as a table for people, as numbers, and as a plot over time. */
import type { SimulatedRequest, Simulation } from '../engine/scheduling/simulator.js';
import { plotSvg } from './svg-plot.js';

/** Milliseconds at which so many parts of all values lie, and the largest. */
export interface Spread {
  readonly p50: number;
  readonly p95: number;
  readonly p99: number;
  readonly max: number;
}

export interface SimulationGroup {
  readonly name: string;
  readonly requests: number;
  readonly done: number;
  readonly refused: number;
  readonly late: number;
  readonly ttftMs: Spread;
}

export interface SimulationReport {
  readonly requests: number;
  readonly seconds: number;
  /** Requests a second. */
  readonly offered: number;
  readonly capacity: number;
  readonly served: number;
  readonly steps: number;
  readonly longestStepMs: number;
  /** Of steps with decoding rows. */
  readonly meanDecodingRows: number;
  readonly preemptions: number;
  readonly gapMs: Spread;
  readonly ttftBoundMs: number;
  /** All of them, then by priority, share and length of the prompt, where there are several. */
  readonly groups: readonly SimulationGroup[];
}

const LENGTHS = [0, 128, 1024, 8192, Number.POSITIVE_INFINITY];
const BINS = 48;

export function spread(values: readonly number[]): Spread {
  const sorted = Float64Array.from(values).sort();
  const at = (part: number): number =>
    sorted[Math.min(sorted.length - 1, Math.ceil(part * sorted.length) - 1)] ?? Number.NaN;
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99), max: at(1) };
}

/** `capacity`: requests a millisecond; `bound`: milliseconds. */
export function simulationReport(
  { requests, steps, gaps, ms }: Simulation,
  capacity: number,
  bound: number,
): SimulationReport {
  const last = requests.reduce((latest, { arrival }) => Math.max(latest, arrival.at), 0);
  const first = requests.reduce((earliest, { arrival }) => Math.min(earliest, arrival.at), last);
  const span = Math.max(last - first, 1e-9);
  // Until the last one came: what is done after that is the rest of the queue.
  const within = requests.filter(
    ({ arrival, outcome, totalMs }) => outcome === 'done' && arrival.at + totalMs <= last,
  );
  const decoding = steps.filter((step) => step.decoding > 0);
  return {
    requests: requests.length,
    seconds: ms / 1000,
    offered: (1000 * requests.length) / span,
    capacity: 1000 * capacity,
    served: (1000 * within.length) / span,
    steps: steps.length,
    longestStepMs: decoding.reduce((longest, step) => Math.max(longest, step.ms), 0),
    meanDecodingRows: decoding.reduce((sum, step) => sum + step.decoding, 0) / Math.max(1, decoding.length),
    preemptions: requests.reduce((sum, request) => sum + request.preemptions, 0),
    gapMs: spread(gaps),
    ttftBoundMs: bound,
    groups: [
      group('all', requests),
      ...groupsBy(requests, ({ arrival }) => `priority ${arrival.priority}`),
      ...groupsBy(requests, ({ arrival }) => `key ${arrival.share || '–'}`),
      ...groupsBy(requests, ({ arrival }) => {
        const to = LENGTHS.findIndex((length) => arrival.prompt < length);
        return to === LENGTHS.length - 1 ? `prompt from ${LENGTHS[to - 1]}` : `prompt below ${LENGTHS[to]}`;
      }),
    ],
  };
}

function groupsBy(
  requests: readonly SimulatedRequest[],
  nameOf: (request: SimulatedRequest) => string,
): SimulationGroup[] {
  const groups = new Map<string, SimulatedRequest[]>();
  for (const request of requests) {
    const name = nameOf(request);
    groups.set(name, [...(groups.get(name) ?? []), request]);
  }
  if (groups.size < 2) return [];
  const order = new Intl.Collator('en', { numeric: true });
  return [...groups].sort(([a], [b]) => order.compare(a, b)).map(([name, members]) => group(name, members));
}

function group(name: string, members: readonly SimulatedRequest[]): SimulationGroup {
  const count = (outcome: string): number => members.filter((request) => request.outcome === outcome).length;
  return {
    name,
    requests: members.length,
    done: count('done'),
    refused: count('refused'),
    late: count('late'),
    ttftMs: spread(members.flatMap(({ ttftMs }) => (Number.isNaN(ttftMs) ? [] : [ttftMs]))),
  };
}

export function reportText(report: SimulationReport): string {
  const lines = [
    `${report.requests} requests in ${report.seconds.toFixed(1)} s of simulated time, ${report.steps} steps`,
    `offered ${rate(report.offered)}, capacity ${rate(report.capacity)}, served ${rate(report.served)} while they came`,
    `decoding rows ${report.meanDecodingRows.toFixed(1)} on average, longest step with any ${ms(report.longestStepMs)} ms, ` +
      `rows that gave way ${report.preemptions}`,
    `bound on the first token, were all requests as long as the longest: ${ms(report.ttftBoundMs)} ms`,
    '',
  ];
  const head = ['', 'requests', 'refused', 'late', 'TTFT ms p50', 'p95', 'p99', 'max'];
  const cells = (values: Spread): string[] => [values.p50, values.p95, values.p99, values.max].map(ms);
  const rows = [
    head,
    ...report.groups.map(({ name, requests, refused, late, ttftMs }) => [
      name,
      String(requests),
      percent(refused / requests),
      percent(late / requests),
      ...cells(ttftMs),
    ]),
    ['between two tokens', '', '', '', ...cells(report.gapMs)],
  ];
  const widths = head.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)));
  for (const row of rows)
    lines.push(
      row
        .map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)))
        .join('  ')
        .trimEnd(),
    );
  return `${lines.join('\n')}\n`;
}

/** Waiting and gaps over the time of the trace: the middle and the worst of a hundred. */
export function simulationPlot({ requests, steps }: Simulation, title: string): string {
  const end = Math.max(steps.at(-1)?.at ?? 1, 1);
  const ttft: number[][] = Array.from({ length: BINS }, () => []);
  const gap: number[][] = Array.from({ length: BINS }, () => []);
  const bin = (at: number): number => Math.min(BINS - 1, Math.floor((BINS * at) / end));
  for (const { arrival, ttftMs } of requests) if (!Number.isNaN(ttftMs)) ttft[bin(arrival.at)]!.push(ttftMs);
  // A row's gap is the time of the steps it is in: each counts once for every row.
  for (const { at, ms, decoding } of steps) for (let i = 0; i < decoding; i++) gap[bin(at)]!.push(ms);
  const line = (name: string, bins: readonly number[][], which: 'p50' | 'p99') => ({
    name,
    points: bins.flatMap((values, i) =>
      values.length === 0 ? [] : [{ x: ((i + 0.5) * end) / BINS / 1000, y: spread(values)[which] }],
    ),
  });
  return plotSvg({
    title,
    xLabel: 'seconds of the trace',
    yLabel: 'milliseconds',
    yLog: true,
    series: [
      line('first token, p50', ttft, 'p50'),
      line('first token, p99', ttft, 'p99'),
      line('between tokens, p50', gap, 'p50'),
      line('between tokens, p99', gap, 'p99'),
    ],
  });
}

function rate(perSecond: number): string {
  return `${perSecond.toPrecision(3)} requests/s`;
}

function ms(value: number): string {
  if (Number.isNaN(value)) return '–';
  return value >= 100 ? value.toFixed(0) : value.toFixed(1);
}

function percent(part: number): string {
  return `${(100 * part).toFixed(1)} %`;
}
