/**
 * Numbers as bytes for linear-dp4a.ts, and where they lie.
 *
 * Every `32 · pieces` columns of a row have a scale of their own. One plane holds `round(127 · x / most)`. Two planes hold
 * integers of 16 bits, `256 · high + low`. Beside the scale stands the scaled sum of the integers, which a weight's bias
 * is multiplied by: with the sum of x itself, what was rounded away would count with the whole of a code and not with
 * the small difference of code and bias that a weight is.
 *
 * Not a number and infinity make the scale not a number, and so all that their row becomes.
 */

import type { BytesLayout } from '../shapes.js';
import { HANDED } from './linear-halves.js';

/**
 * Who keeps them: the role, and name, of the bytes (`array<u32>` where they are made), and of the scales and sums
 * (`array<vec2<f32>>`).
 */
export interface BytesRoles {
  readonly bytes: string;
  readonly terms: string;
}

/** Those that a product makes of its x, and those that the product before it left. */
export const OWN_BYTES: BytesRoles = { bytes: 'scratchBytes', terms: 'scratchTerms' };
export const HANDED_BYTES: BytesRoles = { bytes: HANDED, terms: 'scratchHandedTerms' };

/** What a product calls those that it leaves for the next one's own, while it reads bytes itself. */
export const NORMED_BYTES: BytesRoles = { bytes: 'normedBytes', terms: 'normedTerms' };

/** Vectors of 16 bytes that a piece takes. */
export function vectorsOf({ pieces, planes }: Pick<BytesLayout, 'pieces' | 'planes'>): number {
  return 2 * pieces * planes;
}

/** Bytes of both roles. */
export function bytesScratch(layout: BytesLayout, roles: BytesRoles): Record<string, number> {
  const { rows, k, pieces, planes } = layout;
  return { [roles.bytes]: rows * k * planes, [roles.terms]: ((rows * k) / (32 * pieces)) * 8 };
}

/** Units of eight columns: those of a thread, which are of one piece, and threads side by side that share it. */
export function unitsOf(
  { pieces }: Pick<BytesLayout, 'pieces'>,
  lanes: number,
): { own: number; sharers: number } {
  const perPiece = 4 * pieces;
  const own = Math.max(1, perPiece / lanes);
  return { own, sharers: perPiece / own };
}

/** The values of a thread's units, a vector of four columns each: `name`, and which of the thread's vectors it is. */
export function unitValues(own: number): { readonly name: string; readonly vector: number }[] {
  return Array.from({ length: 2 * own }, (_, i) => ({ name: `value${i >> 1}_${i & 1}`, vector: i }));
}

/** The largest integer that a value becomes; its byte, or both of its bytes, stay within 8 bits. */
const MOST = { 1: 127, 2: 32512 } as const;
/** A group of smaller numbers is zeros: their scale could not be inverted. */
const LEAST = '1e-30';

/** For `unitsText`. */
export const BYTES_TEXT = `fn bytes_(v: vec4<i32>) -> u32 {
  let b = bitcast<vec4<u32>>(v) & vec4<u32>(255u);
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}`;

/**
 * Statements that make `inverse_scale`, `most / largest`, and `scale`, `largest / most`, of `largest`: zeros where that is too
 * small. GPUs divide by an inverse, and the inverse of the largest numbers would not be a normal one: they take zero for
 * it. To scale both sides does not help where a compiler puts the factors together again. So what is divided is a
 * number between 1 and 2, and exponents are integers. Both are as exact as the GPU's division of numbers between 1 and 2.
 */
export function scalesText(planes: 1 | 2): string {
  const most = `${MOST[planes]}.0`;
  return `    let size = bitcast<u32>(largest);
    let exponent = size & 0x7f800000u;
    let usable = largest > ${LEAST};
    let fraction = bitcast<f32>((size & 0x007fffffu) | 0x3f800000u);
    let inverse_bits = bitcast<u32>(${most} / fraction) + 0x3f800000u - exponent;
    let scale_bits = bitcast<u32>(fraction / ${most}) + exponent - 0x3f800000u;
    let inverse_scale = bitcast<f32>(select(0u, inverse_bits, usable));
    let scale = bitcast<f32>(select(0u, scale_bits, usable));`;
}

