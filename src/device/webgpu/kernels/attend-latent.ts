/**
 * Attention over latents (MLA) on subgroup matrices. All query heads look at one vector a token, whose end is the value: so heads, and the
 * tokens of a tile, stand under each other as the rows of one matrix, and a tile of positions is staged once for their scores and
 * their sums. What is staged are halves, dequantised if the cache has codes (attend-prefill-tiles.ts).
 *
 * A subgroup multiplies a part of the numbers of a key for one matrix of scores, which are put together in workgroup memory; and it sums
 * a part of the values for all rows. As in attend-prefill.ts the maximum in use lags behind the true one, so that sums, which lie
 * in matrices, are shrunk seldom.
 *
 * There is one order of sums. Sums start anew at every multiple of ATTENTION_SPLIT: an item leaves those of its split as partials, and
 * a tile merges them in its rows of `out` by the steps of the reduce (attend-reduce.ts), in the same order. So a row has the same
 * bits alone and in company, and however its prompt was cut.
 *
 * Measured: docs/lab/2026-11-27-latents.md.
 */

import type { Binding, Capabilities, Stage, Variant } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { ATTENTION_SPLIT, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { type LatentConfig, latentBlocks, latentFits, planLatent } from './attend-latent-plan.js';
import { tileSide } from './attend-prefill-tiles.js';
import { mergeText } from './attend-reduce.js';
import { count, dividedText, isUnseen, LOWEST, SINKS_BINDING, sinkText, tileText } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { itemsOf, itemText, partialNames } from './kv-head.js';
import { rowsName, rowsSkipped } from './kv-rows.js';
import { matrixOf } from './linear-choice.js';
import { fixedLanes } from './linear-fast.js';
import { HALVES_TEXT } from './linear-spec.js';

type Mode = 'items' | 'tiles';

/** Roles: step, q, keys, tables, and out, or scratchSums and scratchTops of items. */
export function latentStage(shape: AttendShape, c: LatentConfig, mode: Mode): Stage {
  const { heads, headDim, valueDim = headDim, maxBlocksPerSlot, softcap, rows: kinds } = shape;
  const { matrix, subgroupSize: lanes, subgroups: subs, keys, rows } = c;
  const plan = planLatent(shape, c);
  const { component, unit, threads, stride, down, across, parts, steps, own, weightStride } = plan;
  const before = headDim - valueDim;
  const quad = `vec4<${component}>`;
  const side = tileSide(shape, plan, 'keys');
  const coded = side.kind === 'pieces';
  const partials = partialNames(kinds);
  const blocks = latentBlocks(shape, c, mode);
  const cells = matrix.m * matrix.n;
  const rowLanes = Math.min(threads / rows, keys / 4, lanes);
  const ownKeys = keys / rowLanes;
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'q', access: 'read', type: coded ? 'array<f32>' : 'array<vec4<f32>>' },
    { name: 'keys', access: 'read', type: side.type },
    { name: 'tables', access: 'read', type: 'array<u32>' },
  ];
  if (mode === 'items')
    bindings.push(
      { name: partials.sums, access: 'read_write', type: 'array<f32>' },
      { name: partials.tops, access: 'read_write', type: 'array<vec2<f32>>' },
    );
  else {
    bindings.push({ name: 'out', access: 'read_write', type: 'array<f32>' });
    if (shape.sinks === true) bindings.push(SINKS_BINDING);
  }
  const scale = f32Literal(softcap === null ? shape.scale * Math.LOG2E : shape.scale);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const perRow = (names: readonly string[]): string =>
    names.map((name) => `var<workgroup> ${name}: array<f32, ${rows}>;`).join('\n');
  const sums = count(own).flatMap((i) => count(down).map((b) => ({ i, b, name: `o${b}_${i}` })));
  /** Statement for a matrix of values that a subgroup may not have. */
  const if_ = (condition: string, divides: boolean): string => (divides ? '' : `if (${condition}) `);
  const hasValue = (i: number): string =>
    if_(`sub + ${i * subs}u < ${valueDim / matrix.n}u`, (valueDim / matrix.n) % subs === 0);

  emit(`enable subgroups;${component === 'f16' ? '\nenable f16;' : ''}
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${declareBindings(bindings)}
${STEP_WGSL}
${side.declarations}
alias Left = subgroup_matrix_left<${component}, ${matrix.k}, ${matrix.m}>;
alias Right = subgroup_matrix_right<${component}, ${matrix.n}, ${matrix.k}>;
alias Sum = subgroup_matrix_result<f32, ${matrix.n}, ${matrix.m}>;
var<workgroup> staged: array<${component === 'f16' ? 'vec4<u32>' : quad}, ${(Math.max(keys, rows) * stride) / unit}>;
var<workgroup> weights: array<${quad}, ${(rows * weightStride) / 4}>;
var<workgroup> own: array<f32, ${subs * cells}>;
${perRow(['tops', 'sums', 'shrink', ...(mode === 'tiles' ? ['total_tops', 'total_sums', 'keep', 'add'] : [])])}
var<workgroup> raised: array<u32, 4>;
${component === 'f16' ? HALVES_TEXT : ''}
${side.helper}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lid: u32, @builtin(subgroup_id) sub: u32) {
  let kv = 0u;
  let row_first = wid.z * ${rows}u;`);
  if (mode === 'items')
    emit(`  let item_at = wid.x + wid.y * groups.x;
  ${itemText(kinds)}
  let first_token = item.x;
  let slot = item.z;
  let last = item.w;
  let p_first = last;
  let row_count = ${heads}u;
  let split = item.y;
  let split_last = split;`);
  else
    emit(`  ${tileText('groups')}
  let first_token = tile.x;
  let slot = tile.w;
  let p_first = tile.z;
  let row_count = tile.y * ${heads}u;
  if (row_first >= row_count) { return; }
  let last = p_first + (min(row_first + ${rows}u, row_count) - 1u) / ${heads}u;
  let split_last = last / ${ATTENTION_SPLIT}u;`);
  emit(`  ${rowsSkipped(kinds, `${maxBlocksPerSlot}u`, 'slot')}
  ${side.prepare}
  let lane = lid % ${lanes}u;`);
  lines.push(...side.variables);

  // Queries, scaled, into the staging area and from there into matrices.
  emit(`  for (var i = lid; i < ${(rows * headDim) / unit}u; i += ${threads}u) {
    let r = i / ${headDim / unit}u;
    let row = row_first + r;
    let start = (first_token * ${heads}u + row) * ${headDim}u;
    let column = i % ${headDim / unit}u * ${unit}u;`);
  for (const h of count(unit / 4)) {
    const four = coded
      ? `vec4<f32>(${count(4)
          .map((e) => `q[start + ${side.dimOf(`(column + ${h * 4 + e}u)`)}]`)
          .join(', ')})`
      : `q[(start + column) / 4u + ${h}u]`;
    emit(`    var v${h} = vec4<f32>();\n    if (row < row_count) { v${h} = ${four} * ${scale}; }`);
  }
  emit(`    staged[r * ${stride / unit}u + i % ${headDim / unit}u] = ${component === 'f16' ? 'vec4<u32>(bitcast<vec2<u32>>(halves_(v0)), bitcast<vec2<u32>>(halves_(v1)))' : 'v0'};
  }
  let position_block = sub % ${across}u;
  let row_block = sub / ${across}u % ${down}u;
  let part = sub / ${across * down}u;`);
  if (mode === 'tiles')
    emit(
      `  for (var r = lid; r < ${rows}u; r += ${threads}u) { total_tops[r] = ${LOWEST}; total_sums[r] = 0.0; }`,
    );
  const from = mode === 'items' ? `split * ${ATTENTION_SPLIT}u` : '0u';
  emit(`  var base = ${from};`);
  lines.push(...side.fetch('base'));
  emit('  workgroupBarrier();');
  const depth = headDim / matrix.k;
  const whole = depth % parts === 0;
  const column = (j: number): string =>
    whole ? `(part + ${j * parts}u)` : `min(part + ${j * parts}u, ${depth - 1}u)`;
  for (const j of count(steps))
    emit(
      `  let q${j} = subgroupMatrixLoad<Left, row_major>(&staged, row_block * ${(matrix.m * stride) / unit}u + ${column(j)} * ${matrix.k / unit}u, ${stride / unit}u);`,
    );
  if (mode === 'tiles') emit('  for (var split = 0u; split <= split_last; split++) {');
  for (const { name } of sums) emit(`  var ${name} = Sum();`);
  emit(`  for (var r = lid; r < ${rows}u; r += ${threads}u) { tops[r] = ${LOWEST}; sums[r] = 0.0; }
  let end = min(last, split * ${ATTENTION_SPLIT}u + ${ATTENTION_SPLIT - 1}u);
  for (; base <= end; base += ${keys}u) {
  workgroupBarrier();`);
  lines.push(...side.stage());
  emit('  if (lid == 0u) { raised[0] = 0u; }\n  workgroupBarrier();');
  // The next positions are on their way while these multiply.
  lines.push(...side.fetch(`(base + ${keys}u)`));
  emit('  {\n    var s = Sum();');
  for (const j of count(steps)) {
    const guard = if_(`part + ${j * parts}u < ${depth}u`, (j + 1) * parts <= depth);
    emit(
      `    ${guard}{\n    let b = subgroupMatrixLoad<Right, col_major>(&staged, position_block * ${(matrix.n * stride) / unit}u + ${column(j)} * ${matrix.k / unit}u, ${stride / unit}u);\n    s = subgroupMatrixMultiplyAccumulate(q${j}, b, s);\n    }`,
    );
  }
  emit(`    subgroupMatrixStore<row_major>(&own, sub * ${cells}u, s, ${matrix.n}u);
  }
  workgroupBarrier();`);
  softmax();
  emit('  if (workgroupUniformLoad(&raised[0]) != 0u) {');
  for (const { i, b, name } of sums) {
    emit(
      `  ${hasValue(i)}{\n  subgroupMatrixStore<row_major>(&own, sub * ${cells}u, ${name}, ${matrix.n}u);\n  }\n  workgroupBarrier();`,
    );
    emit(
      `  for (var e = lane; e < ${cells}u; e += ${lanes}u) { own[sub * ${cells}u + e] *= shrink[${b * matrix.m}u + e / ${matrix.n}u]; }\n  workgroupBarrier();`,
    );
    emit(`  ${name} = subgroupMatrixLoad<Sum, row_major>(&own, sub * ${cells}u, ${matrix.n}u);`);
    emit('  workgroupBarrier();');
  }
  emit('  }');
  for (const k of count(keys / matrix.k)) {
    for (const b of count(down))
      emit(
        `  let w${b}_${k} = subgroupMatrixLoad<Left, row_major>(&weights, ${(b * matrix.m * weightStride + k * matrix.k) / 4}u, ${weightStride / 4}u);`,
      );
    for (const i of count(own)) {
      emit(`  ${hasValue(i)}{
    let v = subgroupMatrixLoad<Right, row_major>(&staged, ${(k * matrix.k * stride + before) / unit}u + (sub + ${i * subs}u) * ${matrix.n / unit}u, ${stride / unit}u);`);
      for (const b of count(down))
        emit(`    o${b}_${i} = subgroupMatrixMultiplyAccumulate(w${b}_${k}, v, o${b}_${i});`);
      emit('  }');
    }
  }
  emit('  }\n  workgroupBarrier();');
  if (mode === 'tiles') mergeSplit();
  for (const { i, b, name } of sums) leave(i, b, name);
  if (mode === 'tiles') emit('  }');
  else
    emit(`  for (var r = lid; r < ${rows}u; r += ${threads}u) {
    let row = row_first + r;
    if (row < row_count) { ${partials.tops}[item_at * ${heads}u + row] = vec2<f32>(tops[r] * ${f32Literal(Math.LN2)}, sums[r]); }
  }`);
  emit('}');

  /** Scores of a tile to weights: `rowLanes` neighbours share a row. */
  function softmax(): void {
    const spare = rowLanes * rows < threads;
    emit(`  {
    let r = ${spare ? `min(lid / ${rowLanes}u, ${rows - 1}u)` : `lid / ${rowLanes}u`};
    let turn = lid % ${rowLanes}u;
    let row = row_first + r;
    let seen_end = select(0u, p_first + row / ${heads}u + 1u, row < row_count);
    var top = ${LOWEST};`);
    for (const j of count(ownKeys)) {
      const t = `(turn * ${ownKeys}u + ${j}u)`;
      emit(
        `    let at${j} = (r / ${matrix.m}u * ${across}u + ${t} / ${matrix.n}u) * ${cells}u + r % ${matrix.m}u * ${matrix.n}u + ${t} % ${matrix.n}u;`,
      );
      const all = count(parts).map((p) => `own[at${j} + ${p * across * down * cells}u]`);
      emit(`    var s${j} = ${all.join(' + ')};`);
      if (softcap !== null)
        emit(
          `    { let e = exp(clamp(2.0 * s${j} / ${f32Literal(softcap)}, -80.0, 80.0)); s${j} = ${f32Literal(softcap * Math.LOG2E)} * (1.0 - 2.0 / (e + 1.0)); }`,
        );
      emit(`    s${j} = select(${LOWEST}, s${j}, base + ${t} < seen_end);\n    top = max(top, s${j});`);
    }
    for (let by = rowLanes / 2; by >= 1; by /= 2)
      emit(`    top = max(top, subgroupShuffleXor(top, ${by}u));`);
    emit(`    let was = tops[r];
    var used = was;
    var factor = 1.0;
    if (top > was + 8.0) {
      used = top;
      factor = select(0.0, exp2(was - top), was > ${LOWEST});
      if (was > ${LOWEST}) { raised[0] = 1u; }
    }
    var sum = 0.0;`);
    for (const j of count(ownKeys))
      emit(`    s${j} = select(exp2(s${j} - used), 0.0, ${isUnseen(`s${j}`)});`);
    for (let j = 0; j < ownKeys; j += 4) {
      const four = count(4).map((e) => (component === 'f16' ? `f16(s${j + e})` : `s${j + e}`));
      emit(`    let w${j} = ${quad}(${four.join(', ')});
    sum += dot(vec4<f32>(w${j}), vec4<f32>(1.0));`);
    }
    for (let by = rowLanes / 2; by >= 1; by /= 2) emit(`    sum += subgroupShuffleXor(sum, ${by}u);`);
    emit(`    ${spare ? `if (lid < ${rowLanes * rows}u) ` : ''}{`);
    for (let j = 0; j < ownKeys; j += 4)
      emit(`      weights[(r * ${weightStride}u + turn * ${ownKeys}u + ${j}u) / 4u] = w${j};`);
    emit(`      if (turn == 0u) { tops[r] = used; shrink[r] = factor; sums[r] = fma(sums[r], factor, sum); }
    }
  }`);
  }

  /** The factors of a row by which a split joins those before it, and its new maximum and sum. */
  function mergeSplit(): void {
    const merge = mergeText('', 'top', 'total', '', 'own_top', 'own_sum');
    emit(`  if (lid < ${rows}u) {
    var top = total_tops[lid];
    var total = total_sums[lid];
    let own_top = tops[lid] * ${f32Literal(Math.LN2)};
    let own_sum = sums[lid];
    ${merge.scalars}
    total_tops[lid] = top;
    total_sums[lid] = total;
    keep[lid] = fa;
    add[lid] = fb;
  }
  workgroupBarrier();`);
  }

  /** Takes a matrix of sums through workgroup memory to where it is left. */
  function leave(i: number, b: number, name: string): void {
    const dim = `(${side.dimOf(`(${before}u + (sub + ${i * subs}u) * ${matrix.n}u + e % ${matrix.n}u)`)} - ${before}u)`;
    emit(`  ${hasValue(i)}{
  subgroupMatrixStore<row_major>(&own, sub * ${cells}u, ${name}, ${matrix.n}u);
  }
  workgroupBarrier();
  ${hasValue(i)}{
  for (var e = lane; e < ${cells}u; e += ${lanes}u) {
    let r = ${b * matrix.m}u + e / ${matrix.n}u;
    let row = row_first + r;
    if (row < row_count) {
      let value = own[sub * ${cells}u + e];`);
    if (mode === 'items')
      emit(`      ${partials.sums}[(item_at * ${heads}u + row) * ${valueDim}u + ${dim}] = value;`);
    else
      emit(`      let at = (first_token * ${heads}u + row) * ${valueDim}u + ${dim};
      var total = 0.0;
      if (split > 0u) { total = out[at]; }
      total = fma(value, add[r], total * keep[r]);
      if (split == split_last) { total = ${dividedText('total', 'total_sums[r]', '0.0', sinkText(shape.sinks, `row % ${heads}u`, 'total_tops[r]'))}; }
      out[at] = total;`);
    emit('    }\n  }\n  }\n  workgroupBarrier();');
  }

  return {
    label: `attend latents ${mode} ${heads}×${headDim}→${valueDim} r${rows}k${keys}${rowsName(kinds)}`,
    wgsl: lines.filter((line) => line.trim() !== '').join('\n'),
    bindings,
    workgroups: (facts, out) => {
      const works = mode === 'items' ? itemsOf(kinds, facts) : facts.tiles;
      const y = Math.ceil(works / 65535);
      out[0] = y === 0 ? 0 : Math.ceil(works / y);
      out[1] = y;
      out[2] = blocks;
    },
  };
}

