/**
 * Products of a few rows on `dot4I8Packed`: four multiply-adds an instruction, on codes that are bytes after one `and`,
 * and on x made bytes by a stage before (linear-dp4a-x.ts). On GPUs whose packed halves gain nothing that is twice what
 * floats can do; and x takes a quarter of the workgroup memory, so that more workgroups wait for loads at a time.
 *
 * `across` lanes stand side by side along K, and the others of a subgroup on further weight rows; a lane takes `pieces`
 * of 32 columns of each of its `each` weight rows at a time, and has the next ones on their way as soon as it has made
 * bytes of these. There is one copy of all that, in a loop that stays one (rolled.ts). Subgroups may share the rows
 * and take turns along K (`splits`). Sums of a piece are exact integers, which start as the bits of 1.5 · 2²³: a
 * subtraction then makes floats of them, where a conversion takes the time of four. They meet scale and bias of the
 * weight and the scale of x once a piece.
 *
 * Codes of k-quants are the same, with two levels of scales (group-scales.ts). Those of tables become the bytes of their numbers
 * (table-numbers.ts), which have no bias.
 *
 * What rounds is x alone. With two planes by less than 2⁻¹⁵ of the largest of its piece: closer than as halves. With one by
 * up to 2⁻⁸ of it, some 0.5 % of a product in the norm, where codes of 4 bits have rounded the weight by ten times that;
 * the rules (linear-fast.ts) ask for it there alone.
 *
 * Where the next product is of dp4a too, and a workgroup makes whole pieces of what that one reads, the result may be left as
 * its bytes: values go through workgroup memory and are made bytes as the stage before would make them, bit for bit. Where a norm stands
 * between them, the result is left both ways (linear-dp4a-norm.ts).
 *
 * What was tried: docs/lab/2026-11-22-products-of-few-rows.md.
 */

import type { BytesLayout } from '../shapes.js';
import { rowMetaWords } from '../weights-layout.js';
import { groupScales, scaleWords } from './group-scales.js';
import {
  BYTES_TEXT,
  HANDED_BYTES,
  NORMED_BYTES,
  OWN_BYTES,
  unitsOf,
  unitsText,
  unitValues,
  vectorsOf,
} from './linear-bytes.js';
import { inverseText, SQUARES, squaresText } from './linear-dp4a-norm.js';
import {
  type Dp4aConfig,
  type Dp4aEnds,
  dp4aFits,
  NO_ENDS,
  planDp4a,
  threadsOf,
} from './linear-dp4a-plan.js';
import {
  declareBindings,
  ERF_TEXT,
  gatedText,
  type KernelText,
  type LinearSpec,
  outCols,
  weightName,
} from './linear-spec.js';
import { GROUPS_PARAMETER, rolledBound } from './rolled.js';
import { declareTable, fillTable, tableBytes } from './table-numbers.js';

/** WGSL types of what it binds, in order. */
const TYPES: Readonly<Record<string, string>> = {
  codes: 'vec4<u32>',
  metas: 'u32',
  out: 'f32',
  bias: 'f32',
  residual: 'f32',
  [OWN_BYTES.bytes]: 'vec4<u32>',
  [OWN_BYTES.terms]: 'vec2<f32>',
  [HANDED_BYTES.bytes]: 'u32',
  [HANDED_BYTES.terms]: 'vec2<f32>',
  [NORMED_BYTES.bytes]: 'u32',
  [NORMED_BYTES.terms]: 'vec2<f32>',
  outNorm: 'vec4<f32>',
  [SQUARES]: 'f32',
};

