/**
 * Prompt tiles of rows with a float tail: what a row sees before it, and the tail, are walked by launches of their own, over pools of
 * their own. Each leaves sums of weighted values, not yet divided, with (greatest score, sum of weights); the launch here puts
 * the two together, turns them back where values are stored rotated, and divides.
 *
 * Rows that decode have the tail as one more item, that the merge of their partials takes last (attend-reduce.ts). In both the tail is one
 * partial: where it begins depends on the row's position alone, and so do the chunks that it is walked in.
 */

import { type Binding, declareBindings, Params, type Stage, spread } from '../kernel.js';
import { ATTENTION_TILE, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { attendOut, outName } from './attend-out.js';
import { mergeText } from './attend-reduce.js';
import { dividedText, SINKS_BINDING, sinkText, tileTokenText } from './attend-words.js';
import { cacheType, sideNumbers } from './kv-format.js';
import { codecOf } from './kv-formats/list.js';
import { tableWord } from './kv-formats/side.js';
import { sumBindings, tileNames } from './kv-head.js';
import { rotateText } from './kv-rotate.js';
import { rowsSkipped, sideOf } from './kv-rows.js';
import { GROUPS_PARAMETER } from './rolled.js';

/** Storage buffers that kernels bind where there is one. */
export const TAIL_BUFFERS = 9;

/** Tokens of the longest float tail. */
export const MOST_TAIL = 256;

/**
 * The end of rows in tiles, `shape` being that of what is before the tail. One workgroup (tile, token of it, some heads). Roles: step, what
 * both left, out, values where they are rotated, tables where rows are of two kinds, sinks.
 */
export function tailEndStage(shape: AttendShape): Stage {
  const { heads, headDim, rows, value, valueDim = headDim } = shape;
  const vectors = valueDim / 4;
  const threads = 64;
  const together = [8, 4, 2, 1].find((n) => heads % n === 0)!;
  const cells = together * vectors;
  const p = new Params();
  const values = sideOf('values', shape);
  const numbers = sideNumbers(p, values, { kvHeads: '0u', blockTokens: '0u' });
  const word = (i: string): string => tableWord(values, numbers, i);
  const rotation = codecOf(value).rotation(value, headDim);
  const out = attendOut(shape);
  const turn =
    rotation === null
      ? null
      : rotateText({
          name: 'sums',
          headDim,
          rows: together,
          threads,
          array: 'turned',
          matrix: (i) => word(`${rotation}u + ${i}`),
          inverse: true,
        });
  const [own, tail] = [tileNames(rows), tileNames({ ...rows, only: 'tail' })];
  const skipped = rowsSkipped(rows, `${shape.maxBlocksPerSlot}u`, 'tile.w');
  const handed = shape.outHanded === true;
  const bindings: Binding[] = [
    ...(rotation === null ? [] : [p.binding]),
    STEP_BINDING,
    ...sumBindings(tail, 'vec4<f32>'),
    ...sumBindings(own, 'vec4<f32>'),
    ...(handed ? [out.binding] : []),
    ...(rotation === null ? [] : [{ name: 'values', access: 'read', type: cacheType(value) } as const]),
    ...(skipped === '' ? [] : [{ name: 'tables', access: 'read', type: 'array<u32>' } as const]),
    ...(shape.sinks === true ? [SINKS_BINDING] : []),
  ];
  const merge = mergeText('total', 'total_top', 'total_sum', 'newest', 'newest_tops.x', 'newest_tops.y');
  const tops = `let at = first + i / ${vectors}u;
    let own_tops = ${own.tops}[at];
    let newest_tops = ${tail.tops}[at];
    var total_top = own_tops.x;
    var total_sum = own_tops.y;`;
  const store = (total: string): string =>
    out.store(
      `first * ${vectors}u + i`,
      dividedText(
        total,
        'total_sum',
        'vec4<f32>(0.0)',
        sinkText(shape.sinks, `(first_head + i / ${vectors}u)`, 'total_top'),
      ),
    );
  const joined = `var total = ${own.sums}[first * ${vectors}u + i];
    let newest = ${tail.sums}[first * ${vectors}u + i];`;
  const signs = [0, 1, 2, 3].map((e) => word(`i % ${vectors}u * 4u + ${e}u`)).join(', ');
  const wgsl = `${out.enable}${declareBindings(bindings)}
${out.helper}
${STEP_WGSL}
${turn === null ? '' : `var<workgroup> turned: array<vec4<f32>, ${cells}>;\n${turn.functions}`}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, ${GROUPS_PARAMETER},
        @builtin(local_invocation_index) lid: u32) {
  ${tileTokenText(heads / together)}
  ${skipped}
  let first_head = wid.z % ${heads / together}u * ${together}u;
  let first = (tile.x + token) * ${heads}u + first_head;
  for (var i = lid; i < ${cells}u; i += ${threads}u) {
    ${tops}
    ${joined}
    ${turn === null ? `{ ${merge.both} }\n    ${store('total')}` : `{ ${merge.vector} }\n    turned[i] = total;`}
  }${
    turn === null
      ? ''
      : `
  ${turn.transform}
  for (var i = lid; i < ${cells}u; i += ${threads}u) {
    ${tops}
    { ${merge.scalars} }
    let total = ${turn.cell('i')} * vec4<f32>(${signs});
    ${store('total')}
  }`
  }
}`;
  return {
    label: `attend tail end ${heads}×${valueDim}${outName(shape)}`,
    wgsl,
    bindings,
    ...(rotation === null ? {} : { params: p.words }),
    workgroups: (facts, size) => spread(facts.tiles, size, (ATTENTION_TILE * heads) / together),
  };
}
