/** One tuning of a device for a graph: what is to be decided, what earlier runs knew, and what was learned. */

import type { AutotuneMode, ProgramLimits } from '../../device.js';
import type { Graph } from '../../graph.js';
import { type KvCaches, type KvPool, kvCaches } from '../../kv.js';
import type { Allocator } from '../allocator.js';
import { findFusions } from '../fusion.js';
import type { Capabilities } from '../kernel.js';
import { areGpuCaches } from '../kv-pool.js';
import { bucketOf, buckets } from '../plans.js';
import type { Bucket } from '../resources.js';
import { TuningBench } from './bench.js';
import type { Decision, TuningEntry, TuningStore } from './decision.js';
import { decodeDecisions } from './decode-decisions.js';
import { linearDecisions } from './linear-decisions.js';
import { type TunedDecision, type TuneResult, tune } from './tune.js';
import type { TunedChoices } from './tuned-choices.js';

export interface TuneDeviceOptions {
  readonly mode: AutotuneMode;
  /** Milliseconds after which nothing further is measured. Default: any time. */
  readonly budgetMs?: number | undefined;
  /** Rows of steps to tune for. Default: those of every plan. */
  readonly rows?: readonly number[] | undefined;
  /** The caches that programs will attend over: without them attention is not tuned. */
  readonly caches?: KvPool | KvCaches | null | undefined;
  /** Choices of earlier runs, and where new ones are kept. */
  readonly store?: TuningStore | undefined;
  /** Measure also what the store knows. */
  readonly again?: boolean | undefined;
  readonly onProgress?: ((done: number, total: number, key: string) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

export interface TuneReport {
  readonly mode: AutotuneMode;
  readonly decisions: readonly TunedDecision[];
  readonly ms: number;
  /** What the GPU complained of meanwhile. */
  readonly complaint: string | null;
}

export interface TuningHost {
  readonly device: GPUDevice;
  readonly allocator: Allocator;
  /** Of the device, without anything tuned. */
  readonly capabilities: Capabilities;
  readonly tuned: TunedChoices;
}

const SCOPES = ['validation', 'out-of-memory', 'internal'] as const;

/** Nothing is running on the device meanwhile. */
export async function tuneSession(
  host: TuningHost,
  graph: Graph,
  limits: ProgramLimits,
  options: TuneDeviceOptions,
): Promise<TuneReport> {
  const { mode, budgetMs = Number.POSITIVE_INFINITY, store, onProgress, signal } = options;
  if (mode === 'off') return { mode, decisions: [], ms: 0, complaint: null };
  const opened: { bench: TuningBench | undefined } = { bench: undefined };
  const bench = (): TuningBench => {
    opened.bench ??= new TuningBench(host.device, host.allocator);
    return opened.bench;
  };
  const decisions = decisionsOf(host, graph, limits, options, bench);
  if (decisions.length === 0) return { mode, decisions: [], ms: 0, complaint: null };
  // What was allocated before is not to be taken for a failure of tuning.
  await host.allocator.settle();
  const known = (await store?.read()) ?? {};
  for (const scope of SCOPES) host.device.pushErrorScope(scope);
  const complaints: string[] = [];
  const learned: Record<string, TuningEntry> = {};
  let result: TuneResult;
  try {
    result = await tune(decisions, {
      mode,
      budgetMs,
      known,
      again: options.again ?? false,
      ...(onProgress === undefined ? {} : { onProgress }),
      onLearned: (name, entry) => {
        learned[name] = entry;
      },
      signal,
    });
  } finally {
    opened.bench?.close();
    for (const _ of SCOPES) {
      const error = await host.device.popErrorScope().catch(() => null);
      if (error !== null) complaints.push(error.message);
    }
    const lost = await Promise.race([host.device.lost.then(() => true), Promise.resolve(false)]);
    // What was measured while the GPU refused commands is no measurement.
    if (Object.keys(learned).length > 0 && complaints.length === 0 && !lost) await store?.add(learned);
  }
  return { mode, decisions: result.decisions, ms: result.ms, complaint: complaints[0] ?? null };
}

function decisionsOf(
  { capabilities, tuned }: TuningHost,
  graph: Graph,
  limits: ProgramLimits,
  { rows, caches = null }: TuneDeviceOptions,
  bench: () => TuningBench,
): Decision[] {
  const { maxTokens, maxOutputs } = limits;
  const wanted = (most: number): number[] =>
    rows === undefined
      ? buckets(most)
      : [...new Set(rows.filter((n) => n <= most).map((n) => bucketOf(n, most)))];
  // Products take their rows from one kind: the other does not matter.
  const of: Bucket[] = [
    ...wanted(maxTokens).map((tokens) => ({ tokens, outputs: 0 })),
    ...wanted(maxOutputs).map((outputs) => ({ tokens: 0, outputs })),
  ];
  const fusions = findFusions(graph);
  const all = kvCaches(caches);
  const own = areGpuCaches(all) ? all : null;
  const linear = linearDecisions(graph, fusions, of, own, capabilities, tuned, bench);
  const decode = own === null ? [] : decodeDecisions(graph, own, capabilities, tuned, bench);
  // Few rows first: every answer is made of such steps.
  return [...linear, ...decode].sort((a, b) => a.rows - b.rows);
}
