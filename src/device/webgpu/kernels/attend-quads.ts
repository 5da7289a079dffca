/**
 * Attention of single-token rows over affine K and V, by quads of lanes.
 *
 * The same cut as attend-decode.ts: one workgroup a (row, split, KV head), all query heads of the GQA group, the same
 * partials. A workgroup is one subgroup: it has no barrier in its loops, and no more workgroup memory than the scores take,
 * for that is what limits how many of them a GPU keeps going: the queries lie where the last scores will. Everything else is
 * in registers.
 *
 * Keys: a quad has a position, a lane of it a quarter of the dims, and takes four positions at a time. Codes are bytes
 * after one `and`; queries are integers of 16 bits in two planes of bytes. Sums are exact, and start as the bits of 1.5 ·
 * 2²³, so that a subtraction makes floats of them. As soon as the words are unpacked the next ones are fetched into the same
 * registers: they have as long as the products take.
 *
 * Values: eight lanes have a position. Codes become floats by bits (linear-unpack.ts), weights take scales with them, and
 * what codes have too much is taken off at the end. Every position's words are replaced by the next turn's once used.
 *
 * Operations of a lane for 32 positions (subgroups of 32, GQA 4, head_dim 128, 8 bits): keys 32 to unpack, 256 dots, 96
 * to scale, 60 to share out; values 8 × (32 to unpack, 64 products, 14 for weights and sums): some 1,400 with addresses,
 * of which the dots count twice. Registers, by count: keys 36 on their way, 32 unpacked, 16 of a query, 8 sums, 16 scores;
 * values 64 sums, 40 on their way, 20 of a position.
 *
 * On an H200, codes of 8 bits, 4 rows × 20,000: 76 µs, where attend-decode.ts takes 96; with the queries in memory of their
 * own 83, with the scores in storage 82. Matrices of bytes (attend-bytes.ts) take 62, where a GPU has them.
 */

import type { Binding, Stage } from '../kernel.js';
import { declareBindings } from '../kernel.js';
import { ATTENTION_SPLIT, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { quadsQueries, quadsScores } from './attend-quads-keys.js';
import { planQuads, quadsLoads, SETS } from './attend-quads-plan.js';
import { quadsSoftmax, quadsSums, sumsType } from './attend-quads-values.js';
import { count } from './attend-words.js';
import { firstSeen, itemText, unseenItem } from './kv-head.js';
import { rowsName, rowsSkipped } from './kv-rows.js';

/** Roles: step, q, keys, values, tables, scratchSums, scratchTops. Errors: RangeError, for what does not fit. */
export function quadsStage(shape: AttendShape, lanes: number): Stage {
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot, rows } = shape;
  const plan = planQuads(shape, lanes);
  if (plan === null) throw new RangeError(`no attention by quads for ${heads}/${kvHeads}×${headDim}`);
  const split = ATTENTION_SPLIT;
  const { turn, keys, values, cell, queryVectors } = plan;
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'q', access: 'read', type: 'array<f32>' },
    { name: 'keys', access: 'read', type: `array<${keys.type}>` },
    { name: 'values', access: 'read', type: `array<${values.type}>` },
    { name: 'tables', access: 'read', type: 'array<u32>' },
    { name: 'scratchSums', access: 'read_write', type: `array<${sumsType(plan)}>` },
    { name: 'scratchTops', access: 'read_write', type: 'array<vec2<f32>>' },
  ];
  const low = firstSeen(shape, 'last');
  const seen = (t: string): string => (low === null ? `${t} <= reach` : `${t} <= reach && ${t} >= oldest`);
  const keyLoads = quadsLoads(shape, plan, keys, 'k');
  const valueLoads = quadsLoads(shape, plan, values, 'v');
  const cells = `var<workgroup> cells: array<${cell === 1 ? 'u32' : `vec${cell}<u32>`}, ${split}>;`;
  const area = `var<workgroup> area: array<vec4<u32>, ${queryVectors}>;`;
  const lines = [
    `enable subgroups;
${declareBindings(bindings)}
${STEP_WGSL}
${plan.overlaid ? cells : `${cells}\n${area}`}
var<workgroup> entries: array<u32, ${split / blockTokens}>;
@compute @workgroup_size(${lanes})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
  let kv = wid.z;
  let item_at = wid.x + wid.y * nwg.x;
  ${itemText(rows)}
  let slot = item.z;
  let last = item.w;
  let first = item.y * ${split}u;
  let reach = min(last - first, ${split - 1}u);
  ${rowsSkipped(rows, `${maxBlocksPerSlot}u`, 'slot')}`,
    low === null
      ? '  let begin = 0u;'
      : `  let low = ${low};
  ${unseenItem(shape, `${split}u`)}
  let oldest = max(low, first) - first;
  let begin = oldest / ${turn}u * ${turn}u;`,
    `  for (var i = lane; i < ${split / blockTokens}u; i += ${lanes}u) { entries[i] = tables[slot * ${maxBlocksPerSlot}u + first / ${blockTokens}u + min(i, reach / ${blockTokens}u)]; }
  workgroupBarrier();`,
    ...keyLoads.declare(),
    ...keyLoads.runs('keyrun', 'begin'),
    ...count(SETS).flatMap((u) => keyLoads.load(u, 'keyrun')),
    ...quadsQueries(shape, plan),
    ...quadsScores(shape, plan, keyLoads, seen),
    ...valueLoads.declare(),
    ...valueLoads.runs('valuerun', 'begin'),
    ...count(plan.valueLoads).flatMap((u) => valueLoads.load(u, 'valuerun')),
    ...quadsSoftmax(shape, plan),
    ...quadsSums(shape, plan, valueLoads, seen),
    `}
fn bytes_(v: vec4<i32>) -> u32 {
  let b = bitcast<vec4<u32>>(v) & vec4<u32>(255u);
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}`,
  ];
  return {
    label: `attend quads ${heads}/${kvHeads}×${headDim}${rowsName(rows)}`,
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
