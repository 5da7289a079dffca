/**
 * Where the kernels that end attention leave a row: as f32 in `out`, or, for a product that multiplies halves, as the halves
 * that a launch of their own would make of it (linear-halves.ts). Places are the same, and the bits.
 */

import type { Binding } from '../kernel.js';
import type { AttendShape } from './attend.js';
import { HANDED } from './linear-halves.js';
import { HALVES_TEXT } from './linear-spec.js';

export interface AttendOut {
  /** First in the module. */
  readonly enable: string;
  readonly binding: Binding;
  /** Declarations of the module. */
  readonly helper: string;
  /** Statement that leaves `value` at `at`: four dims, or one where cells are of one. */
  readonly store: (at: string, value: string) => string;
}

/** `[tokens, heads, head_dim]` in cells of `dims`. */
export function attendOut({ outHanded = false }: AttendShape, dims: 1 | 4 = 4): AttendOut {
  if (!outHanded) {
    const type = dims === 4 ? 'array<vec4<f32>>' : 'array<f32>';
    return {
      enable: '',
      binding: { name: 'out', access: 'read_write', type },
      helper: '',
      store: (at, value) => `out[${at}] = ${value};`,
    };
  }
  return {
    enable: 'enable f16;\n',
    binding: { name: HANDED, access: 'read_write', type: dims === 4 ? 'array<vec4<f16>>' : 'array<f16>' },
    helper: HALVES_TEXT,
    store: (at, value) =>
      dims === 4
        ? `${HANDED}[${at}] = halves_(${value});`
        : `${HANDED}[${at}] = halves_(vec4<f32>(${value})).x;`,
  };
}

/** Of labels, for people. */
export const outName = ({ outHanded = false }: AttendShape): string => (outHanded ? ' to halves' : '');
