/** What a request for embeddings may say, and the refusal of what makes no sense. */

import { KvantError } from '../../errors.js';
import { checkOptionNames, type OptionNames } from '../../option-names.js';
import { POOLINGS, type Pooling } from '../pooling.js';
import { isSignal, promptIds } from '../request-check.js';
import type { CommonRequest } from '../types.js';

/** A text, or token ids as they are. */
export type EmbedInput = string | readonly number[] | Int32Array;

/** How requests stand in the queue. */
export type QueueOptions = Pick<
  CommonRequest,
  'signal' | 'requestId' | 'priority' | 'share' | 'queueTimeoutMs' | 'cacheSalt'
>;

export interface EmbedOptions extends QueueOptions {
  /** Default: what the engine was loaded with, or the checkpoint says. */
  readonly pooling?: Pooling | undefined;
  /** Embeddings of the length 1. Default: what the checkpoint says; true where it says nothing. */
  readonly normalize?: boolean | undefined;
  /** The first so many numbers of each embedding, for models that were trained to be cut. Default: all. */
  readonly dimensions?: number | undefined;
  /** The name of one of the checkpoint's prompts, `query` or `document` and so on, to put before each text. Default: its default. */
  readonly task?: string | undefined;
  /** A text to put before each, in place of the checkpoint's prompts. */
  readonly prompt?: string | undefined;
  /** Cut texts that are too long, at their end. Default false: they are refused. */
  readonly truncate?: boolean | undefined;
}

export const QUEUE_OPTIONS: OptionNames<QueueOptions> = {
  signal: true,
  requestId: true,
  priority: true,
  share: true,
  queueTimeoutMs: true,
  cacheSalt: true,
};

const EMBED_OPTIONS: OptionNames<EmbedOptions> = {
  ...QUEUE_OPTIONS,
  pooling: true,
  normalize: true,
  dimensions: true,
  task: true,
  prompt: true,
  truncate: true,
};

/** Before many requests are made of one; the rest is for each of them to say. Errors: `invalid-parameter`. */
export function checkSignal({ signal }: QueueOptions): void {
  if (signal !== undefined && !isSignal(signal)) throw takes('signal', 'an AbortSignal');
}

/** Errors: `unknown-option`, `invalid-option`, `invalid-parameter`. */
export function checkEmbedOptions(options: EmbedOptions): void {
  checkOptionNames(options, EMBED_OPTIONS, 'embed');
  checkSignal(options);
  const { pooling, normalize, dimensions, task, prompt, truncate } = options;
  if (pooling !== undefined && !POOLINGS.includes(pooling)) throw takes('pooling', POOLINGS.join(', '));
  if (dimensions !== undefined && !(Number.isSafeInteger(dimensions) && dimensions > 0))
    throw takes('dimensions', 'a whole number above 0');
  for (const [name, value] of Object.entries({ normalize, truncate }))
    if (value !== undefined && typeof value !== 'boolean') throw takes(name, 'true or false');
  for (const [name, value] of Object.entries({ task, prompt }))
    if (value !== undefined && typeof value !== 'string') throw takes(name, 'a text');
  if (task !== undefined && prompt !== undefined)
    throw new KvantError('invalid-parameter', '`task` and `prompt` both say what stands before a text.', {
      kind: 'invalid-request',
      where: 'task',
      fix: 'Send one of them.',
    });
}

/** The texts of a request: one, or a list. Errors: `invalid-parameter`, naming the one at fault. */
export function inputsOf(input: EmbedInput | readonly EmbedInput[], name = 'input'): EmbedInput[] {
  if (typeof input === 'string' || input instanceof Int32Array) return [input];
  if (!Array.isArray(input) || input.length === 0) throw takes(name, 'a text, or a list of at least one');
  if (typeof input[0] === 'number') return [promptIds(input)];
  return input.map((one: unknown, i) => {
    if (typeof one === 'string') return one;
    if (Array.isArray(one) || one instanceof Int32Array) return promptIds(one);
    throw takes(`${name}[${i}]`, 'a text or a list of token ids');
  });
}

export function takes(name: string, what: string): KvantError {
  return new KvantError('invalid-parameter', `\`${name}\` takes ${what}.`, {
    kind: 'invalid-request',
    where: name,
    fix: `Send ${what}, or leave \`${name}\` out.`,
  });
}
