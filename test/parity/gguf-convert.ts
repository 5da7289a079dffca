/** A fixture checkpoint as a GGUF file: the rules of llama.cpp's converters, written here once more, from their side. */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ropeFrequencies } from '../../src/models/rope-frequencies.js';
import { Checkpoint } from '../../src/weights/checkpoint.js';
import { decodeFloats } from '../../src/weights/dtypes.js';
import { fused } from '../setup/fused-tensors.js';
import { f32, ggufBytes, string, u32, type Value, type WrittenTensor } from '../setup/gguf-writer.js';
import { MODEL_FIXTURES } from './runner.js';

export type Fields = Record<string, unknown>;

export interface Conversion {
  readonly fixture: string;
  readonly arch: string;
  readonly paired?: boolean;
  readonly plusOne?: boolean;
  /** Tensors of a layer that this architecture calls otherwise. */
  readonly names?: Readonly<Record<string, string>>;
  /** Another converter's names, by those of llama.cpp. */
  readonly stored?: (name: string) => string;
  /** q, k and v are one tensor. */
  readonly fused?: boolean;
  /** They are three, where the checkpoint has one. */
  readonly apart?: boolean;
  /** Of layer norms. */
  readonly layerNormEps?: string;
  /** What a GGUF file cannot say differently: the checkpoint is then compared with itself, read from its folder. */
  readonly override?: Fields;
  readonly more?: (config: Fields, at: (key: string) => string) => Record<string, Value>;
}

export const rope = (config: Fields): Fields =>
  (config.rope_scaling ?? config.rope_parameters ?? {}) as Fields;

const NAMES: Record<string, string> = {
  'model.embed_tokens': 'token_embd',
  'model.norm': 'output_norm',
  lm_head: 'output',
  input_layernorm: 'attn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.qkv_proj': 'attn_qkv',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.gate_up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  'mlp.gate': 'ffn_gate_inp',
  'mlp.router': 'ffn_gate_inp',
  'block_sparse_moe.gate': 'ffn_gate_inp',
  'mlp.shared_expert_gate': 'ffn_gate_inp_shexp',
  ...Object.fromEntries(
    ['mlp.shared_expert', 'mlp.shared_experts'].flatMap((path) =>
      ['gate', 'up', 'down'].map((part) => [`${path}.${part}_proj`, `ffn_${part}_shexp`]),
    ),
  ),
  pre_feedforward_layernorm: 'ffn_norm',
  post_feedforward_layernorm: 'post_ffw_norm',
};

function converted(name: string, sandwich: boolean, names: Readonly<Record<string, string>> = {}): string {
  const [, layer, path, kind] = /^(?:model\.layers\.(\d+)\.)?(.*)\.(weight|bias)$/.exec(name)!;
  const post = sandwich ? 'post_attention_norm' : 'ffn_norm';
  const own = names[path!] ?? (path === 'post_attention_layernorm' ? post : NAMES[path!]);
  return layer === undefined ? `${own}.${kind}` : `blk.${layer}.${own}.${kind}`;
}

/** As `LlamaModel.permute`: `reshape(heads, 2, rows / heads / 2, …).swapaxes(1, 2)`. */
function permuted(values: Float32Array, rows: number, heads: number): Float32Array {
  const cols = values.length / rows;
  const half = rows / heads / 2;
  const out = new Float32Array(values.length);
  for (let h = 0; h < heads; h++)
    for (let side = 0; side < 2; side++)
      for (let k = 0; k < half; k++) {
        const from = ((h * 2 + side) * half + k) * cols;
        const to = ((h * half + k) * 2 + side) * cols;
        out.set(values.subarray(from, from + cols), to);
      }
  return out;
}

/** What is called neither weight nor bias. */
const WHOLE = [
  ['e_score_correction_bias', 'exp_probs_b.bias'],
  ['self_attn.sinks', 'attn_sinks.weight'],
] as const;
/** Gate, up and down of Mixtral. */
const LETTERS: Record<string, string> = { w1: 'gate', w3: 'up', w2: 'down' };

