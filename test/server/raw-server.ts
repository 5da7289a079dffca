/** A listening server over a scripted engine, one a test, for clients that need not behave. */
import { pino } from 'pino';
import { afterEach } from 'vitest';
import { type ListenOptions, listen, type RunningServer } from '../../src/server/index.js';
import { ScriptedEngine } from './scripted-engine.js';

export let server: RunningServer;
export let engine: ScriptedEngine;
/** The lines of the log. */
export let logged: Record<string, unknown>[];

/** Behind each test of the file that calls this, the server that it started is closed. */
export function closeBehindEach(): void {
  afterEach(() => server.close(0));
}

export const BODY = JSON.stringify({ messages: [{ role: 'user', content: 'Hi' }] });

/** Starts the server of a test, and gives its address. */
export async function start(options: Partial<ListenOptions> = {}): Promise<string> {
  engine = new ScriptedEngine();
  logged = [];
  const log = pino({ level: 'info' }, { write: (line) => logged.push(JSON.parse(line)) });
  server = await listen({ engine, log, port: 0, ...options });
  return server.url;
}
