/** kvant as a library: load a model, ask it things. The HTTP server is `kvant/server`. */

export {
  AUTOTUNE_MODES,
  type AutotuneMode,
  DEVICE_KINDS,
  type DeviceInfo,
  type DeviceKind,
  type DeviceStats,
  PRECISIONS,
  type Precision,
} from './device/device.js';
export type { EmbedInput, EmbedOptions, QueueOptions } from './engine/embedding/embed-request.js';
export type { EmbedResult, EmbedUsage } from './engine/embedding/embedder.js';
export type { RerankOptions, RerankResult } from './engine/embedding/reranker.js';
export {
  Engine,
  type RenderChatOptions,
  type ShapeOptions,
  type TokenBytesOptions,
  type TokenizeOptions,
} from './engine/engine.js';
export type { RunnableTool, ToolContext, ToolRun, ToolRunRequest, ToolRunResult } from './engine/tool-run.js';
export {
  type ChatRequest,
  type ChoiceResult,
  type CloseOptions,
  type CommonRequest,
  DEVICE_CHOICES,
  type DecodeVideo,
  type Delta,
  type DeviceChoice,
  type EmbeddingInfo,
  type EngineChatMessage,
  type EngineInfo,
  type EngineLimits,
  type EngineOptions,
  type EngineStats,
  type FeatureStoreStats,
  FINISH_REASONS,
  type FinishReason,
  type GenerateRequest,
  type Generation,
  type GenerationResult,
  type HubAccess,
  type ImageProcessorOptions,
  type KvGroupInfo,
  type KvLayerInfo,
  LOAD_PHASES,
  LOG_LEVELS,
  type LoadPhase,
  type LoadProgress,
  type LogEntry,
  type LogLevel,
  type MemoryUse,
  POOLINGS,
  type Pooling,
  type PrefixCacheStats,
  type PrefixDiskStats,
  type SeenImage,
  type StructuredOutput,
  type Timings,
  type TokenLogprobs,
  type ToolCall,
  type ToolCallDelta,
  type ToolChoice,
  type TuningInfo,
  type TypedChatRequest,
  type TypedGeneration,
  type TypedResult,
  type TypedSchema,
  type Usage,
  type VideoFrames,
} from './engine/types.js';
export { type ErrorKind, KvantError, type KvantErrorOptions } from './errors.js';
export type { DiskCounts } from './kv/disk/disk-counts.js';
export type { DiskStats } from './kv/disk/disk-tier.js';
export { KV_SCHEMES, type KvOptions, type KvScheme } from './kv/options.js';
export type { RgbImage } from './media/image.js';
export { LOGPROBS_MODES, type LogprobsMode, type SamplingOptions } from './sampling/options.js';
export { parseJson } from './text/lossless-json.js';
export { REASONING_EFFORTS, type ReasoningEffort } from './text/reasoning-effort.js';
