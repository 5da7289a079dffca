/**
 * GEMV for a few rows whose x stays in registers: a lane has `words` words of codes of every weight row it meets, so it
 * meets the same columns of x each time and loads them once. Nothing but codes streams, and nothing is read from
 * workgroup memory in the loop.
 *
 * The lanes of a workgroup stand side by side along K, in `parts` turns if K is too long for their registers, and walk
 * down `features` rows of the weight, `together` at a time and the next ones on their way. Each lane's sums go through
 * the subgroup by halving: two lanes share out the sums they have and add up the other's half. What is left of every
 * subgroup meets in workgroup memory at the end.
 *
 * Codes are read as floats with an offset (linear-unpack.ts); what the offsets add depends on x alone and is taken off
 * once a row, with scale and bias. Those of tables are looked up, and have none. RMS norm and glu fold in as in the other GEMV.
 */

import { rowMetaWords } from '../weights-layout.js';
import { groupCols, groupScales, scaleWords } from './group-scales.js';
import {
  declareBindings,
  ERF_TEXT,
  floatText,
  gatedText,
  type LinearKernel,
  type LinearSpec,
  linearBindings,
  outCols,
  weightName,
} from './linear-spec.js';
import { codesOf } from './linear-unpack.js';
import { declareTable, fillTable, TABLE_BYTES } from './table-numbers.js';

export interface ResidentConfig {
  /** Lanes of a subgroup: must be the device's one and only size. */
  readonly subgroupSize: number;
  /** Words of codes of a weight row that a lane takes. With fewer, x takes fewer registers and there are more threads. */
  readonly words: 1 | 2 | 4;
  /** Turns along K. */
  readonly parts: number;
  /** Out features of a workgroup; weight rows are twice as many with glu. */
  readonly features: number;
  /** Weight rows at once: a power of two. */
  readonly together: number;
  readonly workgroupBytes: number;
  readonly workgroupThreads: number;
}

interface Plan {
  readonly cols: number;
  readonly threads: number;
  readonly subgroups: number;
  /** Weight rows of a workgroup. */
  readonly down: number;
  readonly bytes: number;
}

function planResident(spec: LinearSpec, c: ResidentConfig): Plan | null {
  if (spec.weight.kind === 'float') return null;
  const cols = (c.words * 32) / spec.weight.bits;
  const threads = spec.k / cols / c.parts;
  const subgroups = threads / c.subgroupSize;
  const down = c.features * (spec.glu === null ? 1 : 2);
  const table = spec.weight.kind === 'lut4' ? TABLE_BYTES : 0;
  const bytes = (subgroups * down * spec.rows + (spec.norm === null ? 0 : subgroups * spec.rows)) * 4 + table;
  return { cols, threads, subgroups, down, bytes };
}

/** Whether the kernel exists for this spec. */
export function residentFits(spec: LinearSpec, c: ResidentConfig): boolean {
  const { weight, rows } = spec;
  if (weight.kind === 'float' || (weight.bits !== 4 && weight.bits !== 8)) return false;
  if (weight.kind === 'affine' && weight.meta !== 'f16') return false;
  if (spec.x !== 'f32' || spec.out !== 'f32' || spec.residual === 'f16') return false;
  if (spec.glu !== null && (spec.residual !== null || spec.n % 2 !== 0 || c.together % 2 !== 0)) return false;
  const plan = planResident(spec, c);
  if (plan === null) return false;
  const { cols, threads, subgroups, down, bytes } = plan;
  return (
    rows <= 8 &&
    Number.isInteger(subgroups) &&
    subgroups >= 1 &&
    threads <= c.workgroupThreads &&
    spec.k % (cols * c.parts) === 0 &&
    groupCols(weight) % cols === 0 &&
    spec.xStride % 4 === 0 &&
    down % c.together === 0 &&
    (c.together & (c.together - 1)) === 0 &&
    bytes <= c.workgroupBytes
  );
}

/** The order of the sums, as text: what decides which columns a lane has. Halving pairs the same lanes always. */
export function residentOrder({ words, parts }: ResidentConfig): string {
  return `w${words} p${parts}`;
}

