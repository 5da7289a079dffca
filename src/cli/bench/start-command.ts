/** `kvant bench start`: from the start of the process to the first token, load and memory. */
import type { Command } from 'commander';
import { EXAMPLE_MODEL } from '../example-model.js';
import { addEngineFlags, type EngineFlags, engineOptions, integer } from '../flags.js';
import { ProgressBar } from '../progress.js';
import { typedFlag } from './typed-flags.js';

interface BenchStartFlags extends EngineFlags {
  readonly rounds: number;
  readonly loads: number;
  readonly prompt: string;
  readonly json?: boolean;
}

export function addBenchStartCommand(benchCommand: Command): void {
  const command = benchCommand
    .command('start <model>')
    .summary('measure the start of the command, load and memory')
    .description(
      'Measures kvant generate from the start of its process to the first token, in turns with an empty process and with a bare ' +
        'read of the weights; then loads the model in processes of their own and says what memory they take.',
    )
    .option('--rounds <n>', 'starts of which the median is taken', integer(1, 999), 9)
    .option('--loads <n>', 'loads of which the median is taken', integer(1, 99), 3)
    .option('-p, --prompt <text>', 'the prompt', 'What is the capital of Japan?')
    .option('--json', 'print as JSON');
  const own = command.options.length;
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Examples:
  $ kvant bench start ${EXAMPLE_MODEL} --device cpu
  $ kvant bench checkpoint llama-8b /tmp/llama-8b && kvant bench start /tmp/llama-8b --device webgpu --rounds 3 --json`,
  );
  command.action(async (model: string, flags: BenchStartFlags) => {
    await bench(model, flags, givenFlags(command, own));
  });
}

/** The engine's flags as they were given, for another command line. `from` counts options of the command itself. */
function givenFlags(command: Command, from: number): string[] {
  return command.options.slice(from).flatMap((option) => {
    const name = option.attributeName();
    if (command.getOptionValueSource(name) !== 'cli') return [];
    return typedFlag(option, command.getOptionValue(name));
  });
}

async function bench(model: string, flags: BenchStartFlags, given: readonly string[]): Promise<void> {
  const options = engineOptions(flags);
  const [{ locateModel }, start, { startReport, startText }] = await Promise.all([
    import('../../engine/model-location.js'),
    import('./start.js'),
    import('./start-report.js'),
  ]);
  const folder = await locateModel(model, options);
  const one = { model, folder, prompt: flags.prompt, flags: given, options };
  const bar = new ProgressBar();
  try {
    const { bytes } = start.bareRead(folder);
    const firstRunMs = await start.firstToken(one);
    const rounds = [];
    const total = flags.rounds + flags.loads;
    for (let done = 0; done < flags.rounds; done++) {
      bar.update({ label: 'Measuring', done, total, unit: 'runs' });
      const node = await start.emptyProcess();
      const read = start.bareRead(folder).ms;
      rounds.push({ node, read, firstToken: await start.firstToken(one) });
    }
    const probes = [];
    for (let done = 0; done < flags.loads; done++) {
      bar.update({ label: 'Measuring', done: flags.rounds + done, total, unit: 'runs' });
      probes.push(await start.probe(one));
    }
    bar.done();
    const report = startReport(model, bytes, firstRunMs, rounds, probes);
    process.stdout.write(flags.json ? `${JSON.stringify(report)}\n` : startText(report));
  } finally {
    bar.done();
  }
}
