/** `kvant bench serve`: what the server leaves of the engine's rate. */
import { type Command, InvalidArgumentError } from 'commander';
import type { Engine } from '../../engine/engine.js';
import { EXAMPLE_MODEL } from '../example-model.js';
import { addEngineFlags, type EngineFlags, engineOptions, integer } from '../flags.js';
import { untilInterrupted } from '../interrupt.js';
import { ProgressBar } from '../progress.js';
import { requireTarget, type ShapeFlags } from '../shape-flags.js';
import { addShapeFlags } from './engine.js';
import { type ServeReport, type ServeTurn, serveReport, serveText } from './serve-report.js';

interface BenchServeFlags extends EngineFlags, ShapeFlags {
  readonly clients: number;
  readonly requests: number;
  readonly rows?: number;
  readonly prompt: readonly [number, number];
  readonly generate: readonly [number, number];
  readonly rounds: number;
  readonly seed: number;
  readonly json?: boolean;
}

/** Tokens of a chat template beside the words. */
const TEMPLATE_TOKENS = 64;

export function addBenchServeCommand(benchCommand: Command): void {
  const command = addShapeFlags(
    benchCommand
      .command('serve [model]')
      .summary('measure the server beside the engine alone')
      .description(
        'Starts kvant serve in a process of its own and an engine in this one, sends both the same requests in turns, and compares. ' +
          'Clients stream, as applications do; lengths are drawn evenly on a logarithmic scale.',
      ),
  )
    .option('--clients <n>', 'clients, each with one request at a time', integer(1, 4096), 64)
    .option('--requests <n>', 'requests of each client in a round', integer(1), 4)
    .option('--rows <n>', 'sequences that run at once (default: one for each client)', integer(1, 4096))
    .option('--prompt <from,to>', 'tokens of a prompt', range, [16, 512])
    .option('--generate <from,to>', 'tokens of an answer', range, [32, 256])
    .option('--rounds <n>', 'turns that count, behind one that does not', integer(1, 99), 5)
    .option('--seed <n>', 'of texts and lengths', integer(0), 1)
    .option('--json', 'print as JSON');
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Nothing is kept of earlier prompts, on either side, as if --no-prefix-cache had been given.

Examples:
  $ kvant bench serve ${EXAMPLE_MODEL} --clients 8 --generate 16,64
  $ kvant bench serve --shapes qwen3-0.6b --vocab 32000 --quantize 4 --clients 64 --json`,
  );
  command.action(async (model: string | undefined, flags: BenchServeFlags) => {
    requireTarget(model, flags, 'kvant bench serve');
    const report = await untilInterrupted((signal) => bench(model, flags, signal));
    process.stdout.write(flags.json ? `${JSON.stringify(report)}\n` : serveText(report));
  });
}

function range(text: string): [number, number] {
  const [from, to = from, ...more] = text.split(',').map(integer(1));
  if (from === undefined || to === undefined || more.length > 0 || to < from)
    throw new InvalidArgumentError('Two numbers are needed, the smaller one first, such as 16,512.');
  return [from, to];
}

async function bench(
  model: string | undefined,
  flags: BenchServeFlags,
  signal: AbortSignal,
): Promise<ServeReport> {
  const { shapes, vocab, clients, rounds, seed, prompt, generate } = flags;
  const rows = flags.rows ?? flags.maxRows ?? clients;
  const maxContext = flags.maxContext ?? flags.maxKvSize ?? prompt[1] + generate[1] + TEMPLATE_TOKENS;
  const same: EngineFlags = { ...flags, maxRows: rows, maxContext, prefixCache: false };
  const [
    { startServe },
    { engineArguments },
    { loadEngine, loadShape },
    { BenchClient },
    { drawLoad },
    { intoEngine, overHttp, runRound },
  ] = await Promise.all([
    import('../serve-process.js'),
    import('./typed-flags.js'),
    import('../load.js'),
    import('./serve-client.js'),
    import('./serve-load.js'),
    import('./serve.js'),
  ]);
  const target = model === undefined ? [`--shapes=${shapes}`] : [model];
  if (vocab !== undefined) target.push(`--vocab=${vocab}`);
  const queue = `--max-queue=${clients}`;
  await using server = await startServe([...target, queue, ...engineArguments(same)], signal);
  const options = { ...engineOptions(same), maxQueue: clients };
  await using engine =
    shapes === undefined
      ? await loadEngine(model!, options)
      : await loadShape(shapes, {
          ...options,
          ...(vocab === undefined ? {} : { vocab }),
          standInText: true,
        });
  const load = drawLoad({ requests: clients * flags.requests, prompt, generate, seed }, engine);
  const client = new BenchClient(server.url, clients);
  const bar = new ProgressBar();
  const turns: ServeTurn[] = [];
  try {
    for (let round = -1; round < rounds; round++) {
      signal.throwIfAborted();
      const item = round < 0 ? 'warming up' : `round ${round + 1}`;
      bar.update({ label: 'Measuring', done: Math.max(0, round), total: rounds, unit: 'rounds', item });
      const turn = await takeTurn(
        server.pid,
        () => runRound(load, clients, overHttp(client)),
        () => runRound(load, clients, intoEngine(engine)),
      );
      if (round >= 0) turns.push(turn);
    }
  } finally {
    bar.done();
    client.close();
  }
  return serveReport({ ...describe(engine), clients, rows, requests: load.length }, turns);
}

async function takeTurn(
  pid: number,
  http: () => Promise<ServeTurn['http']>,
  direct: () => Promise<ServeTurn['direct']>,
): Promise<ServeTurn> {
  const { threadTimes, timesSince } = await import('./thread-times.js');
  const before = await threadTimes(pid);
  const turn = { http: await http() };
  const threads = timesSince(before, await threadTimes(pid));
  const main = threads.find(({ thread }) => thread === pid)?.ms;
  const all = threads.reduce((sum, { ms }) => sum + ms, 0);
  return {
    ...turn,
    direct: await direct(),
    ...(main === undefined ? {} : { server: { main, others: all - main } }),
  };
}

function describe({ info }: Engine): { model: string; device: string } {
  return { model: info.name, device: info.device.name };
}
