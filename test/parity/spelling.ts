/** Builds a spelling of a checkpoint: the changes that scripts/fixtures/spellings.py made before transformers loaded it. */

import { cp, mkdir, readdir, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { numberToBf16, numberToF16 } from '../../src/weights/dtypes.js';
import { safetensors, type TestTensor } from '../fixtures/weights/build.js';
import { MODEL_FIXTURES } from './runner.js';

type TensorChange =
  | readonly ['rename', string, string]
  | readonly ['drop', string]
  | readonly ['copy', string, string]
  | readonly ['cast', string, Dtype]
  | readonly ['add', string, Dtype | 'bool', readonly number[]];

export interface Spelling {
  /** The checkpoint that is changed. */
  readonly base: string;
  readonly config?: { readonly set: Readonly<Record<string, string>>; readonly remove: readonly string[] };
  /** Text before the config's first key. */
  readonly prefix?: string;
  readonly bom?: boolean;
  readonly crlf?: boolean;
  readonly tensors?: readonly TensorChange[];
  readonly metadata?: Readonly<Record<string, string>> | null;
  readonly index?: {
    readonly metadata?: string | null;
    readonly prefix?: string;
    readonly extra?: Readonly<Record<string, string>>;
    readonly drop?: readonly string[];
    readonly swap?: boolean;
  };
  /** Where the weights are moved to. */
  readonly folder?: string;
  readonly move?: Readonly<Record<string, string>>;
  readonly remove?: readonly string[];
  readonly write?: Readonly<Record<string, string>>;
  readonly symlink?: readonly string[];
  readonly transformers: {
    readonly refused?: string;
    /** Tensors that it made up. */
    readonly missing?: readonly string[];
    /** The logits are those of the base. */
    readonly same?: boolean;
    readonly eos?: number | readonly number[] | null;
    /** One list for each of the base's cases, where they are not the same. */
    readonly logits?: readonly (readonly number[])[];
  };
}

type Dtype = 'f64' | 'f32' | 'f16' | 'bf16' | 'i64';

const INDEX = 'model.safetensors.index.json';

export async function buildSpelling(spelling: Spelling, folder: string): Promise<void> {
  const { base, index } = spelling;
  const expected = (path: string): boolean => basename(path) !== 'expected.json.br';
  await cp(join(MODEL_FIXTURES, base), folder, { recursive: true, filter: expected });
  const text = await configText(spelling, folder);
  await writeFile(join(folder, 'config.json'), `${spelling.bom ? '\ufeff' : ''}${text}`);
  if (spelling.tensors !== undefined || spelling.metadata !== undefined) {
    const path = join(folder, 'model.safetensors');
    const changed = (spelling.tensors ?? []).reduce(change, readTensors(await readFile(path)));
    const metadata = spelling.metadata === undefined ? { format: 'pt' } : (spelling.metadata ?? undefined);
    await writeFile(path, safetensors(changed, metadata));
  }
  if (index !== undefined) await writeIndex(index, folder);
  if (spelling.folder !== undefined) {
    await mkdir(join(folder, spelling.folder));
    for (const name of await readdir(folder))
      if (name.endsWith('.safetensors'))
        await rename(join(folder, name), join(folder, spelling.folder, name));
  }
  for (const [from, to] of Object.entries(spelling.move ?? {}))
    await rename(join(folder, from), join(folder, to));
  for (const name of spelling.remove ?? []) await rm(join(folder, name));
  for (const [name, contents] of Object.entries(spelling.write ?? {}))
    await writeFile(join(folder, name), contents);
  for (const name of spelling.symlink ?? []) {
    const blob = `${basename(folder)}-blob-${name}`;
    await rename(join(folder, name), join(folder, '..', blob));
    await symlink(join('..', blob), join(folder, name));
  }
}

async function configText({ config, prefix = '', crlf = false }: Spelling, folder: string): Promise<string> {
  const found = JSON.parse(await readFile(join(folder, 'config.json'), 'utf8')) as Record<string, unknown>;
  const values = new Map(Object.entries(found).map(([key, value]) => [key, JSON.stringify(value)]));
  for (const key of config?.remove ?? []) values.delete(key);
  for (const [key, value] of Object.entries(config?.set ?? {})) values.set(key, value);
  const text = `{${prefix}${[...values].map(([key, value]) => `"${key}": ${value}`).join(', ')}}`;
  return crlf ? text.replaceAll(', ', ',\r\n\t ') : text;
}

async function writeIndex(change: NonNullable<Spelling['index']>, folder: string): Promise<void> {
  const path = join(folder, INDEX);
  const found = (JSON.parse(await readFile(path, 'utf8')) as { weight_map: Record<string, string> })
    .weight_map;
  const homes = [...new Set(Object.values(found))].sort();
  const prefix = (change.prefix ?? '').replace('$FOLDER', folder);
  const map = Object.entries({ ...found, ...change.extra })
    .filter(([name]) => !change.drop?.includes(name))
    .map(([name, home]) => {
      const other = change.swap ? homes[(homes.indexOf(home) + 1) % homes.length] : home;
      return [name, `${prefix}${other}`] as const;
    });
  const { metadata = '{"total_size": 1}' } = change;
  const head = metadata === null ? '' : `"metadata": ${metadata}, `;
  await writeFile(path, `{${head}"weight_map": ${JSON.stringify(Object.fromEntries(map))}}`);
}

type Tensors = Readonly<Record<string, TestTensor>>;

function readTensors(file: Buffer): Tensors {
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.toString('utf8', 8, 8 + length)) as Record<
    string,
    { dtype: string; shape: number[]; data_offsets: [number, number] }
  >;
  const found = Object.entries(header).filter(([name]) => name !== '__metadata__');
  return Object.fromEntries(
    found.map(
      ([
        name,
        {
          dtype,
          shape,
          data_offsets: [from, to],
        },
      ]) => [name, { dtype, shape, data: file.subarray(8 + length + from, 8 + length + to) }],
    ),
  );
}

