/**
 * What a case has to do at the least, counted from the model's recorded graph and the sizes of its weights: bytes to
 * read, operations, and launches that wait for one another. Nothing is loaded, and no device is asked.
 */
import type { Matrix, Vector } from '../../device/device.js';
import type { AttentionShape, Graph, NodeOf, Tensor } from '../../device/graph.js';
import { Ops } from '../../device/ops.js';
import type { RopeTable } from '../../device/rope.js';
import type { MatrixFormat } from '../../device/weights.js';
import type { KvLayerInfo } from '../../kv/policy.js';
import type { ModelDefinition } from '../../models/family.js';
import { type CacheKind, cachePlace, matrixRows, vectorLength } from '../../models/layout.js';
import { ropeTable } from '../../models/load.js';
import {
  type Quantization,
  resolveWeights,
  sourceBytes,
  type WeightSource,
} from '../../models/resolve-weights.js';

/** What has to be done in one step of decoding, or for one prompt or several. */
export interface Work {
  /** Of weights, each once, of the cache, and of the states of recurrent layers. */
  readonly bytes: number;
  /** Multiplications and additions, of products and of attention. */
  readonly operations: number;
  /** Operations of the graph of which each waits for the one before. */
  readonly launches: number;
}

export interface CountedModel {
  readonly graph: Graph;
  /** The format of the largest matrix. */
  readonly format: MatrixFormat;
  /**
   * Bytes of the matrices that products read: not of an embedding of which single rows are taken, nor of experts, of which so many
   * rows read a part.
   */
  readonly productBytes: number;
}

/** One token of K and V in a layer, or its state of a row, as `EngineInfo.kv.layers` tells it. */
export type KvLayerBytes = Pick<KvLayerInfo, 'keyBytes' | 'valueBytes' | 'stateBytes'>;

/**
 * What is not joined with its neighbour by any kernel; norms, activations, sums and selections are, and of one row what is done with
 * q, k and v before they are attended with.
 */
const APART: ReadonlySet<string> = new Set([
  'embed',
  'linear',
  'rope-append',
  'attend',
  'scale',
  'clamp',
  'sample',
  'route',
  'experts',
]);

/**
 * Records the model's graph over matrices that have sizes and no values.
 *
 * Errors: those of {@link resolveWeights}, which checks the headers of a checkpoint.
 */
export function countModel(
  source: WeightSource,
  model: ModelDefinition,
  quantize: Quantization | undefined,
): CountedModel {
  const { layout } = model;
  const matrices = new Map<string, Matrix>();
  let largest: { readonly bytes: number; readonly format: MatrixFormat } | null = null;
  for (const { spec, parts } of resolveWeights(source, layout, quantize).matrices) {
    const bytes = parts.reduce((sum, part) => sum + sourceBytes(part), 0);
    matrices.set(spec.key, { kind: 'matrix', rows: matrixRows(spec), cols: spec.cols, bytes });
    if (parts[0] !== undefined && bytes > (largest?.bytes ?? 0)) largest = { bytes, format: parts[0].format };
  }
  const vectors = new Map<string, Vector>(
    layout.vectors.map((spec) => [spec.key, { kind: 'vector', length: vectorLength(spec) }]),
  );
  const ropes = new Map(layout.ropes.map((spec) => [spec.key, ropeTable(spec, 1)]));
  const ops = new Ops();
  const weights = {
    matrix: (key: string): Matrix => matrices.get(key) as Matrix,
    vector: (key: string): Vector => vectors.get(key) as Vector,
    number: (): number => 1,
    numbers: (): Float32Array => Float32Array.of(1),
    rope: (key: string): RopeTable => ropes.get(key) as RopeTable,
    cache: (layer: number, kind: CacheKind): number => cachePlace(layout.cache, layer, kind),
  };
  // The least there is to do: behind the last attention only the rows whose logits are wanted.
  ops.sample(model.record(ops, weights, { selectEarly: true }));
  const graph = ops.finish();
  const products = new Set(linears(graph).map(({ weight }) => weight));
  return {
    graph,
    format: largest?.format ?? { kind: 'float', dtype: 'f16' },
    productBytes: [...products].reduce((sum, { bytes }) => sum + bytes, 0),
  };
}

