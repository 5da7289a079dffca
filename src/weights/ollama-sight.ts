/**
 * What sees in GGUF files of Ollama's converters, which hold model and tower in one, as an mmproj file of llama.cpp has it.
 *
 * Source: Ollama (convert/, llama/compat).
 */

import type { GgufMetadata, GgufValue } from './gguf-metadata.js';
import { floats, type GgufView, integers, type ShapeOf } from './ollama-text.js';

interface Rule {
  /** `clip.projector_type`. */
  readonly type: string;
  readonly names: readonly (readonly [RegExp, string])[];
  /** Keys below `clip.vision.`, beside those that the file has below its own `vision.`. */
  readonly keys: (read: Reader) => Readonly<Record<string, GgufValue | undefined>>;
  /** `clip.use_silu` and the like. */
  readonly activation: 'gelu' | 'silu';
}

interface Reader {
  /** Below the architecture. */
  readonly number: (key: string) => number | undefined;
  readonly numbers: (key: string) => readonly number[];
  readonly value: (key: string) => GgufValue | undefined;
  readonly shape: ShapeOf;
}

const HALVES = { image_mean: floats([0.5, 0.5, 0.5]), image_std: floats([0.5, 0.5, 0.5]) };
const CLIP = {
  image_mean: floats([0.48145466, 0.4578275, 0.40821073]),
  image_std: floats([0.26862954, 0.26130258, 0.27577711]),
};

const IN_BLOCK = /^(v\.blk\.\d+\.)/.source;
const inBlock = (from: string, to: string): readonly [RegExp, string] => [
  new RegExp(`${IN_BLOCK}${from}\\.`),
  `$1${to}.`,
];

/** Qwen3-VL and Qwen3.5, also as later versions have called their tensors. */
const QWEN3: Rule = {
  type: 'qwen3vl_merger',
  names: [
    [/^v\.patch_embe?d\.weight$/, 'v.patch_embd.frames'],
    [/^v\.patch_embed\.bias$/, 'v.patch_embd.bias'],
    [/^v\.pos_embed\./, 'v.position_embd.'],
    [/^v\.merger\.norm\./, 'v.post_ln.'],
    [/^v\.merger\.linear_fc1\./, 'mm.0.'],
    [/^v\.merger\.linear_fc2\./, 'mm.2.'],
    [/^v\.deepstack(?:_merger)?\.(\d+)\.(?:linear_)?(norm|fc1|fc2)\./, 'v.deepstack_level.$1.$2.'],
    inBlock('norm1', 'ln1'),
    inBlock('norm2', 'ln2'),
    inBlock('mlp\\.linear_fc1', 'ffn_up'),
    inBlock('mlp\\.linear_fc2', 'ffn_down'),
  ],
  activation: 'gelu',
  keys: ({ number, numbers, shape, value }) => {
    const blocks = number('vision.block_count') ?? 0;
    const levels = new Set(numbers('vision.deepstack_visual_indexes'));
    const positions = (shape('v.pos_embed.weight') ?? shape('v.position_embd.weight'))?.[0];
    return {
      ...HALVES,
      image_size: Math.round(Math.sqrt(positions ?? 0)) * (number('vision.patch_size') ?? 0),
      image_min_pixels: value('vision.shortest_edge'),
      image_max_pixels: value('vision.longest_edge'),
      is_deepstack_layers: integers(
        Array.from({ length: blocks }, (_, block) => (levels.has(block) ? 1 : 0)),
      ),
    };
  },
};

