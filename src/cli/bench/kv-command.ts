/** `kvant bench kv`: what each format of the KV cache costs in speed, beside float KV and the device's read bandwidth. */
import type { Command } from 'commander';
import type { DeviceKind } from '../../device/device.js';
import type { OfflineRunner } from '../../engine/offline-runner.js';
import { KvantError } from '../../errors.js';
import { shapeNames } from '../../models/shapes.js';
import type { EvalFormat } from '../eval/kv-formats.js';
import { addEngineFlags, type EngineFlags, engineOptions, integer } from '../flags.js';
import { Option } from '../option.js';
import { checkOutputs, writeOutput } from '../output.js';
import { ProgressBar } from '../progress.js';
import { versions } from '../versions.js';
import type { BenchKvReport, Samples } from './kv-report.js';
import type { CacheVariantSize } from './kv-variant.js';

interface BenchKvFlags extends EngineFlags {
  readonly shapes?: string;
  readonly vocab?: number;
  readonly formats?: string;
  readonly rows: number;
  readonly context: number;
  readonly steps: number;
  readonly rounds: number;
  readonly prefill: number;
  readonly prefillRounds: number;
  readonly out?: string;
  readonly json?: boolean;
}

const DEFAULT_FORMATS = {
  cpu: 'f16,f32,affine8,affine4,turbo4,turbo3.5',
  webgpu: 'f16,affine8,affine4,turbo4,turbo3.5',
} as const;
/** Steps that do not count; a GPU has idled while kernels were compiled, and takes a third of a second to be fast again. */
const WARM_UP = { cpu: 2, webgpu: 40 } as const;
const FILLED_WITH = 'random K and V, stored by the append kernels';

