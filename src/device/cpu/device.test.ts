import { afterEach, describe, expect, it } from 'vitest';
import { F16, fill, LIMITS, loadModel, type Row, talk } from '../../../test/devices/cpu-decoder.js';
import { Random, roundF16, worstRow } from '../../../test/devices/numbers.js';
import * as reference from '../../../test/devices/reference.js';
import { record, rowsStep, setSampling, stepOf } from '../../../test/devices/run.js';
import { vectorSource } from '../../../test/devices/sources.js';
import { held } from '../../../test/setup/held.js';
import type { Device } from '../device.js';
import { StepInputs } from '../step.js';
import { type CpuDeviceOptions, createCpuDevice } from './index.js';

const opened: Device[] = [];
afterEach(async () => {
  for (const device of opened.splice(0)) await device[Symbol.asyncDispose]();
});

async function open(options: CpuDeviceOptions = {}): Promise<Device> {
  const device = await createCpuDevice({ threads: 2, ...options });
  opened.push(device);
  return device;
}

describe('the CPU device', () => {
  it('computes the same bits with any number of threads, and over several memories', async () => {
    const first = await talk(await loadModel(await open({ threads: 1 })));
    expect(first.logits.every(Number.isFinite)).toBe(true);
    expect(new Set(first.ids.flat()).size).toBeGreaterThan(5);
    for (const options of [{ threads: 2 }, { threads: 3 }, { threads: 5 }] as const) {
      expect(await talk(await loadModel(await open(options))), `${options.threads} threads`).toEqual(first);
    }
    // 1.25 MiB hold one layer with its KV, not two.
    const small = await open({ threads: 2, memoryLimitBytes: 1.25 * 2 ** 20 });
    const model = await loadModel(small);
    expect(await talk(model)).toEqual(first);
    const memories = new Set(
      (model.pool as unknown as { layers: { memory: object }[] }).layers.map((l) => l.memory),
    );
    expect(memories.size).toBeGreaterThan(2);
  });

  it('computes the same bits beyond 2 GiB of a memory', async () => {
    const first = await talk(await loadModel(await open()));
    const device = await open();
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
    const device = await open();
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
    const device = await open();
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
    const device = await open();
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
    const [a, b] = [await open(), await open()];
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
    const device = await open({ threads: 2 });
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

describe('f16 in the KV cache of the CPU device', () => {
  it('is exact, subnormals and rounding included; beyond ±65504 it saturates', async () => {
    const device = await open();
    const random = new Random(4);
    const shape = { heads: 1, kvHeads: 1, headDim: 28 };
    const pool = device.createKvPool({
      layers: [{ kvHeads: 1, headDim: 28, key: F16, value: F16, group: 0 }],
      blocks: 96,
      blockTokens: 16,
      slots: 96,
      maxBlocksPerSlot: 1,
    });
    const limits = { ...LIMITS, maxSequences: 96, maxContext: 16 };
    for (let slot = 0; slot < 96; slot++) pool.setBlocks(slot, 0, Uint32Array.of(95 - slot));
    const recorded = record((ops) => {
      const qkv = ops.input('tokens', 84);
      const out = ops.keep(
        ops.attend(ops.ropeAppend(qkv, { ...shape, layer: 0, rope: null }), { ...shape, layer: 0 }),
      );
      return { qkv, out };
    });
    const program = await device.compile(recorded.graph, limits, pool);
    // A token that sees itself alone gives its V as stored.
    const data = random.normals(96 * 84);
    const values: number[] = [];
    for (let row = 0; row < 96; row++) {
      for (let d = 0; d < 28; d++) {
        const kind = random.int(4);
        let v = random.normal() * 2 ** (random.int(45) - 28);
        // Halfway between two neighbours, in the normal and the subnormal range.
        if (kind === 0) v = (1 + (2 * random.int(1024) + 1) / 2048) * 2 ** (random.int(29) - 14);
        if (kind === 1) v = (random.int(1024) + 0.5) * 2 ** -24 * (random.int(2) * 2 - 1);
        v = Math.fround(v);
        values.push(v);
        data[row * 84 + 56 + d] = v;
      }
    }
    program.write(recorded.tensors.qkv, data);
    await program.submit(rowsStep(96, { ...limits, maxOutputs: 8 }));
    const out = await program.read(recorded.tensors.out, 96);
    const expected = values.map((v) => Math.max(-65504, Math.min(65504, roundF16(v))) + 0);
    expect([...out]).toEqual(expected);
  });
});

describe('exponentials on the CPU device', () => {
  it.each(['relaxed', 'simd128'] as const)('stay within 3e-7 over the whole range (%s)', async (simd) => {
    const device = await open({ simd });
    const half = 4096;
    const gates = Float32Array.from({ length: half }, (_, i) => -87 + (i * 174) / half);
    const recorded = record((ops) => {
      const x = ops.input('tokens', 2 * half);
      return { x, y: ops.keep(ops.glu(x, 'silu')) };
    });
    const program = await device.compile(recorded.graph, { ...LIMITS, maxTokens: 1 }, null);
    const data = new Float32Array(2 * half).fill(1, half);
    data.set(gates);
    program.write(recorded.tensors.x, data);
    await program.submit(rowsStep(1, { ...LIMITS, maxTokens: 1, maxOutputs: 1 }));
    const out = await program.read(recorded.tensors.y, 1);
    let worst = 0;
    // Far to the left silu is x e^x: the relative error is that of the exponential.
    gates.forEach((g, i) => {
      if (g === 0) return;
      const want = g / (1 + Math.exp(-g));
      worst = Math.max(worst, Math.abs(out[i]! - want) / Math.abs(want));
    });
    expect(worst).toBeLessThan(3e-7);
  });
});

describe('sampling from large vocabularies on the CPU device', () => {
  it('agrees with sorting in float64 where chunks and threads share a row', async () => {
    const vocab = 40_003;
    const random = new Random(77);
    const logits: Float32Array[] = [];
    const rows: reference.SamplingRow[] = [];
    const base = { seed: [5, 9] as const, position: 3 };
    const add = (scale: number, row: reference.SamplingRow, shape?: (l: Float32Array) => void): void => {
      const l = random.normals(vocab, scale);
      shape?.(l);
      logits.push(l);
      rows.push(row);
    };
    add(3, { temperature: 0 });
    add(3, { ...base, temperature: 1 });
    add(3, { ...base, temperature: 0.7, topP: 0.9 });
    // Flat: what is kept does not lie near the largest, or is all one value.
    add(0.01, { ...base, temperature: 30, topP: 0.999 });
    add(3, { ...base, temperature: 0.2, topK: 30_000 });
    add(1, { ...base, temperature: 1, topK: 17, topP: 0.5 }, (l) => l.fill(2));
    add(1, { ...base, temperature: 1, topP: 0.3 }, (l) => l.fill(-7));
    add(4, { ...base, temperature: 1.3, minP: 0.02 }, (l) => {
      for (let i = 0; i < vocab; i += 3) l[i] = Number.NEGATIVE_INFINITY;
    });
    const wanted = logits.map((l, r) => reference.sample(l, rows[r]!));
    let first: number[] | null = null;
    for (const threads of [1, 2, 3]) {
      const device = await open({ threads });
      const { graph, tensors } = record((ops) => {
        const x = ops.input('outputs', vocab);
        ops.sample(x);
        return x;
      });
      const program = await device.compile(graph, LIMITS, null);
      const data = new Float32Array(logits.length * vocab);
      logits.forEach((l, r) => {
        data.set(l, r * vocab);
      });
      program.write(tensors, data);
      const step = rowsStep(logits.length, LIMITS);
      rows.forEach((row, r) => {
        setSampling(step, r, row);
      });
      const ids = [...(await program.submit(step)).ids];
      first ??= ids;
      expect(ids).toEqual(first);
      wanted.forEach((want, r) => {
        expect(want.kept.has(ids[r]!), `row ${r}`).toBe(true);
        if (want.margin > 1e-5) expect(ids[r], `row ${r}`).toBe(want.token);
      });
    }
    expect(wanted.filter((w) => w.margin > 1e-5).length).toBeGreaterThan(4);
  });
});

describe('attention on the CPU device', () => {
  it('is the same in bits for any threads, blocks and cut of the prompt, over many splits', async () => {
    const [heads, kvHeads, headDim, total] = [6, 2, 64, 1200];
    const width = (heads + 2 * kvHeads) * headDim;
    const data = new Random(5).normals(total * width);
    const shape = { heads, kvHeads, headDim };
    const limits = { ...LIMITS, maxTokens: 600, maxContext: 1280 };
    let wanted: Float32Array | null = null;
    let history: Float64Array[] | null = null;
    for (const [threads, blockTokens, window, cut] of [
      [1, 16, null, 600],
      [2, 64, null, 100],
      [5, 32, null, 599],
      [3, 16, 300, 250],
      [1, 64, 300, 600],
    ] as const) {
      if (window !== null && history !== null) {
        wanted = null;
        history = null;
      }
      const device = await open({ threads });
      const pool = device.createKvPool({
        layers: [{ kvHeads, headDim, key: F16, value: F16, group: 0 }],
        blocks: 1280 / blockTokens,
        blockTokens,
        slots: 1,
        maxBlocksPerSlot: 1280 / blockTokens,
      });
      pool.setBlocks(
        0,
        0,
        Uint32Array.from({ length: 1280 / blockTokens }, (_, i) => 1280 / blockTokens - 1 - i),
      );
      const recorded = record((ops) => {
        const qkv = ops.input('tokens', width);
        const q = ops.ropeAppend(qkv, { ...shape, layer: 0, rope: null });
        return { qkv, out: ops.keep(ops.attend(q, { ...shape, layer: 0, window })) };
      });
      const program = await device.compile(recorded.graph, limits, pool);
      const out = new Float32Array(total * heads * headDim);
      // The last 20 tokens are decoded one by one.
      const lengths: number[] = [];
      for (let at = 0; at < total - 20; at += cut) lengths.push(Math.min(cut, total - 20 - at));
      for (let n = 0; n < 20; n++) lengths.push(1);
      let at = 0;
      for (const length of lengths) {
        program.write(recorded.tensors.qkv, data.slice(at * width, (at + length) * width));
        const step = new StepInputs(600, 8, 8);
        step.seqLength[0] = length;
        step.seqPosition[0] = at;
        step.tokenCount = length;
        step.sequenceCount = 1;
        await program.submit(step);
        out.set(await program.read(recorded.tensors.out, length), at * heads * headDim);
        at += length;
      }
      if (wanted === null) {
        wanted = out;
        // A few rows against float64, from stored keys and values.
        const stored = (row: number, h: number): Float64Array =>
          Float64Array.from({ length: headDim }, (_, d) =>
            roundF16(data[row * width + (heads + h) * headDim + d]!),
          );
        history = [];
        for (const row of [0, 1, 255, 256, 700, total - 1]) {
          for (const h of [0, heads - 1]) {
            const kv = Math.floor(h / (heads / kvHeads));
            const positions = Array.from({ length: row + 1 }, (_, i) => i);
            const expected = reference.attendOne(
              data.subarray(row * width + h * headDim, row * width + (h + 1) * headDim),
              positions.map((t) => stored(t, kv)),
              positions.map((t) => stored(t, kvHeads + kv)),
              { scale: 1 / Math.sqrt(headDim), window },
            );
            history.push(expected);
            const got = out.subarray((row * heads + h) * headDim, (row * heads + h + 1) * headDim);
            expect(worstRow(got, expected, 1, headDim), `row ${row} head ${h}`).toBeLessThan(2e-5);
          }
        }
      } else {
        expect(
          Buffer.from(out.buffer).equals(Buffer.from(wanted.buffer)),
          `${threads} threads, cut ${cut}`,
        ).toBe(true);
      }
    }
  });

  it('leaves out prompt tokens of which nothing is read, and no others', async () => {
    const [heads, kvHeads, headDim] = [4, 2, 32];
    const shape = { heads, kvHeads, headDim };
    const width = (heads + 2 * kvHeads) * headDim;
    const limits = { ...LIMITS, maxTokens: 400 };
    const lengths = [300, 5, 1, 60];
    const device = await open({ threads: 2 });
    const pool = device.createKvPool({
      layers: [{ kvHeads, headDim, key: F16, value: F16, group: 0 }],
      blocks: 4 * 20,
      blockTokens: 16,
      slots: 4,
      maxBlocksPerSlot: 20,
    });
    for (let slot = 0; slot < 4; slot++) {
      pool.setBlocks(
        slot,
        0,
        Uint32Array.from({ length: 20 }, (_, i) => i * 4 + slot),
      );
    }
    const step = stepOf(lengths, undefined, undefined, limits);
    const data = new Random(8).normals(step.tokenCount * width);
    const run = async (outputs: readonly number[], select: boolean): Promise<Float32Array> => {
      const { graph, tensors } = record((ops) => {
        const qkv = ops.input('tokens', width);
        const all = ops.attend(ops.ropeAppend(qkv, { ...shape, layer: 0, rope: null }), {
          ...shape,
          layer: 0,
        });
        return { qkv, out: ops.keep(select ? ops.selectOutputs(all) : all) };
      });
      const program = await device.compile(graph, limits, pool);
      program.write(tensors.qkv, data);
      outputs.forEach((token, i) => {
        step.outputs[i] = token;
      });
      step.outputCount = outputs.length;
      await program.submit(step);
      const out = await program.read(tensors.out, select ? outputs.length : step.tokenCount);
      await program.dispose();
      return out;
    };
    expect(await run([], true)).toHaveLength(0);
    const cases = [[47], [48, 0], [299, 304, 305, 365], [150, 300, 306, 149]];
    const chosen: Float32Array[] = [];
    for (const outputs of cases) chosen.push(await run(outputs, true));
    const all = await run([], false);
    cases.forEach((outputs, n) => {
      outputs.forEach((token, i) => {
        const row = (from: Float32Array, r: number): Float32Array =>
          from.slice(r * heads * headDim, (r + 1) * heads * headDim);
        expect(row(chosen[n]!, i), `token ${token}`).toEqual(row(all, token));
      });
    });
  });
});
