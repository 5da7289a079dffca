/** Tuning on the engine's thread: which device can be tuned, where its choices are kept, and what is told of it. */

import type { AutotuneMode, Device, ProgramLimits } from '../device/device.js';
import type { Graph } from '../device/graph.js';
import type { KvCaches } from '../device/kv.js';
import type { TuningEntry, TuningStore } from '../device/webgpu/tuning/decision.js';
import type { TuneDeviceOptions, TuneReport } from '../device/webgpu/tuning/session.js';
import type { HostConfig } from './messages.js';
import type { LoadProgress, LogEntry, TuningInfo } from './types.js';

/** What a start may spend on measuring. The rest is left for the next one. */
const DEFAULT_AUTOTUNE_MS = 20_000;

export interface AutotuneCallbacks {
  readonly onProgress: (progress: LoadProgress) => void;
  readonly onLog: (entry: LogEntry) => void;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Tunes the device for a graph that is about to be compiled. Null where nothing was asked for; with `off` nothing is
 * loaded, read or measured.
 */
export async function autotune(
  config: Pick<HostConfig, 'autotune' | 'autotuneMs'>,
  device: Device,
  graph: Graph,
  limits: ProgramLimits,
  caches: KvCaches,
  { onProgress, onLog, signal }: AutotuneCallbacks,
): Promise<TuningInfo | null> {
  const mode = config.autotune ?? 'off';
  if (mode === 'off') return null;
  const report = await tuneDevice(device, graph, limits, {
    mode,
    caches,
    budgetMs: config.autotuneMs ?? DEFAULT_AUTOTUNE_MS,
    onProgress: (done, total, key) =>
      onProgress({ phase: 'tune', done, total, unit: 'kernels', ...(key === '' ? {} : { item: key }) }),
    onLog,
    signal,
  });
  const info = tuningInfo(mode, report);
  if (report !== null)
    onLog({
      level: 'info',
      message:
        info.tuned > 0 ? 'tuned kernels are in use' : 'no tuned kernel is better than those chosen by rule',
      fields: { ...info },
    });
  return info;
}

export interface TuneRequest extends TuneDeviceOptions {
  readonly onLog?: (entry: LogEntry) => void;
}

/** Tunes a GPU, with its choices on disk; null on a device that has nothing to choose. */
export async function tuneDevice(
  device: Device,
  graph: Graph,
  limits: ProgramLimits,
  { onLog, ...options }: TuneRequest,
): Promise<TuneReport | null> {
  if (device.info.kind !== 'webgpu') return null;
  const { WebGpuDevice } = await import('../device/webgpu/index.js');
  if (!(device instanceof WebGpuDevice)) return null;
  const store = await openStore(device.identity, onLog);
  const report = await device.tune(graph, limits, { store, ...options });
  if (report.complaint !== null)
    onLog?.({
      level: 'warn',
      message: 'the GPU refused something while it was tuned',
      fields: { why: report.complaint },
    });
  return report;
}

/** The choices of a device on disk. Choices hold for the build of Dawn they were measured with. */
async function openStore(
  identity: Readonly<Record<string, unknown>>,
  onLog: TuneRequest['onLog'],
): Promise<TuningStore> {
  const [{ ChoiceFile }, { dawnVersion }] = await Promise.all([
    import('../device/choice-file.js'),
    import('../device/webgpu/node.js'),
  ]);
  return new ChoiceFile<TuningEntry>({
    kind: 'webgpu',
    identity: { ...identity, dawn: dawnVersion() },
    isEntry,
    onWarning: (message, fields) => onLog?.({ level: 'warn', message, fields }),
  });
}

function isEntry(value: unknown): value is TuningEntry {
  if (typeof value !== 'object' || value === null) return false;
  const { rule, choice, texts, ruleUs, us } = value as Record<string, unknown>;
  return [rule, choice, texts].every((v) => typeof v === 'string') && [ruleUs, us].every(Number.isFinite);
}

function tuningInfo(mode: AutotuneMode, report: TuneReport | null): TuningInfo {
  const decisions = report?.decisions ?? [];
  const count = (by: string): number => decisions.filter((d) => d.by === by).length;
  return {
    mode,
    tuned: decisions.filter((d) => d.choice !== d.rule).length,
    decisions: decisions.length,
    measured: count('measured'),
    cached: count('cache'),
    left: count('skipped') + count('failed'),
    ms: Math.round(report?.ms ?? 0),
  };
}
