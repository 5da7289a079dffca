/** What users say about the KV cache, made into formats; what cannot be meant is refused before a model is loaded. */

import { kindOf } from '../arguments.js';
import { isFloatKv, type KvFormat } from '../device/kv.js';
import { DEFAULT_KV_GROUP } from '../device/kv-formats/affine.js';
import type { KvBitsScheme } from '../device/kv-formats/kind.js';
import { KV_FORMATS, type KvScheme, kvFormatKind } from '../device/kv-formats/list.js';
import { KvantError } from '../errors.js';
import { type KvChoice, parseKvChoice } from './formats.js';

const SCHEMES: readonly KvBitsScheme[] = KV_FORMATS.flatMap(({ scheme }) => scheme ?? []);

/** Ways to quantise by bits: `uniform`, `turboquant`. */
export const KV_SCHEMES: readonly string[] = SCHEMES.map(({ name }) => name);
export type { KvScheme };

export interface KvOptions {
  /**
   * Format of the KV cache by name: `f16`, `f32`, `affine8`, `affine4-g32`, `turbo3`, `turbo3.5`, or K and V apart as
   * `affine8/turbo4`. Default: f16, or f32 with `precision: 'reference'`. In place of the options below.
   */
  readonly kvFormat?: string | undefined;
  /** Bits a value. `x.5` means TurboQuant with K at the lower and V at the higher whole number. */
  readonly kvBits?: number | undefined;
  /** Default `uniform`; `turboquant` where `kvBits` has a fraction. */
  readonly kvQuantScheme?: KvScheme | undefined;
  /** Values of head_dim that share a scale and a bias: 32, 64 or 128. Default 64. Uniform only. */
  readonly kvGroupSize?: number | undefined;
  /** In place of `kvBits`, for K. A side that is given no bits at all stays float. */
  readonly kvKeyBits?: number | undefined;
  readonly kvValueBits?: number | undefined;
  /** In place of `kvQuantScheme`, for K. */
  readonly kvKeyScheme?: KvScheme | undefined;
  readonly kvValueScheme?: KvScheme | undefined;
  /** A sequence keeps float KV until its context holds so many tokens. Default 0: it is quantised from the first. */
  readonly quantizedKvStart?: number | undefined;
  /**
   * The first so many tokens of every sequence stay float for good, in whole blocks of at least 32. `auto`: 32, where the device can
   * and sequences are not quantised late. Default 0: none do.
   */
  readonly kvFloatHead?: number | 'auto' | undefined;
  /**
   * Each token reads the newest so many positions, its own included, as floats, which are kept beside the quantised cache: any number on the
   * CPU, up to 256 on WebGPU. Default 0: none.
   */
  readonly kvFloatTail?: number | undefined;
  /**
   * Attention layers that stay float; −1 is the last. Default: the last one, where there are more than two that could be
   * quantised. `[]` quantises every layer that can be.
   */
  readonly kvSkipLayers?: readonly number[] | undefined;
  /** A format for each layer of the model, in order, in place of `kvFormat`. Layers that slide or are recurrent stay as they are. */
  readonly kvLayerFormats?: readonly string[] | undefined;
  /**
   * Bytes that one token may take in all layers together: K, V and layers get the formats that are expected to lose least. `kvCalibration`
   * names a file that has the losses (`kvant calibrate --losses`).
   */
  readonly kvBytesPerToken?: number | undefined;
  /** A file of formats by layer. Where it is not there, what `kvBytesPerToken` comes to is written to it. */
  readonly kvPlan?: string | undefined;
}

export const KV_OPTION_NAMES = [
  'kvFormat',
  'kvBits',
  'kvQuantScheme',
  'kvGroupSize',
  'kvKeyBits',
  'kvValueBits',
  'kvKeyScheme',
  'kvValueScheme',
  'quantizedKvStart',
  'kvFloatHead',
  'kvFloatTail',
  'kvSkipLayers',
  'kvLayerFormats',
  'kvBytesPerToken',
  'kvPlan',
] as const satisfies readonly (keyof KvOptions)[];

