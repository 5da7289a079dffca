import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import {
  bytesOf,
  f32,
  failure,
  folderWith,
  raw,
  safetensors,
  type TestTensor,
  u32,
} from '../../test/fixtures/weights/build.js';
import { index, matrix, norm, openError, range } from '../../test/fixtures/weights/checkpoints.js';
import { Checkpoint } from './checkpoint.js';
import { INDEX_NAME } from './shards.js';

describe('Checkpoint', () => {
  it('opens a single file', async () => {
    using folder = folderWith({
      'model.safetensors': safetensors({ 'a.weight': matrix, 'n.weight': norm }),
      'other.safetensors': Buffer.from('not looked at'),
      'config.json': { model_type: 'llama' },
    });
    await using checkpoint = await Checkpoint.open(folder.path);
    expect(checkpoint.names()).toEqual(['a.weight', 'n.weight']);
    expect(checkpoint.totalBytes).toBe(160);
    expect(checkpoint.config.model_type).toBe('llama');
    expect(checkpoint.has('a.weight')).toBe(true);
    expect(checkpoint.has('b.weight')).toBe(false);
    expect(checkpoint.info('n.weight')).toMatchObject({
      dtype: 'F32',
      shape: [8],
      file: 'model.safetensors',
    });
    expect(checkpoint.info('b.weight')).toBeUndefined();
    expect([...(await checkpoint.vector('n.weight', [8]).read())]).toEqual(range(8, 100));
    expect(checkpoint.unusedNames()).toEqual(['a.weight']);
    checkpoint.matrix('a.weight');
    expect(checkpoint.unusedNames()).toEqual([]);
  });

  it.each([
    [['l.qweight', 'l.qzeros', 'l.scales', 'l.g_idx'], /GPTQ \(/],
    [['l.qweight', 'l.qzeros', 'l.scales'], /AWQ or GPTQ/],
    [['l.weight_packed', 'l.weight_scale', 'l.weight_shape'], /compressed-tensors/],
    [['l.weight', 'l.weight_scale', 'l.weight_scale_2', 'l.input_scale'], /nvfp4/],
    [['l.weight', 'l.weight_scale_inv'], /FP8 in blocks/],
    [['l.weight', 'l.weight_scale'], /FP8 or INT8/],
    [['l.weight', 'l.weight.absmax', 'l.weight.quant_state.bitsandbytes__nf4'], /bitsandbytes \(4/],
    [['l.weight', 'l.SCB'], /bitsandbytes \(8/],
    [['l.W_q', 'l.scale', 'l.zero'], /HQQ/],
    [['l.q_weight', 'l.q_scale'], /EXL2/],
    [['l.trellis', 'l.suh', 'l.svh'], /EXL3/],
    [['l.codes', 'l.codebooks'], /AQLM/],
    [['l.Qidxs', 'l.SU'], /QuIP#/],
    [['l.weight._data', 'l.weight._scale'], /quanto/],
    [['l._weight_qdata', 'l._weight_scale'], /torchao/],
  ])('names the quantiser of %j', async (names, message) => {
    const tensors = Object.fromEntries(['a.weight', ...names].map((name) => [name, matrix]));
    const error = await openError({ 'model.safetensors': safetensors(tensors), 'config.json': {} });
    expect(error).toMatchObject({ code: 'weights-quantization-unsupported' });
    expect(error.message).toMatch(message);
  });

  it('names the method before it meets types that are its own', async () => {
    const error = await openError({
      'model.safetensors': safetensors({ 'l.weight': raw('F8_E4M3', [1], 1) }),
      'config.json': { quantization_config: { quant_method: 'fp8' } },
    });
    expect([error.code, error.message]).toEqual([
      'weights-quantization-unsupported',
      expect.stringMatching(/"fp8"/),
    ]);
  });

  it.each([
    ['weight', 'weight_scale_inv', /FP8 in blocks/],
    ['weight_scale', 'weight_scale_2', /FP4 of ModelOpt/],
    ['weight', 'weight_scale', /FP8 or INT8/],
  ])(
    'names the quantiser of l.%s of a type of its own beside l.%s, where no config does',
    async (own, other, message) => {
      const tensors = { [`l.${own}`]: raw('F8_E4M3', [1], 1), [`l.${other}`]: matrix };
      const error = await openError({ 'model.safetensors': safetensors(tensors), 'config.json': {} });
      expect(error).toMatchObject({ code: 'weights-quantization-unsupported' });
      expect(error.message).toMatch(message);
    },
  );

  it('reads a matrix by rows into one buffer, every range the same bytes', async () => {
    using folder = folderWith({
      'model.safetensors': safetensors({ pad: raw('U8', [3], 3), 'a.weight': matrix }),
    });
    await using checkpoint = await Checkpoint.open(folder.path);
    const source = checkpoint.matrix('a.weight', { rows: 4, cols: 8 });
    expect(source).toMatchObject({ rows: 4, cols: 8, format: { kind: 'float', dtype: 'f32' } });
    for (const [start, end] of [
      [0, 4],
      [1, 3],
      [3, 4],
      [2, 2],
      [0, 1],
    ] as const) {
      const { data } = await source.readRows(start, end);
      expect(data.byteOffset % 16).toBe(0);
      const floats = new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4);
      expect([...floats]).toEqual(range(32).slice(start * 8, end * 8));
    }
    const first = await source.readRows(0, 2);
    const second = await source.readRows(1, 3);
    expect(second.data.buffer).toBe(first.data.buffer);
    for (const [start, end] of [
      [-1, 2],
      [0, 5],
      [3, 2],
      [0.5, 2],
    ] as const) {
      await expect(source.readRows(start, end)).rejects.toThrow(RangeError);
    }
  });

  it('opens shards with an index, and without', async () => {
    const files = {
      'model-00001-of-00002.safetensors': safetensors({ 'a.weight': matrix }),
      'model-00002-of-00002.safetensors': safetensors({ 'n.weight': norm, extra: norm }),
      'consolidated.safetensors': Buffer.from('not looked at'),
    };
    const map = {
      'a.weight': 'model-00001-of-00002.safetensors',
      'n.weight': 'model-00002-of-00002.safetensors',
    };
    for (const withIndex of [true, false]) {
      using folder = folderWith(withIndex ? { ...files, [INDEX_NAME]: index(map) } : files);
      await using checkpoint = await Checkpoint.open(folder.path);
      expect(checkpoint.names()).toEqual(['a.weight', 'n.weight', 'extra']);
      expect([...(await checkpoint.vector('n.weight').read())]).toEqual(range(8, 100));
      expect(checkpoint.info('a.weight')?.file).toBe('model-00001-of-00002.safetensors');
      checkpoint.matrix('a.weight');
      expect(checkpoint.unusedNames()).toEqual(['extra']);
    }
  });

  it('lets an index name tensors that no shard has: only asking for one is an error', async () => {
    using folder = folderWith({
      'a.safetensors': safetensors({ a: f32([1], [1]) }),
      [INDEX_NAME]: JSON.stringify({ weight_map: { a: 'a.safetensors', 'lm_head.weight': 'a.safetensors' } }),
    });
    await using checkpoint = await Checkpoint.open(folder.path);
    expect(checkpoint.names()).toEqual(['a']);
    expect(checkpoint.has('lm_head.weight')).toBe(false);
    const error = await failure(() => checkpoint.matrix('lm_head.weight'));
    expect(error).toMatchObject({
      code: 'weights-tensor-missing',
      message: expect.stringContaining('lm_head'),
    });
  });

  it('takes shards of any name, but no adapter', async () => {
    using folder = folderWith({
      'weights.safetensors': safetensors({ 'n.weight': norm }),
      'adapter_model.safetensors': safetensors({ lora: norm }),
    });
    await using checkpoint = await Checkpoint.open(folder.path);
    expect(checkpoint.names()).toEqual(['n.weight']);
    const error = await openError({ 'adapter_model.safetensors': safetensors({ lora: norm }) });
    expect(error).toMatchObject({ code: 'weights-none', message: expect.stringMatching(/adapter/) });
  });

  it('finds a tensor in another shard than the index says', async () => {
    using folder = folderWith({
      'a.safetensors': safetensors({ a: norm }),
      'b.safetensors': safetensors({ b: norm, c: f32([8], range(8)) }),
      [INDEX_NAME]: index({ a: 'a.safetensors', b: 'b.safetensors', c: 'a.safetensors' }),
    });
    await using checkpoint = await Checkpoint.open(folder.path);
    expect([...(await checkpoint.vector('c').read())]).toEqual(range(8));
  });

  it.each(['./', '.\\', '/somewhere/else/', 'C:\\models\\x\\', '$FOLDER/', '$FOLDER/../$NAME/'])(
    'takes the path %s in an index for the file in the folder',
    async (given) => {
      using folder = folderWith({ 'a.safetensors': safetensors({ a: norm }) });
      const prefix = given.replace('$FOLDER', folder.path).replace('$NAME', basename(folder.path));
      const text = JSON.stringify(index({ a: `${prefix}a.safetensors` }));
      writeFileSync(join(folder.path, INDEX_NAME), text);
      await using checkpoint = await Checkpoint.open(folder.path);
      expect(checkpoint.names()).toEqual(['a']);
    },
  );

  it('opens shards in a folder of their own', async () => {
    using folder = folderWith({ [INDEX_NAME]: index({ a: './shards/a.safetensors' }) });
    mkdirSync(join(folder.path, 'shards'));
    writeFileSync(join(folder.path, 'shards/a.safetensors'), safetensors({ a: norm }));
    await using checkpoint = await Checkpoint.open(folder.path);
    expect(checkpoint.info('a')?.file).toBe('shards/a.safetensors');
  });

  it.each([
    JSON.stringify(index({ n: 'model-00001-of-00002.safetensors' })),
    '{',
    '{"weight_map": {}}',
    '[]',
    '',
  ])('goes by a whole model.safetensors, whatever an index left beside it says: %s', async (left) => {
    using folder = folderWith({
      'model.safetensors': safetensors({ n: norm }),
      'model-00001-of-00002.safetensors': safetensors({ n: f32([8], range(8)) }),
      [INDEX_NAME]: left,
    });
    await using checkpoint = await Checkpoint.open(folder.path);
    expect([...(await checkpoint.vector('n').read())]).toEqual(range(8, 100));
  });

  it('goes by an index that names model.safetensors among others', async () => {
    using folder = folderWith({
      'model.safetensors': safetensors({ n: norm }),
      'more.safetensors': safetensors({ m: norm }),
      [INDEX_NAME]: index({ n: 'model.safetensors', m: 'more.safetensors' }),
    });
    await using checkpoint = await Checkpoint.open(folder.path);
    expect(checkpoint.names()).toEqual(['n', 'm']);
  });

  it('narrows f64 to f32', async () => {
    const values = [Math.PI, -1e-3, 2 ** -30, 65504.123456789, 0, 1, 2, 3];
    const data = (shape: number[]): TestTensor => ({
      dtype: 'F64',
      shape,
      data: bytesOf(Float64Array.from(values)),
    });
    using folder = folderWith({ 'model.safetensors': safetensors({ m: data([2, 4]), v: data([8]) }) });
    await using checkpoint = await Checkpoint.open(folder.path);
    const narrowed = [...Float32Array.from(values)];
    expect([...(await checkpoint.vector('v').read())]).toEqual(narrowed);
    const source = checkpoint.matrix('m');
    expect(source.format).toEqual({ kind: 'float', dtype: 'f32' });
    const { data: row } = await source.readRows(1, 2, new ArrayBuffer(64));
    expect([...new Float32Array(row.buffer, row.byteOffset, 4)]).toEqual(narrowed.slice(4));
  });

  it('tells whether two tensors hold the same', async () => {
    const long = Array.from({ length: 300_000 }, (_, i) => i);
    using folder = folderWith({
      'a.safetensors': safetensors({ a: f32([300_000], long), shaped: f32([3, 100_000], long) }),
      'b.safetensors': safetensors({
        b: f32([300_000], long),
        other: f32([300_000], long.with(-1, 0)),
        words: u32([300_000], long),
      }),
    });
    await using checkpoint = await Checkpoint.open(folder.path);
    expect(await checkpoint.equal('a', 'b')).toBe(true);
    for (const name of ['other', 'shaped', 'words']) expect(await checkpoint.equal('a', name)).toBe(false);
  });

  it('lets the index decide between two holders of one name', async () => {
    using folder = folderWith({
      'a.safetensors': safetensors({ n: norm, m: norm }),
      'b.safetensors': safetensors({ n: f32([8], range(8)), k: norm }),
      [INDEX_NAME]: index({ n: 'b.safetensors', m: 'a.safetensors' }),
    });
    await using checkpoint = await Checkpoint.open(folder.path);
    expect([...(await checkpoint.vector('n').read())]).toEqual(range(8));
  });

  it.each([
    ['F16', Uint16Array.of(0x3c00, 0xc000, 0x0001, 0x7bff), [1, -2, 2 ** -24, 65504]],
    ['BF16', Uint16Array.of(0x3f80, 0xc000, 0x4049, 0x0000), [1, -2, 3.140625, 0]],
  ] as const)('widens a vector of %s', async (dtype, codes, expected) => {
    const tensor: TestTensor = { dtype, shape: [4], data: bytesOf(codes) };
    // An odd start, so that no view of the file's bytes would be aligned.
    using folder = folderWith({ 'model.safetensors': safetensors({ odd: raw('U8', [1], 1), v: tensor }) });
    await using checkpoint = await Checkpoint.open(folder.path);
    expect([...(await checkpoint.vector('v').read())]).toEqual(expected);
  });

  it('reads any dtype as bytes', async () => {
    using folder = folderWith({ 'model.safetensors': safetensors({ t: u32([3], [1, 2, 70000]) }) });
    await using checkpoint = await Checkpoint.open(folder.path);
    const out = new Uint32Array(2);
    await checkpoint.readBytes('t', 4, bytesOf(out));
    expect([...out]).toEqual([2, 70000]);
  });
});

describe('a quantised checkpoint', () => {
  const config = { quantization: { bits: 4, group_size: 32 } };
  const tensors = {
    'l.weight': u32([4, 8], range(32)),
    'l.scales': f32([4, 2], range(8, 1)),
    'l.biases': f32([4, 2], range(8, -20)),
    'n.weight': norm,
    'f.weight': matrix,
  };

  it('gives codes, scales and biases of a range of rows, each aligned', async () => {
    using folder = folderWith({ 'config.json': config, 'model.safetensors': safetensors(tensors) });
    await using checkpoint = await Checkpoint.open(folder.path);
    const source = checkpoint.matrix('l.weight', { rows: 4, cols: 64 });
    expect(source.format).toEqual({ kind: 'affine', bits: 4, groupSize: 32, dtype: 'f32' });
    const { data, scales, biases } = await source.readRows(1, 4);
    expect([...new Uint32Array(data.buffer, data.byteOffset, 24)]).toEqual(range(24, 8));
    expect([...new Float32Array(scales!.buffer, scales!.byteOffset, 6)]).toEqual(range(6, 3));
    expect([...new Float32Array(biases!.buffer, biases!.byteOffset, 6)]).toEqual(range(6, -18));
    expect([data.byteLength, scales!.byteLength, biases!.byteLength]).toEqual([96, 24, 24]);
    expect(checkpoint.matrix('f.weight').format).toEqual({ kind: 'float', dtype: 'f32' });
    expect(checkpoint.unusedNames()).toEqual(['n.weight']);
  });

  it.each([
    ['l.scales', /no l\.scales/],
    ['l.biases', /no l\.biases/],
  ])('misses %s', async (gone, message) => {
    const rest = Object.fromEntries(Object.entries(tensors).filter(([name]) => name !== gone));
    using folder = folderWith({ 'config.json': config, 'model.safetensors': safetensors(rest) });
    await using checkpoint = await Checkpoint.open(folder.path);
    const error = await failure(() => checkpoint.matrix('l.weight'));
    expect(error).toMatchObject({
      code: 'weights-quantization-tensors',
      message: expect.stringMatching(message),
    });
  });

  it('is refused without a quantization section, and with one of another mode', async () => {
    using folder = folderWith({ 'config.json': {}, 'model.safetensors': safetensors(tensors) });
    await using checkpoint = await Checkpoint.open(folder.path);
    expect((await failure(() => checkpoint.matrix('l.weight'))).code).toBe('weights-quantization-tensors');
    const other = { quantization: { bits: 8, group_size: 32, mode: 'mxfp8' } };
    const error = await openError({ 'config.json': other, 'model.safetensors': safetensors(tensors) });
    expect(error.code).toBe('weights-quantization-unsupported');
  });
});

describe('checkpoints that mlx-lm wrote', () => {
  const folder = (name: string) =>
    fileURLToPath(new URL(`../../test/fixtures/models/${name}`, import.meta.url));

  it.each([
    ['mlx-qwen3-4bit', { bits: 4, groupSize: 64, dtype: 'bf16' }],
    ['mlx-llama-3bit', { bits: 3, groupSize: 32, dtype: 'f16' }],
    ['mlx-llama-8bit', { bits: 8, groupSize: 64, dtype: 'bf16' }],
  ])('%s: every matrix alike', async (name, format) => {
    await using checkpoint = await Checkpoint.open(folder(name));
    for (const tensor of checkpoint.names()) {
      if (checkpoint.info(tensor)?.dtype !== 'U32') continue;
      expect(checkpoint.matrix(tensor).format).toEqual({ kind: 'affine', ...format });
    }
    expect(checkpoint.matrix('model.embed_tokens.weight')).toMatchObject({ rows: 264, cols: 64 });
    for (const tensor of checkpoint.unusedNames()) checkpoint.vector(tensor);
    expect(checkpoint.unusedNames()).toEqual([]);
  });

  it('mlx-qwen3-mixed: each layer as config.json says, quantised head and embedding, one left float', async () => {
    await using checkpoint = await Checkpoint.open(folder('mlx-qwen3-mixed'));
    const format = (path: string) => checkpoint.matrix(`model.layers.0.${path}.weight`).format;
    const affine = (bits: number, groupSize: number) => ({ kind: 'affine', bits, groupSize, dtype: 'f32' });
    expect(format('self_attn.q_proj')).toEqual(affine(2, 32));
    expect(format('self_attn.k_proj')).toEqual(affine(8, 64));
    expect(format('self_attn.v_proj')).toEqual({ kind: 'float', dtype: 'f32' });
    expect(format('self_attn.o_proj')).toEqual(affine(5, 64));
    expect(format('mlp.gate_proj')).toEqual(affine(6, 64));
    expect(format('mlp.up_proj')).toEqual(affine(3, 32));
    expect(format('mlp.down_proj')).toEqual(affine(5, 128));
    expect(checkpoint.matrix('lm_head.weight', { rows: 264, cols: 64 }).format).toEqual(affine(6, 32));
    expect(checkpoint.matrix('model.embed_tokens.weight').format).toEqual(affine(4, 64));
  });
});
