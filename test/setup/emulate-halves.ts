/**
 * Halves and matrices of them for devices that have neither: the text of the kernel of few rows (linear-skinny.ts), made for
 * subgroups of ONE thread and matrices of 16 × 16 × 16, is rewritten so that halves are f32 that are rounded where they are
 * packed. What is tested is where things are put and found again.
 */

import { emulateMatrices } from './emulate-matrices.js';

const SIZE = 16;

export function emulateSkinny(wgsl: string): string {
  const text = wgsl
    .replace('enable f16;', '')
    .replaceAll('bitcast<vec2<f16>>(', 'unpack2x16float(')
    .replaceAll('bitcast<u32>(', 'pack2x16float(')
    .replaceAll('<f16>', '<f32>')
    .replace(/(\d\.\d+)h/g, '$1')
    .replace(/subgroupMatrixLoad<(Left|Right), (?:row|col)_major>\(&(tw|tx), /g, 'load_$1_$2(');
  const loads = (
    [
      ['Left', 'tw', 'i * stride + j'],
      ['Right', 'tx', 'j * stride + i'],
    ] as const
  ).map(
    ([type, tile, at]) => `
fn half_${tile}(e: u32) -> f32 { let pair = unpack2x16float(${tile}[e / 8u][e % 8u / 2u]); return select(pair.x, pair.y, (e & 1u) == 1u); }
fn load_${type}_${tile}(offset: u32, vectors: u32) -> ${type} {
  let stride = vectors * 8u;
  var m: ${type};
  for (var i = 0u; i < ${SIZE}u; i++) { for (var j = 0u; j < ${SIZE}u; j++) { m[i * ${SIZE}u + j] = half_${tile}(offset * 8u + ${at}); } }
  return m;
}`,
  );
  return `${emulateMatrices(text, SIZE)}${loads.join('')}`;
}