/** What the product binds, in order, and what of that it writes. */
export function dp4aRoles(
  { bias, residual }: Pick<LinearSpec, 'bias' | 'residual'>,
  { left, leftNormed, xTiles }: Dp4aEnds,
): { readonly bindings: readonly string[]; readonly writes: readonly string[] } {
  const writes: string[] = [];
  if (left === null || leftNormed) writes.push('out');
  if (left !== null) writes.push(...Object.values(leftNormed ? NORMED_BYTES : HANDED_BYTES));
  if (leftNormed) writes.push(SQUARES);
  const bound = new Set(['codes', 'metas', ...Object.values(OWN_BYTES), ...writes]);
  if (bias) bound.add('bias');
  if (residual !== null) bound.add('residual');
  if (leftNormed) bound.add('outNorm');
  if (xTiles > 0) bound.add(SQUARES);
  return { bindings: Object.keys(TYPES).filter((name) => bound.has(name)), writes };
}

/** The product. The norm of the spec is in the bytes already, all of it or its weights. */
export function dp4aKernel(spec: LinearSpec, c: Dp4aConfig, ends: Dp4aEnds = NO_ENDS): KernelText {
  const { left, leftNormed, xTiles } = ends;
  const plan = planDp4a(spec, c, ends);
  if (plan === null || !dp4aFits(spec, c, ends) || spec.weight.kind === 'float')
    throw new RangeError(`no dp4a kernel for ${spec.n} × ${spec.k}`);
  const { rows, n, k } = spec;
  const weight = spec.weight;
  const groups = groupScales(weight, `${k / 32}u`);
  /** Ends of names of the sums of a piece, one for each part of it that has a scale. */
  const runs = groups.runs === 1 ? [''] : ['_first', '_second'];
  const { subgroupSize: lanes, across, pieces, each, subgroups, splits, chunks, planes } = c;
  const { turns, perChunk, ofSubgroup, ownFeatures } = plan;
  const { bits, chunkSteps } = plan.x;
  const threads = subgroups * lanes;
  const vectors = vectorsOf(c);
  /** Loads of 16 bytes of a lane and weight row. */
  const loads = (pieces * bits) / 4;
  const perRow = (k * bits) / 128;
  const features = outCols(spec);
  const gated = spec.glu !== null;
  /** Features of a lane; the rows behind them are the ups. */
  const own = gated ? each / 2 : each;
  const stagedVectors = rows * chunkSteps * vectors * across;
  const stagedTerms = rows * chunkSteps * across;
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const { bindings, writes } = dp4aRoles(spec, ends);
  emit(`enable subgroups;
${declareBindings(bindings, writes, TYPES)}`);
  if (chunks > 0)
    emit(`var<workgroup> staged: array<vec4<u32>, ${stagedVectors}>;
var<workgroup> terms: array<vec2<f32>, ${stagedTerms}>;`);
  if (splits > 1) emit(`var<workgroup> sums: array<f32, ${subgroups * ofSubgroup * rows}>;`);
  if (left !== null) emit(`var<workgroup> made: array<f32, ${rows * ownFeatures}>;\n${BYTES_TEXT}`);
  const inverse =
    xTiles === 0 || spec.norm === null
      ? null
      : inverseText({ rows, k, eps: spec.norm.eps, tiles: xTiles, subgroups, lanes });
  if (inverse !== null) emit(inverse.declarations);
  if (spec.glu === 'gelu') emit(ERF_TEXT);
  const table = weight.kind === 'lut4' && weight.table === 'iq4' ? declareTable(weight.table, 'bytes') : null;
  if (table !== null) emit(table);
  emit(`@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wg: vec3<u32>, ${GROUPS_PARAMETER}, @builtin(local_invocation_index) lid: u32) {
  let tile = wg.y * groups.x + wg.x;
  let lane = lid & ${lanes - 1}u;
  let sub = lid / ${lanes}u;
  let split = sub % ${splits}u;
  let along = lane % ${across}u;
  let down = lane / ${across}u;
  let first = tile * ${ownFeatures}u + sub / ${splits}u * ${gated ? ofSubgroup / 2 : ofSubgroup}u + down;`);
  for (const i of count(each)) {
    const feature = `min(first + ${(i % own) * (lanes / across)}u, ${features - 1}u)`;
    emit(`  let row${i} = ${feature}${i >= own ? ` + ${features}u` : ''};`);
    for (const b of count(rows)) emit(`  var v${i}_${b} = 0.0;`);
    for (const j of count(loads)) emit(`  var w${i}_${j}: vec4<u32>;`);
    for (const name of metaNames(i)) emit(`  var ${name}: u32;`);
  }
  const load = (turn: string): void => {
    emit(`    { let piece = ${pieceOf(turn)};`);
    const from = groups.words('piece');
    for (const i of count(each)) {
      for (const j of count(loads))
        emit(`      w${i}_${j} = codes[row${i} * ${perRow}u + piece * ${loads / pieces}u + ${j}u];`);
      metaNames(i).forEach((name, m) => {
        emit(`      ${name} = metas[row${i} * ${rowMetaWords(weight, k)}u + ${from[m]}];`);
      });
    }
    emit('    }');
  };
  load('0u');
  if (table !== null) emit(`  ${fillTable(threads)}`);
  if (table !== null && chunks === 0) emit('  workgroupBarrier();');
  if (inverse !== null) emit(inverse.load);
  emit(
    chunks > 1
      ? `  for (var chunk = 0u; chunk < ${rolledBound(chunks)}; chunk++) {`
      : '  {\n  const chunk = 0u;',
  );
  if (chunks > 0) {
    if (chunks > 1) emit('  if (chunk > 0u) { workgroupBarrier(); }');
    emit(`  for (var j = lid; j < ${stagedVectors}u; j += ${threads}u) { staged[j] = ${OWN_BYTES.bytes}[chunk * ${stagedVectors}u + j]; }
  for (var j = lid; j < ${stagedTerms}u; j += ${threads}u) { terms[j] = ${OWN_BYTES.terms}[chunk * ${stagedTerms}u + j]; }
  workgroupBarrier();`);
  }
  emit(perChunk === 1 ? '  {\n  const t = 0u;' : `  for (var t = 0u; t < ${rolledBound(perChunk)}; t++) {`);
  multiply();
  emit('  }\n  }');
  if (inverse !== null) emit(inverse.sum);
  const kept = sumOverLanes();
  if (inverse !== null && splits === 1) emit('  workgroupBarrier();');
  if (splits === 1) finishInRegisters();
  else finishTogether();
  if (left !== null) leaveBytes(left);
  emit('}');

  /** The first piece of 32 columns of a lane in a turn. */
  function pieceOf(turn: string): string {
    return `((${turn}) * ${splits * across}u + split * ${across}u + along) * ${pieces}u`;
  }

  /** Variables of the words of scales of weight row i. */
  function metaNames(i: number): string[] {
    return count(scaleWords(weight)).map((m) => `m${i}${m === 0 ? '' : `_${m}`}`);
  }

  function multiply(): void {
    const from = chunks > 0 ? 'staged' : OWN_BYTES.bytes;
    const scales = chunks > 0 ? 'terms' : OWN_BYTES.terms;
    emit(`    { let step = t * ${splits}u + split;
      let at = step * ${vectors * across}u + along;
      let term = step * ${across}u + along;${weight.kind === 'affine' ? '' : `\n      let here = ${pieceOf(`chunk * ${perChunk}u + t`)};`}`);
    for (const i of count(each)) {
      for (const j of count(loads)) {
        const w = `w${i}_${j}`;
        if (weight.kind === 'lut4')
          for (const text of tableBytes(weight.table, w, `a${i}_${2 * j}`, `a${i}_${2 * j + 1}`))
            emit(`      ${text}`);
        else if (bits === 8) emit(`      let a${i}_${j} = ${w} ^ vec4<u32>(0x80808080u);`);
        else
          emit(`      let a${i}_${2 * j} = ${w} & vec4<u32>(0x0f0f0f0fu);
      let a${i}_${2 * j + 1} = (${w} >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);`);
      }
      for (const text of groups.lines(metaNames(i), 'here', `own${i}_`)) emit(`      ${text}`);
      if (weight.kind === 'lut4') continue;
      emit(
        bits === 8
          ? `      let affine${i} = vec2<f32>(own${i}_0.x, fma(own${i}_0.x, 128.0, own${i}_0.y));`
          : `      let affine${i} = own${i}_0;`,
      );
    }
    if (turns > 1) load(`min(chunk * ${perChunk}u + t + 1u, ${turns - 1}u)`);
    for (const b of count(rows)) {
      emit('      {');
      for (const v of count(vectors))
        emit(`        let x${v} = ${from}[at + ${(b * chunkSteps * vectors + v) * across}u];`);
      emit(`        let sx = ${scales}[term + ${b * chunkSteps * across}u];`);
      for (const i of count(each))
        for (const g of runs) for (const p of count(planes)) emit(`        var d${i}_${p}${g} = 0x4b400000;`);
      for (const v of count(2 * pieces))
        for (const e of 'xyzw')
          for (const i of count(each))
            for (const p of count(planes))
              emit(
                `        d${i}_${p}${runs[runs.length === 1 || 'xy'.includes(e) ? 0 : 1]} += dot4I8Packed(a${i}_${v}.${e}, x${p * 2 * pieces + v}.${e});`,
              );
      for (const i of count(each))
        runs.forEach((g, run) => {
          const float = (p: number): string => `(bitcast<f32>(d${i}_${p}${g}) - 12582912.0)`;
          const sum = planes === 1 ? float(0) : `fma(256.0, ${float(0)}, ${float(1)})`;
          const v = `v${i}_${b}`;
          // Numbers of tables have no bias.
          emit(
            weight.kind === 'lut4'
              ? `        ${v} = fma(own${i}_${run}.x * sx.x, ${sum}, ${v});`
              : `        ${v} = fma(affine${i}.x * sx.x, ${sum}, fma(affine${i}.y, sx.y, ${v}));`,
          );
        });
      emit('      }');
    }
    emit('    }');
  }

  /** An output from its sums, `value` and with glu `up`. */
  function store(feature: string, row: string): string {
    const text: string[] = [];
    if (inverse !== null)
      text.push(`{ let inverse = inverse_(${row}); value *= inverse;${gated ? ' up *= inverse;' : ''} }`);
    if (spec.bias) text.push(`value += bias[${feature}];`);
    if (gated) {
      if (spec.bias) text.push(`up += bias[${feature} + ${features}u];`);
      text.push(`value = ${gatedText(spec.glu!, 'value', 'up')};`);
    }
    const keep = `made[${row} * ${ownFeatures}u + ${feature} - tile * ${ownFeatures}u] = value;`;
    if (left !== null && !leftNormed) return [...text, keep].join(' ');
    text.push(`let to = ${row} * ${spec.outStride}u + ${spec.outOffset}u + ${feature};`);
    if (spec.residual !== null) text.push('value += residual[to];');
    text.push('out[to] = value;', ...(leftNormed ? [keep] : []));
    return text.join(' ');
  }

  /**
   * Adds up what the lanes of a weight row have, each pair of sums once: a lane gives away the rows of x that others
   * will have and takes theirs, until it has the sum of row `along`, of row `across + along` and so on. Each is the sum that
   * all lanes would have if all added all.
   *
   * @returns the first of each `across` rows, in whose variable the lanes have theirs
   */
  function sumOverLanes(): number[] {
    let first = count(rows);
    for (let step = 1; step < across; step *= 2) {
      emit(`  { let odd = (along & ${step}u) != 0u;`);
      const keeping = first.filter((b) => (b & step) === 0);
      for (const i of count(each))
        for (const b of keeping) {
          const [v, other] = [`v${i}_${b}`, `v${i}_${b | step}`];
          const given = first.includes(b | step) ? `select(${other}, ${v}, odd)` : v;
          const own = first.includes(b | step) ? `select(${v}, ${other}, odd)` : v;
          emit(`    { let given = ${given};
      ${v} = ${own} + subgroupShuffleXor(given, ${step}u); }`);
        }
      emit('  }');
      first = keeping;
    }
    return first;
  }

  /** Each lane of a weight row has the sums of its own rows of x. */
  function finishInRegisters(): void {
    for (const i of count(own))
      for (const b of kept)
        emit(`  { let feature = first + ${i * (lanes / across)}u;
    let row = ${b}u + along;
    if (row < ${rows}u && feature < ${features}u) {
      var value = v${i}_${b}; ${gated ? `var up = v${i + own}_${b};` : ''}
      ${store('feature', 'row')} } }`);
  }

  function finishTogether(): void {
    const all = (subgroups / splits) * ofSubgroup;
    for (const i of count(each))
      for (const b of kept)
        emit(
          `  if (${b}u + along < ${rows}u) { sums[(split * ${all}u + sub / ${splits}u * ${ofSubgroup}u + ${i * (lanes / across)}u + down) * ${rows}u + ${b}u + along] = v${i}_${b}; }`,
        );
    const perSub = gated ? ofSubgroup / 2 : ofSubgroup;
    const sum = (slot: string): string =>
      count(splits)
        .map((s) => `sums[(${slot} + ${s * all}u) * ${rows}u + b]`)
        .join(' + ');
    emit(`  workgroupBarrier();
  for (var e = lid; e < ${ownFeatures * rows}u; e += ${threads}u) {
    let b = e / ${ownFeatures}u;
    let f = e % ${ownFeatures}u;
    let feature = tile * ${ownFeatures}u + f;
    if (feature < ${features}u) {
      let slot = f / ${perSub}u * ${ofSubgroup}u + f % ${perSub}u;
      var value = ${sum('slot')};
      ${gated ? `var up = ${sum(`slot + ${perSub}u`)};` : ''}
      ${store('feature', 'b')}
    }
  }`);
  }

  /** The values that the workgroup made, as the next product reads them. */
  function leaveBytes(layout: BytesLayout): void {
    const units = unitsOf(layout, lanes).own;
    const perRow = threadsOf(plan!, layout, c);
    emit(`  workgroupBarrier();
  for (var base = 0u; base < ${perRow * rows}u; base += ${threads}u) {
    let thread = min(base + lid, ${perRow * rows - 1}u);
    let row = thread / ${perRow}u;
    let item = tile * ${perRow}u + thread % ${perRow}u;
    let here = base + lid < ${perRow * rows}u && item < ${features / 8 / units}u;`);
    const values = unitValues(units);
    for (const { name, vector } of values) {
      const value = (e: number): string => `made[thread * ${8 * units}u + ${4 * vector + e}u]`;
      const text = `vec4<f32>(${[0, 1, 2, 3].map(value).join(', ')})`;
      if (!leftNormed) emit(`    let ${name} = ${text};`);
      else
        emit(`    let whole_of_${name} = ${text};
    let ${name} = whole_of_${name} * outNorm[item * ${2 * units}u + ${vector}u];`);
    }
    emit(unitsText(layout, leftNormed ? NORMED_BYTES : HANDED_BYTES, lanes));
    if (leftNormed)
      emit(
        squaresText(
          values.map(({ name }) => `whole_of_${name}`),
          { tiles: features / ownFeatures, perRow },
        ),
      );
    emit('  }');
  }

  const tiles = Math.ceil(features / ownFeatures);
  const wide = Math.min(tiles, 32768);
  return {
    label: `dp4a-${weightName(weight)}-${n}x${k}-b${rows}-l${across}p${pieces}r${each}s${subgroups}k${splits}c${chunks}q${planes}${xTiles === 0 ? '' : ' of sums of squares'}${left === null ? '' : leftNormed ? ' to bytes of a norm' : ' to bytes'}`,
    wgsl: lines.join('\n'),
    bindings,
    writes,
    types: TYPES,
    workgroups: [wide, Math.ceil(tiles / wide), 1],
    threads,
    workgroupBytes: plan.bytes,
  };
}
