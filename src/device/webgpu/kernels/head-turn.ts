/**
 * WGSL of what is done with a head of q or k before it is used: norm over the head, then rotation. A thread holds four
 * neighbours of the head in `v`; those that rotate with each other meet in the workgroup array `whole`.
 */

import { ROPE_FINE, type RopeStyle } from '../../rope.js';

/** Statements that norm `v`; `squares`: the sum of squares of the head, `gamma`: the norm weight of the four. */
export function headNormText(squares: string, headDim: string, eps: string, gamma: string): string {
  return `let scale = 1.0 / sqrt(${squares} / ${headDim} + ${eps});
      v = v * scale * ${gamma};`;
}

/** Expression: what q is multiplied with at a position. Both are the texts of numbers, `every` of a whole one. */
export function growthText(position: string, beta: string, every: string): string {
  return `(1.0 + ${beta} * log(1.0 + f32(${position} / ${every})))`;
}

/** Statement that shows `v`, elements `4 quad …` of the head, to the others, in `whole` or what is named in place of it. */
export function shownText(quad: string, whole = 'whole'): string {
  return `for (var e = 0u; e < 4u; e++) { ${whole}[${quad} * 4u + e] = v[e]; }`;
}

/**
 * Statement that turns `v`, elements `4 quad …` of the head that is in `whole`; those from `2 · pairs` on stay.
 * `angle`: cos and sin of a pair, from its index.
 */
export function rotatedText(quad: string, pairs: string, angle: (pair: string) => string): string {
  return `for (var e = 0u; e < 4u; e++) {
        let i = ${quad} * 4u + e;
        if (i < 2u * ${pairs}) { v[e] = rotated(i, ${angle('pair_of(i)')}); }
      }`;
}

/**
 * The same by vectors, where halves of a head rotate with each other and are whole vectors: `pairs` is a multiple of 4, `rope` is
 * bound as vectors, of two pairs, and `whole` is an array of them. `angles`: statements that make `cosines` and `sines` of
 * vector `lid` at `position`; `rotated`: those that turn `v`, in uniform control flow, where `turns` says so.
 */
export function vectorTurnText(
  pairs: string,
  position: string,
  turns: string,
  whole = 'whole',
): { readonly angles: string; readonly rotated: string } {
  return {
    angles: `let half = ${pairs} / 4u;
  let second = lid >= half;
  let low = min(select(lid, lid - half, second), half - 1u);
  let fine = (${position} % ${ROPE_FINE}u * half + low) * 2u;
  let coarse = ((${ROPE_FINE}u + ${position} / ${ROPE_FINE}u) * half + low) * 2u;
  let fine0 = rope[fine]; let fine1 = rope[fine + 1u];
  let coarse0 = rope[coarse]; let coarse1 = rope[coarse + 1u];
  let fx = vec4<f32>(fine0.xz, fine1.xz); let fy = vec4<f32>(fine0.yw, fine1.yw);
  let cx = vec4<f32>(coarse0.xz, coarse1.xz); let cy = vec4<f32>(coarse0.yw, coarse1.yw);
  let cosines = cx * fx - cy * fy;
  let sines = cy * fx + cx * fy;`,
    rotated: `${whole}[lid] = v;
    workgroupBarrier();
    if (${turns} && lid < 2u * half) {
      let a = ${whole}[low];
      let b = ${whole}[low + half];
      v = select(a * cosines - b * sines, a * sines + b * cosines, second);
    }
    workgroupBarrier();`,
  };
}

/**
 * `axis_of(pair)`: which of a token's three rotary positions a pair turns by. Sixteen to a word.
 */
export function axesWgsl(axes: readonly number[]): string {
  const words = Array.from({ length: Math.ceil(axes.length / 16) }, (_, w) =>
    axes.slice(16 * w, 16 * w + 16).reduce((word, axis, i) => word + axis * 4 ** i, 0),
  );
  return `const AXES = array<u32, ${words.length}>(${words.map((word) => `${word}u`).join(', ')});
fn axis_of(pair: u32) -> u32 { return (AXES[pair / 16u] >> (pair % 16u * 2u)) & 3u; }`;
}

/**
 * `angle_parts(pair, position)`: what is read of the two tables, see rope.ts; `angle_from(parts)`: cos and sin; `angle_of(pair,
 * position)`: both; `pair_of(i)`; `rotated(i, angle)`: element i of `whole` after rotation.
 */
export function rotationWgsl(style: RopeStyle, pairs: string, whole = 'whole'): string {
  const [pair, parts] =
    style === 'half'
      ? [
          `i % ${pairs}`,
          `let pairs = ${pairs}; let pair = i % pairs; let second = i >= pairs; let a = ${whole}[pair]; let b = ${whole}[pair + pairs];`,
        ]
      : [
          'i / 2u',
          `let pair = i / 2u; let second = i % 2u == 1u; let a = ${whole}[2u * pair]; let b = ${whole}[2u * pair + 1u];`,
        ];
  return `fn angle_parts(pair: u32, position: u32) -> vec4<f32> {
  let pairs = ${pairs};
  let f = rope[(position % ${ROPE_FINE}u) * pairs + pair];
  let c = rope[(${ROPE_FINE}u + position / ${ROPE_FINE}u) * pairs + pair];
  return vec4<f32>(f, c);
}
fn angle_from(parts: vec4<f32>) -> vec2<f32> {
  let f = parts.xy;
  let c = parts.zw;
  return vec2<f32>(c.x * f.x - c.y * f.y, c.y * f.x + c.x * f.y);
}
fn angle_of(pair: u32, position: u32) -> vec2<f32> { return angle_from(angle_parts(pair, position)); }
fn pair_of(i: u32) -> u32 { return ${pair}; }
fn rotated(i: u32, angle: vec2<f32>) -> f32 {
  ${parts}
  return select(a * angle.x - b * angle.y, a * angle.y + b * angle.x, second);
}`;
}
