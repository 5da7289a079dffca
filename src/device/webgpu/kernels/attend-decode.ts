/**
 * Attention of single-token rows over a cache of any format, for devices with subgroups.
 *
 * The same cut as the portable kernel's items: one workgroup a (row, split, KV head) with all query heads of the GQA
 * group, so K and V are read once and unpacked once, straight from memory into registers; nothing is staged. Scores of
 * the split go through workgroup memory, where the softmax is taken. It leaves the same partials (weighted values, max,
 * sum), and the reduce merges them.
 *
 * What a stored vector has once is kept out of the loops over its elements: affine keys are multiplied as integers
 * and their scale and bias applied to the sum; norms go to the score, or into the weight; the biases of values become
 * one number for each head and group. Codes become floats exactly, by bits (attend-unpack.ts), and all sums are f32 or
 * integers. Queries for integer products are of 16 bits, in two planes of bytes (attend-decode-queries.ts).
 *
 * Workgroup memory is what limits how many workgroups a GPU keeps going: weights take the place of the scores, and the
 * partial sums of values that of the weights.
 */

import type { Binding, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { decodeFrame } from './attend-decode-frame.js';
import { decodeScores } from './attend-decode-keys.js';
import type { DecodeConfig } from './attend-decode-plan.js';
import { decodeQueries, headShares } from './attend-decode-queries.js';
import { decodeEnd, decodeSums, decodeValueMeta, decodeValueNorms } from './attend-decode-values.js';
import { OPAQUE_MASKS } from './attend-planes.js';
import { bookEntries, fillBook } from './attend-unpack.js';
import { codesInRuns, hasNorm, hasScales } from './kv-formats/list.js';
import { tableOffsets } from './kv-formats/turbo-layout.js';
import { itemFirst, itemsOf, itemText, partialNames, unseenItem } from './kv-head.js';
import { rowsName, rowsSkipped } from './kv-rows.js';
import { GROUPS_PARAMETER, rolledBound } from './rolled.js';

/** Roles: step, q, keys, values, tables, scratchSums, scratchTops. */
export function decodeStage(shape: AttendShape, config: DecodeConfig): Stage {
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot, rows } = shape;
  const frame = decodeFrame(shape, config);
  const { group, split, valueGroups, dot, threads, lanes, keys, values, copies, low, vec, partGroups } =
    frame;
  /** Halves only where codes are. */
  const halves = config.f16 === true && (keys.quantised || values.quantised);
  const partials = partialNames(rows);
  const vector = vec === 1 ? 'f32' : `vec${vec}<f32>`;
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'q', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'keys', access: 'read', type: `array<${keys.type}>` },
    { name: 'values', access: 'read', type: `array<${values.type}>` },
    { name: 'tables', access: 'read', type: 'array<u32>' },
    { name: partials.sums, access: 'read_write', type: `array<${vector}>` },
    { name: partials.tops, access: 'read_write', type: 'array<vec2<f32>>' },
  ];
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };

  emit(`enable subgroups;${halves ? '\nenable f16;' : ''}
${declareBindings(bindings)}
${STEP_WGSL}
alias H = ${halves ? 'vec2<f16>' : 'vec2<f32>'};
fn halves_(w: u32) -> H { return ${halves ? 'bitcast<vec2<f16>>(w)' : 'unpack2x16float(w)'}; }
var<workgroup> cells: array<${vector}, ${(Math.max(split, partGroups * headDim) * group) / vec}>;
var<workgroup> entries: array<${frame.entries.type}, ${split / blockTokens}>;`);
  if (dot) {
    emit(`var<workgroup> integers: array<vec4<i32>, ${(group * headDim) / 4}>;
var<workgroup> planes: array<vec4<u32>, ${(group * headDim) / 8}>;
var<workgroup> peaks: array<f32, ${group}>;`);
  }
  if (hasScales(values.format)) {
    emit(`var<workgroup> value_meta: array<u32, ${split * valueGroups}>;
var<workgroup> offsets: array<f32, ${group * valueGroups}>;`);
  }
  if (hasNorm(values.format)) emit(`var<workgroup> value_norms: array<f32, ${split}>;`);
  for (const { name, format } of [keys, values]) {
    if (bookEntries(format) > 0)
      emit(`var<workgroup> ${name}_book: array<f32, ${bookEntries(format) * copies}>;`);
  }
  emit(`@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, ${GROUPS_PARAMETER},
        @builtin(local_invocation_index) lid: u32) {
  let kv = wid.z;
  let item_at = wid.x + wid.y * groups.x;
  ${itemText(rows)}
  let slot = item.z;
  let last = item.w;
  let first = ${itemFirst(rows, split, blockTokens)};
  let reach = min(last - first, ${rolledBound(split)} - 1u);
  let lane = lid % ${lanes}u;
  let sub = lid / ${lanes}u;
  ${rowsSkipped(rows, `${maxBlocksPerSlot}u`, 'slot')}`);
  if (low !== null) {
    emit(`  let low = ${low};\n  ${unseenItem(shape, `${split}u`)}`);
    // What lies before the window may be another sequence's by now: it is never read.
    emit('  let oldest = max(low, first) - first;');
  }
  emit(frame.entries.text);
  if ([keys, values].some(({ format }) => codesInRuns(format))) emit(OPAQUE_MASKS.text);
  for (const { name, format, layout, word } of [keys, values]) {
    if (!hasNorm(format) || bookEntries(format) === 0) continue;
    const { centroids } = tableOffsets(format.bits, headDim);
    const centroid = (i: string): string => `bitcast<f32>(${word(`${layout.tablesAt + centroids}u + ${i}`)})`;
    emit(fillBook(name, format, copies, threads, centroid));
  }
  const shares = headShares(frame);
  lines.push(...decodeQueries(frame, shares));
  emit('  workgroupBarrier();');
  emit(decodeValueMeta(frame));
  lines.push(
    ...decodeScores(frame, shares),
    ...decodeValueNorms(frame),
    ...decodeSums(frame),
    ...decodeEnd(frame),
  );
  emit('}');
  return {
    label: `attend decode ${heads}/${kvHeads}×${headDim} t${threads}u${config.unroll}${rowsName(rows)}`,
    wgsl: lines.filter((line) => line.trim() !== '').join('\n'),
    bindings,
    workgroups: (facts, out) => {
      const items = itemsOf(rows, facts);
      const y = Math.ceil(items / 65535);
      out[0] = y === 0 ? 0 : Math.ceil(items / y);
      out[1] = y;
      out[2] = kvHeads;
    },
  };
}
