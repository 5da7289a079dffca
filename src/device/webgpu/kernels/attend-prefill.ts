/**
 * Attention of prompt tiles on subgroup matrices. Quantised keys and values are dequantised as they are staged
 * (attend-prefill-tiles.ts); TurboQuant's stay rotated, and so does what this kernel writes then: `turnStage` follows it.
 *
 * The query heads of a GQA group and the tokens of a tile stand under each other as the rows of one matrix, so a
 * staged tile of K or V serves them all. A subgroup owns `matrix.m` of the rows: its queries stay in matrices for the
 * whole walk, and so do its sums of weighted values. Rows of wide heads are shared by `split` subgroups, each with a part of the dims:
 * what their dims give to a score is added up where the softmax is taken.
 *
 * The softmax is taken online, and here lies the trouble: a new maximum of a row shrinks the sums so far, but WGSL
 * cannot reach into a matrix. So the maximum in use lags behind: it is raised only when the true one is more than 8
 * (in powers of two) above it, which after the first tiles hardly ever happens. Weights stay below 2⁸ and fit an f16.
 * A raise takes the sums through workgroup memory once.
 *
 * Matrices are loaded and stored at addresses of 16 bytes, and WGSL lays workgroup variables side by side by the size
 * of their elements: so every one of them is a multiple of 16 bytes long, or those after it are read askew.
 *
 * Measured on an H200 against queries loaded again for every tile, V transposed in staging and scalar staging: all slower.
 */

