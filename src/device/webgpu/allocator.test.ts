import { describe, expect, it } from 'vitest';
import { Allocator } from './allocator.js';

/** A GPU with so much memory, which reports as WebGPU does: through the error scope, later. */
class SmallGpu {
  readonly limits = { maxBufferSize: 1000 };
  destroyed = 0;
  #room: number;
  #scopes: (object | null)[] = [];
  constructor(room: number) {
    this.#room = room;
  }
  pushErrorScope(): void {
    this.#scopes.push(null);
  }
  popErrorScope(): Promise<object | null> {
    return Promise.resolve(this.#scopes.pop()!);
  }
  createBuffer({ size }: { size: number }): object {
    this.#room -= size;
    if (this.#room < 0) this.#scopes[this.#scopes.length - 1] = { message: 'no memory' };
    return { size, destroy: () => this.destroyed++ };
  }
}

function allocator(room: number): { gpu: SmallGpu; allocator: Allocator } {
  const gpu = new SmallGpu(room);
  return { gpu, allocator: new Allocator(gpu as unknown as GPUDevice) };
}

describe('Allocator', () => {
  it('counts what is live, in whole vectors of 16 bytes', async () => {
    const { gpu, allocator: a } = allocator(1000);
    const first = a.create('a', 1, 128);
    const second = a.create('b', 33, 128);
    await a.settle();
    expect([a.buffers, a.bytes, a.created]).toEqual([2, 16 + 48, 2]);
    a.destroy(first);
    a.destroy(first);
    expect([a.buffers, a.bytes, a.created, gpu.destroyed]).toEqual([1, 48, 2, 1]);
    a.destroy(second);
    expect([a.buffers, a.bytes]).toEqual([0, 0]);
  });

  it('says which allocation found no room, once', async () => {
    const { allocator: a } = allocator(100);
    a.create('weights', 64, 128);
    a.create('cache', 64, 128);
    await expect(a.settle()).rejects.toMatchObject({ code: 'device-out-of-memory', where: 'cache' });
    await expect(a.settle()).resolves.toBeUndefined();
  });

  it('refuses at once what no buffer can hold', () => {
    const { allocator: a } = allocator(1e6);
    expect(() => a.create('huge', 1001, 128)).toThrowError(
      expect.objectContaining({ code: 'device-out-of-memory', where: 'huge' }),
    );
    expect(a.buffers).toBe(0);
  });
});
