/**
 * A family of models: how its config reads, which weights it has, and what its graph is. A new one is a file that
 * exports a Family, and a word in the list of families.ts.
 */

import type { Tensor } from '../device/graph.js';
import type { Ops } from '../device/ops.js';
import type { ModelConfig } from './config.js';
import type { ConfigFields } from './config-fields.js';
import type { Weights } from './decoder.js';
import type { WeightLayout } from './layout.js';

/** `C` is the family's own config: what engine and tools read, and what it alone knows. */
export interface Family<C extends ModelConfig = ModelConfig> {
  /** Short and lower case: `qwen3`. */
  readonly name: string;
  /** Values of `architectures` in config.json that it reads. Compared without regard to case. */
  readonly architectures: readonly string[];
  /** Values of `model_type` that it reads. They go before `architectures`. */
  readonly modelTypes: readonly string[];
  readConfig(fields: ConfigFields, architecture: string): C;
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
}
