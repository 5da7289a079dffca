import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Random } from '../../../../test/devices/numbers.js';
import { BLOCK_FORMATS, formatLabel, randomMatrix } from '../../../../test/devices/sources.js';
import { pipelineOf } from '../../../../test/setup/run-kernel.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import { rowMetaWords, rowWords, type ShardLayout } from '../weights-layout.js';
import { groupScales } from './group-scales.js';
import { dequantiseQuads, hasPairs, tableOf, weightUnit } from './linear-dequantise.js';
import { fillTable } from './table-numbers.js';

const [ROWS, COLS] = [3, 512];

/** Writes every unit of a matrix as floats: what the GEMMs stage. Halves are f32 that are rounded where they are packed. */
function unitsKernel(weight: Exclude<ShardLayout, { kind: 'float' }>, component: 'f16' | 'f32'): string {
  const { cols } = weightUnit(weight);
  const units = COLS / cols;
  const scales = groupScales(weight, `${COLS / 32}u`, cols);
  const words = (cols * weight.bits) / 32;
  const names = Array.from({ length: words }, (_, w) => `w${w}`);
  const metas = scales.words('unit');
  const table = tableOf(weight, component);
  const { prepare, quads } = dequantiseQuads(weight, component, names, {
    words: metas.map((_, m) => `m${m}`),
    at: 'unit',
    scales,
  });
  const text = `@group(0) @binding(0) var<storage, read> codes: array<u32>;
@group(0) @binding(1) var<storage, read> metas: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<vec4<f32>>;
${table ?? ''}
@compute @workgroup_size(16)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  ${table === null ? '' : `${fillTable(16)}\n  workgroupBarrier();`}
  let row = wid.x;
  for (var unit = lid; unit < ${units}u; unit += 16u) {
    ${names.map((name, w) => `let ${name} = codes[row * ${rowWords(weight, COLS)}u + unit * ${words}u + ${w}u];`).join('\n    ')}
    ${metas.map((word, m) => `let m${m} = metas[row * ${rowMetaWords(weight, COLS)}u + ${word}];`).join('\n    ')}
    ${prepare.join('\n    ')}
    ${quads.map((quad, q) => `out[row * ${COLS / 4}u + unit * ${cols / 4}u + ${q}u] = vec4<f32>(${quad});`).join('\n    ')}
  }
}`;
  return text
    .replaceAll('bitcast<vec2<f16>>(', 'unpack2x16float(')
    .replaceAll('bitcast<u32>(', 'pack2x16float(')
    .replaceAll('<f16>', '<f32>')
    .replace(/(\d\.\d+)h/g, '$1');
}

describe('units of weights as numbers of matrices', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(BLOCK_FORMATS.map((format) => [formatLabel(format), format] as const))('%s', async (_, format) => {
    const { source, values } = randomMatrix(new Random(7), ROWS, COLS, format);
    const shard = (await device.loadMatrix([source], { use: 'linear' })).shards[0]!;
    const weight = shard.layout;
    if (weight.kind === 'float') throw new Error('codes are wanted');
    for (const component of ['f32', 'f16'] as const) {
      // Metas of halves are what kernels of halves read as such.
      if (component === 'f16' && !hasPairs(weight)) continue;
      const out = raw.createBuffer({ size: ROWS * COLS * 4, usage: 128 | 4 });
      const staging = raw.createBuffer({ size: out.size, usage: 1 | 8 });
      const pipeline = await pipelineOf(raw, unitsKernel(weight, component));
      const entries = [shard.codes, shard.metas!, out].map((buffer, binding) => ({
        binding,
        resource: { buffer },
      }));
      const encoder = raw.createCommandEncoder();
      const pass = encoder.beginComputePass();
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, raw.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
      pass.dispatchWorkgroups(ROWS);
      pass.end();
      encoder.copyBufferToBuffer(out, 0, staging, 0, out.size);
      raw.queue.submit([encoder.finish()]);
      await staging.mapAsync(1);
      const got = new Float32Array(staging.getMappedRange());
      const most = values.reduce((size, v) => Math.max(size, Math.abs(v)), 0);
      // Scales and biases round to halves, which are as large as what they make.
      const bound = most * (component === 'f16' ? 2 ** -9 : 2 ** -20);
      for (let i = 0; i < values.length; i++)
        if (!(Math.abs(got[i]! - values[i]!) <= bound))
          expect.fail(`${component}: number ${i} is ${got[i]}, not ${values[i]}`);
      staging.destroy();
      out.destroy();
    }
  });
});