export function addBenchKvCommand(benchCommand: Command): void {
  const command = benchCommand
    .command('kv [model]')
    .summary('measure the formats of the KV cache')
    .description(
      'Measures formats of the KV cache in turns within one run: steps of decoding by the whole model, attention alone, ' +
        'and prefill; beside float caches and the bandwidth at which the device reads memory. The cache is filled with ' +
        'random K and V through the append kernels, for a prompt of that length would take minutes.',
    )
    .addOption(
      new Option('--shapes <name>', `random weights in the sizes of: ${shapeNames().join(', ')}`).choices(
        shapeNames(),
      ),
    )
    .option('--vocab <n>', 'rows of the vocabulary, with --shapes', integer(2))
    .option('--formats <list>', `formats to measure (default: ${DEFAULT_FORMATS.webgpu}, on a CPU f32 too)`)
    .option('--rows <n>', 'sequences side by side', integer(1), 4)
    .option('--context <tokens>', 'tokens in the cache of each row', integer(64), 8192)
    .option('--steps <n>', 'steps of decoding in a round', integer(1), 16)
    .option('--rounds <n>', 'rounds, in each of which every format has its turn', integer(1, 99), 3)
    .option('--prefill <tokens>', 'length of the prompt that is computed; 0: none', integer(0), 4096)
    .option('--prefill-rounds <n>', 'rounds in which prompts are computed', integer(1, 99), 2)
    .option('--out <file>', 'write the result as JSON')
    .option('--json', 'print the result as JSON');
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Examples:
  $ kvant bench kv --shapes qwen3-0.6b --vocab 32000 --device cpu --rows 4 --context 8192
  $ kvant bench kv --shapes llama-8b --rows 4 --context 20000 --rounds 5 --out kv.json`,
  );
  command.action(async (model: string | undefined, flags: BenchKvFlags) => {
    const report = await bench(model, flags);
    if (flags.out !== undefined)
      await writeOutput('--out', flags.out, `${JSON.stringify(report, null, 1)}\n`);
    if (flags.json) {
      process.stdout.write(`${JSON.stringify(report)}\n`);
      return;
    }
    const { benchTable } = await import('./kv-report.js');
    process.stdout.write(`${heading(report)}\n${benchTable(report)}`);
  });
}

async function bench(model: string | undefined, flags: BenchKvFlags): Promise<BenchKvReport> {
  const { shapes, vocab, rows, context, prefill } = flags;
  if ((model === undefined) === (shapes === undefined))
    throw new KvantError('invalid-flags', 'One of a model and --shapes is needed.', {
      kind: 'invalid-request',
      fix: 'For example: kvant bench kv --shapes qwen3-0.6b --vocab 32000.',
    });
  if (flags.steps + WARM_UP.cpu >= context || prefill > context)
    throw new KvantError(
      'invalid-flags',
      `A context of ${context} does not hold ${prefill > context ? `a prompt of ${prefill}` : `${flags.steps} steps`}.`,
      { kind: 'invalid-request', where: '--context', fix: 'Give a longer --context, or less to do in it.' },
    );
  const { evalFormat, withoutKvOptions } = await import('../eval/kv-formats.js');
  const options = withoutKvOptions(engineOptions(flags));
  const named = flags.formats?.split(',') ?? null;
  const formatsOn = (device: DeviceKind): EvalFormat[] =>
    (named ?? DEFAULT_FORMATS[device].split(',')).map(evalFormat);
  if (named !== null) formatsOn('cpu');

  await checkOutputs(flags);
  const { OfflineRunner } = await import('../../engine/offline-runner.js');
  const bar = new ProgressBar();
  const { untilInterrupted } = await import('../interrupt.js');
  return untilInterrupted(async (signal) => {
    try {
      // Formats have their turns: the device needs room for the largest of them, one at a time.
      await using runner = await OfflineRunner.open(
        model === undefined ? { shape: shapes ?? '', vocab } : { model },
        {
          ...options,
          signal,
          onProgress: (p) => bar.update({ ...p, label: 'Loading' }),
        },
        [{ kv: { kvFormat: largest(named) }, rows, context }],
      );
      const { info } = runner.device;
      const chunk = Math.min(
        options.maxBatchTokens ?? { cpu: 256, webgpu: 2048 }[info.kind],
        Math.max(prefill, 256),
      );
      const formats = formatsOn(info.kind);
      const measured = await measure(runner, formats, flags, { rows, context, chunk }, bar, signal);
      const { results } = await import('./kv-report.js');
      const readBandwidth = Math.max(...measured.readBandwidth);
      const { facts, parameterBytes } = runner.model;
      return {
        model: model ?? shapes ?? '',
        vocab: facts.vocabSize,
        weightBytes: parameterBytes,
        device: info.name,
        features: info.features,
        date: new Date().toISOString().slice(0, 10),
        versions: versions(),
        rows,
        context,
        steps: flags.steps,
        rounds: flags.rounds,
        prefillTokens: prefill,
        chunk,
        filledWith: FILLED_WITH,
        readBandwidth: [measured.readBandwidth[0] / 1e9, measured.readBandwidth[1] / 1e9],
        formats: results(measured.samples, { rows, context, prefillTokens: prefill, readBandwidth }),
      };
    } finally {
      bar.done();
    }
  });
}

async function measure(
  runner: OfflineRunner,
  formats: readonly EvalFormat[],
  { steps, rounds, prefill, prefillRounds }: BenchKvFlags,
  size: CacheVariantSize,
  bar: ProgressBar,
  signal: AbortSignal,
): Promise<{ samples: Samples[]; readBandwidth: readonly [number, number] }> {
  const [{ BenchVariant }, { measureReadBandwidth }] = await Promise.all([
    import('./kv-variant.js'),
    import('../../engine/read-bandwidth.js'),
  ]);
  const tell = (done: number, item: string): void =>
    bar.update({ label: 'Measuring', done, total: rounds * formats.length, unit: 'turns', item });
  tell(0, 'read bandwidth');
  const before = await measureReadBandwidth(runner.device, 5);
  const samples = new Map<string, Samples>();
  const warmUp = Math.min(WARM_UP[runner.device.info.kind], size.context - steps - 1);
  for (let round = 0; round < rounds; round++) {
    for (let turn = 0; turn < formats.length; turn++) {
      signal.throwIfAborted();
      // Every round begins with another format: none is always the one behind the largest.
      const { name, kv } = formats[(turn + round) % formats.length]!;
      const done = round * formats.length + turn;
      await using variant = new BenchVariant(runner, kv, size);
      tell(done, `${name}: filling`);
      await variant.fill();
      const one = samples.get(name) ?? {
        name,
        layers: variant.plan.info,
        bytesPerToken: variant.bytesPerToken,
        poolBytes: variant.poolBytes,
        decode: [],
        attend: [],
        prefill: [],
      };
      samples.set(name, one);
      tell(done, `${name}: decoding`);
      one.decode.push(await variant.decode(steps, warmUp));
      tell(done, `${name}: attention`);
      one.attend.push(await variant.attend(steps, warmUp));
      if (prefill === 0 || round >= prefillRounds) continue;
      tell(done, `${name}: prefill`);
      one.prefill.push(await variant.prefill(prefill));
    }
  }
  tell(rounds * formats.length, 'read bandwidth');
  const after = await measureReadBandwidth(runner.device, 5);
  return { samples: formats.map(({ name }) => samples.get(name)!), readBandwidth: [before, after] };
}

/** The format that may take most; f32 where it is not known yet. */
function largest(formats: readonly string[] | null): string {
  return formats === null || formats.includes('f32') ? 'f32' : 'f16';
}

function heading(report: BenchKvReport): string {
  const { model, vocab, weightBytes, device, rows, context, readBandwidth } = report;
  const [before, after] = readBandwidth.map((rate) => rate.toFixed(rate < 100 ? 1 : 0));
  return (
    `${model}, vocabulary ${vocab}, ${(weightBytes / 1e6).toFixed(0)} MB of weights, on ${device}\n` +
    `${rows} rows × ${context} tokens (${report.filledWith}), ${report.rounds} rounds of ${report.steps} steps; ` +
    `memory reads at ${before} GB/s before, ${after} GB/s after\n`
  );
}
