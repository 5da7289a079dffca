/** `kvant simulate`: the scheduler over a trace of arrivals, without a model. */
import { readFile } from 'node:fs/promises';
import { type Command, InvalidArgumentError } from 'commander';
import type { Arrival } from '../engine/scheduling/arrivals.js';
import type { Machine } from '../engine/scheduling/simulator.js';
import { KvantError } from '../errors.js';
import { integer, integers, number } from './flag-numbers.js';
import { Option } from './option.js';
import { checkOutputs, writeOutput } from './output.js';

interface SimulateFlags {
  readonly load?: number;
  readonly rate?: number;
  readonly requests: number;
  readonly prompt: readonly [number, number];
  readonly generate: readonly [number, number];
  readonly priorities: readonly number[];
  readonly keys: number;
  readonly queueTimeout?: number;
  readonly seed: number;
  readonly machine: 'gpu' | 'cpu';
  readonly costs?: Machine;
  readonly maxRows: number;
  readonly maxBatchTokens?: number;
  readonly maxQueue: number;
  readonly targetItl?: number;
  readonly kvTokens?: number;
  readonly plot?: string;
  readonly json?: boolean;
}

/** Milliseconds, rounded: Qwen3-0.6B's shapes on an H200, and a model of some 100 MB on two cores. */
const MACHINES: Readonly<Record<'gpu' | 'cpu', Machine>> = {
  gpu: { fixed: 1, row: 0.05, chunk: 8, token: 0.008, depth: 0.0018 },
  cpu: { fixed: 12, row: 1.5, chunk: 2, token: 1.2, depth: 0.05 },
};

export function addSimulateCommand(program: Command): void {
  const command = program
    .command('simulate [trace]')
    .description(
      'Runs the scheduler over a trace of arrivals, without a model: steps take as long as --costs says. Prints how long ' +
        'requests wait for their first token, how far apart tokens are, and who is refused. A trace is a file of JSON lines: ' +
        '{"at": seconds, "prompt": tokens, "generate": tokens, "priority": 0, "key": "a", "timeout": seconds}. Without one, ' +
        'arrivals are made up.',
    );
  command.optionsGroup('Arrivals, where there is no trace:');
  command
    .option('--load <x>', 'rate as a part of the machine’s capacity (default: 0.9)', number(0.001, 1000))
    .option('--rate <x>', 'requests a second, instead of --load', number(0.0001, 1e6))
    .option('--requests <n>', 'how many', integer(1, 1_000_000), 10_000)
    .addOption(
      new Option('--prompt <tokens>', 'length of prompts, or from-to, even on a logarithmic scale')
        .argParser(lengths)
        .default([16, 4000], '16-4000'),
    )
    .addOption(
      new Option('--generate <tokens>', 'length of answers, or from-to')
        .argParser(lengths)
        .default([1, 256], '1-256'),
    )
    .option('--priorities <list>', 'one of these for each request, such as =-5,0,0,5', integers(-10), [0])
    .option('--keys <n>', 'API keys that send them', integer(1, 64), 1)
    .option('--queue-timeout <seconds>', 'how long they wait for a row at most', number(0.001, 1e6))
    .option('--seed <n>', 'of what is made up', integer(0), 1);
  command.optionsGroup('The machine:');
  command
    .addOption(
      new Option('--machine <name>', 'gpu: Qwen3-0.6B on an H200; cpu: a model of 100 MB on two cores')
        .choices(['gpu', 'cpu'])
        .default('gpu'),
    )
    .option(
      '--costs <ms>',
      'instead: fixed,row,chunk,token[,depth]: a step, each decoding row, prompts at all, each prompt token, and that for ' +
        'every thousand tokens before it',
      costs,
    )
    .option(
      '--kv-tokens <n>',
      'tokens that the KV cache holds (default: all rows at full length)',
      integer(16),
    );
  command.optionsGroup('The engine:');
  command
    .option('--max-rows <n>', 'sequences that run at once', integer(1, 4096), 16)
    .option(
      '--max-batch-tokens <n>',
      'tokens in one step (default: 2048; 256 with --machine cpu)',
      integer(1),
    )
    .option('--max-queue <n>', 'requests that may wait', integer(0), 256)
    .option(
      '--target-itl <ms>',
      'what a step with generating rows may take; 0 for any time (default: 100; 200 with --machine cpu)',
      number(0, 1e6),
    );
  command.optionsGroup('Options:');
  command
    .option('--plot <file>', 'write SVG: time to first token and between tokens, over the trace')
    .option('--json', 'print as JSON');
  command.addHelpText(
    'after',
    `
Examples:
  $ kvant simulate --load 1.5 --priorities=-2,0,5 --plot load.svg
  $ kvant simulate arrivals.jsonl --max-queue 64 --target-itl 20`,
  );
  command.action(async (trace: string | undefined, flags: SimulateFlags) => {
    await runSimulation(trace, flags);
  });
}

