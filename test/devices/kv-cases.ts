/** The KV formats every device is held to, and how close it has to come. */
import type { KvFormat } from '../../src/device/kv.js';
import type { DeviceSpec } from './devices.js';

export const affine = (bits: 2 | 3 | 4 | 5 | 6 | 8, groupSize: 32 | 64 | 128 = 64): KvFormat => ({
  kind: 'affine',
  bits,
  groupSize,
});
export const turbo = (bits: 2 | 3 | 4 | 8): KvFormat => ({ kind: 'turboquant', bits });
export const F16: KvFormat = { kind: 'float', dtype: 'f16' };
export const F32: KvFormat = { kind: 'float', dtype: 'f32' };

/** K and V alike. */
export const FORMATS: readonly KvFormat[] = [
  affine(8),
  affine(4),
  affine(2),
  affine(3),
  affine(5),
  affine(6),
  affine(8, 128),
  affine(4, 32),
  affine(3, 32),
  turbo(2),
  turbo(3),
  turbo(4),
  turbo(8),
];

export const alike = (format: KvFormat): { key: KvFormat; value: KvFormat } => ({
  key: format,
  value: format,
});

/** K and V apart: what people write as turbo3.5, turbo2.5, k8v4, and what the design allows besides. */
export const MIXED: readonly (readonly [key: KvFormat, value: KvFormat])[] = [
  [turbo(3), turbo(4)],
  [turbo(2), turbo(3)],
  [{ kind: 'turboquant', bits: 2, plainKeys: true }, turbo(4)],
  [affine(8), affine(4)],
  [affine(8), turbo(4)],
  [turbo(4), affine(4, 32)],
  [F16, affine(8)],
  [affine(4), F32],
];

/**
 * Against attention in float64 over what is stored: f32 arithmetic within 1e-4; the path that runs by default (integer
 * queries and weights of 16 bits on the CPU, f16 operands on a GPU) within 2e-3.
 */
export function attentionBound(spec: DeviceSpec): number {
  return spec.precision === 'reference' ? 1e-4 : 2e-3;
}

/** Prompts of awkward lengths, then decode beside a prompt chunk, across the edges of blocks and splits. */
export const STEPS: readonly (readonly [slots: number[], lengths: number[]])[] = [
  [[0], [1]],
  [
    [1, 2, 3],
    [15, 16, 17],
  ],
  [
    [0, 1, 2, 3, 4],
    [1, 1, 1, 1, 33],
  ],
  [
    [4, 0, 3],
    [31, 50, 1],
  ],
  [[5], [150]],
  [
    [5, 4, 0],
    [1, 1, 1],
  ],
  [
    [5, 6],
    [106, 31],
  ],
  [
    [5, 6],
    [1, 1],
  ],
];
