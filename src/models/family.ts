/**
 * A family of models: how its config reads, which weights it has, and what its graph is. A new one is a file in
 * `families/` that exports a Family, and a word in the list of families.ts (docs/extending.md has the steps; families/llama.ts is a short one).
 */

import type { FeatureSlab } from '../device/feature-slab.js';
import type { RowKind, Tensor } from '../device/graph.js';
import type { Ops } from '../device/ops.js';
import type { CommonConfig } from './config.js';
import type { ConfigFields } from './config-fields.js';
import { factsOf, type ModelFacts } from './facts.js';
import type { LookingAhead, ShapeOf, WeightLayout, Weights } from './layout.js';
import { refuseUnreadStructure } from './structure-fields.js';
import type { VisionDefinition } from './vision/tower.js';

/** `C` is the family's own config: nothing outside the family looks into it. */
export interface Family<C extends CommonConfig = CommonConfig> {
  /** Short and lower case: `qwen3`. */
  readonly name: string;
  /** Values of `architectures` in config.json that it reads. Compared without regard to case. */
  readonly architectures: readonly string[];
  /** Values of `model_type` that it reads. They go before `architectures`. */
  readonly modelTypes: readonly string[];
  /** `architecture`: the one of config.json. Errors: `model-config`, `model-config-unsupported`. */
  readConfig(fields: ConfigFields, architecture: string): C;
  /** The same config as the weights want it, where their tensors tell what config.json does not. Default: as it is. */
  asStored?(config: C, shapeOf: ShapeOf): C;
  /** The tensors it reads by name and shape, and what its layers keep in the cache. */
  layout(config: C): WeightLayout;
  /** Records the model. Returns logits `[outputs, vocab]`. */
  record(ops: Ops, config: C, weights: Weights, options: RecordOptions): Tensor;
}

/** What a recording may choose by the device it is for. */
export interface RecordOptions {
  /**
   * Leave out what follows the last layer's attention for tokens without logits: some 3 % of a prompt's work, for one
   * more operation in every step. Row by row the results are the same.
   */
  readonly selectEarly: boolean;
  /** The slab whose rows tokens of pictures name in place of an id. Default: none. */
  readonly features?: FeatureSlab | null;
  /**
   * DeepStack: a row of the slab is several runs of `hidden` columns, of which the first is the embedding. So many layers add one more
   * each: layer 0 the second, layer 1 the third. Default 0.
   */
  readonly addedLevels?: number;
  /** Layers in which tokens of a picture see each other, whichever comes first. Default: none. */
  readonly ahead?: LookingAhead | null;
  /** Results of steps bring rows behind the last norm, where they are asked to (Ops.hidden): those of outputs or of all tokens. Default: none. */
  readonly hidden?: RowKind | null;
  /** False: there is no head, and `record` returns what one would read. Default true. */
  readonly head?: boolean;
}

/** A model as its config.json describes it, with no weights yet. */
export interface ModelDefinition {
  readonly facts: ModelFacts;
  readonly layout: WeightLayout;
  /** Records the model. Returns logits `[outputs, vocab]`. */
  record(ops: Ops, weights: Weights, options: RecordOptions): Tensor;
  /** How it sees; null if it does not. */
  readonly vision: VisionDefinition | null;
  /** The same model as weights with tensors of these shapes want it. */
  asStored(shapeOf: ShapeOf): ModelDefinition;
  /** The same model whose head is the embedding, or is not. */
  withTied(tied: boolean): ModelDefinition;
  /** The same model without what sees. */
  withoutVision(): ModelDefinition;
}

/** The same model without its head: what it makes of texts are hidden states. */
export function withoutHead(definition: ModelDefinition): ModelDefinition {
  const { layout } = definition;
  const matrices = layout.matrices
    .filter(({ kind }) => kind !== 'head')
    .map((spec) => (spec.use === 'both' ? ({ ...spec, use: 'embedding' } as const) : spec));
  return { ...definition, layout: { ...layout, matrices, harmless: [...layout.harmless, /^lm_head\./] } };
}

/** A family whose config is kept inside: what the registry holds. */
export interface RegisteredFamily extends Pick<Family, 'name' | 'architectures' | 'modelTypes'> {
  /** Errors: `model-config`, `model-config-unsupported`. */
  read(fields: ConfigFields, architecture: string): ModelDefinition;
}

/**
 * Closes a family over its config.
 * @example register(llama).read(fields, 'LlamaForCausalLM').facts.layers
 */
export function register<C extends CommonConfig>(family: Family<C>): RegisteredFamily {
  const { name, architectures, modelTypes } = family;
  const read = (fields: ConfigFields, architecture: string): ModelDefinition => {
    const config = family.readConfig(fields, architecture);
    refuseUnreadStructure(fields, name);
    return define(family, config);
  };
  return { name, architectures, modelTypes, read };
}

function define<C extends CommonConfig>(family: Family<C>, config: C): ModelDefinition {
  const layout = family.layout(config);
  const definition: ModelDefinition = {
    facts: factsOf(family.name, config, layout),
    layout,
    record: (ops, weights, options) => family.record(ops, config, weights, options),
    vision: null,
    asStored: (shapeOf) =>
      family.asStored === undefined ? definition : define(family, family.asStored(config, shapeOf)),
    withTied: (tied) => (tied === config.tied ? define(family, config) : define(family, { ...config, tied })),
    withoutVision: () => definition,
  };
  return definition;
}
