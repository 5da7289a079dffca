/** Flags of every command that samples, and what they say as sampling options. */
import { type Command, InvalidArgumentError } from 'commander';
import type { SamplingOptions } from '../sampling/options.js';
import { integer, integers, number } from './flag-numbers.js';
import { Option } from './option.js';

/** Flags whose names and values are those of the options. */
const PLAIN = [
  'maxTokens',
  'minTokens',
  'temperature',
  'topK',
  'topP',
  'minP',
  'typicalP',
  'topNSigma',
  'xtcProbability',
  'xtcThreshold',
  'mirostatTau',
  'mirostatEta',
  'repetitionPenalty',
  'repetitionContextSize',
  'frequencyPenalty',
  'presencePenalty',
  'dryMultiplier',
  'dryBase',
  'dryAllowedLength',
  'dryPenaltyLastN',
  'logitBias',
  'badWords',
  'suppressTokens',
  'stopTokenIds',
  'seed',
  'stop',
] as const satisfies readonly (keyof SamplingOptions)[];

export interface SamplingFlags extends Pick<SamplingOptions, (typeof PLAIN)[number]> {
  readonly mirostat?: '0' | '2';
  readonly drySequenceBreaker?: readonly string[];
  readonly repeatPenalty?: number;
}

const U31 = 2 ** 31 - 1;
const SAFE = Number.MIN_SAFE_INTEGER;

/** `which`: the seed and the end of an answer are a request's own business, not a server's. */
export function addSamplingFlags(command: Command, which: 'request' | 'defaults' = 'request'): Command {
  command
    .option('--max-tokens <n>', 'most tokens to generate', integer(1))
    .option('--temperature <t>', '0 is greedy (default: the model’s)', number(0, 100))
    .option('--top-k <k>', 'keep the k most likely tokens', integer(-1, U31))
    .option('--top-p <p>', 'keep the most likely tokens that hold so much probability', number(0, 1))
    .option('--min-p <p>', 'drop tokens less likely than so much of the most likely', number(0, 1))
    .option('--typical-p <p>', 'keep tokens of typical surprise that hold so much probability', number(0, 1))
    .option('--top-n-sigma <n>', 'keep logits within n standard deviations of the largest', number(-1, 1000))
    .option('--xtc-probability <p>', 'how often the top choices are left out', number(0, 1))
    .option('--xtc-threshold <p>', 'what counts as a top choice (default: 0.1)', number(0, 1))
    .addOption(new Option('--mirostat <n>', 'mirostat 2 in place of the filters').choices(['0', '2']))
    .option('--mirostat-tau <bits>', 'surprise that mirostat aims at (default: 5)', number(0, 100))
    .option('--mirostat-eta <n>', 'how fast mirostat adapts (default: 0.1)', number(0, 1))
    .option('--repetition-penalty <n>', 'weakens tokens seen in prompt or answer; 1 is off', number(0, 100))
    .addOption(
      new Option('--repeat-penalty <n>', 'the same as --repetition-penalty')
        .argParser(number(0, 100))
        .hideHelp(),
    )
    .option(
      '--repetition-context-size <n>',
      'so many last tokens count for it (default: all)',
      integer(-1, U31),
    )
    .option('--frequency-penalty <n>', 'weakens tokens by how often they were generated', number(-2, 2))
    .option('--presence-penalty <n>', 'weakens tokens once they were generated', number(-2, 2))
    .option('--dry-multiplier <n>', 'strength of DRY, against repeated sequences; 0 is off', number(0, 100))
    .option('--dry-base <n>', 'growth of DRY with the length of a repetition (default: 1.75)', number(1, 100))
    .option(
      '--dry-allowed-length <n>',
      'repetitions shorter than this are free (default: 2)',
      integer(1, U31),
    )
    .option('--dry-penalty-last-n <n>', 'tokens that DRY looks back on (default: -1, all)', integer(-1, U31))
    .option('--dry-sequence-breaker <text...>', 'texts that end a repetition (default: newline : " *)')
    .option('--logit-bias <id=bias...>', 'add to the logits of ids, e.g. 42=-100', bias)
    .option('--bad-words <text...>', 'texts that are not to be generated')
    .option('--suppress-tokens <ids>', 'ids that are not to be generated, e.g. 5,17', integers(0));
  if (which === 'defaults') return command;
  return command
    .option('--min-tokens <n>', 'no end before so many tokens', integer(0))
    .option('--seed <n>', 'the same seed gives the same answer', integer(SAFE))
    .option('--stop <text...>', 'end the answer before this text')
    .option('--stop-token-ids <ids>', 'ids that end the answer, e.g. 2,7', integers(0));
}

/** `42=-100`, once more for each id. */
function bias(text: string, before: Readonly<Record<string, number>> = {}): Record<string, number> {
  const match = /^(\d+)=(-?\d+(?:\.\d+)?)$/.exec(text.trim());
  const value = Number(match?.[2]);
  if (match === null || value < -100 || value > 100)
    throw new InvalidArgumentError('A token id and a number from -100 to 100 are needed, such as 42=-100.');
  return { ...before, [match[1]!]: value };
}

/** What the flags say, as options; what they do not say stays out. */
export function samplingOptions(flags: SamplingFlags): SamplingOptions {
  const { mirostat, drySequenceBreaker, repeatPenalty } = flags;
  const said: Record<string, unknown> = { repetitionPenalty: repeatPenalty };
  for (const name of PLAIN) said[name] = flags[name] ?? said[name];
  said.mirostat = mirostat === undefined ? undefined : Number(mirostat);
  said.drySequenceBreakers = drySequenceBreaker?.map(unescaped);
  return Object.fromEntries(Object.entries(said).filter(([, value]) => value !== undefined));
}

/** A shell makes newlines hard to write. */
function unescaped(text: string): string {
  return text.replaceAll('\\n', '\n').replaceAll('\\t', '\t');
}
