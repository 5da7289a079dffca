/** `kvant bench sampler`: what penalties, filters and log-probabilities cost a step, beside greedy rows. */
import type { Command } from 'commander';
import type { DeviceInfo, DeviceKind } from '../../device/device.js';
import type { Engine } from '../../engine/engine.js';
import { KvantError } from '../../errors.js';
import { shapeNames } from '../../models/shapes.js';
import { EXAMPLE_MODEL } from '../example-model.js';
import { addEngineFlags, type EngineFlags, engineOptions, integer, integers } from '../flags.js';
import { untilInterrupted } from '../interrupt.js';
import { Option } from '../option.js';
import { checkOutputs, writeOutput } from '../output.js';
import { ProgressBar } from '../progress.js';
import { type BenchCase, measure, warmUp } from './cases.js';
import { casesFor, GREEDY, type SamplerCase } from './sampler-cases.js';

interface BenchSamplerFlags extends EngineFlags {
  readonly shapes?: string;
  readonly vocab?: number;
  readonly rows: readonly number[];
  readonly prompt: number;
  readonly generate: number;
  readonly rounds: number;
  readonly dryWindow: number;
  readonly out?: string;
  readonly json?: boolean;
}

export interface SamplerResult {
  readonly case: string;
  readonly rows: number;
  readonly prompt: number;
  /** Median over the rounds, milliseconds. */
  readonly stepMs: number;
  /** Greedy step over this step: the median over the rounds, greedy being the mean of a run before and one after this. */
  readonly ratio: number;
  readonly lowest: number;
  readonly highest: number;
  readonly aim: number | null;
}

export interface BenchSamplerReport {
  readonly model: string;
  readonly vocab: number;
  readonly device: Pick<DeviceInfo, 'kind' | 'name' | 'features'>;
  readonly generate: number;
  readonly rounds: number;
  readonly date: string;
  readonly results: readonly SamplerResult[];
}

/** Greedy rows decode so long before anything is measured. */
const WARM_UP_MS = 2000;

/** A run of a case, milliseconds a step, and the greedy runs before and after it. */
export interface Turn {
  readonly ms: number;
  readonly greedy: number;
}

/** Cases that are measured in turns. */
interface Series {
  readonly rows: number;
  readonly prompt: number;
  readonly monotonous: boolean;
  readonly cases: readonly SamplerCase[];
}

