/**
 * x as bytes for linear-dots.ts: once for all workgroups of the product, which would each make them anew.
 *
 * Every `32 · pieces` columns of a row have a scale of their own. One plane holds `round(127 · x / most)`. Two planes hold
 * integers of 16 bits, `256 · high + low`. Beside the scale stands the scaled sum of the integers, which a weight's bias
 * is multiplied by: with the sum of x itself, what was rounded away would count with the whole of a code and not with
 * the small difference of code and bias that a weight is.
 *
 * Not a number and infinity make the scale not a number, and so all that their row becomes.
 */

import type { LinearShape, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { floatText } from './linear-spec.js';

/** The roles of what the stage leaves. */
export const BYTES = 'scratchBytes';
export const TERMS = 'scratchTerms';

/** Where the bytes of a piece lie: as the product's lanes read them, side by side. */
export interface BytesLayout {
  readonly rows: number;
  readonly k: number;
  /** Of the weight's codes: they decide which columns share a word. */
  readonly bits: 4 | 8;
  /** Columns of a piece: 32 times so many. */
  readonly pieces: 1 | 2;
  readonly planes: 1 | 2;
  /** Pieces side by side in a step, and steps that lie together for all rows. */
  readonly across: number;
  readonly chunkSteps: number;
}

/** Vectors of 16 bytes that a piece takes. */
export function vectorsOf({ pieces, planes }: Pick<BytesLayout, 'pieces' | 'planes'>): number {
  return 2 * pieces * planes;
}

/** Bytes of both scratches. */
export function bytesScratch(layout: BytesLayout): Record<string, number> {
  const { rows, k, pieces, planes } = layout;
  return { [BYTES]: rows * k * planes, [TERMS]: ((rows * k) / (32 * pieces)) * 8 };
}

/** The largest integer that a value becomes; its byte, or both of its bytes, stay within 8 bits. */
const MOST = { 1: 127, 2: 32512 } as const;
/** A group of smaller numbers is zeros: their scale could not be inverted. */
const LEAST = '1e-30';
const THREADS = 256;

/** @param lanes of a subgroup; @param most threads that a workgroup may have */
export function bytesStage(shape: LinearShape, layout: BytesLayout, lanes: number, most: number): Stage {
  const { k, xStride, norm, rowKind } = shape;
  const { rows, bits, pieces, planes, across, chunkSteps } = layout;
  /** A thread has units of eight columns, all of one piece. */
  const perPiece = 4 * pieces;
  const own = Math.max(1, perPiece / lanes);
  const sharers = perPiece / own;
  const items = k / 8 / own;
  const wanted = norm === null ? THREADS : 1024;
  const threads = Math.min(wanted, most, Math.ceil(items / lanes) * lanes);
  const groups = norm === null ? Math.ceil(items / threads) : 1;
  const vectors = vectorsOf(layout);
  const bindings = [
    { name: 'x', access: 'read', type: 'array<vec4<f32>>' },
    ...(norm === null ? [] : [{ name: 'norm', access: 'read', type: 'array<vec4<f32>>' } as const]),
    { name: BYTES, access: 'read_write', type: 'array<u32>' },
    { name: TERMS, access: 'read_write', type: 'array<vec2<f32>>' },
  ] as const;
  const units = Array.from({ length: own }, (_, u) => u);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  emit(`enable subgroups;
${declareBindings(bindings)}
${norm === null ? '' : `var<workgroup> squares: array<f32, ${threads / lanes}>;`}
fn bytes_(v: vec4<i32>) -> u32 {
  let b = bitcast<vec4<u32>>(v) & vec4<u32>(255u);
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y;
  let start = row * ${xStride / 4}u;`);
  // A row with a norm is one workgroup's. If it is not too long its threads read it once.
  const held = norm !== null && items <= threads;
  const places = units.flatMap((u) =>
    [0, 1].map((h) => ({ name: `${u}_${h}`, at: `item * ${2 * own}u + ${2 * u + h}u` })),
  );
  if (held) {
    emit(`  let here = lid < ${items}u;
  let item = min(lid, ${items - 1}u);`);
    for (const { name, at } of places) emit(`  let x${name} = x[start + ${at}];`);
    for (const { name, at } of places) emit(`  let gain${name} = norm[${at}];`);
  }
  if (norm !== null) {
    const sum = Array.from({ length: threads / lanes }, (_, s) => `squares[${s}]`).join(' + ');
    const all = held
      ? `if (here) { ${places.map(({ name }) => `square += dot(x${name}, x${name});`).join(' ')} }`
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
  emit(`    var largest = 0.0;
    var special = false;`);
  for (const { name, at } of places) {
    const gain = norm === null ? '' : ` * (inverse * ${held ? `gain${name}` : `norm[${at}]`})`;
    emit(`    let v${name} = ${held ? `x${name}` : `x[start + ${at}]`}${gain};
    { let a = abs(v${name});
      largest = max(largest, max(max(a.x, a.y), max(a.z, a.w)));
      special = special || any((bitcast<vec4<u32>>(a) & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u)); }`);
  }
  emit('    var wrong = select(0u, 1u, special);');
  for (let step = 1; step < sharers; step *= 2)
    emit(`    largest = max(largest, subgroupShuffleXor(largest, ${step}u));
    wrong |= subgroupShuffleXor(wrong, ${step}u);`);
  emit(`    let usable = largest > ${LEAST};
    let inverse_scale = select(0.0, ${MOST[planes]}.0 / largest, usable);
    var total = 0;`);
  for (const { name } of places)
    emit(`    let n${name} = vec4<i32>(round(v${name} * inverse_scale));
    total += (n${name}.x + n${name}.y) + (n${name}.z + n${name}.w);`);
  for (let step = 1; step < sharers; step *= 2) emit(`    total += subgroupShuffleXor(total, ${step}u);`);
  emit(`    let piece = item / ${sharers}u;
    let step = piece / ${across}u;
    let place = (step / ${chunkSteps}u * ${rows}u + row) * ${chunkSteps}u + step % ${chunkSteps}u;
    let lane = piece % ${across}u;
    if (here) {
      if (item % ${sharers}u == 0u) {
        let scale = bitcast<f32>(select(bitcast<u32>(select(0.0, largest / ${MOST[planes]}.0, usable)), 0x7fc00000u, wrong != 0u));
        ${TERMS}[place * ${across}u + lane] = vec2<f32>(scale, scale * f32(total));
      }`);
  for (const u of units) {
    emit(`      { let unit = item % ${sharers}u * ${own}u + ${u}u;`);
    // Low halves of the bytes of a word of 4-bit codes are its even columns, high halves the odd ones.
    const words =
      bits === 4
        ? [
            { to: '0u', word: '(unit & 3u)', from: `vec4<i32>(n${u}_0.xz, n${u}_1.xz)` },
            { to: '1u', word: '(unit & 3u)', from: `vec4<i32>(n${u}_0.yw, n${u}_1.yw)` },
          ]
        : [0, 1].map((h) => ({
            to: '((unit >> 1u) & 1u)',
            word: `((unit & 1u) * 2u + ${h}u)`,
            from: `n${u}_${h}`,
          }));
    for (const { to, word, from } of words) {
      const address = (plane: number): string =>
        `((place * ${vectors}u + ${plane * 2 * pieces}u + (unit >> 2u) * 2u + ${to}) * ${across}u + lane) * 4u + ${word}`;
      if (planes === 1) emit(`        ${BYTES}[${address(0)}] = bytes_(${from});`);
      else
        emit(`        { let whole = ${from}; let high = (whole + vec4<i32>(128)) >> vec4<u32>(8u);
          ${BYTES}[${address(0)}] = bytes_(high); ${BYTES}[${address(1)}] = bytes_(whole - high * 256); }`);
    }
    emit('      }');
  }
  emit('    }\n  }\n}');
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
