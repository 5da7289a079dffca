/**
 * MLX's affine quantisation as checkpoints publish it: what config.json says of it, and the arithmetic of a row.
 *
 * A matrix `X.weight` becomes three tensors: `X.weight` (U32, the codes), `X.scales` and `X.biases` (one float per
 * group of `group_size` columns). The codes of a row are one little-endian bit stream, lowest code in the lowest
 * bits, for the widths that divide 32 and for 3, 5 and 6 alike (a code may straddle two words). Checked against
 * `mlx.core.quantize` for every width and group size.
 */

import {
  AFFINE_BITS,
  type AffineBits,
  GROUP_SIZES,
  type GroupSize,
  type MatrixFormat,
} from '../device/weights.js';
import { KvantError } from '../errors.js';
import type { JsonObject } from './folder-files.js';

/** How one layer's matrix is quantised. */
export interface AffineSpec {
  readonly bits: AffineBits;
  readonly groupSize: GroupSize;
}

/** A layer whose codes stand for numbers of a table (table-tensors.ts). */
export interface TableSpec {
  readonly mode: TableMode;
}

/** What a config.json may say of a layer. */
export type StoredSpec = AffineSpec | TableSpec;

/** The `quantization` section of a config.json. */
export type QuantizationConfig = StoredSpec & {
  /** By layer path, without `.weight`. `false`: left as floats. `true`: as the default says. */
  readonly overrides: ReadonlyMap<string, StoredSpec | boolean>;
};

/** Bits and group size that each mode has, and no other. */
export const TABLE_MODES = {
  mxfp4: { bits: 4, groupSize: 32 },
  nvfp4: { bits: 4, groupSize: 16 },
} as const;
/** Of an affine layer where MLX is not told. */
const USUAL = { bits: 4, groupSize: 64 } as const;
export type TableMode = keyof typeof TABLE_MODES;

export function isAffineBits(bits: unknown): bits is AffineBits {
  return (AFFINE_BITS as readonly unknown[]).includes(bits);
}

export function isGroupSize(size: unknown): size is GroupSize {
  return (GROUP_SIZES as readonly unknown[]).includes(size);
}

/**
 * Reads the quantisation of a config.json.
 *
 * `quantization` is MLX's section; MLX also writes it as `quantization_config`, where other tools put their own
 * schemes (told by `quant_method`; `compression_config` in older files), which are refused.
 *
 * @returns undefined where the checkpoint is not quantised
 * @throws KvantError `weights-quantization-unsupported` for other modes, schemes, widths or group sizes, by name;
 * `weights-quantization-config` where the section makes no sense
 */
export function parseQuantization(config: JsonObject, where = 'config.json'): QuantizationConfig | undefined {
  const text = isRecord(config.text_config) ? config.text_config : {};
  const section = config.quantization ?? text.quantization;
  if (section !== undefined && section !== null && !isEmpty(section))
    return parseSection(section, 'quantization', where);
  const foreign =
    config.quantization_config ??
    config.compression_config ??
    text.quantization_config ??
    text.compression_config;
  if (foreign === undefined || foreign === null || isEmpty(foreign)) return undefined;
  if (isRecord(foreign) && typeof foreign.quant_method === 'string') {
    // gpt-oss: experts alone, told by their tensors.
    if (foreign.quant_method === 'mxfp4') return { mode: 'mxfp4', overrides: new Map() };
    throw unsupported(`the quantisation method ${JSON.stringify(foreign.quant_method)}`, where);
  }
  return parseSection(foreign, 'quantization_config', where);
}

function parseSection(section: unknown, name: string, where: string): QuantizationConfig {
  if (!isRecord(section)) throw configError(`"${name}" is not an object`, where);
  const spec = parseSpec(section, name, where);
  const overrides = new Map<string, StoredSpec | boolean>();
  for (const [path, value] of Object.entries(section)) {
    if (typeof value === 'boolean') overrides.set(path, value);
    else if (isRecord(value)) overrides.set(path, parseSpec(ownSpec(value), `${name}."${path}"`, where));
  }
  return { ...spec, overrides };
}

/** MLX quantises a layer of its own by what stands there alone, and by its usual values, whatever the section says of the others. */
function ownSpec(value: Record<string, unknown>): Record<string, unknown> {
  const affine = (value.mode ?? 'affine') === 'affine';
  return affine
    ? { ...value, bits: value.bits ?? USUAL.bits, group_size: value.group_size ?? USUAL.groupSize }
    : value;
}

