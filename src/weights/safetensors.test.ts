import { open, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  bytesOf,
  f32,
  failure,
  folderWith,
  raw,
  safetensors,
  safetensorsBytes,
} from '../../test/fixtures/weights/build.js';
import { dtypeBytes, TENSOR_DTYPES } from './dtypes.js';
import { parseHeader, SafetensorsFile } from './safetensors.js';

function header(json: string | object, dataBytes: number) {
  const bytes = Buffer.from(typeof json === 'string' ? json : JSON.stringify(json));
  return () => parseHeader(bytes, 8 + bytes.length + dataBytes, 'x.safetensors');
}

const good = { dtype: 'F32', shape: [2, 3], data_offsets: [0, 24] };

describe('parseHeader', () => {
  it('gives every dtype its size', () => {
    for (const dtype of TENSOR_DTYPES) {
      const bytes = 6 * dtypeBytes(dtype);
      const { tensors } = header({ t: { dtype, shape: [2, 3], data_offsets: [0, bytes] } }, bytes)();
      expect(tensors.get('t')).toMatchObject({ dtype, shape: [2, 3], byteLength: bytes });
    }
    expect(TENSOR_DTYPES.map(dtypeBytes)).toEqual([8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1, 1]);
  });

  it('takes scalars, empty tensors, metadata, padding and names of every kind', () => {
    const json = `${JSON.stringify({
      __metadata__: { format: 'pt', note: 'y' },
      scalar: { dtype: 'I64', shape: [], data_offsets: [0, 8] },
      empty: { dtype: 'F32', shape: [0, 5], data_offsets: [8, 8] },
      'ü "quoted" \\ name': { dtype: 'U8', shape: [3], data_offsets: [8, 11] },
    }).replace('"scalar"', '"__proto__"')}     `;
    const parsed = header(json, 11)();
    expect([...parsed.tensors.keys()]).toEqual(['__proto__', 'empty', 'ü "quoted" \\ name']);
    expect(parsed.metadata).toEqual({ format: 'pt', note: 'y' });
    expect(parsed.tensors.get('ü "quoted" \\ name')?.start).toBe(8 + Buffer.byteLength(json) + 8);
  });

  it('keeps offsets beyond 4 GiB exact', () => {
    const big = 6 * 2 ** 30;
    const { tensors } = header(
      {
        a: { dtype: 'U8', shape: [big + 1], data_offsets: [0, big + 1] },
        b: { dtype: 'U8', shape: [3], data_offsets: [big + 1, big + 4] },
      },
      big + 4,
    )();
    expect(tensors.get('b')!.start - tensors.get('a')!.start).toBe(big + 1);
  });

  const broken: [string, string | object, number, string, RegExp][] = [
    ['no JSON', '{"a":', 0, 'weights-header', /not JSON/],
    ['a list', '[]', 0, 'weights-header', /not a JSON object/],
    ['an entry that is no object', { t: 3 }, 0, 'weights-header', /entry of "t"/],
    ['no dtype', { t: { ...good, dtype: 7 } }, 24, 'weights-header', /no dtype/],
    ['an unknown dtype', { t: { ...good, dtype: 'F8_E4M3' } }, 24, 'weights-dtype', /"F8_E4M3"/],
    [
      'a dtype that is a property of objects',
      { t: { ...good, dtype: 'toString' } },
      24,
      'weights-dtype',
      /toString/,
    ],
    ['no shape', { t: { ...good, shape: undefined } }, 24, 'weights-header', /shape/],
    ['a negative size', { t: { ...good, shape: [-2, -3] } }, 24, 'weights-header', /shape/],
    ['a fractional size', { t: { ...good, shape: [1.5, 4] } }, 24, 'weights-header', /shape/],
    ['an absurd shape', { t: { ...good, shape: [2 ** 40, 2 ** 40] } }, 24, 'weights-header', /absurd/],
    ['one offset', { t: { ...good, data_offsets: [0] } }, 24, 'weights-header', /data_offsets/],
    [
      'offsets the wrong way',
      { t: { ...good, data_offsets: [24, 0] } },
      24,
      'weights-header',
      /before it begins/,
    ],
    ['size and shape at odds', { t: { ...good, shape: [2, 2] } }, 24, 'weights-header', /24 bytes.*takes 16/],
    ['a tensor beyond the end', { t: good }, 20, 'weights-truncated', /ends at byte/],
    ['bytes after the last tensor', { t: good }, 25, 'weights-header', /1 bytes at its end/],
    [
      'an overlap',
      { a: good, b: { dtype: 'F32', shape: [2], data_offsets: [20, 28] } },
      28,
      'weights-header',
      /"b" overlaps "a"/,
    ],
    ['the same range twice', { a: good, b: good }, 24, 'weights-header', /overlaps/],
    [
      'a gap',
      { a: good, b: { dtype: 'F32', shape: [1], data_offsets: [28, 32] } },
      32,
      'weights-header',
      /4 bytes before "b"/,
    ],
    ['metadata that is not text', { __metadata__: { a: 1 } }, 0, 'weights-header', /__metadata__\.a/],
    [
      'a name twice',
      `{"a":${JSON.stringify(good)},"\\u0061":${JSON.stringify(good)}}`,
      24,
      'weights-header',
      /key "a" twice/,
    ],
    [
      'a field twice',
      '{"a":{"dtype":"F32","shape":[1],"shape":[6],"data_offsets":[0,24]}}',
      24,
      'weights-header',
      /"shape" twice/,
    ],
  ];
  it.each(broken)('refuses %s', async (_, json, dataBytes, code, message) => {
    const error = await failure(header(json, dataBytes));
    expect(error.code).toBe(code);
    expect(error.message).toMatch(message);
    expect(error.message).toContain('x.safetensors');
    expect(error.fix).toBeTruthy();
  });

  it('refuses bytes that are not UTF-8', async () => {
    const json = Buffer.from('{"\xff":{}}', 'latin1');
    expect((await failure(() => parseHeader(json, 8 + json.length, 'x'))).code).toBe('weights-header');
  });
});

