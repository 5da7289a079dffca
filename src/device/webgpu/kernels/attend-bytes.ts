/**
 * Attention of single-token rows over quantised K and V as products of bytes, on subgroup matrices of i8.
 *
 * The same cut as attend-decode.ts: one workgroup a (row, split, KV head), all query heads of the GQA group, the same
 * partials; but a workgroup is one subgroup, for it waits for itself alone and a GPU keeps as many of them going as their
 * workgroup memory allows, which here is 4 KB. Scores rest in memory of their own (`scratchScores`) between the passes.
 *
 * A matrix has 16 rows and a GQA group fewer, so the rows hold more than heads: queries are integers of 16 bits in two
 * planes of bytes, and so are the weights of the softmax, and every affine group has its own rows, zero elsewhere. So
 * codes meet exact integers, all sums are exact, and scales and biases are applied to the sums.
 *
 * Keys are staged as bytes, token by token; values turned, dim by dim, four tokens to a word: matrices of bytes are
 * loaded fast only where the bytes that are summed lie together. Matrices are loaded at addresses of 16 bytes; strides of
 * an odd number of 16 bytes keep rows off each other's banks.
 */

import { affineGroups, type KvFormat } from '../../kv.js';
import type { Binding, MatrixConfig, Stage } from '../kernel.js';
import { declareBindings, f32Literal } from '../kernel.js';
import { ATTENTION_SPLIT, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { byteCentre, bytesText, byteUnit, hasBytes, turnBytes } from './attend-planes.js';
import { LOWEST } from './attend-reduce.js';
import type { KvSideSpec } from './kv-format.js';
import { rowsSkipped, sideOf } from './kv-rows.js';

export interface BytesConfig {
  /** 16 × 16 × 32, i8 to i32. */
  readonly matrix: MatrixConfig;
  /** Lanes of a subgroup: 32. */
  readonly subgroupSize: number;
  /** Positions of K that are staged at once. */
  readonly keyTokens: 16 | 32;
}

/** Integers of two planes of bytes reach so far. */
const MOST = 32512;
const ROWS = 16;
const LANES = 32;
const HEAD_DIM = 128;
/** Heads of a group, with those that are not there. */
const HEADS = 4;
/** Positions of a turn: each lane has one. */
const TURN = 32;
/** Dims that a lane unpacks at once; those of 8 bits are two loads. */
const PIECE = 32;
const PIECES = HEAD_DIM / PIECE;

// Strides in vectors of 16 bytes: of a staged key, of a position's sums, of a dim of values, of weights, of the end's sums.
const KEY = HEAD_DIM / 16 + 1;
const SUMS = 5;
const VALUE = TURN / 16 + 1;
const OUT = 9;
/** Values are staged half of the dims at a time; the weights lie behind them. */
const HALF_ROWS = HEAD_DIM / 2;
const WEIGHTS_AT = HALF_ROWS * VALUE;

function areaOf(c: BytesConfig): number {
  return Math.max(c.keyTokens * KEY, TURN * SUMS, ROWS * KEY, WEIGHTS_AT + ROWS * VALUE, ROWS * OUT);
}

function bytesOf(shape: AttendShape, c: BytesConfig): number {
  return areaOf(c) * 16 + (ATTENTION_SPLIT / shape.blockTokens) * 4;
}

const groupsOf = (format: KvFormat): number =>
  format.kind === 'affine' ? affineGroups(format, HEAD_DIM) : 1;

export function bytesFits(shape: AttendShape, c: BytesConfig, workgroupBytes: number): boolean {
  const { key, value, headDim, blockTokens } = shape;
  const { matrix, subgroupSize } = c;
  return (
    hasBytes(key) &&
    hasBytes(value) &&
    headDim === HEAD_DIM &&
    shape.heads / shape.kvHeads <= HEADS &&
    matrix.m === ROWS &&
    matrix.n === 16 &&
    matrix.k === 32 &&
    matrix.component === 'i8' &&
    matrix.result === 'i32' &&
    subgroupSize === LANES &&
    2 * HEADS * Math.max(groupsOf(key), groupsOf(value)) <= ROWS &&
    blockTokens % 16 === 0 &&
    bytesOf(shape, c) <= workgroupBytes
  );
}

/** Bytes of `scratchScores` for one item. */
export function itemScoreBytes(shape: AttendShape): number {
  return shape.kvHeads * ATTENTION_SPLIT * HEADS * 4;
}

const count = (length: number): number[] => Array.from({ length }, (_, i) => i);

/** Roles: step, q, keys, values, tables, scratchSums, scratchTops, scratchScores. */
export function bytesStage(shape: AttendShape, c: BytesConfig): Stage {
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot, window, softcap, rows } = shape;
  const { keyTokens } = c;
  const group = heads / kvHeads;
  const split = ATTENTION_SPLIT;
  const keys = sideOf('keys', shape);
  const values = sideOf('values', shape);
  const { format: keyFormat } = keys;
  const { format: valueFormat } = values;
  if (!hasBytes(keyFormat) || !hasBytes(valueFormat)) throw new RangeError('attend bytes: floats');
  const keyGroups = groupsOf(keyFormat);
  const valueGroups = groupsOf(valueFormat);
  const widthOf = (words: number): 1 | 2 | 4 => (words % 4 === 0 ? 4 : words % 2 === 0 ? 2 : 1);
  /** Dims of K in a lane's piece. */
  const keyDims = keyFormat.kind === 'affine' && keyFormat.bits === 8 ? 16 : PIECE;
  const keyWords = (keys.layout.words * keyDims) / headDim;
  const valueWords = (values.layout.words * PIECE) / headDim;
  const keyWidth = widthOf(keyWords);
  const valueWidth = widthOf(valueWords);
  const typeOf = (width: 1 | 2 | 4): string => (width === 1 ? 'u32' : `vec${width}<u32>`);
  const wordAt = (name: string, width: 1 | 2 | 4, at: string): string =>
    width === 1 ? `${name}[${at}]` : `${name}[(${at}) >> ${width / 2}u][(${at}) & ${width - 1}u]`;
  const register = (prefix: string, width: 1 | 2 | 4, i: number): string =>
    width === 1 ? `${prefix}_${i}` : `${prefix}_${Math.floor(i / width)}.${'xyzw'[i % width]}`;
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'q', access: 'read', type: 'array<f32>' },
    { name: 'keys', access: 'read', type: `array<${typeOf(keyWidth)}>` },
    { name: 'values', access: 'read', type: `array<${typeOf(valueWidth)}>` },
    { name: 'tables', access: 'read', type: 'array<u32>' },
    { name: 'scratchSums', access: 'read_write', type: 'array<f32>' },
    { name: 'scratchTops', access: 'read_write', type: 'array<vec2<f32>>' },
    { name: 'scratchScores', access: 'read_write', type: 'array<vec4<f32>>' },
  ];
  const low = window === null ? null : `max(last, ${window - 1}u) - ${window - 1}u`;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const barrier = (): void => emit('  workgroupBarrier();');
  const less = (n: number): string => (n === 0 ? '' : ` - ${n}u`);
  /** The block that holds position `t` of the split. */
  const blockOf = (t: string, base: number): string => `(entries[(${t}) / ${blockTokens}u]${less(base)})`;
  const vectorOf = (t: string, base: number): string =>
    `(${blockOf(t, base)} * ${kvHeads}u + kv) * ${blockTokens}u + (${t}) % ${blockTokens}u`;
  /** Word of the meta plane: of affine group 0, or of a norm. */
  const metaOf = (side: KvSideSpec, t: string, base: number): string =>
    side.format.kind === 'affine'
      ? `${side.layout.metaAt}u + (${vectorOf(t, base)}) * ${side.layout.groups}u`
      : `${side.layout.metaAt}u + (${blockOf(t, base)} * ${side.layout.metaHeads}u + kv / 2u) * ${blockTokens}u + (${t}) % ${blockTokens}u`;
  const seen = (t: string): string => `first + ${t} <= last${low === null ? '' : ` && first + ${t} >= low`}`;

  emit(`enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${declareBindings(bindings)}
${STEP_WGSL}
alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Sum = subgroup_matrix_result<i32, 16, 16>;
var<workgroup> area: array<vec4<u32>, ${areaOf(c)}>;
var<workgroup> entries: array<u32, ${split / blockTokens}>;
@compute @workgroup_size(${LANES})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let kv = wid.z;
  let item_at = wid.x + wid.y * nwg.x;
  if (item_at >= step[0].w) { return; }
  let item = step[step[2].x + item_at];
  let slot = item.z;
  let last = item.w;
  let first = item.y * ${split}u;
  let reach = min(last - first, ${split - 1}u);
  let scores_at = (item_at * ${kvHeads}u + kv) * ${split}u;
  ${rowsSkipped(rows, `${maxBlocksPerSlot}u`, 'slot')}`);
  if (low !== null) emit(`  let low = ${low};\n  if (first + ${split - 1}u < low) { return; }`);
  emit(
    `  for (var i = lane; i < ${split / blockTokens}u; i += ${LANES}u) { entries[i] = tables[slot * ${maxBlocksPerSlot}u + first / ${blockTokens}u + min(i, reach / ${blockTokens}u)]; }`,
  );
  queries();
  scores();
  softmax();
  weighted();
  emit('}');
  emit(`fn bytes_(v: vec4<i32>) -> u32 {
  let b = bitcast<vec4<u32>>(v) & vec4<u32>(255u);
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}`);

  /** A lane makes a word of four dims of each head, in the order in which keys are staged. */
  function queries(): void {
    const pattern = bytesText(
      keyFormat as Parameters<typeof bytesText>[0],
      headDim,
      keyDims,
      'x',
      () => '0u',
    );
    const run = pattern.words[0]!.dims[1] - pattern.words[0]!.dims[0];
    const each = keyDims / 4;
    emit(
      `  let d = lane / ${each}u * ${keyDims}u + lane % ${each}u / ${run}u * ${4 * run}u + lane % ${each}u % ${run}u;`,
    );
    for (const h of count(group))
      emit(
        `  let q${h} = vec4<f32>(${count(4)
          .map((e) => `q[(item.x * ${heads}u + kv * ${group}u + ${h}u) * ${headDim}u + d + ${e * run}u]`)
          .join(', ')});`,
      );
    const size = keyFormat.kind === 'affine' ? keyFormat.groupSize : headDim;
    for (const h of count(group)) {
      emit(`  let most${h} = max(max(abs(q${h}.x), abs(q${h}.y)), max(abs(q${h}.z), abs(q${h}.w)));
  let peak${h} = subgroupMax(most${h});`);
    }
    for (const h of count(group)) {
      emit(`  let n${h} = vec4<i32>(round(q${h} * select(0.0, ${MOST}.0 / peak${h}, peak${h} > 0.0)));
  let high${h} = (n${h} + vec4<i32>(128)) >> vec4<u32>(8u);
  let words${h} = vec2<u32>(bytes_(high${h}), bytes_(n${h} - high${h} * 256));
  let sum${h} = n${h}.x + n${h}.y + n${h}.z + n${h}.w;`);
      for (const g of count(keyGroups)) {
        const mine = `d / ${size}u == ${g}u`;
        const part = (plane: string): string =>
          keyGroups === 1 ? `words${h}.${plane}` : `select(0u, words${h}.${plane}, ${mine})`;
        for (const [p, plane] of [
          [0, 'x'],
          [1, 'y'],
        ] as const)
          emit(`  area[${((g * 2 + p) * HEADS + h) * KEY}u + lane / 4u][lane % 4u] = ${part(plane)};`);
        emit(
          `  let part${g}_${h} = ${keyGroups === 1 ? `sum${h}` : `select(0, sum${h}, ${mine})`}; let whole${g}_${h} = f32(subgroupAdd(part${g}_${h}));`,
        );
      }
    }
    const vector = (name: (h: number) => string): string =>
      `vec4<f32>(${count(HEADS)
        .map((h) => (h < group ? name(h) : '0.0'))
        .join(', ')})`;
    const unit = (shape.scale * byteUnit(keyFormat, headDim)) / MOST;
    emit(`  let end = ${vector((h) => `peak${h}`)} * ${f32Literal(unit)};`);
    for (const g of count(keyGroups)) emit(`  let whole${g} = ${vector((h) => `whole${g}_${h}`)};`);
    barrier();
    for (const k of count(headDim / 32))
      emit(`  let left${k} = subgroupMatrixLoad<Left, row_major>(&area, ${k * 2}u, ${KEY}u);`);
  }

  /** First pass: a lane ends up with the scores of a position, of all heads. */
  function scores(): void {
    const keyLanes = headDim / keyDims;
    const atOnce = LANES / keyLanes;
    const turns = keyTokens / atOnce;
    const loads = keyWords / keyWidth;
    const blocks = TURN / keyTokens;
    const load = (b: number, at: string): void => {
      for (const u of count(turns)) {
        emit(
          `    { let t = min(${at} + ${b * keyTokens + u * atOnce}u + lane / ${keyLanes}u, ${split - 1}u); let a = (${vectorOf('t', rows.keyBase)}) * ${keys.layout.words / keyWidth}u + lane % ${keyLanes}u * ${loads}u;`,
        );
        for (const i of count(loads)) emit(`      k${b}_${u}_${i} = keys[a + ${i}u];`);
        emit('    }');
      }
    };
    for (const b of count(blocks)) {
      for (const u of count(turns))
        for (const i of count(loads)) emit(`  var k${b}_${u}_${i}: ${typeOf(keyWidth)};`);
      load(b, '0u');
    }
    emit(`  var top = vec4<f32>(${LOWEST});
  for (var base = 0u; base < ${split}u; base += ${TURN}u) {
    if (base > reach) { break; }
    let mine = base + lane;
    let meta_at = ${metaOf(keys, 'mine', rows.keyBase)};`);
    for (const g of count(keyGroups))
      emit(`    let meta${g} = ${wordAt('keys', keyWidth, `meta_at + ${g}u`)};`);
    for (const b of count(blocks)) {
      barrier();
      for (const u of count(turns)) {
        const made = bytesText(
          keyFormat as Parameters<typeof bytesText>[0],
          headDim,
          keyDims,
          `x${b}${u}`,
          (i) => register(`k${b}_${u}`, keyWidth, i),
        );
        emit(
          `    {\n${made.text}\n      let to = (${u * atOnce}u + lane / ${keyLanes}u) * ${KEY}u + lane % ${keyLanes}u * ${keyDims / 16}u;`,
        );
        for (const i of count(keyDims / 16))
          emit(
            `      area[to + ${i}u] = vec4<u32>(${made.words
              .slice(4 * i, 4 * i + 4)
              .map((w) => w.name)
              .join(', ')});`,
          );
        emit('    }');
      }
      barrier();
      load(b, `base + ${TURN}u`);
      for (const n of count(keyTokens / 16)) {
        const s = `s${b * (keyTokens / 16) + n}`;
        emit(`    var ${s} = Sum();`);
        for (const k of count(headDim / 32))
          emit(
            `    ${s} = subgroupMatrixMultiplyAccumulate(left${k}, subgroupMatrixLoad<Right, col_major>(&area, ${n * 16 * KEY + k * 2}u, ${KEY}u), ${s});`,
          );
      }
    }
    barrier();
    for (const n of count(TURN / 16))
      emit(`    subgroupMatrixStore<col_major>(&area, ${n * 16 * SUMS}u, s${n}, ${SUMS}u);`);
    barrier();
    for (const g of count(keyGroups)) {
      if (keyFormat.kind === 'affine')
        emit(
          `    let affine${g} = unpack2x16float(meta${g}); let bias${g} = fma(affine${g}.x, ${f32Literal(byteCentre(keyFormat))}, affine${g}.y);`,
        );
      else
        emit('    let norms = unpack2x16float(meta0); let norm = select(norms.x, norms.y, (kv & 1u) == 1u);');
      emit(
        `    let all${g} = vec4<f32>(bitcast<vec4<i32>>(area[lane * ${SUMS}u + ${g * 2}u]) * 256 + bitcast<vec4<i32>>(area[lane * ${SUMS}u + ${g * 2 + 1}u]));`,
      );
    }
    const sum =
      keyFormat.kind === 'affine'
        ? count(keyGroups)
            .map((g) => `affine${g}.x * all${g} + bias${g} * whole${g}`)
            .join(' + ')
        : 'norm * all0';
    emit(`    var score = (${sum}) * end;`);
    if (softcap !== null)
      emit(
        `    { let e = exp(clamp(2.0 * score / ${f32Literal(softcap)}, vec4<f32>(-80.0), vec4<f32>(80.0))); score = ${f32Literal(softcap)} * (1.0 - 2.0 / (e + 1.0)); }`,
      );
    emit(`    score = select(vec4<f32>(${LOWEST}), score, ${seen('mine')});
    top = max(top, score);
    scratchScores[scores_at + mine] = score;
  }`);
  }

  /** Scale of the values of a position, by their word. */
  function scaleOf(word: string): string {
    return valueFormat.kind === 'affine'
      ? `unpack2x16float(${word}).x`
      : `select(unpack2x16float(${word}).x, unpack2x16float(${word}).y, (kv & 1u) == 1u)`;
  }

  /** The sum of the weights, the sums of biases, and the greatest of what integers will stand for. */
  function softmax(): void {
    const tiles = split / TURN;
    emit('  let all_top = subgroupMax(top);');
    for (const g of count(valueGroups)) emit(`  var peakv${g} = vec4<f32>(); var offsetv${g} = vec4<f32>();`);
    emit('  var sumv = vec4<f32>();\n  {');
    for (const t of count(tiles)) {
      emit(`  let meta_at${t} = ${metaOf(values, `lane + ${t * TURN}u`, rows.valueBase)};
  let s${t} = scratchScores[scores_at + lane + ${t * TURN}u];`);
      for (const g of count(valueGroups))
        emit(`  let m${t}_${g} = ${wordAt('values', valueWidth, `meta_at${t} + ${g}u`)};`);
    }
    for (const t of count(tiles)) {
      emit(`  { let seen = ${seen(`lane + ${t * TURN}u`)};
    let e = select(vec4<f32>(), exp(s${t} - all_top), seen);
    sumv += e;`);
      for (const g of count(valueGroups)) {
        emit(`    peakv${g} = max(peakv${g}, abs(select(vec4<f32>(), e * ${scaleOf(`m${t}_${g}`)}, seen)));`);
        if (valueFormat.kind === 'affine')
          emit(
            `    offsetv${g} += select(vec4<f32>(), e * dot(unpack2x16float(m${t}_${g}), vec2<f32>(${f32Literal(byteCentre(valueFormat))}, 1.0)), seen);`,
          );
      }
      emit('  }');
    }
    emit('  }\n  let all_sum = subgroupAdd(sumv);');
    for (const g of count(valueGroups)) {
      emit(`  let all_peak${g} = subgroupMax(peakv${g});
  let unit${g} = select(vec4<f32>(), vec4<f32>(${MOST}.0) / all_peak${g}, all_peak${g} > vec4<f32>());
  let whole_value${g} = all_peak${g} * ${f32Literal(byteUnit(valueFormat, headDim) / MOST)};`);
      if (valueFormat.kind === 'affine') emit(`  let all_offset${g} = subgroupAdd(offsetv${g});`);
    }
    for (const h of count(group))
      emit(
        `  if (lane == ${h}u) { scratchTops[item_at * ${heads}u + kv * ${group}u + ${h}u] = vec2<f32>(all_top.${'xyzw'[h]}, all_sum.${'xyzw'[h]}); }`,
      );
  }

  /** Second pass, and the end. */
  function weighted(): void {
    const loads = valueWords / valueWidth;
    const load = (at: string): void => {
      emit(
        `    { let t = min(${at} + lane / ${PIECES}u * 4u, ${split - 4}u); let a = (${vectorOf('t', rows.valueBase)}) * ${values.layout.words / valueWidth}u + lane % ${PIECES}u * ${loads}u;`,
      );
      for (const u of count(4))
        for (const i of count(loads))
          emit(`      v${u}_${i} = values[a + ${(u * values.layout.words) / valueWidth + i}u];`);
      emit(`      let own = min(${at} + lane, ${split - 1}u);
      score = scratchScores[scores_at + own];
      let at = ${metaOf(values, 'own', rows.valueBase)};`);
      for (const g of count(valueGroups))
        emit(`      meta${g} = ${wordAt('values', valueWidth, `at + ${g}u`)};`);
      emit('    }');
    };
    for (const u of count(4)) for (const i of count(loads)) emit(`  var v${u}_${i}: ${typeOf(valueWidth)};`);
    emit('  var score: vec4<f32>;');
    for (const g of count(valueGroups)) emit(`  var meta${g}: u32;`);
    load('0u');
    for (const b of count(headDim / 16)) emit(`  var o${b} = Sum();`);
    emit(`  for (var base = 0u; base < ${split}u; base += ${TURN}u) {
    if (base > reach) { break; }
    let seen = ${seen('base + lane')};
    let e = select(vec4<f32>(), exp(score - all_top), seen);`);
    for (const g of count(valueGroups))
      emit(`    let w${g} = vec4<i32>(round(select(vec4<f32>(), e * ${scaleOf(`meta${g}`)}, seen) * unit${g}));
    let high${g} = (w${g} + vec4<i32>(128)) >> vec4<u32>(8u);`);
    const words = count(4).map((i) => {
      const g = i >> 1;
      if (g >= valueGroups) return '0u';
      return i & 1 ? `bytes_(w${g} - high${g} * 256)` : `bytes_(high${g})`;
    });
    // Four bytes of a position to a byte of four positions, through the place where values will be staged.
    barrier();
    emit(`    area[lane % 4u * 8u + lane / 4u] = vec4<u32>(${words.join(', ')});`);
    barrier();
    for (const u of count(4)) emit(`    let from${u} = area[${u * 8}u + lane / 4u][lane % 4u];`);
    emit(turnBytes('turned', ['from0', 'from1', 'from2', 'from3']));
    barrier();
    for (const b of count(4))
      emit(
        `    { let at = ${WEIGHTS_AT * 4}u + (lane % 4u * 4u + ${b}u) * ${VALUE * 4}u + lane / 4u; area[at / 4u][at % 4u] = turned${b}; }`,
      );
    const word = (u: number) => (i: number) => register(`v${u}`, valueWidth, i);
    const direct = valueFormat.kind === 'affine' && [2, 4, 8].includes(valueFormat.bits);
    const made = direct
      ? []
      : count(4).map((u) =>
          bytesText(valueFormat as Parameters<typeof bytesText>[0], headDim, PIECE, `x${u}`, word(u)),
        );
    for (const { text } of made) emit(text);
    for (const half of [0, 1]) {
      if (half === 1) barrier();
      emit(`    { let to = lane % ${PIECES}u * ${2 * VALUE * 4}u + lane / ${PIECES}u;`);
      let i = 0;
      const store = (value: string): void => {
        const row = Math.floor(i / 2) * 8 + (i % 2);
        emit(`      { let at = to + ${row * VALUE * 4}u; area[at / 4u][at % 4u] = ${value}; }`);
        i++;
      };
      if (valueFormat.kind === 'affine' && direct) {
        // Turned as they are stored, so that a word of several codes for each byte is turned once.
        const { bits } = valueFormat;
        const each = valueWords / 2;
        for (const w of count(each)) {
          const name = `y${w}_`;
          const at = half * each + w;
          emit(turnBytes(name, [word(0)(at), word(1)(at), word(2)(at), word(3)(at)]));
          for (const b of count(4))
            for (const f of count(8 / bits))
              store(
                bits === 8
                  ? `${name}${b} ^ 0x80808080u`
                  : `(${name}${b} >> ${f * bits}u) & 0x${((2 ** bits - 1) * 0x01010101).toString(16)}u`,
              );
        }
      } else {
        for (const k of count(4)) {
          const name = `y${k}_`;
          const of = (u: number): string => made[u]!.words[half * 4 + k]!.name;
          emit(turnBytes(name, [of(0), of(1), of(2), of(3)]));
          for (const b of count(4)) store(`${name}${b}`);
        }
      }
      emit('    }');
      barrier();
      if (half === 0)
        emit(`    let weights = subgroupMatrixLoad<Left, row_major>(&area, ${WEIGHTS_AT}u, ${VALUE}u);`);
      else load(`base + ${TURN}u`);
      for (const b of count(HALF_ROWS / 16)) {
        const o = `o${half * (HALF_ROWS / 16) + b}`;
        emit(
          `    ${o} = subgroupMatrixMultiplyAccumulate(weights, subgroupMatrixLoad<Right, col_major>(&area, ${b * 16 * VALUE}u, ${VALUE}u), ${o});`,
        );
      }
    }
    emit('  }');
    // Two blocks of columns at a time; a lane has a column.
    for (let b = 0; b < headDim / 16; b += 2) {
      barrier();
      for (const i of [0, 1]) emit(`  subgroupMatrixStore<row_major>(&area, ${i * 4}u, o${b + i}, ${OUT}u);`);
      barrier();
      const half = Math.floor((b * 16) / HALF_ROWS);
      emit(`  { let row = ${(b * 16) % HALF_ROWS}u + lane;
    let i = row / 8u * 2u + row % 2u;
    let dim = row / 2u % 4u * ${PIECE}u + ${
      valueFormat.kind === 'turboquant' ? `${half * 4}u + i / 4u + i % 4u * 8u` : `${half * 16}u + i`
    };`);
      const dimGroup = valueGroups === 1 ? null : `dim >= ${headDim / 2}u`;
      for (const h of count(group)) {
        const part = (g: number): string => {
          const at = (plane: number): string =>
            `f32(bitcast<i32>(area[${((g * 2 + plane) * HEADS + h) * OUT}u + lane / 4u][lane % 4u]))`;
          const offset = valueFormat.kind === 'affine' ? ` + all_offset${g}.${'xyzw'[h]}` : '';
          return `fma(${at(0)}, 256.0, ${at(1)}) * whole_value${g}.${'xyzw'[h]}${offset}`;
        };
        const value = dimGroup === null ? part(0) : `select(${part(0)}, ${part(1)}, ${dimGroup})`;
        emit(
          `    scratchSums[(item_at * ${heads}u + kv * ${group}u + ${h}u) * ${headDim}u + dim] = ${value};`,
        );
      }
      emit('  }');
    }
  }

  return {
    label: `attend bytes ${heads}/${kvHeads}×${headDim} k${keyTokens}${rows.only === 'young' ? ' young' : ''}`,
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
