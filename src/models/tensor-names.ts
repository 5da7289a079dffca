/**
 * Checkpoints whose tensors go by other names. A family states its weights as `model.layers.0.…` and `lm_head.weight`; the bare
 * decoder is published without `model.`, and wrappers put names of their own before it. transformers reads the first.
 */

import { encoderNames } from './encoder-names.js';
import type { WeightSource } from './resolve-weights.js';

const MODEL = 'model.';
/** What decoders within a wrapper go by. transformers 5 writes the first; older files and MLX have the second. */
const WRAPPED = ['model.language_model.', 'language_model.model.'] as const;
const HEAD = 'lm_head.';
/** Qwen's tower: what families' towers call it, transformers 5, MLX. */
const TOWER = 'visual.';
const TOWERS = [TOWER, 'model.visual.', 'vision_tower.', 'model.vision_tower.'];
/** What sees in the others, without what may stand before it. CLIP and SigLIP had a name more within theirs once. */
const SEEING =
  /^(?:model\.)?((?:vision_tower|vision_model|vision_embedder|multi_modal_projector|embed_vision|connector|vision_adapter|vision_projection)\..*|image_newline)$/;
export const EMBEDDING_WEIGHT = 'model.embed_tokens.weight';
/** Nemotron-H's. */
const EMBEDDINGS = 'model.embeddings.';
export const HEAD_WEIGHT = 'lm_head.weight';

/** A source that can say what it holds. */
export interface NamedWeights extends WeightSource {
  names(): readonly string[];
  /** The checkpoint's own name for a tensor. */
  stored(name: string): string;
  /** The same weights, in which `name` is what `other` is. */
  withAlias(name: string, other: string): NamedWeights;
}

/** What a checkpoint is before it is renamed. */
export type PlainWeights = Omit<NamedWeights, 'stored' | 'withAlias'>;

/**
 * Shows a checkpoint under the names that families use.
 *
 * @example renamed(checkpoint).has('model.layers.0.mlp.up_proj.weight') // though the file calls it layers.0.mlp.…
 */
export function renamed(source: PlainWeights): NamedWeights {
  const names = source.names();
  const encoder = encoderNames(names);
  if (encoder !== undefined) return new RenamedWeights(source, encoder);
  const prefix = decoderPrefix(names);
  const head = prefix === undefined ? undefined : headPrefix(names, prefix);
  const aliases = new Map<string, string>();
  const tower = TOWERS.find((at) => at !== TOWER && names.includes(`${at}patch_embed.proj.weight`));
  for (const name of names) {
    const seen =
      tower === undefined
        ? SEEING.exec(name)?.[1]?.replace(/^vision_tower\.vision_model\./, 'vision_tower.')
        : name.startsWith(tower)
          ? TOWER + name.slice(tower.length)
          : undefined;
    if (seen !== undefined && seen !== name) aliases.set(seen, name);
  }
  if (prefix !== undefined && prefix !== MODEL)
    for (const name of names)
      if (name.startsWith(prefix) && !name.startsWith(head ?? HEAD))
        aliases.set(MODEL + name.slice(prefix.length), name);
  for (const [name, at] of [...names.map((own) => [own, own] as const), ...aliases])
    if (name.startsWith(EMBEDDINGS)) aliases.set(`model.embed_tokens.${name.slice(EMBEDDINGS.length)}`, at);
  if (head !== undefined && head !== HEAD)
    for (const name of names) if (name.startsWith(head)) aliases.set(HEAD + name.slice(head.length), name);
  return new RenamedWeights(source, aliases, (name) => {
    if (prefix === undefined || !name.startsWith(MODEL)) return name;
    // Decoders whose last norm is called so call their embedding otherwise too.
    const own = names.includes(`${prefix}norm_f.weight`)
      ? name.replace('model.embed_tokens.', EMBEDDINGS)
      : name;
    return prefix + own.slice(MODEL.length);
  });
}

/** Names of the norm before the head. */
const LAST_NORMS = ['norm.weight', 'embedding_norm.weight', 'final_layernorm.weight', 'norm_f.weight'];

