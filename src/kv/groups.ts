/**
 * Cache groups: layers that keep the same positions of a sequence share a pool of blocks, a block table a row and a free
 * list. Layers that see all form the first group; those of each window one of their own, so that a row gives back what slides
 * while the full layers keep theirs. Recurrent layers form a group: a row has one block there, its slot of state. The float tail of the
 * full layers slides, beside them. Their float head (head-pool.ts) comes last.
 */

import type { KvPlace } from '../device/kv.js';

export interface CacheGroup {
  /** Tokens that its layers see, null for all. */
  readonly window: number | null;
  /** They are recurrent: a block is a slot of state. Default: they attend. */
  readonly state?: boolean;
  /** It is the float head of the first group: the first so many tokens of a sequence, whole blocks. Default: no head. */
  readonly head?: number;
  /** It is the float tail of layers of the first group: `window` tokens of a sequence, besides. Default: no tail. */
  readonly tail?: boolean;
  /** Layers of the model, in order. */
  readonly layers: readonly number[];
}

/**
 * The groups of a model, the full one first, then by window, then that of recurrent layers.
 *
 * @param windows of each layer, in tokens; null for one that sees all, `state` for a recurrent one
 * @example cacheGroups([64, null, 64]) // [{ window: null, layers: [1] }, { window: 64, layers: [0, 2] }]
 */
export function cacheGroups(windows: readonly (number | null | 'state')[]): readonly CacheGroup[] {
  const order = (kind: number | null | 'state'): number =>
    kind === 'state' ? Number.POSITIVE_INFINITY : (kind ?? -1);
  const kinds = [...new Set(windows)].sort((a, b) => (order(a) < order(b) ? -1 : 1));
  return kinds.map((kind) => ({
    window: kind === 'state' ? null : kind,
    ...(kind === 'state' ? { state: true } : {}),
    layers: windows.flatMap((own, layer) => (own === kind ? [layer] : [])),
  }));
}

/** Where each layer is: its group, its place among the group's layers, and the same of its float tail. */
export function placesOf(groups: readonly CacheGroup[]): readonly KvPlace[] {
  const places: KvPlace[] = [];
  groups.forEach(({ window, layers, head, tail }, group) => {
    // They are at home in the first group.
    if (head !== undefined) return;
    layers.forEach((layer, index) => {
      places[layer] = tail
        ? { ...places[layer]!, tail: { group, index, tokens: window! } }
        : { group, index };
    });
  });
  return places;
}
