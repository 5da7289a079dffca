import { describe, expect, it } from 'vitest';
import { chooseDevice } from './device-choice.js';

const wanted = {
  precision: 'reference',
  deterministic: undefined,
  threads: 1,
  cpuExperts: undefined,
  allowSoftwareGpu: false,
} as const;

describe('chooseDevice', () => {
  it('takes the device that was named', async () => {
    const { device, reason } = await chooseDevice({ ...wanted, device: 'cpu' });
    expect(device.info).toMatchObject({ kind: 'cpu', precision: 'reference' });
    expect(reason).toBe('cpu was asked for');
    await device[Symbol.asyncDispose]();
  });

  it('auto takes a GPU if there is one, else the CPU, and says why', async () => {
    const { device, reason } = await chooseDevice({ ...wanted, device: 'auto' });
    expect(reason).toMatch(
      device.info.kind === 'webgpu' ? /^auto: there is a GPU \(/ : /^auto: no GPU can be used\. ./,
    );
    // A GPU in software is never taken unasked.
    expect(device.info.name).not.toMatch(/swiftshader|llvmpipe/i);
    await device[Symbol.asyncDispose]();
  });
});
