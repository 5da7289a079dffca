/**
 * Attention of single-token rows over K and V stored as integers, as products of bytes on subgroup matrices of i8.
 *
 * The same cut as attend-decode.ts: one workgroup a (row, split, KV head), all query heads of the GQA group, the same
 * partials. But a workgroup is one subgroup, for it waits for itself alone, and what counts is how many of them a GPU keeps
 * going: on an H200 twenty, if a lane has no more than 96 registers and all have 2 KB of workgroup memory. One register more,
 * and the 2,528 workgroups of 4 × 20,000 tokens come in two waves, 61 µs for 49 (docs/performance.md, "Attention over
 * quantised KV"). So what comes next is fetched when what is there has left registers for it, and scores and weights rest
 * in memory of their own (`scratchScores`) between the passes: scores (attend-bytes-keys.ts), weights
 * (attend-bytes-weights.ts), and sums of values, half of the dims at a time (attend-bytes-values.ts).
 *
 * A matrix has 16 rows and a GQA group fewer, so the rows hold more than heads: queries are integers of 16 bits in two
 * planes of bytes, and so are the weights of the softmax, and every affine group has its own rows of queries, zero
 * elsewhere. So codes meet exact integers, all sums are exact, and scales and biases are applied to the sums.
 *
 * Keys are staged as bytes, token by token; values turned, dim by dim, four tokens to a word: matrices of bytes are
 * loaded fast only where the bytes that are summed lie together. A lane has the scores, then the weights, of positions of
 * one head, and bytes of four of them, 16 apart, are a word of the matrix of weights: so lanes side by side read values side
 * by side.
 *
 * Loops with products of matrices are kept loops (rolled.ts), for a layer's kernels do not fit into an instruction cache
 * together, and a workgroup waits for every KB of them.
 */

import { type Binding, declareBindings, type Stage } from '../kernel.js';
import { ATTENTION_SPLIT, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { byteQueries, byteScores } from './attend-bytes-keys.js';
import { AREA, bytesSide, LANES, UNIT } from './attend-bytes-plan.js';
import { byteSums } from './attend-bytes-values.js';
import { byteWeights } from './attend-bytes-weights.js';
import { rowsSkipped, sideOf } from './kv-rows.js';
import { GROUPS_PARAMETER } from './rolled.js';

/** Roles: step, q, keys, values, tables, scratchSums, scratchTops, scratchScores. */
export function bytesStage(shape: AttendShape): Stage {
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot, window, rows, key } = shape;
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
    { name: 'scratchScores', access: 'read_write', type: 'array<vec4<u32>>' },
  ];
  const low = window === null ? '' : `let low = max(last, ${window - 1}u) - ${window - 1}u;`;
  const { metaHeads } = sideOf(key.kind === 'turboquant' ? 'keys' : 'values', shape).layout;
  const blocks = split / blockTokens;
  const lines = [
    `enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${declareBindings(bindings)}
${STEP_WGSL}
alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Sum = subgroup_matrix_result<i32, 16, 16>;
var<workgroup> area: array<vec4<u32>, ${AREA}>;
var<workgroup> entries: array<vec2<u32>, ${blocks}>;
var<workgroup> turn: u32;
var<workgroup> part: u32;
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
  let unit_at = (item_at * ${kvHeads}u + kv) * ${UNIT}u;
  let odd = (kv & 1u) * 16u;
  ${rowsSkipped(rows, `${maxBlocksPerSlot}u`, 'slot')}
  ${low}
  ${low === '' ? '' : `if (first + ${split - 1}u < low) { return; }`}
  // What stands here makes the vector's index of a position when it is added, modulo 2³², and that of its norms.
  for (var i = lane; i < ${blocks}u; i += ${LANES}u) {
    let block = tables[slot * ${maxBlocksPerSlot}u + first / ${blockTokens}u + min(i, reach / ${blockTokens}u)];
    entries[i] = vec2<u32>((block * ${kvHeads}u + kv - i) * ${blockTokens}u, (block * ${metaHeads}u + kv / 2u - i) * ${blockTokens}u);
  }
  workgroupBarrier();`,
    ...byteQueries(shape, keys),
    ...byteScores(shape, keys, values),
    ...byteWeights(shape, values),
    ...byteSums(shape, values),
    '}',
  ];
  return {
    label: `attend bytes ${heads}/${kvHeads}×${headDim}${rows.only === 'young' ? ' young' : ''}`,
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
