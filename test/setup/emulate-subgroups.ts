/**
 * Subgroups of 32 lanes for devices that have narrower ones: the text of a dp4a kernel, or of a stage that makes bytes
 * (linear-dp4a.ts, linear-dp4a-x.ts), is rewritten so that lanes exchange through workgroup memory. What is exchanged is an integer
 * where it is called `total` or `wrong`, and else a float.
 */
export function emulateSubgroups(wgsl: string): string {
  const threads = Number(/@workgroup_size\((\d+)\)/.exec(wgsl)![1]);
  const text = wgsl
    .replace('enable subgroups;', '')
    .replace(/subgroupAdd\((\w+)\)/g, 'emulated_add($1, lid)')
    .replace(/subgroupShuffleXor\((\w+), (\d+u)\)/g, (_, name: string, step: string) => {
      const type = name === 'wrong' ? 'u32' : name === 'total' ? 'i32' : 'f32';
      return `bitcast<${type}>(emulated_other(bitcast<u32>(${name}), lid ^ ${step}, lid))`;
    });
  if (text.includes('subgroup')) throw new Error('something of subgroups is not emulated');
  return `${text}
var<workgroup> exchanged: array<u32, ${threads}>;
fn emulated_other(v: u32, other: u32, own: u32) -> u32 {
  workgroupBarrier();
  exchanged[own] = v;
  workgroupBarrier();
  return exchanged[other];
}
fn emulated_add(v: f32, own: u32) -> f32 {
  workgroupBarrier();
  exchanged[own] = bitcast<u32>(v);
  workgroupBarrier();
  var all = 0.0;
  for (var i = 0u; i < 32u; i++) { all += bitcast<f32>(exchanged[own / 32u * 32u + i]); }
  return all;
}
`;
}
