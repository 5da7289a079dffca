import { describe, expect, it } from 'vitest';
import { chooseAdapter, isSoftware, readCapabilities } from './adapter.js';

interface Info {
  readonly vendor: string;
  readonly device: string;
  readonly description: string;
  readonly architecture: string;
  readonly isFallbackAdapter: boolean;
}

const info = (device: string, isFallbackAdapter = false): Info => ({
  vendor: 'maker',
  device,
  description: `${device} driver`,
  architecture: '',
  isFallbackAdapter,
});

/** A `GPU` that has these adapters, the fallback one only when asked for. */
function gpuOf(...infos: Info[]): GPU {
  return {
    requestAdapter: async (options?: GPURequestAdapterOptions) => {
      const wanted = infos.filter((i) => i.isFallbackAdapter === (options?.forceFallbackAdapter ?? false));
      const found = wanted[0] ?? (options?.forceFallbackAdapter === true ? undefined : infos[0]);
      return found === undefined ? null : { info: found };
    },
  } as unknown as GPU;
}

const choice = { allowSoftware: false, adapterName: undefined, noAdapterFix: 'install a driver' };

describe('chooseAdapter', () => {
  it('takes a real GPU, even where software is allowed', async () => {
    const gpu = gpuOf(info('SwiftShader', true), info('Radeon'));
    expect((await chooseAdapter(gpu, choice)).info.device).toBe('Radeon');
    expect((await chooseAdapter(gpu, { ...choice, allowSoftware: true })).info.device).toBe('Radeon');
  });

  it('takes software only when asked to', async () => {
    const gpu = gpuOf(info('SwiftShader', true));
    await expect(chooseAdapter(gpu, choice)).rejects.toMatchObject({
      code: 'no-adapter',
      message: expect.stringContaining('SwiftShader') as string,
    });
    expect((await chooseAdapter(gpu, { ...choice, allowSoftware: true })).info.device).toBe('SwiftShader');
  });

  it('finds an adapter by a part of its name, and names those there are', async () => {
    const gpu = gpuOf(info('GeForce RTX'));
    expect((await chooseAdapter(gpu, { ...choice, adapterName: 'rtx' })).info.device).toBe('GeForce RTX');
    await expect(chooseAdapter(gpu, { ...choice, adapterName: 'arc' })).rejects.toMatchObject({
      code: 'no-adapter',
      fix: expect.stringContaining('GeForce RTX') as string,
    });
  });

  it('says how to get one where there is none', async () => {
    await expect(chooseAdapter(gpuOf(), choice)).rejects.toMatchObject({
      code: 'no-adapter',
      fix: 'install a driver',
    });
  });
});

describe('readCapabilities', () => {
  it('says whether WGSL has products of packed bytes, and that it has none where it does not say', () => {
    const device = { features: new Set(), limits: {} } as unknown as GPUDevice;
    const adapter = { info: info('Radeon') } as unknown as GPUAdapter;
    const packed = (language: WGSLLanguageFeatures | undefined): boolean =>
      readCapabilities(language, adapter, device, 'default', false).packedDots;
    expect(packed(new Set(['packed_4x8_integer_dot_product']))).toBe(true);
    expect(packed(new Set(['pointer_composite_access']))).toBe(false);
    expect(packed(undefined)).toBe(false);
  });
});

describe('isSoftware', () => {
  it('knows software drivers that do not say so', () => {
    expect(isSoftware(info('llvmpipe (LLVM 15)') as GPUAdapterInfo)).toBe(true);
    expect(isSoftware(info('NVIDIA H200') as GPUAdapterInfo)).toBe(false);
  });
});
