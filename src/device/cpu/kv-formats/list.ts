/**
 * The codecs of this device: one for each kind of format that it has. The generators of its kernels read the list too, from
 * `dist` (scripts/build-wasm.mjs).
 */

import { KvantError } from '../../../errors.js';
import { type KvFormat, kvFormatName } from '../../kv.js';
import type { KvFormatData } from '../../kv-formats/kind.js';
import { KIND_CODES } from '../kv-layout.js';
import { affineCodec } from './affine.js';
import type { CpuKvCodec } from './codec.js';
import { floatCodec } from './float.js';
import type { Packing } from './packings.js';
import { turboCodec } from './turbo.js';

export const CPU_KV_CODECS: CpuKvCodec[] = [floatCodec, affineCodec, turboCodec];

/** Errors: `kv-format-unsupported`. */
export function codecOf(format: KvFormatData): CpuKvCodec {
  const found = CPU_KV_CODECS.find(({ kind }) => kind === format.kind);
  if (found !== undefined) return found;
  throw new KvantError(
    'kv-format-unsupported',
    `The CPU device has no kernels for ${kvFormatName(format as KvFormat)}.`,
    { kind: 'unsupported', where: 'kvFormat', fix: 'Use f16 or f32.' },
  );
}

/** The kinds with codes, by the numbers that kernels know them by. */
export function codedKinds(codecs: readonly CpuKvCodec[] = CPU_KV_CODECS): {
  readonly kind: string;
  readonly number: number;
  readonly assembly: NonNullable<CpuKvCodec['assembly']>;
}[] {
  return codecs
    .flatMap(({ kind, assembly }) => (assembly === null ? [] : [{ kind, assembly }]))
    .map((coded, i) => ({ ...coded, number: KIND_CODES + i }));
}

/** All packings by name, in the order of their numbers. */
export function packingsOf(codecs: readonly CpuKvCodec[] = CPU_KV_CODECS): Record<string, Packing> {
  return Object.assign({}, ...codecs.map(({ packings }) => packings)) as Record<string, Packing>;
}

/** The number of a packing, for SIDE_FORMAT. */
export function packingNumber(name: string): number {
  return Object.keys(packingsOf()).indexOf(name);
}
