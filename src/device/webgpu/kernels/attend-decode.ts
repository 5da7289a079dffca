/**
 * Attention of single-token rows over an f16 cache, for devices with subgroups.
 *
 * The same cut as the portable kernel's items: one workgroup a (row, split, KV head) with all query heads of the GQA
 * group, so K and V are read once, straight from memory into registers in 16-byte pieces; nothing is staged. Scores
 * of the split go through workgroup memory, where the softmax is taken; the first V vectors are on their way
 * meanwhile. It leaves the same partials (weighted values, max, sum), and the portable reduce merges them.
 */

import type { Binding, Stage } from '../kernel.js';
import { declareBindings, f32Literal } from '../kernel.js';
import { ATTENTION_SPLIT, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';

export interface DecodeConfig {
  /** Lanes of a subgroup: must be the device's one and only size. */
  readonly subgroupSize: number;
  readonly threads: number;
  /** Positions of a split; ATTENTION_SPLIT but in benchmarks. */
  readonly split?: number;
  /** Pieces of K, and of V, that a thread has on their way at once. */
  readonly unroll: number;
}

const LOWEST = '-3.0e38';

interface DecodePlan {
  readonly group: number;
  /** Dims of K a lane multiplies, and lanes that share a key. */
  readonly keyDims: number;
  readonly keyLanes: number;
  /** Lanes that share a V vector, 8 dims each. */
  readonly valueLanes: number;
  readonly bytes: number;
}

function planDecode(shape: AttendShape, config: DecodeConfig): DecodePlan {
  const group = shape.heads / shape.kvHeads;
  const keyDims = group <= 4 && shape.headDim % 16 === 0 ? 16 : 8;
  const keyLanes = shape.headDim / keyDims;
  const valueLanes = shape.headDim / 8;
  const subs = config.threads / config.subgroupSize;
  const split = config.split ?? ATTENTION_SPLIT;
  const bytes = (split * group + subs * group * shape.headDim) * 4;
  return { group, keyDims, keyLanes, valueLanes, bytes };
}

const powerOfTwo = (n: number): boolean => n > 0 && Number.isInteger(n) && (n & (n - 1)) === 0;

export function decodeFits(shape: AttendShape, config: DecodeConfig, workgroupBytes: number): boolean {
  const { key, value, headDim } = shape;
  const { subgroupSize, threads, split = ATTENTION_SPLIT, unroll } = config;
  const { keyLanes, valueLanes, group, bytes } = planDecode(shape, config);
  return (
    shape.rows.only === null &&
    key.kind === 'float' &&
    value.kind === 'float' &&
    key.dtype === 'f16' &&
    value.dtype === 'f16' &&
    headDim % 8 === 0 &&
    powerOfTwo(keyLanes) &&
    powerOfTwo(valueLanes) &&
    valueLanes <= threads &&
    keyLanes <= subgroupSize &&
    group <= 8 &&
    threads % subgroupSize === 0 &&
    split % ((threads / keyLanes) * unroll) === 0 &&
    split % ((threads / valueLanes) * unroll) === 0 &&
    split % subgroupSize === 0 &&
    bytes <= workgroupBytes
  );
}

/** Roles: step, q, keys, values, tables, scratchSums, scratchTops. */
export function decodeStage(shape: AttendShape, config: DecodeConfig): Stage {
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot, window, softcap } = shape;
  const { subgroupSize: lanes, threads, unroll, split = ATTENTION_SPLIT } = config;
  const { group, keyDims, keyLanes, valueLanes } = planDecode(shape, config);
  const subs = threads / lanes;
  const keysAtOnce = threads / keyLanes;
  const valuesAtOnce = threads / valueLanes;
  const keyPieces = keyDims / 8;
  const pieces = headDim / 8;
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'q', access: 'read', type: 'array<vec4<f32>>' },
    { name: 'keys', access: 'read', type: 'array<vec4<u32>>' },
    { name: 'values', access: 'read', type: 'array<vec4<u32>>' },
    { name: 'tables', access: 'read', type: 'array<u32>' },
    { name: 'scratchSums', access: 'read_write', type: 'array<vec4<f32>>' },
    { name: 'scratchTops', access: 'read_write', type: 'array<vec2<f32>>' },
  ];
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  const dim = (name: string, d: number): string => {
    const half = `unpack2x16float(${name}.${'xyzw'[d >> 1]})`;
    return `${half}.${d & 1 ? 'y' : 'x'}`;
  };
  const low = window === null ? null : `max(last, ${window - 1}u) - ${window - 1}u`;
  const at = (t: string): string =>
    `((tables[slot * ${maxBlocksPerSlot}u + ${t} / ${blockTokens}u] * ${kvHeads}u + kv) * ${blockTokens}u + ${t} % ${blockTokens}u) * ${pieces}u`;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const loadValues = (base: string): void => {
    for (const u of count(unroll))
      emit(
        `  { let t = min(first + ${base} + ${u * valuesAtOnce}u + lid / ${valueLanes}u, last); v${u} = values[${at('t')} + lid % ${valueLanes}u]; }`,
      );
  };

  emit(`enable subgroups;
${declareBindings(bindings)}
${STEP_WGSL}
var<workgroup> scores: array<f32, ${split * group}>;
var<workgroup> parts: array<vec4<f32>, ${(subs * group * headDim) / 4}>;
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>,
        @builtin(local_invocation_index) lid: u32) {
  let kv = wid.z;
  let item_at = wid.x + wid.y * nwg.x;
  if (item_at >= step[0].w) { return; }
  let item = step[step[2].x + item_at];
  let slot = item.z;
  let last = item.w;
  let first = item.y * ${split}u;
  let lane = lid % ${lanes}u;
  let sub = lid / ${lanes}u;`);
  if (low !== null) emit(`  let low = ${low};\n  if (first + ${split - 1}u < low) { return; }`);
  // The part of each query that this lane multiplies.
  emit(`  let kl = lid % ${keyLanes}u;`);
  for (const g of count(group))
    for (const i of count(keyPieces))
      for (const h of [0, 1])
        emit(
          `  let q${g}_${i}_${h} = q[(item.x * ${heads}u + kv * ${group}u + ${g}u) * ${headDim / 4}u + (kl + ${i * keyLanes}u) * 2u + ${h}u] * ${f32Literal(shape.scale)};`,
        );
  for (const u of count(unroll)) {
    emit(
      `  ${count(keyPieces)
        .map((i) => `var k${u}_${i}: vec4<u32>;`)
        .join(' ')} var v${u}: vec4<u32>;`,
    );
  }
  emit(`  for (var base = 0u; base < ${split}u; base += ${keysAtOnce * unroll}u) {`);
  emit(`    if (first + base > last) { break; }`);
  for (const u of count(unroll)) {
    emit(
      `  { let t = min(first + base + ${u * keysAtOnce}u + lid / ${keyLanes}u, last); let a = ${at('t')} + kl;`,
    );
    for (const i of count(keyPieces)) emit(`    k${u}_${i} = keys[a + ${i * keyLanes}u];`);
    emit('  }');
  }
  for (const u of count(unroll)) {
    emit('  {');
    emit(`    let c = base + ${u * keysAtOnce}u + lid / ${keyLanes}u;`);
    for (const g of count(group)) emit(`    var s${g} = 0.0;`);
    for (const i of count(keyPieces))
      for (let d = 0; d < 8; d++) {
        emit(`    let e${i}_${d} = ${dim(`k${u}_${i}`, d)};`);
        for (const g of count(group))
          emit(`    s${g} = fma(e${i}_${d}, q${g}_${i}_${d >> 2}.${'xyzw'[d & 3]}, s${g});`);
      }
    for (let step = keyLanes / 2; step >= 1; step /= 2)
      for (const g of count(group)) emit(`    s${g} += subgroupShuffleXor(s${g}, ${step}u);`);
    // The lanes of a key all have its scores; each writes its share.
    for (let g0 = 0; g0 < group; g0 += keyLanes) {
      emit(`    var mine${g0} = s${g0};`);
      for (let g = g0 + 1; g < Math.min(group, g0 + keyLanes); g++)
        emit(`    mine${g0} = select(mine${g0}, s${g}, kl == ${g - g0}u);`);
      if (softcap !== null)
        emit(
          `    { let e = exp(clamp(2.0 * mine${g0} / ${f32Literal(softcap)}, -80.0, 80.0)); mine${g0} = ${f32Literal(softcap)} * (1.0 - 2.0 / (e + 1.0)); }`,
        );
      const seen = `first + c <= last${low === null ? '' : ' && first + c >= low'}`;
      emit(
        `    if (kl < ${Math.min(group - g0, keyLanes)}u) { scores[c * ${group}u + ${g0}u + kl] = select(${LOWEST}, mine${g0}, ${seen}); }`,
      );
    }
    emit('  }');
  }
  emit('  }');
  // What the loop left out when the context ended early.
  emit(
    `  let walked = min(${split}u, (last - first) / ${keysAtOnce * unroll}u * ${keysAtOnce * unroll}u + ${keysAtOnce * unroll}u);`,
  );
  loadValues('0u');
  emit('  workgroupBarrier();');
  const columns = split / lanes;
  // Every subgroup takes the softmax of its heads; one beyond the last repeats that one and writes nothing.
  for (let g0 = 0; g0 < group; g0 += subs) {
    emit(`  {\n    let mine = sub + ${g0}u < ${group}u;\n    let g = min(sub + ${g0}u, ${group - 1}u);`);
    for (const c of count(columns))
      emit(
        `    let c${c} = lane + ${c * lanes}u; var s${c} = ${LOWEST}; if (c${c} < walked) { s${c} = scores[c${c} * ${group}u + g]; }`,
      );
    const top = count(columns).reduce((text, c) => (text === '' ? `s${c}` : `max(${text}, s${c})`), '');
    emit(`    let top = subgroupMax(${top});`);
    emit('    var sum = 0.0;');
    for (const c of count(columns)) {
      emit(`    s${c} = select(exp(s${c} - top), 0.0, s${c} <= ${LOWEST}); sum += s${c};`);
      emit(`    if (mine) { scores[c${c} * ${group}u + g] = s${c}; }`);
    }
    emit('    sum = subgroupAdd(sum);');
    emit(
      `    if (mine && lane == 0u) { scratchTops[item_at * ${heads}u + kv * ${group}u + g] = vec2<f32>(top, sum); }`,
    );
    emit('  }');
  }
  emit('  workgroupBarrier();');
  for (const g of count(group)) emit(`  var a${g}_0 = vec4<f32>(); var a${g}_1 = vec4<f32>();`);
  emit(`  for (var base = 0u; base < ${split}u; base += ${valuesAtOnce * unroll}u) {`);
  emit('    if (first + base > last) { break; }');
  for (const u of count(unroll)) {
    emit(`  {`);
    emit(`    let c = base + ${u * valuesAtOnce}u + lid / ${valueLanes}u;`);
    for (const h of [0, 1])
      emit(
        `    let e${h} = vec4<f32>(unpack2x16float(v${u}.${h === 0 ? 'x' : 'z'}), unpack2x16float(v${u}.${h === 0 ? 'y' : 'w'}));`,
      );
    for (const g of count(group)) {
      emit(`    let w${g} = scores[c * ${group}u + ${g}u];`);
      for (const h of [0, 1]) emit(`    a${g}_${h} = fma(vec4<f32>(w${g}), e${h}, a${g}_${h});`);
    }
    emit('  }');
  }
  loadValues(`min(base + ${valuesAtOnce * unroll}u, ${split - valuesAtOnce * unroll}u)`);
  emit('  }');
  // Sum over the threads that walked other positions: first in the subgroup, then across.
  for (let step = valueLanes; step < lanes; step *= 2)
    for (const g of count(group))
      for (const h of [0, 1]) emit(`  a${g}_${h} += subgroupShuffleXor(a${g}_${h}, ${step}u);`);
  const owners = Math.min(valueLanes, lanes);
  // Subgroups narrower than a vector hold different dims: then a part is what `spread` subgroups hold together.
  const wide = Math.max(1, valueLanes / lanes);
  emit(`  if (lane < ${owners}u) {`);
  for (const g of count(group))
    for (const h of [0, 1])
      emit(
        `    parts[((sub / ${wide}u) * ${group}u + ${g}u) * ${headDim / 4}u + (lid % ${valueLanes}u) * 2u + ${h}u] = a${g}_${h};`,
      );
  emit('  }');
  emit('  workgroupBarrier();');
  emit(`  for (var i = lid; i < ${(group * headDim) / 4}u; i += ${threads}u) {`);
  emit(
    `    scratchSums[(item_at * ${heads}u + kv * ${group}u) * ${headDim / 4}u + i] = ${count(subs / wide)
      .map((s) => `parts[${(s * group * headDim) / 4}u + i]`)
      .join(' + ')};`,
  );
  emit('  }\n}');
  return {
    label: `attend decode ${heads}/${kvHeads}×${headDim} t${threads}u${unroll}`,
    wgsl: lines.join('\n'),
    bindings,
    workgroups: (facts, out) => {
      const y = Math.ceil(facts.items / 65535);
      out[0] = y === 0 ? 0 : Math.ceil(facts.items / y);
      out[1] = y;
      out[2] = kvHeads;
    },
  };
}
