/**
 * Attention of single-token rows over a cache of any format, for devices with subgroups.
 *
 * The same cut as the portable kernel's items: one workgroup a (row, split, KV head) with all query heads of the GQA
 * group, so K and V are read once and unpacked once, straight from memory into registers; nothing is staged. Scores of
 * the split go through workgroup memory, where the softmax is taken. It leaves the same partials (weighted values, max,
 * sum), and the reduce merges them.
 *
 * What a stored vector has once is kept out of the loops over its elements: affine keys are multiplied as integers
 * and their scale and bias applied to the sum; norms go to the score, or into the weight; the biases of values become
 * one number for each head and group. Codes become floats exactly, by bits (attend-unpack.ts), and all sums are f32 or
 * integers. Queries for integer products are of 16 bits, in two planes of bytes.
 *
 * Workgroup memory is what limits how many workgroups a GPU keeps going: weights take the place of the scores, and the
 * partial sums of values that of the weights.
 */

import { type AffineKv, affineGroups, type KvFormat, type TurboKv } from '../../kv.js';
import type { Binding, Stage } from '../kernel.js';
import { declareBindings, f32Literal } from '../kernel.js';
import { ATTENTION_SPLIT, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { byteCentre, bytesText, byteUnit, hasBytes } from './attend-planes.js';
import { LOWEST } from './attend-reduce.js';
import { bookCopies, bookEntries, centreOf, fillBook, unpackPairs } from './attend-unpack.js';
import type { KvSideSpec } from './kv-format.js';
import { tableOffsets } from './kv-layout.js';
import { rowsSkipped, sideOf } from './kv-rows.js';

export interface DecodeConfig {
  /** Lanes of a subgroup: must be the device's one and only size. */
  readonly subgroupSize: number;
  readonly threads: number;
  /** Positions of an item; ATTENTION_SPLIT if omitted. */
  readonly split?: number;
  /** Pieces of K, and of V, that a thread has on their way at once. */
  readonly unroll: number;
  readonly valueUnroll?: number;
  /** Dims of K, and of V, that a lane takes; by format and group if omitted. */
  readonly keyDims?: number;
  readonly valueDims?: number;
  /** Loads run one turn ahead of their use. */
  readonly ahead?: boolean;
  /** The device has f16: codes become floats by way of halves. */
  readonly f16?: boolean;
  /** Keys are multiplied as bytes where they can, four at once; true if omitted. */
  readonly dot?: boolean;
}

/** Integer queries reach so far: two planes of bytes. */
const QUERY_MOST = 32512;

interface DecodePlan {
  readonly group: number;
  /** Dims of K a lane multiplies, and lanes that share a key. */
  readonly keyDims: number;
  readonly keyLanes: number;
  readonly valueDims: number;
  readonly valueLanes: number;
  readonly valueUnroll: number;
  readonly split: number;
  /** Affine groups of V. */
  readonly valueGroups: number;
  /** Keys are multiplied as bytes. */
  readonly dot: boolean;
  readonly bytes: number;
}

/** Elements of a binding, in words: what a lane's words, and all offsets, are multiples of. */
const widthOf = (words: number, laneWords: number): 1 | 2 | 4 =>
  words % 4 === 0 && laneWords % 4 === 0 ? 4 : words % 2 === 0 && laneWords % 2 === 0 ? 2 : 1;

/** The fewest dims whose codes fill whole words. */
function leastDims(format: KvFormat): number {
  if (format.kind === 'float') return 4;
  if (format.kind === 'turboquant') return format.bits === 8 ? 4 : 32;
  return { 2: 16, 3: 32, 4: 8, 5: 32, 6: 16, 8: 4 }[format.bits];
}

function planDecode(shape: AttendShape, config: DecodeConfig): DecodePlan {
  const { key, value, headDim } = shape;
  const group = shape.heads / shape.kvHeads;
  const dot = hasBytes(key) && config.dot !== false;
  const keyDims =
    config.keyDims ??
    (key.kind === 'float' ? (group <= 4 ? 16 : 8) : Math.max(leastDims(key), dot && group <= 4 ? 32 : 16));
  const valueDims =
    config.valueDims ?? (value.kind === 'float' ? 8 : Math.max(leastDims(value), group <= 4 ? 16 : 8));
  const valueLanes = headDim / valueDims;
  const split = config.split ?? ATTENTION_SPLIT;
  const valueGroups = value.kind === 'affine' ? affineGroups(value, headDim) : 1;
  const parts = config.threads / Math.max(valueLanes, config.subgroupSize);
  const books = [key, value].reduce(
    (sum, f) => sum + bookEntries(f) * bookCopies(config.subgroupSize) * 4,
    0,
  );
  const bytes =
    Math.max(split * group, Math.max(1, parts) * group * headDim) * 4 +
    (value.kind === 'affine' ? split * valueGroups * 4 + group * valueGroups * 4 : 0) +
    books +
    (dot ? group * headDim * 6 + group * 4 : 0) +
    (split / shape.blockTokens) * 4;
  return {
    group,
    keyDims,
    keyLanes: headDim / keyDims,
    valueDims,
    valueLanes,
    valueUnroll: config.valueUnroll ?? config.unroll,
    split,
    valueGroups,
    dot,
    bytes,
  };
}

const powerOfTwo = (n: number): boolean => n > 0 && Number.isInteger(n) && (n & (n - 1)) === 0;

export function decodeFits(shape: AttendShape, config: DecodeConfig, workgroupBytes: number): boolean {
  const { headDim } = shape;
  const { subgroupSize: lanes, threads, unroll } = config;
  const plan = planDecode(shape, config);
  const { keyDims, keyLanes, valueDims, valueLanes, valueUnroll, split, group, bytes } = plan;
  const whole = (side: KvSideSpec, dims: number): boolean => {
    const { format, layout } = side;
    const words = (layout.words * dims) / headDim;
    if (!Number.isInteger(words)) return false;
    if (format.kind === 'affine' && (format.groupSize % dims !== 0 || headDim % format.groupSize !== 0))
      return false;
    return format.kind === 'float' || dims % leastDims(format) === 0;
  };
  return (
    whole(sideOf('keys', shape), keyDims) &&
    whole(sideOf('values', shape), valueDims) &&
    powerOfTwo(keyLanes) &&
    (!plan.dot || keyDims % 16 === 0) &&
    powerOfTwo(valueLanes) &&
    valueLanes <= threads &&
    keyLanes <= lanes &&
    valueDims / Math.max(1, lanes / valueLanes) >= 1 &&
    group <= 8 &&
    threads % lanes === 0 &&
    split % shape.blockTokens === 0 &&
    split % ((threads / keyLanes) * unroll) === 0 &&
    split % ((threads / valueLanes) * valueUnroll) === 0 &&
    split % lanes === 0 &&
    bytes <= workgroupBytes
  );
}

/**
 * The order of the sums, as text: equal for configs that give the same bits. Threads decide which positions of V a sum
 * has; scores and softmax know nothing of them, and loads on their way change nothing.
 */
export function decodeOrder(shape: AttendShape, config: DecodeConfig): string {
  const { keyDims, valueDims, split, dot } = planDecode(shape, config);
  return `t${config.threads} k${keyDims} v${valueDims} s${split}${dot ? ' dot' : ''}`;
}

/** Roles: step, q, keys, values, tables, scratchSums, scratchTops. */
export function decodeStage(shape: AttendShape, config: DecodeConfig): Stage {
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot, window, softcap, rows } = shape;
  const { subgroupSize: lanes, threads, unroll, ahead = false, f16 = false } = config;
  const plan = planDecode(shape, config);
  const { group, keyDims, keyLanes, valueDims, valueLanes, valueUnroll, split, valueGroups, dot } = plan;
  const keys = sideOf('keys', shape);
  const values = sideOf('values', shape);
  const { format: keyFormat } = keys;
  const { format: valueFormat } = values;
  const keyWords = (keys.layout.words * keyDims) / headDim;
  const valueWords = (values.layout.words * valueDims) / headDim;
  const keyWidth = widthOf(keys.layout.words, keyWords);
  const valueWidth = widthOf(values.layout.words, valueWords);
  const keysAtOnce = threads / keyLanes;
  const valuesAtOnce = threads / valueLanes;
  const subs = threads / lanes;
  const quantisedKeys = keyFormat.kind !== 'float';
  const quantisedValues = valueFormat.kind !== 'float';
  /** Halves only where codes are. */
  const halves = f16 && (quantisedKeys || quantisedValues);
  const typeOf = (width: 1 | 2 | 4): string => (width === 1 ? 'u32' : `vec${width}<u32>`);
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'q', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'keys', access: 'read', type: `array<${typeOf(keyWidth)}>` },
    { name: 'values', access: 'read', type: `array<${typeOf(valueWidth)}>` },
    { name: 'tables', access: 'read', type: 'array<u32>' },
    { name: 'scratchSums', access: 'read_write', type: 'array<f32>' },
    { name: 'scratchTops', access: 'read_write', type: 'array<vec2<f32>>' },
  ];
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  const low = window === null ? null : `max(last, ${window - 1}u) - ${window - 1}u`;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  /** A word of a side's buffer by its index. */
  const wordAt = (name: string, width: 1 | 2 | 4, at: string): string =>
    width === 1 ? `${name}[${at}]` : `${name}[(${at}) >> ${width / 2}u][(${at}) & ${width - 1}u]`;
  const register = (prefix: string, width: 1 | 2 | 4, i: number): string =>
    width === 1 ? `${prefix}_${i}` : `${prefix}_${Math.floor(i / width)}.${'xyzw'[i % width]}`;
  const copies = bookCopies(lanes);
  /** Scores, then weights, `[split, group]`: those of a token lie together. Then sums, `[parts, group, headDim]`. */
  const vec = group % 4 === 0 ? 4 : group % 2 === 0 ? 2 : 1;
  const cellType = vec === 1 ? 'f32' : `vec${vec}<f32>`;
  const cell = (c: string, g: string): string =>
    vec === 1
      ? `cells[${c} * ${group}u + ${g}]`
      : `cells[${c} * ${group / vec}u + (${g}) / ${vec}u][(${g}) % ${vec}u]`;
  const scalar = (i: string): string =>
    vec === 1 ? `cells[${i}]` : `cells[(${i}) / ${vec}u][(${i}) % ${vec}u]`;
  const partGroups = threads / Math.max(valueLanes, lanes);

  emit(`enable subgroups;${halves ? '\nenable f16;' : ''}
${declareBindings(bindings)}
${STEP_WGSL}
alias H = ${halves ? 'vec2<f16>' : 'vec2<f32>'};
fn halves_(w: u32) -> H { return ${halves ? 'bitcast<vec2<f16>>(w)' : 'unpack2x16float(w)'}; }
var<workgroup> cells: array<${cellType}, ${(Math.max(split, partGroups * headDim) * group) / vec}>;
var<workgroup> entries: array<u32, ${split / blockTokens}>;`);
  if (dot) {
    emit(`var<workgroup> integers: array<vec4<i32>, ${(group * headDim) / 4}>;
var<workgroup> planes: array<vec4<u32>, ${(group * headDim) / 8}>;
var<workgroup> peaks: array<f32, ${group}>;`);
  }
  if (valueFormat.kind === 'affine') {
    emit(`var<workgroup> value_meta: array<u32, ${split * valueGroups}>;
var<workgroup> offsets: array<f32, ${group * valueGroups}>;`);
  }
  for (const { name, format } of [keys, values]) {
    if (bookEntries(format) > 0)
      emit(`var<workgroup> ${name}_book: array<f32, ${bookEntries(format) * copies}>;`);
  }
  emit(`@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let kv = wid.z;
  let item_at = wid.x + wid.y * nwg.x;
  if (item_at >= step[0].w) { return; }
  let item = step[step[2].x + item_at];
  let slot = item.z;
  let last = item.w;
  let first = item.y * ${split}u;
  let reach = min(last - first, ${split - 1}u);
  let lane = lid % ${lanes}u;
  let sub = lid / ${lanes}u;
  ${rowsSkipped(rows, `${maxBlocksPerSlot}u`, 'slot')}`);
  if (low !== null) {
    emit(`  let low = ${low};\n  if (first + ${split - 1}u < low) { return; }`);
    // What lies before the window may be another sequence's by now: it is never read.
    emit('  let oldest = max(low, first) - first;');
  }
  /** A position of the split that this row sees: `c`, or the nearest to it. */
  const seenAt = (c: string): string => (low === null ? `min(${c}, reach)` : `clamp(${c}, oldest, reach)`);
  emit(
    `  for (var i = lid; i < ${split / blockTokens}u; i += ${threads}u) { entries[i] = tables[slot * ${maxBlocksPerSlot}u + first / ${blockTokens}u + min(i, reach / ${blockTokens}u)]; }`,
  );
  for (const side of [keys, values]) {
    const { name, format, layout } = side;
    if (format.kind !== 'turboquant' || bookEntries(format) === 0) continue;
    const { centroids } = tableOffsets(format.bits, headDim);
    const width = name === 'keys' ? keyWidth : valueWidth;
    emit(
      fillBook(
        name,
        format,
        copies,
        threads,
        (i) => `bitcast<f32>(${wordAt(name, width, `${layout.tablesAt + centroids}u + ${i}`)})`,
      ),
    );
  }
  // The part of each query that this lane multiplies.
  emit(`  let kl = lid % ${keyLanes}u;`);
  // A lane's floats come in pieces that lie apart, so that the lanes of a key read side by side; codes of a group do not.
  const pieces = quantisedKeys ? 1 : keyWords / keyWidth;
  const pieceVectors = keyDims / 4 / pieces;
  const queryAt = (g: number, i: number): string =>
    `(item.x * ${heads}u + kv * ${group}u + ${g}u) * ${headDim / 4}u + (kl + ${Math.floor(i / pieceVectors) * keyLanes}u) * ${pieceVectors}u + ${i % pieceVectors}u`;
  const keyPairs = (prefix: string) =>
    unpackPairs('keys', keyFormat, headDim, keyDims, copies, (i) => register(prefix, keyWidth, i));
  const order = keyPairs('k').pairs;
  if (dot && hasBytes(keyFormat)) integerQueries(keyFormat);
  for (const g of count(group)) {
    if (dot) continue;
    for (const i of count(keyDims / 4)) emit(`  let r${g}_${i} = q[${queryAt(g, i)}];`);
    const element = (d: number): string => `r${g}_${d >> 2}.${'xyzw'[d & 3]}`;
    order.forEach(({ dims: [a, b] }, p) => {
      emit(`  let q${g}_${p} = vec2<f32>(${element(a)}, ${element(b)});`);
    });
    if (keyFormat.kind === 'affine') {
      emit(`  var ones${g} = vec2<f32>();`);
      order.forEach((_, p) => {
        emit(`  ones${g} += q${g}_${p};`);
      });
      emit(`  let whole${g} = ones${g}.x + ones${g}.y;`);
    }
  }
  /** Queries as two planes of bytes, made by the workgroup together and taken into registers by each thread. */
  function integerQueries(format: AffineKv | TurboKv): void {
    const vectors = headDim / 4;
    for (let g0 = 0; g0 < group; g0 += subs) {
      emit(`  {
    let g = min(sub + ${g0}u, ${group - 1}u);
    let start = (item.x * ${heads}u + kv * ${group}u + g) * ${vectors}u;
    var most = vec4<f32>();
    for (var i = lane; i < ${vectors}u; i += ${lanes}u) { most = max(most, abs(q[start + i])); }
    let peak = subgroupMax(max(max(most.x, most.y), max(most.z, most.w)));
    let unit = select(0.0, ${QUERY_MOST}.0 / peak, peak > 0.0);
    for (var i = lane; i < ${vectors}u; i += ${lanes}u) { integers[g * ${vectors}u + i] = vec4<i32>(round(q[start + i] * unit)); }
    if (lane == 0u) { peaks[g] = peak; }
  }`);
    }
    const { words: pattern } = bytesText(format, headDim, keyDims, 'x', () => '0u');
    const fields = pattern[0]!.dims[1] - pattern[0]!.dims[0];
    const pieces = keyDims / 4;
    const words = group * vectors;
    const dim = (k: number): string => `integers[(d + ${k * fields}u) / 4u][(d + ${k * fields}u) % 4u]`;
    emit(`  workgroupBarrier();
  for (var w = lid; w < ${words}u; w += ${threads}u) {
    let b = w % ${pieces}u;
    let d = w / ${pieces}u * ${keyDims}u + b / ${fields}u * ${fields * 4}u + b % ${fields}u;
    let n = vec4<i32>(${count(4).map(dim).join(', ')});
    let high = (n + vec4<i32>(128)) >> vec4<u32>(8u);
    planes[w / 4u][w % 4u] = pack4xI8(high);
    planes[w / 4u + ${words / 4}u][w % 4u] = pack4xI8(n - high * 256);
  }
  workgroupBarrier();`);
    for (const g of count(group)) {
      emit(`  var whole${g} = 0;`);
      for (const i of count(pieces / 4)) {
        const at = `(${g * keyLanes}u + kl) * ${pieces / 4}u + ${i}u`;
        emit(`  let high${g}_${i} = planes[${at}]; let low${g}_${i} = planes[${at} + ${words / 4}u];`);
        for (const e of count(4)) {
          const b = i * 4 + e;
          emit(
            `  let qh${g}_${b} = high${g}_${i}.${'xyzw'[e]}; let ql${g}_${b} = low${g}_${i}.${'xyzw'[e]};`,
          );
          emit(
            `  whole${g} += dot4I8Packed(qh${g}_${b}, 0x01010101u) * 256 + dot4I8Packed(ql${g}_${b}, 0x01010101u);`,
          );
        }
      }
    }
  }

  // The lanes of a key share out the heads: at every step two lanes halve those they have sums of. Lanes of one group of
  // dims do so first, and its scale and bias are applied to what is left.
  const padded = 2 ** Math.ceil(Math.log2(group));
  const together = keyFormat.kind === 'affine' ? keyFormat.groupSize / keyDims : 1;
  const steps = count(Math.log2(keyLanes)).map((i) => 2 ** i);
  const halve = (name: string, list: readonly number[], live: number): number => {
    let left = live;
    for (const step of list) {
      if (left > 1) {
        left /= 2;
        emit(`    { let upper = (kl & ${step}u) != 0u;`);
        for (const g of count(left)) {
          emit(`      let give${g} = select(${name}${g + left}, ${name}${g}, upper);`);
          emit(
            `      ${name}${g} = select(${name}${g}, ${name}${g + left}, upper) + subgroupShuffleXor(give${g}, ${step}u);`,
          );
        }
        emit('    }');
      } else emit(`    ${name}0 += subgroupShuffleXor(${name}0, ${step}u);`);
    }
    return left;
  };
  const inner = steps.filter((step) => step < together);
  const outer = steps.filter((step) => step >= together);
  if (keyFormat.kind === 'affine') {
    for (const g of count(padded)) emit(`  var all${g} = ${g < group ? `whole${g}` : dot ? '0' : '0.0'};`);
    const left = halve('all', inner, padded);
    for (const g of count(left)) emit(`  let full${g} = f32(all${g});`);
  }
  // Which heads' scores a lane ends up with, and the lanes that write them.
  let each = padded;
  let first = '0u';
  let idle = 0;
  for (const step of steps) {
    if (each > 1) {
      each /= 2;
      first += ` + select(0u, ${each}u, (kl & ${step}u) != 0u)`;
    } else idle |= step;
  }
  for (const e of count(each)) {
    emit(`  let head${e} = ${first} + ${e}u;`);
    const unit = shape.scale * byteUnit(keyFormat, headDim);
    if (dot) {
      emit(`  let end${e} = peaks[min(head${e}, ${group - 1}u)] * ${f32Literal(unit / QUERY_MOST)};`);
    } else emit(`  let end${e} = ${f32Literal(unit)};`);
  }
  emit('  workgroupBarrier();');

  const rowText = (base: number): string =>
    `((entries[c / ${blockTokens}u]${base === 0 ? '' : ` - ${base}u`}) * ${kvHeads}u + kv) * ${blockTokens}u + c % ${blockTokens}u`;
  const normAt = (side: KvSideSpec, base: number): string =>
    `${side.layout.metaAt}u + ((entries[c / ${blockTokens}u]${base === 0 ? '' : ` - ${base}u`}) * ${side.layout.metaHeads}u + kv / 2u) * ${blockTokens}u + c % ${blockTokens}u`;
  const keyLoads = Math.ceil(keyWords / keyWidth);
  const valueLoads = Math.ceil(valueWords / valueWidth);
  const loadKeys = (prefix: string, base: string): void => {
    for (const u of count(unroll)) {
      emit(
        `  { let c = ${seenAt(`${base} + ${u * keysAtOnce}u + lid / ${keyLanes}u`)}; let row = ${rowText(rows.keyBase)};`,
      );
      emit(
        `    let a = row * ${keys.layout.words / keyWidth}u + kl${quantisedKeys ? ` * ${keyLoads}u` : ''};`,
      );
      for (const i of count(keyLoads))
        emit(`    ${prefix}${u}_${i} = keys[a + ${quantisedKeys ? i : i * keyLanes}u];`);
      if (keyFormat.kind === 'affine') {
        const at = `${keys.layout.metaAt}u + row * ${keys.layout.groups}u + kl / ${keyFormat.groupSize / keyDims}u`;
        emit(`    let at = ${at}; ${prefix}m${u} = ${wordAt('keys', keyWidth, 'at')};`);
      } else if (keyFormat.kind === 'turboquant') {
        emit(
          `    let at = ${normAt(keys, rows.keyBase)}; ${prefix}m${u} = ${wordAt('keys', keyWidth, 'at')};`,
        );
      }
      emit('  }');
    }
  };
  const declareKeys = (prefix: string): void => {
    for (const u of count(unroll)) {
      for (const i of count(keyLoads)) emit(`  var ${prefix}${u}_${i}: ${typeOf(keyWidth)};`);
      if (quantisedKeys) emit(`  var ${prefix}m${u}: u32;`);
    }
  };
  const copyKeys = (to: string, from: string): void => {
    for (const u of count(unroll)) {
      for (const i of count(keyLoads)) emit(`  ${to}${u}_${i} = ${from}${u}_${i};`);
      if (quantisedKeys) emit(`  ${to}m${u} = ${from}m${u};`);
    }
  };
  const loadValues = (prefix: string, base: string): void => {
    for (const u of count(valueUnroll)) {
      emit(
        `  { let c = ${seenAt(`${base} + ${u * valuesAtOnce}u + lid / ${valueLanes}u`)}; let a = (${rowText(rows.valueBase)}) * ${values.layout.words / valueWidth}u + lid % ${valueLanes}u * ${valueLoads}u;`,
      );
      for (const i of count(valueLoads)) emit(`    ${prefix}${u}_${i} = values[a + ${i}u];`);
      emit('  }');
    }
  };
  const declareValues = (prefix: string): void => {
    for (const u of count(valueUnroll))
      for (const i of count(valueLoads)) emit(`  var ${prefix}${u}_${i}: ${typeOf(valueWidth)};`);
  };
  const copyValues = (to: string, from: string): void => {
    for (const u of count(valueUnroll))
      for (const i of count(valueLoads)) emit(`  ${to}${u}_${i} = ${from}${u}_${i};`);
  };

  // Scales and biases of the values, for the softmax; they are on their way while the keys multiply.
  if (valueFormat.kind === 'affine') {
    emit(`  for (var i = lid; i < ${split * valueGroups}u; i += ${threads}u) {
    let c = ${seenAt(`i / ${valueGroups}u`)};
    let at = ${values.layout.metaAt}u + (${rowText(rows.valueBase)}) * ${valueGroups}u + i % ${valueGroups}u;
    value_meta[i] = ${wordAt('values', valueWidth, 'at')};
  }`);
  }
  if (bookEntries(keyFormat) > 0) emit('  {');
  declareKeys('k');
  if (ahead) {
    declareKeys('nextk');
    loadKeys('k', '0u');
  }
  if (bookEntries(keyFormat) > 0) emit(`  let copy = lane % ${copies}u;`);
  const keyStride = keysAtOnce * unroll;
  emit(`  for (var base = 0u; base < ${split}u; base += ${keyStride}u) {`);
  emit(`    if (base > reach) { break; }`);
  if (ahead) loadKeys('nextk', `base + ${keyStride}u`);
  else loadKeys('k', 'base');
  for (const u of count(unroll)) {
    emit('  {');
    emit(`    let c = base + ${u * keysAtOnce}u + lid / ${keyLanes}u;`);
    if (dot && hasBytes(keyFormat)) {
      for (const g of count(padded)) emit(`    var s${g} = 0;${g < group ? ` var l${g} = 0;` : ''}`);
      const made = bytesText(keyFormat, headDim, keyDims, 'e', (i) => register(`k${u}`, keyWidth, i));
      emit(made.text);
      made.words.forEach(({ name }, b) => {
        for (const g of count(group))
          emit(
            `    s${g} += dot4I8Packed(${name}, qh${g}_${b}); l${g} += dot4I8Packed(${name}, ql${g}_${b});`,
          );
      });
      for (const g of count(group)) emit(`    s${g} = s${g} * 256 + l${g};`);
    } else {
      for (const g of count(padded)) emit(`    var s${g} = 0.0;`);
      for (const g of count(group)) emit(`    var t${g} = vec2<f32>();`);
      const made = keyPairs(`k${u}`);
      emit(made.text);
      made.pairs.forEach(({ value }, p) => {
        emit(`    let e${p} = vec2<f32>(${value});`);
        for (const g of count(group)) emit(`    t${g} = fma(e${p}, q${g}_${p}, t${g});`);
      });
      for (const g of count(group)) emit(`    s${g} = t${g}.x + t${g}.y;`);
    }
    if (dot && keyFormat.kind === 'turboquant')
      for (const g of count(padded)) emit(`    var x${g} = f32(s${g});`);
    const summed = dot && keyFormat.kind === 'turboquant' ? 'x' : 's';
    let live = halve(summed, inner, padded);
    const name = keyFormat.kind === 'affine' ? 'x' : summed;
    if (keyFormat.kind === 'affine') {
      emit(`    let affine = unpack2x16float(km${u});`);
      emit(
        `    let bias = fma(affine.x, ${f32Literal(dot ? byteCentre(keyFormat) : centreOf(keyFormat))}, affine.y);`,
      );
      for (const g of count(live)) emit(`    var x${g} = fma(f32(s${g}), affine.x, bias * full${g});`);
    }
    live = halve(name, outer, live);
    if (keyFormat.kind === 'turboquant')
      emit(`    let pair = unpack2x16float(km${u}); let norm = select(pair.x, pair.y, (kv & 1u) == 1u);`);
    const seen = `first + c <= last${low === null ? '' : ' && first + c >= low'}`;
    for (const e of count(each)) {
      emit(`    var mine${e} = ${name}${e} * end${e}${keyFormat.kind === 'turboquant' ? ' * norm' : ''};`);
      if (softcap !== null)
        emit(
          `    { let e = exp(clamp(2.0 * mine${e} / ${f32Literal(softcap)}, -80.0, 80.0)); mine${e} = ${f32Literal(softcap)} * (1.0 - 2.0 / (e + 1.0)); }`,
        );
      const writes = [
        ...(idle > 0 ? [`(kl & ${idle}u) == 0u`] : []),
        ...(padded === group ? [] : [`head${e} < ${group}u`]),
      ];
      const store = `${cell('c', `head${e}`)} = select(${LOWEST}, mine${e}, ${seen});`;
      emit(`    ${writes.length === 0 ? store : `if (${writes.join(' && ')}) { ${store} }`}`);
    }
    emit('  }');
  }
  if (ahead) copyKeys('k', 'nextk');
  emit('  }');
  if (bookEntries(keyFormat) > 0) emit('  }');
  // What the loop left out when the context ended early.
  emit(`  let walked = (reach / ${keyStride}u + 1u) * ${keyStride}u;`);
  declareValues('v');
  loadValues('v', '0u');
  const columns = split / lanes;
  if (valueFormat.kind === 'turboquant') {
    for (const i of count(columns)) {
      emit(
        `  var norm${i}: u32; { let c = ${seenAt(`lane + ${i * lanes}u`)}; let at = ${normAt(values, rows.valueBase)}; norm${i} = ${wordAt('values', valueWidth, 'at')}; }`,
      );
    }
  }
  emit('  workgroupBarrier();');

  // Every subgroup takes the softmax of its heads; one beyond the last repeats that one and writes nothing.
  for (let g0 = 0; g0 < group; g0 += subs) {
    emit(`  {\n    let mine = sub + ${g0}u < ${group}u;\n    let g = min(sub + ${g0}u, ${group - 1}u);`);
    for (const c of count(columns))
      emit(
        `    let c${c} = lane + ${c * lanes}u; var s${c} = ${LOWEST}; if (c${c} < walked) { s${c} = ${cell(`c${c}`, 'g')}; }`,
      );
    emit('    var most = s0;');
    for (const c of count(columns).slice(1)) emit(`    most = max(most, s${c});`);
    emit('    let top = subgroupMax(most);');
    emit('    var sum = 0.0;');
    for (const c of count(columns))
      emit(`    s${c} = select(exp(s${c} - top), 0.0, s${c} <= ${LOWEST}); sum += s${c};`);
    const scaled = valueFormat.kind === 'affine' && valueGroups === 1;
    for (const c of count(columns)) {
      if (valueFormat.kind === 'turboquant') {
        emit(
          `    let n${c} = unpack2x16float(norm${c}); let w${c} = s${c} * select(n${c}.x, n${c}.y, (kv & 1u) == 1u);`,
        );
      } else emit(`    let w${c} = s${c}${scaled ? ` * unpack2x16float(value_meta[c${c}]).x` : ''};`);
      emit(`    if (mine) { ${cell(`c${c}`, 'g')} = w${c}; }`);
    }
    if (valueFormat.kind === 'affine') {
      // Biases, and what centring took off the codes.
      for (const vg of count(valueGroups)) {
        const biases = count(columns).map(
          (c) =>
            `s${c} * dot(unpack2x16float(value_meta[c${c} * ${valueGroups}u + ${vg}u]), vec2<f32>(${f32Literal(centreOf(valueFormat))}, 1.0f))`,
        );
        emit(`    let bias${vg} = subgroupAdd(${biases.join(' + ')});`);
        emit(`    if (mine && lane == 0u) { offsets[${vg}u * ${group}u + g] = bias${vg}; }`);
      }
    }
    emit('    sum = subgroupAdd(sum);');
    emit(
      `    if (mine && lane == 0u) { scratchTops[item_at * ${heads}u + kv * ${group}u + g] = vec2<f32>(top, sum); }`,
    );
    emit('  }');
  }
  emit('  workgroupBarrier();');

  const valuePairs = (prefix: string) =>
    unpackPairs('values', valueFormat, headDim, valueDims, copies, (i) => register(prefix, valueWidth, i));
  const valueOrder = valuePairs('v').pairs;
  for (const g of count(group)) for (const p of count(valueDims / 2)) emit(`  var a${g}_${p} = vec2<f32>();`);
  if (ahead) declareValues('nextv');
  const apart = valueGroups > 1;
  if (apart) emit(`  let group_at = lid % ${valueLanes}u / ${headDim / valueGroups / valueDims}u;`);
  if (bookEntries(valueFormat) > 0) emit(`  let copy = lane % ${copies}u;`);
  const valueStride = valuesAtOnce * valueUnroll;
  emit(`  for (var base = 0u; base < ${split}u; base += ${valueStride}u) {`);
  emit('    if (base > reach) { break; }');
  if (ahead) loadValues('nextv', `base + ${valueStride}u`);
  for (const u of count(valueUnroll)) {
    emit(`  {`);
    emit(`    let c = base + ${u * valuesAtOnce}u + lid / ${valueLanes}u;`);
    if (apart) emit(`    let scale = unpack2x16float(value_meta[c * ${valueGroups}u + group_at]).x;`);
    for (const i of count(group / vec))
      emit(`    let w${i} = cells[c * ${group / vec}u + ${i}u]${apart ? ' * scale' : ''};`);
    const weight = (g: number): string =>
      vec === 1 ? `w${g}` : `w${Math.floor(g / vec)}.${'xyzw'[g % vec]}`;
    const made = valuePairs(`v${u}`);
    emit(made.text);
    made.pairs.forEach(({ value }, p) => {
      emit(`    let e${p} = vec2<f32>(${value});`);
      for (const g of count(group)) emit(`    a${g}_${p} = fma(vec2<f32>(${weight(g)}), e${p}, a${g}_${p});`);
    });
    emit('  }');
  }
  if (ahead) copyValues('v', 'nextv');
  else loadValues('v', `base + ${valueStride}u`);
  emit('  }');

  // Sum over the threads that walked other positions: in a subgroup by halving, as with the scores; then across.
  for (const g of count(group))
    for (const [p, { dims }] of valueOrder.entries())
      dims.forEach((d, e) => {
        emit(`  var o${g}_${d} = a${g}_${p}.${'xy'[e]};`);
      });
  let own = valueDims;
  emit(`  var dim_at = lid % ${valueLanes}u * ${valueDims}u;`);
  for (let step = valueLanes; step < lanes; step *= 2) {
    own /= 2;
    emit(`  { let upper = (lane & ${step}u) != 0u; dim_at += select(0u, ${own}u, upper);`);
    for (const g of count(group))
      for (const d of count(own)) {
        emit(`    let give${g}_${d} = select(o${g}_${d + own}, o${g}_${d}, upper);`);
        emit(
          `    o${g}_${d} = select(o${g}_${d}, o${g}_${d + own}, upper) + subgroupShuffleXor(give${g}_${d}, ${step}u);`,
        );
      }
    emit('  }');
  }
  emit('  workgroupBarrier();');
  emit(`  let part_at = lid / ${Math.max(valueLanes, lanes)}u * ${group * headDim}u + dim_at;`);
  for (const g of count(group))
    for (const d of count(own)) emit(`  ${scalar(`part_at + ${g * headDim + d}u`)} = o${g}_${d};`);
  emit('  workgroupBarrier();');
  emit(`  for (var i = lid; i < ${group * headDim}u; i += ${threads}u) {`);
  const unit = byteUnit(valueFormat, headDim);
  const total = count(partGroups)
    .map((s) => scalar(`${s * group * headDim}u + i`))
    .join(' + ');
  emit(`    var value = ${unit === 1 ? total : `(${total}) * ${f32Literal(unit)}`};`);
  if (valueFormat.kind === 'affine') {
    emit(`    value += offsets[i % ${headDim}u / ${headDim / valueGroups}u * ${group}u + i / ${headDim}u];`);
  }
  emit(`    scratchSums[(item_at * ${heads}u + kv * ${group}u) * ${headDim}u + i] = value;`);
  emit('  }\n}');
  return {
    label: `attend decode ${heads}/${kvHeads}×${headDim} t${threads}u${unroll}${rows.only === 'young' ? ' young' : ''}`,
    wgsl: lines.filter((line) => line.trim() !== '').join('\n'),
    bindings,
    workgroups: (facts, out) => {
      const y = Math.ceil(facts.items / 65535);
      out[0] = y === 0 ? 0 : Math.ceil(facts.items / y);
      out[1] = y;
      out[2] = kvHeads;
    },
  };
}
