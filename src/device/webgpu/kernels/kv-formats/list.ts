/** The codecs of this device: one for each kind of format that it has. */

import { KvantError } from '../../../../errors.js';
import { type AffineKv, isFloatKv, type KvFormat, kvFormatName, type TurboKv } from '../../../kv.js';
import type { KvFormatData } from '../../../kv-formats/kind.js';
import { affineCodec } from './affine.js';
import type { KvCodec } from './codec.js';
import { floatCodec } from './float.js';
import { turboCodec } from './turbo.js';
import { turboInRuns, turboIsTransposed } from './turbo-layout.js';

export const WEBGPU_KV_CODECS: KvCodec[] = [floatCodec, affineCodec, turboCodec];

/** Errors: `kv-format-unsupported`. */
export function codecOf(format: KvFormatData): KvCodec {
  const found = WEBGPU_KV_CODECS.find(({ kind }) => kind === format.kind);
  if (found !== undefined) return found;
  throw new KvantError(
    'kv-format-unsupported',
    `The WebGPU device has no kernels for ${kvFormatName(format as KvFormat)}.`,
    { kind: 'unsupported', where: 'kvFormat', fix: 'Use f16 or f32.' },
  );
}

/** Codes that are stored as `AffineKv` says, whatever the format is called: scale and bias for each group. */
export function hasScales(format: KvFormat): format is AffineKv {
  return codecOf(format).codes === 'scaled';
}

/** Codes that are stored as `TurboKv` says: rotated, with a norm a vector. */
export function hasNorm(format: KvFormat): format is TurboKv {
  return codecOf(format).codes === 'normed';
}

export function hasCodes(format: KvFormat): format is AffineKv | TurboKv {
  return codecOf(format).codes !== null;
}

/** Whether kernels that unpack words themselves take the format; others are read by the codec's reader. */
export function unpacksWords(format: KvFormat): boolean {
  return isFloatKv(format) || hasCodes(format);
}

/** Whether a side is values whose words have four positions of a pair of dims. */
export function isTransposed(side: {
  readonly name: string;
  readonly format: KvFormat;
  readonly headDim: number;
}): boolean {
  const { name, format, headDim } = side;
  return hasNorm(format) && turboIsTransposed(format, name, headDim);
}

/** Codes are numbers, laid in runs of 32 if they do not lie transposed. */
export function codesInRuns(format: KvFormat): boolean {
  return hasNorm(format) && turboInRuns(format);
}
