/** `kvant embed`: embeddings of texts, a JSON line each. */
import type { Command } from 'commander';
import type { EmbedOptions } from '../engine/embedding/embed-request.js';
import { POOLINGS, type Pooling } from '../engine/pooling.js';
import { KvantError } from '../errors.js';
import {
  addEngineFlags,
  type CliLogLevel,
  type EngineFlags,
  engineOptions,
  integer,
  logLevelFlag,
} from './flags.js';
import { readText } from './input.js';
import { untilInterrupted } from './interrupt.js';
import { Option } from './option.js';

interface EmbedFlags extends EngineFlags {
  readonly file?: string;
  readonly pooling?: Pooling;
  readonly task?: string;
  readonly prefix?: string;
  readonly dimensions?: number;
  readonly normalize?: boolean;
  readonly truncate?: boolean;
  readonly logLevel: CliLogLevel;
}

export function addEmbedCommand(program: Command): void {
  const command = program
    .command('embed <model> [text...]')
    .description('Prints embeddings of texts, a JSON line {index, embedding} for each.')
    .option('--file <file>', 'texts of a file, one a line; - reads standard input')
    .addOption(
      new Option('--pooling <name>', 'how hidden states become one, for a model that does not say').choices(
        POOLINGS,
      ),
    )
    .option('--task <name>', 'the prompt of the checkpoint to put before each text: query, document, …')
    .option('--prefix <text>', 'a text to put before each')
    .option('--dimensions <n>', 'the first n numbers of each embedding', integer(1))
    .option('--no-normalize', 'embeddings as long as they come')
    .option('--truncate', 'cut texts that are too long')
    .addOption(logLevelFlag('warn'));
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `
Examples:
  $ kvant embed Qwen/Qwen3-Embedding-0.6B "Where is Oslo?" --task query
  $ kvant embed Qwen/Qwen3-Embedding-0.6B --file passages.txt --dimensions 256`,
  );
  command.action((model: string, texts: readonly string[], flags: EmbedFlags) => embed(model, texts, flags));
}

async function embed(model: string, given: readonly string[], flags: EmbedFlags): Promise<void> {
  const texts = [...given, ...(flags.file === undefined ? [] : await linesOf(flags.file))];
  if (texts.length === 0)
    throw new KvantError('invalid-flags', 'There is no text.', {
      kind: 'invalid-request',
      fix: 'Give texts behind the model, or --file.',
    });
  const { pooling, task, prefix, dimensions, truncate } = flags;
  const options = { ...engineOptions(flags), ...(pooling === undefined ? {} : { pooling }) };
  const [{ loadEngine }, { quietLog }] = await Promise.all([import('./load.js'), import('./log.js')]);
  await using engine = await loadEngine(model, options, quietLog(flags.logLevel));
  await untilInterrupted(async (signal) => {
    const asked: EmbedOptions = {
      signal,
      ...(task === undefined ? {} : { task }),
      ...(prefix === undefined ? {} : { prompt: prefix }),
      ...(dimensions === undefined ? {} : { dimensions }),
      ...(flags.normalize === false ? { normalize: false } : {}),
      ...(truncate === undefined ? {} : { truncate }),
    };
    const { embeddings } = await engine.embed(texts, asked);
    embeddings.forEach((embedding, index) => {
      process.stdout.write(`${JSON.stringify({ index, embedding: [...embedding] })}\n`);
    });
  });
}

/** Lines that hold something. */
async function linesOf(path: string): Promise<string[]> {
  return (await readText(path)).split(/\r?\n/).filter((line) => line !== '');
}
