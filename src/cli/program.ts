/** The commands. What one needs is loaded when it is asked for, so that help costs next to nothing. */
import { Command, CommanderError } from 'commander';
import { KvantError } from '../errors.js';
import { EXAMPLE_MODEL } from './example-model.js';
import { EXIT, exitCodeOf, reportError } from './exit.js';
import { writtenOut } from './short-flags.js';
import { kvantVersion } from './versions.js';

type AddCommand = (program: Command) => void;

/** Name and arguments, what it does, and where it is. */
const COMMANDS: readonly (readonly [string, string, () => Promise<AddCommand>])[] = [
  [
    'serve [model]',
    'serve a model over HTTP, as OpenAI does',
    async () => (await import('./serve-command.js')).addServeCommand,
  ],
  [
    'chat <model>',
    'talk to a model in the terminal',
    async () => (await import('./chat-command.js')).addChatCommand,
  ],
  [
    'generate <model>',
    'answer one prompt',
    async () => (await import('./generate-command.js')).addGenerateCommand,
  ],
  [
    'embed <model> [text...]',
    'print embeddings of texts',
    async () => (await import('./embed-command.js')).addEmbedCommand,
  ],
  [
    'bench [model]',
    'measure prefill and decode; bench kv, sampler, serve, …: see --help',
    async () => (await import('./bench/command.js')).addBenchCommand,
  ],
  [
    'tune [model]',
    'measure which kernels a GPU runs fastest, and keep that for --autotune',
    async () => (await import('./tune-command.js')).addTuneCommand,
  ],
  [
    'eval <model>',
    'ask question sets; eval kv: judge KV cache formats',
    async () => (await import('./eval/command.js')).addEvalCommand,
  ],
  [
    'simulate [trace]',
    'run the scheduler over a trace of arrivals, without a model',
    async () => (await import('./simulate-command.js')).addSimulateCommand,
  ],
  [
    'inspect <model>',
    'architecture, sizes, cache plan, and what fits in memory',
    async () => (await import('./inspect-command.js')).addInspectCommand,
  ],
  [
    'calibrate <model>',
    'measure what quantised keys can be freed of, for --kv-calibration',
    async () => (await import('./calibrate-command.js')).addCalibrateCommand,
  ],
  [
    'quantize <in> <out>',
    'write a quantised copy of a checkpoint',
    async () => (await import('./quantize-command.js')).addQuantizeCommand,
  ],
  [
    'pull <model>',
    'fetch a model from the hub into the cache',
    async () => (await import('./pull-command.js')).addPullCommand,
  ],
];

/** Other names of commands, as other tools have them. */
const ALIASES: Readonly<Record<string, string>> = { chat: 'run' };

const words = process.argv.slice(2);
const json = words.includes('--json');

const program = new Command('kvant')
  .description(
    'Serves language models from TypeScript, on any GPU through WebGPU and on any CPU through WebAssembly.',
  )
  .version(kvantVersion())
  .showHelpAfterError('(kvant COMMAND --help shows what it takes)')
  // A flag belongs to the command it stands behind: `eval` and `eval kv` have some of the same names.
  .enablePositionalOptions()
  .exitOverride()
  .configureOutput(json ? { writeErr: () => {} } : {})
  .addHelpText(
    'after',
    `
A model is a folder with a Hugging Face checkpoint, or a hub name: org/name or org/name@revision.

Start here:
  $ kvant serve ${EXAMPLE_MODEL}     then talk to http://127.0.0.1:8080/v1
  $ kvant chat ${EXAMPLE_MODEL}      in the terminal
  $ kvant inspect ${EXAMPLE_MODEL}   what it is, and what fits in memory`,
  );

for (const [usage, summary, load] of COMMANDS) {
  const name = usage.split(' ')[0]!;
  const alias = ALIASES[name];
  // Only those that may be meant are loaded; of the others the list of commands is all that is seen.
  if (words.includes(name) || (alias !== undefined && words.includes(alias))) (await load())(program);
  else program.command(usage);
  const command = program.commands.at(-1)!;
  if (alias !== undefined) command.alias(alias);
  command.summary(summary).exitOverride().showHelpAfterError(`(kvant ${name} --help shows what it takes)`);
}

/** Nobody reads any more: a pipe was closed, or a terminal. */
const unread = ({ code }: NodeJS.ErrnoException): boolean => code === 'EPIPE' || code === 'EIO';
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (!unread(error)) throw error;
  // A reader that closes the pipe early (head) is no error. A server has more to do than to print.
  if (!words.includes('serve')) process.exit(EXIT.ok);
});
process.stderr.on('error', (error: NodeJS.ErrnoException) => {
  if (!unread(error)) throw error;
});

try {
  const known = COMMANDS.map(([usage]) => usage.split(' ')[0]!);
  const asked = words[0] === 'help' ? words[1] : words[0];
  const names = [...known, ...Object.values(ALIASES), 'help'];
  if (asked !== undefined && !asked.startsWith('-') && !names.includes(asked))
    throw await (await import('./unknown-command.js')).unknownCommand(asked, known);
  await program.parseAsync(writtenOut(process.argv));
} catch (error) {
  if (!(error instanceof CommanderError)) {
    reportError(error, json);
    process.exitCode = exitCodeOf(error);
  } else if (error.exitCode === 0) {
    process.exitCode = EXIT.ok;
  } else {
    if (json) {
      const message = error.message.replace(/^error: /, '');
      const fix = 'See kvant COMMAND --help.';
      reportError(new KvantError('invalid-flags', message, { kind: 'invalid-request', fix }), json);
    }
    process.exitCode = EXIT.usage;
  }
}
