/** Attention on the CPU device: bits that nothing but the sequence decides, and work that is left out. */

import { describe, expect, it } from 'vitest';
import { F16, LIMITS } from '../../../test/devices/cpu-decoder.js';
import { Random, roundF16, worstRow } from '../../../test/devices/numbers.js';
import { openCpu } from '../../../test/devices/open-cpu.js';
import * as reference from '../../../test/devices/reference.js';
import { record, stepOf } from '../../../test/devices/run.js';
import { StepInputs } from '../step.js';

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
      const device = await openCpu({ threads });
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
    const device = await openCpu({ threads: 2 });
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
