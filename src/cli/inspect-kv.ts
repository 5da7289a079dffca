/** What `kvant inspect` says of KV: the bytes of a sequence, how many fit in memory, and what each layer has. */
import { totalmem } from 'node:os';
import { DEFAULT_BLOCK_TOKENS } from '../engine/host-options.js';
import { rowBlocks } from '../kv/retention.js';
import type { CacheGroupSummary, CacheSummary, ModelSummary } from '../models/inspect.js';
import { layersNamed } from './layer-names.js';
import { formatBytes } from './progress.js';

/** Memory that neither weights nor KV may have: activations, code, the rest of the process. */
const RESERVE = 512 * 2 ** 20;

/** WebGPU binds no more than this at once: the most that one layer's keys, or its values, may take. */
const GPU_PLANE_BYTES = 2 ** 31 - 4;

/** Sequences of so many tokens, whose prompts are computed in chunks. */
export interface Planned {
  readonly tokens: number;
  /** Of a prompt in one step, at most. */
  readonly batchTokens: number;
}

/** Bytes of KV of one sequence. */
export interface SequenceKv {
  readonly tokens: number;
  /** At once, at most: while its prompt is computed. */
  readonly bytes: number;
  /** Behind that. */
  readonly settledBytes: number;
  /** What it would be if no layer gave back what it no longer sees. */
  readonly wholeBytes: number;
}

export interface MemoryFit {
  readonly memoryBytes: number;
  readonly weightBytes: number;
  readonly reservedBytes: number;
  /** What is left for the KV cache; 0 if not even the weights fit. */
  readonly kvBytes: number;
  readonly kvTokens: number;
  /** Bytes of KV that a sequence keeps at once. */
  readonly sequenceBytes: number;
  /** Sequences of the planned length that fit. */
  readonly fullContexts: number;
}

/** Most tokens that a sequence keeps of a group. */
function kept({ window, head = Number.POSITIVE_INFINITY }: CacheGroupSummary, planned: Planned): number {
  const blocks = rowBlocks(window, DEFAULT_BLOCK_TOKENS, planned.batchTokens);
  return Math.min(planned.tokens, head, blocks * DEFAULT_BLOCK_TOKENS);
}

function groupBytes(group: CacheGroupSummary, planned: Planned): number {
  return group.stateBytes > 0 ? group.stateBytes : kept(group, planned) * group.bytesPerToken;
}

export function sequenceKv({ groups }: ModelSummary, planned: Planned): SequenceKv {
  const { tokens } = planned;
  const sum = (bytes: (group: CacheGroupSummary) => number): number =>
    groups.reduce((all, group) => all + bytes(group), 0);
  return {
    tokens,
    bytes: sum((group) => groupBytes(group, planned)),
    settledBytes: sum((group) => groupBytes(group, { tokens, batchTokens: 1 })),
    wholeBytes: sum((group) =>
      // A head and a tail are besides.
      group.head !== undefined || group.tail
        ? groupBytes(group, planned)
        : group.stateBytes + tokens * group.bytesPerToken,
    ),
  };
}

export function memoryFit(
  summary: ModelSummary,
  device: 'cpu' | 'webgpu',
  memoryBytes: number,
  planned: Planned,
): MemoryFit {
  const weightBytes = summary.weightBytes - summary.hostBytes;
  const left = Math.max(0, memoryBytes - weightBytes - RESERVE);
  const widest = Math.max(...summary.cache.map((c) => Math.max(c.keyBytes, c.valueBytes)));
  const addressable = device === 'webgpu' ? Math.floor(GPU_PLANE_BYTES / widest) : Number.POSITIVE_INFINITY;
  const sequenceBytes = sequenceKv(summary, planned).bytes;
  // What grows with the sequence, beside the windows of one row.
  const [first, ...others] = summary.groups as [CacheGroupSummary, ...CacheGroupSummary[]];
  const windows = others.reduce((sum, group) => sum + groupBytes(group, planned), 0);
  const kvTokens = Math.min(addressable, Math.max(0, Math.floor((left - windows) / first.bytesPerToken)));
  const kvBytes = kvTokens * first.bytesPerToken + (kvTokens > 0 ? windows : 0);
  return {
    memoryBytes,
    weightBytes,
    reservedBytes: RESERVE,
    kvBytes,
    kvTokens,
    sequenceBytes,
    fullContexts: Math.floor(kvBytes / sequenceBytes),
  };
}

