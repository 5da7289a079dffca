/**
 * Attention over the paged cache, portable.
 *
 * One core serves two dispatches. A workgroup holds some *rows*, (token, query head) pairs that share a KV head, and
 * walks positions in chunks staged in workgroup memory; K and V are read once for all its rows, so the query heads of
 * a GQA group share them. Sums start anew at every multiple of ATTENTION_SPLIT and are merged in order:
 * - *items*: sequences with one token in the step. A workgroup does one split and leaves a partial (max, sum,
 *   weighted values), which `reduce` merges. A long context fills the GPU.
 * - *tiles*: other sequences. A workgroup does all splits of up to ATTENTION_TILE tokens and merges as it goes.
 * A sum's order depends on positions alone: neither on the rows nor on which of the two did it.
 *
 * With a float tail both are done twice, of what rows see before it and of the tail, which is one partial (attend-tail.ts).
 *
 * Keys and values are read as stored: a chunk is dequantised once, into workgroup memory. TurboQuant's stay rotated: the
 * queries come rotated too, and the sums of values are rotated back once a row, at the end.
 */

import type { AttentionShape } from '../../graph.js';
import type { KvFormat } from '../../kv.js';
import { type Binding, declareBindings, type Kernel, Params, type Stage, type Variant } from '../kernel.js';
import type { KvRows } from '../shapes.js';
import { ATTENTION_SPLIT, ATTENTION_TILE, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { attendOut, outName } from './attend-out.js';
import { type AttendMode, attendScratch, portableSizes } from './attend-plan.js';
import { mergeText, reduceStage } from './attend-reduce.js';
import { dividedText, isUnseen, LOWEST, SINKS_BINDING, sinkText, tileText } from './attend-words.js';
import { cacheType, KV_WGSL, readerText, sideNumbers } from './kv-format.js';
import { codecOf } from './kv-formats/list.js';
import { tableWord } from './kv-formats/side.js';
import {
  headFirst,
  headFour,
  itemsOf,
  itemText,
  partialAt,
  partialNames,
  sumBindings,
  tileNames,
} from './kv-head.js';
import { rotateText } from './kv-rotate.js';
import { rowsName, rowsSkipped, sideOf } from './kv-rows.js';

export interface AttendShape extends AttentionShape {
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly rows: KvRows;
  readonly blockTokens: number;
  readonly maxBlocksPerSlot: number;
  readonly scale: number;
  readonly window: number | null;
  readonly softcap: number | null;
  /** Heads have one more score, without a value. Default false. */
  readonly sinks?: boolean;
  /** Tiles see as far as the step says, later tokens too. Default false. Fast kernels take no such. */
  readonly ahead?: boolean | 'window';
  /** Items there is scratch for; 0 where every sequence is tiled. */
  readonly maxItems: number;
  /** Most tokens, and sequences, of a step: where there is a float tail. */
  readonly most?: { readonly tokens: number; readonly rows: number };
  /** Rows are left as halves for the product behind (attend-out.ts). */
  readonly outHanded?: boolean;
}

const THREADS = 128;

const portable = (mode: AttendMode): Variant<AttendShape> => ({
  name: `portable-${mode}`,
  supports: () => true,
  build: (capabilities, shape) => ({ stages: [coreStage(shape, capabilities.workgroupBytes, mode)] }),
});
export const portableItems = portable('items');
export const portableTiles = portable('tiles');

/** All stages, portable throughout. */
export function attendKernel(shape: AttendShape, workgroupBytes: number): Kernel {
  const tiles = coreStage(shape, workgroupBytes, 'tiles');
  if (shape.maxItems === 0) return { stages: [tiles] };
  const reduce = reduceStage({ ...shape, headDim: shape.valueDim ?? shape.headDim });
  const stages = [coreStage(shape, workgroupBytes, 'items'), reduce, tiles];
  return { stages, scratch: attendScratch(shape) };
}

/** head_dim and formats are in the text; the rest is parameters, so that layers of many shapes share a pipeline. */
function coreStage(shape: AttendShape, workgroupBytes: number, mode: AttendMode): Stage {
  const { heads, kvHeads, headDim, valueDim, window, softcap } = shape;
  const vectors = headDim / 4;
  // Of latents the values are the last part of the keys, which are staged already.
  const given = (valueDim ?? headDim) / 4;
  const { chunk, rows } = portableSizes(shape, workgroupBytes, mode);
  const tokens = mode === 'items' ? 1 : ATTENTION_TILE;
  const rowBlocks = Math.ceil(((heads / kvHeads) * tokens) / rows);
  const cells = rows * given;
  const owned = Math.ceil(cells / THREADS);
  const p = new Params();
  const text = {
    heads: p.u32(heads),
    kvHeads: p.u32(kvHeads),
    group: p.u32(heads / kvHeads),
    rowBlocks: p.u32(rowBlocks),
    blockTokens: p.u32(shape.blockTokens),
    maxBlocks: p.u32(shape.maxBlocksPerSlot),
    before: p.u32((window ?? 1) - 1),
    scale: p.f32(shape.scale),
    softcap: p.f32(softcap ?? 1),
  };
  const keys = sideOf('keys', shape);
  const values = sideOf('values', shape);
  const shared = { kvHeads: text.kvHeads, blockTokens: text.blockTokens };
  const valueNumbers = sideNumbers(p, values, shared);
  const readers = {
    keys: readerText(keys, sideNumbers(p, keys, shared)),
    values: readerText(values, valueNumbers),
  };
  const bindings: Binding[] = [
    p.binding,
    STEP_BINDING,
    { name: 'q', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'keys', access: 'read', type: cacheType(shape.key) },
    ...(valueDim === undefined
      ? [{ name: 'values', access: 'read', type: cacheType(shape.value) } as const]
      : []),
    { name: 'tables', access: 'read', type: 'array<u32>' },
  ];
  const out = attendOut(shape);
  const partials = partialNames(shape.rows);
  const { tail, only } = shape.rows;
  /** Of the newest positions, or of what is before so many. */
  const newest = only === 'tail';
  const earlier = newest || tail === undefined || mode === 'items' ? null : tail.tokens;
  /** Tiles leave sums for another launch. */
  const left = mode === 'tiles' && tail !== undefined ? tileNames(shape.rows) : null;
  if (left !== null) bindings.push(...sumBindings(left, 'vec4<f32>'));
  else if (mode === 'tiles') bindings.push(out.binding, ...(shape.sinks === true ? [SINKS_BINDING] : []));
  else bindings.push(...sumBindings(partials, 'vec4<f32>'));
  // A thread owns the cells `lid + THREADS · j`, each (row r, dims 4 d … 4 d + 3).
  const cell = (body: string): string => `for (var j = 0u; j < ${owned}u; j++) {
      let cell = lid + j * ${THREADS}u;
      let r = cell / ${given}u;
      let d = cell % ${given}u;
      ${cells % THREADS === 0 ? '' : `if (cell >= ${cells}u) { break; }`}
      ${body}
    }`;
  const low = (position: string): string =>
    window === null ? '0u' : `(max(${position}, ${text.before}) - ${text.before})`;
  const softcapped =
    softcap === null
      ? ''
      : `let e = exp(clamp(2.0 * s / ${text.softcap}, -80.0, 80.0));
          s = ${text.softcap} * (1.0 - 2.0 / (e + 1.0));`;
  const base = { keys: shape.rows.keyBase >>> 0, values: shape.rows.valueBase >>> 0 };
  // Prompts read what is before and behind a float head; an item is of one of them.
  const behind = shape.rows.only === 'behind' ? shape.rows.head! : null;
  const inHead = (side: 'keys' | 'values') => {
    if (behind === null || mode === 'items') return null;
    const first = headFirst(side, behind);
    return first === null
      ? null
      : { ...headFour(side, behind, headDim, shared, 1), base: (shape.rows.border - first) >>> 0 };
  };
  const inHeads = { keys: inHead('keys'), values: inHead('values') };
  const read = (side: 'keys' | 'values'): string => {
    const head = inHeads[side];
    const own = `v = ${readers[side].four('block', 'kv', 't % block_tokens', `i % ${vectors}u`)};`;
    if (head === null) return own;
    return `if (split < 0) { v = ${head.four}(entry - ${head.base}u, kv, t % block_tokens, i % ${vectors}u); } else { ${own} }`;
  };
  const stage = (side: 'keys' | 'values'): string => `
      for (var i = lid; i < ${chunk * vectors}u; i += ${THREADS}u) {
        let t = base + i / ${vectors}u;
        var v = vec4<f32>(0.0);
        if (t <= last${window === null ? '' : ' && t >= oldest'}) {
          let entry = tables[table + t / block_tokens];
          let block = entry - ${base[side]}u;
          ${read(side)}
        }
        staged[i] = v;
      }`;
  const rotation = codecOf(shape.value).rotation(shape.value, headDim);
  const turn =
    rotation === null || mode === 'items' || left !== null
      ? null
      : rotateText({
          name: 'sums',
          headDim,
          rows,
          threads: THREADS,
          array: 'queries',
          matrix: (i) => tableWord(values, valueNumbers, `${rotation}u + ${i}`),
          inverse: true,
        });
  // Ends rise along a sequence: the last row sees farthest.
  const ahead = (shape.ahead ?? false) !== false && mode === 'tiles';
  const reach = (end: string, position: string): string =>
    shape.ahead === 'window' ? `min(${end}, ${position} + ${window}u)` : end;
  const lastRow = `(min((row_block + 1u) * ${rows}u, row_count) - 1u) / group`;
  const lastSeen = ahead
    ? `${reach(`step_token(first_token + ${lastRow}).w`, `p_first + ${lastRow}`)} - 1u`
    : `p_first + ${lastRow}`;
  const sees =
    earlier !== null
      ? `t + ${earlier}u <= position`
      : ahead
        ? `t < ${reach('step_token(first_token + row / group).w', 'position')}`
        : 't <= position';
  const lastSplit = newest
    ? '0'
    : behind === null
      ? `i32(last / ${ATTENTION_SPLIT}u)`
      : `select(-1, i32(last / ${ATTENTION_SPLIT}u), last >= ${behind.tokens}u)`;
  const locate =
    mode === 'items'
      ? `
  let item_at = wid.x + wid.y * groups.x;
  ${itemText(shape.rows)}
  let first_token = item.x;
  let slot = item.z;
  let last = item.w;
  let p_first = last;
  let row_count = group;
  let split_first = ${newest ? '0' : 'i32(item.y)'};
  let split_last = split_first;${behind === null ? '' : `\n  if (last < ${behind.tokens}u || item.y * ${ATTENTION_SPLIT}u + ${ATTENTION_SPLIT - 1}u < ${behind.tokens}u) { return; }`}`
      : `
  ${tileText('groups')}
  let first_token = tile.x;
  let slot = tile.w;
  let p_first = tile.z;
  let row_count = tile.y * group;
  if (row_block * ${rows}u >= row_count) { return; }
  // The last position that a row of this workgroup sees, and the first split.
  let last = ${earlier === null ? lastSeen : `max(${lastSeen}, ${earlier}u) - ${earlier}u`};
  let split_last = ${earlier === null ? lastSplit : `select(${lastSplit}, -2, ${lastSeen} < ${earlier}u)`};
  let split_first = ${newest ? '0' : behind === null ? `i32(${low(`(p_first + row_block * ${rows}u / group)`)} / ${ATTENTION_SPLIT}u)` : '-1'};`;
  const merge = mergeText('total[j]', 'total_top[r]', 'total_sum[r]', 'acc[j]', 'top[r]', 'sum[r]');
  const mergeSplit =
    mode === 'items'
      ? ''
      : `
    // The split joins the whole by the same steps as in the reduce.
    ${cell(merge.vector)}
    workgroupBarrier();
    if (lid < ${rows}u) {
      let r = lid;
      ${merge.scalars}
    }
    workgroupBarrier();`;
  const finish =
    mode === 'items'
      ? `
  ${cell(`let row = row_block * ${rows}u + r;
      if (row < row_count) { ${partials.sums}[(${partialAt(shape)} * heads + kv * group + row) * ${given}u + d] = acc[j]; }`)}
  if (lid < ${rows}u && row_block * ${rows}u + lid < row_count) {
    ${partials.tops}[${partialAt(shape)} * heads + kv * group + row_block * ${rows}u + lid] = vec2<f32>(top[lid], sum[lid]);
  }`
      : left !== null
        ? `
  ${cell(`let row = row_block * ${rows}u + r;
      if (row < row_count) { ${left.sums}[((first_token + row / group) * heads + kv * group + row % group) * ${given}u + d] = total[j]; }`)}
  if (lid < ${rows}u && row_block * ${rows}u + lid < row_count) {
    let row = row_block * ${rows}u + lid;
    ${left.tops}[(first_token + row / group) * heads + kv * group + row % group] = vec2<f32>(total_top[lid], total_sum[lid]);
  }`
        : `
  ${turn === null ? '' : `${cell('queries[cell] = total[j];')}\n  ${turn.transform}`}
  ${cell(`let row = row_block * ${rows}u + r;
      if (row < row_count) {
        let denominator = total_sum[r];
        ${turn === null ? '' : `total[j] = ${turn.cell('cell')} * vec4<f32>(${[0, 1, 2, 3].map((e) => tableWord(values, valueNumbers, `d * 4u + ${e}u`)).join(', ')});`}
        let value = ${dividedText('total[j]', 'denominator', 'vec4<f32>(0.0)', sinkText(shape.sinks, 'kv * group + row % group', 'total_top[r]'))};
        ${out.store(`((first_token + row / group) * heads + kv * group + row % group) * ${given}u + d`, 'value')}
      }`)}`;
  const tileState =
    mode === 'items'
      ? ''
      : `var<workgroup> total_top: array<f32, ${rows}>;
var<workgroup> total_sum: array<f32, ${rows}>;`;
  const gives = mode === 'tiles' && left === null;
  const wgsl = `${gives ? out.enable : ''}${declareBindings(bindings)}
${gives ? out.helper : ''}
${STEP_WGSL}
${KV_WGSL}
${readers.keys.declarations}
${valueDim === undefined ? readers.values.declarations : ''}
${inHeads.keys?.declarations ?? ''}
${valueDim === undefined ? (inHeads.values?.declarations ?? '') : ''}
${turn?.functions ?? ''}
var<workgroup> queries: array<vec4<f32>, ${rows * vectors}>;
var<workgroup> staged: array<vec4<f32>, ${chunk * vectors}>;
var<workgroup> scores: array<f32, ${rows * chunk}>;
var<workgroup> top: array<f32, ${rows}>;
var<workgroup> sum: array<f32, ${rows}>;
var<workgroup> shrink: array<f32, ${rows}>;
${tileState}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let heads = ${text.heads};
  let group = ${text.group};
  let block_tokens = ${text.blockTokens};
  let kv = wid.z / ${text.rowBlocks};
  let row_block = wid.z % ${text.rowBlocks};
  ${locate}
  ${rowsSkipped(shape.rows, text.maxBlocks, 'slot')}
  ${readers.keys.prepare(THREADS)}
  ${valueDim === undefined ? readers.values.prepare(THREADS) : ''}
  let table = slot * ${text.maxBlocks};
  ${window === null ? '' : `// What lies before the windows of all rows may be another sequence's by now.\n  let oldest = ${low(mode === 'items' ? 'last' : `(p_first + row_block * ${rows}u / group)`)};`}
  for (var i = lid; i < ${rows * vectors}u; i += ${THREADS}u) {
    let row = row_block * ${rows}u + i / ${vectors}u;
    var v = vec4<f32>(0.0);
    if (row < row_count) {
      let head = kv * group + row % group;
      v = q[((first_token + row / group) * heads + head) * ${vectors}u + i % ${vectors}u];
    }
    queries[i] = v;
  }
  var acc: array<vec4<f32>, ${owned}>;
  ${mode === 'tiles' ? `var total: array<vec4<f32>, ${owned}>;` : ''}
  ${mode === 'tiles' ? `if (lid < ${rows}u) { total_top[lid] = ${LOWEST}; total_sum[lid] = 0.0; }` : ''}
  for (var split = split_first; split <= split_last; split++) {
    if (lid < ${rows}u) { top[lid] = ${LOWEST}; sum[lid] = 0.0; }
    for (var j = 0u; j < ${owned}u; j++) { acc[j] = vec4<f32>(0.0); }
    ${
      newest
        ? `// The newest positions are one partial, walked in chunks of the same positions for any row.
    let begin = oldest / ${chunk}u * ${chunk}u;
    let split_end = last;`
        : behind === null
          ? `let begin = u32(split) * ${ATTENTION_SPLIT}u;
    let split_end = min(begin + ${ATTENTION_SPLIT - 1}u, last);`
          : `// A float head comes before the first split, and is one itself.
    let in_head = split < 0;
    let begin = select(max(u32(split) * ${ATTENTION_SPLIT}u, ${behind.tokens}u), 0u, in_head);
    let split_end = min(select(u32(split) * ${ATTENTION_SPLIT}u + ${ATTENTION_SPLIT - 1}u, ${behind.tokens - 1}u, in_head), last);`
    }
    for (var base = begin; base <= split_end; base += ${chunk}u) {
      workgroupBarrier();
      ${stage('keys')}
      workgroupBarrier();
      for (var i = lid; i < ${rows * chunk}u; i += ${THREADS}u) {
        let r = i / ${chunk}u;
        let t = base + i % ${chunk}u;
        let row = row_block * ${rows}u + r;
        let position = p_first + row / group;
        var s = ${LOWEST};
        if (row < row_count && ${sees} && t >= ${low('position')}) {
          s = 0.0;
          for (var d = 0u; d < ${vectors}u; d++) {
            s += dot(queries[r * ${vectors}u + d], staged[(i % ${chunk}u) * ${vectors}u + d]);
          }
          s *= ${text.scale};
          ${softcapped}
        }
        scores[i] = s;
      }
      workgroupBarrier();
      ${valueDim === undefined ? stage('values') : ''}
      if (lid < ${rows}u) {
        let before = top[lid];
        var now = before;
        for (var c = 0u; c < ${chunk}u; c++) { now = max(now, scores[lid * ${chunk}u + c]); }
        let factor = exp(before - now);
        var weights = sum[lid] * factor;
        for (var c = 0u; c < ${chunk}u; c++) {
          let s = scores[lid * ${chunk}u + c];
          // Not yet anything seen: LOWEST less LOWEST would count as 1.
          let w = select(exp(s - now), 0.0, ${isUnseen('s')});
          scores[lid * ${chunk}u + c] = w;
          weights += w;
        }
        top[lid] = now;
        sum[lid] = weights;
        shrink[lid] = factor;
      }
      workgroupBarrier();
      ${cell(`var a = acc[j] * shrink[r];
      for (var c = 0u; c < ${chunk}u; c++) { a = fma(vec4<f32>(scores[r * ${chunk}u + c]), staged[c * ${vectors}u + ${vectors - given}u + d], a); }
      acc[j] = a;`)}
    }
    workgroupBarrier();
    ${mergeSplit}
  }
  ${finish}
}`;
  return {
    label: `attend ${mode} ${heads}/${kvHeads}×${headDim}${valueDim === undefined ? '' : `→${valueDim}`}${rowsName(shape.rows)}${gives ? outName(shape) : ''}${ahead ? ` ahead${shape.ahead === 'window' ? ' by the window' : ''}` : ''}`,
    wgsl,
    bindings,
    params: p.words,
    workgroups: (facts, size) => {
      const count = mode === 'items' ? itemsOf(shape.rows, facts) : facts.tiles;
      const y = Math.ceil(count / 65535);
      size[0] = y === 0 ? 0 : Math.ceil(count / y);
      size[1] = y;
      size[2] = kvHeads * rowBlocks;
    },
  };
}
