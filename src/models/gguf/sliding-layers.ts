import type { JsonObject } from '../../weights/folder-files.js';
import type { MetadataReader } from './architecture.js';

/**
 * Window and pattern of sliding layers, where there are any.
 * @param period one layer in so many sees everything, where the file does not say
 */
export function slidingLayers(read: MetadataReader, period: number): JsonObject {
  const window = read.count('attention.sliding_window', 0) ?? 0;
  if (window === 0) return {};
  const pattern = read.pattern('attention.sliding_window_pattern') ?? period;
  const slides = (layer: number): boolean =>
    typeof pattern === 'number' ? (layer + 1) % pattern !== 0 : pattern[layer] === true;
  const layer_types = Array.from({ length: read.layers }, (_, layer) =>
    slides(layer) ? 'sliding_attention' : 'full_attention',
  );
  return { sliding_window: window, layer_types };
}