/** Lines of the report under "memory". */
export function memoryLines(s: ModelSummary, fit: MemoryFit | null): string[] {
  if (fit === null) {
    const perGiB = Math.floor(2 ** 30 / s.kvBytesPerToken).toLocaleString('en');
    const need = formatBytes(s.weightBytes - s.hostBytes + RESERVE);
    return [`${need} before any KV, then ${perGiB} tokens a GiB; --memory says what fits`];
  }
  const tokens = fit.kvTokens.toLocaleString('en');
  return [
    `${formatBytes(fit.memoryBytes)} (this machine has ${formatBytes(totalmem())})`,
    fit.kvBytes === 0
      ? `the weights need ${formatBytes(fit.weightBytes + fit.reservedBytes)}: they do not fit`
      : `${formatBytes(fit.kvBytes)} for KV: ${tokens} tokens, ${fit.fullContexts} full contexts`,
  ];
}

/** Lines of the report under "KV cache". */
export function kvLines(s: ModelSummary, planned: Planned): string[] {
  const gives = s.groups.filter((group) => group.stateBytes === 0 && kept(group, planned) < planned.tokens);
  const what = planned.tokens === s.maxContext ? 'full context' : `${planned.tokens} tokens`;
  const { bytes, settledBytes, wholeBytes } = sequenceKv(s, planned);
  return [
    settledBytes === wholeBytes
      ? `${s.kvBytesPerToken} B a token, ${formatBytes(bytes)} at ${what}`
      : `${s.kvBytesPerToken} B a token, ${formatBytes(settledBytes)} at ${what} (${formatBytes(bytes)} while the prompt is computed, ${formatBytes(wholeBytes)} if all of it were kept)`,
    ...gives.map((group) => keptLine(group, kept(group, planned))),
    ...s.groups
      .filter(({ stateBytes }) => stateBytes > 0)
      .map(
        ({ layers, stateBytes }) =>
          `${layersOf(layers.length)}: a state of ${formatBytes(stateBytes)} in all, however long the sequence is`,
      ),
    ...layerLines(s.cache),
    ...(s.floatStart === null
      ? []
      : [
          `${s.floatStart.dtype} in every layer, ${s.floatStart.bytesPerToken} B a token, before ${s.floatStart.start} tokens`,
        ]),
  ];
}

function keptLine({ tail, head, window, layers, bytesPerToken }: CacheGroupSummary, most: number): string {
  if (tail)
    return `the newest ${window} tokens of ${layersOf(layers.length)} are read as floats, ${bytesPerToken} B each besides: a sequence keeps ${most} at most`;
  if (head !== undefined) return `the first ${head} tokens are floats besides, ${bytesPerToken} B each`;
  return `${layersOf(layers.length)}: behind ${window} tokens it is given back: a sequence keeps ${most} at most`;
}

/** What each layer has; layers that are alike share a line. */
function layerLines(cache: readonly CacheSummary[]): string[] {
  const plan = new Map<string, number[]>();
  for (const c of cache) {
    const what = layerKv(c);
    plan.set(what, [...(plan.get(what) ?? []), c.layer]);
  }
  return [...plan].map(([what, layers]) => `${layersNamed(layers)}: ${what}`);
}

function layerKv(c: CacheSummary): string {
  const why = c.reason === undefined ? '' : ` (${c.reason})`;
  if (c.stateBytes !== undefined) return `recurrent, ${formatBytes(c.stateBytes)} of f32 state a sequence`;
  if (c.valueDim !== undefined)
    return `latents, ${c.keyFormat}, one of ${c.headDim} a token, of which ${c.valueDim} are the values, ${c.bytesPerToken} B${why}`;
  const kind = c.window === null ? 'full attention' : `sliding window ${c.window}`;
  return `${kind}, K ${c.keyFormat}, V ${c.valueFormat}, ${c.kvHeads} × ${c.headDim}, ${c.bytesPerToken} B a token${why}`;
}

const layersOf = (count: number): string => `${count} ${count === 1 ? 'layer' : 'layers'}`;
