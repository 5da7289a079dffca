import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { failure } from '../../test/fixtures/weights/build.js';
import { AFFINE_BITS, GROUP_SIZES } from '../device/weights.js';
import { packCodes, parseQuantization, resolveAffine, unpackAffineRow, unpackCodes } from './affine.js';
import { SafetensorsFile } from './safetensors.js';

/** Matrices quantised and dequantised by mlx.core (scripts/fixtures/affine.py). */
let mlx: SafetensorsFile;
beforeAll(async () => {
  mlx = await SafetensorsFile.open(
    fileURLToPath(new URL('../../test/fixtures/weights/affine.safetensors', import.meta.url)),
  );
});
afterAll(() => mlx.close());

async function bytes(name: string): Promise<Uint8Array> {
  const tensor = mlx.tensors.get(name)!;
  const out = new Uint8Array(tensor.byteLength);
  await mlx.readInto(tensor, 0, out);
  return out;
}

async function floats(name: string): Promise<Float32Array> {
  return new Float32Array((await bytes(name)).buffer);
}

const cases = AFFINE_BITS.flatMap((bits) => GROUP_SIZES.map((groupSize) => ({ bits, groupSize })));

describe('a row', () => {
  it.each(cases)('unpacks as mlx does: $bits bits, groups of $groupSize', async ({ bits, groupSize }) => {
    const key = `float32.b${bits}.g${groupSize}`;
    const codes = await bytes(`${key}.weight`);
    const scales = await floats(`${key}.scales`);
    const biases = await floats(`${key}.biases`);
    const expected = await floats(`${key}.dequantized`);
    const cols = 256;
    const rows = expected.length / cols;
    const groups = cols / groupSize;
    expect(codes.length).toBe((rows * cols * bits) / 8);
    const row = new Float32Array(cols);
    for (let r = 0; r < rows; r++) {
      unpackAffineRow(
        codes.subarray((r * cols * bits) / 8, ((r + 1) * cols * bits) / 8),
        scales.subarray(r * groups, (r + 1) * groups),
        biases.subarray(r * groups, (r + 1) * groups),
        { bits, groupSize },
        row,
      );
      for (let c = 0; c < cols; c++) {
        // mlx rounds the product before it adds; here there is one rounding.
        const want = expected[r * cols + c]!;
        const bias = Math.abs(biases[r * groups + Math.floor(c / groupSize)]!);
        expect(Math.abs(row[c]! - want)).toBeLessThanOrEqual(2 ** -23 * (bias + Math.abs(want)));
      }
    }
  });

  it.each(AFFINE_BITS)('packs %d-bit codes into one little-endian stream', (bits) => {
    const cols = 64;
    const codes = Uint8Array.from({ length: cols }, (_, i) => (i * 2654435761) % (1 << bits));
    let stream = 0n;
    for (const [i, code] of codes.entries()) stream |= BigInt(code) << BigInt(i * bits);
    const expected = Uint8Array.from({ length: (cols * bits) / 8 }, (_, i) =>
      Number((stream >> BigInt(8 * i)) & 255n),
    );
    const packed = new Uint8Array(expected.length);
    packCodes(codes, bits, packed);
    expect(packed).toEqual(expected);
    const back = new Uint8Array(cols);
    unpackCodes(packed, bits, back);
    expect(back).toEqual(codes);
  });
});

