/**
 * The OpenAI-compatible server, for use inside a program of one's own.
 *
 * @module
 */
export { type AppOptions, createApp } from './app.js';
export type { ReasoningFormat } from './completion-routes.js';
export type { EnginePort } from './engine-port.js';
export { checkAddress, type ListenOptions, listen, type RunningServer } from './listen.js';
export { Shutdown } from './shutdown.js';