const RULES: Readonly<Record<string, Rule>> = {
  gemma3: {
    type: 'gemma3',
    names: [
      [/^v\.patch_embedding\./, 'v.patch_embd.'],
      [/^v\.position_embedding\./, 'v.position_embd.'],
      [/^v\.post_layernorm\./, 'v.post_ln.'],
      [/^mm\.mm_input_projection\./, 'mm.input_projection.'],
      [/^mm\.mm_soft_emb_norm\./, 'mm.soft_emb_norm.'],
      inBlock('layer_norm1', 'ln1'),
      inBlock('layer_norm2', 'ln2'),
      inBlock('attn_output', 'attn_out'),
      inBlock('mlp\\.fc1', 'ffn_up'),
      inBlock('mlp\\.fc2', 'ffn_down'),
    ],
    activation: 'gelu',
    keys: ({ number }) => {
      const side = Math.floor((number('vision.image_size') ?? 0) / (number('vision.patch_size') ?? 1));
      const tokens = number('mm.tokens_per_image');
      return {
        ...HALVES,
        'projector.scale_factor': tokens === undefined ? undefined : Math.round(side / Math.sqrt(tokens)),
      };
    },
  },
  mistral3: {
    // Rows of q and k are as published.
    type: 'pixtral-halves',
    names: [
      [/^v\.patch_conv\./, 'v.patch_embd.'],
      [/^v\.encoder_norm\./, 'v.pre_ln.'],
      [/^mm\.linear_([12])\./, 'mm.$1.'],
      [/^mm\.norm\./, 'mm.input_norm.'],
      [/^mm\.patch_merger\.merging_layer\./, 'mm.patch_merger.'],
      inBlock('attn_output', 'attn_out'),
      inBlock('attn_norm', 'ln1'),
      inBlock('ffn_norm', 'ln2'),
    ],
    activation: 'silu',
    keys: ({ value }) => ({
      ...CLIP,
      'attention.layer_norm_epsilon': 1e-5,
      spatial_merge_size: value('spatial_merge_size'),
    }),
  },
  qwen25vl: {
    type: 'qwen2.5vl_merger',
    names: [
      [/^v\.patch_embd_0\./, 'v.patch_embd.'],
      [/^v\.patch_embd_1\.weight$/, 'v.patch_embd.weight.1'],
      [/^v\.merger\.ln_q\./, 'v.post_ln.'],
      [/^v\.merger\.mlp\.([02])\./, 'mm.$1.'],
    ],
    activation: 'silu',
    keys: ({ numbers }) => {
      const [first] = numbers('vision.fullatt_block_indexes');
      return { ...CLIP, n_wa_pattern: first === undefined ? undefined : first + 1 };
    },
  },
  qwen3vl: QWEN3,
  qwen3vlmoe: QWEN3,
  qwen35: QWEN3,
  qwen35moe: QWEN3,
  gemma4: { type: 'gemma4v', names: [], activation: 'gelu', keys: () => ({}) },
  glmocr: {
    type: 'glm4v',
    names: [
      [/^v\.patch_embd_0\./, 'v.patch_embd.'],
      [/^v\.patch_embd_1\.weight$/, 'v.patch_embd.weight.1'],
    ],
    activation: 'silu',
    keys: ({ value }) => ({
      'attention.layer_norm_epsilon': value('vision.attention.layer_norm_rms_epsilon'),
      image_min_pixels: value('vision.min_pixels'),
      image_max_pixels: value('vision.max_pixels'),
    }),
  },
};

const TOWER = /^(v|mm)\./;
/** Bounds that stand in tensors of their own as well, and what hears. */
const OF_NO_USE = /^(v\.clamp_data|mm\.a\..*)$/;

/** Whether a file of a model holds what sees for it as well. */
export function holdsSight(metadata: GgufMetadata, shape: ShapeOf): boolean {
  const architecture = metadata.value('general.architecture');
  if (typeof architecture !== 'string' || !Object.hasOwn(RULES, architecture)) return false;
  return [
    'v.patch_embd.weight',
    'v.patch_embed.weight',
    'v.patch_embedding.weight',
    'v.patch_conv.weight',
    'v.patch_embd_0.weight',
  ].some((name) => shape(name) !== undefined);
}

/** @returns undefined for a file that is no such one: an mmproj file */
export function ollamaSight(metadata: GgufMetadata, shape: ShapeOf): GgufView | undefined {
  if (!holdsSight(metadata, shape)) return undefined;
  const architecture = metadata.value('general.architecture') as string;
  const { type, names, keys: more, activation } = RULES[architecture]!;
  const own = `${architecture}.`;
  const at = `${own}vision.`;
  const keys = new Map<string, GgufValue>([
    ['general.architecture', 'clip'],
    ['clip.projector_type', type],
    [`clip.use_${activation}`, true],
  ]);
  for (const key of metadata.keys())
    if (key.startsWith(at)) keys.set(`clip.vision.${key.slice(at.length)}`, metadata.value(key)!);
  const width = metadata.value(`${own}embedding_length`);
  const read: Reader = {
    value: (key) => metadata.value(own + key),
    number: (key) => {
      const value = metadata.value(own + key);
      return typeof value === 'number' ? value : undefined;
    },
    numbers: (key) => metadata.numbers(own + key) ?? [],
    shape,
  };
  for (const [key, value] of Object.entries({ ...more(read), projection_dim: width }))
    if (value !== undefined && !keys.has(`clip.vision.${key}`)) keys.set(`clip.vision.${key}`, value);
  return {
    keys,
    nameOf: (tensor) => {
      if (!TOWER.test(tensor) || OF_NO_USE.test(tensor)) return null;
      const found = names.find(([pattern]) => pattern.test(tensor));
      return found === undefined ? tensor : tensor.replace(found[0], found[1]);
    },
  };
}
