/** [0, 1, 2, 5] → `layers 0–2, 5`; [5] → `layer 5`. */
export function layersNamed(layers: readonly number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < layers.length; ) {
    let j = i;
    while (layers[j + 1] === layers[j]! + 1) j++;
    parts.push(i === j ? String(layers[i]) : `${layers[i]}–${layers[j]}`);
    i = j + 1;
  }
  return `${layers.length === 1 ? 'layer' : 'layers'} ${parts.join(', ')}`;
}