function parseSpec(section: Record<string, unknown>, name: string, where: string): StoredSpec {
  const { bits, group_size: groupSize, mode } = section;
  if (typeof mode === 'string' && Object.hasOwn(TABLE_MODES, mode)) {
    const only = TABLE_MODES[mode as TableMode];
    if ((bits ?? only.bits) !== only.bits || (groupSize ?? only.groupSize) !== only.groupSize)
      throw configError(
        `${name} is ${mode} with ${JSON.stringify(bits)} bits in groups of ${JSON.stringify(groupSize)}; it has ${only.bits} in groups of ${only.groupSize}`,
        where,
      );
    return { mode: mode as TableMode };
  }
  if (mode !== undefined && mode !== null && mode !== 'affine') {
    throw unsupported(`the quantisation mode ${JSON.stringify(mode)} (${name})`, where);
  }
  if (!Number.isInteger(bits)) throw configError(`${name}.bits is ${JSON.stringify(bits)}`, where);
  if (!Number.isInteger(groupSize))
    throw configError(`${name}.group_size is ${JSON.stringify(groupSize)}`, where);
  if (!isAffineBits(bits)) throw unsupported(`quantisation to ${bits} bits (${name})`, where);
  if (!isGroupSize(groupSize)) throw unsupported(`a quantisation group of ${groupSize} (${name})`, where);
  return { bits, groupSize };
}

/**
 * Unpacks the codes of one row.
 *
 * @param codes the row's bytes, `out.length · bits / 8` of them
 * @param out one code per column
 */
export function unpackCodes(codes: Uint8Array, bits: AffineBits, out: Uint8Array): void {
  const mask = (1 << bits) - 1;
  let window = 0;
  let held = 0;
  let at = 0;
  for (let i = 0; i < out.length; i++) {
    if (held < bits) {
      window |= codes[at++]! << held;
      held += 8;
    }
    out[i] = window & mask;
    window >>>= bits;
    held -= bits;
  }
}

/** Packs one row of codes; the inverse of {@link unpackCodes}. `out` has `codes.length · bits / 8` bytes. */
export function packCodes(codes: Uint8Array, bits: AffineBits, out: Uint8Array): void {
  if (bits === 8) {
    out.set(codes);
    return;
  }
  if (bits === 4) {
    // The common width, and much faster without the window.
    for (let i = 0, at = 0; i < codes.length; i += 2) out[at++] = codes[i]! | (codes[i + 1]! << 4);
    return;
  }
  let window = 0;
  let held = 0;
  let at = 0;
  for (let i = 0; i < codes.length; i++) {
    window |= codes[i]! << held;
    held += bits;
    while (held >= 8) {
      out[at++] = window & 0xff;
      window >>>= 8;
      held -= 8;
    }
  }
}

/**
 * The reference: `out[c] = scales[c / groupSize] · code[c] + biases[c / groupSize]`, rounded to f32 once.
 *
 * @param codes the packed row
 * @param scales `[cols / groupSize]`
 * @param biases `[cols / groupSize]`
 * @param out `[cols]`
 */
export function unpackAffineRow(
  codes: Uint8Array,
  scales: Float32Array,
  biases: Float32Array,
  spec: AffineSpec,
  out: Float32Array,
): void {
  const levels = new Uint8Array(out.length);
  unpackCodes(codes, spec.bits, levels);
  for (let c = 0; c < out.length; c++) {
    const group = Math.floor(c / spec.groupSize);
    out[c] = scales[group]! * levels[c]! + biases[group]!;
  }
}

/** The three tensors of a quantised matrix, as their headers give them. */
export interface AffineTensors {
  readonly weight: TensorLike;
  readonly scales: TensorLike | undefined;
  readonly biases: TensorLike | undefined;
}

/** What a header says of a tensor. */
export interface TensorLike {
  readonly name: string;
  readonly dtype: string;
  readonly shape: readonly number[];
}

/** Names a matrix's scales and biases after its weight, e.g. `model.layers.0.mlp.up_proj.weight`. */
export function affineNames(weight: string): { path: string; scales: string; biases: string } {
  const path = weight.replace(/\.weight$/, '');
  return { path, scales: `${path}.scales`, biases: `${path}.biases` };
}

/**
 * Checks that the tensors of one quantised matrix fit each other and the config.
 *
 * The shapes fix only `bits · groupSize`, as the number of columns is not stored; the config gives the rest. Some
 * publishers mix widths without saying so in config.json: where the caller knows the number of columns and the
 * config does not name this layer, the shapes decide.
 *
 * @param expectedCols the model's number of input features, where known
 * @throws KvantError `weights-quantization-tensors`, `weights-quantization-unsupported`
 */
