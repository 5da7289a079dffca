/** The tiny checkpoints, as the repository has them: scripts/fixtures/checkpoints.mjs. */
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
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

it('keeps a file that models beside each other have in common once, with the first of them', () => {
  const models = join(folder, 'models');
  const [first, second] = ['a', 'b'].map((name) => join(models, name, 'model.safetensors'));
  const pack = (...names: string[]): void => {
    const script = fileURLToPath(new URL('../../scripts/fixtures/checkpoints.mjs', import.meta.url));
    execFileSync(process.execPath, [script, 'pack', ...names.map((name) => join(models, name))]);
  };
  for (const name of ['a', 'b']) mkdirSync(join(models, name), { recursive: true });
  for (const at of [first!, second!]) writeFileSync(at, checkpoint('BF16', 2, 7));
  pack('b', 'a');
  pack('b');
  expect(existsSync(`${first}.br`)).toBe(true);
  expect(existsSync(`${second}.br`)).toBe(false);
  expect(readFileSync(`${second}.same`, 'utf8')).toBe('../a/model.safetensors.br\n');
  for (const at of [first!, second!]) rmSync(at);
  unpack([models]);
  expect(readFileSync(first!)).toEqual(checkpoint('BF16', 2, 7));
  expect(readFileSync(second!)).toEqual(checkpoint('BF16', 2, 7));

  writeFileSync(second!, checkpoint('BF16', 2, 8));
  pack('b');
  expect(existsSync(`${second}.same`)).toBe(false);
  rmSync(second!);
  unpack([models]);
  expect(readFileSync(second!)).toEqual(checkpoint('BF16', 2, 8));
});
