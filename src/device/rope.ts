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

/** Axes of a rotary position: time, height, width. */
export const ROPE_AXES = 3;

export interface RopeTable {
  /** Leading elements of a head that rotate; the rest pass through. Even. */
  readonly dims: number;
  readonly style: RopeStyle;
  /** `[256, dims / 2, 2]`: (cos, sin) of `f · frequency`. */
  readonly fine: Float32Array;
  /** `[ceil(maxContext / 256), dims / 2, 2]`: (cos, sin) of `256 · c · frequency`, times the attention factor. */
  readonly coarse: Float32Array;
  /**
   * `[dims / 2]` which of a token's three rotary positions each pair turns by (RotaryInputs). Absent or null: all turn by
   * the token's cache index, and no step says anything else.
   */
  readonly axes?: Uint8Array | null;
}

export interface RopeOptions {
  readonly dims: number;
  readonly style: RopeStyle;
  /** `[dims / 2]` radians a position, float64. */
  readonly frequencies: ArrayLike<number>;
  /** Multiplies cos and sin (YaRN's mscale); 1 otherwise. */
  readonly attentionFactor: number;
  readonly maxContext: number;
  /** Default: none. */
  readonly axes?: Uint8Array | null;
}

export function makeRopeTable(options: RopeOptions): RopeTable {
  const { dims, style, frequencies, attentionFactor, maxContext, axes = null } = options;
  const coarseRows = Math.max(1, Math.ceil(maxContext / ROPE_FINE));
  return {
    dims,
    style,
    fine: angles(ROPE_FINE, 1, 1, frequencies),
    coarse: angles(coarseRows, ROPE_FINE, attentionFactor, frequencies),
    axes,
  };
}

/** How the pairs of a head are dealt out to the axes of a position. */
export interface RopeSections {
  /** Pairs of time, height and width; together all of them. */
  readonly sizes: readonly [number, number, number];
  /** Pairs take turns, time, height, width, while an axis has any left; what is over is time's (Qwen3-VL). Else they lie in runs. */
  readonly interleaved: boolean;
}

/**
 * The axis of each pair, `[pairs]`: of Qwen2-VL's sections (arXiv:2409.12191, §2.1) and of Qwen3-VL's interleaved ones.
 *
 * @example ropeAxes({ sizes: [2, 1, 1], interleaved: false }) // [0, 0, 1, 2]
 */
export function ropeAxes({ sizes, interleaved }: RopeSections): Uint8Array {
  const [time, height, width] = sizes;
  return Uint8Array.from({ length: time + height + width }, (_, i) => {
    if (!interleaved) return i < time ? 0 : i < time + height ? 1 : 2;
    const axis = i % ROPE_AXES;
    return axis > 0 && i < ROPE_AXES * sizes[axis]! ? axis : 0;
  });
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
