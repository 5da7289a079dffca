/** The queries of attention of single-token rows: the part of each that a lane multiplies, as numbers or as bytes. */

import { type DecodeFrame, eachOf } from './attend-decode-frame.js';
import { bytesText, byteUnit, hasBytes } from './attend-planes.js';
import { count } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { hasScales } from './kv-formats/list.js';
import { rolledBound } from './rolled.js';
import { acrossLanes } from './subgroup-sums.js';

/** Integer queries reach so far: two planes of bytes. */
const QUERY_MOST = 32512;

/** How the lanes of a key share out the heads whose scores they have summed. */
export interface HeadShares {
  /** Heads of a group, with those that are not there. */
  readonly padded: number;
  /** Steps between lanes of one affine group, and the others. */
  readonly inner: readonly number[];
  readonly outer: readonly number[];
  /** Heads that a lane ends up with; lanes with a bit of `idle` have what others have. */
  readonly each: number;
  readonly idle: number;
  /** Statements that sum `NAME0` … over lanes: at every step two of them halve the heads that they have sums of. */
  readonly halve: (name: string, steps: readonly number[], live: number) => string[];
}

export function headShares({ group, keys }: DecodeFrame): HeadShares {
  const padded = 2 ** Math.ceil(Math.log2(group));
  const together = hasScales(keys.format) ? keys.format.groupSize / keys.dims : 1;
  const steps = count(Math.log2(keys.lanes)).map((i) => 2 ** i);
  return {
    padded,
    inner: steps.filter((step) => step < together),
    outer: steps.filter((step) => step >= together),
    each: Math.max(1, padded / 2 ** steps.length),
    idle: steps.slice(Math.log2(padded)).reduce((sum, step) => sum | step, 0),
    halve: (name, list, live) => {
      const lines: string[] = [];
      let left = live;
      for (const step of list) {
        if (left > 1) {
          left /= 2;
          lines.push(`    { let upper = (kl & ${step}u) != 0u;`);
          for (const g of count(left)) {
            lines.push(`      let give${g} = select(${name}${g + left}, ${name}${g}, upper);`);
            lines.push(
              `      ${name}${g} = select(${name}${g}, ${name}${g + left}, upper) + subgroupShuffleXor(give${g}, ${step}u);`,
            );
          }
          lines.push('    }');
        } else lines.push(`    ${name}0 += subgroupShuffleXor(${name}0, ${step}u);`);
      }
      return lines;
    },
  };
}

/** Heads left of `live` after so many steps. */
export const leftAfter = (live: number, steps: readonly number[]): number =>
  Math.max(1, live / 2 ** steps.length);

/**
 * Leaves, by lane: queries (`qG_P` pairs, or `qhG_B` and `qlG_B` bytes), `fullG`, the sum of an affine group's; and of each
 * head E that it ends up with, which one it is, `headE`, and what its sums are multiplied with, `endE`.
 */
export function decodeQueries(frame: DecodeFrame, shares: HeadShares): string[] {
  const { shape, group, dot, keys } = frame;
  const { heads, headDim } = shape;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  emit(`  let kl = lid % ${keys.lanes}u;`);
  if (dot) lines.push(...integerQueries(frame));
  else {
    // A lane's floats come in pieces that lie apart, so that the lanes of a key read side by side; codes of a group do not.
    const pieces = keys.quantised ? 1 : keys.words / keys.width;
    const vectors = keys.dims / 4 / pieces;
    emit(`  let q_at = (item.x * ${heads}u + kv * ${group}u) * ${headDim / 4}u + kl * ${vectors}u;`);
    const at = (g: number, i: number): string =>
      `q_at + ${g * (headDim / 4) + Math.floor(i / vectors) * keys.lanes * vectors + (i % vectors)}u`;
    const order = keys.pairs('k').pairs;
    for (const g of count(group)) {
      for (const i of count(keys.dims / 4)) emit(`  let r${g}_${i} = q[${at(g, i)}];`);
      const element = (d: number): string => `r${g}_${d >> 2}.${'xyzw'[d & 3]}`;
      order.forEach(({ dims: [a, b] }, p) => {
        emit(`  let q${g}_${p} = vec2<f32>(${element(a)}, ${element(b)});`);
      });
      if (hasScales(keys.format)) {
        emit(`  var ones${g} = vec2<f32>();`);
        order.forEach((_, p) => {
          emit(`  ones${g} += q${g}_${p};`);
        });
        emit(`  let whole${g} = ones${g}.x + ones${g}.y;`);
      }
    }
  }

  // Lanes of one group of dims share out first, and its scale and bias are applied to what is left.
  const { padded, inner, each } = shares;
  if (hasScales(keys.format)) {
    for (const g of count(padded)) emit(`  var all${g} = ${g < group ? `whole${g}` : dot ? '0' : '0.0'};`);
    lines.push(...shares.halve('all', inner, padded));
    for (const g of count(leftAfter(padded, inner))) emit(`  let full${g} = f32(all${g});`);
  }
  let live = padded;
  let first = '0u';
  for (const step of [...inner, ...shares.outer]) {
    if (live === 1) break;
    live /= 2;
    first += ` + select(0u, ${live}u, (kl & ${step}u) != 0u)`;
  }
  const unit = shape.scale * byteUnit(keys.format, headDim, 'key');
  for (const e of count(each)) {
    emit(`  let head${e} = ${first} + ${e}u;`);
    if (dot) {
      emit(`  let end${e} = peaks[min(head${e}, ${group - 1}u)] * ${f32Literal(unit / QUERY_MOST)};`);
    } else emit(`  let end${e} = ${f32Literal(unit)};`);
  }
  return lines;
}

