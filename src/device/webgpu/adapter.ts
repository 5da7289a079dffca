/** From a `GPU` to a device: which adapter, which features, which limits. */

import { KvantError } from '../../errors.js';
import type { Precision } from '../device.js';
import type { Capabilities, MatrixConfig } from './kernel.js';

const WANTED_FEATURES = [
  'shader-f16',
  'subgroups',
  'subgroup-size-control',
  'chromium-experimental-subgroup-matrix',
  'timestamp-query',
] as const;

const WANTED_LIMITS = [
  'maxBufferSize',
  'maxStorageBufferBindingSize',
  'maxStorageBuffersPerShaderStage',
  'maxComputeWorkgroupStorageSize',
  'maxComputeInvocationsPerWorkgroup',
  'maxComputeWorkgroupSizeX',
  'maxComputeWorkgroupSizeY',
  'maxComputeWorkgroupSizeZ',
  'maxComputeWorkgroupsPerDimension',
] as const;

export interface AdapterChoice {
  /** Take SwiftShader or llvmpipe too. */
  readonly allowSoftware: boolean;
  /** Part of the name of the adapter that is wanted. */
  readonly adapterName: string | undefined;
  readonly noAdapterFix: string;
}

interface ExtendedInfo extends GPUAdapterInfo {
  readonly subgroupMatrixConfigs?: readonly {
    readonly componentType: string;
    readonly resultComponentType: string;
    readonly M: number;
    readonly N: number;
    readonly K: number;
  }[];
}

export function adapterName(info: GPUAdapterInfo): string {
  const name = info.device !== '' && !/^0x/i.test(info.device) ? info.device : info.description;
  return name.trim() || info.description.trim() || info.vendor || 'WebGPU adapter';
}

export function isSoftware(info: GPUAdapterInfo): boolean {
  const text = `${info.vendor} ${info.device} ${info.description} ${info.architecture}`;
  return info.isFallbackAdapter === true || /swiftshader|llvmpipe|lavapipe|basic render/i.test(text);
}

export async function chooseAdapter(gpu: GPU, choice: AdapterChoice): Promise<GPUAdapter> {
  const software: string[] = [];
  const seen: string[] = [];
  for (const options of [
    { powerPreference: 'high-performance' },
    {},
    ...(choice.allowSoftware ? [{ forceFallbackAdapter: true }] : []),
  ] as GPURequestAdapterOptions[]) {
    const adapter = await gpu.requestAdapter(options);
    if (adapter === null) continue;
    const name = `${adapterName(adapter.info)} ${adapter.info.description} ${adapter.info.vendor}`;
    seen.push(adapterName(adapter.info));
    if (choice.adapterName !== undefined && !name.toLowerCase().includes(choice.adapterName.toLowerCase())) {
      continue;
    }
    if (isSoftware(adapter.info) && !choice.allowSoftware) {
      software.push(adapterName(adapter.info));
      continue;
    }
    return adapter;
  }
  if (software.length > 0) {
    throw new KvantError('no-adapter', `The only WebGPU adapter is a software one (${software[0]}).`, {
      kind: 'device',
      fix: 'Use --device cpu, which is faster than a GPU in software. Tests may ask for it with allowSoftware.',
    });
  }
  if (seen.length > 0) {
    throw new KvantError('no-adapter', `No WebGPU adapter is named "${choice.adapterName}".`, {
      kind: 'device',
      fix: `The adapters are: ${[...new Set(seen)].join(', ')}.`,
    });
  }
  throw new KvantError('no-adapter', 'There is no WebGPU adapter.', {
    kind: 'device',
    fix: choice.noAdapterFix,
  });
}

/** The device with all that the adapter offers: limits as high as they go, features that kernels know to use. */
export async function requestDevice(adapter: GPUAdapter): Promise<GPUDevice> {
  const requiredFeatures = WANTED_FEATURES.filter((f) => adapter.features.has(f)) as GPUFeatureName[];
  const requiredLimits: Record<string, number> = {};
  for (const limit of WANTED_LIMITS) {
    const value = adapter.limits[limit];
    if (value !== undefined) requiredLimits[limit] = value;
  }
  try {
    return await adapter.requestDevice({ label: 'kvant', requiredFeatures, requiredLimits });
  } catch (cause) {
    throw new KvantError('no-adapter', `${adapterName(adapter.info)} gave no device: ${String(cause)}`, {
      kind: 'device',
      fix: 'Update the GPU driver, or use --device cpu.',
      cause,
    });
  }
}

/** @param language `GPU.wgslLanguageFeatures`, which browsers of the first days lack */
export function readCapabilities(
  language: WGSLLanguageFeatures | undefined,
  adapter: GPUAdapter,
  device: GPUDevice,
  precision: Precision,
  deterministic: boolean,
  minLanes = MIN_LANES,
): Capabilities {
  const info = adapter.info as ExtendedInfo;
  const subgroups = device.features.has('subgroups');
  const fast = precision === 'default';
  const matrices: MatrixConfig[] = [];
  if (fast && device.features.has('chromium-experimental-subgroup-matrix' as GPUFeatureName)) {
    for (const c of info.subgroupMatrixConfigs ?? []) {
      matrices.push({ m: c.M, n: c.N, k: c.K, component: c.componentType, result: c.resultComponentType });
    }
  }
  return {
    precision,
    deterministic,
    f16: fast && device.features.has('shader-f16'),
    subgroups,
    subgroupMinSize: subgroups ? (info.subgroupMinSize ?? 0) : 0,
    subgroupMaxSize: subgroups ? (info.subgroupMaxSize ?? 0) : 0,
    packedDots: language?.has('packed_4x8_integer_dot_product') ?? false,
    minLanes,
    matrices,
    workgroupBytes: device.limits.maxComputeWorkgroupStorageSize,
    workgroupThreads: device.limits.maxComputeInvocationsPerWorkgroup,
    bindingBytes: device.limits.maxStorageBufferBindingSize,
    storageBuffers: device.limits.maxStorageBuffersPerShaderStage,
  };
}

/** Narrower subgroups than GPUs have (SwiftShader: 4) gain nothing over the portable kernels. */
const MIN_LANES = 16;

/** For people: `f16`, `subgroups-32`, `subgroup-matrix`. */
export function featureNames(capabilities: Capabilities): string[] {
  const names: string[] = [];
  if (capabilities.f16) names.push('f16');
  if (capabilities.subgroups) {
    const { subgroupMinSize: min, subgroupMaxSize: max } = capabilities;
    names.push(min === max ? `subgroups-${min}` : `subgroups-${min}-${max}`);
  }
  if (capabilities.matrices.length > 0) names.push('subgroup-matrix');
  return names;
}
