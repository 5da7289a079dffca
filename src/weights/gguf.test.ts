import { execFileSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { folderWith } from '../../test/fixtures/weights/build.js';
import {
  f32,
  f32s,
  ggufBytes,
  i32s,
  string,
  strings,
  u32,
  type WrittenGguf,
  type WrittenTensor,
} from '../../test/setup/gguf-writer.js';
import { KvantError } from '../errors.js';
import { readOptionalTextFile } from './folder-files.js';
import { GgufFile } from './gguf.js';
import { GgufCheckpoint } from './gguf-checkpoint.js';
import { pairedRows } from './gguf-matrix.js';
import { SafetensorsFile } from './safetensors.js';

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'kvant-gguf-'));
});
afterAll(() => rm(folder, { recursive: true }));

let made = 0;
async function written(bytes: Uint8Array, name = `${made++}.gguf`): Promise<string> {
  const path = join(folder, name);
  await writeFile(path, bytes);
  return path;
}

const tensor = (name: string, more: Partial<WrittenTensor> = {}): WrittenTensor => ({
  name,
  shape: [2, 4],
  type: 0,
  data: new Uint8Array(32).fill(7),
  ...more,
});

const PLAIN: WrittenGguf = {
  metadata: {
    'general.architecture': string('llama'),
    'a.number': u32(7),
    'a.float': f32(0.5),
    'a.list': i32s([1, -2, 3]),
    'some.floats': f32s([0.25, -1]),
    'some.texts': strings(['', 'ä', 'Ġthe', '\u{1f600}']),
    'a.flag': { type: 'bool', value: 1 },
    'a.long': { type: 'u64', value: 2 ** 40 },
  },
  tensors: [tensor('one.weight'), tensor('two.weight', { shape: [5], data: new Uint8Array(20) })],
};

