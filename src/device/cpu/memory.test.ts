import { describe, expect, it } from 'vitest';
import { MemorySet, type MemorySetOptions } from './memory.js';

const MIB = 1024 * 1024;

function setOf(options: Partial<MemorySetOptions> = {}): MemorySet {
  return new MemorySet({
    memoryLimitBytes: MIB,
    totalBytes: 100 * MIB,
    spinTurns: 1,
    onMemory: () => {},
    ...options,
  });
}

describe('the memories of the CPU device', () => {
  it('hands out ranges on multiples of 64 that never overlap, and takes them back whole', () => {
    const set = setOf();
    const memory = set.memory(0);
    const empty = memory.freeBytes;
    const held: { at: number; bytes: number }[] = [];
    let state = 1;
    const random = (below: number): number => {
      state = (Math.imul(state, 1103515245) + 12345) >>> 0;
      return (state >>> 8) % below;
    };
    for (let n = 0; n < 2000; n++) {
      if (held.length > 0 && random(2) === 0) {
        const [range] = held.splice(random(held.length), 1);
        memory.free(range!.at);
      } else {
        const bytes = 1 + random(20_000);
        const at = memory.tryAllocate(bytes);
        if (at < 0) continue;
        expect(at % 64).toBe(0);
        for (const other of held) {
          expect(at + bytes <= other.at || other.at + other.bytes <= at).toBe(true);
        }
        held.push({ at, bytes });
        memory.u8(at, bytes).fill(n & 255);
      }
    }
    expect(memory.buffers).toBe(held.length);
    for (const { at } of held) memory.free(at);
    expect([memory.buffers, memory.bytes, memory.freeBytes]).toEqual([0, 0, empty]);
    // All free ranges have joined again.
    expect(memory.tryAllocate(empty)).toBeGreaterThan(0);
  });

  it('goes to the next memory when one is full, and says when none can hold it', () => {
    const seen: number[] = [];
    const set = setOf({ onMemory: (m) => seen.push(m.index) });
    const places = Array.from({ length: 5 }, () => set.allocate(400 * 1024).memory.index);
    expect(places).toEqual([0, 0, 1, 1, 2]);
    expect(seen).toEqual([0, 1, 2]);
    expect(() => set.allocate(2 * MIB)).toThrow(expect.objectContaining({ code: 'device-out-of-memory' }));
  });

  it('places groups in order, and refuses one that is larger than a memory', () => {
    const set = setOf();
    set.place([300, 300, 300, 500, 100].map((k) => k * 1024));
    const homes = [0, 1, 2, 3, 4].map((group) => set.allocate(100 * 1024, group).memory.index);
    expect(homes).toEqual([0, 0, 1, 1, 2]);
    expect(() => setOf().place([10, 2 * MIB])).toThrow(
      expect.objectContaining({ code: 'device-out-of-memory', message: expect.stringContaining('group 1') }),
    );
  });

  it('refuses more than the machine has', () => {
    const set = setOf({ totalBytes: MIB });
    expect(() => set.place([MIB / 2, MIB / 2, 1])).toThrow(
      expect.objectContaining({ code: 'device-out-of-memory' }),
    );
    set.allocate(MIB / 2);
    expect(() => set.allocate(MIB * 0.6)).toThrow(expect.objectContaining({ code: 'device-out-of-memory' }));
  });
});
