/** `kvant bench checkpoint`: a folder to measure loads on, in the sizes of a known model. */
import { type Command, InvalidArgumentError } from 'commander';
import { shapeNames } from '../../models/shapes.js';
import { bytes, integer } from '../flags.js';
import { formatBytes, ProgressBar } from '../progress.js';

interface CheckpointFlags {
  readonly vocab?: number;
  readonly maxShardSize?: number;
  readonly json?: boolean;
}

export function addBenchCheckpointCommand(benchCommand: Command): void {
  const command = benchCommand
    .command('checkpoint')
    .summary('write a checkpoint with random weights, to load')
    .description(
      'Writes a whole checkpoint with random weights, 4 bits in groups of 64, and a tokenizer of bytes and made-up words: for measurements ' +
        'of what a folder costs.',
    )
    .argument('<shape>', `sizes of: ${shapeNames().join(', ')}`, (name: string) => {
      if ((shapeNames() as string[]).includes(name)) return name;
      throw new InvalidArgumentError(`One of these is needed: ${shapeNames().join(', ')}.`);
    })
    .argument('<folder>', 'a folder that does not exist yet')
    .option('--vocab <n>', 'rows of the vocabulary (default: the model’s)', integer(512))
    .option('--max-shard-size <size>', 'bytes of a file at most, e.g. 4GiB', bytes)
    .option('--json', 'print as JSON');
  command.addHelpText(
    'after',
    `
Example:
  $ kvant bench checkpoint llama-8b /tmp/llama-8b && kvant bench start /tmp/llama-8b --rounds 3`,
  );
  command.action(async (shape: string, folder: string, flags: CheckpointFlags) => {
    const { writeShapeCheckpoint } = await import('./checkpoint.js');
    const { vocab, maxShardSize } = flags;
    const bar = new ProgressBar();
    try {
      const written = await writeShapeCheckpoint(shape, folder, {
        ...(vocab === undefined ? {} : { vocab }),
        ...(maxShardSize === undefined ? {} : { maxShardBytes: maxShardSize }),
        onBytes: (done, total) => bar.update({ label: 'Writing', done, total, unit: 'bytes' }),
      });
      bar.done();
      process.stdout.write(
        flags.json
          ? `${JSON.stringify({ shape, folder, bytes: written })}\n`
          : `${folder}: ${shape}, ${formatBytes(written)} of random weights\n`,
      );
    } finally {
      bar.done();
    }
  });
}
