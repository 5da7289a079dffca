/**
 * GEMM on subgroup matrices, from a handful of rows up.
 *
 * A workgroup makes a `bm × bn` tile of the output. Along K it stages `bm × bk` of x and `bn × bk` of W in workgroup
 * memory, W dequantised on the way, so a code is unpacked once per tile and not once per row. Rows there are padded
 * by 16 bytes, so that the eight rows of a matrix load fall into different banks. What the next steps need is on its
 * way from memory into registers while the matrices of this one multiply; codes may be fetched for two steps at once (`paired`), for
 * what such a kernel waits for is the pipe of loads and stores, and a load costs it the lines that it touches.
 *
 * Subgroups share the tile as `sm × sn`, and with `sk` > 1 they also take parts of each step along K: for few rows
 * the tile is small and the stream of weights is what matters, so many subgroups load and few results are summed.
 *
 * Where tiles are so few that a large GPU would idle, several workgroups share one along K (`splitK`), each with sums of its own,
 * which linear-split-k.ts puts together.
 *
 * Sums are f32 where the device offers f32 results. WGSL gives no access to the elements of a matrix: a plain f32
 * result is stored, and a residual loaded, as matrices; every other epilogue goes through workgroup memory.
 */

import { rowCount } from '../step-buffer.js';
import { rowMetaWords } from '../weights-layout.js';
import { groupScales, scaleWords } from './group-scales.js';
import { dequantiseQuads, tableOf, weightUnit } from './linear-dequantise.js';
import { matrixGemmEnd, matrixGemmStart, TILES } from './linear-matrix-end.js';
import {
  type MatrixGemmConfig,
  matrixGemmFits,
  matrixGemmLayout,
  matrixGemmThreads,
} from './linear-matrix-plan.js';
import {
  declareBindings,
  ERF_TEXT,
  type ExpertStack,
  HALF_TEXT,
  HALVES_TEXT,
  type LinearKernel,
  type LinearSpec,
  linearBindings,
  outCols,
  STACK_TILES,
  weightName,
} from './linear-spec.js';
import { fillTable } from './table-numbers.js';

