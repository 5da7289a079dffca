/** Blocks of every GGUF type, read back from the device: as rows of a table, and through products with one-hot rows. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device, Matrix } from '../../src/device/device.js';
import { GgufCheckpoint } from '../../src/weights/gguf-checkpoint.js';
import { readPacked } from '../fixtures/read-packed.js';
import { ggufBytes, string } from '../setup/gguf-writer.js';
import { devices } from './devices.js';
import { record, rowsStep, runOnce, withProgram } from './run.js';

type Fixture = Record<string, { readonly blocks: string; readonly values: string }>;
/** Made by gguf-py (scripts/fixtures/gguf_blocks.py): scales of 0, subnormal ones, negative ones, large ones. */
const fixture = readPacked('test/fixtures/weights/gguf-blocks.json.br') as Fixture;
const IDS: Record<string, number> = {
  ...{ Q4_0: 2, Q4_1: 3, Q5_0: 6, Q5_1: 7, Q8_0: 8 },
  ...{ Q2_K: 10, Q3_K: 11, Q4_K: 12, Q5_K: 13, Q6_K: 14, IQ4_NL: 20, IQ4_XS: 23, MXFP4: 39, NVFP4: 40 },
};
const COLS = 256;
/** Of a row of a real model. */
const LARGE_COLS = 4096;

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
});
afterAll(() => rm(folder, { recursive: true }));

async function loaded(
  device: Device,
  type: number,
  rows: number,
  data: Uint8Array,
  cols = COLS,
): Promise<Matrix> {
  const path = join(folder, 'blocks.gguf');
  const tensors = [{ name: 'w.weight', shape: [rows, cols], type, data }];
  await writeFile(path, ggufBytes({ metadata: { 'general.architecture': string('x') }, tensors }));
  await using file = await GgufCheckpoint.open(path);
  return await device.loadMatrix([file.matrix('w.weight', 'w')], { use: 'both' });
}

describe.each(devices.filter(({ precision }) => precision === 'reference'))(
  'GGUF blocks on $name',
  (spec) => {
    let device: Device;
    beforeAll(async () => {
      device = await spec.create();
    });
    afterAll(async () => {
      await device[Symbol.asyncDispose]();
    });

    it.each(Object.keys(IDS))('%s: every value is what gguf-py reads', async (name) => {
      const blocks = Buffer.from(fixture[name]!.blocks, 'base64');
      const all = new Float32Array(Uint8Array.from(Buffer.from(fixture[name]!.values, 'base64')).buffer);
      const rows = Math.floor(all.length / COLS);
      const wanted = all.subarray(0, rows * COLS);
      const bytes = (blocks.length / all.length) * wanted.length;
      const matrix = await loaded(device, IDS[name]!, rows, blocks.subarray(0, bytes));
      const { graph, tensors } = record((ops) => ({ y: ops.keep(ops.embed(matrix)) }));
      await withProgram(device, graph, null, async (program) => {
        const step = rowsStep(rows);
        for (let row = 0; row < rows; row++) step.tokens[row] = row;
        await program.submit(step);
        same(await program.read(tensors.y, rows), wanted);
      });
      // Column c of the weights is the product with a row that is 1 there.
      const some = 64;
      const hot = new Float32Array(some * COLS);
      for (let i = 0; i < some; i++) hot[i * COLS + ((i * 37) % COLS)] = 1;
      const out = await runOnce(device, some, { cols: COLS, data: hot }, (ops, x) => ops.linear(x, matrix));
      for (let i = 0; i < some; i++) {
        const column = Float32Array.from(
          { length: rows },
          (_, row) => wanted[row * COLS + ((i * 37) % COLS)]!,
        );
        same(out.subarray(i * rows, (i + 1) * rows), column);
      }
    });

    it.each(Object.entries(IDS))('%s: takes little more than the file', async (name, type) => {
      const fixed = fixture[name]!;
      const count = Buffer.from(fixed.values, 'base64').length / 4;
      const rows = 64;
      const fileBytes = (Buffer.from(fixed.blocks, 'base64').length / count) * rows * LARGE_COLS;
      const matrix = await loaded(device, type, rows, new Uint8Array(fileBytes), LARGE_COLS);
      expect(matrix.bytes / fileBytes).toBeLessThanOrEqual(1.05);
    });

    if (spec.kind === 'webgpu')
      it('refuses a scale whose bias overflows', async () => {
        const blocks = Buffer.alloc((2 * COLS * 34) / 32);
        blocks.writeUInt16LE(0x6000, blocks.length / 2);
        await expect(loaded(device, IDS.Q8_0!, 2, blocks)).rejects.toMatchObject({
          code: 'weights-not-exact',
          message: expect.stringContaining('row 1') as string,
        });
      });
  },
);

/** To the bit, but that -0 and 0 are one weight. */
function same(got: Float32Array, wanted: Float32Array): void {
  expect(got.length).toBe(wanted.length);
  for (let i = 0; i < wanted.length; i++)
    if (got[i] !== wanted[i]) expect.fail(`number ${i} is ${got[i]}, not ${wanted[i]}`);
}
