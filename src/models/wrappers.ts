/**
 * Checkpoints that wrap a decoder: models that also see or hear keep its config in `text_config`, or beside their
 * own. Of these the text model is read, and what sees where kvant has it (vision/).
 */

import type { JsonObject } from '../weights/folder-files.js';
import type { ConfigFields } from './config-fields.js';
import type { VisionName } from './vision/families.js';

interface Wrapper {
  /** Value of `architectures`. */
  readonly architecture: string;
  /** Value of `model_type`. */
  readonly modelType: string;
  /** Model type of the decoder where its config does not tell. */
  readonly text: string;
  /** What a decoder means that leaves fields out, by its model type, where its family's own means something else. */
  readonly defaults?: Readonly<Record<string, JsonObject>>;
  /** What its decoder does whatever the config says of it. */
  readonly fixed?: JsonObject;
  /** Where the decoder's config is. Default: `text_config`. */
  readonly section?: string;
  /** What sees in it. Default: something that kvant does not have. */
  readonly tower?: VisionName;
}

/** Of Qwen2-VL and Qwen2.5-VL in transformers (Qwen2VLTextConfig, Qwen2_5_VLTextConfig). */
const QWEN2_VL: JsonObject = { rms_norm_eps: 1e-5, max_window_layers: 80, rope_theta: 1e6 };

/** Qwen3VLTextConfig in transformers. */
const QWEN3_VL: JsonObject = { rope_theta: 500_000, max_position_embeddings: 128_000 };

/** Qwen3VLMoeTextConfig in transformers. */
const QWEN3_VL_MOE: JsonObject = {
  ...QWEN3_VL,
  num_experts_per_tok: 4,
  moe_intermediate_size: 1408,
};

/** Glm4vTextConfig in transformers; what it says of biases is not read. */
const GLM4V: JsonObject = { max_position_embeddings: 32_768 };
/** Glm4vMoeTextConfig in transformers. */
const GLM4V_MOE: JsonObject = { attention_bias: true };

/** Configs of LLaVA leave out what is as in a Llama or a Mistral of 7B (LlamaConfig, MistralConfig). */
const LLAMA: JsonObject = {
  hidden_size: 4096,
  intermediate_size: 11_008,
  num_hidden_layers: 32,
  num_attention_heads: 32,
};
const MISTRAL: JsonObject = { ...LLAMA, intermediate_size: 14_336, num_key_value_heads: 8 };

const WRAPPERS: readonly Wrapper[] = [
  {
    architecture: 'Gemma3ForConditionalGeneration',
    modelType: 'gemma3',
    text: 'gemma3_text',
    tower: 'gemma3',
  },
  {
    architecture: 'Gemma4ForConditionalGeneration',
    modelType: 'gemma4',
    text: 'gemma4_text',
    tower: 'gemma4',
  },
  {
    architecture: 'Gemma4UnifiedForConditionalGeneration',
    modelType: 'gemma4_unified',
    text: 'gemma4_unified_text',
    tower: 'gemma4-unified',
  },
  {
    architecture: 'MuseGlimmerForConditionalGeneration',
    modelType: 'muse_glimmer',
    text: 'muse_glimmer_text',
    tower: 'muse-glimmer',
  },
  {
    architecture: 'Mistral3ForConditionalGeneration',
    modelType: 'mistral3',
    text: 'mistral',
    tower: 'mistral3',
  },
  {
    architecture: 'Qwen2VLForConditionalGeneration',
    modelType: 'qwen2_vl',
    text: 'qwen2',
    defaults: { qwen2: QWEN2_VL },
    tower: 'qwen2-vl',
  },
  {
    architecture: 'Qwen2_5_VLForConditionalGeneration',
    modelType: 'qwen2_5_vl',
    text: 'qwen2',
    defaults: { qwen2: QWEN2_VL },
    tower: 'qwen2.5-vl',
  },
  {
    architecture: 'Qwen3VLForConditionalGeneration',
    modelType: 'qwen3_vl',
    text: 'qwen3',
    defaults: { qwen3: QWEN3_VL },
    tower: 'qwen3-vl',
  },
  {
    architecture: 'Qwen3VLMoeForConditionalGeneration',
    modelType: 'qwen3_vl_moe',
    text: 'qwen3_moe',
    defaults: { qwen3_moe: QWEN3_VL_MOE },
    fixed: { norm_topk_prob: true },
    tower: 'qwen3-vl',
  },
  {
    architecture: 'Qwen3_5ForConditionalGeneration',
    modelType: 'qwen3_5',
    text: 'qwen3_5_text',
    tower: 'qwen3.5-vl',
  },
  {
    architecture: 'Qwen3_5MoeForConditionalGeneration',
    modelType: 'qwen3_5_moe',
    text: 'qwen3_5_moe_text',
    tower: 'qwen3.5-vl',
  },
  {
    architecture: 'Glm4vForConditionalGeneration',
    modelType: 'glm4v',
    text: 'glm4v_text',
    defaults: { glm4v_text: GLM4V },
    tower: 'glm4v',
  },
  {
    architecture: 'Glm4vMoeForConditionalGeneration',
    modelType: 'glm4v_moe',
    text: 'glm4_moe',
    defaults: { glm4_moe: GLM4V_MOE },
    fixed: { use_qk_norm: false },
    tower: 'glm4v',
  },
  {
    architecture: 'Glm46VForConditionalGeneration',
    modelType: 'glm46v',
    text: 'glm4v_text',
    defaults: { glm4v_text: GLM4V, glm4_moe: GLM4V_MOE },
    tower: 'glm4v',
  },
  {
    architecture: 'GlmOcrForConditionalGeneration',
    modelType: 'glm_ocr',
    text: 'glm_ocr_text',
    tower: 'glm-ocr',
  },
  {
    architecture: 'AyaVisionForConditionalGeneration',
    modelType: 'aya_vision',
    text: 'cohere2',
    tower: 'aya-vision',
  },
  {
    architecture: 'KimiK25ForConditionalGeneration',
    modelType: 'kimi_k25',
    text: 'deepseek_v3',
  },
  {
    // As transformers has it.
    architecture: 'Kimi_K25ForConditionalGeneration',
    modelType: 'kimi_k25',
    text: 'deepseek_v3',
  },
  {
    architecture: 'KimiVLForConditionalGeneration',
    modelType: 'kimi_vl',
    text: 'deepseek_v3',
  },
  {
    architecture: 'LlavaForConditionalGeneration',
    modelType: 'llava',
    text: 'llama',
    defaults: { llama: LLAMA, mistral: MISTRAL },
    tower: 'llava',
  },
  {
    architecture: 'LlavaNextForConditionalGeneration',
    modelType: 'llava_next',
    text: 'llama',
    defaults: { llama: LLAMA, mistral: MISTRAL },
    tower: 'llava-next',
  },
  {
    architecture: 'LlavaOnevisionForConditionalGeneration',
    modelType: 'llava_onevision',
    text: 'qwen2',
    tower: 'llava-onevision',
  },
  {
    architecture: 'Idefics3ForConditionalGeneration',
    modelType: 'idefics3',
    text: 'llama',
    defaults: { llama: LLAMA },
    tower: 'idefics3',
  },
  {
    architecture: 'SmolVLMForConditionalGeneration',
    modelType: 'smolvlm',
    text: 'llama',
    defaults: { llama: LLAMA },
    tower: 'idefics3',
  },
  {
    architecture: 'InternVLForConditionalGeneration',
    modelType: 'internvl',
    text: 'qwen2',
    tower: 'internvl',
  },
  {
    // As OpenGVLab has it.
    architecture: 'InternVLChatModel',
    modelType: 'internvl_chat',
    text: 'qwen2',
    section: 'llm_config',
    tower: 'internvl-chat',
  },
  {
    architecture: 'Lfm2VlForConditionalGeneration',
    modelType: 'lfm2_vl',
    text: 'lfm2',
    tower: 'lfm2-vl',
  },
];

