/**
 * Attention of single-token rows over a cache of any format, for devices with subgroups.
 *
 * The same cut as the portable kernel's items: one workgroup a (row, split, KV head) with all query heads of the GQA
 * group, so K and V are read once and unpacked once, straight from memory into registers; nothing is staged. Scores of
 * the split go through workgroup memory, where the softmax is taken. It leaves the same partials (weighted values, max,
 * sum), and the reduce merges them.
 *
 * What a stored vector has once is kept out of the loops over its elements: keys are multiplied as centred codes, and
 * scale, bias and norm are applied to the sum over a lane's dims; those of values go into the weights, which are made
 * to be at most one, and the biases become one number for each head and group. So the loops do an unpacking and a
 * multiply-add for each element, and where there is f16, for two elements at once. Queries and weights are scaled to
 * at most one before they become halves; sums of halves are short and go on in f32.
 */

import { affineGroups, type KvFormat } from '../../kv.js';
import type { Binding, Stage } from '../kernel.js';
import { declareBindings, f32Literal } from '../kernel.js';
import { ATTENTION_SPLIT, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { LOWEST } from './attend-reduce.js';
import { bookCopies, bookEntries, centreOf, fillBook, unpackPairs } from './attend-unpack.js';
import type { KvSideSpec } from './kv-format.js';
import { tableOffsets } from './kv-layout.js';
import { rowsSkipped, sideOf } from './kv-rows.js';

export interface DecodeConfig {
  /** Lanes of a subgroup: must be the device's one and only size. */
  readonly subgroupSize: number;
  readonly threads: number;
  /** Positions of a split; ATTENTION_SPLIT but in benchmarks. */
  readonly split?: number;
  /** Pieces of K, and of V, that a thread has on their way at once. */
  readonly unroll: number;
  readonly valueUnroll?: number;
  /** Dims of K, and of V, that a lane takes; by format and group if omitted. */
  readonly keyDims?: number;
  readonly valueDims?: number;
  /** Loads run one turn ahead of their use. */
  readonly ahead?: boolean;
  /** Pairs of K, and tokens of V, whose halves are summed before the sum goes on in f32. */
  readonly keyChain?: number;
  readonly valueChain?: number;
  /** Quantised formats are multiplied as halves: the device has f16. */
  readonly f16?: boolean;
}

interface DecodePlan {
  readonly group: number;
  /** Dims of K a lane multiplies, and lanes that share a key. */
  readonly keyDims: number;
  readonly keyLanes: number;
  readonly valueDims: number;
  readonly valueLanes: number;
  readonly valueUnroll: number;
  readonly split: number;
  /** Affine groups of V; weights differ by group. */
  readonly valueGroups: number;
  readonly bytes: number;
}

/** Elements of a binding, in words: what a lane's words, and all offsets, are multiples of. */
const widthOf = (words: number, laneWords: number): 1 | 2 | 4 =>
  words % 4 === 0 && laneWords % 4 === 0 ? 4 : words % 2 === 0 && laneWords % 2 === 0 ? 2 : 1;

/** The fewest dims whose codes fill whole words. */
function leastDims(format: KvFormat): number {
  if (format.kind === 'float') return 4;
  return { 2: 16, 3: 32, 4: 8, 5: 32, 6: 16, 8: 4 }[format.bits];
}

function planDecode(shape: AttendShape, config: DecodeConfig): DecodePlan {
  const { key, value, headDim } = shape;
  const group = shape.heads / shape.kvHeads;
  const keyDims =
    config.keyDims ??
    (key.kind === 'float' ? (group <= 4 ? 16 : 8) : Math.max(leastDims(key), group <= 4 ? 32 : 16));
  const valueDims =
    config.valueDims ?? (value.kind === 'float' ? 8 : Math.max(leastDims(value), group <= 4 ? 16 : 8));
  const valueLanes = headDim / valueDims;
  const split = config.split ?? ATTENTION_SPLIT;
  const valueGroups = value.kind === 'affine' ? affineGroups(value, headDim) : 1;
  const quantised = value.kind !== 'float';
  const parts = config.threads / Math.max(valueLanes, config.subgroupSize);
  const books = [key, value].reduce(
    (sum, f) => sum + bookEntries(f) * bookCopies(f, config.subgroupSize) * 4,
    0,
  );
  const bytes =
    split * group * 4 +
    (quantised ? split * group * valueGroups * 4 + split * valueGroups * 4 + group * valueGroups * 8 : 0) +
    Math.max(1, parts) * group * headDim * 4 +
    books +
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
    bytes,
  };
}

