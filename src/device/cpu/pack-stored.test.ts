import { describe, expect, it } from 'vitest';
import { FORMATS } from '../../../test/devices/cpu-builds.js';
import { testMatrix } from '../../../test/devices/cpu-products.js';
import { Random } from '../../../test/devices/numbers.js';
import { formatLabel } from '../../../test/devices/sources.js';
import { blockFormat } from '../../weights/gguf-blocks.js';
import { ggufType } from '../../weights/gguf-types.js';
import { unpackBlocks } from '../blocks/unpack.js';
import type { BlockType } from '../blocks/unpackers.js';
import type { MatrixRows, MatrixSource, StoredRows } from '../weights.js';
import { columnUnit, roomBytes, roomRows, rowBytes } from '../weights.js';
import { packMatrix, stackedBytes } from './pack.js';

/** Of GGUF: those whose rows have nothing beside their blocks. */
const TYPES = [0, 1, 30, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 20, 23, 39].map((id) => ggufType(id)!);
/** Where the f16 numbers of a block are. */
const HALVES: Record<string, readonly number[]> = {
  ...{ Q4_0: [0], Q4_1: [0, 2], Q5_0: [0], Q5_1: [0, 2], Q8_0: [0], Q2_K: [80, 82], Q3_K: [108] },
  ...{ Q4_K: [0, 2], Q5_K: [0, 2], Q6_K: [208], IQ4_NL: [0], IQ4_XS: [0], F16: [0] },
};

const memory = new WebAssembly.Memory({ initial: 64, maximum: 64, shared: true });
const AT = 1 << 21;
const scratch = () => 1024;

interface Stored {
  readonly source: MatrixSource;
  /** Rows as they are stored. */
  readonly bytes: Uint8Array;
}

/** Random blocks, f16 numbers of all sizes, subnormal ones and zeros too. `within`: rows are in reverse order within so many. */
function stored(type: (typeof TYPES)[number], rows: number, cols: number, seed: number, within = 0): Stored {
  const random = new Random(seed);
  const rowBytes = (cols / type.elements) * type.bytes;
  const bytes = Uint8Array.from({ length: rows * rowBytes }, () => random.int(256));
  const view = new DataView(bytes.buffer);
  for (let at = 0, block = 0; at < bytes.length; at += type.bytes, block++) {
    const top = [0x7b, 0x3f, 0x03][Math.floor((block * type.elements) / cols) % 3]!;
    for (const half of HALVES[type.name] ?? [])
      view.setUint16(at + half, random.int(9) === 0 ? 0 : random.int(top << 8) | (random.int(2) << 15), true);
    if (type.name === 'MXFP4') bytes[at] = random.int(255);
    if (type.name === 'F32') view.setFloat32(at, random.uniform() - 0.5, true);
    if (type.name === 'BF16') view.setUint16(at, random.int(0x7f80), true);
  }
  const format = blockFormat(type.name)!;
  const of = (row: number): number => row - (row % within) + within - 1 - (row % within);
  const order = within > 0 ? { within, of } : undefined;
  const readRows = async (start: number, end: number): Promise<MatrixRows> => {
    const own = new Uint8Array((end - start) * rowBytes);
    for (let row = start; row < end; row++) {
      const from = (order === undefined ? row : of(row)) * rowBytes;
      own.set(bytes.subarray(from, from + rowBytes), (row - start) * rowBytes);
    }
    if (format.kind === 'float') return { data: own };
    const out = roomRows(new ArrayBuffer(roomBytes(cols, format, end - start)), cols, format, end - start);
    unpackBlocks(type.name as BlockType, own, own.length / type.bytes, out);
    return out;
  };
  const itself: StoredRows = {
    type: format.kind === 'float' ? 'floats' : (type.name as BlockType),
    rowBytes,
    rowBlocks: format.kind === 'float' ? 0 : cols / type.elements,
    order,
    readInto: async (start, end, into) => into.set(bytes.subarray(start * rowBytes, end * rowBytes)),
  };
  return { source: { name: type.name, rows, cols, format, readRows, stored: itself }, bytes };
}

/** All bytes of a matrix, and some around it. */
async function packed(parts: readonly MatrixSource[], build: 'simd' | 'relaxed'): Promise<Uint8Array> {
  const bytes = new Uint8Array(memory.buffer).fill(0xaa);
  await packMatrix(memory, AT, parts, { build, scratch });
  return bytes.slice(AT - 64, AT + stackedBytes(parts) + 64);
}

function expectSame(got: Uint8Array, wanted: Uint8Array): void {
  expect(got.length).toBe(wanted.length);
  const at = got.findIndex((byte, i) => byte !== wanted[i]);
  if (at >= 0) expect.fail(`byte ${at} of ${got.length} is ${got[at]}, not ${wanted[at]}`);
}

const alone = ({ source: { stored: _, ...source } }: Stored): MatrixSource => source;

/** Of one format each way: codes of all widths, and tables. */
const CODES = FORMATS.filter(
  (format) =>
    (format.kind === 'affine' && format.groupSize === 32) ||
    (format.kind === 'lut4' && format.scale !== 'f16-i8'),
);

/** The same matrix, its codes as they are stored. */
function withCodes(source: MatrixSource): MatrixSource {
  const readInto: StoredRows['readInto'] = async (start, end, into, beside) => {
    const read = await source.readRows(start, end);
    into.set(read.data);
    for (const array of ['scales', 'biases', 'subscales'] as const) beside?.[array]?.set(read[array]!);
  };
  const { data } = rowBytes(source.cols, source.format);
  return { ...source, stored: { type: 'codes', rowBytes: data, rowBlocks: 0, readInto } };
}

