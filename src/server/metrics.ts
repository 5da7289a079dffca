/** Prometheus metrics. The engine's gauges are read when they are scraped, not while it works. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import type { EngineStats } from '../engine/types.js';

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

export class ServerMetrics {
  readonly registry = new Registry();
  readonly requests = new Counter({
    name: 'kvant_requests_total',
    help: 'Completion requests by route and outcome (ok, error, cancelled).',
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
  readonly #gauges: Readonly<Record<string, Gauge>>;
  readonly #finished: Gauge<'reason'>;

  constructor() {
    const gauge = (name: string, help: string): Gauge =>
      new Gauge({ name, help, registers: [this.registry] });
    this.#gauges = {
      queued: gauge('kvant_queued_sequences', 'Sequences that wait for a row.'),
      prefilling: gauge('kvant_prefilling_rows', 'Rows whose prompt is being processed.'),
      decoding: gauge('kvant_decoding_rows', 'Rows that generate.'),
      running: gauge('kvant_running_rows', 'Rows in use: prefilling and decoding.'),
      rows: gauge('kvant_rows', 'Rows there are.'),
      blocksUsed: gauge('kvant_kv_blocks_used', 'KV blocks in use.'),
      blocksTotal: gauge('kvant_kv_blocks', 'KV blocks there are.'),
      promptTokens: gauge('kvant_prompt_tokens_total', 'Prompt tokens processed since the start.'),
      completionTokens: gauge('kvant_completion_tokens_total', 'Tokens generated since the start.'),
      steps: gauge('kvant_steps_total', 'Steps since the start.'),
      refused: gauge('kvant_refused_total', 'Requests refused since the start.'),
      deviceBytes: gauge('kvant_device_bytes', 'Bytes allocated on the device.'),
      deviceBuffers: gauge('kvant_device_buffers', 'Live buffers on the device.'),
    };
    this.#finished = new Gauge({
      name: 'kvant_finished_total',
      help: 'Choices finished since the start, by reason.',
      labelNames: ['reason'] as const,
      registers: [this.registry],
    });
  }

  /** The exposition text. */
  async render(stats: EngineStats): Promise<string> {
    const values: Record<string, number> = {
      queued: stats.queued,
      prefilling: stats.prefilling,
      decoding: stats.decoding,
      running: stats.prefilling + stats.decoding,
      rows: stats.maxRows,
      blocksUsed: stats.blocksUsed,
      blocksTotal: stats.blocksTotal,
      promptTokens: stats.promptTokens,
      completionTokens: stats.completionTokens,
      steps: stats.steps,
      refused: stats.refused,
      deviceBytes: stats.device.bytes,
      deviceBuffers: stats.device.buffers,
    };
    for (const [name, value] of Object.entries(values)) this.#gauges[name]?.set(value);
    for (const [reason, count] of Object.entries(stats.finished)) this.#finished.set({ reason }, count);
    return this.registry.metrics();
  }
}