describe('SafetensorsFile', () => {
  const values = [1.5, -2, 3e-9, 4, 5, 6];

  it('reads any part of a tensor by position', async () => {
    using folder = folderWith({
      'a.safetensors': safetensors({ x: raw('U8', [5], 5), t: f32([2, 3], values) }, { format: 'pt' }),
    });
    const file = await SafetensorsFile.open(join(folder.path, 'a.safetensors'));
    const tensor = file.tensors.get('t')!;
    const part = new Float32Array(2);
    await file.readInto(tensor, 8, bytesOf(part));
    expect([...part]).toEqual([Math.fround(3e-9), 4]);
    const shared = new Float32Array(new SharedArrayBuffer(24));
    await file.readInto(tensor, 0, bytesOf(shared));
    expect([...shared]).toEqual(values.map(Math.fround));
    await expect(file.readInto(tensor, 20, bytesOf(part))).rejects.toThrow(RangeError);
    expect(file.metadata).toEqual({ format: 'pt' });
    await file.close();
  });

  it('reads beyond 4 GiB (a sparse file)', async () => {
    using folder = folderWith({});
    const path = join(folder.path, 'big.safetensors');
    const big = 5 * 2 ** 30;
    const head = safetensorsBytes({
      a: { dtype: 'U8', shape: [big], data_offsets: [0, big] },
      b: { dtype: 'F32', shape: [2], data_offsets: [big, big + 8] },
    });
    await writeFile(path, head);
    await truncate(path, head.length + big + 8);
    const handle = await open(path, 'r+');
    await handle.write(bytesOf(Float32Array.of(7, 8)), 0, 8, head.length + big);
    await handle.write(Uint8Array.of(42), 0, 1, head.length + 3 * 2 ** 30);
    await handle.close();

    const file = await SafetensorsFile.open(path);
    const b = new Float32Array(2);
    await file.readInto(file.tensors.get('b')!, 0, bytesOf(b));
    expect([...b]).toEqual([7, 8]);
    const a = new Uint8Array(3);
    await file.readInto(file.tensors.get('a')!, 3 * 2 ** 30 - 1, a);
    expect([...a]).toEqual([0, 42, 0]);
    await file.close();
  });

  it('notices a file cut at any byte', async () => {
    const whole = safetensors({ t: f32([2, 3], values) });
    using folder = folderWith({});
    const path = join(folder.path, 'cut.safetensors');
    for (let length = 0; length < whole.length; length++) {
      await writeFile(path, whole.subarray(0, length));
      const error = await failure(SafetensorsFile.open(path));
      expect(error.code, `cut to ${length}`).toBe('weights-truncated');
      expect(error.fix).toMatch(/fetch/);
    }
  });

  it('notices a file that shrinks after it was opened', async () => {
    using folder = folderWith({ 'a.safetensors': safetensors({ t: f32([2, 3], values) }) });
    const path = join(folder.path, 'a.safetensors');
    const file = await SafetensorsFile.open(path);
    await truncate(path, file.size - 4);
    const error = await failure(file.readInto(file.tensors.get('t')!, 0, new Uint8Array(24)));
    expect(error.code).toBe('weights-truncated');
    await file.close();
  });

  it.each([
    ['weights-header', 2n ** 63n],
    ['weights-header', 100_000_001n],
    ['weights-truncated', 5000n],
    ['weights-header', 1n],
    ['weights-header', 0n],
  ])('refuses with %s a header that claims %d bytes', async (code, length) => {
    using folder = folderWith({ 'a.safetensors': safetensorsBytes({ t: good }, new Uint8Array(24), length) });
    expect((await failure(SafetensorsFile.open(join(folder.path, 'a.safetensors')))).code).toBe(code);
  });

  it.each([
    [
      'weights-pickle',
      'a zip (torch.save)',
      Buffer.from('PK\x03\x04\x00\x00\x08\x08\x00\x00archive/data.pkl', 'latin1'),
    ],
    [
      'weights-pickle',
      'a bare pickle',
      Buffer.from('\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19', 'latin1'),
    ],
    ['weights-gguf', 'GGUF', Buffer.from('GGUF\x03\x00\x00\x00\x23\x01\x00\x00\x00\x00\x00\x00', 'latin1')],
    [
      'weights-lfs-pointer',
      'a Git LFS pointer',
      Buffer.from('version https://git-lfs.github.com/spec/v1\noid sha256:0'),
    ],
  ])('refuses with %s a file that is %s', async (code, _, bytes) => {
    using folder = folderWith({ 'model.safetensors': bytes });
    const error = await failure(SafetensorsFile.open(join(folder.path, 'model.safetensors')));
    expect(error.code).toBe(code);
    expect(error.fix).toBeTruthy();
  });

  it('does not take a header length of 640 (0x80 0x02) for a pickle', async () => {
    const json = JSON.stringify({ t: good }).padEnd(640);
    using folder = folderWith({ 'a.safetensors': safetensorsBytes(json, new Uint8Array(24)) });
    const file = await SafetensorsFile.open(join(folder.path, 'a.safetensors'));
    expect(file.tensors.size).toBe(1);
    await file.close();
  });

  it('says which file is missing', async () => {
    using folder = folderWith({});
    const error = await failure(SafetensorsFile.open(join(folder.path, 'gone.safetensors')));
    expect(error.code).toBe('weights-missing');
    expect(error.message).toContain('gone.safetensors');
    expect((await failure(SafetensorsFile.open(folder.path))).code).toBe('weights-header');
  });
});
