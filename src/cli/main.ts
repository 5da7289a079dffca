#!/usr/bin/env node
/** The `kvant` command. */
import { readFileSync } from 'node:fs';
import { Command, CommanderError } from 'commander';
import { addBenchCommand } from './bench-command.js';
import { addChatCommand } from './chat-command.js';
import { addEvalCommand } from './eval-command.js';
import { EXIT, exitCodeOf, reportError } from './exit.js';
import { addGenerateCommand } from './generate-command.js';
import { addInspectCommand } from './inspect-command.js';
import { addPullCommand } from './pull-command.js';
import { addQuantizeCommand } from './quantize-command.js';
import { addServeCommand } from './serve-command.js';

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
  version: string;
};

const program = new Command('kvant')
  .description(
    'Serves language models from TypeScript, on any GPU through WebGPU and on any CPU through WebAssembly.',
  )
  .version(version)
  .showHelpAfterError('(kvant COMMAND --help shows what it takes)')
  .exitOverride()
  .addHelpText(
    'after',
    `
A model is a folder with a Hugging Face checkpoint, or a hub name: org/name or org/name@revision.

Start here:
  $ kvant serve models/demo-text     then talk to http://127.0.0.1:8080/v1
  $ kvant chat models/demo-text      in the terminal
  $ kvant inspect models/demo-text   what it is, and what fits in memory`,
  );

for (const add of [
  addServeCommand,
  addChatCommand,
  addGenerateCommand,
  addBenchCommand,
  addEvalCommand,
  addInspectCommand,
  addQuantizeCommand,
  addPullCommand,
]) {
  add(program);
}
for (const command of program.commands)
  command.exitOverride().showHelpAfterError(`(kvant ${command.name()} --help shows what it takes)`);

// A reader that closes the pipe early (head) is no error.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(EXIT.ok);
  throw error;
});

try {
  await program.parseAsync();
} catch (error) {
  if (error instanceof CommanderError) {
    process.exitCode = error.exitCode === 0 ? EXIT.ok : EXIT.usage;
  } else {
    reportError(error, process.argv.includes('--json'));
    process.exitCode = exitCodeOf(error);
  }
}
