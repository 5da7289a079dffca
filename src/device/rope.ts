/**
 * Rotary position embedding as tables.
 *
 * cos and sin of `position · frequency` are wanted to f32 precision at positions up to 2²⁰, where f32 arithmetic on
 * the device would lose six digits, and a full table would be large. So the position is split as
 * `p = 256 · c + f` and two small tables made in float64 are combined by the addition theorem:
 * `cos(c + f) = cos c · cos f − sin c · sin f`, `sin(c + f) = sin c · cos f + cos c · sin f`.
 */

export const ROPE_FINE = 256;

/**
 * `half`: element i pairs with element i + dims / 2 (NeoX, Hugging Face checkpoints). `interleaved`: 2i with 2i + 1.
 */
export const ROPE_STYLES = ['half', 'interleaved'] as const;
export type RopeStyle = (typeof ROPE_STYLES)[number];

export interface RopeTable {
  /** Leading elements of a head that rotate; the rest pass through. Even. */
  readonly dims: number;
  readonly style: RopeStyle;
  /** `[256, dims / 2, 2]`: (cos, sin) of `f · frequency`. */
  readonly fine: Float32Array;
  /** `[ceil(maxContext / 256), dims / 2, 2]`: (cos, sin) of `256 · c · frequency`, times the attention factor. */
  readonly coarse: Float32Array;
}

export interface RopeOptions {
  readonly dims: number;
  readonly style: RopeStyle;
  /** `[dims / 2]` radians a position, float64. */
  readonly frequencies: ArrayLike<number>;
  /** Multiplies cos and sin (YaRN's mscale); 1 otherwise. */
  readonly attentionFactor: number;
  readonly maxContext: number;
}

export function makeRopeTable(options: RopeOptions): RopeTable {
  const { dims, style, frequencies, attentionFactor, maxContext } = options;
  const coarseRows = Math.max(1, Math.ceil(maxContext / ROPE_FINE));
  return {
    dims,
    style,
    fine: angles(ROPE_FINE, 1, 1, frequencies),
    coarse: angles(coarseRows, ROPE_FINE, attentionFactor, frequencies),
  };
}

function angles(rows: number, stride: number, factor: number, frequencies: ArrayLike<number>): Float32Array {
  const half = frequencies.length;
  const out = new Float32Array(rows * half * 2);
  for (let r = 0; r < rows; r++) {
    for (let i = 0; i < half; i++) {
      const angle = r * stride * frequencies[i]!;
      const at = (r * half + i) * 2;
      out[at] = Math.cos(angle) * factor;
      out[at + 1] = Math.sin(angle) * factor;
    }
  }
  return out;
}
