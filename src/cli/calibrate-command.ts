/** `kvant calibrate`: measures what the keys of a model have in common, for `--kv-calibration`. */
import type { Command } from 'commander';
import { writeKvCalibration } from '../kv/calibration.js';
import { addEngineFlags, type EngineFlags, engineOptions, integer } from './flags.js';
import { readText } from './input.js';
import { untilInterrupted } from './interrupt.js';
import { checkOutputs, writeOutput } from './output.js';
import { ProgressBar } from './progress.js';

interface CalibrateFlags extends EngineFlags {
  readonly text?: string;
  readonly tokens: number;
  readonly out: string;
  readonly json?: boolean;
}

export function addCalibrateCommand(program: Command): void {
  const command = program
    .command('calibrate <model>')
    .description(
      'Runs a text through a model once and writes what its keys have in common and how far they spread: quantised KV caches lose ' +
        'less that are told (--kv-calibration).',
    )
    .requiredOption('--out <file>', 'where to write it')
    .option('--text <file>', 'a text of your own, some thousand words (default: a built-in one)')
    .option('--tokens <n>', 'no more than so many tokens of it', integer(64), 2048)
    .option('--json', 'print what was written as JSON');
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Example:
  $ kvant calibrate Qwen/Qwen3-0.6B --out qwen3.kvcal        then: kvant serve Qwen/Qwen3-0.6B --kv-bits 4 --kv-calibration qwen3.kvcal`,
  );
  command.action((model: string, flags: CalibrateFlags) =>
    untilInterrupted((signal) => calibrate(model, flags, signal)),
  );
}

async function calibrate(model: string, flags: CalibrateFlags, signal: AbortSignal): Promise<void> {
  await checkOutputs(flags);
  const [{ OfflineRunner }, { calibrateKv, calibrationTexts }] = await Promise.all([
    import('../engine/offline-runner.js'),
    import('../engine/calibrate.js'),
  ]);
  const given = flags.text === undefined ? undefined : [await readText(flags.text)];
  // The file depends on model and text alone.
  const options = { ...engineOptions(flags), precision: 'reference', signal } as const;
  const bar = new ProgressBar();
  try {
    const kv = { kvFormat: 'f32' };
    const cache = { kv, rows: 1, context: flags.tokens };
    await using runner = await OfflineRunner.open({ model }, options, [cache]);
    const texts = calibrationTexts(runner.text, runner.model.maxContext, flags.tokens, given);
    const context = Math.max(...texts.map((ids) => ids.length));
    const { caches } = runner.variant({ kv, rows: 1, context });
    const calibration = await calibrateKv(runner.model, runner.device, caches, texts, (done, total) =>
      bar.update({ label: 'Calibrating', done, total, unit: 'tokens' }),
    );
    await writeOutput('--out', flags.out, writeKvCalibration(calibration));
    bar.done();
    const { digest, tokens, layers } = calibration;
    const written = { file: flags.out, digest, tokens, layers: layers.length };
    if (flags.json) process.stdout.write(`${JSON.stringify(written)}\n`);
    else
      process.stdout.write(`${flags.out}: ${layers.length} layers by ${tokens} tokens, digest ${digest}\n`);
  } finally {
    bar.done();
  }
}
