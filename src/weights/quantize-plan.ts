/** What `kvant quantize` makes of each tensor: the bits of its codes, or nothing. */

import type { MatrixSource } from '../device/weights.js';
import { KvantError } from '../errors.js';
import { type AffineSpec, affineNames } from './affine.js';
import { floatDtype, type TensorDtype, tensorDtype } from './dtypes.js';
import { isQuantizable, quantizedSource } from './quantize.js';
import { dequantised, type InputTensor, type QuantizeInput, scaleDtype } from './quantize-input.js';
import { type OutputTensor, planShards, tensorBytes } from './safetensors-writer.js';
import { textField } from './text-config.js';

/**
 * Mixed recipes of mlx-lm: fewer bits, and more for what they cost most in, much as llama.cpp's Q4_K_M does it: the head; and the values of
 * attention and the last matrix of the MLP in the first and last eighth of the layers and in every third between.
 */
export const RECIPES = {
  mixed_2_6: [2, 6],
  mixed_3_4: [3, 4],
  mixed_3_6: [3, 6],
  mixed_4_6: [4, 6],
} as const satisfies Record<string, readonly [AffineSpec['bits'], AffineSpec['bits']]>;
export type Recipe = keyof typeof RECIPES;

export interface QuantizeSpec extends AffineSpec {
  /** Instead of `bits` for all. */
  readonly recipe?: Recipe;
}

/** One tensor of the input and what becomes of it. */
export interface Unit {
  readonly tensor: InputTensor;
  /** Codes, scales and biases; undefined where the tensor stays as it is. */
  readonly source: MatrixSource | undefined;
  readonly spec: AffineSpec | undefined;
  readonly outputs: readonly OutputTensor[];
}

export interface Plan {
  readonly units: readonly Unit[];
  readonly dropped: readonly string[];
  readonly shards: readonly (readonly OutputTensor[])[];
  readonly bytes: number;
  readonly head: Head;
  /** Matrices that were quantised before, and are with other codes now. */
  readonly again: number;
}

/** What the head is: `copy` where the embedding says it all, `own` where config.json calls it tied and it is not. */
type Head = 'copy' | 'own' | 'as stated';

const MAX_SHARD_BYTES = 5_000_000_000;
/** Towers that stay as they are: their matrices are few, and small errors in a picture cost much. */
const TOWERS =
  /(^|\.)(visual|vision_tower|vision_model|vision_encoder|vision_embed_tokens|audio_tower|audio_encoder|multi_modal_projector|mm_projector|vision_projector|vision_projection|vision_adapter|connector)\./;
/** Routers of mixtures of experts: a wrong choice of expert costs more than their bits. */
const ROUTERS = /\.(gate|router|shared_expert_gate)\.weight$/;
const HEAD = /(^|\.)lm_head\.weight$/;
const EMBEDDING = /(^|\.)embed_tokens\.weight$/;
const ROTATION = /\.rotary_emb\.inv_freq$/;
/** Some norms have a row of weights for each head. */
const NORMS = /norm\.weight$/;
/** One matrix for each expert, as MLX publishes them. */
const STACKS = /\.(switch_mlp|experts)\.(gate|up|down|gate_up)_proj\.weight$/;

/**
 * How a tensor is quantised when the whole checkpoint is asked to be `spec`: linear and embedding weights
 * (`….weight`, two dimensions, or a stack of experts') whose columns divide into groups; routers get 8 bits, towers and norms stay as
 * they are.
 *
 * @param tensor `packed`: it is codes now, whatever its dtype
 * @param layers of the model, for recipes
 * @returns undefined where the tensor stays as it is
 */
export function quantizationOf(
  tensor: { name: string; dtype: TensorDtype; shape: readonly number[]; packed?: boolean },
  spec: QuantizeSpec,
  layers = 0,
): AffineSpec | undefined {
  const { name, shape } = tensor;
  const cols = shape.at(-1);
  if (cols === undefined || !name.endsWith('.weight')) return undefined;
  if (shape.length !== 2 && !(shape.length === 3 && STACKS.test(name))) return undefined;
  if (!tensor.packed && floatDtype(tensor.dtype) === undefined) return undefined;
  if (TOWERS.test(name) || NORMS.test(name) || !isQuantizable(cols, spec)) return undefined;
  const router: AffineSpec = { bits: 8, groupSize: 64 };
  if (ROUTERS.test(name)) return isQuantizable(cols, router) ? router : undefined;
  return { bits: recipeBits(name, spec, layers), groupSize: spec.groupSize };
}

