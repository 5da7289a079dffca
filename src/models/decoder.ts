/**
 * The pre-norm decoder that most open families share, written once against Ops:
 *
 *     x = embed(tokens)
 *     each layer:  x += o(attend(rope(qkv(norm(x)))))
 *                  x += down(act(gate(norm(x))) · up(norm(x)))
 *     logits = head(norm(x of the wanted tokens))
 *
 * q, k, v are one matrix and gate, up another: they read the same input, so one launch reads it once.
 */

import type { Matrix, Vector } from '../device/device.js';
import type { Tensor } from '../device/graph.js';
import type { Ops } from '../device/ops.js';
import type { RopeTable } from '../device/rope.js';
import type { ModelConfig } from './config.js';
import type { RecordOptions } from './family.js';
import type { CacheLayer, MatrixPart, MatrixSpec, RopeSpec, VectorSpec, WeightLayout } from './layout.js';

/** The loaded weights, by the keys of the layout. */
export interface Weights {
  matrix(key: string): Matrix;
  vector(key: string): Vector;
  rope(key: string): RopeTable;
}

/** Where the checkpoint keeps the decoder: names start `model.` in all families so far. */
const PREFIX = 'model.';

/** A norm of a layer: what the graph calls it, and what the checkpoint does. */
export interface LayerNorm {
  readonly key: string;
  /** Below `layers.N.`, without `.weight`. */
  readonly tensor: string;
}

/** What families that record their own graph have in other ways. */
export interface DecoderParts {
  /** Norms of a layer over the hidden size. Default: before attention and before the MLP, as Llama has them. */
  readonly norms?: readonly LayerNorm[];
  /** Added to every norm's weights. Default: nothing. */
  readonly addToNorms?: number;
  /** Default: one for all layers, by the config's. */
  readonly ropes?: readonly RopeSpec[];
}

const PRE_NORMS: readonly LayerNorm[] = [
  { key: 'input-norm', tensor: 'input_layernorm' },
  { key: 'mlp-norm', tensor: 'post_attention_layernorm' },
];

/** Key of the rotation where all layers share one. */
export const ROPE = 'rope';

export function decoderLayout(config: ModelConfig, parts: DecoderParts = {}): WeightLayout {
  const { norms = PRE_NORMS, addToNorms = 0 } = parts;
  const { ropes = [{ key: ROPE, parameters: config.rope, dims: config.headDim }] } = parts;
  const add = addToNorms === 0 ? {} : { add: addToNorms };
  const { hiddenSize, intermediateSize, heads, kvHeads, headDim, vocabSize, bias } = config;
  const matrices: MatrixSpec[] = [];
  const vectors: VectorSpec[] = [];
  const cache: CacheLayer[] = [];
  const headGroup = config.layers + 1;

  matrices.push({
    key: 'embedding',
    kind: 'embedding',
    parts: [part(`${PREFIX}embed_tokens`, vocabSize, false)],
    cols: hiddenSize,
    use: config.tied ? 'both' : 'embedding',
    group: 0,
  });
  for (let layer = 0; layer < config.layers; layer++) {
    const group = layer + 1;
    const at = `${PREFIX}layers.${layer}`;
    const attention = `${at}.self_attn`;
    const mlp = `${at}.mlp`;
    const matrix = (kind: 'attention' | 'mlp', name: string, cols: number, stacked: MatrixPart[]): void => {
      matrices.push({ key: key(layer, name), kind, parts: stacked, cols, use: 'linear', group });
    };
    matrix('attention', 'qkv', hiddenSize, [
      part(`${attention}.q_proj`, heads * headDim, bias.qkv),
      part(`${attention}.k_proj`, kvHeads * headDim, bias.qkv),
      part(`${attention}.v_proj`, kvHeads * headDim, bias.qkv),
    ]);
    matrix('attention', 'output', heads * headDim, [part(`${attention}.o_proj`, hiddenSize, bias.output)]);
    matrix('mlp', 'gate-up', hiddenSize, [
      part(`${mlp}.gate_proj`, intermediateSize, bias.mlp),
      part(`${mlp}.up_proj`, intermediateSize, bias.mlp),
    ]);
    matrix('mlp', 'down', intermediateSize, [part(`${mlp}.down_proj`, hiddenSize, bias.mlp)]);

    const norm = (name: string, tensor: string, length: number): void => {
      vectors.push({ key: key(layer, name), name: `${tensor}.weight`, length, group, ...add });
    };
    for (const { key: name, tensor } of norms) norm(name, `${at}.${tensor}`, hiddenSize);
    if (config.qkNorm) {
      norm('q-norm', `${attention}.q_norm`, headDim);
      norm('k-norm', `${attention}.k_norm`, headDim);
    }
    cache.push({ heads, kvHeads, headDim, window: config.windows[layer] ?? null, group });
  }
  vectors.push({ key: 'norm', name: `${PREFIX}norm.weight`, length: hiddenSize, group: headGroup, ...add });
  if (!config.tied)
    matrices.push({
      key: 'head',
      kind: 'head',
      parts: [part('lm_head', vocabSize, false)],
      cols: hiddenSize,
      use: 'linear',
      group: headGroup,
    });
  return { matrices, vectors, ropes, cache, groups: headGroup + 1, harmless: harmlessTensors(config) };
}