import type { Binding, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { attendOut, outName } from './attend-out.js';
import { naturalTops, partBindings, partText } from './attend-parts.js';
import { type PrefillConfig, planPrefill, tileSizes } from './attend-prefill-plan.js';
import { tileSide } from './attend-prefill-tiles.js';
import { count, dividedText, isUnseen, LOWEST, SINKS_BINDING, sinkText, tileText } from './attend-words.js';
import { f32Literal } from './f32-literal.js';
import { headTile, sumBindings, tileNames } from './kv-head.js';
import { rowsName, rowsSkipped } from './kv-rows.js';
import { HALVES_TEXT } from './linear-spec.js';

/**
 * Roles: step, q, keys, values, tables, and out or scratchHanded; or, where a tile's positions are walked in parts (attend-parts.ts),
 * scratchPartSums and scratchPartTops.
 */
export function prefillStage(shape: AttendShape, c: PrefillConfig, parts = false): Stage {
  const { heads, kvHeads, headDim, maxBlocksPerSlot, window, softcap } = shape;
  const { matrix, keys, subgroupSize: lanes, split = 1 } = c;
  const { component, group, rows, rowBlocks, subs, stride, scoreStride, weightStride } = planPrefill(
    shape,
    c,
  );
  const threads = subs * lanes;
  const quad = `vec4<${component}>`;
  const tiles = tileSizes(shape, c);
  const sides = { keys: tileSide(shape, tiles, 'keys'), values: tileSide(shape, tiles, 'values') };
  const behind = shape.rows.only === 'behind' ? shape.rows.head! : null;
  const inHead = (name: 'keys' | 'values') =>
    behind === null
      ? null
      : headTile(name, shape.rows, shape, sides[name], {
          keys,
          threads,
          stride,
          halves: component === 'f16',
        });
  const inHeads = { keys: inHead('keys'), values: inHead('values') };
  /** Statements that stage a tile of a side; one of a float head is read as it is staged. */
  const staged = (name: 'keys' | 'values'): string[] => {
    const head = inHeads[name];
    const lines = sides[name].stage();
    if (head === null || behind === null) return lines;
    return [`  if (base < ${behind.tokens}u) {`, head.stage, '  } else {', ...lines, '  }'];
  };
  // A tile of a head ends with it.
  const next =
    behind === null
      ? `base + ${keys}u`
      : `select(base + ${keys}u, ${behind.tokens}u, base < ${behind.tokens}u && base + ${keys}u > ${behind.tokens}u)`;
  const coded = sides.keys.kind === 'pieces';
  const { tail, only } = shape.rows;
  /** What rows see of the newest positions, or before so many, is put together by another launch. */
  const left = tail === undefined || parts ? null : tileNames(shape.rows);
  const earlier = tail === undefined || only === 'tail' ? 0 : tail.tokens;
  const out = attendOut(left === null ? shape : { ...shape, outHanded: false }, 1);
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'q', access: 'read', type: coded ? 'array<f32>' : 'array<vec4<f32>>' },
    { name: 'keys', access: 'read', type: sides.keys.type },
    { name: 'values', access: 'read', type: sides.values.type },
    { name: 'tables', access: 'read', type: 'array<u32>' },
    ...(parts ? partBindings('read_write') : left === null ? [out.binding] : sumBindings(left, 'f32')),
    ...(shape.sinks === true && !parts && left === null ? [SINKS_BINDING] : []),
  ];
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  /** Dims of a subgroup, and matrices of them. */
  const own = headDim / split;
  const dims = own / matrix.n;
  /** The place of a subgroup's rows and dims, and of its scores. */
  const rowsOf = split === 1 ? 'sub' : `(sub / ${split}u)`;
  const dimsOf = split === 1 ? '' : ` + sub % ${split}u * ${own / (component === 'f16' ? 8 : 4)}u`;
  const scoresOf = `${rowsOf} * ${matrix.m * scoreStride}u${split === 1 ? '' : ` + sub % ${split}u * ${rows * scoreStride}u`}`;
  /** Elements of a vector of what is staged: 16 bytes. */
  const unit = component === 'f16' ? 8 : 4;
  const ownKeys = threads <= rows ? keys : keys / (threads / rows);
  const rowLanes = Math.max(1, threads / rows);
  const rowTurns = Math.max(1, rows / threads);
  const scaleText = softcap === null ? f32Literal(shape.scale * Math.LOG2E) : f32Literal(shape.scale);
  const low = (p: string): string => `(max(${p}, ${(window ?? 1) - 1}u) - ${(window ?? 1) - 1}u)`;

  emit('enable subgroups;');
  const handed = shape.outHanded === true && !parts && left === null;
  if (component === 'f16' || handed) emit('enable f16;');
  emit(`enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${declareBindings(bindings)}
${STEP_WGSL}
${sides.keys.declarations}
${sides.values.declarations}
${inHeads.keys?.declarations ?? ''}
${inHeads.values?.declarations ?? ''}
alias Left = subgroup_matrix_left<${component}, ${matrix.k}, ${matrix.m}>;
alias Right = subgroup_matrix_right<${component}, ${matrix.n}, ${matrix.k}>;
alias Sum = subgroup_matrix_result<f32, ${matrix.n}, ${matrix.m}>;
var<workgroup> staged: array<${component === 'f16' ? 'vec4<u32>' : quad}, ${(Math.max(keys, rows) * stride) / unit}>;
var<workgroup> weights: array<${quad}, ${(rows * weightStride) / 4}>;
var<workgroup> scores: array<f32, ${split * rows * scoreStride}>;
var<workgroup> tops: array<f32, ${rows}>;
var<workgroup> sums: array<f32, ${rows}>;
var<workgroup> shrink: array<f32, ${rows}>;
var<workgroup> raised: array<u32, 4>;
${component === 'f16' || handed ? HALVES_TEXT : ''}
${sides.keys.helper || sides.values.helper}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32, @builtin(subgroup_id) sub: u32) {
  let z = wid.z % ${kvHeads * rowBlocks}u;
  let kv = z / ${rowBlocks}u;
  let row_block = z % ${rowBlocks}u;
  ${tileText('nwg')}
  let first_token = tile.x;
  let slot = tile.w;
  let p_first = tile.z;
  let row_count = tile.y * ${group}u;
  let row_first = row_block * ${rows}u;
  if (row_first >= row_count) { return; }
  ${rowsSkipped(shape.rows, `${maxBlocksPerSlot}u`, 'slot')}
  ${sides.keys.prepare}
  ${sides.values.prepare}
  ${
    earlier === 0
      ? `let last = p_first + (min(row_first + ${rows}u, row_count) - 1u) / ${group}u;`
      : `let p_last = p_first + (min(row_first + ${rows}u, row_count) - 1u) / ${group}u;
  let last = max(p_last, ${earlier}u) - ${earlier}u;`
  }
  let low_first = ${window === null ? '0u' : low(`(p_first + row_first / ${group}u)`)};`);
  const variables = (kind: string): readonly string[] =>
    [sides.keys, sides.values].flatMap((side) => (side.kind === kind ? side.variables : []));
  lines.push(...new Set(variables('halves')), ...variables('pieces'));

  // Queries, scaled, into the staging area and from there into matrices.
  emit(`  for (var i = lid; i < ${(rows * headDim) / unit}u; i += ${threads}u) {
    let r = i / ${headDim / unit}u;
    let row = row_first + r;
    let start = ((first_token + row / ${group}u) * ${heads}u + kv * ${group}u + row % ${group}u) * ${headDim}u;
    let column = i % ${headDim / unit}u * ${unit}u;`);
  for (const h of count(unit / 4)) {
    const four = !coded
      ? `q[(start + column) / 4u + ${h}u]`
      : `vec4<f32>(${count(4)
          .map((e) => `q[start + ${sides.keys.dimOf(`column + ${h * 4 + e}u`)}]`)
          .join(', ')})`;
    emit(`    var v${h} = vec4<f32>();\n    if (row < row_count) { v${h} = ${four} * ${scaleText}; }`);
  }
  emit(`    staged[r * ${stride / unit}u + i % ${headDim / unit}u] = ${component === 'f16' ? 'vec4<u32>(bitcast<vec2<u32>>(halves_(v0)), bitcast<vec2<u32>>(halves_(v1)))' : 'v0'};
  }
  for (var r = lid; r < ${rows}u; r += ${threads}u) { tops[r] = ${LOWEST}; sums[r] = 0.0; }
  ${parts ? partText(kvHeads * rowBlocks, keys) : `var base = low_first / ${keys}u * ${keys}u;\n  let end = last;`}`);
  if (earlier > 0) emit(`  if (p_last < ${earlier}u) { base = end + 1u; }`);
  lines.push(...sides.keys.fetch('base'));
  emit('  workgroupBarrier();');
  for (const k of count(own / matrix.k))
    emit(
      `  let q${k} = subgroupMatrixLoad<Left, row_major>(&staged, ${rowsOf} * ${(matrix.m * stride) / unit}u + ${(k * matrix.k) / unit}u${dimsOf}, ${stride / unit}u);`,
    );
  for (const d of count(dims)) emit(`  var o${d} = Sum();`);
  emit(`  for (; base <= end; base = ${next}) {`);
  emit('  workgroupBarrier();');
  lines.push(...staged('keys'));
  emit('  if (lid == 0u) { raised[0] = 0u; }');
  emit('  workgroupBarrier();');
  lines.push(...sides.values.fetch('base'));
  // Scores.
  for (const n of count(keys / matrix.n)) {
    emit('  {');
    emit('    var s = Sum();');
    for (const k of count(own / matrix.k)) {
      emit(
        `    let b${k} = subgroupMatrixLoad<Right, col_major>(&staged, ${(n * matrix.n * stride + k * matrix.k) / unit}u${dimsOf}, ${stride / unit}u);`,
      );
      emit(`    s = subgroupMatrixMultiplyAccumulate(q${k}, b${k}, s);`);
    }
    emit(`    subgroupMatrixStore<row_major>(&scores, ${scoresOf} + ${n * matrix.n}u, s, ${scoreStride}u);`);
    emit('  }');
  }
  emit('  workgroupBarrier();');
  lines.push(...staged('values'));
  const ownEnd = earlier === 0 ? 'p + 1u' : `max(p + 1u, ${earlier}u) - ${earlier}u`;
  // Softmax: `rowLanes` neighbours share a row.
  for (const turn of count(rowTurns)) {
    emit(`  {
    let r = ${rowTurns === 1 ? `lid / ${rowLanes}u` : `lid + ${turn * threads}u`};
    let part = ${rowLanes === 1 ? '0u' : `lid % ${rowLanes}u`};
    let row = row_first + r;
    let p = p_first + row / ${group}u;
    let seen_end = ${behind === null ? `select(0u, ${ownEnd}, row < row_count)` : `min(select(0u, ${ownEnd}, row < row_count), min(end + 1u, select(end + 1u, ${behind.tokens}u, base < ${behind.tokens}u)))`};
    let source = r * ${scoreStride}u + part * ${ownKeys}u;
    let t0 = base + part * ${ownKeys}u;
    var top = ${LOWEST};`);
    for (const j of count(ownKeys)) {
      const terms = count(split).map((h) => `scores[source + ${h * rows * scoreStride + j}u]`);
      emit(`    var s${j} = ${terms.join(' + ')};`);
      if (softcap !== null)
        emit(
          `    { let e = exp(clamp(2.0 * s${j} / ${f32Literal(softcap)}, -80.0, 80.0)); s${j} = ${f32Literal(softcap * Math.LOG2E)} * (1.0 - 2.0 / (e + 1.0)); }`,
        );
      const seen = `t0 + ${j}u < seen_end${window === null ? '' : ` && t0 + ${j}u >= ${low('p')}`}`;
      emit(`    s${j} = select(${LOWEST}, s${j}, ${seen});`);
      emit(`    top = max(top, s${j});`);
    }
    for (let step = rowLanes / 2; step >= 1; step /= 2)
      emit(`    top = max(top, subgroupShuffleXor(top, ${step}u));`);
    emit(`    let before = tops[r];
    var used = before;
    var factor = 1.0;
    if (top > before + 8.0) {
      used = top;
      factor = select(0.0, exp2(before - top), before > ${LOWEST});
      if (before > ${LOWEST}) { raised[0] = 1u; }
    }
    var sum = 0.0;`);
    for (let j = 0; j < ownKeys; j += 4) {
      for (let i = j; i < j + 4; i++)
        emit(`    s${i} = select(exp2(s${i} - used), 0.0, ${isUnseen(`s${i}`)});`);
      emit(`    { let w = ${quad}(${[0, 1, 2, 3].map((i) => (component === 'f16' ? `f16(s${j + i})` : `s${j + i}`)).join(', ')});
      sum += dot(vec4<f32>(w), vec4<f32>(1.0));
      weights[(r * ${weightStride}u + part * ${ownKeys}u + ${j}u) / 4u] = w; }`);
    }
    for (let step = rowLanes / 2; step >= 1; step /= 2) emit(`    sum += subgroupShuffleXor(sum, ${step}u);`);
    emit(`    if (part == 0u) {
      tops[r] = used;
      shrink[r] = factor;
      sums[r] = fma(sums[r], factor, sum);
    }
  }`);
  }
  emit(`  if (workgroupUniformLoad(&raised[0]) != 0u) {`);
  throughScores('shrinking');
  emit('  }');
  // The next keys are on their way while the values multiply.
  lines.push(...sides.keys.fetch(`(${next})`));
  for (const k of count(keys / matrix.k)) {
    emit('  {');
    emit(
      `    let w = subgroupMatrixLoad<Left, row_major>(&weights, ${rowsOf} * ${(matrix.m * weightStride) / 4}u + ${(k * matrix.k) / 4}u, ${weightStride / 4}u);`,
    );
    for (const d of count(dims)) {
      emit(
        `    let v${d} = subgroupMatrixLoad<Right, row_major>(&staged, ${(k * matrix.k * stride + d * matrix.n) / unit}u${dimsOf}, ${stride / unit}u);`,
      );
      emit(`    o${d} = subgroupMatrixMultiplyAccumulate(w, v${d}, o${d});`);
    }
    emit('  }');
  }
  emit('  }');
  emit('  workgroupBarrier();');
  throughScores('finishing');
  if (parts)
    emit(
      `  for (var r = lid; r < ${rows}u; r += ${threads}u) { scratchPartTops[part_at * ${rows}u + r] = vec2<f32>(tops[r], sums[r]); }`,
    );
  if (left !== null)
    emit(`  for (var r = lid; r < ${rows}u; r += ${threads}u) {
    let row = row_first + r;
    if (row < row_count) { ${left.tops}[(first_token + row / ${group}u) * ${heads}u + kv * ${group}u + row % ${group}u] = ${naturalTops('tops[r]', 'sums[r]')}; }
  }`);
  emit('}');

  /** Takes the sums through `scores`, `keys` dims at a time: multiplied by shrink and back, or divided and out. */
  function throughScores(what: 'shrinking' | 'finishing'): void {
    const perRound = keys / matrix.n;
    for (let d0 = 0; d0 < dims; d0 += perRound) {
      for (const i of count(perRound))
        emit(
          `  subgroupMatrixStore<row_major>(&scores, ${scoresOf} + ${i * matrix.n}u, o${d0 + i}, ${scoreStride}u);`,
        );
      emit('  workgroupBarrier();');
      const dim =
        split === 1
          ? `${d0 * matrix.n}u + i % ${keys}u`
          : `i / ${rows * keys}u * ${own}u + ${d0 * matrix.n}u + i % ${keys}u`;
      emit(`  for (var i = lid; i < ${split * rows * keys}u; i += ${threads}u) {
    let r = ${split === 1 ? `i / ${keys}u` : `i / ${keys}u % ${rows}u`};
    let at = i / ${keys}u * ${scoreStride}u + i % ${keys}u;`);
      if (what === 'shrinking') emit('    scores[at] *= shrink[r];\n  }\n  workgroupBarrier();');
      else
        emit(`    let row = row_first + r;
    if (row < row_count) {
      ${
        parts
          ? `scratchPartSums[(part_at * ${rows}u + r) * ${headDim}u + ${sides.values.dimOf(dim)}] = scores[at];\n    }\n  }\n  workgroupBarrier();`
          : left !== null
            ? `${left.sums}[((first_token + row / ${group}u) * ${heads}u + kv * ${group}u + row % ${group}u) * ${headDim}u + ${sides.values.dimOf(dim)}] = scores[at];\n    }\n  }\n  workgroupBarrier();`
            : `${out.store(
                `((first_token + row / ${group}u) * ${heads}u + kv * ${group}u + row % ${group}u) * ${headDim}u + ${sides.values.dimOf(dim)}`,
                dividedText(
                  'scores[at]',
                  'sums[r]',
                  '0.0',
                  sinkText(shape.sinks, `kv * ${group}u + row % ${group}u`, 'tops[r]', true),
                ),
              )}
    }
  }
  workgroupBarrier();`
      }`);
      if (what === 'shrinking') {
        for (const i of count(perRound))
          emit(
            `  o${d0 + i} = subgroupMatrixLoad<Sum, row_major>(&scores, ${scoresOf} + ${i * matrix.n}u, ${scoreStride}u);`,
          );
        emit('  workgroupBarrier();');
      }
    }
  }

  return {
    label: `attend matrix ${parts ? 'parts ' : ''}${heads}/${kvHeads}×${headDim} r${rows}k${keys}${split === 1 ? '' : `s${split}`}${rowsName(shape.rows)}${parts ? '' : outName(shape)}`,
    wgsl: lines.join('\n'),
    bindings,
    workgroups: (facts, size) => {
      const y = Math.ceil(facts.tiles / 65535);
      // A tail is short: it is walked whole.
      const others = only !== 'tail' && facts.tileParts > 1 !== parts;
      size[0] = y === 0 || others ? 0 : Math.ceil(facts.tiles / y);
      size[1] = y;
      size[2] = kvHeads * rowBlocks * (only === 'tail' ? 1 : facts.tileParts);
    },
  };
}
