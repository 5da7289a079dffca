/** Who comes when, and wants how much: traces for the simulator, read or made up. */

import { KvantError } from '../../errors.js';

/** One request of a trace. */
export interface Arrival {
  /** Milliseconds from the start of the trace. */
  readonly at: number;
  /** Tokens of the prompt. */
  readonly prompt: number;
  /** Tokens of the answer. */
  readonly generate: number;
  readonly priority: number;
  /** Whose request it is. */
  readonly share: string;
  /** Milliseconds that it waits for a row at most. */
  readonly startWithinMs: number;
}

/** From the least to the most, both counted; even on a logarithmic scale. */
export type Lengths = readonly [least: number, most: number];

export interface PoissonOptions {
  readonly requests: number;
  /** Requests a millisecond. */
  readonly rate: number;
  readonly prompt: Lengths;
  readonly generate: Lengths;
  /** One is drawn for each request. Default 0. */
  readonly priorities?: readonly number[];
  readonly shares?: readonly string[];
  readonly startWithinMs?: number;
  readonly seed: number;
}

/** Arrivals of a Poisson process: the gaps are exponential, everything else is drawn for each request on its own. */
export function poissonArrivals(options: PoissonOptions): Arrival[] {
  const { requests, rate, prompt, generate, priorities = [0], shares = [''], seed } = options;
  const random = uniform(seed);
  const arrivals: Arrival[] = [];
  let at = 0;
  for (let i = 0; i < requests; i++) {
    at -= Math.log(1 - random()) / rate;
    arrivals.push({
      at,
      prompt: logUniform(prompt, random()),
      generate: logUniform(generate, random()),
      priority: priorities[Math.floor(random() * priorities.length)]!,
      share: shares[Math.floor(random() * shares.length)]!,
      startWithinMs: options.startWithinMs ?? Number.POSITIVE_INFINITY,
    });
  }
  return arrivals;
}

function logUniform([least, most]: Lengths, u: number): number {
  return Math.min(most, Math.floor(Math.exp(Math.log(least) + u * (Math.log(most + 1) - Math.log(least)))));
}

/** Uniform numbers below 1 (mulberry32). */
export function uniform(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

const FIELDS = ['at', 'prompt', 'generate', 'priority', 'key', 'timeout'];

/**
 * A trace as text: one JSON object a line with `at` (seconds), `prompt` and `generate` (tokens), and, if wished, `priority`,
 * `key` and `timeout` (seconds). Errors: `trace-invalid`, naming the line.
 */
export function parseTrace(text: string): Arrival[] {
  const arrivals: Arrival[] = [];
  for (const [index, line] of text.split('\n').entries()) {
    if (line.trim() === '') continue;
    const bad = (what: string): KvantError =>
      new KvantError('trace-invalid', `Line ${index + 1} of the trace: ${what}.`, {
        kind: 'invalid-request',
        where: `line ${index + 1}`,
        fix: 'A line is like {"at": 0.25, "prompt": 300, "generate": 64, "priority": 0, "key": "a"}.',
      });
    let value: unknown;
    try {
      value = JSON.parse(line);
    } catch {
      throw bad('it is not JSON');
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value)) throw bad('it is not an object');
    const fields = value as Record<string, unknown>;
    const unknown = Object.keys(fields).find((name) => !FIELDS.includes(name));
    if (unknown !== undefined) throw bad(`there is no "${unknown}"`);
    const { at, prompt, generate, priority = 0, key = '', timeout } = fields;
    if (!isNumber(at) || at < 0) throw bad('"at" takes seconds from 0');
    if (!isNumber(prompt) || !Number.isInteger(prompt) || prompt < 1)
      throw bad('"prompt" takes tokens from 1');
    if (!isNumber(generate) || !Number.isInteger(generate) || generate < 1)
      throw bad('"generate" takes tokens from 1');
    if (!isNumber(priority) || !Number.isInteger(priority)) throw bad('"priority" takes a whole number');
    if (typeof key !== 'string') throw bad('"key" takes a string');
    if (timeout !== undefined && (!isNumber(timeout) || timeout <= 0)) throw bad('"timeout" takes seconds');
    const startWithinMs = timeout === undefined ? Number.POSITIVE_INFINITY : 1000 * timeout;
    arrivals.push({ at: 1000 * at, prompt, generate, priority, share: key, startWithinMs });
  }
  return arrivals.sort((a, b) => a.at - b.at);
}

function isNumber(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}
