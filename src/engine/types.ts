/**
 * The engine's public types: what goes in (options, requests) is here, what comes out is in results.ts, what an engine says of itself in
 * info.ts. Everything is plain data apart from callbacks and `AbortSignal`.
 */

import type { AutotuneMode, DeviceKind, Precision } from '../device/device.js';
import type { KvOptions } from '../kv/options.js';
import type { KvLayerInfo } from '../kv/policy.js';
import type { RgbImage } from '../media/image.js';
import type { LogprobsMode, SamplingOptions } from '../sampling/options.js';
import type { ReasoningEffort } from '../text/reasoning-effort.js';
import type { ToolChoice } from '../text/tool-choice.js';
import type { Pooling } from './pooling.js';
import type { TypedSchema } from './typed-schema.js';

export const DEVICE_CHOICES = ['auto', 'webgpu', 'cpu'] as const;
/** `auto` takes a real GPU if there is one, else the CPU. */
export type DeviceChoice = (typeof DEVICE_CHOICES)[number];

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

/** One log line: a constant message and the numbers that go with it. */
export interface LogEntry {
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: Readonly<Record<string, unknown>>;
}

export const LOAD_PHASES = ['download', 'text', 'weights', 'tune', 'compile'] as const;
export type LoadPhase = (typeof LOAD_PHASES)[number];

/** How far loading has come. `total` is 0 while it is not known. */
export interface LoadProgress {
  readonly phase: LoadPhase;
  readonly done: number;
  readonly total: number;
  readonly unit: 'bytes' | 'kernels' | 'plans' | 'steps';
  /** The file, tensor or kernel at hand, if there is one. */
  readonly item?: string;
}

/** Where models come from. Omitted fields are taken from the environment (`HF_TOKEN`, `HF_HOME`, …). */
export interface HubAccess {
  readonly token?: string | undefined;
  readonly cacheDir?: string | undefined;
  readonly endpoint?: string | undefined;
  readonly offline?: boolean | undefined;
  readonly revision?: string | undefined;
}

/**
 * What `Engine.load(model, options)` takes, beside what KvOptions says of the cache's formats. All of it may be left out.
 * @example { device: 'webgpu', maxRows: 32, maxContext: 16_384, kvFormat: 'affine8', prefixCacheDir: '/var/cache/kvant' }
 */
