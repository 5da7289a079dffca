/** `kvant chat`: a conversation in the terminal. */
import type { Command } from 'commander';
import { KvantError } from '../errors.js';
import { chatHelp } from './chat/commands.js';
import { EXAMPLE_MODEL } from './example-model.js';
import { addEngineFlags, type CliLogLevel, type EngineFlags, engineOptions, logLevelFlag } from './flags.js';
import { SIGNALS } from './interrupt.js';
import { addSamplingFlags, type SamplingFlags, samplingOptions } from './sampling-flags.js';

interface ChatFlags extends EngineFlags, SamplingFlags {
  readonly system?: string;
  readonly thinking?: boolean;
  readonly quiet?: boolean;
  readonly logLevel: CliLogLevel;
}

export function addChatCommand(program: Command): void {
  const command = program
    .command('chat <model>')
    .description('Talks to a model in the terminal; it remembers the conversation.')
    .option('--system <text>', 'a system message')
    .option('--no-thinking', 'pass enable_thinking=false to the chat template')
    .option('--quiet', 'no rates after answers')
    .addOption(logLevelFlag('warn'));
  addSamplingFlags(command);
  addEngineFlags(command);
  command.addHelpText(
    'after',
    `\nWhile you talk:\n${chatHelp()}\n\nExample:\n  $ kvant chat ${EXAMPLE_MODEL}`,
  );
  command.action(async (model: string, flags: ChatFlags) => {
    await chat(model, flags);
  });
}

function noTemplate(model: string): KvantError {
  return new KvantError('no-chat-template', `${model} has no chat template.`, {
    kind: 'unsupported',
    fix: 'Use kvant generate --raw, or take an instruction-tuned model.',
  });
}

async function chat(model: string, flags: ChatFlags): Promise<void> {
  const options = engineOptions(flags);
  const [{ loadEngine }, { quietLog }, { Conversation }, { Settings }, { Talk }] = await Promise.all([
    import('./load.js'),
    import('./log.js'),
    import('./chat/conversation.js'),
    import('./chat/settings.js'),
    import('./chat/talk.js'),
  ]);
  await using engine = await loadEngine(model, options, quietLog(flags.logLevel), async (all) => {
    const { hasChatTemplate } = await import('../engine/has-template.js');
    if (!(await hasChatTemplate(model, all))) throw noTemplate(model);
  });
  const { info } = engine;
  // Where it could not be told before.
  if (!info.model.hasChatTemplate) throw noTemplate(model);
  const settings = new Settings(samplingOptions(flags), flags.thinking === false ? false : undefined);
  const talk = new Talk(
    new Conversation(engine, settings, flags.system),
    { input: process.stdin, output: process.stdout, errors: process.stderr },
    {
      title: `${info.name} on ${info.device.name}.`,
      defaults: info.samplingDefaults,
      quiet: flags.quiet ?? false,
    },
  );
  const end = (): void => talk.end();
  for (const signal of SIGNALS) process.on(signal, end);
  try {
    process.exitCode = await talk.run();
  } finally {
    for (const signal of SIGNALS) process.off(signal, end);
  }
}