describe('parseQuantization', () => {
  it('reads both names of the section, and nothing where there is none', () => {
    const spec = { bits: 4, group_size: 64 };
    expect(parseQuantization({})).toBeUndefined();
    expect(parseQuantization({ quantization: null })).toBeUndefined();
    expect(parseQuantization({ quantization: spec })).toMatchObject({ bits: 4, groupSize: 64 });
    expect(parseQuantization({ quantization_config: { ...spec, mode: 'affine' } })).toMatchObject({
      bits: 4,
    });
    expect(parseQuantization({ text_config: { quantization: spec } })).toMatchObject({ groupSize: 64 });
    expect(
      parseQuantization({ quantization: spec, quantization_config: { quant_method: 'x' } }),
    ).toBeDefined();
  });

  it('reads layers of their own, which have what is usual where they do not say', () => {
    const config = parseQuantization({
      quantization: {
        bits: 4,
        group_size: 64,
        mode: 'affine',
        'model.layers.0.mlp.gate_proj': { bits: 8 },
        'model.layers.1.mlp.gate_proj': { bits: 6, group_size: 32, mode: 'affine' },
        lm_head: false,
        'model.embed_tokens': true,
      },
    });
    expect([...config!.overrides]).toEqual([
      ['model.layers.0.mlp.gate_proj', { bits: 8, groupSize: 64 }],
      ['model.layers.1.mlp.gate_proj', { bits: 6, groupSize: 32 }],
      ['lm_head', false],
      ['model.embed_tokens', true],
    ]);
  });

  it.each([
    [
      { group_size: 64, bits: 8 },
      { bits: 8, groupSize: 64 },
    ],
    [{ bits: 8 }, { bits: 8, groupSize: 64 }],
    [{ group_size: 32 }, { bits: 4, groupSize: 32 }],
    [{ mode: 'nvfp4' }, { mode: 'nvfp4' }],
  ])('reads %j of a layer as MLX does, which asks the others nothing', (own, wanted) => {
    // As mlx-lm writes the routers of Qwen3-MoE in mxfp4.
    for (const all of [
      { bits: 4, group_size: 32, mode: 'mxfp4' },
      { bits: 2, group_size: 128 },
    ]) {
      const config = parseQuantization({ quantization: { ...all, 'model.layers.0.mlp.gate': own } });
      expect(config!.overrides.get('model.layers.0.mlp.gate')).toEqual(wanted);
    }
  });

  it('reads modes whose codes are of a table', () => {
    const mixed = {
      bits: 4,
      group_size: 32,
      mode: 'mxfp4',
      head: { bits: 8, group_size: 64, mode: 'affine' },
    };
    const config = parseQuantization({ quantization: mixed })!;
    expect(config).toMatchObject({ mode: 'mxfp4' });
    expect(config.overrides.get('head')).toEqual({ bits: 8, groupSize: 64 });
    expect(parseQuantization({ quantization_config: { quant_method: 'mxfp4' } })).toMatchObject({
      mode: 'mxfp4',
    });
  });

  it.each([
    [
      { quantization: { bits: 8, group_size: 32, mode: 'mxfp8' } },
      'weights-quantization-unsupported',
      /"mxfp8"/,
    ],
    [
      { quantization: { bits: 4, group_size: 64, mode: 'mxfp4' } },
      'weights-quantization-config',
      /groups of 64; it has 4 in groups of 32/,
    ],
    [{ quantization: { bits: 7, group_size: 64 } }, 'weights-quantization-unsupported', /7 bits/],
    [{ quantization: { bits: 4, group_size: 16 } }, 'weights-quantization-unsupported', /group of 16/],
    [
      { quantization_config: { quant_method: 'gptq', bits: 4 } },
      'weights-quantization-unsupported',
      /"gptq"/,
    ],
    [
      { text_config: { compression_config: { quant_method: 'compressed-tensors' } } },
      'weights-quantization-unsupported',
      /"compressed-tensors"/,
    ],
    [{ quantization: { group_size: 64 } }, 'weights-quantization-config', /bits/],
    [{ quantization: { bits: '4', group_size: 64 } }, 'weights-quantization-config', /bits/],
    [{ quantization: { bits: 4 } }, 'weights-quantization-config', /group_size/],
    [{ quantization: 4 }, 'weights-quantization-config', /not an object/],
    [
      { quantization: { bits: 4, group_size: 64, 'a.b': { mode: 'mxfp8' } } },
      'weights-quantization-unsupported',
      /"mxfp8".*a\.b/,
    ],
  ])('refuses %j', async (config, code, message) => {
    const error = await failure(() => parseQuantization(config, 'folder/config.json'));
    expect(error).toMatchObject({ code });
    expect(error.message).toMatch(message);
    expect(error.fix).toBeTruthy();
  });
});

describe('resolveAffine', () => {
  const tensor = (name: string, dtype: string, ...shape: number[]) => ({ name, dtype, shape });
  const weight = tensor('l.weight', 'U32', 10, 16);
  const scales = tensor('l.scales', 'BF16', 10, 2);
  const biases = tensor('l.biases', 'BF16', 10, 2);
  const config = parseQuantization({ quantization: { bits: 4, group_size: 64 } })!;

  it('finds rows and columns', () => {
    expect(resolveAffine({ weight, scales, biases }, config, undefined)).toEqual({
      rows: 10,
      cols: 128,
      format: { kind: 'affine', bits: 4, groupSize: 64, dtype: 'bf16' },
    });
  });

  it('lets an override decide', () => {
    const mixed = parseQuantization({
      quantization: { bits: 4, group_size: 64, l: { bits: 8, group_size: 32 } },
    })!;
    expect(resolveAffine({ weight, scales, biases }, mixed, undefined)).toMatchObject({
      cols: 64,
      format: { bits: 8, groupSize: 32 },
    });
  });

  it('believes the shapes of an unnamed layer where the columns are known', () => {
    expect(resolveAffine({ weight, scales, biases }, config, 64)).toMatchObject({
      cols: 64,
      format: { bits: 8, groupSize: 32 },
    });
  });

  it.each([
    ['no scales', { weight, scales: undefined, biases }, config, /no l\.scales/],
    ['no biases', { weight, scales, biases: undefined }, config, /no l\.biases/],
    ['no config', { weight, scales, biases }, undefined, /no "quantization"/],
    ['float codes', { weight: tensor('l.weight', 'F32', 10, 16), scales, biases }, config, /F32, not U32/],
    ['integer scales', { weight, scales: tensor('s', 'I32', 10, 2), biases }, config, /scales are I32/],
    ['mixed dtypes', { weight, scales, biases: tensor('b', 'F32', 10, 2) }, config, /biases are F32/],
    [
      'too few rows of scales',
      { weight, scales: tensor('s', 'F16', 9, 2), biases: tensor('b', 'F16', 9, 2) },
      config,
      /10 rows and the scales 9/,
    ],
    [
      'biases of another shape',
      { weight, scales, biases: tensor('b', 'BF16', 10, 1) },
      config,
      /biases have shape/,
    ],
    [
      'a vector of scales',
      { weight, scales: tensor('s', 'BF16', 20), biases },
      config,
      /both should be matrices/,
    ],
    [
      'too many groups',
      { weight, scales: tensor('s', 'F16', 10, 3), biases: tensor('b', 'F16', 10, 3) },
      config,
      /3 groups of 64/,
    ],
    [
      'codes that fit no column',
      { weight: tensor('l.weight', 'U32', 10, 15), scales, biases },
      config,
      /do not agree/,
    ],
    [
      'a layer said to be float',
      { weight, scales, biases },
      parseQuantization({ quantization: { bits: 4, group_size: 64, l: false } }),
      /says that it is not quantised/,
    ],
  ])('refuses %s', async (_, tensors, quantization, message) => {
    const error = await failure(() => resolveAffine(tensors, quantization, undefined));
    expect(error.code).toBe('weights-quantization-tensors');
    expect(error.message).toMatch(message);
    expect(error.fix).toBeTruthy();
  });
});
