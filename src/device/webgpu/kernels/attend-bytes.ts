/**
 * Attention of single-token rows over affine K and V as products of bytes, on subgroup matrices of i8.
 *
 * The same cut as attend-decode.ts: one workgroup a (row, split, KV head), all query heads of the GQA group, the same
 * partials; but a workgroup is one subgroup, for it waits for itself alone and a GPU keeps as many of them going as their
 * workgroup memory allows, which here is 4 KB. Scores rest in memory of their own (`scratchScores`) between the passes.
 *
 * A matrix has 16 rows and a GQA group fewer, so the rows hold more than heads: queries are integers of 16 bits in two
 * planes of bytes, and so are the weights of the softmax, and every affine group has its own rows, zero elsewhere. So
 * codes meet exact integers, all sums are exact, and scales and biases are applied to the sums.
 *
 * Keys are staged as bytes, token by token (attend-bytes-keys.ts); values turned, dim by dim, four tokens to a word
 * (attend-bytes-values.ts): matrices of bytes are loaded fast only where the bytes that are summed lie together. Matrices
 * are loaded at addresses of 16 bytes; strides of an odd number of 16 bytes keep rows off each other's banks.
 *
 * What runs once a workgroup is written once: loops that the driver does not write out (rolled.ts), in which vectors and
 * matrices that no index may choose move up a place a turn. A layer's kernels do not fit into an instruction cache
 * together, so that a workgroup waits for every KB of them.
 *
 * TurboQuant's codes, made bytes from their planes, took half as long again here as in attend-decode.ts on an H200.
 */

import type { Binding, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { ATTENTION_SPLIT, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { byteQueries, byteScores } from './attend-bytes-keys.js';
import { areaOf, type BytesConfig, bytesSide, LANES } from './attend-bytes-plan.js';
import { byteSoftmax, byteSums } from './attend-bytes-values.js';
import { rowsSkipped } from './kv-rows.js';
import { GROUPS_PARAMETER } from './rolled.js';

/** Roles: step, q, keys, values, tables, scratchSums, scratchTops, scratchScores. */
export function bytesStage(shape: AttendShape, c: BytesConfig): Stage {
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot, window, rows } = shape;
  const split = ATTENTION_SPLIT;
  const keys = bytesSide(shape, 'keys');
  const values = bytesSide(shape, 'values');
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'q', access: 'read', type: 'array<f32>' },
    { name: 'keys', access: 'read', type: `array<${keys.type}>` },
    { name: 'values', access: 'read', type: `array<${values.type}>` },
    { name: 'tables', access: 'read', type: 'array<u32>' },
    { name: 'scratchSums', access: 'read_write', type: 'array<f32>' },
    { name: 'scratchTops', access: 'read_write', type: 'array<vec2<f32>>' },
    { name: 'scratchScores', access: 'read_write', type: 'array<vec4<f32>>' },
  ];
  const low = window === null ? null : `max(last, ${window - 1}u) - ${window - 1}u`;
  const seen = (t: string): string => `first + ${t} <= last${low === null ? '' : ` && first + ${t} >= low`}`;
  const lines = [
    `enable subgroups;
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
fn main(@builtin(workgroup_id) wid: vec3<u32>, ${GROUPS_PARAMETER},
        @builtin(local_invocation_index) lane: u32) {
  let kv = wid.z;
  let item_at = wid.x + wid.y * groups.x;
  if (item_at >= step[0].w) { return; }
  let item = step[step[2].x + item_at];
  let slot = item.z;
  let last = item.w;
  let first = item.y * ${split}u;
  let reach = min(last - first, ${split - 1}u);
  let scores_at = (item_at * ${kvHeads}u + kv) * ${split}u;
  ${rowsSkipped(rows, `${maxBlocksPerSlot}u`, 'slot')}`,
    low === null ? '' : `  let low = ${low};\n  if (first + ${split - 1}u < low) { return; }`,
    `  for (var i = lane; i < ${split / blockTokens}u; i += ${LANES}u) { entries[i] = tables[slot * ${maxBlocksPerSlot}u + first / ${blockTokens}u + min(i, reach / ${blockTokens}u)]; }`,
    ...byteQueries(shape, keys),
    ...byteScores(shape, c, keys, seen),
    ...byteSoftmax(shape, values, seen),
    ...byteSums(shape, values, seen),
    `}`,
    `fn bytes_(v: vec4<i32>) -> u32 {
  let b = bitcast<vec4<u32>>(v) & vec4<u32>(255u);
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}`,
  ];
  return {
    label: `attend bytes ${heads}/${kvHeads}×${headDim} k${c.keyTokens}${rows.only === 'young' ? ' young' : ''}`,
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