/** What the options come to. */
export interface KvRequest {
  /** Null: whatever float format the device prefers. */
  readonly key: KvFormat | null;
  readonly value: KvFormat | null;
  readonly quantizedStart: number;
  readonly floatHead: number | 'auto';
  readonly floatTail: number;
  /** Null: the default of the layer policy. */
  readonly skipLayers: readonly number[] | null;
  /** Formats by layer, in place of `key` and `value`: a list, or `open` where a file or a number of bytes is still to become one. */
  readonly layers: readonly KvChoice[] | 'open' | null;
}

/** Errors: `kv-format-unknown`, `kv-options-invalid`, naming the option and what it takes. */
export function readKvOptions(options: KvOptions): KvRequest {
  checkKinds(options);
  const layers = formatsByLayer(options);
  const { key, value } = options.kvFormat === undefined ? formatsOfBits(options) : formatsOfName(options);
  const quantized =
    layers === 'open' ||
    (layers ?? [{ key, value }]).some((of) =>
      [of.key, of.value].some((format) => format !== null && !isFloatKv(format)),
    );
  return {
    key,
    value,
    layers,
    quantizedStart: readStart(options.quantizedKvStart, quantized),
    floatHead: readHead(options, quantized),
    floatTail: readTail(options.kvFloatTail, quantized),
    skipLayers: readSkip(options.kvSkipLayers, quantized),
  };
}

/** Whether each is of the kind that its own check takes. */
function checkKinds(options: KvOptions): void {
  for (const name of ['kvFormat', 'kvQuantScheme', 'kvKeyScheme', 'kvValueScheme'] as const)
    if (options[name] !== undefined && typeof options[name] !== 'string')
      throw invalid(name, `\`${name}\` takes a name, got ${kindOf(options[name])}.`, 'Give a text.');
  for (const name of [
    'kvBits',
    'kvGroupSize',
    'kvKeyBits',
    'kvValueBits',
    'quantizedKvStart',
    'kvFloatHead',
    'kvFloatTail',
    'kvBytesPerToken',
  ] as const) {
    const value = options[name];
    if (value === undefined || typeof value === 'number' || (name === 'kvFloatHead' && value === 'auto'))
      continue;
    throw invalid(name, `\`${name}\` takes a number, got ${kindOf(value)}.`, 'Give a number.');
  }
  const { kvSkipLayers: skip } = options;
  if (skip !== undefined && !(Array.isArray(skip) && skip.every((layer) => typeof layer === 'number')))
    throw invalid(
      'kvSkipLayers',
      '`kvSkipLayers` takes a list of layers.',
      'Give whole numbers; −1 is the last.',
    );
}

const BIT_OPTIONS = [
  'kvBits',
  'kvQuantScheme',
  'kvGroupSize',
  'kvKeyBits',
  'kvValueBits',
  'kvKeyScheme',
  'kvValueScheme',
] as const satisfies readonly (keyof KvOptions)[];

/** What says the formats of all layers at once, and what says them by layer. */
const BY_LAYER = [
  'kvLayerFormats',
  'kvBytesPerToken',
  'kvPlan',
] as const satisfies readonly (keyof KvOptions)[];

function formatsByLayer(options: KvOptions): KvRequest['layers'] {
  const { kvLayerFormats: names, kvBytesPerToken: bytes, kvPlan: plan } = options;
  const given = BY_LAYER.find((name) => options[name] !== undefined);
  if (given === undefined) return null;
  const other = (['kvFormat', ...BIT_OPTIONS] as const).find((name) => options[name] !== undefined);
  if (other !== undefined || (names !== undefined && (bytes ?? plan) !== undefined))
    throw invalid(
      other ?? given,
      `The formats of layers come from \`${given}\` and are described by \`${other ?? (bytes === undefined ? 'kvPlan' : 'kvBytesPerToken')}\` as well.`,
      'Give one of the two.',
    );
  if (bytes !== undefined && !(Number.isSafeInteger(bytes) && bytes > 0))
    throw invalid('kvBytesPerToken', `${bytes} is no number of bytes.`, 'Give a whole number above 0.');
  if (plan !== undefined && (typeof plan !== 'string' || plan === ''))
    throw invalid('kvPlan', 'The plan has no name.', 'Give the name of a file.');
  if (names === undefined) return 'open';
  if (!Array.isArray(names) || names.length === 0 || !names.every((name) => typeof name === 'string'))
    throw invalid(
      'kvLayerFormats',
      'Formats by layer are a list of names.',
      "Give ['turbo4', 'turbo4/turbo3', …].",
    );
  return names.map(parseKvChoice);
}