export function resolveAffine(
  tensors: AffineTensors,
  config: QuantizationConfig | undefined,
  expectedCols: number | undefined,
): { rows: number; cols: number; format: Extract<MatrixFormat, { kind: 'affine' }> } {
  const { weight, scales, biases } = tensors;
  const { path } = affineNames(weight.name);
  const fail = (what: string) => tensorError(`${path}: ${what}`, weight.name);

  if (scales === undefined)
    throw fail(`${weight.name} is packed (${weight.dtype}) but has no ${path}.scales`);
  if (biases === undefined) throw fail(`it has scales but no ${path}.biases`);
  if (config === undefined) throw fail('it is quantised, but config.json has no "quantization"');
  const override = config.overrides.get(path);
  if (override === false) throw fail('config.json says that it is not quantised, but it has scales');
  if (weight.dtype !== 'U32') throw fail(`the codes are ${weight.dtype}, not U32`);
  const dtype =
    scales.dtype === 'F32' ? 'f32' : scales.dtype === 'F16' ? 'f16' : scales.dtype === 'BF16' ? 'bf16' : '';
  if (dtype === '') throw fail(`the scales are ${scales.dtype}, not F32, F16 or BF16`);
  if (biases.dtype !== scales.dtype)
    throw fail(`the biases are ${biases.dtype} and the scales ${scales.dtype}`);
  if (weight.shape.length !== 2 || scales.shape.length !== 2) {
    throw fail(
      `the codes have shape [${weight.shape}] and the scales [${scales.shape}]; both should be matrices`,
    );
  }
  if (biases.shape.length !== 2 || biases.shape.some((size, i) => size !== scales.shape[i])) {
    throw fail(`the biases have shape [${biases.shape}] and the scales [${scales.shape}]`);
  }
  const [rows, words] = weight.shape as [number, number];
  const [scaleRows, groups] = scales.shape as [number, number];
  if (scaleRows !== rows) throw fail(`the codes have ${rows} rows and the scales ${scaleRows}`);

  const named = typeof override === 'object';
  const spec = named ? override : config;
  if ('mode' in spec && (named || expectedCols === undefined))
    throw fail(`config.json says that it is ${spec.mode}, but its scales are ${scales.dtype}`);
  let { bits, groupSize } = 'mode' in spec ? NO_SPEC : spec;
  if (!named && expectedCols !== undefined) {
    const fittingBits = (words * 32) / expectedCols;
    const fittingGroup = expectedCols / groups;
    if (isAffineBits(fittingBits) && isGroupSize(fittingGroup)) {
      bits = fittingBits;
      groupSize = fittingGroup;
    }
  }
  const cols = (words * 32) / bits;
  if (!Number.isInteger(cols) || cols % groupSize !== 0 || groups * groupSize !== cols) {
    throw fail(
      `${words} words of ${bits}-bit codes and ${groups} groups of ${groupSize} do not agree ` +
        `(${cols} columns of codes, ${groups * groupSize} of scales)`,
    );
  }
  return { rows, cols, format: { kind: 'affine', bits, groupSize, dtype: dtype as 'f32' | 'f16' | 'bf16' } };
}

/** Of a layer that config.json does not speak of: its shapes have to tell. */
const NO_SPEC: AffineSpec = { bits: 4, groupSize: 64 };

function isEmpty(section: unknown): boolean {
  return isRecord(section) && Object.keys(section).length === 0;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** A way of quantising that is not read. */
export function unsupported(what: string, where: string): KvantError {
  return new KvantError('weights-quantization-unsupported', `${what} is not supported`, {
    kind: 'unsupported',
    where,
    fix: `Use an unquantised checkpoint (add --quantize 4), an MLX one in mxfp4 or nvfp4, or an affine one with ${AFFINE_BITS.join(', ')} bits and groups of ${GROUP_SIZES.join(', ')}.`,
  });
}

function configError(what: string, where: string): KvantError {
  return new KvantError('weights-quantization-config', `${where}: ${what}`, {
    kind: 'model',
    where,
    fix: 'The section should read like {"bits": 4, "group_size": 64}: fetch config.json again.',
  });
}

/** Tensors of a matrix that do not fit each other. */
export function tensorError(what: string, where: string): KvantError {
  return new KvantError('weights-quantization-tensors', what, {
    kind: 'model',
    where,
    fix: 'The weights and config.json do not belong together, or one was changed: fetch both again.',
  });
}
