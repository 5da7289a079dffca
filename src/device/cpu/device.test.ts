import { describe, expect, it } from 'vitest';
import { F16, fill, LIMITS, loadModel, type Row, talk } from '../../../test/devices/cpu-decoder.js';
import { Random } from '../../../test/devices/numbers.js';
import { openCpu } from '../../../test/devices/open-cpu.js';
import { record, rowsStep } from '../../../test/devices/run.js';
import { vectorSource } from '../../../test/devices/sources.js';
import { held } from '../../../test/setup/held.js';
import { StepInputs } from '../step.js';
import { createCpuDevice } from './index.js';

describe('the CPU device', () => {
  it('computes the same bits with any number of threads, and over several memories', async () => {
    const first = await talk(await loadModel(await openCpu({ threads: 1 })));
    expect(first.logits.every(Number.isFinite)).toBe(true);
    expect(new Set(first.ids.flat()).size).toBeGreaterThan(5);
    for (const options of [{ threads: 2 }, { threads: 3 }, { threads: 5 }] as const) {
      expect(await talk(await loadModel(await openCpu(options))), `${options.threads} threads`).toEqual(
        first,
      );
    }
    // 1.25 MiB hold one layer with its KV, not two.
    const small = await openCpu({ threads: 2, memoryLimitBytes: 1.25 * 2 ** 20 });
    const model = await loadModel(small);
    expect(await talk(model)).toEqual(first);
    const memories = new Set(
      (model.pool as unknown as { layers: { memory: object }[] }).layers.map((l) => l.memory),
    );
    expect(memories.size).toBeGreaterThan(2);
  });

  it('computes the same bits beyond 2 GiB of a memory', async () => {
    const first = await talk(await loadModel(await openCpu()));
    const device = await openCpu();
    // Never touched, so it takes addresses and no memory.
    const layers = [{ kvHeads: 8, headDim: 128, key: F16, value: F16, group: 0 }];
    const blocks = Math.ceil(2 ** 31 / (16 * 8 * 128 * 4));
    device.createKvPool({ layers, blocks, blockTokens: 16, slots: 1, maxBlocksPerSlot: 1 });
    const model = await loadModel(device);
    expect((model.pool as unknown as { layers: { store: number }[] }).layers[0]!.store).toBeGreaterThan(
      2 ** 31,
    );
    expect(await talk(model)).toEqual(first);
  });

  it('frees what a program and a pool took', async () => {
    const device = await openCpu();
    const model = await loadModel(device);
    const before = held(device);
    const { graph } = record((ops) => ops.keep(ops.add(ops.input('tokens', 5), ops.input('tokens', 5))));
    const program = await device.compile(graph, LIMITS, null);
    expect(device.stats().bytes).toBeGreaterThan(before.bytes);
    await program.dispose();
    expect({ ...held(device), plans: 0 }).toEqual({ ...before, plans: 0 });
    await model.program.dispose();
    model.pool.dispose();
    expect(device.stats().bytes).toBeLessThan(before.bytes);
    expect(device.stats().bytes).toBeGreaterThan(0);
  });

  it('holds buffers, bytes and plans flat over 10,000 steps', async () => {
    const device = await openCpu();
    const { graph, tensors } = record((ops) => {
      const x = ops.input('outputs', 8);
      ops.sample(x);
      return x;
    });
    const program = await device.compile(graph, LIMITS, null);
    program.write(tensors, new Random(3).normals(8 * 4));
    const step = rowsStep(4, LIMITS);
    let pending = program.submit(step);
    const before = held(device);
    for (let n = 0; n < 10_000; n++) {
      const next = program.submit(step);
      expect((await pending).ids.length).toBe(4);
      pending = next;
    }
    await pending;
    expect(held(device)).toEqual(before);
  });

  it('refuses a step outside its limits, and runs the next', async () => {
    const device = await openCpu();
    const { program } = await loadModel(device);
    const good = { slot: 1, position: 0, tokens: [1, 2, 3] };
    const step = (rows: Row[], change: (s: StepInputs) => void = () => {}): StepInputs => {
      const s = fill(new StepInputs(2000, 16, 16), rows);
      change(s);
      return s;
    };
    const bad = [
      step([{ ...good, tokens: Array.from({ length: 97 }, () => 1) }]),
      step([{ ...good, position: 510 }]),
      step([{ ...good, slot: 6 }]),
      step([good], (s) => {
        s.outputs[0] = 3;
      }),
      step([good], (s) => {
        s.seqStart[0] = 1;
      }),
      step([good], (s) => {
        s.seqLength[0] = 2;
      }),
      step(Array.from({ length: 9 }, (_, i) => ({ ...good, slot: i % 6, tokens: [1] }))),
    ];
    for (const s of bad) await expect(program.submit(s)).rejects.toMatchObject({ code: 'invalid-step' });
    const full = Array.from({ length: LIMITS.inFlight }, () => program.submit(step([good])));
    await expect(program.submit(step([good]))).rejects.toMatchObject({ code: 'invalid-step' });
    await Promise.all(full);
    expect((await program.submit(step([good]))).ids).toHaveLength(1);
  });

  it('refuses objects of another device, wrong options, and blocks that are not there', async () => {
    const [a, b] = [await openCpu(), await openCpu()];
    const vector = await a.loadVector(vectorSource(new Float32Array(4)));
    const { graph } = record((ops) => ops.rmsNorm(ops.input('tokens', 4), vector, 1e-6));
    await expect(b.compile(graph, LIMITS, null)).rejects.toMatchObject({ code: 'foreign-object' });
    await expect(createCpuDevice({ threads: 0 })).rejects.toMatchObject({ code: 'invalid-option' });
    await expect(createCpuDevice({ memoryLimitBytes: 10 })).rejects.toMatchObject({ code: 'invalid-option' });
    const layers = [{ kvHeads: 1, headDim: 64, key: F16, value: F16, group: 0 }];
    const spec = { layers, blocks: 4, blockTokens: 16, slots: 2, maxBlocksPerSlot: 3 };
    const pool = a.createKvPool(spec);
    expect(() => pool.setBlocks(0, 0, Uint32Array.of(4))).toThrow(/block 4/);
    expect(() => pool.setBlocks(2, 0, Uint32Array.of(0))).toThrow(/slot 2/);
    expect(() => pool.setBlocks(0, 2, Uint32Array.of(0, 1))).toThrow(/slot 0/);
    expect(() => a.createKvPool({ ...spec, blockTokens: 24 })).toThrow(/24 tokens/);
  });

  it('refuses everything once it is disposed of', async () => {
    const device = await openCpu({ threads: 2 });
    const { program } = await loadModel(device);
    const step = fill(new StepInputs(96, 8, 8), [{ slot: 0, position: 0, tokens: [1] }]);
    await program.submit(step);
    await device[Symbol.asyncDispose]();
    await expect(program.submit(step)).rejects.toMatchObject({ code: 'device-lost' });
    await expect(device.loadVector(vectorSource(new Float32Array(4)))).rejects.toMatchObject({
      code: 'device-lost',
    });
  });
});
