/**
 * Subgroup matrices for devices that have none: the text of a kernel made for subgroups of ONE thread and f32
 * components is rewritten so that matrices are arrays and every matrix op is a loop. Slow, and exact enough to test
 * the index arithmetic of such a kernel anywhere.
 */

/** The rewritten WGSL. Matrices are `size × size`; tile arrays may hold scalars or vec4s, both f32. */
export function emulateMatrices(wgsl: string, size: number): string {
  let text = wgsl
    .replace('enable chromium_experimental_subgroup_matrix;', '')
    .replace('diagnostic(off, chromium.subgroup_matrix_uniformity);', '')
    .replace('enable subgroups;', '')
    .replace(/, @builtin\(subgroup_id\) (\w+): u32/, '');
  text = text.replace(/(fn main\([\s\S]*?\{\n)/, '$1  let sub = lid;\n');
  const floats = size * size;
  text = text.replace(/alias (\w+) = subgroup_matrix_\w+<[^>]*>;/g, `alias $1 = array<f32, ${floats}>;`);
  const arrays = new Map<string, string>();
  for (const m of text.matchAll(/var<(workgroup|storage, \w+)> (\w+): array<(f32|vec4<f32>)/g))
    arrays.set(m[2]!, m[3]!);
  const helpers = new Map<string, string>();
  text = text.replace(
    /subgroupMatrixLoad<(\w+), (row|col)_major>\(&(\w+), /g,
    (_, type: string, major: string, name: string) => {
      const vec = arrays.get(name) === 'vec4<f32>';
      const at =
        major === 'row' ? `i * stride${vec ? ' * 4u' : ''} + j` : `j * stride${vec ? ' * 4u' : ''} + i`;
      const value = vec
        ? `${name}[(offset * 4u + ${at}) / 4u][(offset * 4u + ${at}) % 4u]`
        : `${name}[offset + ${at}]`;
      const fn = `load_${type}_${major}_${name}`;
      helpers.set(
        fn,
        `fn ${fn}(offset: u32, stride: u32) -> ${type} { var m: ${type}; for (var i = 0u; i < ${size}u; i++) { for (var j = 0u; j < ${size}u; j++) { m[i * ${size}u + j] = ${value}; } } return m; }`,
      );
      return `${fn}(`;
    },
  );
  text = text.replace(
    /subgroupMatrixStore<row_major>\(&(\w+), (.*), ([\w[\]]+), ([^,]+)\);/g,
    (_, name: string, offset: string, m: string, stride: string) => {
      const fn = `store_${name}`;
      helpers.set(
        fn,
        `fn ${fn}(offset: u32, m: Sum, stride: u32) { for (var i = 0u; i < ${size}u; i++) { for (var j = 0u; j < ${size}u; j++) { ${name}[offset + i * stride + j] = m[i * ${size}u + j]; } } }`,
      );
      return `${fn}(${offset}, ${m}, ${stride});`;
    },
  );
  // Right matrices are [k, n] here whatever their layout in memory was.
  helpers.set(
    'mma',
    `fn mma(a: Left, b: Right, c: Sum) -> Sum { var m = c; for (var i = 0u; i < ${size}u; i++) { for (var j = 0u; j < ${size}u; j++) { var s = m[i * ${size}u + j]; for (var k = 0u; k < ${size}u; k++) { s = fma(a[i * ${size}u + k], b[k * ${size}u + j], s); } m[i * ${size}u + j] = s; } } return m; }`,
  );
  text = text.replace(/subgroupMatrixMultiplyAccumulate/g, 'mma');
  return `${text}\n${[...helpers.values()].join('\n')}\n`;
}