/** What stands before `layers.0.` and the norm: undefined where nothing does, or several things. */
function decoderPrefix(names: readonly string[]): string | undefined {
  const all = new Set(names);
  const hasNorm = (prefix: string): boolean => LAST_NORMS.some((norm) => all.has(prefix + norm));
  const known = [MODEL, ...WRAPPED].find(hasNorm);
  if (known !== undefined) return known;
  const found = new Set<string>();
  for (const name of names) {
    const prefix = /^(.*?)layers\.0\./.exec(name)?.[1];
    if (prefix !== undefined && hasNorm(prefix)) found.add(prefix);
  }
  const [only] = found;
  return found.size === 1 ? only : undefined;
}

/** What the head's tensors begin with: beside the decoder, or within it. */
function headPrefix(names: readonly string[], prefix: string): string | undefined {
  const beside = prefix.replace(/model\.$/, '');
  return [HEAD, beside + HEAD, prefix + HEAD].find((head) => names.some((name) => name.startsWith(head)));
}

class RenamedWeights implements NamedWeights {
  readonly #source: PlainWeights;
  readonly #aliases: ReadonlyMap<string, string>;
  readonly #shown: ReadonlyMap<string, string>;
  readonly #absent: (name: string) => string;

  /** `absent`: what the checkpoint would call a tensor that it does not have. */
  constructor(
    source: PlainWeights,
    aliases: ReadonlyMap<string, string>,
    absent: (name: string) => string = (name) => name,
  ) {
    this.#source = source;
    this.#aliases = aliases;
    this.#absent = absent;
    this.#shown = new Map([...aliases].map(([name, at]) => [at, name]));
  }

  names(): readonly string[] {
    return this.#source.names().map((name) => this.#shown.get(name) ?? name);
  }

  has(name: string): boolean {
    return this.#source.has(this.stored(name));
  }

  stored(name: string): string {
    return this.#aliases.get(name) ?? name;
  }

  called(name: string): string {
    return this.#source.called?.(this.stored(name)) ?? name;
  }

  absent(name: string): string {
    return this.#absent(name);
  }

  withAlias(name: string, other: string): NamedWeights {
    const aliases = new Map([...this.#aliases, [name, this.stored(other)]]);
    return new RenamedWeights(this.#source, aliases, this.#absent);
  }

  info(name: string): ReturnType<WeightSource['info']> {
    return this.#source.info(this.stored(name));
  }

  matrix(...[name, expected]: Parameters<WeightSource['matrix']>): ReturnType<WeightSource['matrix']> {
    return this.#source.matrix(this.stored(name), expected);
  }

  vector(...[name, shape]: Parameters<WeightSource['vector']>): ReturnType<WeightSource['vector']> {
    return this.#source.vector(this.stored(name), shape);
  }

  unusedNames(): readonly string[] {
    return this.#source.unusedNames().map((name) => this.#shown.get(name) ?? name);
  }
}

/**
 * Tensors that a checkpoint may hold and no decoder reads: frequencies and masks that old ones carry as buffers; what sees
 * and hears in a wrapper; layers that draft several tokens at once; scales of a cache in FP8.
 */
const HARMLESS: readonly RegExp[] = [
  /(^|\.)rotary_emb\./,
  /(^|\.)inv_freq$/,
  /\.self_attn\.(masked_)?bias$/,
  /\.self_attn\.[kv]_scale$/,
  /^(model\.)?(visual|vision_tower|vision_model|vision_embedder|vision_encoder|vision_language_adapter)\./,
  /^(model\.)?(embed_vision|audio_tower|embed_audio|multi_modal_projector|mm_projector|mlp1|patch_merger|vision_adapter|vision_projection)\./,
  /^(model\.)?image_newline$/,
  /^(model\.)?mtp\./,
];

/** As {@link HARMLESS}, and the copy of the embedding that a tied one may carry as its head. */
export function harmlessTensors(tied: boolean): RegExp[] {
  return tied ? [...HARMLESS, /^lm_head\.(weight|scales|biases)$/] : [...HARMLESS];
}
