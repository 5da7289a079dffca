import { describe, expect, it } from 'vitest';
import { readPacked } from '../../test/fixtures/read-packed.js';
import { failure, folderWith, raw, safetensors, type TestTensor } from '../../test/fixtures/weights/build.js';
import { wholeRowBytes } from '../device/weights.js';
import { Checkpoint } from './checkpoint.js';
import { dequantiseRows } from './dequantise.js';

/** Matrices of MLX and gpt-oss (scripts/fixtures/tables.py): two experts of 6 rows and 64 columns. */
const fixture = readPacked('test/fixtures/weights/tables.json.gz') as Record<string, Record<string, string>>;
const bytesOf = (text: string): Uint8Array => Uint8Array.from(Buffer.from(text, 'base64'));
const [EXPERTS, ROWS, COLS] = [2, 6, 64];
const STACK = { rows: EXPERTS * ROWS, cols: COLS, stack: EXPERTS };

function tensor(dtype: string, shape: readonly number[], text: string): TestTensor {
  return { dtype, shape, data: bytesOf(text) };
}

const mlx = (mode: string, group: number): Record<string, TestTensor> => ({
  'l.weight': tensor('U32', [EXPERTS, ROWS, COLS / 8], fixture[mode]!.codes!),
  'l.scales': tensor('U8', [EXPERTS, ROWS, COLS / group], fixture[mode]!.scales!),
});
const gptOss = (): Record<string, TestTensor> => ({
  l_blocks: tensor('U8', [EXPERTS, ROWS, COLS / 32, 16], fixture['gpt-oss']!.codes!),
  l_scales: tensor('U8', [EXPERTS, ROWS, COLS / 32], fixture['gpt-oss']!.scales!),
});

async function valuesOf(
  tensors: Record<string, TestTensor>,
  config: object,
  name: string,
  rowsAtOnce: number,
) {
  using folder = folderWith({ 'model.safetensors': safetensors(tensors), 'config.json': config });
  await using checkpoint = await Checkpoint.open(folder.path);
  const matrix = checkpoint.matrix(name, STACK);
  const values = new Float32Array(matrix.rows * COLS);
  for (let at = 0; at < matrix.rows; at += rowsAtOnce) {
    const end = Math.min(matrix.rows, at + rowsAtOnce);
    const to = values.subarray(at * COLS, end * COLS);
    dequantiseRows(await matrix.readRows(at, end), end - at, COLS, matrix.format, to);
  }
  expect(checkpoint.unusedNames()).toEqual([]);
  return { values, format: matrix.format };
}

describe('tables of four bits in safetensors files', () => {
  it.each([
    [
      'mxfp4',
      'l.weight',
      () => mlx('mxfp4', 32),
      { quantization: { bits: 4, group_size: 32, mode: 'mxfp4' } },
    ],
    [
      'nvfp4',
      'l.weight',
      () => mlx('nvfp4', 16),
      { quantization: { bits: 4, group_size: 16, mode: 'nvfp4' } },
    ],
    [
      'nvfp4-global',
      'l.weight',
      () => ({
        ...mlx('nvfp4-global', 16),
        'l.global_scale': tensor('F32', [EXPERTS], fixture['nvfp4-global']!.largest!),
      }),
      { quantization: { bits: 4, group_size: 16, mode: 'nvfp4' } },
    ],
    ['gpt-oss', 'l', gptOss, { quantization_config: { quant_method: 'mxfp4' } }],
  ] as const)('%s: every value is what its publisher reads', async (mode, name, tensors, config) => {
    const wanted = new Float32Array(bytesOf(fixture[mode]!.values!).buffer);
    for (const rowsAtOnce of [1, 5, 12]) {
      const { values, format } = await valuesOf(tensors(), config, name, rowsAtOnce);
      expect(values).toEqual(wanted);
      // Of nvfp4 also the number of the row.
      expect((wholeRowBytes(COLS, format) * 8) / COLS).toBe(mode.startsWith('nvfp4') ? 5 : 4.25);
    }
  });

  it('takes the mode of a layer from its tensors, whatever the default is', async () => {
    const config = { quantization: { bits: 4, group_size: 64 } };
    const { format } = await valuesOf(mlx('mxfp4', 32), config, 'l.weight', 12);
    expect(format).toEqual({ kind: 'lut4', bits: 4, table: 'e2m1', scale: 'e8m0', dtype: 'f16' });
  });

  it.each([
    [{ ...mlx('mxfp4', 32), 'l.biases': raw('U8', [EXPERTS, ROWS, 2], 24) }, 'l.weight', /biases/],
    [{ ...mlx('mxfp4', 32), 'l.scales': raw('U8', [EXPERTS, ROWS, 3], 36) }, 'l.weight', /3 scales/],
    [
      { ...mlx('mxfp4', 32), 'l.scales': raw('U8', [EXPERTS, 5, 2], 20) },
      'l.weight',
      /12 rows and the scales 10/,
    ],
    [{ ...mlx('mxfp4', 32), 'l.weight': raw('F16', [EXPERTS, ROWS, 8], 192) }, 'l.weight', /F16/],
    [{ ...gptOss(), l_scales: raw('U8', [EXPERTS, ROWS, 3], 36) }, 'l', /scales have shape/],
    [{ ...gptOss(), l_scales: raw('BF16', [EXPERTS, ROWS, 2], 48) }, 'l', /l_scales is BF16/],
    [{ l_blocks: gptOss().l_blocks! }, 'l', /no scales/],
    [{ ...gptOss(), l_blocks: raw('U8', [EXPERTS, ROWS, 2, 8], 192) }, 'l', /columns \/ 32, 16/],
    [{ ...gptOss(), l_blocks: raw('U8', [EXPERTS * ROWS, 2, 16], 384) }, 'l', /not \[2, rows/],
  ] as const)('refuses what does not fit (%#)', async (tensors, name, message) => {
    const config = { quantization: { bits: 4, group_size: 32, mode: 'mxfp4' } };
    const work = valuesOf(tensors, config, name, 12);
    const error = await failure(work);
    expect(error.code).toBe('weights-quantization-tensors');
    expect(error.message).toMatch(message);
  });

  it('refuses mxfp8 by name, and a stack of another size', async () => {
    const wide = { ...mlx('mxfp4', 32), 'l.scales': raw('U8', [EXPERTS, ROWS, 1], 12) };
    const config = { quantization: { bits: 4, group_size: 64 } };
    expect(await failure(valuesOf(wide, config, 'l.weight', 12))).toMatchObject({
      code: 'weights-quantization-unsupported',
      message: expect.stringContaining('mxfp8') as string,
    });
    using folder = folderWith({ 'model.safetensors': safetensors(gptOss()) });
    await using checkpoint = await Checkpoint.open(folder.path);
    expect(await failure(() => checkpoint.matrix('l', { rows: 10, cols: COLS, stack: 2 }))).toMatchObject({
      code: 'weights-tensor-shape',
    });
  });

  it('refuses a layer that config.json says is stored otherwise', async () => {
    const affine = {
      quantization: {
        bits: 4,
        group_size: 32,
        mode: 'mxfp4',
        l: { bits: 4, group_size: 64, mode: 'affine' },
      },
    };
    expect((await failure(valuesOf(mlx('mxfp4', 32), affine, 'l.weight', 12))).message).toContain('affine');
    const floats = { quantization: { bits: 4, group_size: 32, mode: 'mxfp4', l: false } };
    expect((await failure(valuesOf(mlx('mxfp4', 32), floats, 'l.weight', 12))).message).toContain(
      'not quantised',
    );
  });
});
