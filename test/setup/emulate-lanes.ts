/**
 * Subgroups of any number of lanes for devices that have narrower ones: the text of a kernel whose workgroups are one
 * subgroup (attend-quads.ts) is rewritten so that lanes exchange through workgroup memory. What is exchanged is a vector
 * over heads where its name begins with `give` and a digit, an integer where it begins with `sum`, and else a float.
 */
export function emulateLanes(wgsl: string): string {
  const threads = Number(/@workgroup_size\((\d+)\)/.exec(wgsl)![1]);
  const vector = /var weights = ([\w<>]+)\(\)/.exec(wgsl)![1]!;
  const kindOf = (name: string): string => (/^give\d/.test(name) ? 'V' : /^sum\d/.test(name) ? 'I' : 'F');
  const text = wgsl
    .replace('enable subgroups;', '')
    .replace(/subgroupMax\((\w+)\)/g, 'lanes_max($1, lane)')
    .replace(
      /subgroupShuffleXor\((\w+), (\d+u)\)/g,
      (_, name: string, step: string) => `lanes_${kindOf(name)}(${name}, lane ^ ${step}, lane)`,
    )
    .replace(
      /subgroupShuffle\((\w+), (\w+)\)/g,
      (_, name: string, from: string) => `lanes_${kindOf(name)}(${name}, ${from}, lane)`,
    );
  const exchange = (
    kind: string,
    type: string,
  ): string => `var<workgroup> exchanged${kind}: array<${type}, ${threads}>;
fn lanes_${kind}(v: ${type}, other: u32, own: u32) -> ${type} {
  workgroupBarrier();
  exchanged${kind}[own] = v;
  workgroupBarrier();
  return exchanged${kind}[other];
}`;
  return `${text}
${exchange('F', 'f32')}
${exchange('I', 'i32')}
${exchange('V', vector)}
var<workgroup> exchangedU: array<u32, ${threads}>;
fn lanes_max(v: u32, own: u32) -> u32 {
  workgroupBarrier();
  exchangedU[own] = v;
  workgroupBarrier();
  var all = 0u;
  for (var i = 0u; i < ${threads}u; i++) { all = max(all, exchangedU[i]); }
  workgroupBarrier();
  return all;
}
`;
}
