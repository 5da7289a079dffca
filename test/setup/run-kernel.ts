/** Runs a kernel's stages on a bare device. */

import type { Kernel } from '../../src/device/webgpu/kernel.js';
import { factsOf } from '../../src/device/webgpu/tuning/bench.js';

/** Of each device by text: SwiftShader compiles for seconds, and cases of a test have many stages in common. */
const compiled = new WeakMap<GPUDevice, Map<string, GPUComputePipeline>>();

/** @throws Error with what the compiler says of a text that it refuses */
export async function pipelineOf(raw: GPUDevice, code: string): Promise<GPUComputePipeline> {
  const known = compiled.get(raw) ?? new Map<string, GPUComputePipeline>();
  compiled.set(raw, known);
  const before = known.get(code);
  if (before !== undefined) return before;
  const module = raw.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  const errors = messages.filter(({ type }) => type === 'error');
  if (errors.length > 0) throw new Error(errors.map((m) => `${m.lineNum}: ${m.message}`).join('\n'));
  const pipeline = await raw.createComputePipelineAsync({ layout: 'auto', compute: { module } });
  known.set(code, pipeline);
  return pipeline;
}

/** @param roles a buffer for each role that is not scratch, or for scratch too that is to outlive the kernel; answers with `out`, as f32 */
export async function runKernel(
  raw: GPUDevice,
  kernel: Kernel,
  rows: number,
  roles: Readonly<Record<string, GPUBuffer>>,
  text: (wgsl: string) => string = (wgsl) => wgsl,
): Promise<Float32Array> {
  const scratch = Object.fromEntries(
    Object.entries(kernel.scratch ?? {})
      .filter(([name]) => roles[name] === undefined)
      .map(([name, size]) => [name, raw.createBuffer({ size, usage: 128 })]),
  );
  const all: Readonly<Record<string, GPUBuffer>> = { ...roles, ...scratch };
  const out = roles.out!;
  const staging = raw.createBuffer({ size: out.size, usage: 1 | 8 });
  const encoder = raw.createCommandEncoder();
  for (const stage of kernel.stages) {
    const workgroups: [number, number, number] = [0, 0, 0];
    stage.workgroups(factsOf(rows), workgroups);
    const pipeline = await pipelineOf(raw, text(stage.wgsl));
    const entries = stage.bindings.map(({ name }, binding) => ({
      binding,
      resource: { buffer: all[name]! },
    }));
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, raw.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
    pass.dispatchWorkgroups(...workgroups);
    pass.end();
  }
  encoder.copyBufferToBuffer(out, 0, staging, 0, out.size);
  raw.queue.submit([encoder.finish()]);
  await staging.mapAsync(1);
  const got = new Float32Array(staging.getMappedRange()).slice();
  staging.destroy();
  for (const buffer of Object.values(scratch)) buffer.destroy();
  return got;
}
