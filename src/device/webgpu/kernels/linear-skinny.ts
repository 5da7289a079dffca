/**
 * Products of a few rows, up to 32, on subgroup matrices: every code is unpacked once for all of them, and what the
 * kernel is built around is the stream of codes.
 *
 * A workgroup makes `bn` features of all rows. Along K it stages `bn × bk` of W, dequantised to halves, and as much of x
 * in workgroup memory; its subgroups share each step along K, every one with all features, and add up at the end. Codes
 * are `depth` steps ahead in registers. W stands left and x right, so that up to eight rows take a matrix eight wide.
 *
 * Halves leave the unpacking in pairs that lie four columns apart (two for 8 bits). They are staged in that order, and x
 * in the same: a sum does not mind. Lanes read 64 bytes of a row in fours, or 32 in twos where steps are short, and write
 * 16 bytes of halves each; of four, two write their halves in another order, or they would wait for the same banks.
 *
 * RMS norm folds in as in the GEMV: x times the norm's weight is staged, `1 / rms` comes last.
 *
 * What was tried: docs/lab/2026-11-22-products-of-few-rows.md.
 */

import type { MatrixConfig } from '../kernel.js';
import { rowMetaWords } from '../weights-layout.js';
import { groupCols, groupScales, scaleWords } from './group-scales.js';
import { dequantisePairs, hasPairs, stagedOrder, tableOf } from './linear-dequantise.js';
import {
  declareBindings,
  ERF_TEXT,
  floatText,
  gatedText,
  HALVES_TEXT,
  type LinearKernel,
  type LinearSpec,
  linearBindings,
  outCols,
  weightName,
} from './linear-spec.js';
import { fillTable, TABLE_BYTES } from './table-numbers.js';

export interface SkinnyConfig {
  /** 16 × 8 × 16 or 16 × 16 × 16 of halves with f32 results. */
  readonly matrix: MatrixConfig;
  readonly subgroupSize: number;
  readonly subgroups: number;
  /** Features of a workgroup, and columns of a step. */
  readonly bn: number;
  readonly bk: number;
  /** Steps whose codes are on their way. */
  readonly depth: number;
  /** Copies of the tiles: with 2, one barrier a step. */
  readonly buffers: 1 | 2;
  readonly workgroupBytes: number;
}

interface Plan {
  /** Halves from a staged row to the next. */
  readonly stride: number;
  /** Matrices of 16 features, and of rows. */
  readonly down: number;
  readonly across: number;
  /** Rows staged. */
  readonly rows: number;
  /** Matrices of features that a round of the end takes through workgroup memory. */
  readonly round: number;
  readonly bytes: number;
}

function planSkinny(spec: LinearSpec, c: SkinnyConfig): Plan {
  const { matrix } = c;
  const stride = c.bk + 8;
  const across = Math.ceil(spec.rows / matrix.n);
  const rows = across * matrix.n;
  const round = spec.glu === null ? 1 : 2;
  const tiles = c.buffers * (c.bn + rows) * stride * 2;
  const scratch = c.subgroups * round * 16 * rows * 4;
  const squares = spec.norm === null ? 0 : ((spec.rows * c.bk) / 8 + 32) * 4;
  const table = tableOf(spec.weight, 'f16') === null ? 0 : TABLE_BYTES;
  return { stride, down: c.bn / 16, across, rows, round, bytes: tiles + scratch + squares + table };
}

/** Columns of a load of 16 bytes. */
const unitCols = ({ weight }: LinearSpec): number => (weight.kind !== 'float' && weight.bits === 8 ? 16 : 32);

/** Whether the kernel exists for this spec. */
export function skinnyFits(spec: LinearSpec, c: SkinnyConfig): boolean {
  const { weight, k, rows } = spec;
  const { matrix, bn, bk, subgroups, subgroupSize, depth } = c;
  if (weight.kind === 'float' || !hasPairs(weight)) return false;
  if (weight.kind === 'affine' && weight.meta !== 'f16') return false;
  if (matrix.component !== 'f16' || matrix.result !== 'f32' || matrix.m !== 16 || matrix.k !== 16)
    return false;
  if (spec.x !== 'f32' || spec.out !== 'f32' || spec.residual === 'f16') return false;
  if (spec.glu !== null && (spec.residual !== null || spec.n % 2 !== 0 || bn % 32 !== 0)) return false;
  const cols = unitCols(spec);
  if (rows > 32 || k % bk !== 0 || bk % 64 !== 0 || bk % (2 * cols) !== 0 || bn % 16 !== 0) return false;
  if ((groupCols(weight) < cols && weight.kind === 'affine') || spec.xStride % 8 !== 0) return false;
  if (
    (bk / 16) % subgroups !== 0 ||
    (subgroups * subgroupSize) % (bk / cols) !== 0 ||
    (bn * bk) / cols < subgroups * subgroupSize
  )
    return false;
  if (((bn * bk) / cols) % (subgroups * subgroupSize) !== 0 || depth < 1) return false;
  return planSkinny(spec, c).bytes <= c.workgroupBytes;
}

