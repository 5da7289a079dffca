/**
 * WGSL of TurboQuant's rotation, `scale · (M ⊗ H)`, over rows of vectors in workgroup memory. H is a fast Walsh–Hadamard
 * transform in place; M, where there is one, is a sum for each element that is read from the array.
 */

import { turboRotation } from '../../turboquant/rotation.js';
import { f32Literal } from './f32-literal.js';
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

export interface RotateOneSpec {
  /** Sets the variables of several rotations in a kernel apart. */
  readonly name: string;
  readonly headDim: number;
  /** Expression of the four dims that thread `lid` has, for those below head_dim / 4. */
  readonly value: string;
  /** `array<vec4<f32>>` of at least head_dim / 4 in workgroup memory. */
  readonly array: string;
  /** Expression of word i of the base matrix, as f32. */
  readonly matrix: (i: string) => string;
  readonly inverse: boolean;
}

/** Levels of the transform between two barriers: a thread reads what eight have. */
const LEVELS_AT_ONCE = 3;

/**
 * The same of one vector, four dims a thread: several levels of the transform between two barriers, with the bits of
 * `rotateText`.
 *
 * @returns statements, in uniform control flow of threads `lid` from 0 up, and an expression of the thread's four dims. Others may
 * still read the array behind the statements: a barrier comes before it is written again.
 */
export function rotateOneText(spec: RotateOneSpec): { readonly transform: string; readonly value: string } {
  const { name, headDim, value, array, matrix, inverse } = spec;
  const { base, power, scale } = turboRotation(headDim, 'key');
  const vectors = headDim / 4;
  const y = `turned_${name}`;
  const lines = [`var ${y} = ${value};`];
  const shown = `if (lid < ${vectors}u) { ${array}[lid] = ${y}; }
  workgroupBarrier();`;
  if (power > 1)
    lines.push(`${y} = vec4<f32>(${y}.x + ${y}.y, ${y}.x - ${y}.y, ${y}.z + ${y}.w, ${y}.z - ${y}.w);`);
  if (power > 2)
    lines.push(`${y} = vec4<f32>(${y}.x + ${y}.z, ${y}.y + ${y}.w, ${y}.x - ${y}.z, ${y}.y - ${y}.w);`);
  const levels = Math.max(0, Math.log2(power / 4));
  for (let level = 0; level < levels; level += LEVELS_AT_ONCE) {
    const now = Math.min(LEVELS_AT_ONCE, levels - level);
    const [stride, radix] = [2 ** level, 2 ** now];
    if (level > 0) lines.push('workgroupBarrier();');
    lines.push(shown, `if (lid < ${vectors}u) { let start = lid & ~${(radix - 1) * stride}u;`);
    let terms = Array.from({ length: radix }, (_, j) => `x${j}`);
    for (const [j, x] of terms.entries()) lines.push(`let ${x} = ${array}[start + ${j * stride}u];`);
    for (let l = 0; l < now; l++) {
      lines.push(`let sign${l} = select(1.0, -1.0, (lid & ${stride * 2 ** l}u) != 0u);`);
      const next = terms.filter((_, j) => j % 2 === 0).map((_, j) => `y${l}_${j}`);
      for (const [j, sum] of next.entries())
        lines.push(`let ${sum} = ${terms[2 * j]} + sign${l} * ${terms[2 * j + 1]};`);
      terms = next;
    }
    lines.push(`${y} = ${terms[0]}; }`);
  }
  if (base > 1) {
    const at = inverse ? `k * ${base}u + row` : `row * ${base}u + k`;
    if (levels > 0) lines.push('workgroupBarrier();');
    lines.push(`${shown}
  for (var e = 0u; e < 4u && lid < ${vectors}u; e++) {
    let d = lid * 4u + e;
    let row = d / ${power}u;
    var sum = 0.0;
    for (var k = 0u; k < ${base}u; k++) {
      let source = k * ${power}u + d % ${power}u;
      sum = fma(${matrix(at)}, ${array}[source / 4u][source % 4u], sum);
    }
    ${y}[e] = sum;
  }`);
  }
  return { transform: lines.join('\n  '), value: `(${y} * ${f32Literal(scale)})` };
}
