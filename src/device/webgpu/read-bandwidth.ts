/** How fast this GPU reads its memory with nothing else to do: the bound that decoding from a large KV cache runs against. */

import { USAGE } from './constants.js';
import { passSeconds } from './pass-seconds.js';

/** Workgroups of 256 that walk the buffer together, each thread with four loads under way. */
const GROUPS = 4096;
const STRIDE = GROUPS * 256;

const FILL = `@group(0) @binding(0) var<storage, read_write> data: array<vec4<u32>>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  for (var i = id.x; i < arrayLength(&data); i += ${STRIDE}u) { data[i] = vec4<u32>(i * 0x9e3779b1u + 1u); }
}`;

const READ = `@group(0) @binding(0) var<storage, read> data: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> out: array<vec4<u32>>;
@compute @workgroup_size(256) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
  let n = arrayLength(&data);
  var sum = vec4<u32>();
  for (var i = id.x; i < n; i += ${4 * STRIDE}u) {
    sum ^= data[i];
    sum += data[min(i + ${STRIDE}u, n - 1u)];
    sum ^= data[min(i + ${2 * STRIDE}u, n - 1u)];
    sum += data[min(i + ${3 * STRIDE}u, n - 1u)];
  }
  // Never true of what was filled in, but the compiler cannot know: so the loads stay.
  if (all(sum == vec4<u32>(0x12345u))) { out[0] = sum; }
}`;

/**
 * @param bytes far more than any cache holds, and no more than a binding
 * @param rounds the median of so many is taken
 * @returns bytes a second
 */
export async function measureReadBandwidth(
  device: GPUDevice,
  bytes: number,
  rounds: number,
): Promise<number> {
  const usage = USAGE.STORAGE;
  const data = device.createBuffer({ label: 'read bandwidth', size: Math.floor(bytes / 16) * 16, usage });
  const out = device.createBuffer({ label: 'read bandwidth, out', size: 16, usage });
  try {
    const fill = await pass(device, FILL, [data]);
    const read = await pass(device, READ, [data, out]);
    const encoder = device.createCommandEncoder();
    const once = encoder.beginComputePass();
    launch(once, fill);
    once.end();
    device.queue.submit([encoder.finish()]);
    return data.size / (await passSeconds(device, (each) => launch(each, read), rounds));
  } finally {
    data.destroy();
    out.destroy();
  }
}

interface Pass {
  readonly pipeline: GPUComputePipeline;
  readonly group: GPUBindGroup;
}

async function pass(device: GPUDevice, code: string, buffers: readonly GPUBuffer[]): Promise<Pass> {
  const pipeline = await device.createComputePipelineAsync({
    layout: 'auto',
    compute: { module: device.createShaderModule({ code }), entryPoint: 'main' },
  });
  const entries = buffers.map((buffer, binding) => ({ binding, resource: { buffer } }));
  return { pipeline, group: device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }) };
}

function launch(encoder: GPUComputePassEncoder, { pipeline, group }: Pass): void {
  encoder.setPipeline(pipeline);
  encoder.setBindGroup(0, group);
  encoder.dispatchWorkgroups(GROUPS);
}
