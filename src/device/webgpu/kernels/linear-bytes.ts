/**
 * Products of a few rows, up to 8, on subgroup matrices of i8: codes are bytes already, so a weight costs half an
 * operation to unpack and a byte of workgroup memory.
 *
 * x is made integers of 16 bits, with a scale for every 64 columns of a row, in two planes of bytes: `256 · high + low`.
 * Codes meet exact integers and all sums of a group are exact; scale and bias of the weight, and the scale of x, are
 * applied to them. What rounds is x, by less than 2⁻¹⁵ of the largest of its 64: in the norm, closer than as
 * halves.
 *
 * A workgroup makes `tiles` tiles of 16 weight rows. Each of its subgroups has a slice of K, whose x it holds in matrices
 * for all tiles. Steps of 128 columns: the subgroup stages 16 rows of codes as bytes, multiplies, and stores the sums,
 * of which each lane then has one weight row and one of the step's two groups. Up to four rows share one matrix of sums:
 * the first group's x stands in columns 0 to 7, the second's in 8 to 15, with zeros beside both. Codes are in registers a
 * whole tile ahead. A K too long for the slices' matrices is walked in `parts`, with the sums of all tiles kept between.
 *
 * Matrices are loaded at addresses of 16 bytes. Strides keep rows off each other's banks: 9 vectors of 16 bytes for
 * staged rows, 6 for rows of sums.
 */

import type { MatrixConfig } from '../kernel.js';
import {
  activationText,
  declareBindings,
  ERF_TEXT,
  floatText,
  type LinearKernel,
  type LinearSpec,
  linearBindings,
  outCols,
  weightName,
} from './linear-spec.js';

export interface LinearBytesConfig {
  /** 16 × 16 × 32, i8 to i32. */
  readonly matrix: MatrixConfig;
  /** Lanes of a subgroup: 32. */
  readonly subgroupSize: number;
  readonly subgroups: number;
  /** Turns along K. */
  readonly parts: number;
  /** Tiles of 16 weight rows that a workgroup makes. */
  readonly tiles: number;
  readonly workgroupBytes: number;
}

/** Integers of two planes of bytes reach so far. */
const MOST = 32512;
const LANES = 32;
/** Weight rows of a tile, and columns of a step and of a group of x. */
const ROWS = 16;
const STEP = 128;
const GROUP = 64;
/** Vectors of 16 bytes from a staged row to the next. */
const STAGED = STEP / 16 + 1;
/** Most steps of a slice: x of each is 16 registers of a lane. */
const MOST_STEPS = 8;

interface Plan {
  /** Steps of a slice. */
  readonly steps: number;
  /** Both groups of a step in one matrix of sums. */
  readonly joined: boolean;
  /** Vectors from a row of sums to the next; of all a subgroup's workgroup memory. */
  readonly sums: number;
  readonly area: number;
  readonly bytes: number;
}

/** Sums of squares, in whole vectors: what lies behind must begin at 16 bytes. */
function squaresOf({ rows }: LinearSpec, { subgroups }: LinearBytesConfig): number {
  return Math.ceil((subgroups * rows) / 4) * 4;
}

function planBytes(spec: LinearSpec, c: LinearBytesConfig): Plan {
  const { rows, k } = spec;
  const steps = k / STEP / c.subgroups / c.parts;
  const joined = rows <= 4;
  const sums = joined ? 6 : 5;
  const area = ROWS * (STAGED + (joined ? 1 : 2) * sums);
  const terms = c.subgroups * steps * 2 * rows * 8;
  const pieces = c.subgroups * ROWS * rows * 4;
  const squares = spec.norm === null ? 0 : squaresOf(spec, c) * 4;
  return { steps, joined, sums, area, bytes: c.subgroups * area * 16 + terms + pieces + squares };
}

/** Whether the kernel exists for this spec. */
export function linearBytesFits(spec: LinearSpec, c: LinearBytesConfig): boolean {
  const { weight, rows, k } = spec;
  const { matrix } = c;
  if (weight.kind !== 'affine' || weight.meta !== 'f16' || (weight.bits !== 4 && weight.bits !== 8))
    return false;
  if (matrix.m !== 16 || matrix.n !== 16 || matrix.k !== 32) return false;
  if (matrix.component !== 'i8' || matrix.result !== 'i32' || c.subgroupSize !== LANES) return false;
  if (spec.x !== 'f32' || spec.out !== 'f32' || spec.residual === 'f16') return false;
  if (spec.glu !== null && (spec.residual !== null || spec.n % 2 !== 0)) return false;
  if (
    weight.groupSize % GROUP !== 0 ||
    k % (STEP * c.subgroups * c.parts) !== 0 ||
    k % weight.groupSize !== 0
  )
    return false;
  const { steps, bytes } = planBytes(spec, c);
  return rows >= 1 && rows <= 8 && steps <= MOST_STEPS && c.tiles >= 1 && bytes <= c.workgroupBytes;
}

