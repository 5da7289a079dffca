/** Flags that say how the KV cache is stored, for every command that loads or plans one. */
import { type Command, InvalidArgumentError } from 'commander';
import { KvantError } from '../errors.js';
import { kvFormatNames, parseKvChoice } from '../kv/formats.js';
import { KV_SCHEMES, type KvOptions, type KvScheme } from '../kv/options.js';
import { integer, number } from './flag-numbers.js';
import { Option } from './option.js';

export interface KvFlags {
  readonly kvFormat?: string;
  readonly kvBits?: number;
  readonly kvQuantScheme?: KvScheme;
  readonly kvGroupSize?: number;
  readonly kvKeyBits?: number;
  readonly kvValueBits?: number;
  readonly kvKeyScheme?: KvScheme;
  readonly kvValueScheme?: KvScheme;
  readonly quantizedKvStart?: number;
  readonly kvSkipLayers?: readonly number[];
}

export function addKvFlags(command: Command): Command {
  const bits = number(1, 16);
  return command
    .option('--kv-format <name>', `KV cache: ${kvFormatNames().join(', ')}`, format)
    .option(
      '--kv-bits <n>',
      'bits of a value in the KV cache; 3.5 means TurboQuant with K at 3, V at 4',
      bits,
    )
    .addOption(new Option('--kv-quant-scheme <name>', 'how the KV cache is quantised').choices(KV_SCHEMES))
    .option('--kv-group-size <n>', 'uniform: values that share a scale: 32, 64 or 128', integer(1))
    .option('--kv-key-bits <n>', 'bits of K, in place of --kv-bits', bits)
    .option('--kv-value-bits <n>', 'bits of V, in place of --kv-bits', bits)
    .addOption(new Option('--kv-key-scheme <name>', 'how K is quantised').choices(KV_SCHEMES))
    .addOption(new Option('--kv-value-scheme <name>', 'how V is quantised').choices(KV_SCHEMES))
    .option(
      '--quantized-kv-start <n>',
      'keep a sequence in float KV until it holds so many tokens',
      integer(0),
    )
    .option(
      '--kv-skip-layers <list>',
      'layers that stay float: last, none, or numbers as in 0,1,-1 (default: the last, of more than two)',
      layers,
    );
}

/** What the flags say, as engine options; what they do not say stays out. */
export function kvOptions(flags: KvFlags): KvOptions {
  const { kvFormat, kvBits, kvQuantScheme, kvGroupSize, kvKeyBits, kvValueBits } = flags;
  const { kvKeyScheme, kvValueScheme, quantizedKvStart, kvSkipLayers } = flags;
  const given = { kvFormat, kvBits, kvQuantScheme, kvGroupSize, kvKeyBits, kvValueBits };
  const more = { kvKeyScheme, kvValueScheme, quantizedKvStart, kvSkipLayers };
  return Object.fromEntries(Object.entries({ ...given, ...more }).filter(([, value]) => value !== undefined));
}

function format(text: string): string {
  try {
    parseKvChoice(text);
    return text;
  } catch (error) {
    throw new InvalidArgumentError(error instanceof KvantError ? (error.fix ?? '') : String(error));
  }
}

/** `0,1,-1` → [0, 1, −1]; `last` → [−1]; `none` → []. */
function layers(text: string): number[] {
  if (text === 'none') return [];
  return text.split(',').map((one) => {
    if (one.trim() === 'last') return -1;
    if (!/^\s*-?\d+\s*$/.test(one))
      throw new InvalidArgumentError('Layers are needed, such as 0,1,-1, or last, or none.');
    return Number(one);
  });
}
