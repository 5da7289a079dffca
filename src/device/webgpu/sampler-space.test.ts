import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openTestDevice } from '../../../test/setup/swiftshader.js';
import { Allocator } from './allocator.js';
import type { WebGpuDevice } from './device.js';
import { SamplerSpace } from './sampler-space.js';

describe('SamplerSpace', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice());
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  function open(most = 1 << 24) {
    const changes: (number | null)[] = [];
    const allocator = new Allocator(raw);
    const space = new SamplerSpace(raw, allocator, most, (buffer) => changes.push(buffer?.size ?? null));
    return { space, allocator, changes };
  }

  async function words(buffer: GPUBuffer, at: number): Promise<Uint32Array> {
    const staging = raw.createBuffer({ size: 16, usage: 1 | 8 });
    const encoder = raw.createCommandEncoder();
    encoder.copyBufferToBuffer(buffer, at * 16, staging, 0, 16);
    raw.queue.submit([encoder.finish()]);
    await staging.mapAsync(1);
    const out = new Uint32Array(staging.getMappedRange()).slice();
    staging.destroy();
    return out;
  }

  it('is there from the first stretch to the last, and nobody has vector 0', async () => {
    const { space, allocator, changes } = open();
    expect(space.bytes).toBe(0);
    const a = await space.take(100);
    const b = await space.take(50);
    expect(a.at).toBeGreaterThan(0);
    expect(b.at).toBe(a.at + 100);
    expect(space.bytes).toBe(allocator.bytes);
    space.give(a);
    expect(changes).toEqual([1 << 20]);
    space.give(b);
    expect(changes).toEqual([1 << 20, null]);
    expect(space.bytes).toBe(0);
    expect(allocator.buffers).toBe(0);
  });

  it('gives what was given back to who comes next, in one piece', async () => {
    const { space, changes } = open();
    const all = [];
    for (let i = 0; i < 6; i++) all.push(await space.take(10_000));
    for (const i of [3, 1, 2]) space.give(all[i]!);
    expect((await space.take(30_000)).at).toBe(all[1]!.at);
    expect(changes).toEqual([1 << 20]);
    space.dispose();
  });

  it('grows by doubling and keeps what stands in it', async () => {
    const { space, allocator, changes } = open();
    const a = await space.take(60_000);
    raw.queue.writeBuffer(space.buffer, a.at * 16, Uint32Array.of(1, 2, 3, 4));
    const b = await space.take(200_000);
    expect(b.at).toBeGreaterThanOrEqual(a.at + a.length);
    expect(changes).toEqual([1 << 20, 1 << 23]);
    expect([...(await words(space.buffer, a.at))]).toEqual([1, 2, 3, 4]);
    expect(allocator.buffers).toBe(1);
    space.dispose();
  });

  it('refuses more than a binding holds, and stays as it was', async () => {
    const { space } = open(1 << 21);
    const a = await space.take(60_000);
    const { bytes } = space;
    await expect(space.take(200_000)).rejects.toMatchObject({ code: 'device-out-of-memory' });
    expect(space.bytes).toBe(bytes);
    space.give(a);
    expect(space.bytes).toBe(0);
  });
});
