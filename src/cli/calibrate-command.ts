/** `kvant calibrate`: measures what the keys of a model have in common, for `--kv-calibration`. */
import type { Command } from 'commander';
import type { MeasuredPlans, WantedPlan } from '../engine/best-plan.js';
import type { EngineOptions } from '../engine/types.js';
import { KvantError } from '../errors.js';
import { type KvCalibration, kvCalibration, writeKvCalibration } from '../kv/calibration.js';
import type { KvLosses } from '../kv/losses.js';
import { KV_OPTION_NAMES } from '../kv/options.js';
import { writeKvPlan } from '../kv/plan-file.js';
import { addEngineFlags, type EngineFlags, engineOptions, integer } from './flags.js';
import { readText } from './input.js';
import { untilInterrupted } from './interrupt.js';
import { checkOutputs, writeOutput } from './output.js';
import { ProgressBar } from './progress.js';

interface CalibrateFlags extends EngineFlags {
  readonly text?: string;
  readonly tokens: number;
  readonly out: string;
  readonly losses?: boolean;
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
    .option(
      '--losses',
      'also measure what each side of each layer loses by each format, for --kv-bytes-per-token: a pass over 512 tokens for each side of each layer',
    )
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
  const all = engineOptions(flags);
  const wanted = wantedPlan(flags, all);
  await checkOutputs(flags);
  const [{ OfflineRunner }, { calibrateKv, calibrationTexts }, { LossMeter, measureKvLosses }, plans] =
    await Promise.all([
      import('../engine/offline-runner.js'),
      import('../engine/calibrate.js'),
      import('../engine/kv-losses.js'),
      import('../engine/best-plan.js'),
    ]);
  const given = flags.text === undefined ? undefined : [await readText(flags.text)];
  // The file depends on model and text alone.
  const options = { ...withoutKv(all), precision: 'reference', signal } as const;
  const bar = new ProgressBar();
  try {
    const kv = { kvFormat: 'f32' };
    const cache = { kv, rows: 1, context: flags.tokens };
    await using runner = await OfflineRunner.open({ model }, options, [cache]);
    const texts = calibrationTexts(runner.text, runner.model.maxContext, flags.tokens, given);
    const context = Math.max(...texts.map((ids) => ids.length));
    const { caches } = runner.variant({ kv, rows: 1, context });
    const measured = await calibrateKv(runner.model, runner.device, caches, texts, (done, total) =>
      bar.update({ label: 'Calibrating', done, total, unit: 'tokens' }),
    );
    caches.dispose();
    if (flags.losses !== true && wanted === null) return await write(measured, null);

    const layers = runner.model.facts.cache;
    const meter = new LossMeter(runner, measured, texts);
    const passes = (label: string) => (done: number, total: number) =>
      bar.update({ label, done, total, unit: 'passes' });
    const losses = await measureKvLosses(meter, layers, 'f32', passes('Measuring losses'), signal);
    const calibration = kvCalibration(measured.tokens, measured.layers, losses);
    const plan =
      wanted === null
        ? null
        : await plans.bestPlan(meter, layers, losses, wanted, passes('Comparing plans'), signal);
    if (plan !== null && wanted?.file !== undefined)
      await writeOutput('--kv-plan', wanted.file, writeKvPlan(plan.best.choices, plan.best.bytes));
    await write(calibration, plan);
  } finally {
    bar.done();
  }

  async function write(calibration: KvCalibration, plan: MeasuredPlans | null): Promise<void> {
    await writeOutput('--out', flags.out, writeKvCalibration(calibration));
    bar.done();
    const { digest, tokens, layers, losses } = calibration;
    const written = { file: flags.out, digest, tokens, layers: layers.length };
    if (flags.json) {
      const more = {
        ...(losses === undefined ? {} : { losses }),
        ...(plan === null ? {} : { plans: plan.all }),
      };
      process.stdout.write(`${JSON.stringify({ ...written, ...more })}\n`);
      return;
    }
    const lines = [`${flags.out}: ${layers.length} layers by ${tokens} tokens, digest ${digest}`];
    if (losses !== undefined) lines.push(...lossLines(losses));
    for (const { name, bytes, kl, expected } of plan?.all ?? [])
      lines.push(`${`${bytes} B`.padStart(9)}  KL ${small(kl)} (expected ${small(expected)})  ${name}`);
    process.stdout.write(`${lines.join('\n')}\n`);
  }
}

/** The KV options are what is to be found out here. */
function withoutKv(options: EngineOptions): EngineOptions {
  return Object.fromEntries(
    Object.entries(options).filter(
      ([name]) => name !== 'kvCalibration' && !(KV_OPTION_NAMES as readonly string[]).includes(name),
    ),
  );
}

const FORMAT_FLAGS = [
  'kvFormat',
  'kvBits',
  'kvKeyBits',
  'kvValueBits',
  'cacheTypeK',
  'cacheTypeV',
  'kvSkipLayers',
  'kvFloatHead',
  'kvFloatTail',
  'quantizedKvStart',
] as const satisfies readonly (keyof CalibrateFlags)[];

/** Errors: `invalid-flags`, where formats are given that nothing is measured of. */
function wantedPlan(flags: CalibrateFlags, { kvBytesPerToken, kvPlan }: EngineOptions): WantedPlan | null {
  const flag = FORMAT_FLAGS.find((name) => flags[name] !== undefined);
  const file = kvPlan;
  if (flag !== undefined || (file !== undefined && kvBytesPerToken === undefined)) {
    const where =
      flag === undefined ? '--kv-plan' : `--${flag.replace(/[A-Z]/g, (c) => `-${c.toLowerCase()}`)}`;
    throw new KvantError(
      'invalid-flags',
      `A calibration is made for all formats at once, without ${where}.`,
      {
        kind: 'invalid-request',
        where,
        fix: 'Leave out formats and what goes with them; --kv-bytes-per-token BYTES --kv-plan FILE has the best plan of so many bytes written.',
      },
    );
  }
  if (kvBytesPerToken === undefined) return null;
  return { bytes: kvBytesPerToken, ...(file === undefined ? {} : { file }) };
}

/** A table: what each format costs in all layers, and the layers that cost most. */
function lossLines({ layers, positions }: KvLosses): string[] {
  const formats = [...new Set(layers.flatMap(({ key }) => Object.keys(key)))];
  const total = (side: 'key' | 'value', format: string): number =>
    layers.reduce((sum, layer) => sum + (layer[side][format] ?? 0), 0);
  const lines = [`KL from float KV at ${positions} positions, one side of all layers quantised:`];
  for (const format of formats)
    lines.push(`  ${format.padEnd(8)} K ${small(total('key', format))}  V ${small(total('value', format))}`);
  for (const side of ['key', 'value'] as const) {
    const ranked = layers.map((layer, i) => ({ i, loss: layer[side].turbo4 ?? 0 }));
    ranked.sort((a, b) => b.loss - a.loss);
    const most = ranked.slice(0, 5).map(({ i, loss }) => `${i} (${small(loss)})`);
    lines.push(`  ${side === 'key' ? 'K' : 'V'} costs most in layers ${most.join(', ')}`);
  }
  return lines;
}

const small = (value: number): string => value.toPrecision(2);