function recipeBits(name: string, { bits, recipe }: QuantizeSpec, layers: number): AffineSpec['bits'] {
  if (recipe === undefined) return bits;
  const [low, high] = RECIPES[recipe];
  if (HEAD.test(name)) return high;
  if (!/(v_proj|v_a_proj|v_b_proj|down_proj)/.test(name)) return low;
  const layer = Number(/\.(\d+)\./.exec(name)?.[1] ?? 0);
  const eighth = Math.floor(layers / 8);
  const more = layer < eighth || layer >= Math.floor((7 * layers) / 8) || modulo(layer - eighth, 3) === 2;
  return more ? high : low;
}

const modulo = (a: number, n: number): number => ((a % n) + n) % n;

/** @throws KvantError `quantize-nothing`, `weights-already-quantized` where every matrix is as asked for already */
export async function planQuantization(
  input: QuantizeInput,
  spec: QuantizeSpec,
  maxShardBytes = MAX_SHARD_BYTES,
): Promise<Plan> {
  const tensors = await input.tensors();
  const head = await tiedHead(input, tensors);
  const layers = Number(textField(input.config, 'num_hidden_layers') ?? 0);
  const units: Unit[] = [];
  const dropped: string[] = [];
  for (const tensor of tensors) {
    if (ROTATION.test(tensor.name) || (head === 'copy' && HEAD.test(tensor.name))) dropped.push(tensor.name);
    else units.push(planTensor(tensor, spec, layers));
  }
  const made = units.filter((unit) => unit.spec !== undefined);
  if (made.length === 0) throw nothing(input.path, spec);
  const again = made.filter(({ tensor, source }) => isPacked(tensor) && source !== tensor.matrix!());
  if (made.every(({ tensor, source }) => source === tensor.matrix!())) throw alreadySo(input.path);
  const shards = planShards(
    units.map((unit) => unit.outputs),
    maxShardBytes,
  );
  const bytes = units.flatMap((unit) => unit.outputs).reduce((sum, output) => sum + tensorBytes(output), 0);
  return { units, dropped, shards, bytes, head, again: again.length };
}

const isPacked = ({ matrix }: InputTensor): boolean =>
  matrix !== undefined && matrix().format.kind !== 'float';

async function tiedHead(input: QuantizeInput, tensors: readonly InputTensor[]): Promise<Head> {
  const head = tensors.find(({ name }) => HEAD.test(name));
  const embedding = tensors.find(({ name }) => EMBEDDING.test(name));
  const tied = textField(input.config, 'tie_word_embeddings') === true;
  if (!tied || head === undefined || embedding === undefined) return 'as stated';
  return (await input.equal(head.name, embedding.name)) ? 'copy' : 'own';
}

function planTensor(tensor: InputTensor, asked: QuantizeSpec, layers: number): Unit {
  const { name, shape } = tensor;
  const packed = isPacked(tensor);
  const spec = quantizationOf({ ...tensor, packed }, asked, layers);
  const stored = packed ? tensor.matrix!() : undefined;
  const format = stored?.format.kind === 'affine' ? stored.format : undefined;
  // What has the codes that are asked for keeps them, and so does what would be left alone.
  const same = format !== undefined && (spec === undefined || equalSpec(spec, format));
  if (spec === undefined && !same) return { tensor, spec, source: undefined, outputs: [tensor] };
  const source = same
    ? stored!
    : quantizedSource(dequantised(tensor.matrix!()), spec!, scaleDtype(tensor.matrix!()));
  const { bits, groupSize, dtype } = source.format as Extract<typeof source.format, { kind: 'affine' }>;
  const [outer, cols] = [shape.slice(0, -1), source.cols];
  const names = affineNames(name);
  const groups = { dtype: tensorDtype(dtype), shape: [...outer, cols / groupSize] };
  return {
    tensor,
    spec: { bits, groupSize },
    source,
    outputs: [
      { name, dtype: 'U32', shape: [...outer, (cols * bits) / 32] },
      { name: names.scales, ...groups },
      { name: names.biases, ...groups },
    ],
  };
}

const equalSpec = (a: AffineSpec, b: AffineSpec): boolean => a.bits === b.bits && a.groupSize === b.groupSize;

function nothing(path: string, { groupSize }: AffineSpec): KvantError {
  return new KvantError(
    'quantize-nothing',
    `${path} has no matrix that divides into groups of ${groupSize}`,
    { kind: 'invalid-request', where: path, fix: 'Choose a smaller group size.' },
  );
}

function alreadySo(path: string): KvantError {
  return new KvantError('weights-already-quantized', `${path} is already quantised so`, {
    kind: 'invalid-request',
    where: path,
    fix: 'Use it as it is, or ask for other bits or another group size; the unquantised model loses less.',
  });
}
