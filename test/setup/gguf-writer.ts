/** Writes small GGUF files for tests, by the format's own description. */

export type Value =
  | { readonly type: 'u32' | 'i32' | 'f32' | 'u64' | 'bool' | 'u8'; readonly value: number }
  | { readonly type: 'string'; readonly value: string }
  | { readonly type: 'strings'; readonly value: readonly string[] }
  | { readonly type: 'i32s' | 'f32s' | 'u32s' | 'bools'; readonly value: readonly number[] };

export interface WrittenTensor {
  readonly name: string;
  /** Outermost first. */
  readonly shape: readonly number[];
  /** GGML's number of the type. */
  readonly type: number;
  readonly data: Uint8Array;
  /** Instead of where it would stand. */
  readonly offset?: number;
}

export interface WrittenGguf {
  readonly metadata: Readonly<Record<string, Value>>;
  readonly tensors: readonly WrittenTensor[];
  readonly version?: number;
  readonly alignment?: number;
}

export const u32 = (value: number): Value => ({ type: 'u32', value });
export const f32 = (value: number): Value => ({ type: 'f32', value });
export const bool = (value: boolean): Value => ({ type: 'bool', value: value ? 1 : 0 });
export const string = (value: string): Value => ({ type: 'string', value });
export const strings = (value: readonly string[]): Value => ({ type: 'strings', value });
export const u32s = (value: readonly number[]): Value => ({ type: 'u32s', value });
export const bools = (value: readonly number[]): Value => ({ type: 'bools', value });
export const i32s = (value: readonly number[]): Value => ({ type: 'i32s', value });
export const f32s = (value: readonly number[]): Value => ({ type: 'f32s', value });

const NUMBERS = { u8: 0, u32: 4, i32: 5, f32: 6, bool: 7, u64: 10 } as const;

function number(type: keyof typeof NUMBERS, value: number): Buffer {
  const bytes = Buffer.alloc(type === 'u64' ? 8 : type === 'u8' || type === 'bool' ? 1 : 4);
  if (type === 'u64') bytes.writeBigUInt64LE(BigInt(value));
  else if (type === 'f32') bytes.writeFloatLE(value);
  else if (type === 'i32') bytes.writeInt32LE(value);
  else if (type === 'u32') bytes.writeUInt32LE(value);
  else bytes.writeUInt8(value);
  return bytes;
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([number('u64', bytes.length), bytes]);
}

function value(item: Value): Buffer {
  switch (item.type) {
    case 'string':
      return Buffer.concat([number('u32', 8), text(item.value)]);
    case 'strings':
      return Buffer.concat([
        number('u32', 9),
        number('u32', 8),
        number('u64', item.value.length),
        ...item.value.map(text),
      ]);
    case 'i32s':
    case 'f32s':
    case 'u32s':
    case 'bools': {
      const type = item.type.slice(0, -1) as 'i32' | 'f32' | 'u32' | 'bool';
      const items = item.value.map((one) => number(type, one));
      return Buffer.concat([
        number('u32', 9),
        number('u32', NUMBERS[type]),
        number('u64', items.length),
        ...items,
      ]);
    }
    default:
      return Buffer.concat([number('u32', NUMBERS[item.type]), number(item.type, item.value)]);
  }
}

/** The bytes of a file. */
export function ggufBytes({ metadata, tensors, version = 3, alignment = 32 }: WrittenGguf): Buffer {
  const keys = Object.entries(metadata);
  const padded = (size: number): number => Math.ceil(size / alignment) * alignment;
  let at = 0;
  const offsets = tensors.map(({ data, offset }) => {
    const own = offset ?? at;
    at += padded(data.length);
    return own;
  });
  const header = Buffer.concat([
    Buffer.from('GGUF'),
    number('u32', version),
    number('u64', tensors.length),
    number('u64', keys.length),
    ...keys.flatMap(([key, item]) => [text(key), value(item)]),
    ...tensors.flatMap(({ name, shape, type }, i) => [
      text(name),
      number('u32', shape.length),
      ...[...shape].reverse().map((size) => number('u64', size)),
      number('u32', type),
      number('u64', offsets[i]!),
    ]),
  ]);
  const start = padded(header.length);
  return Buffer.concat([
    header,
    Buffer.alloc(start - header.length),
    ...tensors.flatMap(({ data }) => [data, Buffer.alloc(padded(data.length) - data.length)]),
  ]);
}
