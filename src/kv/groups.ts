/**
 * Cache groups: layers that keep the same positions of a sequence share a pool of blocks, a block table a row and a free
 * list. Layers that see all form the first group; those of each window one of their own, so that a row gives back what slides
 * while the full layers keep theirs.
 */

export interface CacheGroup {
  /** Tokens that its layers see, null for all. */
  readonly window: number | null;
  /** Layers of the model, in order. */
  readonly layers: readonly number[];
}

/**
 * The groups of a model, the full one first, then by window.
 *
 * @param windows of each layer, in tokens; null for one that sees all
 * @example cacheGroups([64, null, 64]) // [{ window: null, layers: [1] }, { window: 64, layers: [0, 2] }]
 */
export function cacheGroups(windows: readonly (number | null)[]): readonly CacheGroup[] {
  const kinds = [...new Set(windows)].sort((a, b) => (a ?? -1) - (b ?? -1));
  return kinds.map((window) => ({
    window,
    layers: windows.flatMap((own, layer) => (own === window ? [layer] : [])),
  }));
}

/** Where each layer is: its group, and its place among the group's layers. */
export function placesOf(
  groups: readonly CacheGroup[],
): readonly { readonly group: number; readonly index: number }[] {
  const places: { group: number; index: number }[] = [];
  groups.forEach(({ layers }, group) => {
    layers.forEach((layer, index) => {
      places[layer] = { group, index };
    });
  });
  return places;
}
