/**
 * The OpenAI-compatible server, for use inside a program of one's own.
 *
 * @module
 */

// What the server's own types name, for programs that import nothing else.
export type * from '../index.js';
export { REASONING_FORMATS, type ReasoningFormat } from './answer-context.js';
export { type ApiKey, ApiKeys, type ApiKeysOptions, type KeyHolder } from './api-keys.js';
export { type AppVariables, createApp } from './app.js';
export type { ConnectionLimits, ConnectionOptions } from './connections.js';
export type { EnginePort } from './engine-port.js';
export { type KeyFile, readKeyFile } from './key-file.js';
export { checkAddress, listen, type RunningServer } from './listen.js';
export type { RequestId } from './request-id.js';
export type { AppOptions, ListenOptions } from './server-options.js';
export { Shutdown } from './shutdown.js';
