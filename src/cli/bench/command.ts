/** `kvant bench`: prefill and decode rates, of a model or of the shapes of one with random weights. */
import type { Command } from 'commander';
import { EXAMPLE_MODEL } from '../example-model.js';
import { addEngineFlags, type EngineFlags, integer, integers } from '../flags.js';
import { ProgressBar } from '../progress.js';
import type { BenchResult } from './cases.js';
import { addBenchCheckpointCommand } from './checkpoint-command.js';
import { addBenchCompareCommand } from './compare-command.js';
import { addShapeFlags, openBenchEngine, requireTarget, type ShapeFlags } from './engine.js';
import { addBenchEngineCommand } from './engine-command.js';
import { addBenchKvCommand } from './kv-command.js';
import { addBenchLatencyCommand } from './latency-command.js';
import { addBenchSamplerCommand } from './sampler-command.js';
import { addBenchServeCommand } from './serve-command.js';
import { addBenchStartCommand } from './start-command.js';

interface BenchFlags extends EngineFlags, ShapeFlags {
  readonly rows: readonly number[];
  readonly prompt: readonly number[];
  readonly generate: number;
  readonly repeats: number;
  readonly json?: boolean;
}

export function addBenchCommand(program: Command): void {
  const command = addShapeFlags(
    program
      .command('bench [model]')
      .description(
        'Measures prefill and decode for every combination of --rows and --prompt, on a model, or on named shapes with random weights.',
      ),
  )
    .option('--rows <list>', 'sequences side by side', integers(1), [1])
    .option('--prompt <list>', 'tokens of a prompt', integers(1), [512])
    .option('--generate <n>', 'tokens that each row generates', integer(2), 128)
    .option('--repeats <n>', 'runs of which the median is taken', integer(1, 99), 3)
    .option('--json', 'print as JSON');
  addEngineFlags(command);
  // Subcommands have flags of the same names.
  command.enablePositionalOptions();
  addBenchKvCommand(command);
  addBenchSamplerCommand(command);
  addBenchLatencyCommand(command);
  addBenchCompareCommand(command);
  addBenchServeCommand(command);
  addBenchEngineCommand(command);
  addBenchStartCommand(command);
  addBenchCheckpointCommand(command);
  command.addHelpText(
    'after',
    `
Examples:
  $ kvant bench ${EXAMPLE_MODEL} --rows 1,4,16 --prompt 128
  $ kvant bench --shapes qwen3-0.6b --vocab 32000 --rows 1,8,32 --prompt 512 --json`,
  );
  command.action(async (model: string | undefined, flags: BenchFlags) => {
    await bench(model, flags);
  });
}

async function bench(model: string | undefined, flags: BenchFlags): Promise<void> {
  requireTarget(model, flags, 'kvant bench');
  const longest = Math.max(...flags.prompt) + flags.generate + 1;
  const { runCase } = await import('./cases.js');
  await using engine = await openBenchEngine(model, flags, Math.max(...flags.rows), longest);
  const { info } = engine;
  const head = {
    model: info.name,
    vocab: info.model.vocabSize,
    weightBytes: info.model.weightBytes,
    kv: `${info.kv.layers[0]?.key}/${info.kv.layers[0]?.value}`,
    device: info.device.name,
    features: info.device.features,
    maxBatchTokens: info.limits.maxBatchTokens,
    date: new Date().toISOString().slice(0, 10),
  };
  if (!flags.json) {
    process.stdout.write(
      `${head.model}, vocabulary ${head.vocab}, ${(head.weightBytes / 1e6).toFixed(0)} MB of weights, KV ${head.kv}, on ${head.device}\n` +
        `${['rows', 'prompt', 'generate', 'prefill tok/s', 'TTFT ms', 'decode tok/s', 'step ms'].map((h) => h.padStart(14)).join('')}\n`,
    );
  }
  const bar = new ProgressBar();
  const results: BenchResult[] = [];
  const cases = flags.prompt.flatMap((prompt) =>
    flags.rows.map((rows) => ({ rows, prompt, generate: flags.generate })),
  );
  for (const [i, one] of cases.entries()) {
    const item = `${one.rows} rows, prompt ${one.prompt}`;
    bar.update({ label: 'Measuring', done: i, total: cases.length, unit: 'cases', item });
    const result = await runCase(engine, one, flags.repeats);
    results.push(result);
    bar.done();
    if (!flags.json) process.stdout.write(`${line(result)}\n`);
  }
  if (flags.json) process.stdout.write(`${JSON.stringify({ ...head, results })}\n`);
}

function line(r: BenchResult): string {
  const cells = [
    String(r.rows),
    String(r.prompt),
    String(r.generate),
    r.prefillTokensPerSecond.toFixed(0),
    r.ttftMs.toFixed(1),
    r.decodeTokensPerSecond.toFixed(1),
    r.stepMs.toFixed(3),
  ];
  return cells.map((c) => c.padStart(14)).join('');
}
