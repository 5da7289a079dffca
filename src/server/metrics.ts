/** Prometheus metrics. The engine's gauges are read when they are scraped, not while it works. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { EngineStats, FeatureStoreStats, MemoryUse, PrefixDiskStats } from '../engine/types.js';

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

export class ServerMetrics {
  readonly registry = new Registry();
  readonly requests = new Counter({
    name: 'kvant_requests_total',
    help: 'Completion requests by route and outcome (ok, refused, error, cancelled).',
    labelNames: ['route', 'outcome'] as const,
    registers: [this.registry],
  });
  readonly duration = new Histogram({
    name: 'kvant_request_seconds',
    help: 'From the arrival of a request to the end of its response.',
    labelNames: ['route'] as const,
    buckets: SECONDS,
    registers: [this.registry],
  });
  readonly timeToFirstToken = new Histogram({
    name: 'kvant_time_to_first_token_seconds',
    help: 'From the arrival of a request to its first token.',
    buckets: SECONDS,
    registers: [this.registry],
  });
  readonly interToken = new Histogram({
    name: 'kvant_inter_token_seconds',
    help: 'Between two tokens of a request.',
    buckets: SECONDS,
    registers: [this.registry],
  });
  readonly #stats: readonly ((stats: EngineStats) => void)[];

  /** `memory`: what the engine took of the device when it was loaded. */
  constructor(memory: MemoryUse) {
    const registers = [this.registry];
    const taken = new Gauge({
      name: 'kvant_memory_bytes',
      help: 'Bytes on the device when load ended: weights, KV cache by group, activations.',
      labelNames: ['part', 'group'] as const,
      registers,
    });
    taken.set({ part: 'weights' }, memory.weights);
    for (const [group, bytes] of memory.caches.entries()) taken.set({ part: 'cache', group }, bytes);
    if (memory.floatStart > 0) taken.set({ part: 'float_start' }, memory.floatStart);
    taken.set({ part: 'activations' }, memory.activations);
    if (memory.host !== undefined) taken.set({ part: 'host_experts' }, memory.host);
    const gauge = (name: string, help: string, read: (stats: EngineStats) => number) => {
      const metric = new Gauge({ name, help, registers });
      return (stats: EngineStats): void => metric.set(read(stats));
    };
    /** The engine counts; here its total is copied. */
    const total = (name: string, help: string, read: (stats: EngineStats) => number) => {
      const metric = new Counter({ name, help, registers });
      return (stats: EngineStats): void => {
        metric.reset();
        metric.inc(read(stats));
      };
    };
    const finished = new Counter({
      name: 'kvant_finished_total',
      help: 'Choices finished since the start, by reason.',
      labelNames: ['reason'] as const,
      registers,
    });
    this.#stats = [
      gauge('kvant_queued_sequences', 'Sequences that wait for a row.', (s) => s.queued),
      gauge(
        'kvant_queue_age_seconds',
        'How long the oldest sequence in the queue has waited.',
        (s) => s.oldestQueuedMs / 1000,
      ),
      gauge('kvant_prefilling_rows', 'Rows whose prompt is being processed.', (s) => s.prefilling),
      gauge('kvant_decoding_rows', 'Rows that generate.', (s) => s.decoding),
      gauge('kvant_running_rows', 'Rows in use: prefilling and decoding.', (s) => s.prefilling + s.decoding),
      gauge('kvant_rows', 'Rows there are.', (s) => s.maxRows),
      gauge('kvant_kv_blocks_used', 'KV blocks in use.', (s) => s.blocksUsed),
      gauge('kvant_kv_blocks', 'KV blocks there are.', (s) => s.blocksTotal),
      gauge(
        'kvant_kv_float_start_blocks_used',
        'Float blocks of sequences not quantised yet, in use.',
        (s) => s.floatStartBlocksUsed,
      ),
      gauge(
        'kvant_kv_float_start_blocks',
        'Float blocks there are for sequences not quantised yet.',
        (s) => s.floatStartBlocksTotal,
      ),
      gauge(
        'kvant_prefix_cache_bytes',
        'Bytes of KV that the prefix cache knows, in use or not.',
        (s) => s.prefixCache?.bytes ?? 0,
      ),
      gauge(
        'kvant_prefix_cache_idle_bytes',
        'Bytes of those that no request uses.',
        (s) => s.prefixCache?.idleBytes ?? 0,
      ),
      total(
        'kvant_prefix_cache_lookups_total',
        'Sequences looked up in the prefix cache.',
        (s) => s.prefixCache?.lookups ?? 0,
      ),
      total(
        'kvant_prefix_cache_hits_total',
        'Sequences that found a prefix.',
        (s) => s.prefixCache?.hits ?? 0,
      ),
      total(
        'kvant_prefix_cache_hit_tokens_total',
        'Prompt tokens that were not computed for it.',
        (s) => s.prefixCache?.hitTokens ?? 0,
      ),
      total(
        'kvant_prefix_cache_resumed_tokens_total',
        'Tokens that rows which gave way found again.',
        (s) => s.prefixCache?.resumedTokens ?? 0,
      ),
      total(
        'kvant_prefix_cache_evictions_total',
        'Blocks of the prefix cache that gave way to others.',
        (s) => s.prefixCache?.evictions ?? 0,
      ),
      ...pictureMetrics(gauge, total),
      ...diskMetrics(gauge, total),
      gauge('kvant_device_bytes', 'Bytes allocated on the device.', (s) => s.device.bytes),
      gauge(
        'kvant_device_peak_bytes',
        'Most bytes allocated on the device at once since the start.',
        (s) => s.device.peakBytes,
      ),
      gauge(
        'kvant_sampler_bytes',
        'Bytes of those that hold the state of penalties, biases and masks.',
        (s) => s.device.samplerBytes,
      ),
      gauge('kvant_device_buffers', 'Live buffers on the device.', (s) => s.device.buffers),
      total(
        'kvant_prompt_tokens_total',
        'Prompt tokens of requests that had their turn, cached ones too.',
        (s) => s.promptTokens,
      ),
      total('kvant_completion_tokens_total', 'Tokens generated since the start.', (s) => s.completionTokens),
      total('kvant_steps_total', 'Steps since the start.', (s) => s.steps),
      total('kvant_refused_total', 'Requests that the engine refused since the start.', (s) => s.refused),
      total(
        'kvant_queue_timeouts_total',
        'Sequences whose time in the queue was over.',
        (s) => s.queueTimeouts,
      ),
      total(
        'kvant_kv_conversions_total',
        'Sequences quantised when they were long enough.',
        (s) => s.conversions,
      ),
      total('kvant_preemptions_total', 'Rows that gave way to others since the start.', (s) => s.preemptions),
      (stats) => {
        finished.reset();
        for (const [reason, count] of Object.entries(stats.finished)) finished.inc({ reason }, count);
      },
    ];
  }

  /** The exposition text. */
  render(stats: EngineStats): Promise<string> {
    for (const copy of this.#stats) copy(stats);
    return this.registry.metrics();
  }
}

