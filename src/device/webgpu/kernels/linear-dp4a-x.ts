/**
 * x as bytes for linear-dp4a.ts (linear-bytes.ts): once for all workgroups of the product, which would each make them anew.
 */

import type { LinearShape, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import type { BytesLayout } from '../shapes.js';
import { BYTES_TEXT, type BytesRoles, OWN_BYTES, unitsOf, unitsText, unitValues } from './linear-bytes.js';
import { floatText } from './linear-spec.js';

const THREADS = 256;

/**
 * @param lanes of a subgroup
 * @param most threads that a workgroup may have
 * @param roles where it leaves them
 */
export function bytesStage(
  shape: Pick<LinearShape, 'k' | 'xStride' | 'norm' | 'rowKind'>,
  layout: BytesLayout,
  lanes: number,
  most: number,
  roles: BytesRoles = OWN_BYTES,
): Stage {
  const { k, xStride, norm, rowKind } = shape;
  const { own } = unitsOf(layout, lanes);
  const items = k / 8 / own;
  const wanted = norm === null ? THREADS : 1024;
  const threads = Math.min(wanted, most, Math.ceil(items / lanes) * lanes);
  const groups = norm === null ? Math.ceil(items / threads) : 1;
  const bindings = [
    { name: 'x', access: 'read', type: 'array<vec4<f32>>' },
    ...(norm === null ? [] : [{ name: 'norm', access: 'read', type: 'array<vec4<f32>>' } as const]),
    { name: roles.bytes, access: 'read_write', type: 'array<u32>' },
    { name: roles.terms, access: 'read_write', type: 'array<vec2<f32>>' },
  ] as const;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  emit(`enable subgroups;
${declareBindings(bindings)}
${norm === null ? '' : `var<workgroup> squares: array<f32, ${threads / lanes}>;`}
${BYTES_TEXT}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y;
  let start = row * ${xStride / 4}u;`);
  // A row with a norm is one workgroup's. If it is not too long its threads read it once.
  const held = norm !== null && items <= threads;
  const places = unitValues(own).map(({ name, vector }) => ({
    name,
    loaded: `x${vector}`,
    gain: `gain${vector}`,
    at: `item * ${2 * own}u + ${vector}u`,
  }));
  if (held) {
    emit(`  let here = lid < ${items}u;
  let item = min(lid, ${items - 1}u);`);
    for (const { loaded, at } of places) emit(`  let ${loaded} = x[start + ${at}];`);
    for (const { gain, at } of places) emit(`  let ${gain} = norm[${at}];`);
  }
  if (norm !== null) {
    const sum = Array.from({ length: threads / lanes }, (_, s) => `squares[${s}]`).join(' + ');
    const all = held
      ? `if (here) { ${places.map(({ loaded }) => `square += dot(${loaded}, ${loaded});`).join(' ')} }`
      : `for (var i = lid; i < ${k / 4}u; i += ${threads}u) { let v = x[start + i]; square += dot(v, v); }`;
    emit(`  var square = 0.0;
  ${all}
  square = subgroupAdd(square);
  if (lid % ${lanes}u == 0u) { squares[lid / ${lanes}u] = square; }
  workgroupBarrier();
  let inverse = inverseSqrt((${sum}) / ${k}.0 + ${floatText(norm.eps)});`);
  }
  // Lanes that share a piece are all there or all beyond the last, but a shuffle wants every lane: none leaves.
  if (held) emit('  {');
  else
    emit(`  for (var base = wid.x * ${threads}u; base < ${items}u; base += ${threads * groups}u) {
    let here = base + lid < ${items}u;
    let item = min(base + lid, ${items - 1}u);`);
  for (const { name, loaded, gain, at } of places) {
    const normed = norm === null ? '' : ` * (inverse * ${held ? gain : `norm[${at}]`})`;
    emit(`    let ${name} = ${held ? loaded : `x[start + ${at}]`}${normed};`);
  }
  emit(unitsText(layout, roles, lanes));
  emit('  }\n}');
  return {
    label: `${norm === null ? 'bytes' : 'rms-norm to bytes'} [${k}]`,
    wgsl: lines.join('\n'),
    bindings,
    workgroups: (facts, out) => {
      out[0] = groups;
      out[1] = facts[rowKind];
      out[2] = 1;
    },
  };
}
