/** `kvant quantize`: writes a quantised copy of a checkpoint. */
import type { Command } from 'commander';
import { addHubFlags, type HubFlags, hubOptions } from './flags.js';
import { untilInterrupted } from './interrupt.js';
import { Option } from './option.js';
import { formatBytes, ProgressBar } from './progress.js';

interface QuantizeFlags extends HubFlags {
  readonly bits: '2' | '3' | '4' | '5' | '6' | '8';
  readonly groupSize: '32' | '64' | '128';
  readonly json?: boolean;
}

export function addQuantizeCommand(program: Command): void {
  const command = program
    .command('quantize <in> <out>')
    .description('Writes a copy of a checkpoint with affine-quantised weights, in the layout MLX publishes.')
    .addOption(
      new Option('--bits <n>', 'bits of a weight').choices(['2', '3', '4', '5', '6', '8']).default('4'),
    )
    .addOption(
      new Option('--group-size <n>', 'weights that share a scale and a bias')
        .choices(['32', '64', '128'])
        .default('64'),
    )
    .option('--json', 'print what was written as JSON');
  addHubFlags(command)
    .addHelpText(
      'after',
      '\nExample:\n  $ kvant quantize Qwen/Qwen3-0.6B qwen3-0.6b-4bit --bits 4 --group-size 64',
    )
    .action((input: string, output: string, flags: QuantizeFlags) =>
      untilInterrupted((signal) => quantize(input, output, flags, signal)),
    );
}

async function quantize(
  input: string,
  output: string,
  flags: QuantizeFlags,
  signal: AbortSignal,
): Promise<void> {
  const [{ Checkpoint }, { resolveModel }, { writeQuantized }] = await Promise.all([
    import('../weights/checkpoint.js'),
    import('../weights/hub.js'),
    import('../weights/write-quantized.js'),
  ]);
  const bar = new ProgressBar();
  try {
    const { folder } = await resolveModel(input, {
      ...hubOptions(flags),
      signal,
      onProgress: (p) =>
        bar.update({ label: 'Fetching', done: p.bytes, total: p.totalBytes, unit: 'bytes', item: p.file }),
    });
    await using checkpoint = await Checkpoint.open(folder);
    const spec = { bits: Number(flags.bits) as 4, groupSize: Number(flags.groupSize) as 64, signal };
    const result = await writeQuantized(checkpoint, output, spec, (p) =>
      bar.update({
        label: 'Quantising',
        done: p.bytes,
        total: p.totalBytes,
        unit: 'bytes',
        item: p.tensor,
      }),
    );
    bar.done();
    if (flags.json) process.stdout.write(`${JSON.stringify(result)}\n`);
    else {
      const kept = `${result.quantized} tensors quantised, ${result.kept} kept`;
      process.stdout.write(`${result.folder}: ${formatBytes(result.bytes)}, ${kept}\n`);
    }
  } finally {
    bar.done();
  }
}
