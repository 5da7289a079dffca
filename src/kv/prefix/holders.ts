/**
 * Checkpoints at block borders. A sequence can go on at a border, a whole number of blocks from its beginning, when every layer
 * has there what the next token reads. What that is depends on the kind of layer, and a holder answers for the layers
 * of one kind:
 *
 * - full attention: all blocks before the border;
 * - a sliding window of w tokens: the blocks that cover the w − 1 positions before it. A token sees positions
 *   > p − w (src/device/graph.ts), and the first one behind a border b is b itself, so it reads [b − w + 1, b);
 * - the float head of h blocks: the first h before the border;
 * - recurrent state: a snapshot of it at the border. It is kept as the block that ends there: one block stands for all before.
 *
 * A prefix is restored at the longest border that the holders of all cache groups agree on.
 */

import type { ChainKeys } from './chain-keys.js';

/** What there is of a sequence's chain, for holders to look at. */
export interface ChainView {
  readonly keys: ChainKeys;
  /** Block `at` is to be had. */
  has(at: number): boolean;
}

/** Answers for the layers of one kind. */
export interface LayerHolder {
  /** Its layers read every block as long as the sequence lives: none is ever given back. */
  readonly keepsAll: boolean;
  /** They can go on nowhere but at a border: not inside a block that is copied. */
  readonly bordersOnly: boolean;
  /** A higher number whenever it might answer otherwise of the same blocks, as what it has besides has changed. */
  readonly version: number;
  /** The longest border, in blocks and at most `most`, that its layers can go on at; 0 is always one. */
  longest(chain: ChainView, most: number): number;
  /** First block that is read when so many tokens have been computed, or later: those before it are of no use any more. */
  firstHeld(tokens: number): number;
  /** Of blocks up to a border, those before this are its layers'. Default: all. */
  endHeld?(border: number): number;
}

export class FullHolder implements LayerHolder {
  readonly keepsAll = true;
  readonly bordersOnly = false;
  readonly version = 0;

  longest(chain: ChainView, most: number): number {
    let border = 0;
    while (border < most && chain.has(border)) border++;
    return border;
  }

  firstHeld(): number {
    return 0;
  }
}

/** The float head: the first blocks alone, as long as the sequence lives. */
export class HeadHolder implements LayerHolder {
  readonly keepsAll = false;
  readonly bordersOnly = false;
  readonly version = 0;
  readonly #blocks: number;

  constructor(blocks: number) {
    this.#blocks = blocks;
  }

  longest(chain: ChainView, most: number): number {
    const end = this.endHeld(most);
    for (let at = 0; at < end; at++) if (!chain.has(at)) return at;
    return most;
  }

  firstHeld(): number {
    return 0;
  }

  endHeld(border: number): number {
    return Math.min(border, this.#blocks);
  }
}

export class WindowHolder implements LayerHolder {
  readonly keepsAll = false;
  readonly bordersOnly = false;
  readonly version = 0;
  readonly #before: number;
  readonly #blockTokens: number;

  /** `window`: tokens that a token sees, itself included. */
  constructor(window: number, blockTokens: number) {
    this.#before = window - 1;
    this.#blockTokens = blockTokens;
  }

  /** Every block is looked at once at most, from the last on: a gap moves the border before it. */
  longest(chain: ChainView, most: number): number {
    let border = most;
    for (let at = border - 1; at >= this.firstHeld(border * this.#blockTokens); at--)
      if (!chain.has(at)) border = at;
    return border;
  }

  firstHeld(tokens: number): number {
    return Math.floor(Math.max(0, tokens - this.#before) / this.#blockTokens);
  }
}

export class StateHolder implements LayerHolder {
  readonly keepsAll = false;
  readonly bordersOnly = true;
  readonly version = 0;
  readonly #blockTokens: number;

  constructor(blockTokens: number) {
    this.#blockTokens = blockTokens;
  }

  longest(chain: ChainView, most: number): number {
    let border = most;
    while (border > 0 && !chain.has(border - 1)) border--;
    return border;
  }

  firstHeld(tokens: number): number {
    return Math.max(0, Math.ceil(tokens / this.#blockTokens) - 1);
  }
}

/** The holder of a cache group's layers. `window`: tokens that they see, null for all. */
export function holderOf(window: number | null, blockTokens: number): LayerHolder {
  return window === null ? new FullHolder() : new WindowHolder(window, blockTokens);
}

/**
 * The longest border that all groups agree on, in blocks and at most `most`.
 *
 * @param longest the longest border, at most the one given, that a group can go on at
 */
export function agreedBorder(
  groups: number,
  most: number,
  longest: (group: number, most: number) => number,
): number {
  let border = most;
  for (let agreed = 0; agreed < groups; ) {
    agreed = 0;
    for (let group = 0; group < groups; group++) {
      const own = longest(group, border);
      if (own === border) agreed++;
      border = own;
    }
  }
  return border;
}
