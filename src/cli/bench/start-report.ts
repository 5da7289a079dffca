/** What `kvant bench start` prints: medians of the rounds, beside what the start and the memory may be. */
import type { DeviceKind } from '../../device/device.js';
import { formatBytes } from '../progress.js';
import type { StartProbe, StartRound } from './start.js';

/** Starts of an empty process that a start to the first token may take on a CPU, beside the bare read. */
export const START_TIMES_NODE = 8;
/** Milliseconds of it on a GPU, whose first run compiles kernels. */
export const START_GPU_MS = 3000;
/** Milliseconds that 4.5 GB of weights may take to a GPU. */
const LOAD_GPU = { bytes: 4.5e9, ms: 6000 } as const;
const PEAK = { share: 1.25, more: 400e6 } as const;
const DEVICE_SHARE = 1.15;
const HOST_GPU_BYTES = 1e9;

/** A figure beside what it may be. */
export interface Bound {
  readonly name: string;
  readonly value: number;
  readonly limit: number;
  /** value / limit: at most 1 where it is kept. */
  readonly ratio: number;
}

export interface StartReport {
  readonly model: string;
  readonly device: string;
  readonly kind: DeviceKind;
  readonly date: string;
  /** Of the files. */
  readonly weightFileBytes: number;
  /** The run before the rounds: what a first run compiles or reads from the disk, it pays. */
  readonly firstRunMs: number;
  /** Milliseconds. */
  readonly medians: StartRound;
  readonly least: StartRound;
  readonly rounds: readonly StartRound[];
  /** Bytes, and the median of the times of load. */
  readonly memory: Omit<StartProbe, 'device' | 'kind' | 'loadMs'>;
  readonly loadMs: number;
  readonly loadBytesPerSecond: number;
  readonly bounds: readonly Bound[];
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2;
}

export function startReport(
  model: string,
  weightFileBytes: number,
  firstRunMs: number,
  rounds: readonly StartRound[],
  probes: readonly StartProbe[],
): StartReport {
  const over = (fold: (values: readonly number[]) => number): StartRound => ({
    node: fold(rounds.map((r) => r.node)),
    read: fold(rounds.map((r) => r.read)),
    firstToken: fold(rounds.map((r) => r.firstToken)),
  });
  const medians = over(median);
  const { device, kind } = probes[0]!;
  const loadMs = median(probes.map((p) => p.loadMs));
  const most = (of: (probe: StartProbe) => number): number => Math.max(...probes.map(of));
  const memory = {
    weights: probes[0]!.weights,
    kv: probes[0]!.kv,
    deviceBytes: most((p) => p.deviceBytes),
    loadedRss: most((p) => p.loadedRss),
    peakRss: most((p) => p.peakRss),
  };
  const held = memory.weights + memory.kv;
  const bounds =
    kind === 'cpu'
      ? [
          bound('start, ms', medians.firstToken, START_TIMES_NODE * medians.node + medians.read),
          bound('peak resident, bytes', memory.peakRss, PEAK.share * held + PEAK.more),
        ]
      : [
          bound('start, ms', medians.firstToken, START_GPU_MS),
          bound('device, bytes', memory.deviceBytes, DEVICE_SHARE * held),
          bound('host resident once loaded, bytes', memory.loadedRss, HOST_GPU_BYTES),
          bound('load, ms', loadMs, (LOAD_GPU.ms * weightFileBytes) / LOAD_GPU.bytes),
        ];
  return {
    model,
    device,
    kind,
    date: new Date().toISOString().slice(0, 10),
    weightFileBytes,
    firstRunMs,
    medians,
    least: over((values) => Math.min(...values)),
    rounds,
    memory,
    loadMs,
    loadBytesPerSecond: (weightFileBytes / loadMs) * 1000,
    bounds,
  };
}

function bound(name: string, value: number, limit: number): Bound {
  return { name, value, limit, ratio: value / limit };
}

export function startText(report: StartReport): string {
  const { medians, least, memory } = report;
  const row = (name: string, of: (round: StartRound) => number): string =>
    `${name.padEnd(32)}${of(medians).toFixed(1).padStart(10)}${of(least).toFixed(1).padStart(10)}`;
  const times = (medians.firstToken - medians.read) / medians.node;
  return [
    `${report.model} on ${report.device}, ${report.rounds.length} rounds in turns`,
    `${'ms'.padEnd(32)}${'median'.padStart(10)}${'least'.padStart(10)}`,
    row('node -e 0', (r) => r.node),
    row(`bare read of ${formatBytes(report.weightFileBytes)}`, (r) => r.read),
    row('kvant generate, to first token', (r) => r.firstToken),
    `without the read ${times.toFixed(2)} × node -e 0; the run before these took ${report.firstRunMs.toFixed(0)} ms`,
    `load in ${report.loadMs.toFixed(0)} ms, ${(report.loadBytesPerSecond / 1e9).toFixed(2)} GB/s`,
    `weights ${formatBytes(memory.weights)}, KV ${formatBytes(memory.kv)}, device ${formatBytes(memory.deviceBytes)}; ` +
      `resident ${formatBytes(memory.loadedRss)} once loaded, ${formatBytes(memory.peakRss)} at most`,
    '',
    ...report.bounds.map(({ name, value, limit, ratio }) => {
      const shown = (x: number): string => (name.endsWith('bytes') ? formatBytes(x) : x.toFixed(0));
      const verdict = ratio <= 1 ? 'within' : 'above';
      return `${name.padEnd(34)}${shown(value).padStart(10)} of ${shown(limit).padStart(9)}  ${ratio.toFixed(2)}  ${verdict}`;
    }),
    '',
  ].join('\n');
}
