/** How many blocks the KV pool gets, and how long a sequence may then be. */

import { type KvLayerSpec, kvBlockBytes, kvTokenBytes } from '../device/kv.js';
import { KvantError } from '../errors.js';

export interface KvSizingRequest {
  readonly layers: readonly KvLayerSpec[];
  readonly blockTokens: number;
  /** Longest context the model was made for. */
  readonly modelContext: number;
  /** What was asked for; at most `modelContext`. */
  readonly maxContext: number | undefined;
  readonly maxRows: number;
  /** Bytes asked for. */
  readonly kvMemory: number | undefined;
  /** Bytes the device has for the cache, where that is known. Not looked at beside `kvMemory`. */
  readonly available: number | undefined;
  /** Most bytes of one layer's keys, or of its values, that the device can address, where that is known. */
  readonly maxPlaneBytes?: number;
}

export interface KvSizing {
  readonly blocks: number;
  readonly bytes: number;
  /** Longest sequence: as asked for, or what the pool can hold if that is less. */
  readonly maxContext: number;
  /** Length of a block table. */
  readonly blocksPerSequence: number;
  /** What kept the pool smaller than `maxRows` sequences of `maxContext`. */
  readonly limitedBy: 'nothing' | 'kv-memory' | 'device-memory';
}

/**
 * Enough for `maxRows` sequences of full length, as far as memory goes. A pool that cannot hold one such sequence
 * shortens the context if nobody asked for it, and is an error if somebody did.
 * Errors: `context-too-long`, `kv-memory-too-small` (both invalid-request).
 */
export function sizeKvPool(request: KvSizingRequest): KvSizing {
  const { layers, blockTokens, modelContext, maxContext, maxRows, kvMemory, available } = request;
  if (maxContext !== undefined && maxContext > modelContext)
    throw new KvantError(
      'context-too-long',
      `A context of ${maxContext} tokens was asked for; the model was made for ${modelContext}.`,
      { kind: 'invalid-request', where: 'maxContext', fix: `Ask for at most ${modelContext}.` },
    );
  const context = maxContext ?? modelContext;
  const perSequence = Math.ceil(context / blockTokens);
  const wanted = perSequence * maxRows;

  const blockBytes = kvBlockBytes(layers, blockTokens);
  const widest = layers.reduce((most, layer) => Math.max(most, planeBlockBytes(layer, blockTokens)), 1);
  const addressable = Math.floor((request.maxPlaneBytes ?? Number.POSITIVE_INFINITY) / widest);
  const memory = kvMemory ?? available ?? Number.POSITIVE_INFINITY;
  const blocks = Math.min(wanted, addressable, Math.floor(memory / Math.max(1, blockBytes)));

  if (blocks < 1 || (blocks < perSequence && maxContext !== undefined)) {
    const need = perSequence * blockBytes;
    const has = Math.min(memory, addressable * blockBytes);
    throw new KvantError(
      'kv-memory-too-small',
      `A sequence of ${context} tokens needs ${need} bytes of KV cache; there are ${has}.`,
      {
        kind: 'invalid-request',
        where: kvMemory === undefined ? 'maxContext' : 'kvMemory',
        fix: `Ask for a shorter context, or give the cache at least ${need} bytes.`,
      },
    );
  }
  const limitedBy = blocks === wanted ? 'nothing' : kvMemory !== undefined ? 'kv-memory' : 'device-memory';
  const reached = Math.min(context, blocks * blockTokens);
  return {
    blocks,
    bytes: blocks * blockBytes,
    maxContext: reached,
    blocksPerSequence: Math.ceil(reached / blockTokens),
    limitedBy,
  };
}

/** Bytes of one block of a layer's keys or values, whichever are larger. */
function planeBlockBytes({ kvHeads, headDim, key, value }: KvLayerSpec, blockTokens: number): number {
  return Math.max(kvTokenBytes(key, headDim, kvHeads), kvTokenBytes(value, headDim, kvHeads)) * blockTokens;
}

/** Bytes of one sequence of so many tokens, in whole blocks. */
export function kvSequenceBytes(layers: readonly KvLayerSpec[], blockTokens: number, tokens: number): number {
  return Math.ceil(tokens / blockTokens) * kvBlockBytes(layers, blockTokens);
}
