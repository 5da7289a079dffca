/**
 * Matrices of safetensors files whose codes of 4 bits stand for numbers of a table, as `lut4` (device/weights.ts).
 *
 *     MLX       X.weight U32 [rows, cols / 8], X.scales U8 [rows, cols / 32] (mxfp4) or [rows, cols / 16] (nvfp4); no biases
 *     gpt-oss   X_blocks U8 [experts, rows, cols / 32, 16], X_scales U8 [experts, rows, cols / 32]
 *
 * In both the low nibble of a byte is the even column, and a scale is the exponent of a power of two, or a float of 8 bits (nvfp4).
 * X.global_scale may then say what else all are multiplied with. Checked against `mlx.core.dequantize` and transformers.
 */

import type { Lut4Format, VectorSource } from '../device/weights.js';
import {
  affineNames,
  type QuantizationConfig,
  TABLE_MODES,
  type TableMode,
  type TensorLike,
  tensorError,
  unsupported,
} from './affine.js';

const FORMATS: Record<TableMode, Lut4Format> = {
  mxfp4: { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'e8m0', dtype: 'f16' },
  nvfp4: { kind: 'lut4', bits: 4, table: 'e2m1', scale: 'f32-e4m3', dtype: 'f32' },
};

/** Behind a layer's path: the largest magnitude of a matrix, or of each of a stack, that MLX scaled for nvfp4. */
export const GLOBAL_SCALE = '.global_scale';
/** What the largest code and scale of nvfp4 make together: 6 · 448. */
const NVFP4_LARGEST = 2688;

/**
 * The number of every row of nvfp4 that its scales are multiplied with: 1, or what the largest magnitude says.
 * @param largest one number, or one for each matrix of a stack
 * @throws KvantError `weights-quantization-tensors`
 */
export function rowFactors(rows: number, largest: VectorSource | undefined): () => Promise<Float32Array> {
  const length = largest?.length ?? 1;
  if (rows % length !== 0)
    throw tensorError(`${largest!.name} has ${length} numbers for ${rows} rows`, largest!.name);
  let made: Promise<Float32Array> | undefined;
  const make = async (): Promise<Float32Array> => {
    const numbers = largest === undefined ? Float32Array.of(NVFP4_LARGEST) : await largest.read();
    return Float32Array.from(
      { length: rows },
      (_, row) => numbers[Math.floor((row * length) / rows)]! / NVFP4_LARGEST,
    );
  };
  return () => {
    made ??= make();
    return made;
  };
}

/** A matrix of codes and scales, as a device takes it. */
export interface TableMatrix {
  readonly rows: number;
  readonly cols: number;
  readonly format: Lut4Format;
}

/** The tensors that a stack of experts is stored as where it is one of blocks. */
export function blockNames(name: string): { readonly blocks: string; readonly scales: string } {
  return { blocks: `${name}_blocks`, scales: `${name}_scales` };
}

/**
 * MLX's codes with scales of 8 bits. Their shapes tell the mode, for each has one width and one group size.
 *
 * @param tensors stacks already laid flat
 * @throws KvantError `weights-quantization-tensors`, `weights-quantization-unsupported`
 */
export function resolveTable(
  weight: TensorLike,
  scales: TensorLike,
  biases: TensorLike | undefined,
  config: QuantizationConfig | undefined,
): TableMatrix {
  const { path } = affineNames(weight.name);
  const fail = (what: string) => tensorError(`${path}: ${what}`, weight.name);
  if (biases !== undefined) throw fail('it has scales of 8 bits, and biases, which none of their modes has');
  if (weight.dtype !== 'U32') throw fail(`the codes are ${weight.dtype}, not U32`);
  if (weight.shape.length !== 2 || scales.shape.length !== 2)
    throw fail(
      `the codes have shape [${weight.shape}] and the scales [${scales.shape}]; both should be matrices`,
    );
  const [rows, words] = weight.shape as [number, number];
  const [scaleRows, groups] = scales.shape as [number, number];
  if (scaleRows !== rows) throw fail(`the codes have ${rows} rows and the scales ${scaleRows}`);
  const cols = words * 8;
  const size = cols / groups;
  // As many bytes to a scale as 64 codes of 4 bits.
  if (size === 64) throw unsupported('the quantisation mode "mxfp8"', weight.name);
  const mode = (Object.keys(TABLE_MODES) as TableMode[]).find((one) => TABLE_MODES[one].groupSize === size);
  if (mode === undefined) throw fail(`${words} words of codes do not agree with ${groups} scales`);
  const override = config?.overrides.get(path);
  if (override === false) throw fail('config.json says that it is not quantised, but it has scales');
  if (typeof override === 'object' && (!('mode' in override) || override.mode !== mode))
    throw fail(
      `config.json says that it is ${'mode' in override ? override.mode : 'affine'}, but its tensors are ${mode}`,
    );
  if (cols % 32 !== 0) throw unsupported(`${mode} with ${cols} columns, no multiple of 32,`, weight.name);
  return { rows, cols, format: FORMATS[mode] };
}

/**
 * gpt-oss's blocks of 32 columns with their scales.
 *
 * @param stack experts that lie one behind the other; undefined where the tensor is one matrix
 * @throws KvantError `weights-quantization-tensors`
 */
export function resolveBlocks(
  blocks: TensorLike,
  scales: TensorLike | undefined,
  stack: number | undefined,
): TableMatrix {
  const fail = (what: string) => tensorError(`${blocks.name}: ${what}`, blocks.name);
  if (scales === undefined) throw fail('there are no scales beside it');
  for (const { name, dtype } of [blocks, scales])
    if (dtype !== 'U8') throw fail(`${name} is ${dtype}, not U8`);
  const outer = stack === undefined ? [] : [stack];
  const [rows, groups, bytes, ...more] = blocks.shape.slice(outer.length) as [number, number, number];
  if (more.length > 0 || bytes !== 16 || (stack !== undefined && blocks.shape[0] !== stack))
    throw fail(`it has shape [${blocks.shape}], not [${[...outer, 'rows', 'columns / 32', 16].join(', ')}]`);
  const wanted = [...outer, rows, groups];
  if (String(scales.shape) !== String(wanted))
    throw fail(`its scales have shape [${scales.shape}], not [${wanted}]`);
  return { rows: rows * (stack ?? 1), cols: groups * 32, format: FORMATS.mxfp4 };
}
