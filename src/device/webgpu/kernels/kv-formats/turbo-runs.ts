/** WGSL of TurboQuant's codes of 2, 3 and 4 bits: in runs of 32, or transposed (kv-layout.ts). */

import { FIELD_BITS } from '../code-fields.js';
import { rolledBound } from '../rolled.js';
import type { KvSideSpec } from './side.js';
import { TRANSPOSED_TOKENS, transposedShift } from './turbo-layout.js';

/** Statements that fill `codes` with codes `4 vec …` of the vector whose words begin at `first`. */
export function runsCodesText(name: string, bits: number, headDim: number): string {
  if (bits === FIELD_BITS)
    return `let run = first + vec / 8u * 3u;
  let own = vec % 8u;
  let at = vec4<u32>(0u, 8u, 16u, 24u) + own % 2u * 4u;
  if (own < 6u) { codes = (vec4<u32>(${name}[run + own / 2u]) >> at) & vec4<u32>(7u); } else {
    codes = (vec4<u32>(${name}[run]) >> (at + 3u)) & vec4<u32>(1u);
    codes |= ((vec4<u32>(${name}[run + 1u]) >> (at + 3u)) & vec4<u32>(1u)) << vec4<u32>(1u);
    codes |= ((vec4<u32>(${name}[run + 2u]) >> (at + 3u)) & vec4<u32>(1u)) << vec4<u32>(2u);
  }`;
  const whole = headDim % 32 === 0;
  const lines = [
    ...(whole ? [] : [`let length = min(8u, ${headDim / 4}u - vec / 8u * 8u);`]),
    `let run = first + vec / 8u * ${bits}u;`,
    'codes = vec4<u32>();',
  ];
  for (let b = 0; b < bits; b++)
    lines.push(
      whole
        ? `codes |= ((vec4<u32>(${name}[run + ${b}u] >> (vec % 8u)) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(1u)) << vec4<u32>(${b}u);`
        : `for (var e = 0u; e < 4u; e++) { let at = (${4 * b}u + e) * length + vec % 8u; codes[e] |= ((${name}[run + at / 32u] >> (at % 32u)) & 1u) << ${b}u; }`,
    );
  return lines.join('\n  ');
}

/** The same of values that lie transposed, of vector `vector`. */
export function transposedCodesText({
  name,
  headDim,
  layout,
}: Pick<KvSideSpec, 'name' | 'headDim' | 'layout'>): string {
  return `let own = vector % ${TRANSPOSED_TOKENS}u;
  let at = (vector - own) * ${layout.words}u + own % 4u * ${headDim / 2}u + vec * 2u;
  let pairs = vec2<u32>(${name}[at], ${name}[at + 1u]) >> vec2<u32>(${transposedShift('own')});
  codes = (pairs.xxyy >> vec4<u32>(0u, 4u, 0u, 4u)) & vec4<u32>(15u);`;
}

/**
 * `NAME_word(j, groups)`: word j of the codes. Runs are made of `eights_`, whose entries hold four codes, a byte each: of a run,
 * eight.
 */
export function runsWordText(name: string, bits: number, headDim: number, own: string): string {
  const head = `fn ${name}_word(j: u32, groups: vec3<u32>) -> u32 {`;
  if (bits === FIELD_BITS)
    // Two entries in fields of four bits, and bit j of the last two in their fourth ones.
    return `${head}
  let own = j % 3u;
  let first = own * 2u;
  let low = eights_${own}[j / 3u][first / 4u][first % 4u];
  let high = eights_${own}[j / 3u][first / 4u][first % 4u + 1u];
  let last = (eights_${own}[j / 3u][1].zw >> vec2<u32>(own)) & vec2<u32>(0x01010101u);
  return low | (high << 4u) | (last.x << 3u) | (last.y << 7u);
}`;
  if (headDim % 32 === 0)
    // Word b of a run: of every entry, bit b of its bytes.
    return `${head}
  let bit = vec4<u32>(j % ${bits}u);
  let low = (eights_${own}[j / ${bits}u][0] >> bit) & vec4<u32>(0x01010101u);
  let high = (eights_${own}[j / ${bits}u][1] >> bit) & vec4<u32>(0x01010101u);
  let all = (low << vec4<u32>(0u, 1u, 2u, 3u)) | (high << vec4<u32>(4u, 5u, 6u, 7u));
  return (all.x | all.y) | (all.z | all.w);
}`;
  // The planes of a last run are shorter: bit by bit.
  return `${head}
  let run = j / ${bits}u;
  let length = min(8u, ${headDim / 4}u - run * 8u);
  var word = 0u;
  for (var i = 0u; i < ${rolledBound(32)}; i++) {
    let at = j % ${bits}u * 32u + i;
    let plane = at / (4u * length);
    let e = at / length % 4u;
    let k = at % length;
    if (plane < ${bits}u) { word |= ((eights_${own}[run][k / 4u][k % 4u] >> (8u * e + plane)) & 1u) << i; }
  }
  return word;
}`;
}

const each = (text: (e: string, i: number) => string): string[] => ['x', 'y', 'z', 'w'].map(text);

/** The numbers of codes in place of the codes. */
export function numberText(numbers: readonly number[]): string {
  const word = (from: number): string =>
    `${numbers.slice(from, from + 8).reduce((sum, number, i) => sum + number * 16 ** i, 0)}u`;
  const words = (from: number): string => `vec4<u32>(${word(from)})`;
  const table = numbers.length <= 8 ? words(0) : `select(${words(0)}, ${words(8)}, code > vec4<u32>(7u))`;
  return `code = (${table} >> ((code & vec4<u32>(7u)) * 4u)) & vec4<u32>(15u);`;
}

/** Bit b of code e to bit `8 e + b` of an entry of `eights_`. */
export function spreadCodes(own: string): string {
  return `eights_${own}[lid / 8u][lid / 4u % 2u][lid % 4u] = ${each((e, i) => `(code.${e} << ${8 * i}u)`).join(' | ')};`;
}

/**
 * Statements that store transposed values: thread `lid` the bytes of its four dims, in two words, whose other bytes are other
 * positions', which other workgroups may be storing. The barrier is for the norms, which one thread stores behind it.
 */
export function transposedStoreText(
  { name, headDim, layout }: Pick<KvSideSpec, 'name' | 'headDim' | 'layout'>,
  vector: string,
  here: string,
  own: string,
): string {
  return `workgroupBarrier();
      if (${here}lid < ${headDim / 4}u) {
        let place = token_at % ${TRANSPOSED_TOKENS}u;
        let shift = ${transposedShift('place')};
        let to = (${vector} - place) * ${layout.words}u + place % 4u * ${headDim / 2}u + lid * 2u;
        let four = eights_${own}[lid / 8u][lid / 4u % 2u][lid % 4u];
        let pair = vec2<u32>(four | (four >> 4u), (four >> 16u) | (four >> 20u)) & vec2<u32>(255u);
        atomicAnd(&${name}[to], ~(255u << shift));
        atomicOr(&${name}[to], pair.x << shift);
        atomicAnd(&${name}[to + 1u], ~(255u << shift));
        atomicOr(&${name}[to + 1u], pair.y << shift);
      }`;
}
