/** A GGUF file as `kvant quantize` reads it: tensors as safetensors checkpoints have them, with converters' changes undone. */

import type { FloatDtype } from '../../device/weights.js';
import { decodeFloats, encodeFloats, tensorDtype } from '../../weights/dtypes.js';
import type { JsonObject } from '../../weights/folder-files.js';
import {
  dequantised,
  type InputTensor,
  matrixPieces,
  type QuantizeInput,
} from '../../weights/quantize-input.js';
import type { GgufArchitecture } from './architecture.js';
import type { GgufSource } from './source.js';

/** Kernels by channel. */
const CONVOLUTION = /\.(conv|conv1d)\.weight$/;

/** Of NVFP4: what a tensor is multiplied with. */
const SCALE = /\.(input_)?scale$/;

/** @param files tokenizer and such, by the names that they have in a folder */
export function ggufInput(source: GgufSource, files: Readonly<Record<string, JsonObject>>): QuantizeInput {
  const infos = [...source.names(), ...source.listedNumbers()].map((name) => ({
    name,
    // A number of a list.
    ...(source.info(name) ?? { shape: [1], byteLength: 4 }),
  }));
  return {
    path: source.path,
    config: source.config,
    files,
    totalBytes: infos.reduce((sum, { byteLength }) => sum + byteLength, 0),
    equal: async () => false,
    tensors: async () => {
      const tensors: InputTensor[] = [];
      for (const info of infos)
        tensors.push(
          info.shape.length === 1 || CONVOLUTION.test(info.name)
            ? await vector(source, info)
            : matrix(source, info),
        );
      // What scales another tensor is in its numbers. Others are called scales as well.
      const names = new Set(infos.map(({ name }) => name));
      return tensors.filter(({ name }) => !SCALE.test(name) || !names.has(name.replace(SCALE, '.weight')));
    },
  };
}

interface Info {
  readonly name: string;
  readonly shape: readonly number[];
  readonly byteLength: number;
}

/** Norms and biases: as bf16 where that is what they are, else f32. */
async function vector(source: GgufSource, { name, shape, byteLength }: Info): Promise<InputTensor> {
  const stored = await source.vector(name, shape).read();
  const values = published(name, stored, source.architecture);
  const dtype = (['bf16', 'f32'] as const).find((one) => isExact(values, one))!;
  return {
    name,
    // Published as [channels, 1, taps].
    shape: shape.length === 2 ? [shape[0]!, 1, shape[1]!] : shape,
    byteLength,
    dtype: tensorDtype(dtype),
    async *pieces() {
      const bytes = new Uint8Array(values.length * (dtype === 'f32' ? 4 : 2));
      encodeFloats(values, dtype, bytes);
      yield bytes;
    },
  };
}

/** What converters changed: norms that multiply by 1 + w, and the decays of recurrent layers. */
function published(
  name: string,
  values: Float32Array,
  { bakedNorms, bakedDecays }: GgufArchitecture,
): Float32Array {
  if (name.endsWith('.A_log') && (bakedNorms || bakedDecays)) return values.map((value) => Math.log(-value));
  if (!bakedNorms) return values;
  const last = bakedNorms === 'in layers' && name === 'model.norm.weight';
  const baked = name.endsWith('norm.weight') && !name.endsWith('linear_attn.norm.weight') && !last;
  return baked ? values.map((value) => value - 1) : values;
}

function isExact(values: Float32Array, dtype: FloatDtype): boolean {
  if (dtype === 'f32') return true;
  const bytes = new Uint8Array(values.length * 2);
  encodeFloats(values, dtype, bytes);
  const back = new Float32Array(values.length);
  decodeFloats(bytes, dtype, back);
  return values.every((value, i) => Object.is(value, back[i]));
}

function matrix(source: GgufSource, { name, shape, byteLength }: Info): InputTensor {
  const cols = shape.at(-1)!;
  const rows = shape.slice(0, -1).reduce((product, size) => product * size, 1);
  const stack = shape.length === 3 ? { stack: shape[0]! } : {};
  const stored = source.matrix(name, { rows, cols, ...stack });
  const kept = dequantised(stored);
  return {
    name,
    shape,
    byteLength,
    dtype: tensorDtype(kept.format.dtype),
    matrix: () => stored,
    pieces: () => matrixPieces(kept),
  };
}