describe('rows packed where they are read', () => {
  it.each(TYPES.map((type) => [type.name, type] as const))(
    '%s: the bytes are those of rows in arrays',
    async (_, type) => {
      for (const build of ['simd', 'relaxed'] as const)
        for (const cols of [Math.max(type.elements, 32), Math.max(type.elements, 32) * 5])
          for (const [rows, within] of [[1], [8], [43], [400], [64, 16], [384, 128]] as const) {
            const one = stored(type, rows, cols, rows + cols, within);
            expectSame(await packed([one.source], build), await packed([alone(one)], build));
          }
    },
  );

  it.each(CODES.map((format) => [formatLabel(format), format] as const))(
    'codes with arrays beside them, %s: the bytes are those of rows in arrays',
    async (_, format) => {
      for (const build of ['simd', 'relaxed'] as const)
        for (const rows of [1, 8, 43, 400]) {
          const { source } = testMatrix(rows, columnUnit(format) * 3, format, rows);
          expectSame(await packed([withCodes(source)], build), await packed([source], build));
        }
    },
  );

  it('codes of several pieces have what lies beside each of them', async () => {
    const format = { kind: 'affine', bits: 4, groupSize: 32, dtype: 'bf16' } as const;
    const rows = 700_000;
    // Codes of 4 MB are a piece. All of a row is its number, cut to a byte.
    const fill = (start: number, end: number, read: Partial<MatrixRows>): void => {
      for (const array of [read.data, read.scales, read.biases]) {
        const size = array!.length / (end - start);
        for (let row = start; row < end; row++)
          array!.fill((row >> 4) & 0x3f, (row - start) * size, (row - start + 1) * size);
      }
    };
    const readRows = async (start: number, end: number): Promise<MatrixRows> => {
      const read = roomRows(new ArrayBuffer(roomBytes(32, format, end - start)), 32, format, end - start);
      fill(start, end, read);
      return read;
    };
    const source: MatrixSource = { name: 'long', rows, cols: 32, format, readRows };
    const wide = new WebAssembly.Memory({ initial: 640, maximum: 640, shared: true });
    const bytes: Uint8Array[] = [];
    // The next piece is read at once: what lies beside this one must not be there.
    const readInto: StoredRows['readInto'] = async (start, end, into, beside) =>
      fill(start, end, { data: into, ...beside });
    const stored: StoredRows = { type: 'codes', rowBytes: 16, rowBlocks: 0, readInto };
    for (const one of [source, { ...source, stored }]) {
      new Uint8Array(wide.buffer).fill(0xaa);
      await packMatrix(wide, AT, [one], { build: 'simd', scratch });
      bytes.push(new Uint8Array(wide.buffer).slice(AT, AT + stackedBytes([one])));
    }
    expectSame(bytes[1]!, bytes[0]!);
  });

  it('stacks parts, those too that end within a block', async () => {
    const [, , , , q41] = TYPES;
    for (const sizes of [
      [16, 8, 5],
      [5, 16, 8],
      [8, 3, 16],
    ]) {
      const parts = sizes.map((rows, i) => stored(q41!, rows, 96, 7 + i));
      const whole = await packed(
        parts.map(({ source }) => source),
        'relaxed',
      );
      expectSame(whole, await packed(parts.map(alone), 'relaxed'));
    }
  });

  it('says which row holds what is no number', async () => {
    for (const type of TYPES) {
      const cols = Math.max(type.elements, 32) * 3;
      const one = stored(type, 21, cols, 3);
      const { rowBytes } = one.source.stored!;
      const last = 13 * rowBytes + rowBytes - type.bytes;
      if (type.name === 'MXFP4') one.bytes[last] = 255;
      else if (type.name === 'F32')
        new DataView(one.bytes.buffer).setFloat32(last, Number.NEGATIVE_INFINITY, true);
      else if (type.name === 'BF16') new DataView(one.bytes.buffer).setUint16(last, 0xff80, true);
      else new DataView(one.bytes.buffer).setUint16(last + HALVES[type.name]!.at(-1)!, 0xfe00, true);
      await expect(packed([one.source], 'simd')).rejects.toMatchObject({
        code: 'weights-not-finite',
        where: type.name,
        message: expect.stringMatching(/\brow 13\b/),
      });
    }
  });

  it('waits for a read that is under way before it fails', async () => {
    const type = ggufType(3)!;
    const { source } = stored(type, 64, 32, 5);
    const rows = 400_000;
    let under = 0;
    const readInto: StoredRows['readInto'] = async (start, end, into) => {
      under++;
      // The first piece is no number; the second is on its way then.
      if (start === 0) into.fill(0xff);
      else {
        await new Promise((resolve) => setTimeout(resolve, 20));
        into.fill(0, 0, end - start);
      }
      under--;
    };
    const large = { ...source, rows, stored: { ...source.stored!, readInto } };
    const wide = new WebAssembly.Memory({ initial: 256, maximum: 256, shared: true });
    await expect(packMatrix(wide, AT, [large], { build: 'simd', scratch })).rejects.toMatchObject({
      code: 'weights-not-finite',
    });
    expect(under).toBe(0);
    const failing = {
      ...large,
      stored: { ...large.stored, readInto: () => Promise.reject(new Error('gone')) },
    };
    await expect(packMatrix(wide, AT, [failing], { build: 'simd', scratch })).rejects.toThrow('gone');
  });
});
