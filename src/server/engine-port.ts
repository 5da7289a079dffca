/** What the server needs of an engine: so that its routes can be tried without a model. */
import type { ChatRequest, EngineInfo, EngineStats, GenerateRequest, Generation } from '../engine/types.js';

export interface EnginePort {
  readonly info: EngineInfo;
  stats(): Promise<EngineStats>;
  /** Forgets all cached prefixes. */
  clearPrefixCache(): Promise<EngineStats>;
  generate(request: GenerateRequest): Generation;
  chat(request: ChatRequest): Generation;
  /** The bytes of an id's token, a special one spelled out; with `special: false` those that it adds to the text. */
  tokenBytes(id: number, options?: { readonly special?: boolean }): Uint8Array;
}