/** The error of opening a file, which must be one that says what to do. */
async function refusal(bytes: Uint8Array): Promise<KvantError> {
  const path = await written(bytes);
  const error = await GgufFile.open(path).then(
    async (file) => {
      await file.close();
      throw new Error('it was opened');
    },
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(KvantError);
  expect((error as KvantError).fix).toMatch(/\w{3}/);
  return error as KvantError;
}

describe('GgufFile', () => {
  it.each([2, 3])('reads keys and tensors of version %i', async (version) => {
    await using file = await GgufFile.open(await written(ggufBytes({ ...PLAIN, version })));
    const { metadata } = file;
    expect(metadata.text('general.architecture')).toBe('llama');
    expect(metadata.count('a.number')).toBe(7);
    expect(metadata.number('a.float')).toBe(0.5);
    expect(metadata.numbers('a.list')).toEqual([1, -2, 3]);
    expect(metadata.numbers('some.floats')).toEqual([0.25, -1]);
    expect(metadata.texts('some.texts')).toEqual(['', 'ä', 'Ġthe', '\u{1f600}']);
    expect(metadata.flag('a.flag')).toBe(true);
    expect(metadata.number('a.long')).toBe(2 ** 40);
    expect(metadata.text('none')).toBeUndefined();
    expect(() => metadata.text('a.number')).toThrow(/a.number is 7; a string/);
    expect(() => metadata.texts('a.list')).toThrow(/a.list is a list of 3/);
    const one = file.tensors.get('one.weight')!;
    expect(one).toMatchObject({ shape: [2, 4], byteLength: 32, type: { name: 'F32' } });
    const bytes = new Uint8Array(8);
    await file.readInto(one, 24, bytes);
    expect([...bytes]).toEqual(new Array(8).fill(7));
    await expect(file.readInto(one, 30, bytes)).rejects.toThrow(RangeError);
  });

  it.each([
    [31, 'Q4_0_4_4, which was withdrawn'],
    [139, "139, which is one of ik_llama.cpp's own"],
    [999, '999, which is not known'],
  ])('names type %i where it can', async (type, what) => {
    const path = await written(ggufBytes({ ...PLAIN, tensors: [tensor('a', { type })] }));
    await expect(GgufFile.open(path)).rejects.toMatchObject({
      code: 'weights-dtype',
      message: `${path}: "a" is of type ${what}`,
      fix: expect.stringContaining('Q4_K_M') as string,
    });
  });

  it('reads over lists of lists', async () => {
    const nested = Buffer.from(ggufBytes(PLAIN));
    // Its list of texts becomes a list of one list, which is empty, and what is left of it a list of bytes.
    const at = nested.indexOf('some.texts') + 10;
    const end = nested.indexOf('a.flag') - 8;
    nested.writeUInt32LE(9, at + 4);
    nested.writeBigUInt64LE(2n, at + 8);
    nested.writeUInt32LE(4, at + 16);
    nested.writeBigUInt64LE(0n, at + 20);
    nested.writeUInt32LE(0, at + 28);
    nested.writeBigUInt64LE(BigInt(end - at - 40), at + 32);
    await using file = await GgufFile.open(await written(nested));
    expect(file.metadata.flag('a.flag')).toBe(true);
    expect(() => file.metadata.texts('some.texts')).toThrow(/some.texts is a list of 2; a list of strings/);
  });

  it('reads a header of many pieces', async () => {
    const tokens = Array.from({ length: 60_000 }, (_, i) => `token-${i}`.repeat(1 + (i % 7)));
    const bytes = ggufBytes({ ...PLAIN, metadata: { ...PLAIN.metadata, tokens: strings(tokens) } });
    expect(bytes.length).toBeGreaterThan(2 << 20);
    await using file = await GgufFile.open(await written(bytes));
    expect(file.metadata.texts('tokens')).toEqual(tokens);
  });

  it('takes another alignment, and tensors in any order', async () => {
    const metadata = { ...PLAIN.metadata, 'general.alignment': u32(64) };
    const tensors = [
      tensor('b', { offset: 64, data: new Uint8Array(32).fill(1) }),
      tensor('a', { offset: 0, data: new Uint8Array(32).fill(2) }),
    ];
    const bytes = ggufBytes({ metadata, tensors, alignment: 64 });
    await using file = await GgufFile.open(await written(bytes));
    const read = new Uint8Array(1);
    await file.readInto(file.tensors.get('a')!, 0, read);
    // Written in the order of the list: what lies at 0 came first.
    expect(read[0]).toBe(1);
  });

  it('refuses a file cut anywhere', async () => {
    const bytes = ggufBytes(PLAIN);
    for (let size = 0; size < bytes.length - 12; size += 5) {
      const { code } = await refusal(bytes.subarray(0, size));
      expect(['weights-truncated', 'weights-header']).toContain(code);
    }
  });

  const patched = (at: number, value: bigint): Buffer => {
    const bytes = Buffer.from(ggufBytes(PLAIN));
    bytes.writeBigUInt64LE(value, at);
    return bytes;
  };

  it.each([
    ['a hostile number of tensors', () => patched(8, 2n ** 63n), 'weights-truncated'],
    ['a hostile number of keys', () => patched(16, 2n ** 40n), 'weights-truncated'],
    ['a key of hostile length', () => patched(24, 2n ** 64n - 1n), 'weights-header'],
    ['another format', () => Buffer.from('{"a": 1}, and then some more'), 'weights-header'],
    ['a pickle', () => Buffer.from([0x80, 2, 0x7d, 0x71, 0, 0, 0, 0, 0, 0]), 'weights-pickle'],
    [
      'a Git LFS pointer',
      () => Buffer.from('version https://git-lfs.github.com/spec/v1'),
      'weights-lfs-pointer',
    ],
    ['GGML, from before GGUF', () => Buffer.from('tjgg\x03\0\0\0and more'), 'weights-gguf-version'],
    ['version 1', () => ggufBytes({ ...PLAIN, version: 1 }), 'weights-gguf-version'],
    ['the other byte order', () => ggufBytes({ ...PLAIN, version: 0x0300_0000 }), 'weights-gguf-version'],
    [
      'a tensor beyond the end',
      () => ggufBytes({ ...PLAIN, tensors: [tensor('a', { shape: [200, 400] })] }),
      'weights-truncated',
    ],
    [
      'a tensor far beyond the end',
      () => ggufBytes({ ...PLAIN, tensors: [tensor('a', { offset: 2 ** 52 })] }),
      'weights-truncated',
    ],
    [
      'tensors that overlap',
      () => ggufBytes({ ...PLAIN, tensors: [tensor('a'), tensor('b', { offset: 0 })] }),
      'weights-header',
    ],
    [
      'an offset that is not aligned',
      () => ggufBytes({ ...PLAIN, tensors: [tensor('a', { offset: 4 }), tensor('b')] }),
      'weights-header',
    ],
    ['an unknown type', () => ggufBytes({ ...PLAIN, tensors: [tensor('a', { type: 4 })] }), 'weights-dtype'],
    [
      'rows that are no whole blocks',
      () => ggufBytes({ ...PLAIN, tensors: [tensor('a', { type: 8, shape: [2, 40] })] }),
      'weights-header',
    ],
    [
      'rows that are no whole blocks, of a type that is not read',
      () => ggufBytes({ ...PLAIN, tensors: [tensor('a', { type: 16, shape: [2, 40] })] }),
      'weights-gguf-type',
    ],
    ['no dimensions', () => ggufBytes({ ...PLAIN, tensors: [tensor('a', { shape: [] })] }), 'weights-header'],
    [
      'too many dimensions',
      () => ggufBytes({ ...PLAIN, tensors: [tensor('a', { shape: [1, 1, 1, 2, 4] })] }),
      'weights-header',
    ],
    [
      'a dimension of nothing',
      () => ggufBytes({ ...PLAIN, tensors: [tensor('a', { shape: [0, 4] })] }),
      'weights-header',
    ],
    [
      'a shape whose product is absurd',
      () => ggufBytes({ ...PLAIN, tensors: [tensor('a', { shape: [2 ** 40, 2 ** 40] })] }),
      'weights-header',
    ],
    ['a tensor twice', () => ggufBytes({ ...PLAIN, tensors: [tensor('a'), tensor('a')] }), 'weights-header'],
    [
      'an alignment of 0',
      () => ggufBytes({ ...PLAIN, metadata: { 'general.alignment': u32(0) } }),
      'weights-header',
    ],
    [
      'an alignment of 24',
      () => ggufBytes({ ...PLAIN, metadata: { 'general.alignment': u32(24) } }),
      'weights-header',
    ],
  ] as const)('refuses %s', async (_, bytes, code) => {
    expect((await refusal(bytes())).code).toBe(code);
  });

  it('refuses 200 mutated files with an error, or reads them whole', async () => {
    const original = ggufBytes(PLAIN);
    let state = 1;
    const random = (below: number): number => {
      state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
      return Math.floor((state / 2 ** 32) * below);
    };
    let refused = 0;
    for (let i = 0; i < 200; i++) {
      const bytes = Buffer.from(original);
      for (let n = random(4); n >= 0; n--) bytes[random(bytes.length)] = random(256);
      const path = await written(bytes, 'mutated.gguf');
      try {
        await using file = await GgufFile.open(path);
        for (const found of file.tensors.values())
          await file.readInto(found, 0, new Uint8Array(found.byteLength));
        for (const key of file.metadata.keys()) void file.metadata.value(key);
      } catch (error) {
        expect(error).toBeInstanceOf(KvantError);
        expect((error as KvantError).fix).toBeDefined();
        refused++;
      }
    }
    expect(refused).toBeGreaterThan(50);
  });

  it('never waits for who writes to a pipe', async () => {
    const { path } = folderWith({ 'config.json': {} });
    for (const name of ['x.gguf', 'model.safetensors', 'tokenizer_config.json'])
      execFileSync('mkfifo', [join(path, name)]);
    await expect(GgufFile.open(join(path, 'x.gguf'))).rejects.toMatchObject({ code: 'weights-header' });
    await expect(SafetensorsFile.open(join(path, 'model.safetensors'))).rejects.toMatchObject({
      message: expect.stringContaining('it is not a file') as string,
    });
    await expect(readOptionalTextFile(path, 'tokenizer_config.json')).rejects.toMatchObject({
      code: 'model-file-unreadable',
    });
    await rm(path, { recursive: true });
  });

  it('says what is missing, and what is a folder', async () => {
    await expect(GgufFile.open(join(folder, 'none.gguf'))).rejects.toMatchObject({ code: 'weights-missing' });
    await expect(GgufFile.open(folder)).rejects.toMatchObject({
      code: /weights-(header|unreadable)/ as never,
    });
  });
});

describe('GgufCheckpoint', () => {
  const shard = (number: number, count = 2, tensors = 2, architecture = 'x'): Buffer =>
    ggufBytes({
      metadata: {
        'general.architecture': string(architecture),
        'split.no': u32(number),
        'split.count': u32(count),
        'split.tensors.count': u32(tensors),
      },
      tensors: [tensor(`${number}.weight`)],
    });

  it('opens all files of a set by any of them', async () => {
    const first = await written(shard(0), 'm-00001-of-00002.gguf');
    await expect(GgufCheckpoint.open(first)).rejects.toMatchObject({
      code: 'weights-shard-missing',
      fix: expect.stringContaining('m-00002-of-00002.gguf') as string,
    });
    const second = await written(shard(1), 'm-00002-of-00002.gguf');
    for (const path of [first, second]) {
      await using set = await GgufCheckpoint.open(path);
      expect(set.names()).toEqual(['0.weight', '1.weight']);
      expect(set.path).toBe(first);
    }
  });

  it('refuses sets that do not belong together', async () => {
    await written(shard(0), 'd-00001-of-00002.gguf');
    await written(shard(0), 'd-00002-of-00002.gguf');
    await expect(GgufCheckpoint.open(join(folder, 'd-00001-of-00002.gguf'))).rejects.toMatchObject({
      code: 'weights-duplicate',
    });
    await written(shard(1), 'r-00001-of-00002.gguf');
    await written(shard(0), 'r-00002-of-00002.gguf');
    await expect(GgufCheckpoint.open(join(folder, 'r-00001-of-00002.gguf'))).rejects.toMatchObject({
      code: 'weights-gguf',
      message: expect.stringMatching(/r-00001-of-00002\.gguf is file 2 of a set/) as string,
    });
    await written(shard(0, 2, 2, 'llama'), 'o-00001-of-00002.gguf');
    await written(shard(1, 2, 2, 'qwen2'), 'o-00002-of-00002.gguf');
    await expect(GgufCheckpoint.open(join(folder, 'o-00001-of-00002.gguf'))).rejects.toMatchObject({
      code: 'weights-header',
      message: expect.stringMatching(/o-00002.*general\.architecture is "qwen2", and .* "llama"/) as string,
    });
    await written(shard(1, 2, 4, 'llama'), 'o-00002-of-00002.gguf');
    await expect(GgufCheckpoint.open(join(folder, 'o-00001-of-00002.gguf'))).rejects.toMatchObject({
      code: 'weights-header',
      message: expect.stringMatching(/split\.tensors\.count is "4"/) as string,
    });
    // As llama-gguf-split leaves those behind the first.
    const split = { 'split.no': u32(1), 'split.count': u32(2), 'split.tensors.count': u32(2) };
    await written(ggufBytes({ metadata: split, tensors: [tensor('1.weight')] }), 'o-00002-of-00002.gguf');
    await (await GgufCheckpoint.open(join(folder, 'o-00001-of-00002.gguf'))).close();
    const alone = await written(shard(0), 'renamed.gguf');
    await expect(GgufCheckpoint.open(alone)).rejects.toMatchObject({ code: 'weights-shard-missing' });
    await written(shard(0, 2, 3), 't-00001-of-00002.gguf');
    await written(shard(1, 2, 3), 't-00002-of-00002.gguf');
    await expect(GgufCheckpoint.open(join(folder, 't-00001-of-00002.gguf'))).rejects.toMatchObject({
      code: 'weights-header',
    });
  });

  it('says what a tensor lacks', async () => {
    await using file = await GgufCheckpoint.open(await written(ggufBytes(PLAIN)));
    const code = (make: () => unknown): unknown => {
      try {
        make();
      } catch (error) {
        return (error as KvantError).code;
      }
      return 'none';
    };
    expect(code(() => file.matrix('none', 'none'))).toBe('weights-tensor-missing');
    expect(code(() => file.matrix('two.weight', 'two'))).toBe('weights-tensor-shape');
    expect(code(() => file.matrix('one.weight', 'one', { rows: 4, cols: 2 }))).toBe('weights-tensor-shape');
    expect(code(() => file.matrix('one.weight', 'one', undefined, pairedRows(4)))).toBe(
      'weights-tensor-shape',
    );
    expect(code(() => file.vector('two.weight', 'two', [4]))).toBe('weights-tensor-shape');
    expect([...(await file.vector('two.weight', 'two', [5]).read())]).toEqual([0, 0, 0, 0, 0]);
  });
});
