/** Key of a layer's weight in the layout. */
export function layerKey(layer: number, name: string): string {
  return `layers.${layer}.${name}`;
}