export interface EngineOptions extends KvOptions {
  /** Default `auto`. */
  readonly device?: DeviceChoice | undefined;
  /** `reference`: f32 activations and sums. Default `default`. */
  readonly precision?: Precision | undefined;
  /** WebGPU: one order for every sum, whatever the batch. Always so on the CPU. */
  readonly deterministic?: boolean | undefined;
  /** CPU, and experts that stay there: threads that compute. Default: the cores that the process may use, less one above eight. */
  readonly threads?: number | undefined;
  /**
   * WebGPU: the experts of so many layers, the first ones, stay in host memory and are computed on the CPU, for a model that is larger than the
   * GPU's memory. Default 0.
   */
  readonly cpuExperts?: number | undefined;
  /** WebGPU: also take a software adapter (SwiftShader). `device: 'auto'` never does without it. */
  readonly allowSoftwareGpu?: boolean | undefined;
  /**
   * WebGPU: measure at load which kernels this GPU runs fastest, and keep that on disk for the next start. `safe` takes only
   * those that change no bit of a result, `full` also those that add up in another order or round on the way. Default `off`.
   */
  readonly autotune?: AutotuneMode | undefined;
  /** Milliseconds that a start may spend on that; the next one goes on. Default 20,000. */
  readonly autotuneMs?: number | undefined;
  /** Quantise an unquantised checkpoint on load, to so many bits. */
  readonly quantize?: 4 | 8 | undefined;
  /** Fields that replace those of config.json: `{ rope_theta: 1e6 }`. One that the model does not read is refused. */
  readonly hfOverrides?: Readonly<Record<string, unknown>> | undefined;
  /** Bytes for the KV cache. Default: what `maxRows` sequences of `maxContext` need, as far as memory allows. */
  readonly kvMemory?: number | undefined;
  /**
   * A file of `kvant calibrate`, or `auto`: one is made at the first start and kept. It holds the mean and the scale of the model's keys. Quantised
   * keys are stored without their mean, and scaled (docs/kv-cache.md). Keys that stay float are stored as they are.
   */
  readonly kvCalibration?: string | undefined;
  /** Most tokens of a sequence, prompt and completion together. Default: the model's. */
  readonly maxContext?: number | undefined;
  /** Most sequences that run at once. Default 16. */
  readonly maxRows?: number | undefined;
  /** Most tokens in one step, prompt chunks and decoding rows together. Default 256 on the CPU, 2048 on a GPU. */
  readonly maxBatchTokens?: number | undefined;
  /** Most sequences that wait for a row; beyond it a request is refused with `overloaded`. Default 256. */
  readonly maxQueue?: number | undefined;
  /**
   * Milliseconds that a step with generating rows may take: what prompts get of it shrinks accordingly, to no less than one
   * smallest chunk. 0: prompts take what the step holds. Default 200 on the CPU, 100 on a GPU.
   */
  readonly targetItlMs?: number | undefined;
  /** Milliseconds that a request which does not say waits at most for its first step. Default: any time. */
  readonly queueTimeoutMs?: number | undefined;
  /** Positions in a block of the KV cache: 16, 32 or 64. */
  readonly blockTokens?: number | undefined;
  /** Keep what prompts and answers left in the KV cache, for requests that begin alike. Default true. */
  readonly prefixCache?: boolean | undefined;
  /** Most bytes of the KV cache that are kept while no request uses them. Default: all of it, as long as nobody needs it. */
  readonly prefixCacheBytes?: number | undefined;
  /** Of models with recurrent layers: most bytes of snapshots of their state. Default: two for each row, in 1 GiB at most. */
  readonly prefixSnapshotBytes?: number | undefined;
  /** A folder in which prefixes are kept beyond the life of the engine. Processes may share it. Default: none. */
  readonly prefixCacheDir?: string | undefined;
  /** Most bytes of that folder, whatever models they are of. Default: 16 GiB. */
  readonly prefixCacheDiskBytes?: number | undefined;
  /**
   * Bytes on the device for what is computed of pictures: those in use, and those kept for requests with the same. All pictures of a request
   * must fit in. Default: as many tokens as a context has, 16,384 at most.
   */
  readonly imageCacheBytes?: number | undefined;
  /** Fetch pictures that requests name by `http:` and `https:` URLs, from public addresses only. Default false. */
  readonly allowMediaUrls?: boolean | undefined;
  /** Fetch them from these hosts alone: `example.com`, or `*.example.com` for all below it. Default: none. */
  readonly allowedMediaDomains?: readonly string[] | undefined;
  /** Read pictures that requests name by `file:` URLs, where they lie in this folder once links are followed. Default: none. */
  readonly allowedLocalMediaPath?: string | undefined;
  /**
   * How `embed` makes one of the hidden states of a text: that of its last token, the mean of all, that of its first. Default: what the
   * checkpoint says; one that says nothing of embeddings makes none.
   */
  readonly pooling?: Pooling | undefined;
  /** Reads files of videos that kvant does not decode itself: all but animated GIF and WebP. Default: they are refused. */
  readonly decodeVideo?: DecodeVideo | undefined;
  /** What requests take that do not say; goes before the model's generation_config. */
  readonly sampling?: SamplingOptions | undefined;
  /**
   * A folder, GGUF file or hub id that tokenizer and chat template come from, for a model without them or in place of its own. It
   * must name ids as the model does; more ids than the model has are refused. Of a hub model only the small files are fetched.
   */
  readonly tokenizer?: string | undefined;
  /** The path of the mmproj file that sees for a GGUF model. Default: the best such file beside it. */
  readonly mmproj?: string | undefined;
  /** The format in which tool calls are read, `hermes`, `mistral` and so on. Default: what chat template and tokenizer show. */
  readonly toolFormat?: string | undefined;
  /** Name that the model is served under. Default: its name on the hub, or that of its folder. */
  readonly name?: string | undefined;
  readonly hub?: HubAccess | undefined;
  /** False runs device and scheduler on the calling thread (a browser without workers, tests). Default true. */
  readonly worker?: boolean | undefined;
  readonly onProgress?: ((progress: LoadProgress) => void) | undefined;
  readonly onLog?: ((entry: LogEntry) => void) | undefined;
  /** Abandons loading. */
  readonly signal?: AbortSignal | undefined;
}

/** What every request may say. */
export interface CommonRequest extends SamplingOptions, StructuredOutput {
  /** Ends the request with `cancelled`. */
  readonly signal?: AbortSignal | undefined;
  /** Shown in logs; has no other meaning. */
  readonly requestId?: string | undefined;
  /** −10 to 10; a higher one goes first. Who waits gains one every two seconds, up to the highest that waits. Default 0. */
  readonly priority?: number | undefined;
  /** Name of a group, such as a client's key: time is shared evenly between groups. Default: one for all who do not say. */
  readonly share?: string | undefined;
  /** Milliseconds to wait at most for a row; then the request ends with `queue-timeout`. Default: the engine's. */
  readonly queueTimeoutMs?: number | undefined;
  /** Cached prefixes are shared only with requests that give the same. For those who may not learn of each other's prompts. */
  readonly cacheSalt?: string | undefined;
}