/** What decoders inside a wrapper call themselves, and the type that reads them. */
const TEXT_TYPES: Readonly<Record<string, string>> = {
  qwen2_vl_text: 'qwen2',
  qwen2_5_vl_text: 'qwen2',
  qwen3_vl_text: 'qwen3',
  qwen3_vl_moe_text: 'qwen3_moe',
  glm4v_moe_text: 'glm4_moe',
  // Configs from before there was a text_config are flat.
  qwen2_vl: 'qwen2',
  qwen2_5_vl: 'qwen2',
};

/** Fields that stand outside, inside, or both: what the decoder's own config says goes before. */
const SHARED = [
  'tie_word_embeddings',
  'bos_token_id',
  'eos_token_id',
  'dtype',
  'torch_dtype',
  // Configs that state the sizes of a decoder beside its type have them from outside.
  'vocab_size',
] as const;

/** Names of all architectures whose text model can be loaded. */
export const WRAPPED_ARCHITECTURES: readonly string[] = WRAPPERS.map(({ architecture }) => architecture);

/** A decoder taken out of its wrapper. */
export interface Unwrapped {
  readonly fields: ConfigFields;
  /** Model type of the decoder. */
  readonly modelType: string;
  /** What sees in it, where kvant has that. */
  readonly tower: VisionName | null;
}

/**
 * The decoder's own fields and type; null for a config that is no wrapper's.
 *
 * @example unwrap(fields, 'Gemma3ForConditionalGeneration', 'gemma3')?.modelType // 'gemma3_text'
 */
export function unwrap(
  fields: ConfigFields,
  architecture: string | null,
  modelType: string | null,
): Unwrapped | null {
  const named = architecture?.toLowerCase();
  const wrapper = WRAPPERS.find(
    (known) =>
      known.architecture.toLowerCase() === named || (named === undefined && known.modelType === modelType),
  );
  if (wrapper === undefined) return null;
  const text = fields.object('text_config') ?? fields.object(wrapper.section ?? 'text_config');
  const inner = text === null ? fields : SHARED.reduce((found, name) => filled(found, fields, name), text);
  const stated = inner.text('model_type') ?? wrapper.text;
  const textType = TEXT_TYPES[stated] ?? stated;
  const complete = Object.entries(wrapper.defaults?.[textType] ?? {}).reduce(
    // A `null` stays where it means something: that there is no window.
    (found, [name, value]) => (found.has(name) ? found : found.replacing(name, value)),
    inner,
  );
  const fixed = Object.entries(wrapper.fixed ?? {}).reduce(
    (found, [name, value]) => found.replacing(name, value),
    complete,
  );
  return { fields: ofText(fixed), modelType: textType, tower: wrapper.tower ?? null };
}

/** The field from outside where the inside has none. A `null` inside stays where the outside has none either. */
function filled(inner: ConfigFields, outer: ConfigFields, name: string): ConfigFields {
  return inner.has(name) || !outer.has(name) ? inner : inner.replacing(name, outer.json[name]);
}

/** Rotation by three axes: of text all three are equal, and that is the plain one. */
function ofText(fields: ConfigFields): ConfigFields {
  let plain = fields;
  for (const name of ['rope_scaling', 'rope_parameters']) {
    const section = fields.object(name);
    if (section?.text(['rope_type', 'type']) === 'mrope')
      plain = plain.replacing(name, { ...section.json, rope_type: 'default' });
  }
  return plain;
}