/** One step in which `rows` sequences of `context` tokens each get one more. */
export function countDecode(
  { graph, productBytes }: CountedModel,
  kv: readonly KvLayerBytes[],
  rows: number,
  context: number,
): Work {
  const states = kv.reduce((sum, { stateBytes = 0 }) => sum + stateBytes, 0);
  let bytes = productBytes + expertBytes(graph, rows) + rows * states;
  let operations = 0;
  for (const { weight } of linears(graph)) operations += 2 * rows * weight.rows * weight.cols;
  for (const node of experts(graph)) operations += rows * expertOperations(node);
  for (const { layer, shape, window } of attends(graph)) {
    const seen = Math.min(context, window ?? context);
    const { keyBytes = 0, valueBytes = 0 } = kv[layer] ?? {};
    bytes += rows * seen * (keyBytes + valueBytes);
    operations += rows * seen * pairOperations(shape);
  }
  return { bytes, operations, launches: launches(graph, rows) };
}

/** `rows` prompts of `tokens` each, at most `chunk` tokens of them in a step, with the logits of each one's last token. */
export function countPrefill(
  { graph, productBytes }: CountedModel,
  rows: number,
  tokens: number,
  chunk: number,
): Work {
  let operations = 0;
  for (const { weight, out } of linears(graph))
    operations += 2 * weight.rows * weight.cols * rows * (out.rows === 'tokens' ? tokens : 1);
  for (const node of experts(graph))
    operations += rows * (node.out.rows === 'tokens' ? tokens : 1) * expertOperations(node);
  const selected = new Set<Tensor>(
    graph.nodes.flatMap((node) => (node.op === 'select-outputs' ? [node.x] : [])),
  );
  for (const { shape, window, out } of attends(graph)) {
    const pairs = selected.has(out) ? Math.min(tokens, window ?? tokens) : visiblePairs(tokens, window);
    operations += rows * pairs * pairOperations(shape);
  }
  const steps = Math.ceil((rows * tokens) / chunk);
  const bytes = productBytes + expertBytes(graph, Math.min(chunk, rows * tokens));
  return { bytes: steps * bytes, operations, launches: steps * launches(graph, rows * tokens) };
}

/**
 * Bytes of the experts that so many rows are given to, were each as likely as the others: of E experts, k of them for each row,
 * `E · (1 − (1 − k / E)^rows)` are read.
 */
export function expertBytes(graph: Graph, rows: number): number {
  return experts(graph).reduce((sum, { gateUp, down, count, route }) => {
    const left = (1 - route.cols / 2 / count) ** rows;
    return sum + (gateUp.bytes + down.bytes) * (1 - left);
  }, 0);
}

/** Of one row. */
function expertOperations({ gateUp, down, count, route }: NodeOf<'experts'>): number {
  return (route.cols * (gateUp.rows * gateUp.cols + down.rows * down.cols)) / count;
}

/** Pairs of a token and one it sees, itself included. */
function visiblePairs(tokens: number, window: number | null): number {
  const widening = Math.min(tokens, window ?? tokens);
  return (widening * (widening + 1)) / 2 + (tokens - widening) * widening;
}

function launches({ nodes }: Graph, rows: number): number {
  const apart = nodes.filter(({ op }) => APART.has(op) && !(op === 'rope-append' && rows === 1));
  // The second product of experts waits for the first.
  return apart.length + apart.filter(({ op }) => op === 'experts').length;
}

function experts({ nodes }: Graph): NodeOf<'experts'>[] {
  return nodes.filter((node) => node.op === 'experts');
}

function linears({ nodes }: Graph): NodeOf<'linear' | 'head-linear'>[] {
  return nodes.filter((node) => node.op === 'linear' || node.op === 'head-linear');
}

/** Of one token and one that it sees: a product with K and one with V. */
function pairOperations({ heads, headDim, valueDim = headDim }: AttentionShape): number {
  return 2 * heads * (headDim + valueDim);
}

function attends({ nodes }: Graph): NodeOf<'attend'>[] {
  return nodes.filter((node) => node.op === 'attend');
}
