/**
 * Tiles whose positions are walked in parts. A prompt's chunk with few tiles would leave most of a GPU idle while each of its
 * workgroups walks a long context alone; so several share a tile, a run of its positions each. They leave what they have (top,
 * sum, weighted values, not yet divided), and one more launch puts that together.
 *
 * How many parts there are follows from the step's number of tiles, so the order of a sum depends on what else is in the step,
 * as that of products on matrices does.
 */

import { type Binding, declareBindings, type Stage } from '../kernel.js';
import { STEP_BINDING, STEP_WGSL, TILE_WORKGROUPS } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { attendOut, outName } from './attend-out.js';
import { dividedText, isUnseen, LOWEST, SINKS_BINDING, sinkText, tileText } from './attend-words.js';
import { sumBindings, tileNames } from './kv-head.js';
import { rowsSkipped } from './kv-rows.js';

const THREADS = 128;

/** Per workgroup `(tile, part, KV head, block of rows)`: rows × head_dim sums, and (top in powers of two, sum) of each row. */
export function partScratch(shape: AttendShape, rows: number): Readonly<Record<string, number>> {
  return {
    scratchPartSums: TILE_WORKGROUPS * rows * shape.headDim * 4,
    scratchPartTops: TILE_WORKGROUPS * rows * 8,
  };
}

export function partBindings(access: 'read' | 'read_write', sums: 'f32' | 'vec4<f32>' = 'f32'): Binding[] {
  return [
    { name: 'scratchPartSums', access, type: `array<${sums}>` },
    { name: 'scratchPartTops', access, type: 'array<vec2<f32>>' },
  ];
}

/**
 * WGSL: `base` to `end`, the positions of this workgroup's part, and `part_at`, where it leaves them. `across`: workgroups of a
 * tile and part. A part may be empty.
 */
export function partText(across: number, keys: number): string {
  return `let parts = nwg.z / ${across}u;
  let part_at = tile_at * nwg.z + wid.z;
  let first_unit = low_first / ${keys}u;
  let units = (last / ${keys}u - first_unit + parts) / parts;
  var base = (first_unit + wid.z / ${across}u * units) * ${keys}u;
  let end = min(last, base + units * ${keys}u - 1u);`;
}

/** Expression of what a row leaves for the end of tiles: its greatest score, here in powers of two, and its sum of weights. */
export const naturalTops = (top: string, sum: string): string =>
  `vec2<f32>(select(${top} * ${Math.LN2}, ${LOWEST}, ${isUnseen(top)}), ${sum})`;

/** Roles: step, scratchPartSums, scratchPartTops, out or scratchHanded, and tables where rows are of two kinds. The parts of a tile share its cells between them. */
export function mergePartsStage(shape: AttendShape, rows: number, rowBlocks: number): Stage {
  const { heads, kvHeads, headDim, maxBlocksPerSlot } = shape;
  const group = heads / kvHeads;
  const vectors = headDim / 4;
  const across = kvHeads * rowBlocks;
  const left = shape.rows.tail === undefined ? null : tileNames(shape.rows);
  const out = attendOut(left === null ? shape : { ...shape, outHanded: false });
  const bindings: Binding[] = [
    STEP_BINDING,
    ...partBindings('read', 'vec4<f32>'),
    ...(left === null ? [out.binding] : sumBindings(left, 'vec4<f32>')),
  ];
  if (shape.sinks === true && left === null) bindings.push(SINKS_BINDING);
  const skipped = rowsSkipped(shape.rows, `${maxBlocksPerSlot}u`, 'tile.w');
  if (skipped !== '') bindings.push({ name: 'tables', access: 'read', type: 'array<u32>' });
  const wgsl = `${out.enable}${declareBindings(bindings)}
${out.helper}
${STEP_WGSL}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let z = wid.z % ${across}u;
  let parts = nwg.z / ${across}u;
  let kv = z / ${rowBlocks}u;
  let row_first = z % ${rowBlocks}u * ${rows}u;
  ${tileText('nwg')}
  let row_count = tile.y * ${group}u;
  if (row_first >= row_count) { return; }
  ${skipped}
  let cells = min(${rows}u, row_count - row_first) * ${vectors}u;
  for (var i = lid + wid.z / ${across}u * ${THREADS}u; i < cells; i += ${THREADS}u * parts) {
    let r = i / ${vectors}u;
    let row = row_first + r;
    var top = ${LOWEST};
    for (var p = 0u; p < parts; p++) { top = max(top, scratchPartTops[(tile_at * nwg.z + p * ${across}u + z) * ${rows}u + r].x); }
    var total = vec4<f32>();
    var sum = 0.0;
    for (var p = 0u; p < parts; p++) {
      let at = (tile_at * nwg.z + p * ${across}u + z) * ${rows}u + r;
      let own = scratchPartTops[at];
      let factor = select(exp2(own.x - top), 0.0, ${isUnseen('own.x')});
      total = fma(scratchPartSums[at * ${vectors}u + i % ${vectors}u], vec4<f32>(factor), total);
      sum = fma(own.y, factor, sum);
    }
    let to = (tile.x + row / ${group}u) * ${heads}u + kv * ${group}u + row % ${group}u;
    ${
      left === null
        ? out.store(
            `to * ${vectors}u + i % ${vectors}u`,
            dividedText(
              'total',
              'sum',
              'vec4<f32>()',
              sinkText(shape.sinks, `kv * ${group}u + row % ${group}u`, 'top', true),
            ),
          )
        : `${left.sums}[to * ${vectors}u + i % ${vectors}u] = total;
    if (i % ${vectors}u == 0u) { ${left.tops}[to] = ${naturalTops('top', 'sum')}; }`
    }
  }
}`;
  return {
    label: `attend merge parts ${heads}/${kvHeads}×${headDim}${left === null ? outName(shape) : ' before a tail'}`,
    wgsl,
    bindings,
    workgroups: (facts, size) => {
      const y = Math.ceil(facts.tiles / 65535);
      size[0] = y === 0 || facts.tileParts === 1 ? 0 : Math.ceil(facts.tiles / y);
      size[1] = y;
      size[2] = across * facts.tileParts;
    },
  };
}
