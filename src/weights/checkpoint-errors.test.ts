/** Files that are refused, and how. */

import { chmodSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { f32, failure, folderWith, raw, safetensors } from '../../test/fixtures/weights/build.js';
import { index, matrix, norm, openError } from '../../test/fixtures/weights/checkpoints.js';
import { Checkpoint } from './checkpoint.js';
import { INDEX_NAME } from './shards.js';

describe('errors', () => {
  it.each<[string, string, RegExp, Record<string, Uint8Array | string | object>]>([
    ['an empty folder', 'weights-none', /no \*\.safetensors/, {}],
    ['a pickle', 'weights-pickle', /pytorch_model\.bin/, { 'pytorch_model.bin': 'x', 'config.json': {} }],
    ['a .pt', 'weights-pickle', /model\.pt/, { 'model.pt': 'x' }],
    ['a .pth', 'weights-pickle', /consolidated\.00\.pth/, { 'consolidated.00.pth': 'x' }],
    ['a .ckpt', 'weights-pickle', /m\.ckpt/, { 'm.ckpt': 'x' }],
    [
      'a pickle in disguise',
      'weights-pickle',
      /pickle/,
      { 'model.safetensors': Buffer.from('PK\x03\x04\x14\x00\x00\x00\x00\x00') },
    ],
    [
      'a pickle in an index',
      'weights-pickle',
      /pytorch_model/,
      { [INDEX_NAME]: index({ a: 'pytorch_model.bin' }) },
    ],
    ['a GGUF file', 'weights-gguf', /GGUF/, { 'model-q4.gguf': 'GGUF' }],
    ['ONNX', 'weights-none', /model\.onnx is ONNX, which is not read/, { 'model.onnx': 'x' }],
    ['a training leftover only', 'weights-none', /no \*\.safetensors/, { 'training_args.bin': 'x' }],
    [
      'an absent shard',
      'weights-shard-missing',
      /gone\.safetensors/,
      { [INDEX_NAME]: index({ a: 'gone.safetensors' }) },
    ],
    [
      'a set of shards without its index and one of them',
      'weights-shard-missing',
      /model-00002-of-00003\.safetensors/,
      {
        'model-00001-of-00003.safetensors': safetensors({ a: f32([1], [1]) }),
        'model-00003-of-00003.safetensors': safetensors({ c: f32([1], [1]) }),
      },
    ],
    ['a broken index', 'model-file-broken', /not JSON/, { [INDEX_NAME]: '{"weight_map": ' }],
    ['an index without a map', 'weights-index', /no weight_map/, { [INDEX_NAME]: {} }],
    ['an empty index', 'weights-index', /empty/, { [INDEX_NAME]: index({}) }],
    ...['../x.safetensors', 'a/../../x.safetensors', '..\\x.safetensors', 'shards/', '.', ''].map(
      (way): [string, string, RegExp, Record<string, object>] => [
        `an index that names ${JSON.stringify(way)}`,
        'weights-index',
        /no file of the folder/,
        { [INDEX_NAME]: index({ a: way }) },
      ],
    ),
    ['a broken config', 'model-file-broken', /config\.json/, { 'config.json': '{,}' }],
    [
      'a truncated shard',
      'weights-truncated',
      /m2\.safetensors/,
      {
        'm1.safetensors': safetensors({ a: norm }),
        'm2.safetensors': safetensors({ b: norm }).subarray(0, -1),
      },
    ],
    [
      'one name in two files',
      'weights-duplicate',
      /both hold "a"/,
      { 'm1.safetensors': safetensors({ a: norm }), 'm2.safetensors': safetensors({ a: norm }) },
    ],
  ])('%s', async (_, code, message, files) => {
    const error = await openError(files);
    expect(error.code).toBe(code);
    expect(error.message).toMatch(message);
    expect(error.fix).toBeTruthy();
  });

  it('a missing folder, or a file in its place', async () => {
    using folder = folderWith({ 'model.gguf': 'GGUF' });
    expect((await failure(Checkpoint.open(join(folder.path, 'gone')))).code).toBe('model-folder-missing');
    const error = await failure(Checkpoint.open(join(folder.path, 'model.gguf')));
    expect(error).toMatchObject({
      code: 'model-folder-missing',
      message: expect.stringMatching(/is a file/),
    });
  });

  it('a folder in place of a shard, and a file that may not be read', async () => {
    using folder = folderWith({});
    mkdirSync(join(folder.path, 'model.safetensors'));
    expect((await failure(Checkpoint.open(folder.path))).code).toBe('weights-header');
    using locked = folderWith({ 'model.safetensors': safetensors({ a: norm }) });
    chmodSync(join(locked.path, 'model.safetensors'), 0);
    // Root may read anything; the test then shows that the mode does not matter to it.
    if (process.getuid?.() === 0) await (await Checkpoint.open(locked.path)).close();
    else expect((await failure(Checkpoint.open(locked.path))).code).toBe('weights-unreadable');
  });

  it('a missing tensor, a wrong shape and a wrong dtype', async () => {
    const files = { 'model.safetensors': safetensors({ m: matrix, v: norm, i: raw('I32', [2, 2], 16) }) };
    using folder = folderWith(files);
    await using checkpoint = await Checkpoint.open(folder.path);
    const code = async (work: () => unknown) => (await failure(work)).code;
    expect(await code(() => checkpoint.matrix('gone'))).toBe('weights-tensor-missing');
    expect(await code(() => checkpoint.vector('gone'))).toBe('weights-tensor-missing');
    expect(await code(() => checkpoint.matrix('m', { rows: 8, cols: 4 }))).toBe('weights-tensor-shape');
    expect(await code(() => checkpoint.matrix('v'))).toBe('weights-tensor-shape');
    expect(await code(() => checkpoint.vector('m'))).toBe('weights-tensor-shape');
    expect(await code(() => checkpoint.vector('v', [9]))).toBe('weights-tensor-shape');
    expect(await code(() => checkpoint.matrix('i'))).toBe('weights-tensor-dtype');
    expect(await code(() => checkpoint.vector('i'))).toBe('weights-tensor-dtype');
    const { message } = await failure(() => checkpoint.matrix('m', { rows: 8, cols: 4 }));
    expect(message).toBe('"m" has shape [4, 8]; the model needs [8, 4]');
  });
});
