/** Fixtures of families that see as others than transformers lay them out: other names, other shapes, another config.json. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { readPacked } from '../fixtures/read-packed.js';
import { safetensors, type TestTensor } from '../fixtures/weights/build.js';
import { ROOT, readJson } from './vision-fixtures.js';

type Json = Record<string, unknown>;
type Tensors = Map<string, TestTensor>;

export interface VisionLayout {
  /** The fixture that it is another form of. */
  readonly of: string;
  readonly tensors: (tensors: Tensors) => Tensors;
  /** config.json, made of that of the fixture. */
  readonly config?: (config: Json) => Json;
  /** Other files, whole. */
  readonly files?: Readonly<Record<string, Json>>;
}

function tensorsOf(file: string): Tensors {
  const bytes = readFileSync(file);
  const length = Number(bytes.readBigUInt64LE(0));
  const { __metadata__: _, ...header } = JSON.parse(bytes.toString('utf8', 8, 8 + length)) as Record<
    string,
    { readonly dtype: string; readonly shape: readonly number[]; readonly data_offsets: [number, number] }
  >;
  return new Map(
    Object.entries(header).map(
      ([
        name,
        {
          dtype,
          shape,
          data_offsets: [from, to],
        },
      ]) => [
        name,
        { dtype, shape, data: new Uint8Array(bytes.subarray(8 + length + from, 8 + length + to)) },
      ],
    ),
  );
}

/** Puts a fixture into a folder, in this layout. */
export function layOut(folder: string, { of, tensors, config, files = {} }: VisionLayout): void {
  const from = join(ROOT, of);
  cpSync(from, folder, { recursive: true });
  const laid = tensors(tensorsOf(join(from, 'model.safetensors')));
  writeFileSync(join(folder, 'model.safetensors'), safetensors(Object.fromEntries(laid)));
  const all =
    config === undefined ? files : { 'config.json': config(readJson(from, 'config.json')), ...files };
  for (const [file, json] of Object.entries(all)) writeFileSync(join(folder, file), JSON.stringify(json));
}

/** Each tensor under the name that the first fitting pattern makes of its own. */
const renamed =
  (patterns: readonly (readonly [RegExp, string])[]) =>
  (tensors: Tensors): Tensors =>
    new Map(
      [...tensors].map(([name, tensor]) => {
        const found = patterns.find(([pattern]) => pattern.test(name));
        return [found === undefined ? name : name.replace(found[0], found[1]), tensor];
      }),
    );

/** `….q_proj.weight`, `k` and `v` as `….qkv.weight`, one behind the other. */
function joinQkv(tensors: Tensors): Tensors {
  const out: Tensors = new Map();
  for (const [name, tensor] of tensors) {
    const [, at, part, end] = /^(vision.*)\.([qkv])_proj\.(weight|bias)$/.exec(name) ?? [];
    if (at === undefined) out.set(name, tensor);
    else if (part === 'q') {
      const all = ['q', 'k', 'v'].map((one) => tensors.get(`${at}.${one}_proj.${end}`)!);
      const shape = [3 * tensor.shape[0]!, ...tensor.shape.slice(1)];
      out.set(`${at}.qkv.${end}`, { ...tensor, shape, data: Buffer.concat(all.map(({ data }) => data)) });
    }
  }
  return out;
}

/** Qwen's template of text: it joins a content that it takes for one string. */
const TEXT_TEMPLATE =
  "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/** As OpenGVLab publishes InternVL: the names of its own code, preprocessor_config.json of CLIP, which nobody reads. */
