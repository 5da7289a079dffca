/**
 * GEMM on subgroup matrices, from a handful of rows up.
 *
 * A workgroup makes a `bm × bn` tile of the output. Along K it stages `bm × bk` of x and `bn × bk` of W in workgroup
 * memory, W dequantised on the way, so a code is unpacked once per tile and not once per row. Rows there are padded
 * by 16 bytes, so that the eight rows of a matrix load fall into different banks. What the next steps need is on its
 * way from memory into registers while the matrices of this one multiply.
 *
 * Subgroups share the tile as `sm × sn`, and with `sk` > 1 they also take parts of each step along K: for few rows
 * the tile is small and the stream of weights is what matters, so many subgroups load and few results are summed.
 *
 * Sums are f32 where the device offers f32 results. WGSL gives no access to the elements of a matrix: a plain f32
 * result is stored, and a residual loaded, as matrices; every other epilogue goes through workgroup memory.
 */

import type { MatrixConfig } from '../kernel.js';
import { rowCount } from '../step-buffer.js';
import { dequantiseQuads, weightUnit } from './linear-dequantise.js';
import {
  activationText,
  declareBindings,
  ERF_TEXT,
  HALF_TEXT,
  HALVES_TEXT,
  type LinearKernel,
  type LinearSpec,
  linearBindings,
  outCols,
  weightName,
} from './linear-spec.js';

export interface MatrixGemmConfig {
  readonly matrix: MatrixConfig;
  readonly subgroupSize: number;
  readonly bm: number;
  readonly bn: number;
  readonly bk: number;
  readonly sm: number;
  readonly sn: number;
  readonly sk: number;
  /** Copies of the tiles in workgroup memory: with 2 one barrier a step is enough. */
  readonly buffers: 1 | 2;
  /** Steps that are on their way in registers: 1, or even. */
  readonly depth: number;
  /** Element of the tiles in workgroup memory; offsets and strides of matrix loads count in it. */
  readonly tile: 'vec4' | 'scalar';
  readonly workgroupBytes: number;
}

interface Layout {
  readonly component: 'f16' | 'f32';
  readonly stride: number;
  readonly direct: boolean;
  /** Fragments a subgroup puts through workgroup memory at once, down and across. */
  readonly ri: number;
  readonly rj: number;
  readonly bytes: number;
}

function layoutOf(spec: LinearSpec, c: MatrixGemmConfig): Layout | null {
  const { matrix } = c;
  if (matrix.component !== 'f16' && matrix.component !== 'f32') return null;
  if (matrix.result !== 'f32') return null;
  const component = matrix.component;
  const size = component === 'f16' ? 2 : 4;
  const stride = c.bk + 16 / size;
  const tiles = c.buffers * (c.bm + c.bn) * stride * size;
  const direct =
    spec.out === 'f32' &&
    !spec.bias &&
    spec.glu === null &&
    spec.residual !== 'f16' &&
    c.sk === 1 &&
    spec.rows % matrix.m === 0 &&
    spec.n % matrix.n === 0 &&
    spec.outStride % 4 === 0 &&
    spec.outOffset % 4 === 0;
  if (direct) return { component, stride, direct, ri: 0, rj: 0, bytes: tiles };
  const down = c.bm / c.sm / matrix.m;
  const across = c.bn / c.sn / matrix.n;
  const rj = spec.glu === null ? 1 : 2;
  if (across % rj !== 0) return null;
  for (let ri = down; ri >= 1; ri--) {
    if (down % ri !== 0) continue;
    const scratch = c.sm * c.sn * c.sk * ri * matrix.m * rj * matrix.n * 4;
    if (tiles + scratch <= c.workgroupBytes)
      return { component, stride, direct, ri, rj, bytes: tiles + scratch };
  }
  return null;
}

