/** `kvant inspect`: what a model is, how its cache would be kept, and what fits in memory. Reads no weights. */
import { freemem } from 'node:os';
import { type Command, InvalidArgumentError } from 'commander';
import type { DefaultCache } from '../engine/host-cache.js';
import type { MemoryUse } from '../engine/types.js';
import { KvantError } from '../errors.js';
import type { ModelSummary } from '../models/inspect.js';
import type { GenerationConfig } from '../text/generation-config.js';
import { addHubFlags, bytes, type HubFlags, hubOptions, integer, MMPROJ_HELP } from './flags.js';
import { untilInterrupted } from './interrupt.js';
import { addKvFlags, type KvFlags, kvOptions } from './kv-flags.js';
import { Option } from './option.js';
import { formatBytes, ProgressBar } from './progress.js';
import { addRopeFlags, overridesOf, type RopeFlags } from './rope-flags.js';

interface InspectFlags extends HubFlags, KvFlags, RopeFlags {
  readonly device: 'cpu' | 'webgpu';
  readonly quantize?: '4' | '8';
  readonly memory?: number;
  readonly maxContext?: number;
  readonly cpuExperts?: number;
  readonly mmproj?: string;
  readonly json?: boolean;
}

export function addInspectCommand(program: Command): void {
  const command = program
    .command('inspect <model>')
    .description(
      'Prints architecture, sizes, the cache plan of each layer and how many tokens fit in memory. Reads headers only.',
    )
    .addOption(new Option('--quantize <bits>', 'sizes as if quantised on load').choices(['4', '8']))
    .addOption(
      new Option(
        '--device <name>',
        'whose memory to plan: a GPU does not say how much it has, so give --memory',
      )
        .choices(['cpu', 'webgpu'])
        .default('cpu'),
    )
    .option(
      '--memory <size>',
      'memory to plan for, e.g. 24GiB (default: what this machine has free)',
      memorySize,
    )
    .option(
      '--max-context <tokens>',
      'plan for sequences of so many tokens (default: as many as the model takes)',
      integer(1),
    )
    .option(
      '--cpu-experts <layers>',
      'with --device webgpu: sizes as if the experts of the first so many layers stayed in host memory',
      integer(0),
    )
    .option('--mmproj <file>', MMPROJ_HELP)
    .option('--json', 'print as JSON');
  addHubFlags(addRopeFlags(addKvFlags(command)))
    .addHelpText(
      'after',
      `
Examples:
  $ kvant inspect Qwen/Qwen3-0.6B --quantize 4 --memory 8GiB
  $ kvant inspect Qwen/Qwen3-0.6B --device webgpu --memory 24GiB --kv-bits 3.5`,
    )
    .action((model: string, flags: InspectFlags) =>
      untilInterrupted((signal) => inspect(model, flags, signal)),
    );
}