const widthOf = ({ moe_intermediate_size, intermediate_size }: Fields): number =>
  (moe_intermediate_size ?? intermediate_size) as number;
const bytesOf = (values: Float32Array): Uint8Array =>
  new Uint8Array(values.buffer, values.byteOffset, values.byteLength);

/** Matrices of experts, to one stack of each kind; true for such a one. */
function collect(
  stacks: Map<string, Float32Array[]>,
  name: string,
  values: Float32Array,
  shape: readonly number[],
): boolean {
  const layer = /layers\.(\d+)/.exec(name)?.[1];
  const add = (kind: string, ending: string, part: Float32Array): void => {
    const key = `blk.${layer}.ffn_${kind}_exps.${ending}`;
    stacks.set(key, [...(stacks.get(key) ?? []), part]);
  };
  const one = /experts\.\d+\.(?:(\w+)_proj|(w\d))\.weight$/.exec(name);
  if (one !== null) {
    add(one[1] ?? LETTERS[one[2]!]!, 'weight', values);
    return true;
  }
  const both = /experts\.(gate_up|down)_proj(_bias)?$/.exec(name);
  if (both === null) return false;
  const [count, ...rest] = shape as [number, ...number[]];
  // Matrices have their columns as rows here; gate and up alternate.
  const [cols, rows] = both[2] === undefined ? (rest as [number, number]) : [1, rest[0]!];
  const kinds = both[1] === 'down' ? ['down'] : ['gate', 'up'];
  for (let expert = 0; expert < count; expert++)
    for (const [k, kind] of kinds.entries()) {
      const own = Array.from({ length: rows / kinds.length }, (_, row) => row * kinds.length + k);
      const part = own.flatMap((row) =>
        Array.from({ length: cols }, (_, col) => values[(expert * cols + col) * rows + row]!),
      );
      add(kind, both[2] === undefined ? 'weight' : 'bias', Float32Array.from(part));
    }
  return true;
}

