/** WGSL of codes that are a stream of bits, least significant first, and of 3 bits in pairs (kv-layout.ts). */

/** Codes in `codes_`, of a vector that so many threads have. */
export const codesRoom = (lanes: number): number => Math.max(256, 4 * lanes);

/** `NAME_word(j, groups)`: word j of the codes in `codes_`, which has `room` of them and zeros beyond the vector's end. */
export function streamWordText(name: string, bits: number, own: string, room: number): string {
  const head = `fn ${name}_word(j: u32, groups: vec3<u32>) -> u32 {`;
  if (bits === 3) {
    return `${head}
  let base = j / 3u * 32u;
  let own = j % 3u;
  var word = 0u;
  for (var i = 0u; i < 5u; i++) {
    let at = base + (own * 5u + i) * 2u;
    word |= (codes_${own}[at] | (codes_${own}[at + 1u] << 3u)) << (6u * i);
  }
  let sixteenth = codes_${own}[base + 30u] | (codes_${own}[base + 31u] << 3u);
  return word | (((sixteenth >> (2u * own)) & 3u) << 30u);
}`;
  }
  if (32 % bits === 0) {
    return `${head}
  var word = 0u;
  for (var i = 0u; i < ${32 / bits}u; i++) { word |= codes_${own}[j * ${32 / bits}u + i] << (${bits}u * i); }
  return word;
}`;
  }
  return `${head}
  var word = 0u;
  for (var k = j * 32u / ${bits}u; k * ${bits}u < j * 32u + 32u && k < ${room}u; k++) {
    let bit = k * ${bits}u;
    if (bit >= j * 32u) { word |= codes_${own}[k] << (bit - j * 32u); } else { word |= codes_${own}[k] >> (j * 32u - bit); }
  }
  return word;
}`;
}

/** Statements that fill `codes` with codes `4 vec …` of the vector whose words begin at `first`. */
export function streamCodesText(name: string, bits: number): string {
  const shifts = (bits: number): string => `vec4<u32>(0u, ${bits}u, ${2 * bits}u, ${3 * bits}u)`;
  switch (bits) {
    case 8:
      return `codes = (vec4<u32>(${name}[first + vec]) >> ${shifts(8)}) & vec4<u32>(255u);`;
    case 4:
      return `codes = (vec4<u32>(${name}[first + vec / 2u] >> ((vec & 1u) * 16u)) >> ${shifts(4)}) & vec4<u32>(15u);`;
    case 2:
      return `codes = (vec4<u32>(${name}[first + vec / 4u] >> ((vec & 3u) * 8u)) >> ${shifts(2)}) & vec4<u32>(3u);`;
    case 3:
      return `let base = first + vec / 8u * 3u;
  let pair = (vec & 7u) * 2u;
  let low = ${name}[base + pair / 5u] >> (pair % 5u * 6u);
  var high = 0u;
  if (pair == 14u) { high = (${name}[base] >> 30u) | ((${name}[base + 1u] >> 30u) << 2u) | ((${name}[base + 2u] >> 30u) << 4u); }
  else { high = ${name}[base + (pair + 1u) / 5u] >> ((pair + 1u) % 5u * 6u); }
  codes = vec4<u32>(low, low >> 3u, high, high >> 3u) & vec4<u32>(7u);`;
    default: {
      return `let bit = vec * ${4 * bits}u;
  let shift = bit & 31u;
  var word = ${name}[first + bit / 32u] >> shift;
  if (shift > ${32 - 4 * bits}u) { word |= ${name}[first + bit / 32u + 1u] << (32u - shift); }
  codes = (vec4<u32>(word) >> ${shifts(bits)}) & vec4<u32>(${2 ** bits - 1}u);`;
    }
  }
}