async function inspect(model: string, flags: InspectFlags, signal: AbortSignal): Promise<void> {
  const { cpuExperts = 0 } = flags;
  if (cpuExperts > 0 && flags.device === 'cpu')
    throw new KvantError('invalid-flags', '--cpu-experts is for a GPU: on the CPU all of a model is there.', {
      kind: 'invalid-request',
      where: '--cpu-experts',
      fix: 'Add --device webgpu, or leave it out.',
    });
  const [
    { openModel },
    { inspectModel },
    { resolveModel },
    { textFiles },
    { DEFAULT_BATCH_TOKENS },
    { kvLines, memoryFit, memoryLines, sequenceKv },
    { defaultCache, floatsOf },
    { machineBytes },
    { estimateActivations, memoryUse, memoryWarning },
    { settleKvPlan },
  ] = await Promise.all([
    import('../models/open.js'),
    import('../models/inspect.js'),
    import('../weights/hub.js'),
    import('../engine/text-files.js'),
    import('../engine/host-options.js'),
    import('./inspect-kv.js'),
    import('../engine/host-cache.js'),
    import('../device/cpu/machine-bytes.js'),
    import('../engine/memory-use.js'),
    import('../engine/kv-plan.js'),
  ]);
  const bar = new ProgressBar();
  const { folder } = await resolveModel(model, {
    ...hubOptions(flags),
    ...(flags.mmproj === undefined ? {} : { projector: false }),
    signal,
    onProgress: (p) =>
      bar.update({ label: 'Fetching', done: p.bytes, total: p.totalBytes, unit: 'bytes', item: p.file }),
  }).finally(() => bar.done());
  await using opened = await openModel(folder, overridesOf(flags), flags.mmproj);
  const kv = await settleKvPlan(kvOptions(flags), {
    calibration: typeof flags.kvCalibration === 'string' ? flags.kvCalibration : undefined,
    layers: opened.definition.facts.cache,
    float: { kind: 'float', dtype: 'f16' },
    // Looking changes nothing.
    writes: false,
  });
  const summary = inspectModel(opened.source, opened.definition, {
    kv,
    can: floatsOf(flags.device),
    cpuExperts,
    ...(flags.quantize === undefined
      ? {}
      : { quantize: { bits: flags.quantize === '4' ? 4 : 8, groupSize: 64 } }),
  });
  const planned = {
    tokens: Math.min(flags.maxContext ?? summary.maxContext, summary.maxContext),
    batchTokens: DEFAULT_BATCH_TOKENS[flags.device],
  };
  const generation = await (await textFiles({ path: folder })).generation();
  const notices = [...opened.notices, ...generation.notices].map(({ message }) => message);
  const memory = flags.memory ?? (flags.device === 'cpu' ? freemem() : null);
  const fit = memory === null ? null : memoryFit(summary, flags.device, memory, planned);
  const device = {
    kind: flags.device,
    memoryBytes: flags.device === 'cpu' ? (flags.memory ?? machineBytes()) : undefined,
  };
  const matrixBytes =
    summary.weights.reduce((n, w) => n + (w.kind === 'norms and biases' ? 0 : w.bytes), 0) -
    summary.hostBytes;
  const { facts } = opened.definition;
  const longest = flags.maxContext === undefined ? {} : { maxContext: planned.tokens };
  const serve = orNull(() => defaultCache({ ...kv, ...longest }, facts, facts.cache, device, matrixBytes));
  const taken =
    serve === null
      ? null
      : memoryUse({
          weights: summary.weightBytes - summary.hostBytes,
          ...(summary.hostBytes === 0 ? {} : { host: summary.hostBytes }),
          caches: serve.groupBytes,
          floatStart: serve.kvBytes - serve.groupBytes.reduce((sum, bytes) => sum + bytes, 0),
          total:
            summary.weightBytes -
            summary.hostBytes +
            serve.kvBytes +
            estimateActivations(facts, serve.batchTokens, serve.maxRows),
          deviceBytes: flags.memory ?? device.memoryBytes,
        });
  const quantized =
    flags.quantize !== undefined ||
    summary.weights.some(({ formats }) => formats.some((f) => f.includes('bit')));
  const tight = taken === null ? null : memoryWarning(taken, quantized);
  if (tight !== null) notices.push(`${tight.message}. ${tight.fields!.fix}`);
  if (flags.json) {
    const { defaults, ignored } = generation;
    const sampling = { ...defaults, ignored };
    process.stdout.write(
      `${JSON.stringify({ model, folder, ...summary, sampling, device: flags.device, sequence: sequenceKv(summary, planned), fit, serve: serve && { ...serve, memory: taken }, notices })}\n`,
    );
    return;
  }
  process.stdout.write(
    `${describe(model, folder, summary, generation, kvLines(summary, planned), memoryLines(summary, fit), serve, taken)}\n`,
  );
  for (const notice of notices) process.stdout.write(`${'note'.padEnd(14)}${notice}\n`);
}

