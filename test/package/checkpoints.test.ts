/** The tiny checkpoints, as the repository has them: scripts/fixtures/checkpoints.mjs. */
import { mkdtempSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync } from 'node:zlib';
import { afterAll, expect, it } from 'vitest';
import { packed, unpack, unpacked } from '../../scripts/fixtures/checkpoints.mjs';

const folder = mkdtempSync(join(tmpdir(), 'kvant-checkpoints-'));
const file = join(folder, 'model.safetensors');
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** One tensor of `dtype` whose numbers, of `width` bytes, have alike last bytes and random others. */
function checkpoint(dtype: string, width: number, seed: number): Buffer {
  const data = Buffer.alloc(4096 * width);
  for (let i = 0; i < data.length; i++)
    data[i] = (i + 1) % width === 0 ? 60 : (Math.imul(i + seed, 2654435761) >>> 13) & 255;
  const tensor = { dtype, shape: [4096], data_offsets: [0, data.length] };
  const head = Buffer.from(JSON.stringify({ __metadata__: { format: 'pt' }, 'a.weight': tensor }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(head.length));
  return Buffer.concat([length, head, data]);
}

it.each([
  ['BF16', 2],
  ['F16', 2],
  ['F32', 4],
  ['F64', 8],
  ['U32', 4],
  ['U8', 1],
])('%s comes back as it was', (dtype, width) => {
  const bytes = checkpoint(dtype, width, 3);
  const small = packed(bytes);
  expect(small.length).toBeLessThan(bytes.length);
  expect(unpacked(small)).toEqual(bytes);
});

it('unpacks what is missing or of another age, and nothing else', () => {
  const [old, young] = [checkpoint('BF16', 2, 5), checkpoint('BF16', 2, 6)];
  writeFileSync(`${file}.br`, packed(old));
  unpack([folder]);
  expect(readFileSync(file)).toEqual(old);
  expect(statSync(file).mtimeMs).toBeCloseTo(statSync(`${file}.br`).mtimeMs, -1);

  writeFileSync(`${file}.br`, packed(young));
  utimesSync(`${file}.br`, 1_000_000_000, 1_000_000_000);
  unpack([folder]);
  expect(readFileSync(file)).toEqual(young);

  const { ino } = statSync(file);
  unpack([folder]);
  expect(statSync(file).ino).toBe(ino);
});

it('unpacks lists of tensors', () => {
  const index = `${file}.index.json`;
  const text = JSON.stringify({ weight_map: { 'a.weight': 'model.safetensors' } });
  writeFileSync(`${index}.br`, brotliCompressSync(text));
  unpack([folder]);
  expect(readFileSync(index, 'utf8')).toBe(text);
});
