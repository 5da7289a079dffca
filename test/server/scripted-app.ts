/** The application over a scripted engine, without a socket, for the suites in this folder. */
import { pino } from 'pino';
import { beforeEach, expect } from 'vitest';
import { type AppOptions, createApp } from '../../src/server/index.js';
import { ScriptedEngine } from './scripted-engine.js';

export interface Message {
  role?: string;
  content?: string | null;
  reasoning_content?: string;
  tool_calls?: { index?: number; id: string; type: string; function: { name?: string; arguments: string } }[];
}
export interface Choice {
  index: number;
  message: Message;
  delta: Message;
  text?: string;
  finish_reason: string | null;
}
export interface Body {
  choices: Choice[];
  usage?: object | null;
  error?: { code: string; type: string; param: string | null; message: string };
}

export const tools = [{ type: 'function', function: { name: 'weather', parameters: {} } }];
export const messages = [{ role: 'user', content: 'How is the weather?' }];

export let engine: ScriptedEngine;
/** The lines of the log. */
export let logged: Record<string, unknown>[];
const log = pino({ level: 'info' }, { write: (line: string) => logged.push(JSON.parse(line)) });

/** For each test of the file that calls this, a new engine and an empty log. */
export function startAnew(): void {
  beforeEach(() => {
    engine = new ScriptedEngine();
    logged = [];
  });
}

export const make = (options: Partial<AppOptions> = {}) => createApp({ engine, log, ...options });

export const post = (body: object, options: Partial<AppOptions> = {}, path = '/v1/chat/completions') =>
  make(options).request(path, { method: 'POST', body: JSON.stringify({ messages, ...body }) });

/** The events of a stream that ends as it should. */
export async function chunks(response: Response): Promise<Body[]> {
  const events = (await response.text()).split('\n\n').filter((e) => e !== '');
  expect(events.pop()).toBe('data: [DONE]');
  return events.map((e) => JSON.parse(e.slice('data: '.length)) as Body);
}