/** What its sums depend on: which columns a subgroup has, and in how many turns. */
export function linearBytesOrder({ subgroups, parts }: LinearBytesConfig): string {
  return `s${subgroups} p${parts}`;
}

export function linearBytesKernel(spec: LinearSpec, c: LinearBytesConfig): LinearKernel {
  if (!linearBytesFits(spec, c) || spec.weight.kind !== 'affine')
    throw new RangeError(`no kernel of bytes for ${spec.n} × ${spec.k}`);
  const { steps, joined, sums, area, bytes } = planBytes(spec, c);
  const { weight, rows, n, k } = spec;
  const { subgroups, parts, tiles } = c;
  const { bits } = weight;
  const threads = subgroups * LANES;
  const features = outCols(spec);
  const own = spec.glu === null ? ROWS : ROWS / 2;
  const bindings = linearBindings(spec);
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  const each = count(rows);
  /** Loads of 16 bytes that 32 columns of a weight row are. */
  const loads = bits / 4;
  const perRow = (k * bits) / 128;
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const types = {
    x: 'f32',
    codes: 'vec4<u32>',
    metas: 'u32',
    out: 'f32',
    bias: 'f32',
    residual: 'f32',
    norm: 'f32',
    step: 'vec4<u32>',
  } as const;
  emit(`enable subgroups;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${declareBindings(bindings, ['out'], types)}
alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Sum = subgroup_matrix_result<i32, 16, 16>;
var<workgroup> area: array<vec4<u32>, ${subgroups * area}>;
var<workgroup> terms: array<vec2<f32>, ${subgroups * steps * 2 * rows}>;
var<workgroup> pieces: array<f32, ${subgroups * ROWS * rows}>;`);
  if (spec.norm !== null) emit(`var<workgroup> squares: array<f32, ${squaresOf(spec, c)}>;`);
  if (spec.glu === 'gelu') emit(ERF_TEXT);
  emit(`fn bytes_(v: vec4<i32>) -> u32 {
  let b = bitcast<vec4<u32>>(v) & vec4<u32>(255u);
  return b.x | (b.y << 8u) | (b.z << 16u) | (b.w << 24u);
}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let first = (wg.y * groups.x + wg.x) * ${tiles * own}u;
  let lane = lid & 31u;
  let sub = lid >> 5u;
  let at = sub * ${area}u;
  let mine = lane >> 1u;
  let group = lane & 1u;`);
  for (const r of each) if (spec.norm !== null) emit(`  var square${r} = 0.0;`);
  if (parts > 1) for (const r of each) emit(`  var kept${r}: array<f32, ${tiles}>;`);
  for (const i of count(steps)) {
    for (const h of [0, 1]) for (const j of count(loads)) emit(`  var w${i}_${h}_${j}: vec4<u32>;`);
    emit(`  var m${i}: u32;`);
  }

  /** The weight row that stands in row `row` of tile `t`. */
  const featureOf = (t: string, row: string): string =>
    spec.glu === null
      ? `min(first + ${t} * ${own}u + ${row}, ${n - 1}u)`
      : `min(first + ${t} * ${own}u + (${row} & 7u), ${features - 1}u) + (${row} >> 3u) * ${features}u`;
  const column = (part: string): string => `((${part} * ${subgroups}u + sub) * ${steps * STEP}u)`;
  const loadCodes = (i: number, part: string, t: string): void => {
    emit(`    { let start = ${column(part)} / 32u + ${i * 4}u + (lane & 3u);`);
    for (const h of [0, 1]) {
      emit(`      let row${h} = ${featureOf(t, `((lane >> 2u) + ${8 * h}u)`)};`);
      for (const j of count(loads))
        emit(`      w${i}_${h}_${j} = codes[row${h} * ${perRow}u + start * ${loads}u + ${j}u];`);
    }
    emit('    }');
  };
  const loadMetas = (i: number, part: string, t: string): void =>
    emit(
      `    m${i} = metas[(${featureOf(t, 'mine')}) * ${k / weight.groupSize}u + (${column(part)} + ${i * STEP}u + group * ${GROUP}u) / ${weight.groupSize}u];`,
    );
  const stage = (i: number): void => {
    for (const h of [0, 1]) {
      emit(`    { let to = at + ((lane >> 2u) + ${8 * h}u) * ${STAGED}u + (lane & 3u) * 2u;`);
      if (bits === 4) {
        const w = `w${i}_${h}_0`;
        emit(`      area[to] = ${w} & vec4<u32>(0x0f0f0f0fu);`);
        emit(`      area[to + 1u] = (${w} >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu); }`);
      } else {
        for (const j of [0, 1]) emit(`      area[to + ${j}u] = w${i}_${h}_${j} ^ vec4<u32>(0x80808080u);`);
        emit('    }');
      }
    }
  };

  for (const i of count(steps)) {
    loadCodes(i, '0u', '0u');
    loadMetas(i, '0u', '0u');
  }
  emit(parts === 1 ? '  const part = 0u;\n  {' : `  for (var part = 0u; part < ${parts}u; part++) {`);
  holdX();
  stage(0);
  emit(`  workgroupBarrier();
  for (var t = 0u; t < ${tiles}u; t++) {`);
  if (parts === 1) emit(`    let next = min(t + 1u, ${tiles - 1}u); const after = 0u;`);
  else
    emit(`    let wraps = t == ${tiles - 1}u;
    let next = select(t + 1u, 0u, wraps);
    let after = min(part + select(0u, 1u, wraps), ${parts - 1}u);`);
  for (const r of each)
    emit(`    var v${r} = ${parts === 1 ? '0.0' : `select(kept${r}[t], 0.0, part == 0u)`};`);
  // Step 0 of this tile is staged: its registers can have the next tile's.
  loadCodes(0, 'after', 'next');
  for (const i of count(steps)) {
    multiply(i);
    emit('    workgroupBarrier();');
    if (i + 1 < steps) {
      stage(i + 1);
      loadCodes(i + 1, 'after', 'next');
    } else if (parts === 1) stage(0);
    else {
      // A new part begins with another x, which is staged in the same place.
      emit('    if (!wraps) {');
      stage(0);
      emit('    }');
    }
    collect(i);
    loadMetas(i, 'after', 'next');
    if (i + 1 === steps) finish();
    emit('    workgroupBarrier();');
  }
  reduce();
  emit('  }\n  }\n}');

  /** x of the slice as integers: staged as weights are, column by column, and loaded into matrices. */
  function holdX(): void {
    const spread = bits === 4 ? 2 : 1;
    const from = bits === 4 ? '(lane >> 3u) * 32u + (lane & 3u) * 8u + ((lane >> 2u) & 1u)' : 'lane * 4u';
    emit('  let half = lane >> 4u;');
    for (const i of count(steps)) {
      if (i > 0) emit('  workgroupBarrier();');
      emit(`  { let column = ${column('part')} + ${i * STEP}u + ${from};`);
      const vector = (name: string, base: string): string =>
        `vec4<f32>(${count(4)
          .map((e) => `${name}[${base}column + ${e * spread}u]`)
          .join(', ')})`;
      if (spec.norm !== null) emit(`    let gamma = ${vector('norm', '')};`);
      for (const r of each) {
        emit(`    var x${r} = ${vector('x', `${r * spec.xStride}u + `)};`);
        if (spec.norm !== null) emit(`    square${r} += dot(x${r}, x${r}); x${r} *= gamma;`);
        emit(`    var most${r} = max(max(abs(x${r}.x), abs(x${r}.y)), max(abs(x${r}.z), abs(x${r}.w)));
    var total${r} = (x${r}.x + x${r}.y) + (x${r}.z + x${r}.w);`);
      }
      for (const step of [1, 2, 4, 8])
        for (const r of each)
          emit(
            `    most${r} = max(most${r}, subgroupShuffleXor(most${r}, ${step}u)); total${r} += subgroupShuffleXor(total${r}, ${step}u);`,
          );
      for (const r of each) {
        emit(`    let n${r} = vec4<i32>(round(x${r} * select(0.0, ${MOST}.0 / most${r}, most${r} > 0.0)));
    let high${r} = (n${r} + vec4<i32>(128)) >> vec4<u32>(8u);
    if ((lane & 15u) == 0u) { terms[((sub * ${steps}u + ${i}u) * 2u + half) * ${rows}u + ${r}u] = vec2<f32>(most${r} / ${MOST}.0, total${r}); }`);
      }
      for (const column of count(16)) {
        const place = joined ? column % 8 : column;
        const r = place >> 1;
        let word = '0u';
        if (r < rows) {
          word = place & 1 ? `bytes_(n${r} - high${r} * 256)` : `bytes_(high${r})`;
          if (joined) word = `select(0u, ${word}, half == ${column >> 3}u)`;
        }
        emit(`    area[at + ${column * STAGED}u + (lane >> 2u)][lane & 3u] = ${word};`);
      }
      emit('  }\n  workgroupBarrier();');
      for (const q of count(4))
        emit(`  let x${i}_${q} = subgroupMatrixLoad<Right, col_major>(&area, at + ${q * 2}u, ${STAGED}u);`);
    }
    if (spec.norm !== null) {
      for (const r of each) {
        emit(`  { var all = square${r};`);
        for (const step of [1, 2, 4, 8, 16]) emit(`    all += subgroupShuffleXor(all, ${step}u);`);
        emit(`    if (lane == 0u) { squares[sub * ${rows}u + ${r}u] = all; } }`);
      }
    }
    emit('  workgroupBarrier();');
  }

  function multiply(step: number): void {
    const results = joined ? 1 : 2;
    emit('    {');
    for (const s of count(results)) {
      emit(`      var s${s} = Sum();`);
      for (const q of count(4 / results)) {
        const at16 = s * 2 + q;
        emit(
          `      s${s} = subgroupMatrixMultiplyAccumulate(subgroupMatrixLoad<Left, row_major>(&area, at + ${at16 * 2}u, ${STAGED}u), x${step}_${at16}, s${s});`,
        );
      }
    }
    for (const s of count(results))
      emit(
        `      subgroupMatrixStore<row_major>(&area, at + ${ROWS * (STAGED + s * sums)}u, s${s}, ${sums}u);`,
      );
    emit('    }');
  }

  /** A lane adds up what its weight row and its group have of a step. */
  function collect(i: number): void {
    const base = joined
      ? `at + ${ROWS * STAGED}u + mine * ${sums}u + group * 2u`
      : `at + ${ROWS * STAGED}u + group * ${ROWS * sums}u + mine * ${sums}u`;
    const centre = bits === 8 ? `fma(affine.x, 128.0, affine.y)` : 'affine.y';
    emit(`    { let start = ${base};
      let affine = unpack2x16float(m${i});
      let offset = ${centre};
      let term = ((sub * ${steps}u + ${i}u) * 2u + group) * ${rows}u;`);
    for (const pair of count(Math.ceil(rows / 2))) {
      emit(`      let p${pair} = bitcast<vec4<i32>>(area[start + ${pair}u]);`);
      for (const r of [2 * pair, 2 * pair + 1]) {
        if (r >= rows) continue;
        const [high, low] = r & 1 ? ['z', 'w'] : ['x', 'y'];
        emit(`      let of${r} = terms[term + ${r}u];
      v${r} = fma(affine.x * of${r}.x, f32(p${pair}.${high} * 256 + p${pair}.${low}), fma(offset, of${r}.y, v${r}));`);
      }
    }
    emit('    }');
  }

  /** The tile's sums, of this part or of all. */
  function finish(): void {
    for (const r of each) {
      if (parts > 1) emit(`    kept${r}[t] = v${r};`);
      emit(`    let other${r} = subgroupShuffleXor(v${r}, 1u);
    if (group == 0u) { pieces[${r * subgroups * ROWS}u + sub * ${ROWS}u + mine] = v${r} + other${r}; }`);
    }
  }

  function reduce(): void {
    if (parts > 1) emit(`    if (part == ${parts - 1}u) {`);
    emit(`    for (var e = lid; e < ${own * rows}u; e += ${threads}u) {
      let row = e / ${own}u;
      let f = e % ${own}u;
      let feature = first + t * ${own}u + f;
      if (feature < ${features}u) {`);
    const sum = (place: string): string =>
      count(subgroups)
        .map((s) => `pieces[row * ${subgroups * ROWS}u + ${s * ROWS}u + ${place}]`)
        .join(' + ');
    if (spec.norm !== null)
      emit(
        `        let inverse = inverseSqrt((${count(subgroups)
          .map((s) => `squares[${s * rows}u + row]`)
          .join(' + ')}) / ${k}.0 + ${floatText(spec.norm.eps)});`,
      );
    const scaled = spec.norm === null ? '' : ' * inverse';
    emit(`        var value = (${sum('f')})${scaled};`);
    if (spec.bias) emit('        value += bias[feature];');
    if (spec.glu !== null) {
      emit(`        var up = (${sum('(f + 8u)')})${scaled};`);
      if (spec.bias) emit(`        up += bias[feature + ${features}u];`);
      emit(`        value = ${activationText(spec.glu, 'value')} * up;`);
    }
    emit(`        let to = row * ${spec.outStride}u + ${spec.outOffset}u + feature;`);
    if (spec.residual !== null) emit('        value += residual[to];');
    emit('        out[to] = value;\n      }\n    }');
    if (parts > 1) emit('    }');
  }

  const across = Math.ceil(features / (tiles * own));
  const wide = Math.min(across, 32768);
  return {
    label: `bytes-${weightName(weight)}-${n}x${k}-b${rows}-s${subgroups}p${parts}t${tiles}`,
    wgsl: lines.join('\n'),
    bindings,
    writes: ['out'],
    types,
    workgroups: [wide, Math.ceil(across / wide), 1],
    threads,
    workgroupBytes: bytes,
  };
}
