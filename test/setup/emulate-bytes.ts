/** Of what lanes exchange, by its name in the kernel. */
function typeOf(name: string): string {
  if (name.startsWith('most') || /norm$|_log$/.test(name)) return 'float';
  if (name === 'part') return 'integer';
  return name.startsWith('part') || name === 'given' || name === 'handed' ? 'word' : 'pair';
}

/**
 * Subgroup matrices of bytes, and subgroups of 32, for devices that have neither: the text of a kernel (attend-bytes.ts)
 * is rewritten so that a lane keeps its part of a matrix in words of four bytes, a row's or four columns', and lanes exchange through
 * workgroup memory. Slow, and exact: all sums of matrices are integers. The calls are inlined, so what is in them is short: compiling takes the time.
 */
export function emulateBytes(wgsl: string): string {
  const threads = Number(/@workgroup_size\((\d+)\)/.exec(wgsl)![1]);
  const text = wgsl
    .replace('enable chromium_experimental_subgroup_matrix;', '')
    .replace('diagnostic(off, chromium.subgroup_matrix_uniformity);', '')
    .replace('enable subgroups;', '')
    .replace(/alias Left = .*/, 'alias Left = array<u32, 8>;')
    .replace(/alias Right = .*/, 'alias Right = array<vec4<u32>, 8>;')
    .replace(/alias Sum = .*/, 'alias Sum = vec4<i32>;')
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
fn load_Left(lane: u32, offset: u32, stride: u32) -> Left {
  let at = offset + lane / 2u * stride;
  var m: Left;
  for (var k = 0u; k < 8u; k++) { m[k] = area[at + k / 4u][k % 4u]; }
  return m;
}
fn load_Right(lane: u32, offset: u32, stride: u32) -> Right {
  let at = offset + lane % 2u * 4u * stride;
  var m: Right;
  for (var k = 0u; k < 8u; k++) {
    for (var j = 0u; j < 4u; j++) { m[k][j] = area[at + j * stride + k / 4u][k % 4u]; }
  }
  return m;
}
fn put_word(at: u32, value: i32) { area[at / 4u][at % 4u] = bitcast<u32>(value); }
fn store_row_major(lane: u32, offset: u32, s: Sum, stride: u32) {
  for (var j = 0u; j < 4u; j++) { put_word(offset * 4u + lane / 2u * stride * 4u + lane % 2u * 4u + j, s[j]); }
}
fn emulated_mma(a: Left, b: Right, c: Sum) -> Sum {
  var m = c;
  for (var k = 0u; k < 32u; k++) {
    let up = 24u - k % 4u * 8u;
    m += (bitcast<i32>(a[k / 4u] << up) >> 24u) * (bitcast<Sum>(b[k / 4u] << vec4(up)) >> vec4(24u));
  }
  return m;
}
`;
}
