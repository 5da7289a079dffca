import type { KvFormatKind } from './kind.js';

/**
 * `x ≈ code · scale + bias` for each group of `groupSize` values along head_dim (the last group may be narrower).
 * `bias = f16(min)`, `scale = f16((max − min) / (2^bits − 1))`, `code = round((x − bias) / scale)` by the stored
 * scale and bias, clamped to what the bits hold; a scale of 0 gives codes of 0. Scale and bias share a u32.
 */
export interface AffineKv {
  readonly kind: 'affine';
  readonly bits: 2 | 3 | 4 | 5 | 6 | 8;
  readonly groupSize: 32 | 64 | 128;
}

export const AFFINE_BITS = [2, 3, 4, 5, 6, 8] as const;
export const AFFINE_GROUPS = [32, 64, 128] as const;
/** Values per scale and bias where nothing else is said. */
export const DEFAULT_KV_GROUP = 64;

/** Groups of a vector that have their own scale and bias. */
export function affineGroups(format: Pick<AffineKv, 'groupSize'>, headDim: number): number {
  return Math.ceil(headDim / format.groupSize);
}

function affineFormat(bits: number, groupSize: number): AffineKv | undefined {
  const known = AFFINE_BITS.find((b) => b === bits);
  const group = AFFINE_GROUPS.find((g) => g === groupSize);
  return known === undefined || group === undefined
    ? undefined
    : { kind: 'affine', bits: known, groupSize: group };
}

export const affineKv = {
  kind: 'affine',
  float: false,
  names: [`affine${AFFINE_BITS.join('|')}[-g${AFFINE_GROUPS.join('|')}]`],
  parse(name: string): AffineKv | undefined {
    const match = /^affine(\d)(?:-g(\d+))?$/.exec(name);
    return match === null ? undefined : affineFormat(Number(match[1]), Number(match[2] ?? DEFAULT_KV_GROUP));
  },
  name: ({ bits, groupSize }: AffineKv) =>
    `affine${bits}${groupSize === DEFAULT_KV_GROUP ? '' : `-g${groupSize}`}`,
  scheme: {
    name: 'uniform',
    title: 'Uniform quantisation',
    bits: AFFINE_BITS,
    groups: AFFINE_GROUPS,
    halves: false,
    of: affineFormat,
  },
  codeBytes: ({ bits }: AffineKv, headDim: number) => packedBytes(bits, headDim),
  metaBytes: (format: AffineKv, headDim: number, kvHeads: number) =>
    affineGroups(format, headDim) * 4 * kvHeads,
  unusable: (_: AffineKv, headDim: number) => notPacked(headDim),
  unusableLatent: (_: AffineKv, headDim: number) => notWhole(headDim),
} as const satisfies KvFormatKind<AffineKv>;

/** Bytes of `count` codes, in whole words. */
export function packedBytes(bits: number, count: number): number {
  return Math.ceil((count * bits) / 32) * 4;
}

/** Heads of more dims are kept as floats. */
const WIDEST = 256;

/** Quantised vectors are packed 16 values at a time. */
export function notPacked(headDim: number): string | undefined {
  if (headDim > WIDEST) return `head_dim ${headDim} is more than ${WIDEST}`;
  return notWhole(headDim);
}

function notWhole(headDim: number): string | undefined {
  return headDim % 16 === 0 ? undefined : `head_dim ${headDim} is no multiple of 16`;
}