/** Whether the kernel exists for this spec. */
export function matrixGemmFits(spec: LinearSpec, c: MatrixGemmConfig): boolean {
  const { matrix } = c;
  const unit = weightUnit(spec.weight);
  if (spec.norm !== null || spec.k % c.bk !== 0 || c.bk % unit.cols !== 0) return false;
  if (spec.weight.kind === 'float' && spec.k % 8 !== 0) return false;
  if (spec.weight.kind === 'affine' && spec.weight.meta !== 'f16') return false;
  if (spec.glu !== null && (spec.residual !== null || spec.n % 2 !== 0)) return false;
  if (c.bm % (c.sm * matrix.m) !== 0 || c.bn % (c.sn * matrix.n) !== 0) return false;
  if (c.bk % (c.sk * matrix.k) !== 0 || c.bk % 8 !== 0) return false;
  if (c.depth !== 1 && c.depth % 2 !== 0) return false;
  const layout = layoutOf(spec, c);
  return layout !== null && layout.bytes <= c.workgroupBytes;
}

/**
 * The order of the sums, as text. Without shares along K a sum goes from the first column to the last whatever the tile;
 * a residual is where it starts in results that are stored straight from matrices, else it comes last.
 */
export function matrixGemmOrder(spec: LinearSpec, c: MatrixGemmConfig): string {
  const { m, n, k } = c.matrix;
  const first = spec.residual !== null && layoutOf(spec, c)?.direct === true ? ' residual first' : '';
  return `${m}.${n}.${k}${c.sk === 1 ? '' : ` k${c.bk}/${c.sk}`}${first}`;
}

