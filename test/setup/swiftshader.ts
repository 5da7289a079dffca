/** Chromium's software GPU for unit tests of the WebGPU device. A real GPU is used with `KVANT_TEST_GPU=1`. */
import { existsSync } from 'node:fs';
import type { WebGpuDevice, WebGpuDeviceOptions } from '../../src/device/webgpu/device.js';
import { KvantError } from '../../src/errors.js';
import { DeferredPipelines } from './deferred-pipelines.js';
import { sharedDevice } from './shared-gpu.js';

const ICD = '/usr/lib/chromium/vk_swiftshader_icd.json';

export const realGpu = process.env.KVANT_TEST_GPU === '1';

/** Names the driver to Vulkan; must run before Dawn is loaded. Throws where it is missing: nothing is skipped. */
function useSwiftShader(): void {
  if (realGpu) return;
  if (!existsSync(ICD)) {
    throw new Error(`${ICD} is missing: install Debian's package "chromium" (apt-get install chromium)`);
  }
  process.env.VK_ICD_FILENAMES = ICD;
  process.env.XDG_RUNTIME_DIR ??= '/tmp';
}

export interface TestGpu {
  readonly gpu: GPU;
  readonly adapter: GPUAdapter;
}

let paced = false;

export async function openAdapter(): Promise<TestGpu> {
  useSwiftShader();
  const { createNodeGpu } = await import('../../src/device/webgpu/node.js');
  const { chooseAdapter } = await import('../../src/device/webgpu/adapter.js');
  const gpu = await createNodeGpu();
  // As the product does: a wait without a pace takes a whole processor, which a software adapter needs to compute.
  const { paceDawnTicks } = await import('../../src/device/webgpu/dawn-ticks.js');
  if (!paced) paceDawnTicks();
  paced = true;
  const adapter = await chooseAdapter(gpu, {
    allowSoftware: !realGpu,
    adapterName: undefined,
    noAdapterFix: 'Install Debian\'s package "chromium".',
  });
  return { gpu, adapter };
}

/** A device of ours and the GPUDevice below it, for tests that break the latter. `limits`: what the adapter shall say it has. `shared`: on a software adapter it has what other such devices of the file compiled; destroying it is no loss to them. */
export async function openTestDevice(
  options: WebGpuDeviceOptions = {},
  limits: Readonly<Partial<Record<keyof GPUSupportedLimits, number>>> = {},
  shared = false,
): Promise<{ readonly device: WebGpuDevice; readonly raw: GPUDevice }> {
  const { gpu, adapter } = await openAdapter();
  const { WebGpuDevice: Class } = await import('../../src/device/webgpu/device.js');
  let raw: GPUDevice | undefined;
  const watched = new Proxy(adapter, {
    get(target, key) {
      if (key === 'requestDevice') {
        return async (descriptor: GPUDeviceDescriptor) => {
          // What a software adapter compiles, which takes most of the time, is what a pass runs.
          if (shared && !realGpu) raw = await sharedDevice(target, descriptor);
          else {
            raw = await target.requestDevice(descriptor);
            if (!realGpu) new DeferredPipelines(raw).install(raw);
          }
          return raw;
        };
      }
      const value = Reflect.get(target, key, target) as unknown;
      if (key !== 'limits') return value;
      const all = value as GPUSupportedLimits;
      return new Proxy(all, {
        get: (_, name) => limits[name as keyof GPUSupportedLimits] ?? Reflect.get(all, name, all),
      });
    },
  });
  const device = await Class.create(gpu, watched, options);
  if (raw === undefined) throw new KvantError('internal', 'No device was asked for.');
  return { device, raw };
}

/** Runs `body` once for each of `count` invocations and returns what it wrote to `out: array<u32>`. `extension`: to be enabled. */
export async function compute(
  raw: GPUDevice,
  declarations: string,
  body: string,
  input: Uint32Array<ArrayBuffer>,
  outWords: number,
  extension?: string,
): Promise<Uint32Array> {
  const code = `${extension === undefined ? '' : `enable ${extension};\n`}@group(0) @binding(0) var<storage, read> given: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
${declarations}
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
  let i = gid.x;
  ${body}
}`;
  const pipeline = raw.createComputePipeline({
    layout: 'auto',
    compute: { module: raw.createShaderModule({ code }) },
  });
  const source = raw.createBuffer({ size: input.byteLength, usage: 128 | 8 });
  raw.queue.writeBuffer(source, 0, input);
  const out = raw.createBuffer({ size: outWords * 4, usage: 128 | 4 });
  const staging = raw.createBuffer({ size: outWords * 4, usage: 1 | 8 });
  const encoder = raw.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  const entries = [source, out].map((buffer, binding) => ({ binding, resource: { buffer } }));
  pass.setBindGroup(0, raw.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries }));
  pass.dispatchWorkgroups(Math.ceil(outWords / 64));
  pass.end();
  encoder.copyBufferToBuffer(out, 0, staging, 0, outWords * 4);
  raw.queue.submit([encoder.finish()]);
  await staging.mapAsync(1);
  const result = new Uint32Array(staging.getMappedRange()).slice();
  for (const buffer of [source, out, staging]) buffer.destroy();
  return result;
}
