/** Flags that stretch a model's rotation, as llama.cpp and vLLM have them, and `--hf-overrides`: all set fields of config.json. */
import { type Command, InvalidArgumentError } from 'commander';
import { KvantError } from '../errors.js';
import { integer, number } from './flag-numbers.js';
import { Option } from './option.js';

type Fields = Readonly<Record<string, unknown>>;

export interface RopeFlags {
  readonly hfOverrides?: Fields;
  readonly ropeScaling?: string | Fields;
  readonly ropeScale?: number;
  readonly ropeFreqScale?: number;
  readonly ropeTheta?: number;
  readonly ropeFreqBase?: number;
  readonly yarnOrigCtx?: number;
  readonly yarnAttnFactor?: number;
  readonly yarnBetaFast?: number;
  readonly yarnBetaSlow?: number;
}

const SCALINGS = ['none', 'linear', 'yarn'];
const aboveZero = number(Number.MIN_VALUE, 1e12);

export function addRopeFlags(command: Command): Command {
  return command
    .option('--hf-overrides <json>', 'fields of config.json to replace, e.g. \'{"rope_theta": 1e6}\'', fields)
    .option('--rope-scaling <type>', 'none, linear or yarn, or a rope_scaling as JSON', scaling)
    .option('--rope-scale <n>', 'how many times longer the context becomes', aboveZero)
    .addOption(
      new Option('--rope-freq-scale <n>', '1 / --rope-scale, as llama.cpp has it').argParser(aboveZero),
    )
    .option('--rope-theta <n>', 'base of the rotation; also --rope-freq-base', aboveZero)
    .addOption(new Option('--rope-freq-base <n>', 'the same as --rope-theta').argParser(aboveZero).hideHelp())
    .option('--yarn-orig-ctx <n>', 'YaRN: context that the model was trained on', integer(1))
    .option('--yarn-attn-factor <n>', 'YaRN: multiplies the attention factor', aboveZero)
    .option('--yarn-beta-fast <n>', 'YaRN: turns from which nothing is stretched (default: 32)', aboveZero)
    .option('--yarn-beta-slow <n>', 'YaRN: turns below which all is stretched (default: 1)', aboveZero);
}

/** What the flags say, as fields of config.json; undefined where they say nothing. Errors: `invalid-flags`. */
export function overridesOf(flags: RopeFlags): Fields | undefined {
  const theta = same('--rope-theta', flags.ropeTheta, '--rope-freq-base', flags.ropeFreqBase);
  const inverse = flags.ropeFreqScale === undefined ? undefined : 1 / flags.ropeFreqScale;
  const scale = same('--rope-scale', flags.ropeScale, '--rope-freq-scale', inverse);
  const rope = ropeScaling(flags, scale);
  const all = {
    ...(theta === undefined ? {} : { rope_theta: theta }),
    ...(rope === undefined ? {} : { rope_scaling: rope }),
  };
  for (const name of Object.keys(all))
    if (Object.hasOwn(flags.hfOverrides ?? {}, name))
      throw invalid(
        '--hf-overrides',
        `--hf-overrides and a rope flag both set ${name}.`,
        'Give one of them.',
      );
  const overrides = { ...flags.hfOverrides, ...all };
  return Object.keys(overrides).length === 0 ? undefined : overrides;
}

function ropeScaling(flags: RopeFlags, factor: number | undefined): Fields | undefined {
  const yarn = {
    ...(flags.yarnOrigCtx === undefined ? {} : { original_max_position_embeddings: flags.yarnOrigCtx }),
    ...(flags.yarnBetaFast === undefined ? {} : { beta_fast: flags.yarnBetaFast }),
    ...(flags.yarnBetaSlow === undefined ? {} : { beta_slow: flags.yarnBetaSlow }),
  };
  const hasYarn = Object.keys(yarn).length > 0 || flags.yarnAttnFactor !== undefined;
  const { ropeScaling: type = hasYarn ? 'yarn' : factor === undefined ? undefined : 'linear' } = flags;
  if (type === undefined) return undefined;
  if (typeof type !== 'string') {
    if (hasYarn || factor !== undefined)
      throw invalid('--rope-scaling', 'A --rope-scaling in JSON says all.', 'Put the other flags into it.');
    return type;
  }
  if (hasYarn && type !== 'yarn')
    throw invalid(
      '--rope-scaling',
      `--yarn-… flags go with --rope-scaling yarn, not ${type}.`,
      'Leave them out.',
    );
  if (type === 'none') {
    if (factor !== undefined)
      throw invalid('--rope-scaling', '--rope-scaling none has no factor.', 'Leave out --rope-scale.');
    return { rope_type: 'default' };
  }
  if (factor === undefined)
    throw invalid('--rope-scale', `--rope-scaling ${type} needs a factor.`, 'Give --rope-scale, such as 4.');
  if (type === 'linear') return { rope_type: type, factor };
  // Beside what YaRN itself takes for the factor.
  const own = factor <= 1 ? 1 : 0.1 * Math.log(factor) + 1;
  const attention =
    flags.yarnAttnFactor === undefined ? {} : { attention_factor: flags.yarnAttnFactor * own };
  return { rope_type: type, factor, ...yarn, ...attention };
}

/** Two names of one number. */
function same(
  a: string,
  first: number | undefined,
  b: string,
  second: number | undefined,
): number | undefined {
  if (first !== undefined && second !== undefined && first !== second)
    throw invalid(b, `${a} and ${b} are the same, but differ.`, 'Give one of them.');
  return first ?? second;
}

function fields(text: string): Fields {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new InvalidArgumentError(`It is no JSON: ${(error as Error).message}.`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new InvalidArgumentError('A JSON object is needed, such as \'{"rope_theta": 1e6}\'.');
  return value as Fields;
}

function scaling(text: string): string | Fields {
  if (text.trim().startsWith('{')) return fields(text);
  const known = SCALINGS.find((one) => one === text.toLowerCase());
  if (known === undefined)
    throw new InvalidArgumentError(`Allowed choices are ${SCALINGS.join(', ')}, or a JSON object.`);
  return known;
}

function invalid(where: string, message: string, fix: string): KvantError {
  return new KvantError('invalid-flags', message, { kind: 'invalid-request', where, fix });
}
