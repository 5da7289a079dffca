/** Flags of every command that samples, made of the table of parameters, and what they say as sampling options. */
import { type Command, InvalidArgumentError } from 'commander';
import type { SamplingOptions } from '../sampling/options.js';
import { FIELD_NAMES, FIELDS, type FlagRule, type FlagShape } from '../sampling/schema.js';
import { integer, integers, number } from './flag-numbers.js';
import { Option } from './option.js';

/** What commander makes of the flags: a value by the flag's name in camel case. */
export type SamplingFlags = object;

/** `which`: the seed and the end of an answer are a request's own business, not a server's. */
export function addSamplingFlags(command: Command, which: 'request' | 'defaults' = 'request'): Command {
  const own = (rule: FlagRule): boolean => rule.requestOnly === true;
  const flags = FIELD_NAMES.flatMap((field) => {
    const { flag } = FIELDS[field];
    return flag === undefined || (which === 'defaults' && own(flag)) ? [] : [{ field, flag }];
  });
  flags.sort((a, b) => Number(own(a.flag)) - Number(own(b.flag)));
  for (const { field, flag } of flags) {
    command.addOption(optionOf(flag.name ?? dashed(field), flag, flag.help));
    for (const alias of flag.aliases ?? [])
      command.addOption(optionOf(alias, flag, `the same as --${dashed(field)}`).hideHelp());
  }
  return command;
}

function optionOf(name: string, { argument, shape }: FlagRule, help: string): Option {
  const option = new Option(`--${name} ${argument}`, help);
  if (typeof shape === 'object' && 'oneOf' in shape) option.choices(shape.oneOf.map(String));
  const parse = parserOf(shape);
  if (parse !== undefined) option.argParser(parse as (text: string, before: unknown) => unknown);
  return option;
}

function parserOf(shape: FlagShape): ((text: string, before: never) => unknown) | undefined {
  if (shape === 'ids') return integers(0);
  if (shape === 'biases') return bias;
  if (typeof shape === 'string' || 'oneOf' in shape) return undefined;
  return 'integer' in shape ? integer(...shape.integer) : number(...shape.number);
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
  const values = flags as Readonly<Record<string, unknown>>;
  const said: Record<string, unknown> = {};
  for (const field of FIELD_NAMES) {
    const { flag } = FIELDS[field];
    if (flag === undefined) continue;
    const given = [flag.name ?? field, ...(flag.aliases ?? [])]
      .map((name) => values[camelCase(name)])
      .find((value) => value !== undefined);
    if (given !== undefined) said[field] = optionValue(flag.shape, given);
  }
  return said;
}

function optionValue(shape: FlagShape, given: unknown): unknown {
  if (shape === 'escaped') return (given as readonly string[]).map(unescaped);
  return typeof shape === 'object' && 'oneOf' in shape ? Number(given) : given;
}

/** A shell makes newlines hard to write. */
function unescaped(text: string): string {
  return text.replaceAll('\\n', '\n').replaceAll('\\t', '\t');
}

function dashed(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

function camelCase(name: string): string {
  return name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