/** Frequencies and masks that old checkpoints carry as buffers, and the copy of the embedding that a tied one may. */
function harmlessTensors(config: ModelConfig): RegExp[] {
  const patterns = [/(^|\.)rotary_emb\./, /(^|\.)inv_freq$/, /\.self_attn\.(masked_)?bias$/];
  if (config.tied) patterns.push(/^lm_head\.(weight|scales|biases)$/);
  return patterns;
}

/**
 * Records the decoder.
 * @returns logits `[outputs, vocab]`
 */
export function recordDecoder(
  ops: Ops,
  config: ModelConfig,
  weights: Weights,
  { selectEarly }: RecordOptions,
): Tensor {
  const { heads, kvHeads, headDim, rmsNormEps: eps } = config;
  const shape = { heads, kvHeads, headDim };
  const rope = weights.rope(ROPE);
  let x = ops.embed(weights.matrix('embedding'));
  for (let layer = 0; layer < config.layers; layer++) {
    const matrix = (name: string): Matrix => weights.matrix(key(layer, name));
    const vector = (name: string): Vector => weights.vector(key(layer, name));
    const norm = config.qkNorm ? { q: vector('q-norm'), k: vector('k-norm'), eps } : null;

    const qkv = ops.linear(ops.rmsNorm(x, vector('input-norm'), eps), matrix('qkv'));
    const q = ops.ropeAppend(qkv, { layer, ...shape, norm, rope });
    let attended = ops.attend(q, { layer, ...shape, window: config.windows[layer] ?? null });
    if (selectEarly && layer === config.layers - 1) {
      attended = ops.selectOutputs(attended);
      x = ops.selectOutputs(x);
    }
    x = ops.linear(attended, matrix('output'), x);

    const gateUp = ops.linear(ops.rmsNorm(x, vector('mlp-norm'), eps), matrix('gate-up'));
    x = ops.linear(ops.glu(gateUp, config.activation), matrix('down'), x);
  }
  // Only the wanted rows are normed and projected: a prompt's other tokens need no logits.
  const wanted = x.rows === 'outputs' ? x : ops.selectOutputs(x);
  const normed = ops.rmsNorm(wanted, weights.vector('norm'), eps);
  return ops.linear(normed, weights.matrix(config.tied ? 'embedding' : 'head'));
}

/** Key of a layer's weight. */
export function key(layer: number, name: string): string {
  return `layers.${layer}.${name}`;
}

function part(path: string, rows: number, bias: boolean): MatrixPart {
  return { name: `${path}.weight`, rows, bias: bias ? `${path}.bias` : null };
}