/** Queries as two planes of bytes, made by the workgroup together and taken into registers by each thread. */
function integerQueries({ shape, group, lanes, subs, threads, keys }: DecodeFrame): string[] {
  const { heads, headDim } = shape;
  const { format, dims } = keys;
  if (!hasBytes(format)) return [];
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const vectors = headDim / 4;
  const each = (text: string): string =>
    vectors === lanes
      ? `{ let i = lane; ${text} }`
      : `for (var i = lane; i < ${vectors}u; i += ${lanes}u) { ${text} }`;
  const rounds = group > subs;
  emit(`  ${rounds ? `for (var g0 = 0u; g0 < ${rolledBound(group)}; g0 += ${subs}u) ` : ''}{
    let g = min(sub${rounds ? ' + g0' : ''}, ${group - 1}u);
    let start = (item.x * ${heads}u + kv * ${group}u + g) * ${vectors}u;
    var mosts = vec4<f32>();
    ${each('mosts = max(mosts, abs(q[start + i]));')}
    var peak = max(max(mosts.x, mosts.y), max(mosts.z, mosts.w));
    ${acrossLanes('peak', lanes, (a, b) => `max(${a}, ${b})`)}
    let unit = select(0.0, ${QUERY_MOST}.0 / peak, peak > 0.0);
    ${each(`integers[g * ${vectors}u + i] = vec4<i32>(round(q[start + i] * unit));`)}
    if (lane == 0u) { peaks[g] = peak; }
  }`);
  const { words: pattern } = bytesText(format, headDim, dims, 'x', () => '0u');
  const fields = pattern[0]!.dims[1] - pattern[0]!.dims[0];
  const pieces = dims / 4;
  const words = group * vectors;
  const dim = (k: number): string => `integers[(d + ${k * fields}u) / 4u][(d + ${k * fields}u) % 4u]`;
  emit(`  workgroupBarrier();
${eachOf(
  'w',
  words,
  threads,
  `let b = w % ${pieces}u;
    let d = w / ${pieces}u * ${dims}u + b / ${fields}u * ${fields * 4}u + b % ${fields}u;
    let n = vec4<i32>(${count(4).map(dim).join(', ')});
    let high = (n + vec4<i32>(128)) >> vec4<u32>(8u);
    planes[w / 4u][w % 4u] = pack4xI8(high);
    planes[w / 4u + ${words / 4}u][w % 4u] = pack4xI8(n - high * 256);`,
)}
  workgroupBarrier();`);
  for (const g of count(group)) {
    emit(`  var highs${g} = 0; var lows${g} = 0;`);
    for (const i of count(pieces / 4)) {
      const at = `(${g * keys.lanes}u + kl) * ${pieces / 4}u + ${i}u`;
      emit(`  let high${g}_${i} = planes[${at}]; let low${g}_${i} = planes[${at} + ${words / 4}u];`);
      for (const e of count(4)) {
        const b = i * 4 + e;
        emit(`  let qh${g}_${b} = high${g}_${i}.${'xyzw'[e]}; let ql${g}_${b} = low${g}_${i}.${'xyzw'[e]};`);
        emit(
          `  highs${g} += dot4I8Packed(qh${g}_${b}, 0x01010101u); lows${g} += dot4I8Packed(ql${g}_${b}, 0x01010101u);`,
        );
      }
    }
    emit(`  let whole${g} = highs${g} * 256 + lows${g};`);
  }
  return lines;
}
