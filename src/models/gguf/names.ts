/** What tensors of GGUF files are called in the checkpoints that families know. */

import type { GgufArchitecture } from './architecture.js';

const TOP: Readonly<Record<string, string>> = {
  token_embd: 'model.embed_tokens',
  output_norm: 'model.norm',
  output: 'lm_head',
};

const LAYER: Readonly<Record<string, string>> = {
  attn_norm: 'input_layernorm',
  attn_q: 'self_attn.q_proj',
  attn_k: 'self_attn.k_proj',
  attn_v: 'self_attn.v_proj',
  attn_qkv: 'self_attn.qkv_proj',
  attn_output: 'self_attn.o_proj',
  attn_q_norm: 'self_attn.q_norm',
  attn_k_norm: 'self_attn.k_norm',
  ffn_norm: 'post_attention_layernorm',
  post_attention_norm: 'post_attention_layernorm',
  post_ffw_norm: 'post_feedforward_layernorm',
  ffn_gate: 'mlp.gate_proj',
  ffn_up: 'mlp.up_proj',
  ffn_down: 'mlp.down_proj',
};

/** Lists that frequencies are divided by, for all contexts, short ones and long ones: the config takes them in. */
export const FACTORS = [
  'rope_freqs.weight',
  'rope_factors_short.weight',
  'rope_factors_long.weight',
] as const;

/**
 * @returns the name as it stands where nothing is known by it: it is then left out, or refused, under that name
 * @example familyName('blk.3.attn_q.weight', architecture) // 'model.layers.3.self_attn.q_proj.weight'
 */
export function familyName(
  name: string,
  { names = {}, topNames = {}, wholeNames = {} }: GgufArchitecture,
): string {
  const [, layer, part, kind] = /^(?:blk\.(\d+)\.)?([a-z_0-9.]+)\.(weight|bias)$/.exec(name) ?? [];
  // Whatever else stands in a layer belongs to it.
  if (part === undefined || kind === undefined) {
    const [, at, whole] = /^blk\.(\d+)\.(.*)$/.exec(name) ?? [];
    if (at === undefined || whole === undefined) return name;
    return `model.layers.${at}.${Object.hasOwn(wholeNames, whole) ? wholeNames[whole] : whole}`;
  }
  if (layer === undefined) {
    const top = [topNames, TOP].find((list) => Object.hasOwn(list, part));
    return top === undefined ? name : `${top[part]}.${kind}`;
  }
  const at = `model.layers.${layer}.`;
  // Where gate and up are one stack, families know it by the hub's name.
  const experts = /^(.*)\.switch_mlp\.gate_proj$/.exec(names.ffn_gate_exps ?? '')?.[1];
  if (part === 'ffn_gate_up_exps' && experts !== undefined) return `${at}${experts}.experts.gate_up_proj`;
  const whole = `${part}.${kind}`;
  if (Object.hasOwn(wholeNames, whole)) return at + wholeNames[whole];
  // Within a layer that is computed a tensor without a place is refused: without it the result is another.
  const known = [names, LAYER].find((list) => Object.hasOwn(list, part));
  return `${at}${known?.[part] ?? part}.${kind}`;
}

/**
 * What a file of the architecture would call a tensor that it lacks: the first name that is read as it.
 * @returns the family's own where none is
 * @example fileName('model.layers.3.self_attn.q_proj.weight', architecture) // 'blk.3.attn_q.weight'
 */
export function fileName(name: string, architecture: GgufArchitecture): string {
  const { names = {}, topNames = {}, wholeNames = {} } = architecture;
  const [, layer, , kind] = /^model\.layers\.(\d+)\.(.*?)\.?(weight|bias)?$/.exec(name) ?? [];
  const tops = Object.keys({ ...topNames, ...TOP }).map((part) => `${part}.weight`);
  const parts = Object.keys({ ...names, ...LAYER }).map((part) => `blk.${layer}.${part}.${kind ?? 'weight'}`);
  const wholes = Object.keys(wholeNames).map((whole) => `blk.${layer}.${whole}`);
  const candidates = layer === undefined ? tops : [...wholes, ...parts];
  return candidates.find((candidate) => familyName(candidate, architecture) === name) ?? name;
}

/** q and k, their biases as well: what a rotation turns. */
export function isRotated(name: string): boolean {
  return /^blk\.\d+\.attn_[qk]\.(weight|bias)$/.test(name);
}
