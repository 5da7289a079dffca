import type { KvFormatKind } from './kind.js';

export interface FloatKv {
  readonly kind: 'float';
  readonly dtype: 'f32' | 'f16';
}

/** Vectors as they are. */
export const floatKv = {
  kind: 'float',
  float: true,
  names: ['f16', 'f32'],
  parse: (name: string): FloatKv | undefined =>
    name === 'f16' || name === 'f32' ? { kind: 'float', dtype: name } : undefined,
  name: ({ dtype }: FloatKv) => dtype,
  codeBytes: ({ dtype }: FloatKv, headDim: number) => headDim * (dtype === 'f32' ? 4 : 2),
  metaBytes: () => 0,
  unusable: () => undefined,
  unusableLatent: () => undefined,
} as const satisfies KvFormatKind<FloatKv>;