/** Positions staged at once, query rows and subgroups of a workgroup. */
const SIZES: readonly (readonly [keys: number, rows: number, subgroups: number])[] = [
  [32, 16, 8],
  [32, 32, 8],
  [16, 32, 8],
];

/** The same for items and tiles, for the parts of a score are summed in an order of their own. */
function latentConfig(capabilities: Capabilities, shape: AttendShape): LatentConfig | null {
  const lanes = fixedLanes(capabilities);
  const matrix = matrixOf(capabilities);
  if (lanes === 0 || matrix === null) return null;
  const { workgroupBytes, workgroupThreads } = capabilities;
  const fitting = SIZES.map(([keys, rows, subgroups]) => ({
    matrix,
    subgroupSize: lanes,
    subgroups,
    keys,
    rows,
    workgroupBytes,
  })).filter((c) => c.subgroups * lanes <= workgroupThreads && latentFits(shape, c));
  const most = Math.max(...SIZES.map(([, rows]) => rows));
  return fitting.find(({ rows }) => rows >= Math.min(shape.heads, most)) ?? fitting[0] ?? null;
}

const latent = (mode: Mode): Variant<AttendShape> => ({
  name: `latent-${mode}`,
  supports: (capabilities, shape) => latentConfig(capabilities, shape) !== null,
  build: (capabilities, shape) => ({
    stages: [latentStage(shape, latentConfig(capabilities, shape)!, mode)],
  }),
});

export const latentItems = latent('items');
export const latentTiles = latent('tiles');
