/** What numbers become on the CPU device: halves in the cache, exponentials, draws from large vocabularies. */

import { describe, expect, it } from 'vitest';
import { F16, LIMITS } from '../../../test/devices/cpu-decoder.js';
import { Random, roundF16 } from '../../../test/devices/numbers.js';
import { openCpu } from '../../../test/devices/open-cpu.js';
import * as reference from '../../../test/devices/reference.js';
import { record, rowsStep, setSampling } from '../../../test/devices/run.js';

describe('f16 in the KV cache of the CPU device', () => {
  it('is exact, subnormals and rounding included; beyond ±65504 it saturates', async () => {
    const device = await openCpu();
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
    const device = await openCpu({ simd });
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
      const device = await openCpu({ threads });
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
