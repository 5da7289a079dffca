/** Models: reading configs, loading weights into a device, recording graphs. */

export type { ModelConfig } from './config.js';
export { familyOf, knownArchitectures, parseModelConfig, registerFamily } from './families.js';
export type { Family } from './family.js';
export { type CacheSummary, inspectModel, type ModelSummary, type WeightSummary } from './inspect.js';
export type { CacheLayer, WeightLayout } from './layout.js';
export {
  type BuildGraphOptions,
  type LayerKvFormat,
  type LoadModelOptions,
  loadModel,
  type Model,
  type ModelGraph,
  resolveContext,
  type WeightSource,
} from './load.js';
export { RandomWeights, type ShapeName, shapeConfig, shapeNames } from './shapes.js';
