/** `kvant tune`: measures ahead of time which kernels this GPU runs fastest for a model, and keeps that for `--autotune`. */
import type { Command } from 'commander';
import type { TuneReport } from '../device/webgpu/tuning/session.js';
import { KvantError } from '../errors.js';
import { addShapeFlags, requireTarget, type ShapeFlags } from './bench/engine.js';
import { addEngineFlags, type EngineFlags, engineOptions, integers, number } from './flags.js';
import { untilInterrupted } from './interrupt.js';
import { kvOptions } from './kv-flags.js';
import { Option } from './option.js';
import { checkOutputs, writeOutput } from './output.js';
import { ProgressBar } from './progress.js';
import type { TuneCeilings } from './tune-report.js';

interface TuneFlags extends EngineFlags, ShapeFlags {
  readonly rows?: readonly number[];
  readonly order: 'any' | 'same';
  readonly budget?: number;
  readonly again?: boolean;
  readonly candidates?: boolean;
  readonly out?: string;
  readonly json?: boolean;
}

export function addTuneCommand(program: Command): void {
  const command = addShapeFlags(
    program
      .command('tune [model]')
      .description(
        'Measures, on the weights of a model, which kernels this GPU runs fastest for every number of rows, prints what it gains, and keeps it for --autotune safe and --autotune full.',
      ),
  )
    .option(
      '--rows <list>',
      'rows of steps to tune for (default: those of every plan, up to --max-batch-tokens)',
      integers(1),
    )
    .addOption(
      new Option('--order <which>', 'same: only kernels that give the same bits as those chosen by rule')
        .choices(['any', 'same'])
        .default('any'),
    )
    .option('--budget <seconds>', 'begin nothing after so long (default: any time)', number(0, 1e6))
    .option('--again', 'measure also what is known')
    .option('--candidates', 'print the times of all candidates')
    .option('--out <file>', 'write the result as JSON')
    .option('--json', 'print the result as JSON');
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Choices are kept in KVANT_CACHE/tuning (default: ~/.cache/kvant/tuning), a file for each GPU and driver.

Examples:
  $ kvant tune Qwen/Qwen3-0.6B --quantize 4                  then: kvant serve Qwen/Qwen3-0.6B --quantize 4 --autotune safe
  $ kvant tune --shapes llama-8b --rows 1,4,8,32 --candidates --again`,
  );
  command.action(async (model: string | undefined, flags: TuneFlags) => {
    await tuneCommand(model, flags);
  });
}

async function tuneCommand(model: string | undefined, flags: TuneFlags): Promise<void> {
  requireTarget(model, flags, 'kvant tune');
  if (flags.deterministic === true || flags.precision === 'reference')
    throw new KvantError(
      'invalid-flags',
      'With --deterministic and --precision reference every sum has one order and one kernel.',
      { kind: 'invalid-request', where: '--deterministic', fix: 'Leave it out: there is nothing to tune.' },
    );
  await checkOutputs(flags);
  const { shapes, vocab, rows } = flags;
  const options = engineOptions(flags);
  const [{ OfflineRunner }, { tuneDevice }, { engineLimits }, { hostConfig }] = await Promise.all([
    import('../engine/offline-runner.js'),
    import('../engine/autotune.js'),
    import('../engine/host-options.js'),
    import('../engine/host-config.js'),
  ]);
  const bar = new ProgressBar();
  await untilInterrupted(async (signal) => {
    try {
      await using runner = await OfflineRunner.open(
        model === undefined ? { shape: shapes ?? '', vocab } : { model },
        { ...options, signal, onProgress: (p) => bar.update({ ...p, label: 'Loading' }) },
        [],
      );
      // Formats are what matters of it, not its size.
      const { caches } = runner.variant({ kv: kvOptions(flags), rows: 1, context: 1 });
      const { device } = runner;
      const none = hostConfig({ kind: 'shape', name: '' }, options);
      const limits = engineLimits(none, device.info.kind, 1);
      const most = rows === undefined ? 0 : Math.max(...rows);
      const report = await tuneDevice(
        device,
        runner.model.buildGraph().graph,
        {
          maxTokens: Math.max(limits.maxBatchTokens, most),
          maxOutputs: limits.maxRows,
          maxSequences: limits.maxRows,
          maxContext: limits.maxContext,
          inFlight: 1,
        },
        {
          caches,
          mode: flags.order === 'same' ? 'safe' : 'full',
          rows,
          again: flags.again,
          budgetMs: flags.budget === undefined ? undefined : flags.budget * 1000,
          onProgress: (done, total, item) =>
            bar.update({ label: 'Tuning', done, total, unit: 'kernels', item }),
          onLog: ({ message, fields }) =>
            process.stderr.write(`${message}: ${String(fields.why ?? '')} (${String(fields.path ?? '')})\n`),
          signal,
        },
      );
      const ceilings = report === null ? NO_CEILINGS : await measureCeilings(device);
      bar.done();
      await print(model ?? shapes ?? '', device.info.name, report, ceilings, flags);
    } finally {
      bar.done();
    }
  });
}

const NO_CEILINGS: TuneCeilings = { read: Number.NaN, matrix: null };

async function measureCeilings(
  device: Parameters<typeof import('../engine/read-bandwidth.js').measureReadBandwidth>[0],
): Promise<TuneCeilings> {
  const { measureMatrixRate, measureReadBandwidth } = await import('../engine/read-bandwidth.js');
  return { read: await measureReadBandwidth(device, 3), matrix: await measureMatrixRate(device, 3) };
}

async function print(
  model: string,
  device: string,
  report: TuneReport | null,
  ceilings: TuneCeilings,
  flags: TuneFlags,
): Promise<void> {
  const decisions = report?.decisions ?? [];
  const date = new Date().toISOString().slice(0, 10);
  const result = {
    model,
    device,
    date,
    mode: report?.mode ?? 'off',
    ceilings,
    ms: report?.ms ?? 0,
    decisions,
  };
  if (flags.out !== undefined) await writeOutput('--out', flags.out, `${JSON.stringify(result, null, 1)}\n`);
  if (flags.json) {
    process.stdout.write(`${JSON.stringify(result)}\n`);
    return;
  }
  if (decisions.length === 0) {
    process.stdout.write(
      `On ${device} there is one kernel for every product of ${model}: nothing to tune.\n`,
    );
    return;
  }
  const { candidateTable, tuneSummary, tuneTable } = await import('./tune-report.js');
  const matrix = ceilings.matrix === null ? '' : `, matrices ${(ceilings.matrix / 1e12).toFixed(0)} TFLOP/s`;
  process.stdout.write(`${model} on ${device}: reads ${(ceilings.read / 1e9).toFixed(0)} GB/s${matrix}\n`);
  if (flags.candidates) process.stdout.write(`${candidateTable(decisions, ceilings)}\n`);
  process.stdout.write(tuneTable(decisions, ceilings));
  process.stdout.write(tuneSummary(decisions, report?.ms ?? 0));
}
