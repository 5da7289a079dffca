/**
 * Fixture checkpoints of models of which only some layers attend, and of more mixtures, as GGUF files: the rules of llama.cpp's
 * converters, written here once more, from their side.
 */
import { join } from 'node:path';
import { fused } from '../setup/fused-tensors.js';
import { f32, string, u32, type Value } from '../setup/gguf-writer.js';
import {
  type Fields,
  GGUF_LAYER_NAMES,
  type Named,
  published,
  writeGguf,
} from '../setup/published-tensors.js';
import { MODEL_FIXTURES } from './runner.js';

export type At = (key: string) => string;

export interface HybridConversion {
  readonly fixture: string;
  readonly arch: string;
  readonly names: Readonly<Record<string, string>>;
  /** q, k and v are one tensor, and gate and up of experts. */
  readonly fused?: boolean;
  readonly more: (config: Fields, at: At) => Record<string, Value>;
  /** Another converter's names, by those of llama.cpp. */
  readonly stored?: (name: string) => string;
  /** What is done to a tensor under its published name; null leaves it to the names. */
  readonly extra?: Named;
  readonly change?: (tensor: Named, config: Fields) => readonly Named[] | null;
}

export const rotation = (config: Fields): Fields => config.rope_parameters as unknown as Fields;

const TOP: Record<string, string> = {
  'model.embed_tokens_per_layer.weight': 'per_layer_token_embd.weight',
  'model.per_layer_model_projection.weight': 'per_layer_model_proj.weight',
  'model.per_layer_projection_norm.weight': 'per_layer_proj_norm.weight',
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'model.embedding_norm.weight': 'token_embd_norm.weight',
  'lm_head.weight': 'output.weight',
};

/** What the converter calls a tensor, by its published name. */
export function renamed(name: string, names: Readonly<Record<string, string>>): string {
  if (TOP[name] !== undefined) return TOP[name];
  const [, layer, path, kind] = /^model\.layers\.(\d+)\.(.*)\.(weight|bias)$/.exec(name)!;
  return `blk.${layer}.${names[path!] ?? GGUF_LAYER_NAMES[path!]}.${kind}`;
}

const STACKED: Record<string, string> = {
  w1: 'gate',
  w3: 'up',
  w2: 'down',
  gate_proj: 'gate',
  up_proj: 'up',
  down_proj: 'down',
};

/** Writes a fixture checkpoint as a GGUF file, as llama.cpp's converter for its architecture would. */
export async function convertHybrid(
  { fixture, arch, names, more, change, extra, fused: fuses, stored = (name) => name }: HybridConversion,
  path: string,
): Promise<void> {
  const { config, tensors: stated } = await published(join(MODEL_FIXTURES, fixture));
  const at: At = (key) => `${arch}.${key}`;
  const { rope_theta: theta = 10_000 } = rotation(config);
  const heads = config.num_attention_heads!;
  const metadata: Record<string, Value> = {
    'general.architecture': string(arch),
    [at('block_count')]: u32(config.num_hidden_layers!),
    [at('context_length')]: u32(config.max_position_embeddings!),
    [at('embedding_length')]: u32(config.hidden_size!),
    [at('feed_forward_length')]: u32(config.intermediate_size!),
    [at('attention.head_count')]: u32(heads),
    [at('attention.head_count_kv')]: u32(config.num_key_value_heads!),
    [at('attention.key_length')]: u32(config.head_dim ?? config.hidden_size! / heads),
    [at('attention.layer_norm_rms_epsilon')]: f32(config.rms_norm_eps!),
    [at('rope.freq_base')]: f32(theta),
    ...more(config, at),
  };
  const tensors: Named[] = extra === undefined ? [] : [extra];
  const stacks = new Map<string, Named[]>();
  for (const tensor of stated) {
    const { name, shape: own, values } = tensor;
    const layer = /layers\.(\d+)\./.exec(name)?.[1];
    const one = /experts\.\d+\.(\w+)\.weight$/.exec(name)?.[1];
    if (one !== undefined) {
      const key = `blk.${layer}.ffn_${STACKED[one]}_exps.weight`;
      stacks.set(key, [...(stacks.get(key) ?? []), tensor]);
      continue;
    }
    const both = arch === 'gemma4' ? undefined : /experts\.(gate_up|down)_proj$/.exec(name)?.[1];
    if (both !== undefined) {
      const [count, rows, cols] = own as [number, number, number];
      const take = (kind: string, from: number, some: number): void => {
        const parts = Array.from({ length: count }, (_, expert) => [
          ...values.subarray((expert * rows + from) * cols, (expert * rows + from + some) * cols),
        ]);
        const shape = [count, some, cols];
        tensors.push({
          name: `blk.${layer}.ffn_${kind}_exps.weight`,
          shape,
          values: Float32Array.from(parts.flat()),
        });
      };
      if (both === 'down') take('down', 0, rows);
      else {
        take('gate', 0, rows / 2);
        take('up', rows / 2, rows / 2);
      }
      continue;
    }
    if (/expert_bias$|e_score_correction_bias$/.test(name)) {
      // Where the published name has no ending, this one has none.
      const ending = arch === 'hy_v3' ? '' : '.bias';
      tensors.push({ name: `blk.${layer}.exp_probs_b${ending}`, shape: [values.length], values });
      continue;
    }
    const changed = change?.(tensor, config);
    if (changed != null) tensors.push(...changed);
    else {
      // Squeezed: kernels of convolutions, and the row that weighs a shared expert.
      const flat = own.length === 3 || name.endsWith('shared_expert_gate.weight');
      const shape = flat ? own.filter((size) => size !== 1) : own;
      tensors.push({ name: renamed(name, names), shape, values });
    }
  }
  for (const [name, parts] of stacks) {
    const values = Float32Array.from(parts.flatMap((part) => [...part.values]));
    tensors.push({ name, shape: [parts.length, ...parts[0]!.shape], values });
  }
  const joined = fuses === true ? fused(tensors, /qwen3/.test(arch)) : tensors;
  await writeGguf(
    path,
    metadata,
    joined.map((one) => ({ ...one, name: stored(one.name) })),
  );
}