export function addBenchSamplerCommand(benchCommand: Command): void {
  const command = benchCommand
    .command('sampler [model]')
    .summary('measure what sampling costs')
    .description(
      'Measures whole steps of decoding with penalties, filters and log-probabilities, each between two runs of greedy ' +
        'rows that have none, and tells it as a share of their rate.',
    )
    .addOption(
      new Option('--shapes <name>', `random weights in the sizes of: ${shapeNames().join(', ')}`).choices(
        shapeNames(),
      ),
    )
    .option('--vocab <n>', 'rows of the vocabulary, with --shapes', integer(2))
    .option('--rows <list>', 'sequences side by side', integers(1), [1, 32])
    .option('--prompt <tokens>', 'tokens of a prompt', integer(1), 64)
    .option('--generate <n>', 'tokens that each row generates', integer(16), 256)
    .option('--rounds <n>', 'rounds, in each of which every case has its turn', integer(1, 99), 7)
    .option(
      '--dry-window <tokens>',
      'also DRY over a prompt of so many equal tokens, one row; 0: not',
      integer(0),
      0,
    )
    .option('--out <file>', 'write the result as JSON')
    .option('--json', 'print the result as JSON');
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Examples:
  $ kvant bench sampler ${EXAMPLE_MODEL} --rows 1,8
  $ kvant bench sampler --shapes qwen3-0.6b --vocab 151936 --quantize 4 --rows 1,32 --dry-window 32768`,
  );
  command.action(async (model: string | undefined, flags: BenchSamplerFlags) => {
    const report = await bench(model, flags);
    if (flags.out !== undefined)
      await writeOutput('--out', flags.out, `${JSON.stringify(report, null, 1)}\n`);
    process.stdout.write(flags.json ? `${JSON.stringify(report)}\n` : samplerTable(report));
  });
}

async function bench(model: string | undefined, flags: BenchSamplerFlags): Promise<BenchSamplerReport> {
  const { shapes, vocab, rows, prompt, generate, rounds, dryWindow } = flags;
  if ((model === undefined) === (shapes === undefined))
    throw new KvantError('invalid-flags', 'One of a model and --shapes is needed.', {
      kind: 'invalid-request',
      fix: 'For example: kvant bench sampler --shapes qwen3-0.6b --vocab 151936.',
    });
  const given = engineOptions(flags);
  const options = {
    ...given,
    prefixCache: false,
    maxRows: given.maxRows ?? Math.max(...rows),
    maxContext: given.maxContext ?? Math.max(prompt, dryWindow) + generate + 1,
  };
  const series: Series[] = rows.map((n) => ({ rows: n, prompt, monotonous: false, cases: casesFor(n) }));
  if (dryWindow > 0) {
    const cases = casesFor(1).filter(({ name }) => name === GREEDY || name === 'DRY');
    series.push({ rows: 1, prompt: dryWindow, monotonous: true, cases });
  }
  await checkOutputs(flags);
  const { loadEngine, loadShape } = await import('../load.js');
  return untilInterrupted(async () => {
    await using engine =
      shapes === undefined
        ? await loadEngine(model ?? '', options)
        : await loadShape(shapes, { ...options, ...(vocab === undefined ? {} : { vocab }) });
    const bar = new ProgressBar();
    const results: SamplerResult[] = [];
    try {
      for (const one of series) results.push(...(await measureSeries(engine, one, generate, rounds, bar)));
    } finally {
      bar.done();
    }
    const { name, device } = engine.info;
    return {
      model: name,
      vocab: engine.info.model.vocabSize,
      device: { kind: device.kind, name: device.name, features: device.features },
      generate,
      rounds,
      date: new Date().toISOString().slice(0, 10),
      results,
    };
  });
}

async function measureSeries(
  engine: Engine,
  { rows, prompt, monotonous, cases }: Series,
  generate: number,
  rounds: number,
  bar: ProgressBar,
): Promise<SamplerResult[]> {
  const caseOf = (one: SamplerCase, tokens: number): BenchCase => ({
    rows,
    prompt,
    generate: tokens,
    sampling: one.sampling,
    monotonous,
  });
  // Kernels are made, and the device warmed, before anything counts.
  for (const one of cases) await measure(engine, caseOf(one, Math.min(8, generate)));
  const run = async (one: SamplerCase): Promise<number> =>
    (await measure(engine, caseOf(one, generate))).steadyStepMs;
  await warmUp(engine, caseOf(cases[0]!, generate), WARM_UP_MS);
  const turns = cases.map((): Turn[] => []);
  for (let round = 0; round < rounds; round++) {
    let before = await run(cases[0]!);
    for (const [i, one] of cases.entries()) {
      if (i === 0) continue;
      const item = `${rows} rows, ${one.name}`;
      const done = round * cases.length + i;
      bar.update({ label: 'Measuring', done, total: rounds * cases.length, unit: 'runs', item });
      const ms = await run(one);
      const after = await run(cases[0]!);
      turns[i]!.push({ ms, greedy: (before + after) / 2 });
      turns[0]!.push({ ms: after, greedy: after });
      before = after;
    }
  }
  return summarise(cases, turns, rows, prompt, engine.info.device.kind);
}

/** `turns[case][round]`; the greedy case is the first. */
export function summarise(
  cases: readonly SamplerCase[],
  turns: readonly (readonly Turn[])[],
  rows: number,
  prompt: number,
  kind: DeviceKind,
): SamplerResult[] {
  return cases.map((one, i) => {
    const ratios = turns[i]!.map(({ ms, greedy }) => greedy / ms).sort((a, b) => a - b);
    return {
      case: one.name,
      rows,
      prompt,
      stepMs: median(turns[i]!.map(({ ms }) => ms).sort((a, b) => a - b)),
      ratio: median(ratios),
      lowest: ratios[0]!,
      highest: ratios.at(-1)!,
      aim: one.aim[kind],
    };
  });
}

function median(sorted: readonly number[]): number {
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}

export function samplerTable({
  model,
  vocab,
  device,
  results,
  generate,
  rounds,
}: BenchSamplerReport): string {
  const head = `${model}, vocabulary ${vocab}, on ${device.name}; ${generate} tokens a row, ${rounds} rounds\n`;
  const widths = [7, 9, 26, 10, 9, 17, 7];
  const row = (cells: readonly string[]): string =>
    `${cells.map((cell, i) => (i === 2 ? `  ${cell}`.padEnd(widths[i]!) : cell.padStart(widths[i]!))).join('')}\n`;
  const lines = results.map((r) =>
    row([
      String(r.rows),
      String(r.prompt),
      r.case,
      r.stepMs.toFixed(3),
      r.ratio.toFixed(3),
      `${r.lowest.toFixed(3)}–${r.highest.toFixed(3)}`,
      r.aim === null ? '' : `≥ ${r.aim}`,
    ]),
  );
  return head + row(['rows', 'prompt', 'case', 'step ms', 'ratio', 'of rounds', 'aim']) + lines.join('');
}
