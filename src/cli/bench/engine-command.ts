/** `kvant bench engine`: what scheduler and engine leave of the rate of the bare program. */
import type { Command } from 'commander';
import type { Engine } from '../../engine/engine.js';
import { KvantError } from '../../errors.js';
import { EXAMPLE_MODEL } from '../example-model.js';
import { addEngineFlags, type EngineFlags, engineOptions, integer, integers } from '../flags.js';
import { untilInterrupted } from '../interrupt.js';
import { kvOptions } from '../kv-flags.js';
import { ProgressBar } from '../progress.js';
import { requireTarget, type ShapeFlags } from '../shape-flags.js';
import type { BareLoop } from './bare.js';
import { addShapeFlags, openBenchEngine } from './engine.js';
import { ascending, percentile, type Spread, spread, spreadText } from './percentile.js';

interface BenchEngineFlags extends EngineFlags, ShapeFlags {
  readonly rows: readonly number[];
  readonly prompt: number;
  readonly generate: number;
  readonly rounds: number;
  readonly json?: boolean;
}

export interface EngineRatio {
  readonly rows: number;
  /** Milliseconds of a step, medians of the rounds. */
  readonly engineMs: number;
  readonly bareMs: number;
  /** Tokens a second of the engine over those of the bare loop. */
  readonly ratio: Spread;
  /** The same of the fastest rounds of either: what it is where others keep the machine busy. */
  readonly bestRatio: number;
}

interface EngineReport {
  readonly model: string;
  readonly device: string;
  readonly prompt: number;
  readonly generate: number;
  readonly rounds: number;
  readonly results: readonly EngineRatio[];
}

/** Tokens of an answer that do not count: rows come in one by one, and a GPU speeds up. */
const WARM_UP = 8;
/** A GPU that idled takes a second or two to come to speed. */
const WARM_UP_MS = 2000;

export function addBenchEngineCommand(benchCommand: Command): void {
  const command = addShapeFlags(
    benchCommand
      .command('engine [model]')
      .summary('measure the engine beside the bare program')
      .description(
        'Decodes the same positions through the engine and in a bare loop that submits steps to the same program, two under way as ' +
          'the engine has them, in turns. Both have weights and a cache of their own.',
      ),
  )
    .option('--rows <list>', 'sequences side by side', integers(1), [1, 8, 32])
    .option('--prompt <n>', 'tokens of a prompt', integer(1), 512)
    .option('--generate <n>', 'tokens that each row generates', integer(2 * WARM_UP), 256)
    .option('--rounds <n>', 'turns that count', integer(1, 999), 9)
    .option('--json', 'print as JSON');
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Examples:
  $ kvant bench engine ${EXAMPLE_MODEL} --rows 1,4 --prompt 64
  $ kvant bench engine --shapes qwen3-0.6b --vocab 32000 --quantize 4 --rows 1,8,32 --json`,
  );
  command.action(async (model: string | undefined, flags: BenchEngineFlags) => {
    requireTarget(model, flags, 'kvant bench engine');
    if (flags.autotune !== undefined && flags.autotune !== 'off')
      throw new KvantError('invalid-flags', 'The bare loop beside the engine is not tuned.', {
        fix: 'Leave out --autotune.',
      });
    const report = await untilInterrupted((signal) => bench(model, flags, signal));
    process.stdout.write(flags.json ? `${JSON.stringify(report)}\n` : engineText(report));
  });
}

async function bench(
  model: string | undefined,
  flags: BenchEngineFlags,
  signal: AbortSignal,
): Promise<EngineReport> {
  const { shapes, vocab, prompt, generate, rounds } = flags;
  const [{ OfflineRunner }, { BareLoop }] = await Promise.all([
    import('../../engine/offline-runner.js'),
    import('./bare.js'),
  ]);
  await using engine = await openBenchEngine(model, flags, Math.max(...flags.rows), prompt + generate + 1);
  const { info } = engine;
  const bar = new ProgressBar();
  const kv = kvOptions(flags);
  await using runner = await OfflineRunner.open(
    model === undefined ? { shape: shapes!, vocab } : { model },
    { ...engineOptions(flags), signal, onProgress: (p) => bar.update({ ...p, label: 'Loading' }) },
    [{ kv, rows: info.limits.maxRows, context: info.limits.maxContext }],
  );
  await using bare = await BareLoop.open(runner, kv, info.limits);
  const results: EngineRatio[] = [];
  try {
    for (const rows of flags.rows) {
      const turns: { engine: number; bare: number }[] = [];
      const one = { rows, prompt, generate };
      await bare.prefill(rows, prompt);
      await warmUp(engine, bare, one);
      for (let round = 0; round < rounds; round++) {
        signal.throwIfAborted();
        const item = `${rows} rows`;
        bar.update({ label: 'Measuring', done: round, total: rounds, unit: 'rounds', item });
        turns.push(await takeTurn(engine, bare, one, round % 2 === 0));
      }
      const middle = (of: (turn: (typeof turns)[number]) => number): number =>
        percentile(ascending(turns.map(of)), 0.5);
      results.push({
        rows,
        engineMs: middle((turn) => turn.engine),
        bareMs: middle((turn) => turn.bare),
        ratio: spread(turns.map((turn) => turn.bare / turn.engine)),
        bestRatio:
          Math.min(...turns.map((turn) => turn.bare)) / Math.min(...turns.map((turn) => turn.engine)),
      });
    }
  } finally {
    bar.done();
  }
  return { model: info.name, device: info.device.name, prompt, generate, rounds, results };
}

interface Size {
  readonly rows: number;
  readonly prompt: number;
  readonly generate: number;
}

async function warmUp(engine: Engine, bare: BareLoop, one: Size): Promise<void> {
  const end = performance.now() + WARM_UP_MS;
  do await takeTurn(engine, bare, { ...one, generate: Math.min(one.generate, 64) }, true);
  while (performance.now() < end);
}

/** Milliseconds a step, of either; who is first changes from round to round. */
async function takeTurn(
  engine: Engine,
  bare: BareLoop,
  { rows, prompt, generate }: Size,
  engineFirst: boolean,
): Promise<{ engine: number; bare: number }> {
  const { measure } = await import('./cases.js');
  const through = async (): Promise<number> => (await measure(engine, { rows, prompt, generate })).stepMs;
  const without = async (): Promise<number> =>
    1000 * (await bare.decode(rows, prompt, generate - WARM_UP, WARM_UP));
  if (engineFirst) return { engine: await through(), bare: await without() };
  const first = await without();
  return { engine: await through(), bare: first };
}

export function engineText({ model, device, prompt, generate, rounds, results }: EngineReport): string {
  const head = `${model} on ${device}: ${generate} tokens behind ${prompt}, ${rounds} rounds\n`;
  const row = (cells: readonly string[]): string => `${cells.map((cell) => cell.padStart(14)).join('')}\n`;
  const lines = results.map(({ rows, engineMs, bareMs, ratio, bestRatio }) =>
    row([
      String(rows),
      ...[engineMs, bareMs].map((ms) => ms.toFixed(3)),
      bestRatio.toFixed(3),
      `  ${spreadText(ratio)}`,
    ]),
  );
  return head + row(['rows', 'engine ms', 'bare ms', 'best ratio', '  ratio']) + lines.join('');
}
