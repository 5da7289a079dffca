import { describe, expect, it } from 'vitest';
import { commandWords, f32Word, writeCommands } from './command.js';
import { enableRelaxedSimd, loadKernels } from './kernels.js';

describe('the kernel module', () => {
  it('is there with and without relaxed SIMD, and exports what threads call', async () => {
    const [plain, auto] = await Promise.all([loadKernels('simd128'), loadKernels('auto')]);
    expect(plain.relaxed).toBe(false);
    expect(auto.relaxed).toBe(enableRelaxedSimd());
    for (const { module } of [plain, auto]) {
      const memory = new WebAssembly.Memory({ initial: 2, maximum: 2, shared: true });
      const { exports } = new WebAssembly.Instance(module, { env: { memory, abort: () => {} } });
      for (const name of ['run', 'barrier', 'beginStep', 'endStep']) {
        expect((exports as Record<string, unknown>)[name]).toBeTypeOf('function');
      }
    }
  });
});

describe('commands in memory', () => {
  it('are heads and parameters on multiples of 16 bytes', () => {
    const commands = [
      { opcode: 7, words: [1, 2, f32Word(0.5), 4, 5] },
      { opcode: 9, words: [] },
      { opcode: 3, words: [0xffff_ffff] },
    ];
    expect(commandWords(commands)).toBe(12 + 4 + 8);
    const words = new Uint32Array(24).fill(77);
    writeCommands(words, commands);
    expect([...words]).toEqual([
      ...[7, 48, 0, 0, 1, 2, 0x3f00_0000, 4, 5, 0, 0, 0],
      ...[9, 16, 0, 0],
      ...[3, 32, 0, 0, 0xffff_ffff, 0, 0, 0],
    ]);
  });
});