type Metric = (
  name: string,
  help: string,
  read: (stats: EngineStats) => number,
) => (stats: EngineStats) => void;

function pictureMetrics(gauge: Metric, total: Metric): ReturnType<Metric>[] {
  const of =
    (read: (features: FeatureStoreStats) => number) =>
    ({ features }: EngineStats): number =>
      features === undefined ? 0 : read(features);
  return [
    gauge(
      'kvant_image_cache_bytes',
      'Bytes of what is computed of pictures, in use or kept.',
      of((f) => f.bytes),
    ),
    gauge(
      'kvant_image_cache_max_bytes',
      'Bytes that there are for it.',
      of((f) => f.maxBytes),
    ),
    gauge(
      'kvant_image_cache_entries',
      'Pictures of which it is.',
      of((f) => f.entries),
    ),
    gauge(
      'kvant_image_cache_references',
      'How often sequences hold one of them.',
      of((f) => f.references),
    ),
    total(
      'kvant_image_cache_hits_total',
      'Pictures that were there already.',
      of((f) => f.hits),
    ),
    total(
      'kvant_image_cache_evictions_total',
      'Pictures that gave way to others.',
      of((f) => f.evictions),
    ),
    total(
      'kvant_images_encoded_total',
      'Pictures that a tower computed.',
      of((f) => f.encoded),
    ),
    total(
      'kvant_image_encode_seconds_total',
      'Seconds that it took.',
      of((f) => f.seconds),
    ),
  ];
}

function diskMetrics(gauge: Metric, total: Metric): ReturnType<Metric>[] {
  const of =
    (read: (disk: PrefixDiskStats) => number) =>
    ({ prefixCache }: EngineStats): number =>
      prefixCache?.disk === undefined ? 0 : read(prefixCache.disk);
  const name = (rest: string): string => `kvant_prefix_disk_${rest}`;
  return [
    gauge(
      name('bytes'),
      'Bytes of the files in the folder of the prefix cache.',
      of((d) => d.bytes),
    ),
    gauge(
      name('files'),
      'Files in that folder.',
      of((d) => d.files),
    ),
    gauge(
      name('queued_bytes'),
      'Bytes that wait to be written to it.',
      of((d) => d.queuedBytes),
    ),
    gauge(
      name('reading'),
      '1 while the folder is read, 0 while it is left alone after failures.',
      of((d) => Number(d.reading)),
    ),
    gauge(
      name('writing'),
      '1 while the folder is written to, 0 while it is left alone after failures.',
      of((d) => Number(d.writing)),
    ),
    total(
      name('restored_tokens_total'),
      'Tokens whose KV came back from disk.',
      of((d) => d.restoredTokens),
    ),
    total(
      name('read_bytes_total'),
      'Bytes of KV read from disk.',
      of((d) => d.readBytes),
    ),
    total(
      name('written_bytes_total'),
      'Bytes written to disk.',
      of((d) => d.writtenBytes),
    ),
    total(
      name('evictions_total'),
      'Files removed for others.',
      of((d) => d.evicted),
    ),
    total(
      name('dropped_total'),
      'Blocks not written: too many waited, or the disk failed.',
      of((d) => d.dropped),
    ),
    total(
      name('corrupt_total'),
      'Files that were not as they had been written.',
      of((d) => d.corrupt),
    ),
    total(
      name('foreign_total'),
      'Names and files in the folder that are not ours.',
      of((d) => d.foreign),
    ),
    total(
      name('errors_total'),
      'Failures of the file system, and reads that took too long.',
      of((d) => d.readErrors + d.writeErrors + d.slowReads),
    ),
  ];
}