const internVlChat: VisionLayout = {
  of: 'internvl',
  tensors: (tensors) =>
    renamed([
      [/^vision_tower\.embeddings\.cls_token$/, 'vision_model.embeddings.class_embedding'],
      [/^vision_tower\.embeddings\.position_embeddings$/, 'vision_model.embeddings.position_embedding'],
      [
        /^vision_tower\.embeddings\.patch_embeddings\.projection\./,
        'vision_model.embeddings.patch_embedding.',
      ],
      [/^vision_tower\.encoder\.layer\.(\d+)\.layernorm_before\./, 'vision_model.encoder.layers.$1.norm1.'],
      [/^vision_tower\.encoder\.layer\.(\d+)\.layernorm_after\./, 'vision_model.encoder.layers.$1.norm2.'],
      [/^vision_tower\.encoder\.layer\.(\d+)\.lambda_/, 'vision_model.encoder.layers.$1.ls'],
      [
        /^vision_tower\.encoder\.layer\.(\d+)\.attention\.projection_layer\./,
        'vision_model.encoder.layers.$1.attn.proj.',
      ],
      [/^vision_tower\.encoder\.layer\.(\d+)\.attention\./, 'vision_model.encoder.layers.$1.attn.'],
      [/^vision_tower\.encoder\.layer\./, 'vision_model.encoder.layers.'],
      [/^multi_modal_projector\.layer_norm\./, 'mlp1.0.'],
      [/^multi_modal_projector\.linear_1\./, 'mlp1.1.'],
      [/^multi_modal_projector\.linear_2\./, 'mlp1.3.'],
    ])(joinQkv(tensors)),
  config: ({ text_config, vision_config, tie_word_embeddings }) => {
    const { image_size: _, patch_size: __, attention_bias: ___, ...vision } = vision_config as Json;
    return {
      architectures: ['InternVLChatModel'],
      auto_map: { AutoConfig: 'configuration_internvl_chat.InternVLChatConfig' },
      downsample_ratio: 0.5,
      dynamic_image_size: true,
      force_image_size: 16,
      llm_config: { ...(text_config as Json), architectures: ['Qwen3ForCausalLM'] },
      max_dynamic_patch: 4,
      min_dynamic_patch: 1,
      model_type: 'internvl_chat',
      pad2square: false,
      ps_version: 'v2',
      select_layer: -1,
      template: 'internvl2_5',
      tie_word_embeddings,
      torch_dtype: 'bfloat16',
      use_thumbnail: true,
      vision_config: {
        ...vision,
        architectures: ['InternVisionModel'],
        model_type: 'intern_vit_6b',
        image_size: 16,
        patch_size: 4,
        qk_normalization: false,
        qkv_bias: true,
      },
    };
  },
  files: {
    'preprocessor_config.json': {
      crop_size: 16,
      do_center_crop: true,
      do_resize: true,
      feature_extractor_type: 'CLIPFeatureExtractor',
      size: 16,
    },
    'tokenizer_config.json': {
      tokenizer_class: 'PreTrainedTokenizerFast',
      bos_token: '<s>',
      eos_token: '</s>',
      chat_template: TEXT_TEMPLATE,
    },
  },
};

/** GLM-4.6V in the form that is not a mixture. */
const glm46v: VisionLayout = {
  of: 'glm4v',
  tensors: (tensors) => tensors,
  config: (config) => ({
    ...config,
    architectures: ['Glm46VForConditionalGeneration'],
    model_type: 'glm46v',
  }),
  files: {
    'preprocessor_config.json': {
      ...readJson(join(ROOT, 'glm4v'), 'preprocessor_config.json'),
      image_processor_type: 'Glm46VImageProcessorFast',
    },
    'video_preprocessor_config.json': {
      ...readJson(join(ROOT, 'glm4v'), 'video_preprocessor_config.json'),
      video_processor_type: 'Glm46VVideoProcessor',
    },
  },
};

/** Of each tensor that mlx-vlm writes: the tensor of the checkpoint and the order of its axes, or those of a stack. */
type MlxTensors = Readonly<Record<string, readonly [string, readonly number[] | null] | readonly [string[]]>>;

const MLX = readPacked(join(ROOT, '../mlx-layouts.json.br')) as Readonly<Record<string, MlxTensors>>;

function transposed({ dtype, shape, data }: TestTensor, axes: readonly number[]): TestTensor {
  const made = axes.map((axis) => shape[axis]!);
  const size = data.length / shape.reduce((all, side) => all * side, 1);
  const steps = shape.map((_, axis) => shape.slice(axis + 1).reduce((all, side) => all * side, 1));
  const out = new Uint8Array(data.length);
  for (let i = 0; i < data.length / size; i++) {
    let rest = i;
    let from = 0;
    for (let axis = made.length - 1; axis >= 0; axis--) {
      from += (rest % made[axis]!) * steps[axes[axis]!]!;
      rest = Math.floor(rest / made[axis]!);
    }
    out.set(data.subarray(from * size, (from + 1) * size), i * size);
  }
  return { dtype, shape: made, data: out };
}

/** As mlx-vlm's converter lays a checkpoint out (scripts/fixtures/mlx_layouts.py). */
const mlx = (of: string, layout: MlxTensors): VisionLayout => ({
  of,
  tensors: (tensors) =>
    new Map(
      Object.entries(layout).map(([name, [from, axes]]) => {
        if (typeof from === 'string') {
          const own = tensors.get(from)!;
          return [name, axes ? transposed(own, axes) : own];
        }
        const all = from.map((one) => tensors.get(one)!);
        const stacked = Buffer.concat(all.map(({ data }) => data));
        return [name, { ...all[0]!, shape: [all.length, ...all[0]!.shape], data: stacked }];
      }),
    ),
});

export const LAYOUTS: Readonly<Record<string, VisionLayout>> = {
  glm46v,
  'internvl-chat': internVlChat,
  ...Object.fromEntries(Object.entries(MLX).map(([of, layout]) => [`mlx-${of}`, mlx(of, layout)])),
};
