/** `kvant chat`: a conversation in the terminal. */
import { createInterface } from 'node:readline/promises';
import { styleText } from 'node:util';
import type { Command } from 'commander';
import type { Engine } from '../engine/engine.js';
import type { EngineChatMessage } from '../engine/types.js';
import { KvantError } from '../errors.js';
import { EXAMPLE_MODEL } from './example-model.js';
import { addEngineFlags, type CliLogLevel, type EngineFlags, engineOptions, logLevelFlag } from './flags.js';
import { addSamplingFlags, type SamplingFlags, samplingOptions } from './sampling-flags.js';

interface ChatFlags extends EngineFlags, SamplingFlags {
  readonly system?: string;
  readonly thinking?: boolean;
  readonly logLevel: CliLogLevel;
}

const HELP = 'Commands: /reset forgets the conversation, /exit ends it. Ctrl-C stops an answer.';

export function addChatCommand(program: Command): void {
  const command = program
    .command('chat <model>')
    .description('Talks to a model in the terminal; it remembers the conversation.')
    .option('--system <text>', 'a system message')
    .option('--no-thinking', 'pass enable_thinking=false to the chat template')
    .addOption(logLevelFlag('warn'));
  addSamplingFlags(command);
  addEngineFlags(command);
  command.addHelpText('after', `\n${HELP}\n\nExample:\n  $ kvant chat ${EXAMPLE_MODEL}`);
  command.action(async (model: string, flags: ChatFlags) => {
    await chat(model, flags);
  });
}

async function chat(model: string, flags: ChatFlags): Promise<void> {
  const options = engineOptions(flags);
  const [{ loadEngine }, { quietLog }] = await Promise.all([import('./load.js'), import('./log.js')]);
  await using engine = await loadEngine(model, options, quietLog(flags.logLevel));
  if (!engine.info.model.hasChatTemplate) {
    throw new KvantError('no-chat-template', `${model} has no chat template.`, {
      kind: 'unsupported',
      fix: 'Use kvant generate --raw, or take an instruction-tuned model.',
    });
  }
  const system: EngineChatMessage[] =
    flags.system === undefined ? [] : [{ role: 'system', content: flags.system }];
  let messages = [...system];
  const reader = createInterface({ input: process.stdin, output: process.stdout });
  let running: AbortController | null = null;
  reader.on('SIGINT', () => {
    if (running === null) reader.close();
    else running.abort();
  });
  process.stdout.write(`${styleText('dim', `${engine.info.name} on ${engine.info.device.name}. ${HELP}`)}\n`);
  reader.setPrompt(styleText('bold', '> '));
  reader.prompt();
  for await (const line of reader) {
    const text = line.trim();
    if (text === '/exit' || text === '/quit') break;
    if (text === '/reset') messages = [...system];
    else if (text.startsWith('/')) process.stdout.write(`${HELP}\n`);
    else if (text.length > 0) {
      running = new AbortController();
      const asked = [...messages, { role: 'user', content: text }];
      const answer = await answerTo(engine, asked, flags, running.signal);
      if (answer !== null) messages = [...asked, answer];
      running = null;
    }
    reader.prompt();
  }
  reader.close();
}

/** Streams one answer; null if the request was refused. */
async function answerTo(
  engine: Engine,
  messages: readonly EngineChatMessage[],
  flags: ChatFlags,
  signal: AbortSignal,
): Promise<EngineChatMessage | null> {
  try {
    const generation = engine.chat({
      ...samplingOptions(flags),
      messages,
      signal,
      templateOptions: flags.thinking === false ? { enable_thinking: false } : {},
    });
    let thinks = false;
    for await (const delta of generation) {
      if (delta.reasoning !== undefined) process.stdout.write(styleText('dim', delta.reasoning));
      if (thinks && delta.text !== '') process.stdout.write('\n\n');
      thinks = (thinks || delta.reasoning !== undefined) && delta.text === '';
      process.stdout.write(delta.text);
      if (delta.error !== undefined) throw delta.error;
    }
    process.stdout.write('\n');
    const { text, reasoning } = await generation.result;
    const thoughts = reasoning === '' ? {} : { reasoning_content: reasoning };
    return { role: 'assistant', content: text, ...thoughts };
  } catch (error) {
    if (!(error instanceof KvantError)) throw error;
    process.stdout.write(`${styleText('red', error.message)} ${error.fix ?? ''}\n`);
    return null;
  }
}