interface Formats {
  readonly key: KvFormat | null;
  readonly value: KvFormat | null;
}

function formatsOfName(options: KvOptions): Formats {
  const other = BIT_OPTIONS.find((name) => options[name] !== undefined);
  if (other !== undefined)
    throw invalid(
      other,
      `The KV format is named (${options.kvFormat}) and described by \`${other}\` as well.`,
      'Give one of the two.',
    );
  return parseKvChoice(options.kvFormat ?? '');
}

function formatsOfBits(options: KvOptions): Formats {
  const { kvBits, kvKeyBits, kvValueBits, kvGroupSize } = options;
  for (const name of ['kvQuantScheme', 'kvKeyScheme', 'kvValueScheme'] as const) {
    const scheme = options[name];
    if (scheme === undefined) continue;
    if (!KV_SCHEMES.includes(scheme))
      throw invalid(
        name,
        `There is no scheme ${JSON.stringify(scheme)}.`,
        `Use one of: ${KV_SCHEMES.join(', ')}.`,
      );
    const own =
      name === 'kvKeyScheme'
        ? kvKeyBits
        : name === 'kvValueScheme'
          ? kvValueBits
          : (kvKeyBits ?? kvValueBits);
    if ((kvBits ?? own) === undefined)
      throw invalid(name, `The scheme is ${scheme}, but no bits are given.`, 'Say how many bits: kvBits.');
  }
  if (kvBits !== undefined && !(kvBits > 0 && Number.isInteger(kvBits * 2)))
    throw invalid('kvBits', `${kvBits} bits a value are not possible.`, BITS_FIX);
  const key = sideFormat(options, 'Key');
  const value = sideFormat(options, 'Value');
  const grouped = [key, value].some((format) => format !== null && groupsOf(format).length > 0);
  if (kvGroupSize !== undefined && !grouped) {
    const none = key === null && value === null;
    throw invalid(
      'kvGroupSize',
      `A group size is given, but ${none ? 'no bits' : `${kvFormatKind((key ?? value)!).scheme?.title} has no groups`}.`,
      none ? 'Say how many bits: kvBits.' : 'Leave it out.',
    );
  }
  return { key, value };
}

const groupsOf = (format: KvFormat): readonly number[] => kvFormatKind(format).scheme?.groups ?? [];

const BITS_FIX = `${SCHEMES.map(({ title, bits, halves }) => {
  const between = halves ? bits.filter((b) => bits.includes(b + 1)).map((b) => b + 0.5) : [];
  return `${title} takes ${list(bits)} bits${between.length === 0 ? '' : `, or ${between.join(' and ')}`}`;
}).join('; ')}.`;

