/**
 * Attention of single-token rows over K and V stored as integers, as products of bytes on subgroup matrices of i8.
 *
 * The same cut as attend-decode.ts: one workgroup a (row, split, KV head), all query heads of the GQA group, the same
 * partials. But a workgroup is one subgroup, for it waits for itself alone, and what counts is how many of them a GPU keeps
 * going: on an H200 twenty, if a lane has no more than 96 registers and all have 2 KB of workgroup memory. One register more,
 * and the 2,528 workgroups of 4 × 20,000 tokens come in two waves, 50 µs for 37
 * (docs/lab/2026-11-24-attention-over-quantised-kv.md). So what comes next is fetched when what is there has left registers for it, and scores rest in memory
 * (`scratchScores`) between the passes, where each lane finds its own: scores (attend-bytes-keys.ts), and then, turn by turn,
 * weights of the softmax (attend-bytes-weights.ts) and sums of values (attend-bytes-values.ts).
 *
 * Positions, or dims of values, are the 16 rows of matrices on the left; queries, or weights, the 8 columns of matrices on the
 * right: integers of 16 bits in two planes of bytes, of four heads. So codes meet exact integers, all sums are exact, and
 * scales and biases are applied to the sums, of every affine group by itself. Two lanes share a position, or a dim: each reads
 * the sums of two heads there as one vector; or a lane has a position to itself (attend-bytes-own.ts).
 *
 * Keys are staged as bytes, token by token; values transposed, dim by dim, four tokens to a word, which they are made here or as they
 * are stored (attend-bytes-transposed.ts): matrices of bytes are loaded fast only where the bytes that are summed lie together, and from workgroup memory. What goes with the codes is bound
 * once more as what it is (`keys_metas`), one load a position.
 *
 * Loops with products of matrices are kept loops (rolled.ts), for a layer's kernels do not fit into an instruction cache
 * together, and a workgroup waits for every KB of them.
 */

import { type Binding, declareBindings, type Stage } from '../kernel.js';
import { ATTENTION_SPLIT, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { byteScores, firstKeys } from './attend-bytes-keys.js';
import { areaVectors, bytesSide, COLUMNS, DEPTH, LANES, ROWS, UNIT } from './attend-bytes-plan.js';
import { byteQueries, queryLoads } from './attend-bytes-queries.js';
import { byteSums, dimsTogether, firstValues } from './attend-bytes-values.js';
import { firstWeights } from './attend-bytes-weights.js';
import { OPAQUE_MASKS } from './attend-planes.js';
import { codesInRuns, hasNorm } from './kv-formats/list.js';
import { firstSeen, itemText, unseenItem } from './kv-head.js';
import { rowsName, rowsSkipped, sideOf } from './kv-rows.js';
import { GROUPS_PARAMETER } from './rolled.js';

/** Roles: step, q, keys, values, tables, scratchSums, scratchTops, scratchScores. */
export function bytesStage(shape: AttendShape): Stage {
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot, rows, key } = shape;
  const split = ATTENTION_SPLIT;
  const keys = bytesSide(shape, 'keys');
  const values = bytesSide(shape, 'values');
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'q', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'keys', access: 'read', type: `array<${keys.type}>` },
    { name: 'values', access: 'read', type: `array<${values.type}>` },
    keys.metas,
    values.metas,
    { name: 'tables', access: 'read', type: 'array<u32>' },
    { name: 'scratchSums', access: 'read_write', type: `array<vec${dimsTogether(values)}<f32>>` },
    { name: 'scratchTops', access: 'read_write', type: 'array<vec2<f32>>' },
    { name: 'scratchScores', access: 'read_write', type: 'array<vec4<u32>>' },
  ];
  const low = firstSeen(shape, 'last');
  const { metaHeads } = sideOf(hasNorm(key) ? 'keys' : 'values', shape).layout;
  const blocks = split / blockTokens;
  // Planes take more registers: the first values are fetched when scores are joined, not while they are.
  const late = codesInRuns(shape.value) && !values.transposed;
  const lines = [
    `enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${declareBindings(bindings)}
${STEP_WGSL}
alias Left = subgroup_matrix_left<i8, ${DEPTH}, ${ROWS}>;
alias Right = subgroup_matrix_right<i8, ${COLUMNS}, ${DEPTH}>;
alias Sum = subgroup_matrix_result<i32, ${COLUMNS}, ${ROWS}>;
var<workgroup> area: array<vec4<u32>, ${areaVectors(keys)}>;
var<workgroup> entries: array<vec2<u32>, ${blocks}>;
@compute @workgroup_size(${LANES})
fn main(@builtin(workgroup_id) wid: vec3<u32>, ${GROUPS_PARAMETER},
        @builtin(local_invocation_index) lane: u32) {
  let kv = wid.z;
  let item_at = wid.x + wid.y * groups.x;
  ${itemText(rows)}
  let slot = item.z;
  let last = item.w;
  let first = item.y * ${split}u;
  let reach = min(last - first, ${split - 1}u);
  let unit_at = (item_at * ${kvHeads}u + kv) * ${UNIT}u;
  let odd = (kv & 1u) * 16u;
  ${[keys, values].some(({ mask }) => mask === OPAQUE_MASKS.mask) ? OPAQUE_MASKS.text : ''}
  ${rowsSkipped(rows, `${maxBlocksPerSlot}u`, 'slot')}
  ${low === null ? '' : `let low = ${low};\n  ${unseenItem(shape, `${split}u`)}`}
  ${values.transposed ? queryLoads(shape, keys).join('\n') : ''}
  // What stands here makes the vector's index of a position when it is added, modulo 2³², and that of its norms.
  if (lane < ${blocks}u) {
    let block = tables[slot * ${maxBlocksPerSlot}u + first / ${blockTokens}u + min(lane, reach / ${blockTokens}u)];
    entries[lane] = vec2<u32>((block * ${kvHeads}u + kv - lane) * ${blockTokens}u, (block * ${metaHeads}u + kv / 2u - lane) * ${blockTokens}u);
  }
  workgroupBarrier();`,
    // On its way while blocks are looked up, or, where that was slower, with the first keys.
    ...(values.transposed ? [] : queryLoads(shape, keys)),
    ...firstKeys(shape, keys, values),
    ...byteQueries(shape, keys, values),
    ...byteScores(shape, keys, values),
    ...(late ? [] : firstValues(shape, values)),
    ...firstWeights(shape, keys, values),
    ...(late ? firstValues(shape, values) : []),
    ...byteSums(shape, keys, values),
    '}',
  ];
  return {
    label: `attend bytes ${heads}/${kvHeads}×${headDim}${rowsName(rows)}`,
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
