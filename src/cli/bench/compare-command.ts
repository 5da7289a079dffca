/** `kvant bench compare`: our cases beside a peer's figures and beside what the device could do at best. */
import { type Command, InvalidArgumentError } from 'commander';
import type { EngineInfo } from '../../engine/types.js';
import { EXAMPLE_MODEL } from '../example-model.js';
import { addEngineFlags, type EngineFlags, engineOptions, integer, integers } from '../flags.js';
import { untilInterrupted } from '../interrupt.js';
import { checkOutputs, writeOutput } from '../output.js';
import { ProgressBar } from '../progress.js';
import { versions } from '../versions.js';
import type { BenchResult } from './cases.js';
import {
  COMPARE_CASES,
  type CompareCase,
  type CompareReport,
  compareBars,
  compared,
  compareText,
} from './compare-report.js';
import { addShapeFlags, openBenchEngine, requireTarget, type ShapeFlags } from './engine.js';
import type { CountedModel, Work } from './floor-count.js';
import type { Ceilings } from './floor-measure.js';
import { peerOf, readPeerFile, requireMatch } from './peer.js';

interface BenchCompareFlags extends EngineFlags, ShapeFlags {
  readonly peer?: string;
  readonly cases: readonly CompareCase[];
  readonly rows: readonly number[];
  readonly prompt: number;
  readonly generate: number;
  readonly repeats: number;
  readonly out?: string;
  readonly plot?: string;
  readonly json?: boolean;
}

/** Fewer tokens of a row do not make a rate of decoding. */
const LEAST_GENERATE = 16;
/** A GPU is at work so long before anything counts. */
const WARM_UP_MS = 2000;

