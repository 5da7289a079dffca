/** The merge of the partials that a row's splits left, and what it ends with: rotated back, divided, written. */

import { type Binding, declareBindings, Params, type Stage, spread } from '../kernel.js';
import { ATTENTION_SPLIT, ATTENTION_TILE, ITEM_ROW_TEXT, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { attendOut, headBytes, type LeftBytes, outName } from './attend-out.js';
import { dividedText, LOWEST, SINKS_BINDING, sinkText, tileTokenText } from './attend-words.js';
import { cacheType, sideNumbers } from './kv-format.js';
import { codecOf } from './kv-formats/list.js';
import { tableWord } from './kv-formats/side.js';
import { partialAt } from './kv-head.js';
import { rotateOneText, rotateText } from './kv-rotate.js';
import { rowsSkipped, sideOf } from './kv-rows.js';
import { GROUPS_PARAMETER, rolledBound } from './rolled.js';

/** Adds the partial (vector b, top, sum) to the running a; the scalars once all vectors are done, or both of one vector. */
export function mergeText(
  a: string,
  aTop: string,
  aSum: string,
  b: string,
  bTop: string,
  bSum: string,
): { readonly vector: string; readonly scalars: string; readonly both: string } {
  const factors = `let now = max(${aTop}, ${bTop}); let fa = exp(${aTop} - now); let fb = exp(${bTop} - now);`;
  const vector = `${a} = fma(${b}, vec4<f32>(fb), ${a} * fa);`;
  const scalars = `${aSum} = fma(${bSum}, fb, ${aSum} * fa); ${aTop} = now;`;
  return {
    vector: `${factors} ${vector}`,
    scalars: `${factors} ${scalars}`,
    both: `${factors} ${vector} ${scalars}`,
  };
}

/**
 * Statements that add partials to the running a, all of them at once: no factor waits for another, where merging them one by one
 * has two exponentials after each other for each.
 */
export function mergeAllText(
  a: string,
  aTop: string,
  aSum: string,
  others: readonly {
    readonly vector: string;
    readonly top: string;
    readonly sum: string;
    /** Whether it counts; if not, it is one of the others once more. */
    readonly counts?: string;
  }[],
): string {
  const greatest = others.reduce((m, { top }) => `max(${m}, ${top})`, aTop);
  return [
    `let now = ${greatest}; let own = exp(${aTop} - now);`,
    `${a} *= own; ${aSum} *= own; ${aTop} = now;`,
    ...others.map(
      ({ vector, top, sum, counts }) =>
        `{ let f = ${counts === undefined ? `exp(${top} - now)` : `select(0.0, exp(${top} - now), ${counts})`}; ${a} = fma(${vector}, vec4<f32>(f), ${a}); ${aSum} = fma(${sum}, f, ${aSum}); }`,
    ),
  ].join('\n');
}

/**
 * Partials that a thread has on their way at once, and, where they are merged in order, those of a turn: the others move up.
 */
const AHEAD = 8;
const TURN = 2;

/** Threads of a slice. */
export const reduceLanes = (headDim: number): number => Math.ceil(headDim / 4 / 32) * 32;

/**
 * Merges the partials of items. One workgroup a (token, head), a thread for four dims and one of `slices` runs of the
 * partials; one slice merges them strictly in order. Rows of both kinds come here, and rows of quantised blocks alone
 * are rotated back. @param left the bytes that it leaves, or null where it leaves what the shape says
 */
export function reduceStage(shape: AttendShape, slices = 1, left: LeftBytes | null = null): Stage {
  const { heads, kvHeads, headDim, window, rows } = shape;
  const vectors = headDim / 4;
  const lanes = reduceLanes(headDim);
  const threads = lanes * slices;
  const p = new Params();
  const text = {
    heads: p.u32(heads),
    maxBlocks: p.u32(shape.maxBlocksPerSlot),
    before: p.u32((window ?? 1) - 1),
  };
  const head = rows.only === 'behind' ? rows.head! : null;
  const rotation = codecOf(shape.value).rotation(shape.value, headDim);
  const values = sideOf('values', shape);
  const numbers = sideNumbers(p, values, { kvHeads: '0u', blockTokens: '0u' });
  const word = (i: string): string => tableWord(values, numbers, i);
  const out = attendOut(shape);
  const bytes = left === null ? null : headBytes(shape, left);
  const bindings: Binding[] = [
    p.binding,
    STEP_BINDING,
    { name: 'scratchSums', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'scratchTops', access: 'read', type: 'array<vec2<f32>>' },
    ...(bytes?.bindings ?? [out.binding]),
    ...(shape.sinks === true ? [SINKS_BINDING] : []),
  ];
  const sink = sinkText(shape.sinks, 'head', 'total_top');
  const value = dividedText('total', 'total_sum', 'vec4<f32>(0.0)', sink);
  const turn =
    rotation === null
      ? null
      : rotateOneText({
          name: 'sums',
          headDim,
          value: 'total',
          array: 'turned',
          matrix: (i) => word(`${rotation}u + ${i}`),
          inverse: true,
        });
  if (rotation !== null) bindings.push({ name: 'values', access: 'read', type: cacheType(shape.value) });
  if (head !== null)
    bindings.push(
      { name: 'scratchHeadSums', access: 'read', type: 'array<vec4<f32>>' },
      { name: 'scratchHeadTops', access: 'read', type: 'array<vec2<f32>>' },
    );
  const { tail } = rows;
  const kinds = rows.only === 'quantised';
  if ((rotation !== null || tail !== undefined) && kinds)
    bindings.push({ name: 'tables', access: 'read', type: 'array<u32>' });
  // Splits before the window hold nothing; the tiled kernel does not begin there, so neither do we.
  const splitAt = (position: string): string => `${position} / (${ATTENTION_SPLIT}u * step[1].w)`;
  // And those before the end of a float head: it is an item of its own, and the first that is merged.
  const position = tail === undefined ? 'step_token(row.x).z' : 'before';
  const end = tail === undefined ? 'row.z' : 'count';
  const first =
    head !== null
      ? `select(${end}, ${splitAt(`${head.tokens}u`)}, ${tail === undefined ? '' : 'count > 0u && '}${position} >= ${head.tokens}u)`
      : window === null
        ? '0u'
        : splitAt(`(max(step_token(row.x).z, ${text.before}) - ${text.before})`);
  const ofHead =
    head === null
      ? ''
      : `if (lid < ${lanes}u${tail === undefined ? '' : ' && count > 0u'}) {
    let head_at = wid.y * heads + head;
    total = scratchHeadSums[head_at * ${vectors}u + dim];
    total_top = scratchHeadTops[head_at].x;
    total_sum = scratchHeadTops[head_at].y;
  }`;
  // Items end before a tail, which is merged last; rows that are floats as yet have all that they see in items.
  const coded = `tables[row.w * ${text.maxBlocks}] < ${rows.border}u`;
  const beforeTail =
    tail === undefined
      ? ''
      : `let has_tail = ${kinds ? coded : 'true'};
  let position = step_token(row.x).z;
  let before = max(position, ${tail.tokens}u) - ${tail.tokens}u;
  let count = select(row.z, select(0u, ${splitAt('before')} + 1u, position >= ${tail.tokens}u), has_tail);`;
  const ofTail =
    tail === undefined
      ? ''
      : `if (lid < ${lanes}u && has_tail) {
    let tail_at = ${partialAt({ rows: { ...rows, only: 'tail' }, maxItems: shape.maxItems }, 'wid.y')} * heads + head;
    let newest = scratchSums[tail_at * ${vectors}u + dim];
    let newest_tops = scratchTops[tail_at];
    { ${mergeText('total', 'total_top', 'total_sum', 'newest', 'newest_tops.x', 'newest_tops.y').both} }
  }`;
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  const load = (u: number): string =>
    `let at${u} = min(at + ${u}u * heads, last); var tops${u} = scratchTops[at${u}]; var value${u} = scratchSums[at${u} * ${vectors}u + dim];`;
  const merge = (u: number): string =>
    mergeText('total', 'total_top', 'total_sum', `value${u}`, `tops${u}.x`, `tops${u}.y`).both;
  const moveUp = (u: number): string => `tops${u} = tops${u + TURN}; value${u} = value${u + TURN};`;
  // A single slice keeps the order that kernels of tiles have.
  const inOrder = `let some = min(end - i, ${rolledBound(AHEAD)});
    for (var u = 0u; u < some; u += ${TURN}u) {
      { ${merge(0)} }
      if (u + 1u < some) { ${merge(1)} }
      ${count(AHEAD - TURN)
        .map(moveUp)
        .join(' ')}
    }`;
  const atOnce = `let some = end - i;
    ${mergeAllText(
      'total',
      'total_top',
      'total_sum',
      count(AHEAD).map((u) => ({
        vector: `value${u}`,
        top: `tops${u}.x`,
        sum: `tops${u}.y`,
        ...(u === 0 ? {} : { counts: `${u}u < some` }),
      })),
    )}`;
  const across = mergeAllText(
    'total',
    'total_top',
    'total_sum',
    count(slices - 1).map((s) => ({
      vector: `parts[${(s + 1) * lanes}u + lane]`,
      top: `tops[${s + 1}].x`,
      sum: `tops[${s + 1}].y`,
    })),
  );
  const wgsl = `${bytes === null ? out.enable : 'enable subgroups;\n'}${declareBindings(bindings)}
${bytes === null ? out.helper : bytes.helper}
${STEP_WGSL}
${turn === null ? '' : `var<workgroup> turned: array<vec4<f32>, ${vectors}>;`}
${
  slices === 1
    ? ''
    : `var<workgroup> parts: array<vec4<f32>, ${threads}>;
var<workgroup> tops: array<vec2<f32>, ${slices}>;`
}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, ${GROUPS_PARAMETER},
        @builtin(local_invocation_index) lid: u32) {
  let heads = ${text.heads};
  ${ITEM_ROW_TEXT}
  let head = wid.x;
  let lane = lid % ${lanes}u;
  let dim = min(lane, ${vectors - 1}u);
  ${turn === null ? '' : `let signs = vec4<f32>(${[0, 1, 2, 3].map((e) => word(`dim * 4u + ${e}u`)).join(', ')});`}
  var total = vec4<f32>(0.0);
  var total_top = ${LOWEST};
  var total_sum = 0.0;
  ${beforeTail}
  ${ofHead}
  let low = ${first};
  ${
    slices === 1
      ? `let end = ${end};\n  var i = low;`
      : `let run = (${end} - low + ${slices - 1}u) / ${slices}u;
  var i = low + lid / ${lanes}u * run;
  let end = min(i + run, ${end});`
  }
  let last = (row.y + end - 1u) * heads + head;
  for (; i < end; i += ${AHEAD}u) {
    let at = (row.y + i) * heads + head;
    ${count(AHEAD).map(load).join('\n    ')}
    ${slices === 1 ? inOrder : atOnce}
  }
  ${
    slices === 1
      ? ''
      : `parts[lid] = total;
  if (lane == 0u) { tops[lid / ${lanes}u] = vec2<f32>(total_top, total_sum); }
  workgroupBarrier();
  if (lid < ${lanes}u) { ${across} }`
  }
  ${ofTail}
  ${
    turn === null
      ? ''
      : `${kinds ? `if (${coded}) {` : '{'}
    ${turn.transform}
    total = ${turn.value} * signs;
  }`
  }
  if (lid < ${vectors}u) {
    ${bytes === null ? out.store(`(row.x * heads + head) * ${vectors}u + lid`, value) : `made[lid] = ${value};`}
  }
  ${bytes === null ? '' : bytes.text}
}`;
  return {
    label: `attend reduce ${heads}/${kvHeads}×${headDim}${bytes === null ? outName(shape) : ' to bytes'}`,
    wgsl,
    bindings,
    params: p.words,
    workgroups: (facts, size) => {
      size[0] = heads;
      size[1] = facts.itemRows;
      size[2] = 1;
    },
  };
}

