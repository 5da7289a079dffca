/** `kvant bench latency`: prompts beside decoding rows, and aborts. */
import type { Command } from 'commander';
import { KvantError } from '../../errors.js';
import { shapeNames } from '../../models/shapes.js';
import { EXAMPLE_MODEL } from '../example-model.js';
import { addEngineFlags, type EngineFlags, engineOptions, integer } from '../flags.js';
import { Option } from '../option.js';
import type { LatencyResult } from './latency.js';

interface BenchLatencyFlags extends EngineFlags {
  readonly shapes?: string;
  readonly vocab?: number;
  readonly rows: number;
  readonly prompt: number;
  readonly window: number;
  readonly json?: boolean;
}

export function addBenchLatencyCommand(benchCommand: Command): void {
  const command = benchCommand
    .command('latency [model]')
    .summary('measure prompts beside decoding rows, and aborts')
    .description(
      'Measures what rows that decode keep of their rate while a long prompt is computed beside them, how much later its first ' +
        'token comes than alone, and whether a stream is as fast as alone once the one beside it was aborted.',
    )
    .addOption(
      new Option('--shapes <name>', `random weights in the sizes of: ${shapeNames().join(', ')}`).choices(
        shapeNames(),
      ),
    )
    .option('--vocab <n>', 'rows of the vocabulary, with --shapes', integer(2))
    .option('--rows <n>', 'rows that decode', integer(1), 8)
    .option('--prompt <tokens>', 'length of the prompt beside them', integer(16), 4096)
    .option('--window <ms>', 'how long rows decode before the prompt comes', integer(50), 2000)
    .option('--json', 'print as JSON');
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Examples:
  $ kvant bench latency ${EXAMPLE_MODEL} --rows 4 --prompt 1000 --max-context 4096
  $ kvant bench latency --shapes qwen3-0.6b --vocab 32000 --quantize 4 --rows 8 --prompt 32000 --target-itl 20 --json`,
  );
  command.action(async (model: string | undefined, flags: BenchLatencyFlags) => {
    await bench(model, flags);
  });
}

async function bench(model: string | undefined, flags: BenchLatencyFlags): Promise<void> {
  const { shapes, vocab, rows, prompt, window: windowMs } = flags;
  if ((model === undefined) === (shapes === undefined))
    throw new KvantError('invalid-flags', 'One of a model and --shapes is needed.', {
      kind: 'invalid-request',
      fix: 'For example: kvant bench latency --shapes qwen3-0.6b --vocab 32000.',
    });
  const given = engineOptions(flags);
  const options = {
    ...given,
    maxRows: given.maxRows ?? Math.max(2, rows + 1),
    // Rows go on while the prompt is computed: they need room for it.
    maxContext: given.maxContext ?? Math.max(prompt + 16, 8192),
    // Every prompt is computed.
    prefixCache: false,
  };
  const [{ loadEngine, loadShape }, { measureLatency }] = await Promise.all([
    import('../load.js'),
    import('./latency.js'),
  ]);
  await using engine =
    shapes === undefined
      ? await loadEngine(model ?? '', options)
      : await loadShape(shapes, { ...options, ...(vocab === undefined ? {} : { vocab }) });
  const result = await measureLatency(engine, { rows, prompt, windowMs });
  const { info } = engine;
  const head = { model: info.name, device: info.device.name, targetItlMs: info.limits.targetItlMs };
  process.stdout.write(
    flags.json ? `${JSON.stringify({ ...head, ...result })}\n` : latencyText({ ...head, ...result }),
  );
}

function latencyText(
  result: LatencyResult & { readonly model: string; readonly device: string; readonly targetItlMs: number },
): string {
  const { model, device, targetItlMs, rows, prompt, abort } = result;
  return [
    `${model} on ${device}, --target-itl ${targetItlMs}`,
    `a prompt of ${prompt} tokens: first token after ${result.soloTtftMs.toFixed(0)} ms alone, ` +
      `${result.ttftMs.toFixed(0)} ms beside ${rows} rows (${result.ttftRatio.toFixed(2)} ×)`,
    `${rows} rows: ${result.rowsAlone.toFixed(1)} tok/s alone, ${result.rowsBeside.toFixed(1)} beside it ` +
      `(${(100 * result.rateKept).toFixed(1)} %), longest gap ${result.longestGapMs.toFixed(1)} ms`,
    `one stream: ${abort.solo.toFixed(1)} tok/s alone, ${abort.of2.toFixed(1)} beside another, ` +
      `${abort.after.toFixed(1)} after that one was aborted (${(100 * abort.back).toFixed(1)} % of alone)`,
    '',
  ].join('\n');
}