function change(tensors: Tensors, step: TensorChange): Tensors {
  const entries = Object.entries(tensors);
  switch (step[0]) {
    case 'rename':
      return Object.fromEntries(entries.map(([name, t]) => [name.replace(new RegExp(step[1]), step[2]), t]));
    case 'drop':
      return Object.fromEntries(entries.filter(([name]) => !new RegExp(step[1]).test(name)));
    case 'copy':
      return { ...tensors, [step[2]]: tensors[step[1]]! };
    case 'cast':
      return Object.fromEntries(
        entries.map(([name, t]) => [name, new RegExp(step[1]).test(name) ? cast(t, step[2]) : t]),
      );
    case 'add': {
      const [, name, dtype, shape] = step;
      const bytes = shape.reduce((size, n) => size * n, BYTES[dtype]);
      return { ...tensors, [name]: { dtype: dtype.toUpperCase(), shape, data: new Uint8Array(bytes) } };
    }
  }
}

const BYTES = { f64: 8, f32: 4, f16: 2, bf16: 2, i64: 8, bool: 1 } as const;

/** From bf16, which all are before they are changed. */
function cast(tensor: TestTensor, dtype: Dtype): TestTensor {
  if (tensor.dtype !== 'BF16') throw new Error(`${tensor.dtype} is not cast here`);
  const words = new Uint16Array(new Uint8Array(tensor.data).buffer);
  const values = new Float32Array(Uint32Array.from(words, (word) => word << 16).buffer);
  const make = {
    f64: () => Float64Array.from(values),
    f32: () => values,
    f16: () => Uint16Array.from(values, numberToF16),
    bf16: () => Uint16Array.from(values, numberToBf16),
    i64: () => BigInt64Array.from(values, (value) => BigInt(Math.trunc(value))),
  };
  const { buffer } = make[dtype]();
  return { dtype: dtype.toUpperCase(), shape: tensor.shape, data: new Uint8Array(buffer) };
}