async function runSimulation(trace: string | undefined, flags: SimulateFlags): Promise<void> {
  const [
    { parseTrace, poissonArrivals },
    { capacity, simulate },
    { schedulerConfig },
    report,
    { ttftBound },
  ] = await Promise.all([
    import('../engine/scheduling/arrivals.js'),
    import('../engine/scheduling/simulator.js'),
    import('../engine/host-options.js'),
    import('./simulate-report.js'),
    import('../engine/scheduling/ttft-bound.js'),
  ]);
  await checkOutputs(flags);
  const kind = flags.machine === 'cpu' ? 'cpu' : 'webgpu';
  const { maxRows, maxQueue } = flags;
  const limits = {
    maxBatchTokens: flags.maxBatchTokens ?? (kind === 'cpu' ? 256 : 2048),
    targetItlMs: flags.targetItl ?? (kind === 'cpu' ? 200 : 100),
  };
  const scheduler = schedulerConfig(limits, kind, 16, 0);
  const machine = flags.costs ?? MACHINES[flags.machine];
  const made = (rate: number): Arrival[] =>
    poissonArrivals({
      ...flags,
      rate,
      shares: Array.from({ length: flags.keys }, (_, i) => `key ${i + 1}`),
      ...(flags.queueTimeout === undefined ? {} : { startWithinMs: 1000 * flags.queueTimeout }),
    });
  const sample = trace === undefined ? made(1) : parseTrace(await readTrace(trace));
  const most = capacity({ machine, maxRows, scheduler }, sample);
  const arrivals =
    trace !== undefined
      ? sample
      : made(flags.rate !== undefined ? flags.rate / 1000 : (flags.load ?? 0.9) * most);
  const longest = arrivals.reduce((length, { prompt, generate }) => Math.max(length, prompt + generate), 1);
  const perRow = Math.ceil(longest / scheduler.blockTokens) + 1;
  const blocks =
    flags.kvTokens === undefined ? maxRows * perRow : Math.floor(flags.kvTokens / scheduler.blockTokens);
  if (blocks < perRow)
    throw new KvantError('invalid-flags', `A sequence of ${longest} tokens does not fit in --kv-tokens.`, {
      kind: 'invalid-request',
      where: '--kv-tokens',
      fix: `Give at least ${perRow * scheduler.blockTokens}.`,
    });
  const simulation = simulate(arrivals, { scheduler, machine, maxRows, maxQueue, blocks });
  const priorities = arrivals.map(({ priority }) => priority);
  const bound = ttftBound({
    scheduler,
    costs: machine,
    maxRows,
    maxQueue,
    prompt: arrivals.reduce((length, { prompt }) => Math.max(length, prompt), 1),
    generate: arrivals.reduce((length, { generate }) => Math.max(length, generate), 1),
    priorities:
      priorities.reduce((a, b) => Math.max(a, b), -10) - priorities.reduce((a, b) => Math.min(a, b), 10),
    shares: new Set(arrivals.map(({ share }) => share)).size,
  });
  const found = report.simulationReport(simulation, most, bound);
  if (flags.plot !== undefined) {
    const title = `${arrivals.length} requests, ${found.offered.toPrecision(3)}/s of ${found.capacity.toPrecision(3)}/s`;
    await writeOutput('--plot', flags.plot, report.simulationPlot(simulation, title));
  }
  process.stdout.write(flags.json ? `${JSON.stringify(found)}\n` : report.reportText(found));
}

async function readTrace(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    throw new KvantError('trace-unreadable', `The trace ${path} cannot be read.`, {
      kind: 'invalid-request',
      where: path,
      fix: 'Check the path, or leave it out for arrivals that are made up.',
      cause,
    });
  }
}

/** `300` or `16-4000`. */
function lengths(text: string): [number, number] {
  const parts = text.split('-').map(Number);
  const [from, to = from] = parts;
  if (
    parts.length > 2 ||
    from === undefined ||
    to === undefined ||
    !(Number.isInteger(from) && Number.isInteger(to))
  )
    throw new InvalidArgumentError('Tokens are needed, such as 300 or 16-4000.');
  if (from < 1 || to < from) throw new InvalidArgumentError('From 1 token on, the smaller number first.');
  return [from, to];
}

function costs(text: string): Machine {
  const parts = text.split(',').map(Number);
  const [fixed, row, chunk, token, depth = 0] = parts;
  if (
    fixed === undefined ||
    row === undefined ||
    chunk === undefined ||
    token === undefined ||
    parts.length > 5 ||
    parts.some((part) => !Number.isFinite(part) || part < 0) ||
    token === 0
  )
    throw new InvalidArgumentError('Four or five numbers are needed, such as 1.1,0.17,2,0.011,0.003.');
  return { fixed, row, chunk, token, depth };
}