/** The order of the sums, as text: which columns a subgroup multiplies, and the matrices it does so with. */
export function skinnyOrder({ bk, subgroups, matrix }: SkinnyConfig): string {
  return `k${bk} s${subgroups} n${matrix.n}`;
}

export function skinnyKernel(spec: LinearSpec, c: SkinnyConfig): LinearKernel {
  const { weight, n, k } = spec;
  if (!skinnyFits(spec, c) || weight.kind === 'float')
    throw new RangeError(`no skinny kernel for ${spec.n} × ${spec.k}`);
  const { stride, down, across, rows, round, bytes } = planSkinny(spec, c);
  const { matrix, bn, bk, subgroups, depth, buffers } = c;
  const threads = subgroups * c.subgroupSize;
  const features = outCols(spec);
  const featuresPerTile = spec.glu === null ? bn : bn / 2;
  const cols = unitCols(spec);
  const acrossUnits = bk / cols;
  const wPer = (bn * bk) / cols / threads;
  const xUnits = (spec.rows * bk) / 8;
  const xPer = Math.ceil(xUnits / threads);
  const steps = k / bk;
  const vectors = stride / 8;
  const stores = cols / 8;
  // All pieces of x of a thread stand in the same columns, or each has its own.
  const gammaOf = (i: number): number => (threads % (bk / 8) === 0 ? 0 : i);
  const hasGamma = (i: number): boolean => spec.norm !== null && gammaOf(i) === i;
  const bindings = linearBindings(spec);
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const types = {
    x: 'vec4<f32>',
    codes: 'vec4<u32>',
    metas: 'u32',
    out: 'f32',
    bias: 'f32',
    residual: 'f32',
    norm: 'vec4<f32>',
    step: 'vec4<u32>',
  } as const;
  emit(`enable f16;
enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${declareBindings(bindings, ['out'], types)}
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, ${matrix.n}, 16>;
alias Sum = subgroup_matrix_result<f32, ${matrix.n}, 16>;
var<workgroup> tw: array<vec4<u32>, ${buffers * bn * vectors}>;
var<workgroup> tx: array<vec4<u32>, ${buffers * rows * vectors}>;
var<workgroup> scratch: array<f32, ${subgroups * round * 16 * rows}>;`);
  if (spec.norm !== null)
    emit(`var<workgroup> squares: array<f32, ${xUnits}>;\nvar<workgroup> inverses: array<f32, 32>;`);
  const table = tableOf(weight, 'f16');
  if (table !== null) emit(table);
  if (spec.glu === 'gelu') emit(ERF_TEXT);
  emit(HALVES_TEXT);
  emit(`@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32, @builtin(subgroup_id) sub: u32) {
  let n0 = wid.x * ${featuresPerTile}u;`);
  // Word j of a lane's four goes to j ^ turn: lanes of a row would else write to the same banks.
  const turns = stores === 4;
  if (turns) {
    emit(`  let turn = ${acrossUnits >= 8 ? '(lid >> 1u) & 3u' : 'lid & 2u'};`);
    emit(`  let swap = (turn & 2u) != 0u;${acrossUnits >= 8 ? ' let cross = (turn & 1u) != 0u;' : ''}`);
  }
  const scales = groupScales(weight, `${k / 32}u`, cols);
  const metaNames = (slot: number, i: number): string[] =>
    count(scaleWords(weight)).map((m) => `m${slot}_${i}_${m}`);
  const unitAt = (i: number, s: string): string => `(${s} * ${acrossUnits}u + wu${i} % ${acrossUnits}u)`;
  for (const i of count(wPer)) {
    emit(`  let wu${i} = lid + ${i * threads}u; let wr${i} = wu${i} / ${acrossUnits}u;`);
    const feature =
      spec.glu === null
        ? `min(n0 + wr${i}, ${n - 1}u)`
        : `min(n0 + wr${i} / 32u * 16u + wr${i} % 16u, ${features - 1}u) + ((wr${i} / 16u) & 1u) * ${features}u`;
    emit(`  let wf${i} = ${feature};`);
    emit(`  let wb${i} = wf${i} * ${k / cols}u + wu${i} % ${acrossUnits}u;`);
    emit(`  let mb${i} = wf${i} * ${rowMetaWords(weight, k)}u;`);
    emit(`  let wt${i} = wr${i} * ${vectors}u + wu${i} % ${acrossUnits}u * ${stores}u;`);
  }
  for (const i of count(xPer)) {
    emit(
      `  let xu${i} = lid + ${i * threads}u; let xr${i} = xu${i} / ${bk / 8}u; let xc${i} = xu${i} % ${bk / 8}u;`,
    );
    emit(`  let xb${i} = min(xr${i}, ${spec.rows - 1}u) * ${spec.xStride / 4}u + xc${i} * 2u;`);
    emit(`  var xa${i}_0: vec4<f32>; var xa${i}_1: vec4<f32>;`);
    if (spec.norm !== null) emit(`  var sq${i} = 0.0;`);
    if (hasGamma(i)) emit(`  var ga${i}_0: vec4<f32>; var ga${i}_1: vec4<f32>;`);
  }
  /** Blocks say where in them a unit lies: the step whose codes are in the registers. */
  const placed = weight.kind !== 'affine';
  for (const d of count(depth)) {
    if (placed) emit(`  var at${d}: u32;`);
    for (const i of count(wPer))
      emit(
        `  var w${d}_${i}: vec4<u32>;${metaNames(d, i)
          .map((name) => ` var ${name}: u32;`)
          .join('')}`,
      );
  }
  const guardX = (i: number): string => ((i + 1) * threads > xUnits ? `if (xu${i} < ${xUnits}u) ` : '');

  const loadW = (slot: number, step: string): void => {
    emit(`  { let s = ${step};${placed ? ` at${slot} = s;` : ''}`);
    for (const i of count(wPer)) {
      emit(`    w${slot}_${i} = codes[wb${i} + s * ${bk / cols}u];`);
      const from = scales.words(unitAt(i, 's'));
      metaNames(slot, i).forEach((name, m) => {
        emit(`    ${name} = metas[mb${i} + ${from[m]}];`);
      });
    }
    emit('  }');
  };
  const loadX = (step: string): void => {
    emit(`  { let s = ${step};`);
    for (const i of count(xPer))
      for (const h of [0, 1]) {
        emit(`    xa${i}_${h} = x[xb${i} + s * ${bk / 4}u + ${h}u];`);
        if (hasGamma(i)) emit(`    ga${i}_${h} = norm[s * ${bk / 4}u + xc${i} * 2u + ${h}u];`);
      }
    emit('  }');
  };
  const store = (slot: number, buffer: number): void => {
    for (const i of count(wPer)) {
      emit('  {');
      const w = turns ? 'w' : `w${slot}_${i}`;
      if (turns && acrossUnits >= 8) {
        emit(`    let swapped = select(w${slot}_${i}, w${slot}_${i}.zwxy, swap);`);
        emit('    let w = select(swapped, swapped.yxwz, cross);');
      } else if (turns) emit(`    let w = select(w${slot}_${i}, w${slot}_${i}.zwxy, swap);`);
      const { prepare, pairs } = dequantisePairs(
        weight,
        ['x', 'y', 'z', 'w'].map((e) => `${w}.${e}`),
        { words: metaNames(slot, i), at: unitAt(i, `at${slot}`), scales, ...(turns ? { swap: 'swap' } : {}) },
      );
      for (const text of prepare) emit(`    ${text}`);
      for (const j of count(stores)) {
        const at = turns ? `(turn ^ ${j}u)` : `${j}u`;
        const words = pairs.slice(4 * j, 4 * j + 4).map((p) => `bitcast<u32>(${p})`);
        emit(`    tw[wt${i} + ${at} + ${buffer * bn * vectors}u] = vec4<u32>(${words.join(', ')});`);
      }
      emit('  }');
    }
    const order = stagedOrder(weight.bits as 4 | 8);
    for (const i of count(xPer)) {
      emit(`  ${guardX(i)}{`);
      if (spec.norm !== null)
        emit(
          `    sq${i} += dot(xa${i}_0, xa${i}_0) + dot(xa${i}_1, xa${i}_1); xa${i}_0 *= ga${gammaOf(i)}_0; xa${i}_1 *= ga${gammaOf(i)}_1;`,
        );
      emit(`    let h0 = halves_(xa${i}_0); let h1 = halves_(xa${i}_1);`);
      const half = (d: number): string => `h${d >> 2}.${'xyzw'[d & 3]}`;
      const words = order.map(([a, b]) => `bitcast<u32>(vec2<f16>(${half(a)}, ${half(b)}))`);
      emit(
        `    tx[xr${i} * ${vectors}u + xc${i} + ${buffer * rows * vectors}u] = vec4<u32>(${words.join(', ')});`,
      );
      emit('  }');
    }
  };
  const multiply = (buffer: number): void => {
    const own = bk / subgroups;
    for (let kk = 0; kk < own; kk += 16) {
      const at = `sub * ${own / 8}u + ${kk / 8}u`;
      emit('  {');
      for (const j of count(across))
        emit(
          `    let b${j} = subgroupMatrixLoad<Right, col_major>(&tx, ${(buffer * rows + j * matrix.n) * vectors}u + ${at}, ${vectors}u);`,
        );
      for (const i of count(down)) {
        emit(
          `    let a${i} = subgroupMatrixLoad<Left, row_major>(&tw, ${(buffer * bn + i * 16) * vectors}u + ${at}, ${vectors}u);`,
        );
        for (const j of count(across))
          emit(`    c${i}_${j} = subgroupMatrixMultiplyAccumulate(a${i}, b${j}, c${i}_${j});`);
      }
      emit('  }');
    }
  };

  for (const i of count(down)) for (const j of count(across)) emit(`  var c${i}_${j} = Sum();`);
  if (table !== null) emit(`  ${fillTable(threads)}`);
  // With two copies of the tiles the first is filled before any barrier.
  if (table !== null && buffers === 2) emit('  workgroupBarrier();');
  for (const d of count(depth)) loadW(d, `${Math.min(d, steps - 1)}u`);
  loadX('0u');
  const unroll = buffers === 2 && depth % 2 === 1 ? depth * 2 : depth;
  emit(`  for (var t = 0u; t < ${steps}u; t += ${unroll}u) {`);
  for (const u of count(unroll)) {
    const guarded = u > 0 && steps % unroll !== 0;
    const d = u % depth;
    if (guarded) emit(`  if (t + ${u}u < ${steps}u) {`);
    if (buffers === 1) emit('  workgroupBarrier();');
    store(d, buffers === 1 ? 0 : u & 1);
    emit('  workgroupBarrier();');
    loadW(d, `min(t + ${u + depth}u, ${steps - 1}u)`);
    loadX(`min(t + ${u + 1}u, ${steps - 1}u)`);
    multiply(buffers === 1 ? 0 : u & 1);
    if (guarded) emit('  }');
  }
  emit('  }');

  if (spec.norm !== null) {
    for (const i of count(xPer)) emit(`  ${guardX(i)}{ squares[xu${i}] = sq${i}; }`);
    emit(`  workgroupBarrier();
  if (lid < ${spec.rows}u) {
    var sum = 0.0;
    for (var i = 0u; i < ${bk / 8}u; i++) { sum += squares[lid * ${bk / 8}u + i]; }
    inverses[lid] = inverseSqrt(sum / ${k}.0 + ${floatText(spec.norm.eps)});
  }`);
  }
  const area = 16 * matrix.n;
  const perSub = round * across * area;
  for (let i0 = 0; i0 < down; i0 += round) {
    emit('  workgroupBarrier();');
    for (const i of count(round))
      for (const j of count(across))
        emit(
          `  subgroupMatrixStore<row_major>(&scratch, sub * ${perSub}u + ${(i * across + j) * area}u, c${i0 + i}_${j}, ${matrix.n}u);`,
        );
    emit(`  workgroupBarrier();
  for (var e = lid; e < ${16 * spec.rows}u; e += ${threads}u) {
    let row = e / 16u;
    let feature = n0 + ${(i0 / round) * 16}u + e % 16u;
    if (feature < ${features}u) {
      let at = row / ${matrix.n}u * ${area}u + e % 16u * ${matrix.n}u + row % ${matrix.n}u;`);
    const sum = (extra: number): string =>
      count(subgroups)
        .map((s) => `scratch[at + ${s * perSub + extra}u]`)
        .join(' + ');
    emit(`      var value = ${sum(0)};`);
    if (spec.norm !== null) emit('      value *= inverses[row];');
    if (spec.bias) emit('      value += bias[feature];');
    if (spec.glu !== null) {
      emit(`      var up = ${sum(across * area)};`);
      if (spec.norm !== null) emit('      up *= inverses[row];');
      if (spec.bias) emit(`      up += bias[feature + ${features}u];`);
      emit(`      value = ${gatedText(spec.glu, 'value', 'up')};`);
    }
    emit(`      let to = row * ${spec.outStride}u + ${spec.outOffset}u + feature;`);
    if (spec.residual !== null) emit('      value += residual[to];');
    emit('      out[to] = value;\n    }\n  }');
  }
  emit('}');
  const tiles = Math.ceil(features / featuresPerTile);
  return {
    label: `skinny-${weightName(weight)}-${n}x${k}-m${spec.rows}-t${bn}x${bk}-s${subgroups}d${depth}b${buffers}`,
    wgsl: lines.join('\n'),
    bindings,
    writes: ['out'],
    types,
    workgroups: [tiles, 1, 1],
    threads,
    workgroupBytes: bytes,
  };
}
