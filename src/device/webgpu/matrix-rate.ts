/**
 * How fast a GPU multiplies matrices when nothing else is to be done: what a product cannot be faster than.
 *
 * Every subgroup keeps eight sums and adds the same product to each, over and over, from workgroup memory that is read
 * once.
 */

import type { MatrixConfig } from './kernel.js';
import { passSeconds } from './pass-seconds.js';

const SUMS = 8;
const SUBGROUPS = 4;
const GROUPS = 2048;
const LOOPS = 256;

/** @returns operations a second, a multiplication and an addition being two; the median of `rounds` */
export async function measureMatrixRate(
  device: GPUDevice,
  matrix: MatrixConfig,
  lanes: number,
  rounds: number,
): Promise<number> {
  const { m, n, k, component } = matrix;
  const sums = Array.from({ length: SUMS }, (_, i) => i);
  const code = `${component === 'f16' ? 'enable f16;\n' : ''}enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
alias Left = subgroup_matrix_left<${component}, ${k}, ${m}>;
alias Right = subgroup_matrix_right<${component}, ${n}, ${k}>;
alias Sum = subgroup_matrix_result<f32, ${n}, ${m}>;
var<workgroup> tile: array<${component}, ${Math.max(m, n) * k}>;
@compute @workgroup_size(${lanes * SUBGROUPS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  for (var i = lid; i < ${Math.max(m, n) * k}u; i += ${lanes * SUBGROUPS}u) { tile[i] = ${component}(i % 3u); }
  workgroupBarrier();
  let a = subgroupMatrixLoad<Left, row_major>(&tile, 0u, ${k}u);
  let b = subgroupMatrixLoad<Right, col_major>(&tile, 0u, ${k}u);
${sums.map((i) => `  var c${i} = Sum();`).join('\n')}
  for (var i = 0u; i < ${LOOPS}u; i++) {
${sums.map((i) => `    c${i} = subgroupMatrixMultiplyAccumulate(a, b, c${i});`).join('\n')}
  }
  // Never so, but the compiler cannot know.
  if (wid.x == 0xffffffu) {
${sums.map((i) => `    subgroupMatrixStore<row_major>(&out, ${i * m * n}u, c${i}, ${n}u);`).join('\n')}
  }
}`;
  const out = device.createBuffer({ label: 'matrix rate', size: SUMS * m * n * 4, usage: 128 });
  try {
    const pipeline = await device.createComputePipelineAsync({
      layout: 'auto',
      compute: { module: device.createShaderModule({ code }), entryPoint: 'main' },
    });
    const group = device.createBindGroup({
      layout: pipeline.getBindGroupLayout(0),
      entries: [{ binding: 0, resource: { buffer: out } }],
    });
    const seconds = await passSeconds(
      device,
      (pass) => {
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, group);
        pass.dispatchWorkgroups(GROUPS);
      },
      rounds,
    );
    return (2 * m * n * k * SUMS * LOOPS * SUBGROUPS * GROUPS) / seconds;
  } finally {
    out.destroy();
  }
}