function describe(
  model: string,
  folder: string,
  s: ModelSummary,
  generation: GenerationConfig,
  kv: readonly string[],
  memory: readonly string[],
  serve: DefaultCache | null,
  taken: MemoryUse | null,
): string {
  const row = (name: string, value: string): string => `${name.padEnd(14)}${value}`;
  return [
    row('model', model),
    ...(folder === model ? [] : [row('folder', folder)]),
    row('architecture', `${s.architecture} (${s.family})`),
    row('layers', `${s.layers}, hidden ${s.hiddenSize}, intermediate ${s.intermediateSize}`),
    row('attention', `${s.heads} heads, ${s.kvHeads} KV heads, head_dim ${s.headDim}`),
    row('positions', `${s.maxContext}, rope ${s.rope}`),
    row('vocabulary', `${s.vocabSize}${s.tied ? ', tied head' : ''}`),
    row('parameters', `${(s.parameters / 1e6).toFixed(1)} M, ${formatBytes(s.weightBytes)}`),
    ...(s.experts === null
      ? []
      : [
          row(
            '',
            `${s.experts.count} experts in a layer, ${s.experts.chosen} for a token: ${(s.activeParameters / 1e6).toFixed(1)} M active, ${formatBytes(s.activeBytes)} read for one row`,
          ),
        ]),
    ...s.weights.map((w) =>
      row(
        '',
        `${w.kind}: ${(w.parameters / 1e6).toFixed(1)} M, ${formatBytes(w.bytes)}, ${w.formats.join(', ')}`,
      ),
    ),
    ...kv.map((line, i) => row(i === 0 ? 'KV cache' : '', line)),
    ...samplingLines(generation, row),
    ...memory.map((line, i) => row(i === 0 ? 'memory' : '', line)),
    row('serve', serveLine(serve)),
    ...(taken === null ? [] : [row('', takenLine(taken))]),
  ].join('\n');
}

/** What generation_config.json says, and what of it has no effect here. */
function samplingLines(
  { defaults, ignored }: GenerationConfig,
  row: (name: string, value: string) => string,
): string[] {
  const { doSample, ...numbers } = defaults;
  const said = Object.entries(numbers).map(
    ([name, value]) => `${name.replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`)} ${value}`,
  );
  return [
    ...(said.length === 0 ? [] : [row('sampling', `${said.join(', ')}${doSample ? '' : ' (greedy)'}`)]),
    ...(ignored.length === 0 ? [] : [row('', `of generation_config.json left out: ${ignored.join(', ')}`)]),
  ];
}

/** What `kvant serve` makes of it unless it is told otherwise: less than would fit, mostly. */
function serveLine(serve: DefaultCache | null): string {
  if (serve === null) return 'makes no KV cache: there is no room for one';
  const { kvTokens, kvBytes, maxRows, maxContext } = serve;
  const tokens = kvTokens.toLocaleString('en');
  return `makes ${tokens} tokens of KV by default, ${formatBytes(kvBytes)}: ${maxRows} rows, up to ${maxContext.toLocaleString('en')} tokens each; --max-rows, --max-context and --kv-memory change that`;
}

/** `takes 31 MiB of weights, 1.0 GiB of KV, about 4.2 MiB of activations: 1.1 GiB of 24 GiB`. */
function takenLine(taken: MemoryUse): string {
  const { weights, caches, floatStart, activations, total, deviceBytes, host } = taken;
  const kv = [...caches, ...(floatStart === 0 ? [] : [floatStart])].map(formatBytes).join(' + ');
  const of = deviceBytes === null ? '' : ` of ${formatBytes(deviceBytes)}`;
  return `takes ${formatBytes(weights)} of weights, ${kv} of KV, about ${formatBytes(activations)} of activations: ${formatBytes(total)}${of}${host === undefined ? '' : `; ${formatBytes(host)} of experts in host memory`}`;
}

/** Null where the cache that is asked for cannot be. */
function orNull<T>(make: () => T): T | null {
  try {
    return make();
  } catch (error) {
    if (error instanceof KvantError && error.code === 'kv-memory-too-small') return null;
    throw error;
  }
}

function memorySize(text: string): number {
  const size = bytes(text);
  if (size < 1) throw new InvalidArgumentError('A size above 0 is needed.');
  return size;
}