export function residentKernel(spec: LinearSpec, c: ResidentConfig): LinearKernel {
  const plan = planResident(spec, c);
  const { weight } = spec;
  if (plan === null || !residentFits(spec, c) || weight.kind === 'float')
    throw new RangeError(`no register-resident GEMV for ${spec.n} × ${spec.k}`);
  const { cols, threads, subgroups, down, bytes } = plan;
  const { rows, n, k } = spec;
  const { subgroupSize: lanes, words, parts, features: own, together } = c;
  const outs = outCols(spec);
  const vectors = cols / 4;
  const bindings = linearBindings(spec);
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  const vector = words === 1 ? 'u32' : `vec${words}<u32>`;
  const wordOf = (name: string, w: number): string => (words === 1 ? name : `${name}.${'xyzw'[w]}`);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const types = {
    x: 'vec4<f32>',
    codes: vector,
    metas: 'u32',
    out: 'f32',
    bias: 'f32',
    residual: 'f32',
    norm: 'vec4<f32>',
  } as const;
  emit(`enable subgroups;
${declareBindings(bindings, ['out'], types)}
var<workgroup> sums: array<f32, ${subgroups * down * rows}>;`);
  if (spec.norm !== null) emit(`var<workgroup> squares: array<f32, ${subgroups * rows}>;`);
  if (weight.kind === 'lut4') emit(declareTable(weight.table, 'floats'));
  if (spec.glu === 'gelu') emit(ERF_TEXT);
  emit(`@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let n0 = (wg.y * groups.x + wg.x) * ${own}u;
  let lane = lid & ${lanes - 1}u;
  let sub = lid / ${lanes}u;`);
  for (const b of count(rows)) for (const v of count(vectors)) emit(`  var x${b}_${v}: vec4<f32>;`);
  for (const b of count(rows)) {
    emit(`  var total${b} = 0.0; var offset${b} = 0.0;`);
    if (spec.norm !== null) emit(`  var square${b} = 0.0;`);
  }
  const scales = groupScales(weight, `${k / 32}u`, cols);
  const metaNames = (slot: string, r: number): string[] =>
    count(scaleWords(weight)).map((m) => `m${slot}${r}_${m}`);
  for (const slot of ['a', 'b'])
    for (const r of count(together))
      emit(
        `  var w${slot}${r}: ${vector};${metaNames(slot, r)
          .map((name) => ` var ${name}: u32;`)
          .join('')}`,
      );

  /** The weight row of the i-th of a workgroup's rows: gate and up by turns. */
  const rowOf = (i: string, r: number): string => {
    if (spec.glu === null) return `min(n0 + ${i} + ${r}u, ${n - 1}u)`;
    return `min(n0 + ${i} / 2u + ${r >> 1}u, ${outs - 1}u)${r & 1 ? ` + ${outs}u` : ''}`;
  };
  const load = (slot: string, i: string): void => {
    emit(`    { let i = ${i};`);
    for (const r of count(together)) {
      emit(`      { let row = ${rowOf('i', r)};`);
      emit(`        w${slot}${r} = codes[row * ${k / cols}u + at];`);
      const from = scales.words('at');
      metaNames(slot, r).forEach((name, m) => {
        emit(`        ${name} = metas[row * ${rowMetaWords(weight, k)}u + ${from[m]}];`);
      });
      emit('      }');
    }
    emit('    }');
  };
  const first = codesOf(
    weight,
    count(words).map((w) => wordOf('w', w)),
    't',
  ).codes;
  const xOf = (b: number, j: number): string => `x${b}_${j >> 2}.${'xyzw'[j & 3]}`;

  if (weight.kind === 'lut4') emit(`  ${fillTable(threads)}\n  workgroupBarrier();`);
  emit(parts === 1 ? '  const part = 0u;\n  {' : `  for (var part = 0u; part < ${parts}u; part++) {`);
  emit(`    let at = part * ${threads}u + lid;`);
  load('a', '0u');
  for (const b of count(rows)) {
    for (const v of count(vectors))
      emit(`    x${b}_${v} = x[${(b * spec.xStride) / 4}u + at * ${vectors}u + ${v}u];`);
  }
  for (const v of count(vectors)) {
    if (spec.norm === null) continue;
    emit(`    { let gamma = norm[at * ${vectors}u + ${v}u];`);
    for (const b of count(rows))
      emit(`      square${b} += dot(x${b}_${v}, x${b}_${v}); x${b}_${v} *= gamma;`);
    emit('    }');
  }
  const offsets = [...new Set(first.map((code) => code.offset))];
  for (const b of count(rows)) {
    const sumOf = (offset: number): string =>
      first.flatMap((code, j) => (code.offset === offset ? [xOf(b, j)] : [])).join(' + ');
    offsets.forEach((offset, o) => {
      emit(`    let part${b}_${o} = ${sumOf(offset)};`);
    });
    emit(`    total${b} = ${offsets.map((_, o) => `part${b}_${o}`).join(' + ')};`);
    emit(`    offset${b} = ${offsets.map((offset, o) => `part${b}_${o} * ${offset}.0`).join(' + ')};`);
  }
  emit(`    for (var i = 0u; i < ${down}u; i += ${together}u) {`);
  load('b', `min(i + ${together}u, ${down - together}u)`);
  for (const r of count(together)) {
    const unpacked = codesOf(
      weight,
      count(words).map((w) => wordOf(`wa${r}`, w)),
      `t${r}`,
    );
    for (const b of count(rows)) emit(`    var v${r * rows + b} = 0.0;`);
    emit('    {');
    for (const text of unpacked.lines) emit(`      ${text}`);
    unpacked.codes.forEach(({ text }, j) => {
      emit(`      let c${j} = ${text};`);
      for (const b of count(rows))
        emit(`      v${r * rows + b} = fma(c${j}, ${xOf(b, j)}, v${r * rows + b});`);
    });
    for (const text of scales.lines(metaNames('a', r), 'at', 'sb')) emit(`      ${text}`);
    for (const b of count(rows)) {
      const v = `v${r * rows + b}`;
      emit(
        weight.kind === 'lut4'
          ? `      ${v} *= sb0.x;`
          : `      ${v} = fma(sb0.x, ${v} - offset${b}, sb0.y * total${b});`,
      );
    }
    emit('    }');
  }
  // Halve: afterwards lane l has the sums `first …` of all lanes; those that share one hold the same.
  let live = 2 ** Math.ceil(Math.log2(together * rows));
  for (let v = together * rows; v < live; v++) emit(`    var v${v} = 0.0;`);
  emit('    var mine = 0u;');
  let idle = 0;
  for (let step = lanes / 2; step >= 1; step /= 2) {
    if (live > 1) {
      live /= 2;
      emit(`    { let upper = (lane & ${step}u) != 0u; mine += select(0u, ${live}u, upper);`);
      for (const v of count(live)) {
        emit(`      let give${v} = select(v${v + live}, v${v}, upper);`);
        emit(`      v${v} = select(v${v}, v${v + live}, upper) + subgroupShuffleXor(give${v}, ${step}u);`);
      }
      emit('    }');
    } else {
      emit(`    v0 += subgroupShuffleXor(v0, ${step}u);`);
      idle |= step;
    }
  }
  for (const v of count(live)) {
    const writes = [
      ...(idle > 0 ? [`(lane & ${idle}u) == 0u`] : []),
      ...((together * rows) & (together * rows - 1) ? [`mine + ${v}u < ${together * rows}u`] : []),
    ];
    const slot = `sums[(sub * ${down}u + i) * ${rows}u + mine + ${v}u]`;
    const store = parts === 1 ? `${slot} = v${v};` : `${slot} = select(${slot}, 0.0, part == 0u) + v${v};`;
    emit(`    ${writes.length === 0 ? store : `if (${writes.join(' && ')}) { ${store} }`}`);
  }
  for (const r of count(together)) {
    const metas = metaNames('a', r).map((name, m) => ` ${name} = ${metaNames('b', r)[m]};`);
    emit(`    wa${r} = wb${r};${metas.join('')}`);
  }
  emit('    }\n  }');
  if (spec.norm !== null) {
    for (const b of count(rows))
      emit(
        `  square${b} = subgroupAdd(square${b}); if (lane == 0u) { squares[sub * ${rows}u + ${b}u] = square${b}; }`,
      );
  }
  emit(`  workgroupBarrier();
  for (var e = lid; e < ${own * rows}u; e += ${threads}u) {
    let b = e / ${own}u;
    let f = e % ${own}u;
    let feature = n0 + f;
    if (feature < ${outs}u) {`);
  const sum = (row: string): string =>
    count(subgroups)
      .map((s) => `sums[(${s * down}u + ${row}) * ${rows}u + b]`)
      .join(' + ');
  if (spec.norm !== null)
    emit(
      `      let inverse = inverseSqrt((${count(subgroups)
        .map((s) => `squares[${s * rows}u + b]`)
        .join(' + ')}) / ${k}.0 + ${floatText(spec.norm.eps)});`,
    );
  const scaled = spec.norm === null ? '' : ' * inverse';
  emit(`      var value = (${sum(spec.glu === null ? 'f' : 'f * 2u')})${scaled};`);
  if (spec.bias) emit('      value += bias[feature];');
  if (spec.glu !== null) {
    emit(`      var up = (${sum('f * 2u + 1u')})${scaled};`);
    if (spec.bias) emit(`      up += bias[feature + ${outs}u];`);
    emit(`      value = ${gatedText(spec.glu, 'value', 'up')};`);
  }
  emit(`      let to = b * ${spec.outStride}u + ${spec.outOffset}u + feature;`);
  if (spec.residual !== null) emit('      value += residual[to];');
  emit('      out[to] = value;\n    }\n  }\n}');
  const tiles = Math.ceil(outs / own);
  const across = Math.min(tiles, 32768);
  return {
    label: `resident-${weightName(weight)}-${n}x${k}-b${rows}-w${words}f${own}r${together}p${parts}`,
    wgsl: lines.join('\n'),
    bindings,
    writes: ['out'],
    types,
    workgroups: [across, Math.ceil(tiles / across), 1],
    threads,
    workgroupBytes: bytes,
  };
}
