/** `kvant quantize`: writes a quantised copy of a checkpoint. */
import type { Command } from 'commander';
import type { Recipe } from '../weights/quantize-plan.js';
import { addHubFlags, type HubFlags, hubOptions } from './flags.js';
import { untilInterrupted } from './interrupt.js';
import { Option } from './option.js';
import { formatBytes, ProgressBar } from './progress.js';

/** What is known of the recipes without loading what makes them. */
const RECIPE_NAMES: readonly Recipe[] = ['mixed_2_6', 'mixed_3_4', 'mixed_3_6', 'mixed_4_6'];
const AGAIN = 'the model was quantised before: its errors and those of the new codes add up';

interface QuantizeFlags extends HubFlags {
  readonly bits?: '2' | '3' | '4' | '5' | '6' | '8';
  readonly groupSize: '32' | '64' | '128';
  readonly recipe?: Recipe;
  readonly json?: boolean;
}

export function addQuantizeCommand(program: Command): void {
  const command = program
    .command('quantize <in> <out>')
    .description(
      'Writes a copy of a model with affine-quantised weights, in the layout MLX publishes: of a folder, a hub model or a GGUF file.',
    )
    .addOption(
      new Option('--bits <n>', 'bits of a weight (default: 4)').choices(['2', '3', '4', '5', '6', '8']),
    )
    .addOption(
      new Option('--group-size <n>', 'weights that share a scale and a bias')
        .choices(['32', '64', '128'])
        .default('64'),
    )
    .addOption(
      new Option(
        '--recipe <name>',
        'instead of --bits: few bits, and more for the head and for values and MLPs of some layers, as mlx-lm has it',
      )
        .choices(RECIPE_NAMES)
        .conflicts('bits'),
    )
    .option('--json', 'print what was written as JSON');
  addHubFlags(command)
    .addHelpText(
      'after',
      '\nExamples:\n  $ kvant quantize Qwen/Qwen3-0.6B qwen3-0.6b-4bit --bits 4 --group-size 64\n  $ kvant quantize Qwen3-0.6B-Q8_0.gguf qwen3-0.6b-mixed --recipe mixed_4_6',
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
  const [{ openQuantizeInput }, { resolveModel }, { writeQuantized }] = await Promise.all([
    import('../engine/quantize-input.js'),
    import('../weights/hub.js'),
    import('../weights/write-quantized.js'),
  ]);
  const bar = new ProgressBar();
  try {
    const { folder } = await resolveModel(input, {
      ...hubOptions(flags),
      projector: false,
      signal,
      onProgress: (p) =>
        bar.update({ label: 'Fetching', done: p.bytes, total: p.totalBytes, unit: 'bytes', item: p.file }),
    });
    await using opened = await openQuantizeInput(folder);
    const { bits = 4, groupSize, recipe } = flags;
    const spec = {
      bits: Number(bits) as 4,
      groupSize: Number(groupSize) as 64,
      signal,
      ...(recipe && { recipe }),
    };
    const result = await writeQuantized(opened.input, output, spec, (p) =>
      bar.update({
        label: 'Quantising',
        done: p.bytes,
        total: p.totalBytes,
        unit: 'bytes',
        item: p.tensor,
      }),
    );
    bar.done();
    const notices = [...opened.notices, ...(result.again === 0 ? [] : [AGAIN])];
    for (const notice of notices) process.stderr.write(`${notice}\n`);
    if (flags.json) process.stdout.write(`${JSON.stringify(result)}\n`);
    else {
      const kept = `${result.quantized} tensors quantised, ${result.kept} kept`;
      process.stdout.write(`${result.folder}: ${formatBytes(result.bytes)}, ${kept}\n`);
    }
  } finally {
    bar.done();
  }
}
