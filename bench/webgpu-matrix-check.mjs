// What subgroup matrices really do on a device: every way to load one, and to store results among halves. A kernel that is right in emulation and wrong
// on a GPU is wrong in one of these, or reads at an address that is no multiple of 16 bytes.

/** Loads a matrix of distinct numbers in every way and multiplies it by one. Prints and returns the wrong ones. */
export async function checkMatrixOps(bench, matrix) {
  const { m, n, k, component } = matrix;
  const lanes = bench.features.subgroupSize;
  const bad = [];
  const results = [];
  for (const kind of ['left', 'right', 'sum'])
    for (const major of ['row', 'col'])
      for (const tile of kind === 'sum' ? ['scalar'] : ['vec4', 'scalar'])
        for (const [stride, offset, then] of [
          [16, 0, ''],
          [40, 0, ''],
          [136, 16, ''],
          [136, 136 * 16 + 32, ''],
          [72, 0, 'overwritten'],
        ]) {
          const type = kind === 'sum' ? 'f32' : component;
          const wide = tile === 'vec4' ? 4 : 1;
          const rows = kind === 'left' ? m : kind === 'right' ? k : m;
          const cols = kind === 'left' ? k : n;
          const words = 136 * 40;
          const element = wide === 4 ? `vec4<${type}>` : type;
          // Number i of the tile is i modulo 251: exact in an f16, and different within a matrix for every stride.
          const fill =
            wide === 4
              ? `t[i] = ${element}(vec4<u32>(i * 4u % 251u, (i * 4u + 1u) % 251u, (i * 4u + 2u) % 251u, (i * 4u + 3u) % 251u));`
              : `t[i] = ${type}(i % 251u);`;
          const load = (of, where, order, at, step) =>
            `subgroupMatrixLoad<${of}, ${order}_major>(&${where}, ${at}u, ${step}u)`;
          const mine = load(
            { left: 'Left', right: 'Right', sum: 'Sum' }[kind],
            't',
            major,
            offset / wide,
            stride / wide,
          );
          const size = Math.max(m, n, k);
          const product = {
            left: `subgroupMatrixMultiplyAccumulate(mine, ${load('Right', 'one', 'col', 0, size)}, Sum())`,
            right: `subgroupMatrixMultiplyAccumulate(${load('Left', 'one', 'row', 0, size)}, mine, Sum())`,
            sum: 'mine',
          }[kind];
          const wgsl = `${component === 'f16' ? 'enable f16;' : ''} enable subgroups; enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
alias Left = subgroup_matrix_left<${component}, ${k}, ${m}>;
alias Right = subgroup_matrix_right<${component}, ${n}, ${k}>;
alias Sum = subgroup_matrix_result<f32, ${n}, ${m}>;
var<workgroup> t: array<${element}, ${words / wide}>;
var<workgroup> one: array<${component}, ${size * size}>;
@compute @workgroup_size(${lanes})
fn main(@builtin(local_invocation_index) lid: u32) {
  for (var i = lid; i < ${words / wide}u; i += ${lanes}u) { ${fill} }
  for (var i = lid; i < ${size * size}u; i += ${lanes}u) { one[i] = ${component}(i / ${size}u == i % ${size}u); }
  workgroupBarrier();
  let mine = ${mine};
  ${then === '' ? '' : `workgroupBarrier(); for (var i = lid; i < ${words / wide}u; i += ${lanes}u) { t[i] = ${element}(7); } workgroupBarrier();`}
  subgroupMatrixStore<row_major>(&out, 0u, ${product}, ${n}u);
}`;
          const label = `${kind} ${major} ${tile} stride ${stride} offset ${offset} ${then}`;
          const row = { label };
          try {
            const out = bench.buffer(m * n * 4);
            const kernel = { label, wgsl, bindings: ['out'], writes: ['out'], workgroups: [1, 1, 1] };
            bench.run([bench.launch(await bench.compile(kernel), { out })]);
            const got = await bench.readFloats(out, m * n, 'f32');
            out.destroy();
            const value = (i, j) => (offset + (major === 'row' ? i * stride + j : j * stride + i)) % 251;
            let wrong = 0;
            for (let i = 0; i < rows; i++)
              for (let j = 0; j < cols; j++) if (got[i * n + j] !== value(i, j)) wrong++;
            row.wrong = wrong;
            if (wrong > 0) row.got = [...got.slice(0, 4), '…', ...got.slice(n, n + 4)];
            if (wrong > 0) row.want = [0, 1].flatMap((i) => [0, 1, 2, 3].map((j) => value(i, j)));
          } catch (error) {
            row.failed = String(error.message).slice(0, 300);
          }
          results.push(row);
          if (row.failed || row.wrong > 0) {
            bad.push(row);
            console.log(
              `matrix load WRONG ${label}: ${row.failed ?? `${row.wrong} wrong, got ${row.got.join(' ')} want ${row.want.join(' ')}`}`,
            );
          }
        }
  if (component === 'f16') {
    for (const stride of [32, 36]) {
      const row = { label: `f32 results stored to vec4<f16>, stride ${stride}` };
      const wgsl = `enable f16; enable subgroups; enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(0) @binding(1) var<storage, read> given: array<f32>;
alias Sum = subgroup_matrix_result<f32, ${n}, ${m}>;
var<workgroup> t: array<vec4<f16>, ${(m * stride) / 2 + 64}>;
@compute @workgroup_size(${lanes})
fn main(@builtin(local_invocation_index) lid: u32) {
  let mine = subgroupMatrixLoad<Sum, row_major>(&given, 0u, ${n}u);
  subgroupMatrixStore<row_major>(&t, 64u, mine, ${stride / 2}u);
  workgroupBarrier();
  for (var e = lid; e < ${m * n}u; e += ${lanes}u) {
    let at = 128u + e / ${n}u * ${stride}u + e % ${n}u;
    out[e] = bitcast<vec2<f32>>(t[at / 2u])[at % 2u];
  }
}`;
      try {
        // Numbers whose halves are any halves: NaN and subnormal ones too.
        const values = Float32Array.from({ length: m * n }, (_, i) => (i - 100) * 1.2345678 ** (i % 89));
        const [out, given] = [bench.buffer(m * n * 4), bench.upload(values)];
        const kernel = {
          label: row.label,
          wgsl,
          bindings: ['out', 'given'],
          writes: ['out'],
          workgroups: [1, 1, 1],
        };
        bench.run([bench.launch(await bench.compile(kernel), { out, given })]);
        const got = await bench.readFloats(out, m * n, 'f32');
        row.wrong = values.filter((v, i) => !Object.is(v, got[i])).length;
        if (row.wrong > 0) console.log(`matrix store WRONG ${row.label}: ${row.wrong} wrong`);
      } catch (error) {
        row.failed = String(error.message).slice(0, 300);
        console.log(`matrix store WRONG ${row.label}: ${row.failed}`);
      }
      results.push(row);
      if (row.failed || row.wrong > 0) bad.push(row);
    }
  }
  console.log(`matrix loads and stores: ${results.length - bad.length} of ${results.length} right`);
  return results;
}
