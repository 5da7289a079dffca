import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { bytesOf, folderWith } from '../../test/fixtures/weights/build.js';
import { SafetensorsFile } from './safetensors.js';
import { type OutputTensor, planShards, SafetensorsWriter, tensorBytes } from './safetensors-writer.js';

const tensor = (name: string, dtype: OutputTensor['dtype'], ...shape: number[]): OutputTensor => ({
  name,
  dtype,
  shape,
});

describe('planShards', () => {
  const units = [
    [tensor('a', 'F32', 10), tensor('a2', 'F16', 10)],
    [tensor('b', 'U8', 40)],
    [tensor('c', 'F64', 100)],
    [tensor('d', 'U8', 1)],
  ];
  const names = (max: number) => planShards(units, max).map((shard) => shard.map(({ name }) => name).join());

  it('fills shards in order, keeps units whole, gives a large one its own', () => {
    expect(tensorBytes(units[0]![0]!)).toBe(40);
    expect(names(1000)).toEqual(['a,a2,b,c,d']);
    expect(names(100)).toEqual(['a,a2,b', 'c', 'd']);
    expect(names(99)).toEqual(['a,a2', 'b', 'c', 'd']);
    expect(names(1)).toEqual(['a,a2', 'b', 'c', 'd']);
  });
});

describe('SafetensorsWriter', () => {
  it('writes pieces in any order into a file the reader takes, every tensor aligned', async () => {
    using folder = folderWith({});
    const path = join(folder.path, 'a.safetensors');
    const tensors = [
      tensor('flag', 'BOOL', 3),
      tensor('half', 'BF16', 2, 2),
      tensor('wide', 'I64', 2),
      tensor('word', 'U32', 3),
    ];
    const writer = await SafetensorsWriter.create(path, tensors, { format: 'mlx', note: 'é"' });
    await writer.write('word', 8, bytesOf(Uint32Array.of(30)));
    await writer.write('half', 0, bytesOf(Uint16Array.of(1, 2, 3, 4)));
    await writer.write('word', 0, bytesOf(Uint32Array.of(10, 20)));
    await writer.write('wide', 0, bytesOf(BigInt64Array.of(-1n, 5n)));
    await writer.write('flag', 0, Uint8Array.of(1, 0, 1));
    await expect(writer.write('none', 0, Uint8Array.of(1))).rejects.toThrow(RangeError);
    await writer.sync();
    await writer.close();

    const file = await SafetensorsFile.open(path);
    expect(file.size).toBe(writer.size);
    expect(file.metadata).toEqual({ format: 'mlx', note: 'é"' });
    expect([...file.tensors.keys()]).toEqual(['wide', 'word', 'half', 'flag']);
    for (const [name, size] of [
      ['wide', 8],
      ['word', 4],
      ['half', 2],
    ] as const) {
      expect(file.tensors.get(name)!.start % size).toBe(0);
    }
    const words = new Uint32Array(3);
    await file.readInto(file.tensors.get('word')!, 0, bytesOf(words));
    expect([...words]).toEqual([10, 20, 30]);
    const wide = new BigInt64Array(2);
    await file.readInto(file.tensors.get('wide')!, 0, bytesOf(wide));
    expect([...wide]).toEqual([-1n, 5n]);
    await file.close();
    await expect(SafetensorsWriter.create(path, tensors, {})).rejects.toThrow(/EEXIST/);
  });
});