/** The format of one side, null where it is given no bits. */
function sideFormat(options: KvOptions, side: 'Key' | 'Value'): KvFormat | null {
  const bitsName = `kv${side}Bits` as const;
  const schemeName = `kv${side}Scheme` as const;
  const { kvBits, kvQuantScheme, kvGroupSize = DEFAULT_KV_GROUP, [bitsName]: own } = options;
  if (own !== undefined && !Number.isInteger(own))
    throw invalid(
      bitsName,
      `${own} bits cannot be had for one side: a fraction is shared out over K and V.`,
      'Give whole bits for each side, or the fraction as kvBits.',
    );
  const shared = kvBits === undefined ? null : side === 'Key' ? Math.floor(kvBits) : Math.ceil(kvBits);
  const bits = own ?? shared;
  if (bits === null) return null;
  const scheme = options[schemeName] ?? kvQuantScheme;
  const fraction = kvBits !== undefined && !Number.isInteger(kvBits);
  const named = SCHEMES.find(({ name }) => name === scheme);
  const halves = SCHEMES.find((other) => other.halves);
  if (named?.halves === false && fraction && own === undefined)
    throw invalid(
      options[schemeName] === undefined ? 'kvQuantScheme' : schemeName,
      `${kvBits} bits mean ${halves?.title}; ${named.title.toLowerCase()} has whole bits.`,
      `Use the scheme ${halves?.name}, or whole bits (kvKeyBits, kvValueBits).`,
    );
  const meant = SCHEMES.find(({ name, halves }) =>
    scheme === undefined ? halves === fraction : name === scheme,
  )!;
  if (meant.groups.length > 0 && !meant.groups.includes(kvGroupSize))
    throw invalid(
      'kvGroupSize',
      `A group of ${kvGroupSize} values is not possible.`,
      `Give ${list(meant.groups)}.`,
    );
  const format = meant.of(bits, kvGroupSize);
  if (format !== undefined) return format as KvFormat;
  const why =
    own === undefined && fraction ? `, which ${kvBits} means for ${side === 'Key' ? 'K' : 'V'}` : '';
  throw invalid(
    own === undefined ? 'kvBits' : bitsName,
    `${meant.title} has no ${bits} bits${why}.`,
    BITS_FIX,
  );
}

function readStart(start: number | undefined, quantized: boolean): number {
  if (start === undefined) return 0;
  if (!Number.isSafeInteger(start) || start < 0)
    throw invalid(
      'quantizedKvStart',
      `${start} is no number of tokens.`,
      'Give 0 or a whole number above it.',
    );
  if (start > 0 && !quantized)
    throw invalid(
      'quantizedKvStart',
      'The KV cache is float from first to last: there is nothing to start.',
      'Say how it is quantised, for example kvBits: 8, or leave it out.',
    );
  return start;
}

function readHead(
  { kvFloatHead: head = 0, quantizedKvStart = 0 }: KvOptions,
  quantized: boolean,
): number | 'auto' {
  if (head === 'auto') return quantized && quantizedKvStart === 0 ? 'auto' : 0;
  if (!Number.isSafeInteger(head) || head < 0)
    throw invalid(
      'kvFloatHead',
      `${head} is no number of tokens.`,
      'Give auto, 0 or a whole number above it.',
    );
  if (head > 0 && !quantized)
    throw invalid(
      'kvFloatHead',
      'The KV cache is float from first to last.',
      'Say how it is quantised, for example kvBits: 8, or leave it out.',
    );
  if (head > 0 && quantizedKvStart > 0)
    throw invalid(
      'kvFloatHead',
      'A sequence that is quantised late has no float head: all it holds then is converted.',
      'Give one of kvFloatHead and quantizedKvStart.',
    );
  return head;
}

function readTail(tail: number | undefined, quantized: boolean): number {
  if (tail === undefined) return 0;
  if (!Number.isSafeInteger(tail) || tail < 0)
    throw invalid('kvFloatTail', `${tail} is no number of tokens.`, 'Give 0 or a whole number above it.');
  if (tail > 0 && !quantized)
    throw invalid(
      'kvFloatTail',
      'The KV cache is float from first to last.',
      'Say how it is quantised, for example kvBits: 8, or leave it out.',
    );
  return tail;
}

function readSkip(skip: readonly number[] | undefined, quantized: boolean): readonly number[] | null {
  if (skip === undefined) return null;
  for (const layer of skip)
    if (!Number.isSafeInteger(layer))
      throw invalid('kvSkipLayers', `${layer} is no layer.`, 'Give layers as whole numbers; −1 is the last.');
  if (!quantized && skip.length > 0)
    throw invalid(
      'kvSkipLayers',
      'The KV cache is float in every layer.',
      'Say how it is quantised, for example kvBits: 8, or leave it out.',
    );
  return skip;
}

function list(values: readonly number[]): string {
  return `${values.slice(0, -1).join(', ')} or ${values.at(-1)}`;
}

function invalid(where: keyof KvOptions, message: string, fix: string): KvantError {
  return new KvantError('kv-options-invalid', message, { kind: 'invalid-request', where, fix });
}
