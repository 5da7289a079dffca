/**
 * A model that is a hash of its tokens: what it draws next depends on every token before, and on their order. `oracle()` says what it answers to a
 * prompt, without a cache, a schedule or a device; oracle-device.ts computes the same from a paged cache.
 */
import { randomWord } from '../../src/device/random.js';
import type { SamplingParams } from '../../src/sampling/options.js';
import { seedWords } from '../../src/sampling/seed.js';

export interface OracleOptions {
  readonly vocab: number;
  /** Sequences that contain this token draw nothing (as with NaN logits). */
  readonly poison?: number;
  /** Tokens that a token sees, itself included: what lies before is not read. */
  readonly window?: number;
  /** Of the cache groups behind the first one: tokens that a token sees of them. What it sees decides what is drawn too. */
  readonly slides?: readonly number[];
  /**
   * The last cache group is recurrent: a slot of state takes in every token once, from nothing at position 0. What it holds
   * decides what is drawn too.
   */
  readonly recurrent?: boolean;
  /** Blocks there is memory for. */
  readonly maxBlocks?: number;
}

/** What a quantised cache gives back for a token. */
export function quantised(token: number): number {
  return token + 0x10000;
}

export function mix(hash: number, token: number): number {
  let h = Math.imul(hash ^ token, 0x9e3779b1) >>> 0;
  h = Math.imul(h ^ (h >>> 15), 0x85ebca6b) >>> 0;
  return (h ^ (h >>> 13)) >>> 0;
}

/** The state of the recurrent layer before the first token. */
export const STATE_AT_0 = 7;

interface DrawKey {
  readonly greedy: boolean;
  readonly seedLow: number;
  readonly seedHigh: number;
  readonly choice: number;
  readonly position: number;
}

export function draw(hash: number, key: DrawKey, vocab: number): number {
  if (key.greedy) return hash % vocab;
  return randomWord(key.seedLow, key.seedHigh, key.choice, key.position, hash) % vocab;
}

/**
 * What the model says to a prompt: up to `draws` ids, an EOS id last if one comes. With `floatStartTokens` a position before
 * that reads all tokens as they are, a later one all of them quantised.
 */
export function oracle(
  prompt: readonly number[],
  draws: number,
  options: OracleOptions,
  sampling: Pick<SamplingParams, 'temperature' | 'seed'> = { temperature: 0, seed: 0 },
  choice = 0,
  eos: readonly number[] = [],
  floatStartTokens = 0,
): number[] {
  const { low: seedLow, high: seedHigh } = seedWords(sampling.seed);
  const ids: number[] = [];
  let hash = prompt.reduce(mix, 1);
  let late = prompt.reduce((sum, token) => mix(sum, quantised(token)), 1);
  while (ids.length < draws) {
    const position = prompt.length + ids.length;
    const key = { greedy: sampling.temperature === 0, seedLow, seedHigh, choice, position };
    if (options.window !== undefined) hash = [...prompt, ...ids].slice(-options.window).reduce(mix, 1);
    let seen = floatStartTokens > 0 && position > floatStartTokens ? late : hash;
    for (const width of options.slides ?? [])
      seen = mix(seen, [...prompt, ...ids].slice(-width).reduce(mix, 1));
    if (options.recurrent) seen = mix(seen, [...prompt, ...ids].reduce(mix, STATE_AT_0));
    const id = draw(seen, key, options.vocab);
    ids.push(id);
    if (eos.includes(id)) break;
    hash = mix(hash, id);
    late = mix(late, quantised(id));
  }
  return ids;
}
