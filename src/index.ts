/** kvant as a library: load a model, ask it things. The HTTP server is `kvant/server`. */

export { AUTOTUNE_MODES, type AutotuneMode, type DeviceInfo, type DeviceStats } from './device/device.js';
export { Engine, type RenderChatOptions, type ShapeOptions } from './engine/engine.js';
export {
  type ChatRequest,
  type ChoiceResult,
  type CloseOptions,
  DEVICE_CHOICES,
  type Delta,
  type DeviceChoice,
  type EngineChatMessage,
  type EngineInfo,
  type EngineLimits,
  type EngineOptions,
  type EngineStats,
  FINISH_REASONS,
  type FinishReason,
  type GenerateRequest,
  type Generation,
  type GenerationResult,
  type HubAccess,
  type KvLayerInfo,
  LOG_LEVELS,
  type LoadPhase,
  type LoadProgress,
  type LogEntry,
  type LogLevel,
  type PrefixCacheStats,
  type Timings,
  type TuningInfo,
  type Usage,
} from './engine/types.js';
export { type ErrorKind, KvantError } from './errors.js';
export { LOGPROBS_MODES, type LogprobsMode, type SamplingOptions } from './sampling/options.js';
