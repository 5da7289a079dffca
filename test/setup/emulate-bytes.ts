/** Of what lanes exchange, by its name in the kernel. */
function typeOf(name: string): string {
  if (name.startsWith('most') || /norm$|_log$/.test(name)) return 'float';
  if (name === 'part') return 'integer';
  return name.startsWith('part') || name === 'given' || name === 'handed' ? 'word' : 'pair';
}

/**
 * Subgroup matrices of bytes, and subgroups of 32, for devices that have neither: the text of a kernel (attend-bytes.ts)
 * is rewritten so that a lane keeps its part of a matrix in an array, a row's or a column's half, and lanes exchange through
 * workgroup memory. Slow, and exact: all sums of matrices are integers.
 */
export function emulateBytes(wgsl: string): string {
  const threads = Number(/@workgroup_size\((\d+)\)/.exec(wgsl)![1]);
  const text = wgsl
    .replace('enable chromium_experimental_subgroup_matrix;', '')
    .replace('diagnostic(off, chromium.subgroup_matrix_uniformity);', '')
    .replace('enable subgroups;', '')
    .replace(/alias Left = .*/, 'alias Left = array<i32, 32>;')
    .replace(/alias Right = .*/, 'alias Right = array<i32, 128>;')
    .replace(/alias Sum = .*/, 'alias Sum = array<i32, 4>;')
    .replace(
      /subgroupShuffleXor\((\w+), (\w+)\)/g,
      (_, name: string, bits: string) => `exchanged_${typeOf(name)}(lane, ${name}, lane ^ ${bits})`,
    )
    .replace(/subgroupShuffle\((\w+), /g, (_, name: string) => `exchanged_${typeOf(name)}(lane, ${name}, `)
    .replace(/subgroupMatrixLoad<(\w+), \w+>\(&area, /g, 'load_$1(lane, ')
    .replace(/subgroupMatrixStore<(\w+)>\(&area, /g, 'store_$1(lane, ')
    .replace(/subgroupMatrixMultiplyAccumulate/g, 'emulated_mma');
  return `${text}
var<workgroup> exchanged: array<vec2<u32>, ${threads}>;
fn exchanged_pair(own: u32, v: vec2<f32>, source: u32) -> vec2<f32> {
  workgroupBarrier();
  exchanged[own] = bitcast<vec2<u32>>(v);
  workgroupBarrier();
  return bitcast<vec2<f32>>(exchanged[source]);
}
fn exchanged_word(own: u32, v: u32, source: u32) -> u32 {
  workgroupBarrier();
  exchanged[own].x = v;
  workgroupBarrier();
  return exchanged[source].x;
}
fn exchanged_integer(own: u32, v: i32, source: u32) -> i32 { return bitcast<i32>(exchanged_word(own, bitcast<u32>(v), source)); }
fn exchanged_float(own: u32, v: f32, source: u32) -> f32 { return bitcast<f32>(exchanged_word(own, bitcast<u32>(v), source)); }
fn byte_in(v: vec4<u32>, at: u32) -> i32 { return (bitcast<i32>(v[at / 4u % 4u]) << (24u - at % 4u * 8u)) >> 24u; }
fn load_Left(lane: u32, offset: u32, stride: u32) -> Left {
  var m: Left;
  for (var k = 0u; k < 32u; k++) { m[k] = byte_in(area[offset + lane / 2u * stride + k / 16u], k); }
  return m;
}
fn load_Right(lane: u32, offset: u32, stride: u32) -> Right {
  var m: Right;
  for (var k = 0u; k < 32u; k++) {
    for (var j = 0u; j < 4u; j++) { m[k * 4u + j] = byte_in(area[offset + (lane % 2u * 4u + j) * stride + k / 16u], k); }
  }
  return m;
}
fn put_word(at: u32, value: i32) { area[at / 4u][at % 4u] = bitcast<u32>(value); }
fn store_row_major(lane: u32, offset: u32, s: Sum, stride: u32) {
  for (var j = 0u; j < 4u; j++) { put_word(offset * 4u + lane / 2u * stride * 4u + lane % 2u * 4u + j, s[j]); }
}
fn emulated_mma(a: Left, b: Right, c: Sum) -> Sum {
  var m = c;
  for (var k = 0u; k < 32u; k++) { for (var j = 0u; j < 4u; j++) { m[j] += a[k] * b[k * 4u + j]; } }
  return m;
}
`;
}
