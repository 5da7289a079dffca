import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { commandWords, f32Word, writeCommands } from './command.js';
import { chooseKernels, loadKernels } from './kernels.js';
import type { DotProbe } from './probe.js';
import { enableRelaxedSimd } from './relaxed-simd.js';

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

describe('the choice of a build', () => {
  const never = async (): Promise<DotProbe> => {
    throw new Error('The probe ran.');
  };
  const found = (right: boolean, gain: number) => async () => ({ right, gain });

  it('takes 32-bit sums where they are right and faster', async () => {
    expect(await chooseKernels(true, '13.6.233.17-node.53', found(true, 1.3))).toBe('dot');
    expect(await chooseKernels(true, '12.4.254.21-node.57', found(true, 0.5))).toBe('relaxed');
    expect(await chooseKernels(true, '13.6.233.17-node.53', found(true, 1.02))).toBe('relaxed');
    expect(await chooseKernels(true, '13.6.233.17-node.53', found(false, 2))).toBe('relaxed');
  });

  it('asks nothing where the answer is known', async () => {
    expect(await chooseKernels(true, '11.3.244.8-node.38', never)).toBe('relaxed');
    expect(await chooseKernels(true, 'unknown', never)).toBe('relaxed');
    expect(await chooseKernels(false, '13.6.233.17-node.53', never)).toBe('simd128');
  });

  // In a process of its own: which compiler V8 uses is a flag of the process.
  const probe = (...flags: string[]): DotProbe => {
    const at = (name: string) => JSON.stringify(new URL(`../../../dist/device/cpu/${name}`, import.meta.url));
    const script = `
      import { readFile } from 'node:fs/promises';
      const { enableRelaxedSimd } = await import(${at('relaxed-simd.js')});
      const { probeDot } = await import(${at('probe.js')});
      enableRelaxedSimd();
      const load = async (url) => WebAssembly.compile(await readFile(new URL(url)));
      const found = await probeDot(
        await load(${at('wasm/kernels-relaxed.wasm')}), await load(${at('wasm/kernels-dot.wasm')}), 5);
      console.log(JSON.stringify(found));`;
    const out = execFileSync(process.execPath, [...flags, '--input-type=module', '-e', script]);
    return JSON.parse(out.toString()) as DotProbe;
  };
  const v8 = Number.parseInt(process.versions.v8, 10);

  it('finds 32-bit sums right with the optimising compiler', () => {
    const { right, gain } = probe('--no-liftoff');
    expect(right).toBe(true);
    expect(gain).toBeGreaterThan(0);
  });

  it.skipIf(v8 >= 12)('sees what the baseline compiler of V8 11 does to them', () => {
    expect(probe('--liftoff-only')).toEqual({ right: false, gain: 0 });
  });

  it('refuses what was asked for by name where it is wrong', async () => {
    const loaded = loadKernels('dot');
    if (v8 >= 12) expect((await loaded).file).toBe('dot');
    else await expect(loaded).rejects.toMatchObject({ code: 'simd-unavailable' });
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