/**
 * Turns the rows of tiles back, in place in `out`, after a kernel that leaves them there as TurboQuant's values are; or from
 * there into halves. One workgroup (tile, token of it, some heads).
 */
export function turnStage(shape: AttendShape): Stage {
  const { heads, headDim, rows, value } = shape;
  const vectors = headDim / 4;
  const threads = 64;
  const together = [8, 4, 2, 1].find((n) => heads % n === 0)!;
  const cells = together * vectors;
  const p = new Params();
  const maxBlocks = p.u32(shape.maxBlocksPerSlot);
  const values = sideOf('values', shape);
  const numbers = sideNumbers(p, values, { kvHeads: '0u', blockTokens: '0u' });
  const word = (i: string): string => tableWord(values, numbers, i);
  const rotation = codecOf(value).rotation(value, headDim);
  if (rotation === null) throw new RangeError('values are not rotated');
  const out = attendOut(shape);
  const turn = rotateText({
    name: 'sums',
    headDim,
    rows: together,
    threads,
    array: 'turned',
    matrix: (i) => word(`${rotation}u + ${i}`),
    inverse: true,
  });
  const bindings: Binding[] = [
    p.binding,
    STEP_BINDING,
    { name: 'values', access: 'read', type: cacheType(value) },
    { name: 'tables', access: 'read', type: 'array<u32>' },
    ...(shape.outHanded === true ? [{ name: 'out', access: 'read', type: 'array<vec4<f32>>' } as const] : []),
    out.binding,
  ];
  const wgsl = `${out.enable}${declareBindings(bindings)}
${out.helper}
${STEP_WGSL}
var<workgroup> turned: array<vec4<f32>, ${cells}>;
${turn.functions}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, ${GROUPS_PARAMETER},
        @builtin(local_invocation_index) lid: u32) {
  ${tileTokenText(heads / together)}
  ${rowsSkipped(rows, maxBlocks, 'tile.w')}
  let first = ((tile.x + token) * ${heads}u + wid.z % ${heads / together}u * ${together}u) * ${vectors}u;
  for (var i = lid; i < ${cells}u; i += ${threads}u) { turned[i] = out[first + i]; }
  ${turn.transform}
  for (var i = lid; i < ${cells}u; i += ${threads}u) {
    let d = i % ${vectors}u;
    ${out.store('first + i', `${turn.cell('i')} * vec4<f32>(${[0, 1, 2, 3].map((e) => word(`d * 4u + ${e}u`)).join(', ')})`)}
  }
}`;
  return {
    label: `attend turn ${heads}×${headDim}${outName(shape)}`,
    wgsl,
    bindings,
    params: p.words,
    workgroups: (facts, size) => spread(facts.tiles, size, (ATTENTION_TILE * heads) / together),
  };
}
