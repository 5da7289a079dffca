// A GPU that does nothing: Dawn's null backend, which runs JavaScript, the binding and Dawn's validation and no kernel. It
// says that it can do what an NVIDIA H200 can, so that a program makes the same launches on it.
//
// The backend has 512 MiB and refuses subgroup matrices. So large buffers are cut (nothing is ever read from them), and the text of a kernel is
// replaced by one that only names its bindings: what a launch costs the host depends on those alone. It binds eight storage
// buffers: where a kernel has more, the first of those that are read are bound as uniform ones instead.

import { createRequire } from 'node:module';

const require = createRequire(import.meta.url);

/** What the H200 said (driver 580, Dawn of npm webgpu 0.6.2). */
const MATRICES = [
  ['f16', 'f32', 16, 16, 16],
  ['f16', 'f16', 16, 16, 16],
  ['f16', 'f32', 16, 8, 16],
  ['f16', 'f16', 16, 8, 16],
  ['f16', 'f32', 16, 8, 8],
  ['f16', 'f16', 16, 8, 8],
  ['i8', 'i32', 16, 16, 32],
].map(([componentType, resultComponentType, M, N, K]) => ({ componentType, resultComponentType, M, N, K }));
const LIMITS = {
  maxBufferSize: 2 ** 40,
  maxStorageBufferBindingSize: 2 ** 31 - 4,
  maxComputeWorkgroupStorageSize: 49152,
  maxStorageBuffersPerShaderStage: 10,
  maxComputeInvocationsPerWorkgroup: 1024,
  maxComputeWorkgroupSizeX: 1024,
  maxComputeWorkgroupSizeY: 1024,
};
const CUT_FROM = 1 << 20;
const CUT_TO = 1 << 16;
/** They are copied, or written in parts. */
const UNCUT = new Set(['step', 'sampler state']);
const STORAGE = 128;
const UNIFORM = 64;
const UNIFORM_BYTES = 65536;
/** What the null backend binds. */
const STORAGE_BUFFERS = 8;
/** Dawn ends with its GPU object, devices or not. */
const held = [];

/**
 * A `GPU` for `createWebGpuDevice({ gpu })`. `toggles`: more of Dawn's toggles. `onDevice` is shown the device that is
 * made, before anybody has it, `onText` every kernel as it was written. `onError` is told what Dawn's validation says; without it the device reports it.
 */
export function createNullGpu({ toggles = [], onDevice = () => {}, onText = () => {} } = {}) {
  const dawn = require('webgpu');
  Object.assign(globalThis, dawn.globals);
  const all = ['allow_unsafe_apis', 'disable_workgroup_init', 'disable_robustness', ...toggles];
  const gpu = dawn.create(['backend=null', `enable-dawn-features=${all.join(',')}`]);
  held.push(gpu);
  return {
    wgslLanguageFeatures: gpu.wgslLanguageFeatures,
    async requestAdapter() {
      const adapter = await gpu.requestAdapter();
      const limits = overlay(adapter.limits, LIMITS);
      return {
        features: adapter.features,
        limits,
        info: {
          vendor: 'null',
          architecture: '',
          device: '',
          description: 'null backend',
          subgroupMinSize: 32,
          subgroupMaxSize: 32,
          subgroupMatrixConfigs: MATRICES,
        },
        async requestDevice({ requiredFeatures }) {
          const device = await adapter.requestDevice({ requiredFeatures });
          disguise(device, limits, onText);
          onDevice(device);
          return device;
        },
      };
    },
  };
}

function overlay(limits, more) {
  const all = {};
  for (const name of Object.keys(Object.getPrototypeOf(limits))) all[name] = limits[name];
  return { ...all, ...more };
}

function disguise(device, limits, onText) {
  const cut = new WeakSet();
  const { createBuffer, createShaderModule, createBindGroupLayout, createBindGroup, queue } = device;
  /** Bindings of a layout that are uniform here and storage elsewhere. */
  const instead = new WeakMap();
  const { writeBuffer } = queue;
  Object.defineProperty(device, 'limits', { value: limits });
  Object.defineProperty(device, 'queue', { value: queue });
  device.createBuffer = (descriptor) => {
    const large =
      (descriptor.usage & STORAGE) !== 0 && descriptor.size > CUT_FROM && !UNCUT.has(descriptor.label);
    const usage = descriptor.usage & STORAGE ? descriptor.usage | UNIFORM : descriptor.usage;
    const buffer = createBuffer.call(device, {
      ...descriptor,
      usage,
      size: large ? CUT_TO : descriptor.size,
    });
    if (large) cut.add(buffer);
    return buffer;
  };
  queue.writeBuffer = (buffer, offset, data, from, count) => {
    if (!cut.has(buffer)) writeBuffer.call(queue, buffer, offset, data, from ?? 0, count ?? data.length);
  };
  device.createBindGroupLayout = (descriptor) => {
    const types = descriptor.entries.map(({ buffer }) => buffer.type);
    const uniform = boundAsUniform(types);
    const entries = descriptor.entries.map((entry, i) =>
      uniform.has(i) ? { ...entry, buffer: { type: 'uniform' } } : entry,
    );
    const layout = createBindGroupLayout.call(device, { ...descriptor, entries });
    instead.set(layout, uniform);
    return layout;
  };
  device.createBindGroup = (descriptor) => {
    const uniform = instead.get(descriptor.layout);
    const entries = descriptor.entries.map((entry, i) => {
      if (!uniform.has(i)) return entry;
      const { buffer } = entry.resource;
      return { ...entry, resource: { buffer, size: Math.min(buffer.size, UNIFORM_BYTES) } };
    });
    return createBindGroup.call(device, { ...descriptor, entries });
  };
  device.createShaderModule = ({ label, code }) => {
    onText(code);
    return createShaderModule.call(device, { label, code: namesBindings(code) });
  };
}

/** Which of the bindings, by type, are bound as uniform buffers. */
function boundAsUniform(types) {
  const storage = types.filter((type) => type !== 'uniform').length;
  const read = [...types.keys()].filter((i) => types[i] === 'read-only-storage');
  return new Set(read.slice(0, Math.max(0, storage - STORAGE_BUFFERS)));
}

/** A module with the bindings of another, which it names and does nothing with. */
function namesBindings(code) {
  const bindings = [...code.matchAll(/@group\(0\) @binding\((\d+)\) var<([^>]+)> (\w+): ([^;]+);/g)];
  const types = { uniform: 'uniform', 'storage, read': 'read-only-storage' };
  const uniform = boundAsUniform(bindings.map(([, , space]) => types[space] ?? 'storage'));
  const declared = bindings.map(([, at, space, name, type], i) => {
    const words = uniform.has(i) ? 'array<vec4<u32>, 1>' : 'array<u32>';
    return `@group(0) @binding(${at}) var<${uniform.has(i) ? 'uniform' : space}> ${name}: ${space === 'uniform' ? type : words};`;
  });
  const named = bindings.map(([, , , name]) => `_ = &${name};`);
  return `${declared.join('\n')}\n@compute @workgroup_size(1) fn main() { ${named.join(' ')} }`;
}
