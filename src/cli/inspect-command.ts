/** `kvant inspect`: what a model is, how its cache would be kept, and what fits in memory. Reads no weights. */
import { freemem, totalmem } from 'node:os';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { parseKvFormat } from '../kv/policy.js';
import { parseModelConfig } from '../models/families.js';
import { inspectModel, type ModelSummary } from '../models/inspect.js';
import { Checkpoint } from '../weights/checkpoint.js';
import { resolveModel } from '../weights/hub.js';
import { bytes } from './flags.js';
import { formatBytes, ProgressBar } from './progress.js';

interface InspectFlags {
  readonly quantize?: '4' | '8';
  readonly kvFormat: string;
  readonly memory?: number;
  readonly json?: boolean;
}

/** Memory that neither weights nor KV may have: activations, code, the rest of the process. */
const RESERVE = 512 * 2 ** 20;

export function addInspectCommand(program: Command): void {
  program
    .command('inspect <model>')
    .summary('architecture, sizes, cache plan, and what fits in memory')
    .description(
      'Prints architecture, sizes, the cache plan of each layer and how many tokens fit in memory. Reads headers only.',
    )
    .addOption(new Option('--quantize <bits>', 'sizes as if quantised on load').choices(['4', '8']))
    .option('--kv-format <name>', 'KV cache: f16 or f32', 'f16')
    .option(
      '--memory <size>',
      'memory to plan for, e.g. 24GiB (default: what this machine has free)',
      memorySize,
    )
    .option('--json', 'print as JSON')
    .addHelpText('after', '\nExample:\n  $ kvant inspect Qwen/Qwen3-0.6B --quantize 4 --memory 8GiB')
    .action(inspect);
}

async function inspect(model: string, flags: InspectFlags): Promise<void> {
  const bar = new ProgressBar();
  const { folder } = await resolveModel(model, {
    onProgress: (p) =>
      bar.update({ label: 'Fetching', done: p.bytes, total: p.totalBytes, unit: 'bytes', item: p.file }),
  }).finally(() => bar.done());
  const checkpoint = await Checkpoint.open(folder);
  let summary: ModelSummary;
  try {
    const config = parseModelConfig(checkpoint.config, `${folder}/config.json`);
    summary = inspectModel(checkpoint, config, {
      kvFormat: parseKvFormat(flags.kvFormat),
      ...(flags.quantize === undefined
        ? {}
        : { quantize: { bits: flags.quantize === '4' ? 4 : 8, groupSize: 64 } }),
    });
  } finally {
    await checkpoint.close();
  }
  const fit = memoryFit(summary, flags.memory ?? freemem());
  if (flags.json) {
    process.stdout.write(`${JSON.stringify({ model, folder, ...summary, fit })}\n`);
    return;
  }
  process.stdout.write(`${describe(model, folder, summary, fit)}\n`);
}

interface MemoryFit {
  readonly memoryBytes: number;
  readonly weightBytes: number;
  readonly reservedBytes: number;
  /** What is left for the KV cache; 0 if not even the weights fit. */
  readonly kvBytes: number;
  readonly kvTokens: number;
  /** Sequences of the model's full context that fit. */
  readonly fullContexts: number;
}

function memoryFit(summary: ModelSummary, memoryBytes: number): MemoryFit {
  const kvBytes = Math.max(0, memoryBytes - summary.weightBytes - RESERVE);
  const kvTokens = Math.floor(kvBytes / summary.kvBytesPerToken);
  return {
    memoryBytes,
    weightBytes: summary.weightBytes,
    reservedBytes: RESERVE,
    kvBytes,
    kvTokens,
    fullContexts: Math.floor(kvTokens / summary.maxContext),
  };
}

function describe(model: string, folder: string, s: ModelSummary, fit: MemoryFit): string {
  const row = (name: string, value: string): string => `${name.padEnd(14)}${value}`;
  const plan = new Map<string, number[]>();
  for (const c of s.cache) {
    const kind = c.window === null ? 'full attention' : `sliding window ${c.window}`;
    const key = `${kind}, K ${c.keyFormat}, V ${c.valueFormat}, ${c.kvHeads} × ${c.headDim}, ${c.bytesPerToken} B a token`;
    plan.set(key, [...(plan.get(key) ?? []), c.layer]);
  }
  return [
    row('model', model),
    ...(folder === model ? [] : [row('folder', folder)]),
    row('architecture', `${s.architecture} (${s.family})`),
    row('layers', `${s.layers}, hidden ${s.hiddenSize}, intermediate ${s.intermediateSize}`),
    row('attention', `${s.heads} heads, ${s.kvHeads} KV heads, head_dim ${s.headDim}`),
    row('positions', `${s.maxContext}, rope ${s.rope}`),
    row('vocabulary', `${s.vocabSize}${s.tied ? ', tied head' : ''}`),
    row('parameters', `${(s.parameters / 1e6).toFixed(1)} M, ${formatBytes(s.weightBytes)}`),
    ...s.weights.map((w) =>
      row(
        '',
        `${w.kind}: ${(w.parameters / 1e6).toFixed(1)} M, ${formatBytes(w.bytes)}, ${w.formats.join(', ')}`,
      ),
    ),
    row(
      'KV cache',
      `${s.kvBytesPerToken} B a token, ${formatBytes(s.kvBytesPerToken * s.maxContext)} at full context`,
    ),
    ...[...plan].map(([what, layers]) => row('', `layers ${ranges(layers)}: ${what}`)),
    row('memory', `${formatBytes(fit.memoryBytes)} (of ${formatBytes(totalmem())} here)`),
    row(
      '',
      fit.kvBytes === 0
        ? `the weights need ${formatBytes(fit.weightBytes + fit.reservedBytes)}: they do not fit`
        : `${formatBytes(fit.kvBytes)} for KV: ${fit.kvTokens.toLocaleString('en')} tokens, ${fit.fullContexts} full contexts`,
    ),
  ].join('\n');
}

/** [0, 1, 2, 5] → `0–2, 5`. */
function ranges(layers: readonly number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < layers.length; ) {
    let j = i;
    while (layers[j + 1] === layers[j]! + 1) j++;
    parts.push(i === j ? String(layers[i]) : `${layers[i]}–${layers[j]}`);
    i = j + 1;
  }
  return parts.join(', ');
}

function memorySize(text: string): number {
  const size = bytes(text);
  if (size < 1) throw new InvalidArgumentError('A size above 0 is needed.');
  return size;
}