/** Writes a fixture checkpoint as a GGUF file, as llama.cpp's converter for its architecture would. */
export async function convert(
  {
    fixture,
    arch,
    paired,
    plusOne,
    names,
    layerNormEps,
    fused: fuses,
    more,
    apart,
    stored = (name) => name,
  }: Conversion,
  path: string,
): Promise<void> {
  const folder = join(MODEL_FIXTURES, fixture);
  const config = JSON.parse(await readFile(join(folder, 'config.json'), 'utf8')) as Fields;
  await using checkpoint = await Checkpoint.open(folder);
  const at = (key: string): string => `${arch}.${key}`;
  const heads = config.num_attention_heads as number;
  const kvHeads = (config.num_key_value_heads as number | undefined) ?? heads;
  const headDim = (config.head_dim as number | undefined) ?? (config.hidden_size as number) / heads;
  const theta = (config.rope_theta ?? rope(config).rope_theta) as number | undefined;
  const metadata: Record<string, Value> = {
    'general.architecture': string(arch),
    [at('block_count')]: u32(config.num_hidden_layers as number),
    [at('context_length')]: u32(config.max_position_embeddings as number),
    [at('embedding_length')]: u32(config.hidden_size as number),
    [at('feed_forward_length')]: u32(config.intermediate_size as number),
    [at('attention.head_count')]: u32(heads),
    [at('attention.head_count_kv')]: u32(kvHeads),
    [at('attention.key_length')]: u32(headDim),
    ...(layerNormEps === undefined
      ? { [at('attention.layer_norm_rms_epsilon')]: f32((config.rms_norm_eps as number | undefined) ?? 1e-6) }
      : { [at('attention.layer_norm_epsilon')]: f32(config[layerNormEps] as number) }),
    ...(theta === undefined ? {} : { [at('rope.freq_base')]: f32(theta) }),
    ...more?.(config, at),
  };
  const tensors: WrittenTensor[] = [];
  const stacks = new Map<string, Float32Array[]>();
  for (const name of checkpoint.names()) {
    const { dtype, ...info } = checkpoint.info(name)!;
    const shape = [...info.shape];
    // What is tied is left out.
    if (config.tie_word_embeddings === true && name.startsWith('lm_head')) continue;
    const bytes = new Uint8Array(checkpoint.info(name)!.byteLength);
    await checkpoint.readBytes(name, 0, bytes);
    let values: Float32Array = new Float32Array(shape.reduce((a, b) => a * b, 1));
    decodeFloats(bytes, dtype.toLowerCase() as 'f32', values);
    // A number of each layer: the file has a list of them.
    const list = /act_fn\.(\w+)$/.exec(name)?.[1];
    if (list !== undefined) {
      const key = `xielu.${list}`;
      const before = metadata[key]?.value as readonly number[] | undefined;
      metadata[key] = { type: 'f32s', value: [...(before ?? []), values[0]!] };
      continue;
    }
    if (collect(stacks, name, values, shape)) continue;
    const whole = WHOLE.find(([ending]) => name.endsWith(ending))?.[1];
    if (whole !== undefined) {
      const layer = /layers\.(\d+)/.exec(name)![1]!;
      tensors.push({ name: `blk.${layer}.${whole}`, shape, type: 0, data: bytesOf(values) });
      continue;
    }
    if (name.endsWith('shared_expert_gate.weight')) shape.shift();
    const of = /self_attn\.([qk])_proj/.exec(name)?.[1];
    if (paired && of !== undefined) values = permuted(values, shape[0]!, of === 'q' ? heads : kvHeads);
    if (plusOne && name.endsWith('norm.weight')) values = values.map((value) => value + 1);
    const shown = converted(name, arch.startsWith('gemma'), names);
    tensors.push({ name: shown, shape, type: 0, data: bytesOf(values) });
  }
  for (const [name, parts] of stacks) {
    const wide = name.includes('down') ? [config.hidden_size as number] : [];
    const cols = name.endsWith('.bias') ? [] : [parts[0]!.length / (wide[0] ?? widthOf(config))];
    const shape = [parts.length, wide[0] ?? widthOf(config), ...cols];
    const values = Float32Array.from(parts.flatMap((part) => [...part]));
    tensors.push({ name, shape, type: 0, data: bytesOf(values) });
  }
  if (rope(config).rope_type === 'llama3') {
    const { factor, low_freq_factor, high_freq_factor, original_max_position_embeddings } = rope(config);
    const plain = ropeFrequencies({ type: 'default', theta: theta! }, headDim, 1).frequencies;
    const scaled = ropeFrequencies(
      {
        type: 'llama3',
        theta: theta!,
        factor: factor as number,
        lowFreqFactor: low_freq_factor as number,
        highFreqFactor: high_freq_factor as number,
        originalMaxPositions: original_max_position_embeddings as number,
      },
      headDim,
      1,
    ).frequencies;
    const factors = Float32Array.from(plain, (frequency, i) => frequency / scaled[i]!);
    tensors.push({
      name: 'rope_freqs.weight',
      shape: [factors.length],
      type: 0,
      data: new Uint8Array(factors.buffer),
    });
  }
  const plain = tensors.map(({ name, shape, data }) => ({
    name,
    shape,
    values: new Float32Array(data.buffer, data.byteOffset, data.byteLength / 4),
  }));
  const joined = fused(plain, false).map((tensor) => ({ ...tensor, type: 0, data: bytesOf(tensor.values) }));
  const rows = { q: heads * headDim, k: kvHeads * headDim, v: kvHeads * headDim };
  const written = (fuses === true ? joined : tensors).flatMap((one): WrittenTensor[] => {
    const { name, shape, data } = one;
    if (apart !== true || !name.includes('attn_qkv')) return [{ ...one, name: stored(name) }];
    const rowBytes = data.length / shape[0]!;
    let first = 0;
    return Object.entries(rows).map(([part, count]) => {
      const own = data.slice(first * rowBytes, (first + count) * rowBytes);
      first += count;
      const sides = [count, ...shape.slice(1)];
      return { name: name.replace('attn_qkv', `attn_${part}`), shape: sides, type: 0, data: own };
    });
  });
  await writeFile(path, ggufBytes({ metadata, tensors: written }));
}