export function matrixGemmKernel(spec: LinearSpec, c: MatrixGemmConfig): LinearKernel {
  const layout = matrixGemmLayout(spec, c);
  if (layout === null || !matrixGemmFits(spec, c)) throw new RangeError(`no GEMM for ${spec.n} × ${spec.k}`);
  const { component, stride } = layout;
  const { matrix, bm, bn, bk, sm, sn, sk, depth, buffers, rowsFirst = false, splitK = 1, paired = false } = c;
  const { weight, n, k, rows } = spec;
  const quantised = weight.kind === 'float' ? null : weight;
  const affine = weight.kind === 'affine' ? weight : null;
  const unit = weightUnit(spec.weight);
  const threads = matrixGemmThreads(c);
  const { loaders = 1 } = c;
  const features = outCols(spec);
  const featuresPerTile = spec.glu === null ? bn : bn / 2;
  const down = bm / sm / matrix.m;
  const across = bn / sn / matrix.n;
  /** Components of an element of the tiles. */
  const wide = 4;
  const bindings = linearBindings(spec);
  /** Steps whose codes are fetched at once, of which each takes a part of a unit's columns. */
  const span = paired ? 2 : 1;
  const wUnits = (span * bn * bk) / unit.cols;
  const wPer = Math.ceil(wUnits / threads);
  const xUnits = (bm * bk) / 8;
  const xPer = Math.ceil(xUnits / threads);
  const unitsAcross = (span * bk) / unit.cols;
  const wordsPerRow = weight.kind === 'float' ? (weight.dtype === 'f32' ? k : k / 2) : (k * weight.bits) / 32;
  const loadsPerRow = wordsPerRow / unit.vector;
  const vector = unit.vector === 1 ? 'u32' : `vec${unit.vector}<u32>`;
  const xLoads = spec.x === 'f32' ? 2 : 1;
  const steps = k / bk / splitK;
  /** Eights of columns that a step has of a unit, of a pair of steps. */
  const eights = unit.cols / 2 / 8;
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };

  emit(`enable subgroups;`);
  const halfWeights = weight.kind === 'float' && weight.dtype === 'f16';
  if (component === 'f16' || spec.x === 'f16' || spec.out === 'f16' || spec.residual === 'f16' || halfWeights)
    emit('enable f16;');
  emit('enable chromium_experimental_subgroup_matrix;');
  emit('diagnostic(off, chromium.subgroup_matrix_uniformity);');
  const types = {
    x: spec.x === 'f32' ? 'vec4<f32>' : 'vec4<u32>',
    codes: vector,
    metas: 'u32',
    out: spec.out,
    bias: 'f32',
    residual: spec.residual ?? 'f32',
    step: 'vec4<u32>',
    [STACK_TILES]: 'u32',
  } as const;
  emit(declareBindings(bindings, ['out'], types));
  emit(`alias Left = subgroup_matrix_left<${component}, ${matrix.k}, ${matrix.m}>;`);
  emit(`alias Right = subgroup_matrix_right<${component}, ${matrix.n}, ${matrix.k}>;`);
  emit(`alias Sum = subgroup_matrix_result<f32, ${matrix.n}, ${matrix.m}>;`);
  // Side by side in one array, for the results take the place of both.
  const wFrom = buffers * bm * stride;
  emit(
    `var<workgroup> ${TILES}: array<vec4<${component}>, ${layout.bytes / (wide * (component === 'f16' ? 2 : 4))}>;`,
  );
  const table = tableOf(weight, component);
  if (table !== null) emit(table);
  if (spec.glu === 'gelu') emit(ERF_TEXT);
  if (component === 'f16' && spec.x === 'f32') emit(HALVES_TEXT);
  if (spec.out === 'f16') emit(HALF_TEXT);
  emit(`@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32, @builtin(subgroup_id) sub: u32) {
  let n0 = wid.${rowsFirst ? 'y' : 'x'} * ${featuresPerTile}u;
  let m0 = wid.${rowsFirst ? 'x' : 'y'} * ${bm}u;${spec.stack === undefined ? '' : `\n  ${stackText(spec, spec.stack)}`}
  let rows = ${spec.stack !== undefined ? `m0 + ${bm}u` : spec.rowKind === undefined ? `${rows}u` : rowCount(spec.rowKind)};
  let subK = sub % ${sk}u;
  let subN = sub / ${sk}u % ${sn}u;
  let subM = sub / ${sk * sn}u;`);

  // Where this thread's units come from and go to. Of pairs, which have few registers left, as far from the first one as threads
  // reach, where nothing lies between; a prompt's tiles were 3 % slower that way.
  const rowsApart = threads / unitsAcross;
  const even =
    paired &&
    features % featuresPerTile === 0 &&
    Number.isInteger(rowsApart) &&
    (spec.glu === null || rowsApart % (2 * matrix.n) === 0);
  const featuresApart = spec.glu === null ? rowsApart : rowsApart / 2;
  const own = even ? count(1) : count(wPer);
  const place = (name: string, i: number, each: number): string =>
    even ? `${name}0${i === 0 ? '' : ` + ${i * each}u`}` : `${name}${i}`;
  const codesAt = (i: number): string => place('wb', i, featuresApart * loadsPerRow);
  const tileAt = (i: number): string => place('wt', i, (rowsApart * stride) / 4);
  const scales = quantised && groupScales(quantised, `${k / 32}u`, unit.cols);
  const metaWords = rowMetaWords(weight, k);
  const metaNames = (slot: number, i: number): string[] =>
    count(quantised === null ? 0 : scaleWords(quantised)).map(
      (m) => `m${slot}_${i}${m === 0 ? '' : `_${m}`}`,
    );
  /** Which unit of a row a thread has in a step, or pair of steps. */
  const unitAt = (i: number, s: string): string =>
    `(${s} * ${unitsAcross}u + ${even ? 'wu0' : `wu${i}`} % ${unitsAcross}u)`;
  /** Metas of a row in a pair of steps, where that is whole groups; else 0. */
  const metasAdvance =
    !paired || affine === null || (2 * bk) % affine.groupSize !== 0 ? 0 : (2 * bk) / affine.groupSize;
  const metasAt = (i: number, s: string): string[] => {
    const start = place('mb', i, featuresApart * metaWords);
    if (metasAdvance > 0) return [`${start} + ${s} * ${metasAdvance}u`];
    return scales!.words(unitAt(i, s)).map((word) => `${start} + ${word}`);
  };
  for (const i of own) {
    emit(`  let wu${i} = lid + ${i * threads}u;`);
    emit(`  let wr${i} = wu${i} / ${unitsAcross}u;`);
    const feature =
      spec.glu === null
        ? `min(n0 + wr${i}, ${n - 1}u)`
        : `min(n0 + wr${i} / ${2 * matrix.n}u * ${matrix.n}u + wr${i} % ${matrix.n}u, ${features - 1}u) + ((wr${i} / ${matrix.n}u) & 1u) * ${features}u`;
    emit(`  let wf${i} = ${feature}${spec.stack === undefined ? '' : ' + stack_row'};`);
    emit(`  let wb${i} = wf${i} * ${loadsPerRow}u + wu${i} % ${unitsAcross}u * ${unit.loads}u;`);
    if (quantised !== null) {
      const group =
        metasAdvance > 0 ? ` + wu${i} % ${unitsAcross}u * ${unit.cols}u / ${affine!.groupSize}u` : '';
      emit(`  let mb${i} = wf${i} * ${metaWords}u${group};`);
    }
    emit(`  let wt${i} = (wr${i} * ${stride}u + wu${i} % ${unitsAcross}u * ${unit.cols / span}u) / 4u;`);
  }
  if (spec.heads !== undefined) {
    const { rows: each, first, from, step } = spec.heads;
    emit(`  let head_x = ${from / 4}u + (${first}u + n0 / ${each}u) * ${step / 4}u;`);
  }
  for (const i of count(xPer)) {
    emit(`  let xu${i} = lid + ${i * threads}u;`);
    emit(`  let xr${i} = xu${i} / ${bk / 8}u;`);
    const perLoad = spec.x === 'f32' ? 4 : 8;
    // Of a pair of steps, those columns that the units' halves are.
    const piece = `xu${i} % ${bk / 8}u`;
    const column = paired ? `(${piece} / ${eights}u * ${2 * eights}u + ${piece} % ${eights}u)` : piece;
    const place = `min(m0 + xr${i}, rows - 1u)`;
    const rowsAt = spec.stack?.rowsAt ?? null;
    const ofHead = spec.heads === undefined ? '' : ' + head_x';
    emit(
      `  let xb${i} = ${rowsAt === null ? place : `${STACK_TILES}[${rowsAt}u + ${place}]`} * ${spec.xStride / perLoad}u + ${column} * ${8 / perLoad}u${ofHead};`,
    );
    emit(`  let xt${i} = (xr${i} * ${stride}u + xu${i} % ${bk / 8}u * 8u) / 4u;`);
  }
  /** Blocks say where in them a unit lies: the steps whose words are in the registers. */
  const placed = quantised !== null && affine === null;
  for (const d of count(depth)) {
    if (placed && (!paired || d === 0)) emit(`  var at${d}: u32;`);
    for (const i of paired && d > 0 ? [] : count(wPer)) {
      for (const l of count(unit.loads)) emit(`  var w${d}_${i}_${l}: ${vector};`);
      for (const name of metaNames(d, i)) emit(`  var ${name}: u32;`);
    }
    for (const i of count(xPer))
      for (const l of count(xLoads))
        emit(`  var x${d}_${i}_${l}: ${spec.x === 'f32' ? 'vec4<f32>' : 'vec4<u32>'};`);
  }

  /** A step of this slice, of all steps. */
  const inSlice = (step: string, all: number): string => (splitK === 1 ? step : `wid.z * ${all}u + ${step}`);
  /** Fetches the weights of a step, or of a pair of steps, into registers. */
  const loadWeights = (slot: number, step: string): void => {
    emit('  {');
    emit(`    let s = ${inSlice(step, steps / span)};`);
    const advance = unitsAcross * unit.loads;
    if (placed) emit(`    at${slot} = s;`);
    for (const i of count(wPer)) {
      for (const l of count(unit.loads))
        emit(`    w${slot}_${i}_${l} = codes[${codesAt(i)} + s * ${advance}u${l > 0 ? ` + ${l}u` : ''}];`);
      if (quantised === null) continue;
      const from = metasAt(i, 's');
      metaNames(slot, i).forEach((name, m) => {
        emit(`    ${name} = metas[${from[m]}];`);
      });
    }
    emit('  }');
  };
  /** Fetches x of a step; of the first or second step of a pair. */
  const loadX = (slot: number, step: string, half = 0): void => {
    emit('  {');
    emit(`    let s = ${inSlice(step, steps / span)};`);
    const perLoad = spec.x === 'f32' ? 4 : 8;
    const advance = (span * bk) / perLoad;
    for (const i of count(xPer))
      for (const l of count(xLoads)) {
        const more = (half * eights * 8) / perLoad + l;
        emit(`    x${slot}_${i}_${l} = x[xb${i} + s * ${advance}u${more > 0 ? ` + ${more}u` : ''}];`);
      }
    emit('  }');
  };
  const load = (slot: number, step: string): void => {
    loadWeights(slot, step);
    loadX(slot, step);
  };

  /** Dequantises a slot into a copy of the tiles; of a pair of steps, the words of one. */
  const store = (slot: number, buffer: number, half = 0): void => {
    /** Where the weights are, for a pair has one slot. */
    const ws = paired ? 0 : slot;
    const wBase = (wFrom + buffer * bn * stride) / 4;
    const xBase = (buffer * bm * stride) / 4;
    for (const i of count(wPer)) {
      const guarded = (i + 1) * threads > wUnits;
      emit(guarded ? `  if (wu${i} < ${wUnits}u) {` : '  {');
      const all = count(unit.loads).flatMap((l) =>
        unit.vector === 1
          ? [`w${ws}_${i}_${l}`]
          : count(unit.vector).map((v) => `w${ws}_${i}_${l}.${'xyzw'[v]}`),
      );
      const words = paired ? all.slice(2 * half, 2 * half + 2) : all;
      const meta = scales && {
        words: metaNames(ws, i),
        at: unitAt(i, `at${ws}`),
        scales,
        firstWord: paired ? 2 * half : 0,
      };
      const { prepare, quads } = dequantiseQuads(weight, component, words, meta);
      for (const text of prepare) emit(`    ${text}`);
      quads.forEach((quad, q) => {
        emit(`    ${TILES}[${tileAt(i)} + ${wBase + q}u] = ${quad};`);
      });
      emit('  }');
    }
    for (const i of count(xPer)) {
      const guarded = (i + 1) * threads > xUnits;
      emit(guarded ? `  if (xu${i} < ${xUnits}u) {` : '  {');
      for (const q of [0, 1]) {
        const from =
          spec.x === 'f32'
            ? component === 'f32'
              ? `x${slot}_${i}_${q}`
              : `halves_(x${slot}_${i}_${q})`
            : `${component === 'f32' ? 'vec4<f32>(' : ''}bitcast<vec4<f16>>(x${slot}_${i}_0.${q === 0 ? 'xy' : 'zw'})${component === 'f32' ? ')' : ''}`;
        emit(`    ${TILES}[xt${i} + ${xBase + q}u] = ${from};`);
      }
      emit('  }');
    }
  };

  const multiply = (buffer: number): void => {
    if (loaders > 1) emit(`  if (sub < ${sm * sn * sk}u) {`);
    for (let kk = 0; kk < bk / sk; kk += matrix.k) {
      const offset = `${kk / wide}u${sk > 1 ? ` + subK * ${bk / sk / wide}u` : ''}`;
      emit('  {');
      for (const i of count(down))
        emit(
          `    let a${i} = subgroupMatrixLoad<Left, row_major>(&${TILES}, ${((buffer * bm + i * matrix.m) * stride) / wide}u + subM * ${((bm / sm) * stride) / wide}u + ${offset}, ${stride / wide}u);`,
        );
      for (const j of count(across)) {
        emit(
          `    let b${j} = subgroupMatrixLoad<Right, col_major>(&${TILES}, ${(wFrom + (buffer * bn + j * matrix.n) * stride) / wide}u + subN * ${((bn / sn) * stride) / wide}u + ${offset}, ${stride / wide}u);`,
        );
        for (const i of count(down))
          emit(`    c${i}_${j} = subgroupMatrixMultiplyAccumulate(a${i}, b${j}, c${i}_${j});`);
      }
      emit('  }');
    }
    if (loaders > 1) emit('  }');
  };

  lines.push(...matrixGemmStart(spec, c, layout));
  if (table !== null) emit(`  ${fillTable(threads)}\n  workgroupBarrier();`);
  if (paired) {
    // x of a step is fetched one step ahead, or two; the codes of a pair as soon as those before are unpacked.
    const pairs = steps / 2;
    loadWeights(0, '0u');
    for (const d of count(depth)) loadX(d, '0u', d);
    emit(`  for (var t = 0u; t < ${pairs}u; t++) {`);
    emit(`  let next = min(t + 1u, ${pairs - 1}u);`);
    for (const half of [0, 1]) {
      const slot = half % depth;
      emit('  workgroupBarrier();');
      store(slot, 0, half);
      emit('  workgroupBarrier();');
      if (half === 1) loadWeights(0, 'next');
      if (depth === 1) loadX(0, half === 0 ? 't' : 'next', 1 - half);
      else loadX(slot, 'next', half);
      multiply(0);
    }
    emit('  }');
  } else if (buffers === 1) {
    for (const d of count(depth)) load(d, `${Math.min(d, steps - 1)}u`);
    emit(`  for (var t = 0u; t < ${steps}u; t += ${depth}u) {`);
    for (const d of count(depth)) {
      if (d > 0 && steps % depth !== 0) emit(`  if (t + ${d}u < ${steps}u) {`);
      emit('  workgroupBarrier();');
      store(d, 0);
      emit('  workgroupBarrier();');
      load(d, `min(t + ${d + depth}u, ${steps - 1}u)`);
      multiply(0);
      if (d > 0 && steps % depth !== 0) emit('  }');
    }
    emit('  }');
  } else {
    const unroll = depth === 1 ? 2 : depth;
    for (const d of count(depth)) load(d, `${Math.min(d, steps - 1)}u`);
    store(0, 0);
    load(0, `${Math.min(depth, steps - 1)}u`);
    emit('  workgroupBarrier();');
    emit(`  for (var t = 0u; t < ${steps}u; t += ${unroll}u) {`);
    for (const u of count(unroll)) {
      const guarded = u > 0 && steps % unroll !== 0;
      if (guarded) emit(`  if (t + ${u}u < ${steps}u) {`);
      multiply(u & 1);
      const slot = (u + 1) % depth;
      store(slot, (u + 1) & 1);
      load(slot, `min(t + ${u + 1 + depth}u, ${steps - 1}u)`);
      emit('  workgroupBarrier();');
      if (guarded) emit('  }');
    }
    emit('  }');
  }

  lines.push(...matrixGemmEnd(spec, c, layout));
  emit('}');

  const tiles = Math.ceil(features / featuresPerTile);
  const rowTiles = Math.ceil(rows / bm);
  return {
    label: `matrix-${weightName(weight)}-${n}x${k}-m${rows}-t${bm}x${bn}x${bk}-s${sm}${sn}${sk}${loaders === 1 ? '' : `l${loaders}`}-b${buffers}d${depth}${rowsFirst ? '-rows' : ''}${paired ? 'p' : ''}${splitK === 1 ? '' : `z${splitK}`}`,
    wgsl: lines.join('\n'),
    bindings,
    writes: ['out'],
    types,
    workgroups: rowsFirst ? [rowTiles, tiles, splitK] : [tiles, rowTiles, splitK],
    threads,
    workgroupBytes: layout.bytes,
  };
}

/** The expert of a workgroup's tile, and the first row of its weights. */
function stackText({ n }: LinearSpec, { first, end }: ExpertStack): string {
  return `if (wid.y >= ${STACK_TILES}[0]) { return; }
  let expert = ${STACK_TILES}[1u + wid.y];
  if (${first === 0 ? '' : `expert < ${first}u || `}expert >= ${end}u) { return; }
  let stack_row = (expert - ${first}u) * ${n}u;`;
}