/** What an answer shall look like: one of these. Every token that would break the form is ruled out (docs/structured-output.md). */
export interface StructuredOutput {
  /** True: a JSON object. */
  readonly json?: boolean | undefined;
  /** A JSON schema (draft 2020-12) that the answer follows. What of it cannot be enforced is refused. */
  readonly schema?: Readonly<Record<string, unknown>> | boolean | undefined;
  /** With `schema`: refuse what OpenAI's strict mode refuses. Default false. */
  readonly strictSchema?: boolean | undefined;
  /** A regular expression that the whole answer matches. */
  readonly regex?: string | undefined;
  /** Texts of which the answer is one. */
  readonly choice?: readonly string[] | undefined;
  /** A grammar in GBNF, as llama.cpp has it, or in Lark: the answer is what its rule `root`, or `start`, says. */
  readonly grammar?: string | undefined;
  /** Free text with tags in it whose contents have a form, as vLLM and xgrammar write it: `{type: 'structural_tag', format}`. */
  readonly structuralTag?: Readonly<Record<string, unknown>> | undefined;
}

export interface GenerateRequest extends CommonRequest {
  /** Text, or token ids as they are. */
  readonly prompt: string | readonly number[] | Int32Array;
  /** Text only: let the tokenizer add its BOS and the like. Default true. */
  readonly addSpecialTokens?: boolean | undefined;
}

/** A chat whose answer is read by a schema of zod 4. */
export type TypedChatRequest<T> = Omit<ChatRequest, 'schema'> & { readonly schema: TypedSchema<T> };

/** A message of a conversation, as the chat template sees it. */
export interface EngineChatMessage {
  readonly role: string;
  readonly content?: unknown | undefined;
  readonly [key: string]: unknown;
}

/**
 * A function that reads videos of formats that kvant does not decode. Files come as requests hold them: from anyone. Only frames that
 * the model's rules take are asked for.
 *
 * @example
 * const decodeVideo: DecodeVideo = async (bytes) => {
 *   const film = await openFilm(bytes);
 *   return { frames: film.frameCount, fps: film.rate, width: film.width, height: film.height, read: (indexes) => film.rgb(indexes) };
 * };
 */
export type DecodeVideo = (
  bytes: Uint8Array,
  options: { readonly signal: AbortSignal },
) => VideoFrames | Promise<VideoFrames>;

export interface VideoFrames {
  /** How many there are. */
  readonly frames: number;
  /** Of them a second. */
  readonly fps: number;
  /** Of each, in pixels. */
  readonly width: number;
  readonly height: number;
  /** Those with the rising `indexes`, in order: `pixels` `[height, width, 3]`, red, green and blue. */
  read(indexes: readonly number[]): AsyncIterable<RgbImage> | Iterable<RgbImage>;
}

/** What a request changes of how its pictures are made; for processors that bound pixels, as those of Qwen do. */
export interface ImageProcessorOptions {
  /** Pixels that a picture is resized to at least and at most. Default: the model's. More than the model's most are refused. */
  readonly minPixels?: number | undefined;
  readonly maxPixels?: number | undefined;
}

export interface ChatRequest extends CommonRequest {
  readonly messages: readonly EngineChatMessage[];
  /** How its pictures are made. */
  readonly imageProcessor?: ImageProcessorOptions | undefined;
  /** Passed to the template. */
  readonly tools?: readonly unknown[] | undefined;
  /** Further template variables, e.g. `{ enable_thinking: false }`. */
  readonly templateOptions?: Readonly<Record<string, unknown>> | undefined;
  /** How much the model shall think, where its template knows; `none`: not at all. Default: as the template has it. */
  readonly reasoningEffort?: ReasoningEffort | undefined;
  /** Most tokens of a `<think>` block at the start of an answer; then it is closed, and the answer goes on. Default: any number. */
  readonly thinkingBudget?: number | undefined;
  /** Open the assistant's turn. Default true. */
  readonly addGenerationPrompt?: boolean | undefined;
  /** Deliver a `<think>` block at the start of an answer as `reasoning`; false: it is text. Default true. */
  readonly parseReasoning?: boolean | undefined;
  /** Whether and which tools are called. Default `auto`. */
  readonly toolChoice?: ToolChoice | undefined;
  /** With `tools`: deliver the calls in an answer as `toolCalls`; false: they are text. Default true. */
  readonly parseToolCalls?: boolean | undefined;
  /** False leaves out everything after the first call of an answer. Default true. */
  readonly parallelToolCalls?: boolean | undefined;
}

export interface CloseOptions {
  /** True lets running and queued requests finish first. Default false: they end with `cancelled`. */
  readonly drain?: boolean | undefined;
}

export type { ToolCall, ToolCallDelta } from '../text/answer-parser.js';
export { FINISH_REASONS, type FinishReason } from './finish-reason.js';
export type {
  EmbeddingInfo,
  EngineInfo,
  EngineLimits,
  EngineStats,
  FeatureStoreStats,
  KvGroupInfo,
  MemoryUse,
  PrefixCacheStats,
  PrefixDiskStats,
  TuningInfo,
} from './info.js';
export { POOLINGS, type Pooling } from './pooling.js';
export type {
  ChoiceResult,
  Delta,
  Generation,
  GenerationResult,
  SeenImage,
  Timings,
  TokenLogprobs,
  TypedGeneration,
  TypedResult,
  Usage,
} from './results.js';
export type { DeviceKind, KvLayerInfo, KvOptions, LogprobsMode, SamplingOptions, ToolChoice, TypedSchema };
