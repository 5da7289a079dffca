/** Tensors of a fixture checkpoint in f32, for tests that write them as GGUF; and such a file. */

import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Checkpoint } from '../../src/weights/checkpoint.js';
import { decodeFloats } from '../../src/weights/dtypes.js';
import { ggufBytes, type Value } from './gguf-writer.js';

export interface Named {
  readonly name: string;
  readonly shape: readonly number[];
  readonly values: Float32Array;
}

/** Numbers, nearly all. */
export type Fields = Readonly<Record<string, number>>;

export async function published(folder: string): Promise<{ config: Fields; tensors: Named[] }> {
  const config = JSON.parse(await readFile(join(folder, 'config.json'), 'utf8')) as Fields;
  await using checkpoint = await Checkpoint.open(folder);
  const tensors: Named[] = [];
  for (const name of checkpoint.names()) {
    const info = checkpoint.info(name)!;
    const bytes = new Uint8Array(info.byteLength);
    await checkpoint.readBytes(name, 0, bytes);
    const values = new Float32Array(info.shape.reduce((a, b) => a * b, 1));
    decodeFloats(bytes, info.dtype.toLowerCase() as 'f32', values);
    tensors.push({ name, shape: info.shape, values });
  }
  return { config, tensors };
}

/** Writes tensors in f32. */
export async function writeGguf(
  path: string,
  metadata: Readonly<Record<string, Value>>,
  tensors: readonly Named[],
): Promise<void> {
  const written = tensors.map(({ name, shape, values }) => ({
    name,
    shape,
    type: 0,
    data: new Uint8Array(values.buffer, values.byteOffset, values.byteLength),
  }));
  await writeFile(path, ggufBytes({ metadata, tensors: written }));
}

/** Rows `[from, to)` of each matrix of a stack, or of a matrix. */
export function rowsOf({ shape, values }: Named, from: number, to: number): Omit<Named, 'name'> {
  const cols = shape.at(-1)!;
  const rows = shape.at(-2)!;
  const stack = shape.length === 3 ? shape[0]! : 1;
  const out = new Float32Array(stack * (to - from) * cols);
  for (let one = 0; one < stack; one++)
    out.set(values.subarray((one * rows + from) * cols, (one * rows + to) * cols), one * (to - from) * cols);
  return { shape: [...shape.slice(0, -2), to - from, cols], values: out };
}

/** Rows of q or k with rotated pairs beside one another: `reshape(heads, 2, dim / 2).swapaxes(1, 2)`. */
export function paired({ shape, values }: Named, heads: number): Float32Array {
  const cols = shape[1] ?? 1;
  const half = shape[0]! / heads / 2;
  const out = new Float32Array(values.length);
  for (let head = 0; head < heads; head++)
    for (let side = 0; side < 2; side++)
      for (let i = 0; i < half; i++) {
        const from = (2 * head + side) * half + i;
        out.set(values.subarray(from * cols, (from + 1) * cols), (2 * (head * half + i) + side) * cols);
      }
  return out;
}

/** As `Glm4Model.normal_to_neox`: of each head's rotated rows every second one first, then those between. */
export function halved(tensor: Named, headDim: number, rotary: number): Named {
  const cols = tensor.shape[1] ?? 1;
  const values = tensor.values.slice();
  for (let head = 0; head < tensor.shape[0]!; head += headDim)
    for (let i = 0; i < rotary; i++) {
      const from = head + (i < rotary / 2 ? 2 * i : 2 * i - rotary + 1);
      values.set(tensor.values.subarray(from * cols, (from + 1) * cols), (head + i) * cols);
    }
  return { ...tensor, values };
}

/** What llama.cpp's converter calls the parts of a layer that most decoders have. */
export const GGUF_LAYER_NAMES: Readonly<Record<string, string>> = {
  input_layernorm: 'attn_norm',
  post_attention_layernorm: 'ffn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  'mlp.gate': 'ffn_gate_inp',
};
