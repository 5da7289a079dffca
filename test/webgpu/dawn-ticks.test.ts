/** That Dawn's way of waiting is still the one that `dawn-ticks.ts` looks out for: another release may wait otherwise. */
import { afterEach, expect, it } from 'vitest';
import { isDawnTick } from '../../src/device/webgpu/dawn-ticks.js';
import { kernelDevices } from '../devices/devices.js';

const original = globalThis.setImmediate;
afterEach(() => {
  globalThis.setImmediate = original;
});

/** Counts what is asked of `setImmediate`, by Dawn and by others, before it does as it did. */
function count(): { dawn: number; others: number } {
  const seen = { dawn: 0, others: 0 };
  const inner = globalThis.setImmediate;
  const counting = (...asked: Parameters<typeof setImmediate>): NodeJS.Immediate => {
    if (isDawnTick(asked[0], asked.length - 1)) seen.dawn++;
    else seen.others++;
    return inner(...asked);
  };
  globalThis.setImmediate = Object.defineProperties(
    counting,
    Object.getOwnPropertyDescriptors(original),
  ) as typeof setImmediate;
  return seen;
}

it('Dawn asks kvant when to look again, and never Node', async () => {
  const node = count();
  const device = await kernelDevices.find(({ kind }) => kind === 'webgpu')!.create(true);
  const kvant = count();
  const format = { kind: 'float', dtype: 'f32' } as const;
  const pool = device.createKvPool({
    layers: [{ kvHeads: 1, headDim: 64, key: format, value: format, group: 0 }],
    blocks: 4,
    blockTokens: 16,
    slots: 1,
    maxBlocksPerSlot: 4,
  });
  await pool.prepare('transfer');
  await pool.read(Uint32Array.of(1));
  pool.dispose();
  await device[Symbol.asyncDispose]();
  expect(kvant.dawn).toBeGreaterThan(0);
  expect(node.dawn).toBe(0);
  expect(node.others).toBeGreaterThan(0);
});