export function matrixGemmKernel(spec: LinearSpec, c: MatrixGemmConfig): LinearKernel {
  const layout = layoutOf(spec, c);
  if (layout === null || !matrixGemmFits(spec, c)) throw new RangeError(`no GEMM for ${spec.n} × ${spec.k}`);
  const { component, stride, direct, ri, rj } = layout;
  const { matrix, bm, bn, bk, sm, sn, sk, depth, buffers } = c;
  const { weight, n, k, rows } = spec;
  const affine = weight.kind === 'affine' ? weight : null;
  const unit = weightUnit(spec.weight);
  const threads = sm * sn * sk * c.subgroupSize;
  const features = outCols(spec);
  const featuresPerTile = spec.glu === null ? bn : bn / 2;
  const down = bm / sm / matrix.m;
  const across = bn / sn / matrix.n;
  const wide = c.tile === 'vec4' ? 4 : 1;
  const element = wide === 4 ? `vec4<${component}>` : component;
  const bindings = linearBindings(spec);
  const wUnits = (bn * bk) / unit.cols;
  const wPer = Math.ceil(wUnits / threads);
  const xUnits = (bm * bk) / 8;
  const xPer = Math.ceil(xUnits / threads);
  const unitsAcross = bk / unit.cols;
  const wordsPerRow =
    affine === null
      ? weight.kind === 'float' && weight.dtype === 'f32'
        ? k
        : k / 2
      : (k * affine.bits) / 32;
  const loadsPerRow = wordsPerRow / unit.vector;
  const vector = unit.vector === 1 ? 'u32' : `vec${unit.vector}<u32>`;
  const xLoads = spec.x === 'f32' ? 2 : 1;
  const steps = k / bk;
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };

  emit(`enable subgroups;`);
  const halfWeights = weight.kind === 'float' && weight.dtype === 'f16';
  if (component === 'f16' || spec.x === 'f16' || spec.out === 'f16' || spec.residual === 'f16' || halfWeights)
    emit('enable f16;');
  emit('enable chromium_experimental_subgroup_matrix;');
  emit('diagnostic(off, chromium.subgroup_matrix_uniformity);');
  const types = {
    x: spec.x === 'f32' ? 'vec4<f32>' : 'vec4<u32>',
    codes: vector,
    metas: 'u32',
    out: spec.out,
    bias: 'f32',
    residual: spec.residual ?? 'f32',
    step: 'vec4<u32>',
  } as const;
  emit(declareBindings(bindings, ['out'], types));
  emit(`alias Left = subgroup_matrix_left<${component}, ${matrix.k}, ${matrix.m}>;`);
  emit(`alias Right = subgroup_matrix_right<${component}, ${matrix.n}, ${matrix.k}>;`);
  emit(`alias Sum = subgroup_matrix_result<f32, ${matrix.n}, ${matrix.m}>;`);
  emit(`var<workgroup> tx: array<${element}, ${(buffers * bm * stride) / wide}>;`);
  emit(`var<workgroup> tw: array<${element}, ${(buffers * bn * stride) / wide}>;`);
  const scratchRows = ri * matrix.m;
  const scratchCols = rj * matrix.n;
  if (!direct) emit(`var<workgroup> scratch: array<f32, ${sm * sn * sk * scratchRows * scratchCols}>;`);
  if (spec.glu === 'gelu') emit(ERF_TEXT);
  if (component === 'f16' && spec.x === 'f32') emit(HALVES_TEXT);
  if (spec.out === 'f16') emit(HALF_TEXT);
  emit(`@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32, @builtin(subgroup_id) sub: u32) {
  let n0 = wid.x * ${featuresPerTile}u;
  let m0 = wid.y * ${bm}u;
  let rows = ${spec.rowKind === undefined ? `${rows}u` : rowCount(spec.rowKind)};
  let subK = sub % ${sk}u;
  let subN = sub / ${sk}u % ${sn}u;
  let subM = sub / ${sk * sn}u;`);

  // Where this thread's units come from and go to.
  for (const i of count(wPer)) {
    emit(`  let wu${i} = lid + ${i * threads}u;`);
    emit(`  let wr${i} = wu${i} / ${unitsAcross}u;`);
    const feature =
      spec.glu === null
        ? `min(n0 + wr${i}, ${n - 1}u)`
        : `min(n0 + wr${i} / ${2 * matrix.n}u * ${matrix.n}u + wr${i} % ${matrix.n}u, ${features - 1}u) + ((wr${i} / ${matrix.n}u) & 1u) * ${features}u`;
    emit(`  let wf${i} = ${feature};`);
    emit(`  let wb${i} = wf${i} * ${loadsPerRow}u + wu${i} % ${unitsAcross}u * ${unit.loads}u;`);
    if (affine !== null) emit(`  let mb${i} = wf${i} * ${k / affine.groupSize}u;`);
    emit(`  let wt${i} = (wr${i} * ${stride}u + wu${i} % ${unitsAcross}u * ${unit.cols}u) / 4u;`);
  }
  for (const i of count(xPer)) {
    emit(`  let xu${i} = lid + ${i * threads}u;`);
    emit(`  let xr${i} = xu${i} / ${bk / 8}u;`);
    const perLoad = spec.x === 'f32' ? 4 : 8;
    emit(
      `  let xb${i} = min(m0 + xr${i}, rows - 1u) * ${spec.xStride / perLoad}u + xu${i} % ${bk / 8}u * ${8 / perLoad}u;`,
    );
    emit(`  let xt${i} = (xr${i} * ${stride}u + xu${i} % ${bk / 8}u * 8u) / 4u;`);
  }
  for (const d of count(depth)) {
    for (const i of count(wPer)) {
      for (const l of count(unit.loads)) emit(`  var w${d}_${i}_${l}: ${vector};`);
      if (affine !== null) emit(`  var m${d}_${i}: u32;`);
    }
    for (const i of count(xPer))
      for (const l of count(xLoads))
        emit(`  var x${d}_${i}_${l}: ${spec.x === 'f32' ? 'vec4<f32>' : 'vec4<u32>'};`);
  }

  const put = (tile: string, at: string, quad: string): string =>
    wide === 4
      ? `    ${tile}[${at}] = ${quad};`
      : `    { let q = ${quad}; let to = (${at}) * 4u; ${count(4)
          .map((v) => `${tile}[to + ${v}u] = q.${'xyzw'[v]};`)
          .join(' ')} }`;

  /** Fetches the units of a step into registers. */
  const load = (slot: number, step: string): void => {
    emit('  {');
    emit(`    let s = ${step};`);
    for (const i of count(wPer)) {
      const advance = (bk / unit.cols) * unit.loads;
      for (const l of count(unit.loads))
        emit(`    w${slot}_${i}_${l} = codes[wb${i} + s * ${advance}u${l > 0 ? ` + ${l}u` : ''}];`);
      if (affine !== null)
        emit(
          `    m${slot}_${i} = metas[mb${i} + (s * ${bk}u + wu${i} % ${unitsAcross}u * ${unit.cols}u) / ${affine.groupSize}u];`,
        );
    }
    for (const i of count(xPer)) {
      const advance = bk / (spec.x === 'f32' ? 4 : 8);
      for (const l of count(xLoads))
        emit(`    x${slot}_${i}_${l} = x[xb${i} + s * ${advance}u${l > 0 ? ` + ${l}u` : ''}];`);
    }
    emit('  }');
  };

  /** Dequantises a slot into a copy of the tiles. */
  const store = (slot: number, buffer: number): void => {
    const wBase = (buffer * bn * stride) / 4;
    const xBase = (buffer * bm * stride) / 4;
    for (const i of count(wPer)) {
      const guarded = (i + 1) * threads > wUnits;
      emit(guarded ? `  if (wu${i} < ${wUnits}u) {` : '  {');
      const words = count(unit.loads).flatMap((l) =>
        unit.vector === 1
          ? [`w${slot}_${i}_${l}`]
          : count(unit.vector).map((v) => `w${slot}_${i}_${l}.${'xyzw'[v]}`),
      );
      const { prepare, quads } = dequantiseQuads(spec.weight, component, words, `m${slot}_${i}`);
      for (const text of prepare) emit(`    ${text}`);
      quads.forEach((quad, q) => {
        emit(put('tw', `wt${i} + ${wBase + q}u`, quad));
      });
      emit('  }');
    }
    for (const i of count(xPer)) {
      const guarded = (i + 1) * threads > xUnits;
      emit(guarded ? `  if (xu${i} < ${xUnits}u) {` : '  {');
      for (const q of [0, 1]) {
        const from =
          spec.x === 'f32'
            ? component === 'f32'
              ? `x${slot}_${i}_${q}`
              : `halves_(x${slot}_${i}_${q})`
            : `${component === 'f32' ? 'vec4<f32>(' : ''}bitcast<vec4<f16>>(x${slot}_${i}_0.${q === 0 ? 'xy' : 'zw'})${component === 'f32' ? ')' : ''}`;
        emit(put('tx', `xt${i} + ${xBase + q}u`, from));
      }
      emit('  }');
    }
  };

  const multiply = (buffer: number): void => {
    for (let kk = 0; kk < bk / sk; kk += matrix.k) {
      const offset = `${kk / wide}u${sk > 1 ? ` + subK * ${bk / sk / wide}u` : ''}`;
      emit('  {');
      for (const i of count(down))
        emit(
          `    let a${i} = subgroupMatrixLoad<Left, row_major>(&tx, ${((buffer * bm + i * matrix.m) * stride) / wide}u + subM * ${((bm / sm) * stride) / wide}u + ${offset}, ${stride / wide}u);`,
        );
      for (const j of count(across)) {
        emit(
          `    let b${j} = subgroupMatrixLoad<Right, col_major>(&tw, ${((buffer * bn + j * matrix.n) * stride) / wide}u + subN * ${((bn / sn) * stride) / wide}u + ${offset}, ${stride / wide}u);`,
        );
        for (const i of count(down))
          emit(`    c${i}_${j} = subgroupMatrixMultiplyAccumulate(a${i}, b${j}, c${i}_${j});`);
      }
      emit('  }');
    }
  };

  const fragRow = (i: number): string => `m0 + subM * ${bm / sm}u + ${i * matrix.m}u`;
  const fragCol = (j: number): string => `n0 + subN * ${bn / sn}u + ${j * matrix.n}u`;
  for (const i of count(down)) for (const j of count(across)) emit(`  var c${i}_${j} = Sum();`);
  if (direct && spec.residual !== null) {
    for (const i of count(down))
      for (const j of count(across))
        emit(
          `  if (${fragRow(i)} < rows && ${fragCol(j)} < ${n}u) { c${i}_${j} = subgroupMatrixLoad<Sum, row_major>(&residual, (${fragRow(i)}) * ${spec.outStride}u + ${spec.outOffset}u + ${fragCol(j)}, ${spec.outStride}u); }`,
        );
  }

  for (const d of count(depth)) load(d, `${Math.min(d, steps - 1)}u`);
  if (buffers === 1) {
    emit(`  for (var t = 0u; t < ${steps}u; t += ${depth}u) {`);
    for (const d of count(depth)) {
      if (d > 0 && steps % depth !== 0) emit(`  if (t + ${d}u < ${steps}u) {`);
      emit('  workgroupBarrier();');
      store(d, 0);
      emit('  workgroupBarrier();');
      load(d, `min(t + ${d + depth}u, ${steps - 1}u)`);
      multiply(0);
      if (d > 0 && steps % depth !== 0) emit('  }');
    }
    emit('  }');
  } else {
    const unroll = depth === 1 ? 2 : depth;
    store(0, 0);
    load(0, `${Math.min(depth, steps - 1)}u`);
    emit('  workgroupBarrier();');
    emit(`  for (var t = 0u; t < ${steps}u; t += ${unroll}u) {`);
    for (const u of count(unroll)) {
      const guarded = u > 0 && steps % unroll !== 0;
      if (guarded) emit(`  if (t + ${u}u < ${steps}u) {`);
      multiply(u & 1);
      const slot = (u + 1) % depth;
      store(slot, (u + 1) & 1);
      load(slot, `min(t + ${u + 1 + depth}u, ${steps - 1}u)`);
      emit('  workgroupBarrier();');
      if (guarded) emit('  }');
    }
    emit('  }');
  }

  if (direct) {
    for (const i of count(down))
      for (const j of count(across))
        emit(
          `  if (${fragRow(i)} < rows && ${fragCol(j)} < ${n}u) { subgroupMatrixStore<row_major>(&out, (${fragRow(i)}) * ${spec.outStride}u + ${spec.outOffset}u + ${fragCol(j)}, c${i}_${j}, ${spec.outStride}u); }`,
        );
  } else {
    const area = scratchRows * scratchCols;
    for (let i0 = 0; i0 < down; i0 += ri) {
      for (let j0 = 0; j0 < across; j0 += rj) {
        emit('  workgroupBarrier();');
        for (const i of count(ri))
          for (const j of count(rj))
            emit(
              `  subgroupMatrixStore<row_major>(&scratch, sub * ${area}u + ${i * matrix.m * scratchCols + j * matrix.n}u, c${i0 + i}_${j0 + j}, ${scratchCols}u);`,
            );
        emit('  workgroupBarrier();');
        emit(`  for (var e = lid; e < ${sm * sn * scratchRows * matrix.n}u; e += ${threads}u) {`);
        emit(`    let col = e % ${matrix.n}u;`);
        emit(`    let r = e / ${matrix.n}u % ${scratchRows}u;`);
        emit(`    let part = e / ${matrix.n * scratchRows}u;`);
        emit(`    let row = m0 + part / ${sn}u * ${bm / sm}u + ${i0 * matrix.m}u + r;`);
        const column = j0 / rj;
        emit(
          `    let feature = n0 + part % ${sn}u * ${featuresPerTile / sn}u + ${column * matrix.n}u + col;`,
        );
        emit(`    let at = part * ${sk * area}u + r * ${scratchCols}u + col;`);
        const sum = (extra: number): string =>
          count(sk)
            .map((s) => `scratch[at + ${s * area + extra}u]`)
            .join(' + ');
        emit(`    if (row < rows && feature < ${features}u) {`);
        emit(`      var value = ${sum(0)};`);
        if (spec.bias) emit('      value += bias[feature];');
        if (spec.glu !== null) {
          emit(`      var up = ${sum(matrix.n)};`);
          if (spec.bias) emit(`      up += bias[feature + ${features}u];`);
          emit(`      value = ${activationText(spec.glu, 'value')} * up;`);
        }
        emit(`      let to = row * ${spec.outStride}u + ${spec.outOffset}u + feature;`);
        if (spec.residual !== null) emit('      value += f32(residual[to]);');
        emit(`      out[to] = ${spec.out === 'f16' ? 'half_(value)' : 'value'};`);
        emit('    }');
        emit('  }');
      }
    }
  }
  emit('}');

  return {
    label: `matrix-${weightName(weight)}-${n}x${k}-m${rows}-t${bm}x${bn}x${bk}-s${sm}${sn}${sk}-b${buffers}d${depth}`,
    wgsl: lines.join('\n'),
    bindings,
    writes: ['out'],
    types,
    workgroups: [Math.ceil(features / featuresPerTile), Math.ceil(rows / bm), 1],
    threads,
    workgroupBytes: layout.bytes,
  };
}
