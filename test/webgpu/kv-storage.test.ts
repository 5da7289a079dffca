/**
 * What a block of a WebGPU pool holds under its name, word by word: prefixes on disk are read back for as long as the name
 * stays. Whoever lays codes otherwise gives `GpuKvPool.storage` another name.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Device } from '../../src/device/device.js';
import { type KvFormat, kvCodeBytes, kvFormatName } from '../../src/device/kv.js';
import { kvPlanes } from '../../src/device/kv-block.js';
import { devices } from '../devices/devices.js';
import { affine, turbo } from '../devices/kv-cases.js';
import { encodeVector } from '../devices/kv-codec.js';
import { sideBit, storedCodes } from '../devices/kv-words.js';
import { Random } from '../devices/numbers.js';
import { LIMITS, record, stepOf } from '../devices/run.js';

const TOKENS = 16;
const KV_HEADS = 2;
/** Runs of 32 codes alone, and with a shorter one behind; and values that lie transposed. */
const CASES: readonly (readonly [format: KvFormat, headDim: number])[] = [
  [turbo(2), 64],
  [turbo(3), 80],
  [turbo(4), 64],
  [turbo(4), 80],
  [turbo(4), 128],
  [turbo(8), 64],
  [affine(2), 64],
  [affine(3), 64],
  [affine(4), 128],
  [affine(5, 32), 64],
  [affine(6), 64],
  [affine(8), 64],
];

describe.each(devices.filter(({ kind }) => kind === 'webgpu'))('blocks of $name', (spec) => {
  let device: Device;
  beforeAll(async () => {
    device = await spec.create();
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  it.each(CASES.map(([format, headDim]) => [kvFormatName(format), headDim, format] as const))(
    '%s × %i',
    async (_, headDim, format) => {
      const random = new Random(headDim);
      /** Where no rounding of a device decides a code. */
      const clear = (side: 'key' | 'value'): Float32Array => {
        for (;;) {
          const vector = random.normals(headDim);
          if (encodeVector(format, side, vector).margin > 1e-5) return vector;
        }
      };
      const vectors = { key: [] as Float32Array[], value: [] as Float32Array[] };
      const row = 3 * KV_HEADS * headDim;
      const data = new Float32Array(TOKENS * row);
      for (let t = 0; t < TOKENS; t++)
        for (const [i, side] of (['key', 'value'] as const).entries())
          for (let h = 0; h < KV_HEADS; h++) {
            const vector = clear(side);
            vectors[side].push(vector);
            data.set(vector, t * row + ((i + 1) * KV_HEADS + h) * headDim);
          }

      const layer = { kvHeads: KV_HEADS, headDim, key: format, value: format, group: 0 };
      const pool = device.createKvPool({
        layers: [layer],
        blocks: 4,
        floatStart: null,
        blockTokens: TOKENS,
        slots: 1,
        maxBlocksPerSlot: 2,
      });
      expect(pool.storage).toBe('webgpu-5');
      const { graph, tensors } = record((ops) => {
        const qkv = ops.input('tokens', row);
        const shape = { layer: 0, heads: KV_HEADS, kvHeads: KV_HEADS, headDim, norm: null, rope: null };
        ops.keep(ops.ropeAppend(qkv, shape));
        return qkv;
      });
      const program = await device.compile(graph, LIMITS, pool);
      pool.setBlocks(0, 0, Uint32Array.of(3));
      // Over what was there: nothing of it stays.
      for (const stored of [data.map((value) => -value), data]) {
        program.write(tensors, stored);
        await program.submit(stepOf([TOKENS], [0], [0]));
      }
      const [bytes] = await pool.read(Uint32Array.of(3));
      await program.dispose();

      if (format.kind === 'float') throw new Error('no codes');
      const words = kvCodeBytes(format, headDim) / 4;
      for (const plane of kvPlanes(pool.spec, false).filter(({ part }) => part === 'codes')) {
        const stored = new Uint32Array(bytes!.slice(plane.at, plane.at + plane.bytes).buffer);
        const wanted = new Uint32Array(stored.length);
        const numbers = storedCodes(format, headDim, plane.side);
        vectors[plane.side].forEach((vector, i) => {
          const [token, head] = [Math.floor(i / KV_HEADS), i % KV_HEADS];
          const row = head * TOKENS + token;
          encodeVector(format, plane.side, vector).codes.forEach((code, d) => {
            for (let b = 0; b < format.bits; b++) {
              const at = sideBit(format, plane.side, headDim, words, row, d, b);
              wanted[at >> 5]! |= ((numbers[code]! >> b) & 1) << (at & 31);
            }
          });
        });
        expect([...stored], plane.side).toEqual([...wanted]);
      }
      pool.dispose();
    },
  );
});