const powerOfTwo = (n: number): boolean => n > 0 && Number.isInteger(n) && (n & (n - 1)) === 0;

export function decodeFits(shape: AttendShape, config: DecodeConfig, workgroupBytes: number): boolean {
  const { headDim } = shape;
  const { subgroupSize: lanes, threads, unroll } = config;
  const { keyDims, keyLanes, valueDims, valueLanes, valueUnroll, split, group, bytes } = planDecode(
    shape,
    config,
  );
  const whole = (side: KvSideSpec, dims: number): boolean => {
    const { format, layout } = side;
    const words = (layout.words * dims) / headDim;
    if (!Number.isInteger(words)) return false;
    if (format.kind === 'affine' && (format.groupSize % dims !== 0 || headDim % format.groupSize !== 0))
      return false;
    return format.kind === 'float' || format.bits !== 3 || dims % 32 === 0;
  };
  return (
    whole(sideOf('keys', shape), keyDims) &&
    whole(sideOf('values', shape), valueDims) &&
    powerOfTwo(keyLanes) &&
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

/** Roles: step, q, keys, values, tables, scratchSums, scratchTops. */
export function decodeStage(shape: AttendShape, config: DecodeConfig): Stage {
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot, window, softcap, rows } = shape;
  const { subgroupSize: lanes, threads, unroll, ahead = false, f16 = false } = config;
  const { keyChain = 16, valueChain = 64 } = config;
  const plan = planDecode(shape, config);
  const { group, keyDims, keyLanes, valueDims, valueLanes, valueUnroll, split, valueGroups } = plan;
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
  /** Type and arithmetic of a side: pairs of halves, or of f32. */
  const kindOf = (quantised: boolean): 'H' | 'vec2<f32>' => (quantised ? 'H' : 'vec2<f32>');
  const keyKind = kindOf(quantisedKeys);
  const valueKind = kindOf(quantisedValues);
  const copies = { keys: bookCopies(keyFormat, lanes), values: bookCopies(valueFormat, lanes) };
  /** Weights of the heads of one (token, group) lie together. */
  const weightWidth = group % 4 === 0 ? 4 : group % 2 === 0 ? 2 : 1;
  const weightType = quantisedValues && f16 ? 'u32' : 'f32';
  const weightVec = weightWidth === 1 ? weightType : `vec${weightWidth}<${weightType}>`;
  const weightParts = group / weightWidth;
  const partGroups = threads / Math.max(valueLanes, lanes);

  emit(`enable subgroups;${halves ? '\nenable f16;' : ''}
${declareBindings(bindings)}
${STEP_WGSL}
alias H = ${halves ? 'vec2<f16>' : 'vec2<f32>'};
fn halves_(w: u32) -> H { return ${halves ? 'bitcast<vec2<f16>>(w)' : 'unpack2x16float(w)'}; }
var<workgroup> scores: array<f32, ${split * group}>;
var<workgroup> weights: array<${weightVec}, ${split * valueGroups * weightParts}>;
var<workgroup> parts: array<f32, ${partGroups * group * headDim}>;
var<workgroup> entries: array<u32, ${split / blockTokens}>;`);
  if (valueFormat.kind !== 'float') {
    emit(`var<workgroup> value_meta: array<u32, ${split * valueGroups}>;
var<workgroup> factors: array<vec2<f32>, ${group * valueGroups}>;`);
  }
  for (const { name, format } of [keys, values]) {
    if (bookEntries(format) > 0)
      emit(`var<workgroup> ${name}_pairs: array<u32, ${bookEntries(format) * copies[name]}>;`);
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
  if (low !== null) emit(`  let low = ${low};\n  if (first + ${split - 1}u < low) { return; }`);
  emit(
    `  for (var i = lid; i < ${split / blockTokens}u; i += ${threads}u) { entries[i] = tables[slot * ${maxBlocksPerSlot}u + first / ${blockTokens}u + min(i, reach / ${blockTokens}u)]; }`,
  );
  for (const side of [keys, values]) {
    const { name, format, layout } = side;
    if (format.kind !== 'turboquant') continue;
    const { centroids } = tableOffsets(format.bits, headDim);
    const width = name === 'keys' ? keyWidth : valueWidth;
    emit(
      fillBook(
        name,
        format,
        copies[name],
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
    unpackPairs('keys', keyFormat, keyDims, copies.keys, (i) => register(prefix, keyWidth, i));
  const order = keyPairs('k');
  for (const g of count(group)) {
    for (const i of count(keyDims / 4)) emit(`  let r${g}_${i} = q[${queryAt(g, i)}];`);
    const element = (d: number): string => `r${g}_${d >> 2}.${'xyzw'[d & 3]}`;
    if (quantisedKeys && halves) {
      emit(
        `  var most${g} = ${count(keyDims / 4).reduce((text, i) => (text === '' ? `abs(r${g}_${i})` : `max(${text}, abs(r${g}_${i}))`), '')};`,
      );
      emit(`  var peak${g} = max(max(most${g}.x, most${g}.y), max(most${g}.z, most${g}.w));`);
      for (let step = 1; step < keyLanes; step *= 2)
        emit(`  peak${g} = max(peak${g}, subgroupShuffleXor(peak${g}, ${step}u));`);
      emit(`  let unit${g} = select(0.0, 1.0 / peak${g}, peak${g} > 0.0);`);
      order.forEach(({ dims: [a, b] }, p) => {
        emit(`  let q${g}_${p} = H(vec2<f32>(${element(a)}, ${element(b)}) * unit${g});`);
      });
    } else {
      if (quantisedKeys) emit(`  let peak${g} = 1.0;`);
      order.forEach(({ dims: [a, b] }, p) => {
        emit(`  let q${g}_${p} = vec2<f32>(${element(a)}, ${element(b)});`);
      });
    }
    if (keyFormat.kind === 'affine') {
      emit(`  var ones${g} = vec2<f32>();`);
      order.forEach((_, p) => {
        emit(`  ones${g} += vec2<f32>(q${g}_${p});`);
      });
      emit(`  let whole${g} = ones${g}.x + ones${g}.y;`);
    }
  }
  // Which heads' scores a lane ends up with, when the lanes of a key have shared them out.
  const padded = 2 ** Math.ceil(Math.log2(group));
  const each = Math.max(1, padded / keyLanes);
  const sharers = Math.max(1, keyLanes / padded);
  for (const e of count(each)) {
    emit(`  let head${e} = kl / ${sharers}u * ${each}u + ${e}u;`);
    if (quantisedKeys) {
      let text = `peak${group - 1}`;
      for (let g = group - 2; g >= 0; g--) text = `select(${text}, peak${g}, head${e} == ${g}u)`;
      emit(`  let end${e} = ${text} * ${f32Literal(shape.scale)};`);
    } else emit(`  let end${e} = ${f32Literal(shape.scale)};`);
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
        `  { let c = min(${base} + ${u * keysAtOnce}u + lid / ${keyLanes}u, reach); let row = ${rowText(rows.keyBase)};`,
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
        `  { let c = min(${base} + ${u * valuesAtOnce}u + lid / ${valueLanes}u, reach); let a = (${rowText(rows.valueBase)}) * ${values.layout.words / valueWidth}u + lid % ${valueLanes}u * ${valueLoads}u;`,
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

  // Scales and norms of the values, for the softmax; they are on their way while the keys multiply.
  if (valueFormat.kind !== 'float') {
    emit(`  for (var i = lid; i < ${split * valueGroups}u; i += ${threads}u) {
    let c = min(i / ${valueGroups}u, reach);
    let at = ${
      valueFormat.kind === 'affine'
        ? `${values.layout.metaAt}u + (${rowText(rows.valueBase)}) * ${valueGroups}u + i % ${valueGroups}u`
        : normAt(values, rows.valueBase)
    };
    value_meta[i] = ${wordAt('values', valueWidth, 'at')};
  }`);
  }
  if (bookEntries(keyFormat) > 0) emit('  {');
  declareKeys('k');
  if (ahead) {
    declareKeys('nextk');
    loadKeys('k', '0u');
  }
  if (bookEntries(keyFormat) > 0) emit(`  let copy = lane % ${copies.keys}u;`);
  const keyStride = keysAtOnce * unroll;
  emit(`  for (var base = 0u; base < ${split}u; base += ${keyStride}u) {`);
  emit(`    if (base > reach) { break; }`);
  if (ahead) loadKeys('nextk', `base + ${keyStride}u`);
  else loadKeys('k', 'base');
  for (const u of count(unroll)) {
    emit('  {');
    emit(`    let c = base + ${u * keysAtOnce}u + lid / ${keyLanes}u;`);
    for (const g of count(padded)) emit(`    var s${g} = 0.0;`);
    const pairs = keyPairs(`k${u}`);
    for (let p0 = 0; p0 < pairs.length; p0 += keyChain) {
      emit('    {');
      const run = pairs.slice(p0, p0 + keyChain);
      run.forEach(({ value }, i) => {
        emit(`      let e${i} = ${value};`);
        for (const g of count(group))
          emit(
            i === 0
              ? `      var t${g} = e0 * q${g}_${p0};`
              : `      t${g} = fma(e${i}, q${g}_${p0 + i}, t${g});`,
          );
      });
      for (const g of count(group))
        emit(
          keyKind === 'H' && halves
            ? `      s${g} += f32(t${g}.x) + f32(t${g}.y);`
            : `      s${g} += t${g}.x + t${g}.y;`,
        );
      emit('    }');
    }
    if (keyFormat.kind === 'affine') {
      emit(`    let affine = unpack2x16float(km${u});`);
      emit(`    let bias = fma(affine.x, ${f32Literal(centreOf(keyFormat))}, affine.y);`);
      for (const g of count(group)) emit(`    s${g} = fma(s${g}, affine.x, bias * whole${g});`);
    }
    // Halving: at every step two lanes share out the heads they have sums of.
    let live = padded;
    for (let step = keyLanes / 2; step >= 1; step /= 2) {
      if (live > 1) {
        live /= 2;
        emit(`    { let upper = (kl & ${step}u) != 0u;`);
        for (const g of count(live)) {
          emit(`      let give${g} = select(s${g + live}, s${g}, upper);`);
          emit(`      s${g} = select(s${g}, s${g + live}, upper) + subgroupShuffleXor(give${g}, ${step}u);`);
        }
        emit('    }');
      } else emit(`    s0 += subgroupShuffleXor(s0, ${step}u);`);
    }
    if (keyFormat.kind === 'turboquant')
      emit(`    let pair = unpack2x16float(km${u}); let norm = select(pair.x, pair.y, (kv & 1u) == 1u);`);
    const seen = `first + c <= last${low === null ? '' : ' && first + c >= low'}`;
    for (const e of count(each)) {
      emit(`    var mine${e} = s${e} * end${e}${keyFormat.kind === 'turboquant' ? ' * norm' : ''};`);
      if (softcap !== null)
        emit(
          `    { let e = exp(clamp(2.0 * mine${e} / ${f32Literal(softcap)}, -80.0, 80.0)); mine${e} = ${f32Literal(softcap)} * (1.0 - 2.0 / (e + 1.0)); }`,
        );
      const writes = [
        ...(sharers > 1 ? [`kl % ${sharers}u == 0u`] : []),
        ...(padded === group ? [] : [`head${e} < ${group}u`]),
      ];
      const store = `scores[c * ${group}u + head${e}] = select(${LOWEST}, mine${e}, ${seen});`;
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
  emit('  workgroupBarrier();');

  const columns = split / lanes;
  const weightIndex = (c: string, vg: string, g: string): string =>
    weightWidth === 1
      ? `weights[(${c} * ${valueGroups}u + ${vg}) * ${group}u + ${g}]`
      : `weights[(${c} * ${valueGroups}u + ${vg}) * ${weightParts}u + ${g} / ${weightWidth}u][${g} % ${weightWidth}u]`;
  const asWeight = (x: string): string => {
    if (weightType === 'f32') return x;
    return halves ? `bitcast<u32>(H(f16(${x})))` : `pack2x16float(vec2<f32>(${x}))`;
  };
  // Every subgroup takes the softmax of its heads; one beyond the last repeats that one and writes nothing.
  for (let g0 = 0; g0 < group; g0 += subs) {
    emit(`  {\n    let mine = sub + ${g0}u < ${group}u;\n    let g = min(sub + ${g0}u, ${group - 1}u);`);
    for (const c of count(columns))
      emit(
        `    let c${c} = lane + ${c * lanes}u; var s${c} = ${LOWEST}; if (c${c} < walked) { s${c} = scores[c${c} * ${group}u + g]; }`,
      );
    const top = count(columns).reduce((text, c) => (text === '' ? `s${c}` : `max(${text}, s${c})`), '');
    emit(`    let top = subgroupMax(${top});`);
    emit('    var sum = 0.0;');
    for (const c of count(columns))
      emit(`    s${c} = select(exp(s${c} - top), 0.0, s${c} <= ${LOWEST}); sum += s${c};`);
    if (!quantisedValues) {
      for (const c of count(columns)) emit(`    if (mine) { ${weightIndex(`c${c}`, '0u', 'g')} = s${c}; }`);
    } else {
      for (const vg of count(valueGroups)) {
        emit('    {');
        for (const c of count(columns)) {
          const meta = `value_meta[c${c} * ${valueGroups}u + ${vg}u]`;
          emit(
            valueFormat.kind === 'affine'
              ? `      let m${c} = unpack2x16float(${meta}); let w${c} = s${c} * m${c}.x;`
              : `      let m${c} = unpack2x16float(${meta}); let w${c} = s${c} * select(m${c}.x, m${c}.y, (kv & 1u) == 1u);`,
          );
        }
        const most = count(columns).reduce((text, c) => (text === '' ? `w${c}` : `max(${text}, w${c})`), '');
        emit(`      let most = subgroupMax(${most});`);
        emit('      let unit = select(0.0, 1.0 / most, most > 0.0);');
        if (valueFormat.kind === 'affine') {
          const sum = count(columns)
            .map((c) => `fma(w${c}, ${f32Literal(centreOf(valueFormat))}, s${c} * m${c}.y)`)
            .join(' + ');
          emit(`      let offset = subgroupAdd(${sum});`);
        } else emit('      let offset = 0.0;');
        for (const c of count(columns))
          emit(`      if (mine) { ${weightIndex(`c${c}`, `${vg}u`, 'g')} = ${asWeight(`w${c} * unit`)}; }`);
        emit(`      if (mine && lane == 0u) { factors[${vg}u * ${group}u + g] = vec2<f32>(most, offset); }`);
        emit('    }');
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
    unpackPairs('values', valueFormat, valueDims, copies.values, (i) => register(prefix, valueWidth, i));
  const valueOrder = valuePairs('v');
  const turns = split / (valuesAtOnce * valueUnroll);
  const chained = valueKind === 'H' && halves && valueChain < turns * valueUnroll;
  for (const g of count(group))
    for (const p of count(valueDims / 2)) {
      emit(`  var a${g}_${p} = ${valueKind}();`);
      if (chained) emit(`  var f${g}_${p} = vec2<f32>();`);
    }
  if (ahead) declareValues('nextv');
  emit(
    `  let group_at = ${valueGroups === 1 ? '0u' : `lid % ${valueLanes}u / ${headDim / valueGroups / valueDims}u`};`,
  );
  if (bookEntries(valueFormat) > 0) emit(`  let copy = lane % ${copies.values}u;`);
  const valueStride = valuesAtOnce * valueUnroll;
  emit(`  for (var base = 0u; base < ${split}u; base += ${valueStride}u) {`);
  emit('    if (base > reach) { break; }');
  if (ahead) loadValues('nextv', `base + ${valueStride}u`);
  for (const u of count(valueUnroll)) {
    emit(`  {`);
    emit(`    let c = base + ${u * valuesAtOnce}u + lid / ${valueLanes}u;`);
    for (const i of count(weightParts))
      emit(`    let w${i} = weights[(c * ${valueGroups}u + group_at) * ${weightParts}u + ${i}u];`);
    const weight = (g: number): string => {
      const own = weightWidth === 1 ? `w${g}` : `w${Math.floor(g / weightWidth)}.${'xyzw'[g % weightWidth]}`;
      return weightType === 'u32' ? `halves_(${own})` : `${valueKind}(${own})`;
    };
    valuePairs(`v${u}`).forEach(({ value }, p) => {
      emit(`    let e${p} = ${value};`);
      for (const g of count(group)) emit(`    a${g}_${p} = fma(${weight(g)}, e${p}, a${g}_${p});`);
    });
    emit('  }');
    if (chained && (u + 1) % valueChain === 0) flush();
  }
  if (chained && valueChain > valueUnroll) {
    const every = valueChain / valueUnroll;
    emit(`  if ((base / ${valueStride}u) % ${every}u == ${every - 1}u) {`);
    flush();
    emit('  }');
  }
  if (ahead) copyValues('v', 'nextv');
  else loadValues('v', `base + ${valueStride}u`);
  emit('  }');
  if (chained) flush();

  function flush(): void {
    for (const g of count(group))
      for (const p of count(valueDims / 2))
        emit(`  f${g}_${p} += vec2<f32>(a${g}_${p}); a${g}_${p} = ${valueKind}();`);
  }

  // Sum over the threads that walked other positions: in a subgroup by halving, as with the scores; then across.
  for (const g of count(group))
    for (const [p, { dims }] of valueOrder.entries())
      dims.forEach((d, e) => {
        emit(`  var o${g}_${d} = f32(${chained ? 'f' : 'a'}${g}_${p}.${'xy'[e]});`);
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
  emit(`  let part_at = lid / ${Math.max(valueLanes, lanes)}u * ${group * headDim}u + dim_at;`);
  for (const g of count(group))
    for (const d of count(own)) emit(`  parts[part_at + ${g * headDim + d}u] = o${g}_${d};`);
  emit('  workgroupBarrier();');
  emit(`  for (var i = lid; i < ${group * headDim}u; i += ${threads}u) {`);
  const total = count(partGroups)
    .map((s) => `parts[${s * group * headDim}u + i]`)
    .join(' + ');
  if (quantisedValues) {
    emit(`    let f = factors[i % ${headDim}u / ${headDim / valueGroups}u * ${group}u + i / ${headDim}u];`);
    emit(`    let value = fma(${total}, f.x, f.y);`);
  } else emit(`    let value = ${total};`);
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
