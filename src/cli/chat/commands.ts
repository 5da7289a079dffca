/** What lines that begin with a slash do. */
import { didYouMean } from '../../did-you-mean.js';
import { KvantError } from '../../errors.js';
import type { SamplingOptions } from '../../sampling/options.js';
import type { Conversation } from './conversation.js';

/** What to print; null: the conversation is over. */
type Outcome = string | null;

interface ChatCommand {
  readonly names: readonly string[];
  /** What may stand behind the name; none if empty. */
  readonly takes: string;
  readonly help: string;
  readonly run: (conversation: Conversation, text: string, defaults: SamplingOptions) => Outcome;
}

const COMMANDS: readonly ChatCommand[] = [
  {
    names: ['/help', '/?'],
    takes: '',
    help: 'shows this',
    run: () => chatHelp(),
  },
  {
    names: ['/reset', '/clear'],
    takes: '',
    help: 'forgets the conversation; system message and settings stay',
    run: (conversation) => {
      conversation.reset();
      return 'The conversation is forgotten.';
    },
  },
  {
    names: ['/system'],
    takes: '[text]',
    help: 'sets the system message, "" takes it away; alone it shows it',
    run: (conversation, text) => {
      if (text !== '') conversation.system = text === '""' ? undefined : text;
      return conversation.system === undefined
        ? 'There is no system message.'
        : `System message: ${conversation.system}`;
    },
  },
  {
    names: ['/image'],
    takes: '[file]',
    help: 'puts a picture before the next question, for a model that sees; "" takes them away; alone it shows them',
    run: (conversation, text) => {
      if (text === '""') conversation.dropImages();
      else if (text !== '') conversation.addImage(unquoted(text));
      const { images } = conversation;
      return images.length === 0
        ? 'There are no pictures.'
        : `Before the next question: ${images.join(', ')}`;
    },
  },
  {
    names: ['/set'],
    takes: '[name value]',
    help: 'sets temperature, top-p, max-tokens, seed, stop, thinking, …; alone it shows all',
    run: ({ settings }, text, defaults) => {
      const [, name, value] = /^(\S+)\s*(.*)$/s.exec(text) ?? [];
      return name === undefined ? settings.describe(defaults) : settings.set(name, value!.trim());
    },
  },
  {
    names: ['/exit', '/quit', '/bye'],
    takes: '',
    help: 'ends the conversation, as Ctrl-D does',
    run: () => null,
  },
];

/** A path with spaces may stand in quotes. */
const unquoted = (text: string): string => /^(["'])(.*)\1$/s.exec(text)?.[2] ?? text;

/** Errors: `unknown-command`, `invalid-command`, and those of `/set` and `/image`. */
export function runCommand(line: string, conversation: Conversation, defaults: SamplingOptions): Outcome {
  const [, name, rest] = /^(\S+)\s*(.*)$/s.exec(line.trim())!;
  const command = COMMANDS.find(({ names }) => names.includes(name!.toLowerCase()));
  if (command === undefined)
    throw new KvantError('unknown-command', `There is no command ${name}.`, {
      kind: 'invalid-request',
      where: name!,
      fix: `${didYouMean(
        name!,
        COMMANDS.flatMap(({ names }) => names),
      )} See /help. A message that begins with a slash goes into """quotes""".`.trim(),
    });
  if (command.takes === '' && rest !== '')
    throw new KvantError('invalid-command', `${name} takes nothing, got ${rest}.`, {
      kind: 'invalid-request',
      where: name!,
      fix: `Write ${name}.`,
    });
  return command.run(conversation, rest!, defaults);
}

export function chatHelp(): string {
  const lines = COMMANDS.map(({ names, takes, help }): [string, string] => [
    `${names.join(', ')} ${takes}`.trim(),
    help,
  ]);
  lines.push(
    ['"""', 'begins and ends a message of several lines'],
    ['Ctrl-C', 'stops an answer; at the prompt it ends the conversation'],
  );
  const width = Math.max(...lines.map(([left]) => left.length));
  return lines.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join('\n');
}
