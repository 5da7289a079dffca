/** Key of a layer's weight in the layout. */
export function layerKey(layer: number, name: string): string {
  return `layers.${layer}.${name}`;
}

/** Key of the norm before the head. */
export const LAST_NORM = 'norm';

/** Key of a norm's bias, by the norm's. */
export function biasKey(norm: string): string {
  return `${norm}-bias`;
}
