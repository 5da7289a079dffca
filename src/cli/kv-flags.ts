/** Flags that say how the KV cache is stored, for every command that loads or plans one. */
import { type Command, InvalidArgumentError } from 'commander';
import { isFloatKv } from '../device/kv.js';
import { KvantError } from '../errors.js';
import { kvFormatNames, parseKvChoice } from '../kv/formats.js';
import { KV_SCHEMES, type KvOptions, readKvOptions } from '../kv/options.js';
import { integer, number } from './flag-numbers.js';
import { Option } from './option.js';

/** The options of the cache by their own names, and those that llama.cpp has other names for. */
export interface KvFlags extends Omit<KvOptions, 'kvLayerFormats'> {
  readonly kvCalibration?: string | boolean;
  readonly cacheTypeK?: string;
  readonly cacheTypeV?: string;
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
    .addOption(
      new Option('--cache-type-k <type>', "K, by llama.cpp's names; also -ctk").choices(CACHE_TYPE_NAMES),
    )
    .addOption(
      new Option('--cache-type-v <type>', "V, by llama.cpp's names; also -ctv").choices(CACHE_TYPE_NAMES),
    )
    .option(
      '--quantized-kv-start <n>',
      'keep a sequence in float KV until it holds so many tokens',
      integer(0),
    )
    .option(
      '--kv-float-head <n>',
      'of a quantised KV cache: the first tokens of each sequence that stay float (default: 32 on the CPU)',
      integer(0),
    )
    .option(
      '--kv-float-tail <n>',
      'of a quantised KV cache: the newest positions that each token reads as floats, kept besides; on a GPU up to 256',
      integer(0),
    )
    .option(
      '--kv-skip-layers <list>',
      'layers that stay float: last, none, or numbers as in 0,1,-1 (default: the last, of more than two)',
      layers,
    )
    .option(
      '--kv-bytes-per-token <n>',
      'bytes of a token in all layers: K, V and layers get the formats that lose least (kvant calibrate --losses)',
      integer(1),
    )
    .option('--kv-plan <file>', 'formats by layer; written by --kv-bytes-per-token where it is not there')
    .option(
      '--kv-calibration <file>',
      'store quantised keys by what kvant calibrate measured; auto, the default, measures at the first start',
    )
    .option('--no-kv-calibration', 'store quantised keys as they are');
}

/**
 * llama.cpp's types of a cache, and what is taken for them: floats and `q4_1`, `q5_1` are the same formats (32 values share a scale and a least
 * value); `q8_0`, `q5_0` and `q4_0` share a scale alone, and become those of the same width.
 */
const CACHE_TYPES: Readonly<Record<string, string>> = {
  f32: 'f32',
  f16: 'f16',
  q8_0: 'affine8-g32',
  q5_1: 'affine5-g32',
  q5_0: 'affine5-g32',
  q4_1: 'affine4-g32',
  q4_0: 'affine4-g32',
};
const CACHE_TYPE_NAMES = Object.keys(CACHE_TYPES);

const BIT_FLAGS = [
  'kvBits',
  'kvQuantScheme',
  'kvGroupSize',
  'kvKeyBits',
  'kvValueBits',
  'kvKeyScheme',
  'kvValueScheme',
  'kvBytesPerToken',
  'kvPlan',
] as const satisfies readonly (keyof KvFlags)[];

const rest = ({ cacheTypeK: _, cacheTypeV: __, ...others }: KvFlags): KvFlags => others;

/** What the flags say, as engine options; what they do not say stays out. */
export function kvOptions(flags: KvFlags): KvOptions {
  const { cacheTypeK, cacheTypeV } = flags;
  if (cacheTypeK !== undefined || cacheTypeV !== undefined) {
    const other = ['kvFormat', ...BIT_FLAGS].find((name) => flags[name as keyof KvFlags] !== undefined);
    if (other !== undefined)
      throw new KvantError('invalid-flags', 'The KV cache is described twice.', {
        kind: 'invalid-request',
        where: cacheTypeK === undefined ? '--cache-type-v' : '--cache-type-k',
        fix: 'Give --cache-type-k and --cache-type-v, or --kv-format, or bits, or --kv-bytes-per-token or --kv-plan.',
      });
    const [key, value] = [cacheTypeK, cacheTypeV].map((type) => CACHE_TYPES[type ?? 'f16']);
    return kvOptions({
      ...rest(flags),
      kvFormat: key === value ? key! : `${key}/${value}`,
    });
  }
  const { kvFormat, kvBits, kvQuantScheme, kvGroupSize, kvKeyBits, kvValueBits } = flags;
  const { kvKeyScheme, kvValueScheme, quantizedKvStart, kvFloatHead, kvFloatTail, kvSkipLayers } = flags;
  const { kvBytesPerToken, kvPlan } = flags;
  const given = { kvFormat, kvBits, kvQuantScheme, kvGroupSize, kvKeyBits, kvValueBits };
  const more = {
    kvKeyScheme,
    kvValueScheme,
    quantizedKvStart,
    kvFloatHead,
    kvFloatTail,
    kvSkipLayers,
    kvBytesPerToken,
    kvPlan,
  };
  const said: KvOptions = Object.fromEntries(
    Object.entries({ ...given, ...more }).filter(([, value]) => value !== undefined),
  );
  return said.kvFloatHead !== undefined || !isQuantized(said) ? said : { ...said, kvFloatHead: 'auto' };
}

/** K or V is not to be float. Errors: those of `readKvOptions`. */
export function isQuantized(options: KvOptions): boolean {
  const { key, value, layers } = readKvOptions(options);
  return layers !== null || [key, value].some((format) => format !== null && !isFloatKv(format));
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
