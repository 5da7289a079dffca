/**
 * One GPUDevice for all devices that a test file opens on a software adapter, where compiling a kernel takes most of the
 * time: a pipeline that one of them made serves the others. The kinds of devices.ts have most of their kernels in common
 * there, and a file that opens a device again finds all of them made. What is compiled is what a pass runs: kernels have stages
 * for steps larger than any of a test. Of the others the text and what they bind are checked.
 */
import { afterAll } from 'vitest';
import { DeferredPipelines } from './deferred-pipelines.js';

interface Shared {
  readonly raw: GPUDevice;
  readonly pipelines: DeferredPipelines;
}

let opened: Promise<GPU> | undefined;
let unpace = (): void => {};
/** By what was asked of the adapter. */
const devices = new Map<string, Promise<Shared>>();

afterAll(async () => {
  // Files that have a process in common have the device in common too: it goes with the process.
  if (process.env.KVANT_TEST_SHARED === '1') return;
  for (const device of devices.values()) (await device).raw.destroy();
  devices.clear();
  opened = undefined;
  unpace();
});

/** What a device is opened on in place of Dawn's own. Vulkan must have been told of its driver. */
export function sharedGpu(): Promise<GPU> {
  opened ??= openGpu();
  return opened;
}

async function openGpu(): Promise<GPU> {
  const { createNodeGpu } = await import('../../src/device/webgpu/node.js');
  const { paceDawnTicks } = await import('../../src/device/webgpu/dawn-ticks.js');
  const gpu = await createNodeGpu();
  unpace = paceDawnTicks();
  return viewOf(gpu, {
    requestAdapter: async (options?: GPURequestAdapterOptions) => {
      const adapter = await gpu.requestAdapter(options);
      if (adapter === null) return null;
      return viewOf(adapter, {
        requestDevice: (descriptor: GPUDeviceDescriptor = {}) => sharedDevice(adapter, descriptor),
      });
    },
  });
}

/** A device on the one GPUDevice of those that are asked for the same. */
export async function sharedDevice(adapter: GPUAdapter, descriptor: GPUDeviceDescriptor): Promise<GPUDevice> {
  const key = JSON.stringify(descriptor);
  let device = devices.get(key);
  if (device === undefined) {
    device = adapter
      .requestDevice(descriptor)
      .then((raw) => ({ raw, pipelines: new DeferredPipelines(raw) }));
    devices.set(key, device);
  }
  return deviceOf(await device);
}

/** A device of its own to whoever has it: destroyed alone, and deaf from then on. */
function deviceOf({ raw, pipelines }: Shared): GPUDevice {
  const ended = new AbortController();
  let destroyed: (info: unknown) => void = () => {};
  const own = new Promise((resolve) => {
    destroyed = resolve;
  });
  return viewOf(raw, {
    lost: Promise.race([own, raw.lost]),
    destroy: () => {
      ended.abort();
      destroyed({ reason: 'destroyed', message: '' });
    },
    addEventListener: (type: string, listener: (event: Event) => void) =>
      raw.addEventListener(type, (event: Event) => {
        if (!ended.signal.aborted) listener(event);
      }),
    createShaderModule: (descriptor: GPUShaderModuleDescriptor) => pipelines.module(descriptor),
    createComputePipelineAsync: (descriptor: GPUComputePipelineDescriptor) => pipelines.prepare(descriptor),
    createComputePipeline: (descriptor: GPUComputePipelineDescriptor) => pipelines.get(descriptor),
  });
}

/** An object of Dawn's with other members in place of some. Native functions want the object itself as `this`. */
function viewOf<T extends object>(target: T, others: Readonly<Record<string, unknown>>): T {
  const bound = new Map<PropertyKey, unknown>(Object.entries(others));
  return new Proxy(target, {
    get(_, key) {
      if (bound.has(key)) return bound.get(key);
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value !== 'function') return value;
      const method: unknown = value.bind(target);
      bound.set(key, method);
      return method;
    },
    set: (_, key, value) => Reflect.set(target, key, value, target),
  });
}