/**
 * Statements that make bytes of the values of a thread (`unitValues`) and leave them where the product finds them. They read
 * `row`; `item`, whose place among the threads of its row it is; and `here`: whether there is anything to leave. All lanes have
 * to come by, and those that share a piece are all here or none.
 */
export function unitsText(layout: BytesLayout, roles: BytesRoles, lanes: number): string {
  const { rows, bits, pieces, planes, across, chunkSteps } = layout;
  const { own, sharers } = unitsOf(layout, lanes);
  const vectors = vectorsOf(layout);
  const values = unitValues(own);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const shuffles = (text: (step: string) => string): void => {
    for (let step = 1; step < sharers; step *= 2) emit(text(`${step}u`));
  };
  emit(`    var largest = 0.0;
    var special = false;`);
  for (const { name } of values)
    emit(`    { let a = abs(${name});
      largest = max(largest, max(max(a.x, a.y), max(a.z, a.w)));
      special = special || any((bitcast<vec4<u32>>(a) & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u)); }`);
  emit('    var wrong = select(0u, 1u, special);');
  shuffles(
    (step) => `    largest = max(largest, subgroupShuffleXor(largest, ${step}));
    wrong |= subgroupShuffleXor(wrong, ${step});`,
  );
  emit(`${scalesText(planes)}
    var total = 0;`);
  for (const { name } of values)
    emit(`    let whole_${name} = vec4<i32>(round(${name} * inverse_scale));
    total += (whole_${name}.x + whole_${name}.y) + (whole_${name}.z + whole_${name}.w);`);
  shuffles((step) => `    total += subgroupShuffleXor(total, ${step});`);
  emit(`    let piece = item / ${sharers}u;
    let step = piece / ${across}u;
    let place = (step / ${chunkSteps}u * ${rows}u + row) * ${chunkSteps}u + step % ${chunkSteps}u;
    let lane_at = piece % ${across}u;
    if (here) {
      if (item % ${sharers}u == 0u) {
        let told = bitcast<f32>(select(bitcast<u32>(scale), 0x7fc00000u, wrong != 0u));
        ${roles.terms}[place * ${across}u + lane_at] = vec2<f32>(told, told * f32(total));
      }`);
  for (let u = 0; u < own; u++) {
    emit(`      { let unit = item % ${sharers}u * ${own}u + ${u}u;`);
    const [first, second] = [`whole_value${u}_0`, `whole_value${u}_1`];
    // Low halves of the bytes of a word of 4-bit codes are its even columns, high halves the odd ones.
    const words =
      bits === 4
        ? [
            { to: '0u', word: '(unit & 3u)', from: `vec4<i32>(${first}.xz, ${second}.xz)` },
            { to: '1u', word: '(unit & 3u)', from: `vec4<i32>(${first}.yw, ${second}.yw)` },
          ]
        : [first, second].map((from, h) => ({
            to: '((unit >> 1u) & 1u)',
            word: `((unit & 1u) * 2u + ${h}u)`,
            from,
          }));
    for (const { to, word, from } of words) {
      const address = (plane: number): string =>
        `((place * ${vectors}u + ${plane * 2 * pieces}u + (unit >> 2u) * 2u + ${to}) * ${across}u + lane_at) * 4u + ${word}`;
      if (planes === 1) emit(`        ${roles.bytes}[${address(0)}] = bytes_(${from});`);
      else
        emit(`        { let both = ${from}; let high = (both + vec4<i32>(128)) >> vec4<u32>(8u);
          ${roles.bytes}[${address(0)}] = bytes_(high); ${roles.bytes}[${address(1)}] = bytes_(both - high * 256); }`);
    }
    emit('      }');
  }
  emit('    }');
  return lines.join('\n');
}
