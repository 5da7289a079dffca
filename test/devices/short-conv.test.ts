import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type DeviceSpec, kernelDevices } from './devices.js';
import { Random } from './numbers.js';
import { cut, type Part, RecurrentBench, randomRows, worst } from './recurrent-bench.js';
import * as recurrent from './recurrent-reference.js';
import { vectorSource } from './sources.js';

/** As LFM2 has it, and Qwen3.5; sizes that no piece of work divides. */
const CASES = [
  { name: 'LFM2', channels: 68, taps: 3, gated: true, biased: false, activation: null },
  { name: 'Qwen3.5', channels: 132, taps: 4, gated: false, biased: false, activation: 'silu' },
  { name: 'Mamba 2', channels: 260, taps: 4, gated: false, biased: true, activation: 'silu' },
  { name: 'two taps', channels: 4, taps: 2, gated: true, biased: true, activation: null },
  {
    name: 'some of the columns',
    channels: 12,
    taps: 4,
    gated: false,
    biased: false,
    activation: 'silu',
    from: 8,
  },
  {
    name: 'some of the columns, gated',
    channels: 8,
    taps: 3,
    gated: true,
    biased: true,
    activation: null,
    from: 4,
  },
] as const;

describe.each(kernelDevices)('short convolution on $name', (spec: DeviceSpec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(CASES)('as in $name', async ({ channels, taps, gated, biased, activation, ...more }) => {
    const from = 'from' in more ? more.from : undefined;
    const random = new Random(channels);
    const weight = random.normals(taps * channels);
    const bias = biased ? random.normals(channels) : null;
    const own = gated ? 3 * channels : channels;
    const cols = from === undefined ? own : from + own + 4;
    const vectors = {
      weight: await device.loadVector(vectorSource(weight)),
      bias: bias === null ? null : await device.loadVector(vectorSource(bias)),
    };
    const shape = { conv: { channels, taps }, matrix: null };
    await using bench = await RecurrentBench.create(device, shape, cols, (ops, [x]) =>
      ops.shortConv(x, {
        layer: 1,
        ...(from === undefined ? {} : { from }),
        taps,
        gated,
        activation,
        ...vectors,
      }),
    );
    const lengths = [1, 2, 3, 33, 70];
    const rows = lengths.map((length) => randomRows(length, length, cols));
    const whole = await bench.run(rows, [lengths.map((length, s) => [s, length] as Part)]);
    rows.forEach((all, s) => {
      const read = all.map((row) => row.subarray(from ?? 0, (from ?? 0) + own));
      const wanted = recurrent.shortConv(read, { taps, weight, bias, gated, activation });
      expect(worst(whole[s]!, wanted), `sequence ${s}`).toBeLessThan(2e-5);
    });
    // In pieces, each in company that changes, in other slots, with what they held before: the same bits.
    for (const most of [1, 2, 9]) {
      const parts = lengths.map((length) => cut(random, length, most));
      const steps: Part[][] = [];
      for (let i = 0; parts.some((own) => i < own.length); i++)
        steps.push(parts.flatMap((own, s) => (i < own.length ? [[s, own[i]!] as const] : [])).reverse());
      expect(await bench.run(rows, steps, [7, 2, 4, 0, 1])).toEqual(whole);
    }
    const alone = await bench.run([rows[4]!], [[[0, 40]], [[0, 30]]], [5]);
    expect(alone).toEqual([whole[4]]);
  });

  it('goes on from a state that was copied, and from one that was read and written', async () => {
    const [channels, taps] = [36, 4];
    const random = new Random(5);
    const weight = await device.loadVector(vectorSource(random.normals(taps * channels)));
    const shape = { conv: { channels, taps }, matrix: null };
    await using bench = await RecurrentBench.create(device, shape, channels, (ops, [x]) =>
      ops.shortConv(x, { layer: 1, taps, weight }),
    );
    const rows = randomRows(6, 20, channels);
    const [whole] = await bench.run([rows], [[[0, 20]]]);
    await bench.run([rows], [[[0, 11]]]);
    const at = RecurrentBench.slotOf;
    await bench.pool.copy(Uint32Array.of(at(0)), Uint32Array.of(at(3)));
    const [bytes] = await bench.pool.read(Uint32Array.of(at(0)));
    await bench.pool.write(Uint32Array.of(at(6)), [bytes!]);
    for (const slot of [3, 6]) {
      const [rest] = await bench.run([rows], [[[0, 1]], [[0, 8]]], [slot], [11]);
      expect(rest).toEqual(whole!.slice(11));
    }
  });

  it('refuses a layer without such a state', async () => {
    const weight = await device.loadVector(vectorSource(new Float32Array(12)));
    const make = (layer: number, taps: number): Promise<RecurrentBench> =>
      RecurrentBench.create(device, { conv: { channels: 4, taps: 4 }, matrix: null }, 12 / taps, (ops, [x]) =>
        ops.shortConv(x, { layer, taps, weight }),
      );
    await expect(make(1, 3)).rejects.toMatchObject({ code: 'shape-mismatch' });
    await expect(make(2, 3)).rejects.toMatchObject({ code: 'shape-mismatch' });
    await expect(make(1, 2)).rejects.toMatchObject({ code: 'shape-mismatch' });
  });
});
