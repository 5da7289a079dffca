/**
 * Checkpoints at block borders. A sequence can go on at a border, a whole number of blocks from its beginning, when every layer
 * has there what the next token reads. What that is depends on the kind of layer, and a holder answers for the layers
 * of one kind:
 *
 * - full attention: all blocks before the border;
 * - a sliding window of w tokens: the blocks that cover the w − 1 positions before it. A token sees positions
 *   > p − w (src/device/graph.ts), and the first one behind a border b is b itself, so it reads [b − w + 1, b);
 * - recurrent state reads no positions: its holder knows of snapshots, by the chain key of the block before the border, and
 *   needs no blocks. It brings the snapshot into the sequence's state slot itself.
 *
 * A prefix is restored at the longest border that all holders agree on.
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

/** What all layers of a model agree on. */
export class Holders implements LayerHolder {
  readonly keepsAll: boolean;
  readonly bordersOnly: boolean;
  readonly #holders: readonly LayerHolder[];

  constructor(holders: readonly LayerHolder[]) {
    this.#holders = holders;
    this.keepsAll = holders.some((holder) => holder.keepsAll);
    this.bordersOnly = holders.some((holder) => holder.bordersOnly);
  }

  get version(): number {
    let version = 0;
    for (const holder of this.#holders) version += holder.version;
    return version;
  }

  /** One holder for each kind of layer: `windows` in tokens, null for layers that see all. */
  static of(windows: readonly (number | null)[], blockTokens: number): Holders {
    const kinds = [...new Set(windows)];
    return new Holders(
      kinds.map((window) => (window === null ? new FullHolder() : new WindowHolder(window, blockTokens))),
    );
  }

  longest(chain: ChainView, most: number): number {
    let border = most;
    for (let agreed = 0; agreed < this.#holders.length; ) {
      agreed = 0;
      for (const holder of this.#holders) {
        const own = holder.longest(chain, border);
        if (own === border) agreed++;
        border = own;
      }
    }
    return border;
  }

  firstHeld(tokens: number): number {
    let first = Number.POSITIVE_INFINITY;
    for (const holder of this.#holders) first = Math.min(first, holder.firstHeld(tokens));
    return Number.isFinite(first) ? first : 0;
  }
}
