/**
 * WGSL of TurboQuant's rotation, `scale · (M ⊗ H)`, over rows of vectors in workgroup memory. H is a fast Walsh–Hadamard
 * transform in place; M, where there is one, is a sum for each element that is read from the array.
 */

import { turboRotation } from '../../turboquant/rotation.js';
import { f32Literal } from '../kernel.js';
import { rolledBound } from './rolled.js';

export interface RotateSpec {
  /** Sets the functions of several rotations in a kernel apart. */
  readonly name: string;
  readonly headDim: number;
  readonly rows: number;
  readonly threads: number;
  /** `array<vec4<f32>>` in workgroup memory, `[rows, headDim / 4]`; cell i belongs to thread `i % threads`. */
  readonly array: string;
  /** Expression of word i of the base matrix, as f32. */
  readonly matrix: (i: string) => string;
  readonly inverse: boolean;
}

export interface RotateText {
  /** Statements, in uniform control flow, where `groups` is the number of workgroups (rolled.ts). Before: every thread has filled its own cells. */
  readonly transform: string;
  /** Expression of cell i, scaled. */
  readonly cell: (i: string) => string;
  /** Functions that `cell` calls. */
  readonly functions: string;
}

export function rotateText(spec: RotateSpec): RotateText {
  const { headDim, rows, threads, array, matrix, inverse } = spec;
  const { base, power, scale } = turboRotation(headDim, 'key');
  const vectors = headDim / 4;
  const cells = rows * vectors;
  const lines: string[] = [];
  if (power > 1) {
    lines.push(`for (var i = lid; i < ${cells}u; i += ${threads}u) {
    let x = ${array}[i];
    let y = vec4<f32>(x.x + x.y, x.x - x.y, x.z + x.w, x.z - x.w);
    ${array}[i] = ${power > 2 ? 'vec4<f32>(y.x + y.z, y.y + y.w, y.x - y.z, y.y - y.w)' : 'y'};
  }`);
  }
  if (power > 4) {
    lines.push(`for (var level = 0u; level < ${rolledBound(Math.log2(power / 4))}; level++) {
    let h = 1u << level;
    workgroupBarrier();
    for (var i = lid; i < ${cells / 2}u; i += ${threads}u) {
      let j = ((i & ~(h - 1u)) << 1u) | (i & (h - 1u));
      let a = ${array}[j];
      let b = ${array}[j + h];
      ${array}[j] = a + b;
      ${array}[j + h] = a - b;
    }
  }`);
  }
  lines.push('workgroupBarrier();');
  if (base === 1)
    return {
      transform: lines.join('\n  '),
      cell: (i) => `(${array}[${i}] * ${f32Literal(scale)})`,
      functions: '',
    };
  const name = `turned_${spec.name}`;
  const at = inverse ? `k * ${base}u + row` : `row * ${base}u + k`;
  const functions = `fn ${name}(cell: u32) -> vec4<f32> {
  var out = vec4<f32>();
  let start = cell / ${vectors}u * ${headDim}u;
  for (var e = 0u; e < 4u; e++) {
    let d = cell % ${vectors}u * 4u + e;
    let row = d / ${power}u;
    var sum = 0.0;
    for (var k = 0u; k < ${base}u; k++) {
      let source = start + k * ${power}u + d % ${power}u;
      sum = fma(${matrix(at)}, ${array}[source / 4u][source % 4u], sum);
    }
    out[e] = sum * ${f32Literal(scale)};
  }
  return out;
}`;
  return { transform: lines.join('\n  '), cell: (i) => `${name}(${i})`, functions };
}