export function addBenchCompareCommand(benchCommand: Command): void {
  const command = addShapeFlags(
    benchCommand
      .command('compare [model]')
      .summary('measure beside a peer and the limits of the device')
      .description(
        'Measures decode and prefill at every number of --rows, beside the figures of another engine and beside the floor: ' +
          'bytes, operations and launches that a case has to do, counted, over what the device can do, measured in the same run.',
      ),
  )
    .option('--peer <file>', 'figures of another engine: JSON lines, or an array, as its bench prints them')
    .option('--cases <list>', `of ${COMPARE_CASES.join(', ')}`, cases, [...COMPARE_CASES])
    .option('--rows <list>', 'sequences side by side', integers(1), [1, 8, 32])
    .option('--prompt <tokens>', 'tokens of a prompt', integer(1), 512)
    .option('--generate <n>', 'tokens that each row generates', integer(LEAST_GENERATE), 128)
    .option('--repeats <n>', 'runs of which the median is taken', integer(1, 99), 3)
    .option('--out <file>', 'write the result as JSON')
    .option('--plot <file>', 'draw it as SVG')
    .option('--json', 'print the result as JSON');
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Examples:
  $ kvant bench compare --shapes qwen3-0.6b --vocab 32000 --peer peer.jsonl --plot compare.svg
  $ kvant bench compare ${EXAMPLE_MODEL} --cases decode --rows 1,4 --prompt 128`,
  );
  command.action(async (model: string | undefined, flags: BenchCompareFlags) => {
    const report = await compare(model, flags);
    if (flags.out !== undefined)
      await writeOutput('--out', flags.out, `${JSON.stringify(report, null, 1)}\n`);
    if (flags.plot !== undefined) await writeOutput('--plot', flags.plot, await plot(report));
    process.stdout.write(flags.json ? `${JSON.stringify(report)}\n` : compareText(report));
  });
}

async function compare(model: string | undefined, flags: BenchCompareFlags): Promise<CompareReport> {
  requireTarget(model, flags, 'kvant bench compare');
  const { rows, prompt, generate } = flags;
  const peer = flags.peer === undefined ? [] : await readPeerFile(flags.peer);
  if (flags.peer !== undefined) requireMatch(peer, rows, prompt);
  await checkOutputs(flags);
  const bar = new ProgressBar();
  return untilInterrupted(async (signal) => {
    try {
      const floors = await openFloors(model, flags);
      const { info, measured } = await measureCases(model, flags, bar, signal);
      signal.throwIfAborted();
      const ceilings = await floors.measure(info.device.kind, (item) =>
        bar.update({ label: 'Measuring the device', done: 0, total: 0, unit: 'steps', item }),
      );
      const work: Record<CompareCase, (n: number) => Work> = {
        decode: (n) => floors.decode(info.kv.layers, n, prompt + generate / 2),
        prefill: (n) => floors.prefill(n, prompt, info.limits.maxBatchTokens),
      };
      const kv = info.kv.layers[0];
      const results = flags.cases.flatMap((name) =>
        measured.map((one) => {
          const theirs = peerOf(peer, name, one.rows, prompt, kv?.key ?? 'f16');
          return compared(name, one, work[name](one.rows), ceilings, theirs);
        }),
      );
      return {
        model: info.name,
        vocab: info.model.vocabSize,
        weightBytes: info.model.weightBytes,
        kv: `${kv?.key}/${kv?.value}`,
        device: info.device.name,
        features: info.device.features,
        date: new Date().toISOString().slice(0, 10),
        versions: versions(),
        ceilings,
        peer: flags.peer ?? null,
        results,
      };
    } finally {
      bar.done();
    }
  });
}

async function measureCases(
  model: string | undefined,
  flags: BenchCompareFlags,
  bar: ProgressBar,
  signal: AbortSignal,
): Promise<{ info: EngineInfo; measured: BenchResult[] }> {
  const { rows, prompt, generate, repeats } = flags;
  const { runCase, warmUp } = await import('./cases.js');
  await using engine = await openBenchEngine(model, flags, Math.max(...rows), prompt + generate + 1);
  const measured: BenchResult[] = [];
  const gpu = engine.info.device.kind === 'webgpu';
  if (gpu) await warmUp(engine, { rows: rows[0] ?? 1, prompt, generate }, WARM_UP_MS);
  for (const [done, n] of rows.entries()) {
    signal.throwIfAborted();
    bar.update({ label: 'Measuring', done, total: rows.length, unit: 'cases', item: `${n} rows` });
    measured.push(await runCase(engine, { rows: n, prompt, generate }, repeats));
  }
  return { info: engine.info, measured };
}

/** Counts from the headers of the weights; the device is opened when no engine has it any more. */
async function openFloors(model: string | undefined, flags: BenchCompareFlags): Promise<Floors> {
  const [{ hostConfig }, { openWeights, quantization }, { locateModel }, count] = await Promise.all([
    import('../../engine/host-config.js'),
    import('../../engine/host-load.js'),
    import('../../engine/model-location.js'),
    import('./floor-count.js'),
  ]);
  const options = engineOptions(flags);
  const { shapes, vocab } = flags;
  const config = hostConfig(
    shapes === undefined
      ? { kind: 'folder', path: await locateModel(model ?? '', options) }
      : { kind: 'shape', name: shapes, ...(vocab === undefined ? {} : { vocab }) },
    options,
  );
  await using weights = await openWeights(config);
  const counted: CountedModel = count.countModel(weights.source, weights.definition, quantization(config));
  return {
    decode: (kv, rows, context) => count.countDecode(counted, kv, rows, context),
    prefill: (rows, tokens, chunk) => count.countPrefill(counted, rows, tokens, chunk),
    measure: async (kind, tell) => {
      const [{ chooseDevice }, { measureCeilings }] = await Promise.all([
        import('../../engine/device-choice.js'),
        import('./floor-measure.js'),
      ]);
      const { device } = await chooseDevice({ ...config, device: kind });
      await using _ = device;
      return await measureCeilings(device, counted.format, tell);
    },
  };
}

interface Floors {
  decode(kv: EngineInfo['kv']['layers'], rows: number, context: number): Work;
  prefill(rows: number, tokens: number, chunk: number): Work;
  measure(kind: EngineInfo['device']['kind'], tell: (what: string) => void): Promise<Ceilings>;
}

async function plot(report: CompareReport): Promise<string> {
  const { barsSvg } = await import('./svg-bars.js');
  const { model, device, kv, date } = report;
  const prompt = report.results[0]?.prompt;
  return barsSvg({
    title: `${model} on ${device}, ${date}`,
    subtitle: `tokens a second, prompts of ${prompt}, KV ${kv}; each case at a scale of its own`,
    series: ['kvant', 'peer', 'floor: what the device could do at best'],
    groups: compareBars(report),
  });
}

/** `decode,prefill` → both. */
function cases(text: string): CompareCase[] {
  return text.split(',').map((one) => {
    const found = COMPARE_CASES.find((name) => name === one.trim());
    if (found === undefined)
      throw new InvalidArgumentError(`Of ${COMPARE_CASES.join(', ')} one or more are needed.`);
    return found;
  });
}
