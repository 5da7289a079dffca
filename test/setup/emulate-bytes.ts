/**
 * Subgroup matrices of bytes, and subgroups of 32, for devices that have neither: the text of a kernel (attend-bytes.ts)
 * is rewritten so that a lane keeps its part of a matrix in an array, a row's half, and lanes exchange through workgroup
 * memory, f32, or i32 where their name begins with `part`. Slow, and exact: all sums of matrices
 * are integers.
 */
export function emulateBytes(wgsl: string): string {
  const threads = Number(/@workgroup_size\((\d+)\)/.exec(wgsl)![1]);
  const text = wgsl
    .replace('enable chromium_experimental_subgroup_matrix;', '')
    .replace('diagnostic(off, chromium.subgroup_matrix_uniformity);', '')
    .replace('enable subgroups;', '')
    .replace(/alias Left = .*/, 'alias Left = array<i32, 32>;')
    .replace(/alias Right = .*/, 'alias Right = array<i32, 256>;')
    .replace(/alias Sum = .*/, 'alias Sum = array<i32, 8>;')
    .replace(
      /subgroupShuffleXor\((\w+), /g,
      (_, name: string) => `emulatedXor${name.startsWith('part') ? 'I' : 'F'}(lane, ${name}, `,
    )
    .replace(/subgroupMatrixLoad<(\w+), \w+>\(&area, /g, 'load_$1(lane, ')
    .replace(/subgroupMatrixStore<(\w+)>\(&area, /g, 'store_$1(lane, ')
    .replace(/subgroupMatrixMultiplyAccumulate/g, 'emulated_mma');
  return `${text}
var<workgroup> exchanged: array<u32, ${threads}>;
fn emulatedXor(own: u32, v: u32, mask: u32) -> u32 {
  workgroupBarrier();
  exchanged[own] = v;
  workgroupBarrier();
  return exchanged[own ^ mask];
}
fn emulatedXorF(own: u32, v: f32, mask: u32) -> f32 {
  return bitcast<f32>(emulatedXor(own, bitcast<u32>(v), mask));
}
fn emulatedXorI(own: u32, v: i32, mask: u32) -> i32 {
  return bitcast<i32>(emulatedXor(own, bitcast<u32>(v), mask));
}
fn byte_of(at: u32) -> i32 { return (bitcast<i32>(area[at / 16u][at / 4u % 4u]) << (24u - at % 4u * 8u)) >> 24u; }
fn load_Left(lane: u32, offset: u32, stride: u32) -> Left {
  var m: Left;
  for (var k = 0u; k < 32u; k++) { m[k] = byte_of(offset * 16u + lane / 2u * stride * 16u + k); }
  return m;
}
fn load_Right(lane: u32, offset: u32, stride: u32) -> Right {
  var m: Right;
  for (var k = 0u; k < 32u; k++) {
    for (var j = 0u; j < 8u; j++) { m[k * 8u + j] = byte_of(offset * 16u + (lane % 2u * 8u + j) * stride * 16u + k); }
  }
  return m;
}
fn put_word(at: u32, value: i32) { area[at / 4u][at % 4u] = bitcast<u32>(value); }
fn store_row_major(lane: u32, offset: u32, s: Sum, stride: u32) {
  for (var j = 0u; j < 8u; j++) { put_word(offset * 4u + lane / 2u * stride * 4u + lane % 2u * 8u + j, s[j]); }
}
fn emulated_mma(a: Left, b: Right, c: Sum) -> Sum {
  var m = c;
  for (var k = 0u; k < 32u; k++) { for (var j = 0u; j < 8u; j++) { m[j] += a[k] * b[k * 8u + j]; } }
  return m;
}
`;
}
