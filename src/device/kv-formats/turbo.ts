import { hasTurboCodebook, TURBO_BITS } from '../turboquant/codebooks.js';
import { notPacked, packedBytes } from './affine.js';
import type { KvFormatKind, KvPair } from './kind.js';

/**
 * `x ≈ norm · Rᵀ codebook[code]`: the unit vector is rotated by R (turboquant/rotation.ts) and each coordinate
 * stored as the nearest centroid of the Lloyd–Max codebook (turboquant/codebooks.ts), beside one f16 norm. Keys store
 * `n / ⟨u, û⟩` in place of the norm n, which undoes the shrinkage of the scores; values store n. A vector of norm 0
 * stores the norm 0; norms saturate at 65504. The norms of two KV heads of a token share a u32.
 */
export interface TurboKv {
  readonly kind: 'turboquant';
  readonly bits: 2 | 3 | 4 | 8;
  /** Keys store the norm n as values do: for measuring what the correction is worth, and for nothing else. */
  readonly plainKeys?: true;
}

function turboFormat(bits: number): TurboKv | undefined {
  const known = TURBO_BITS.find((b) => b === bits);
  return known === undefined ? undefined : { kind: 'turboquant', bits: known };
}

/** `turbo3-plain` leaves out the correction of the norms of keys: `kvant eval kv` shows what that is worth. */
function parse(name: string): TurboKv | undefined {
  const match = /^turbo(\d)(-plain)?$/.exec(name);
  const format = match === null ? undefined : turboFormat(Number(match[1]));
  return format === undefined || match?.[2] === undefined ? format : { ...format, plainKeys: true };
}

export const turboKv = {
  kind: 'turboquant',
  float: false,
  rotates: true,
  names: [`turbo${TURBO_BITS.join('|')}`],
  parse,
  name: ({ bits, plainKeys }: TurboKv) => `turbo${bits}${plainKeys ? '-plain' : ''}`,
  /** `turbo3.5`: K at 3, V at 4 bits. */
  pairs: {
    names: ['turbo2.5|3.5'],
    parse(name: string): KvPair<TurboKv> | undefined {
      const match = /^turbo(\d+)\.5(-plain)?$/.exec(name);
      if (match === null) return undefined;
      const key = parse(`turbo${match[1]}${match[2] ?? ''}`);
      const value = turboFormat(Number(match[1]) + 1);
      return key === undefined || value === undefined ? undefined : { key, value };
    },
    name({ key, value }: KvPair<TurboKv>) {
      if (value.plainKeys || value.bits !== key.bits + 1) return undefined;
      return `turbo${key.bits}.5${key.plainKeys ? '-plain' : ''}`;
    },
  },
  scheme: {
    name: 'turboquant',
    title: 'TurboQuant',
    bits: TURBO_BITS,
    groups: [],
    halves: true,
    of: turboFormat,
  },
  codeBytes: ({ bits }: TurboKv, headDim: number) => packedBytes(bits, headDim),
  metaBytes: (_format: TurboKv, _headDim: number, kvHeads: number) => Math.ceil(kvHeads / 2) * 4,
  unusable: (_: TurboKv, headDim: number) =>
    notPacked(headDim) ??
    (hasTurboCodebook(headDim) ? undefined : `TurboQuant has no codebook for head_dim ${headDim}`),
  // A part of a rotated vector is a part of nothing.
  unusableLatent: () => 'values that are a view of the keys cannot be read from rotated ones',
} as const satisfies KvFormatKind<TurboKv>;
