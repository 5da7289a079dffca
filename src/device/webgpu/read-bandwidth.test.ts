import { expect, it } from 'vitest';
import { openTestDevice } from '../../../test/setup/swiftshader.js';

it('measures the read bandwidth of a GPU and frees what it used', async () => {
  const { device } = await openTestDevice({});
  try {
    const before = device.stats();
    const rate = await device.measureReadBandwidth(2 ** 20, 1);
    expect(rate).toBeGreaterThan(1e5);
    expect(rate).toBeLessThan(1e14);
    expect(device.stats()).toEqual(before);
  } finally {
    await device[Symbol.asyncDispose]();
  }
});
