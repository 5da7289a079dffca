/**
 * GEMM on subgroup matrices: where its sums begin and where they go. They are stored straight from matrices where that is
 * all there is to do; else through workgroup memory, some fragments of each subgroup at a time, and there shares along K
 * are summed and the rest is done: where the tiles were, for nobody reads them any more, and how much workgroup memory one
 * takes decides how many workgroups a GPU keeps going at once.
 */

import { type MatrixGemmConfig, type MatrixGemmLayout, matrixGemmThreads } from './linear-matrix-plan.js';
import { gatedText, type LinearSpec, outCols } from './linear-spec.js';

/** The tiles of x and of W, one behind the other, in vectors of four; then the results. */
export const TILES = 'tiles';

const count = (length: number): number[] => Array.from({ length }, (_, i) => i);

/** First row, and first feature of a result that is stored straight, of a subgroup's fragment. */
function fragment({ matrix, bm, bn, sm, sn }: MatrixGemmConfig, i: number, j: number) {
  return {
    row: `m0 + subM * ${bm / sm}u + ${i * matrix.m}u`,
    col: `n0 + subN * ${bn / sn}u + ${j * matrix.n}u`,
  };
}

/** Where the sums of a slice begin. */
function sliceOf(spec: LinearSpec, { splitK = 1 }: MatrixGemmConfig): string {
  return splitK === 1 ? '' : `wid.z * ${spec.rows * spec.outStride}u + `;
}

/** Statement for every fragment that lies within a result that is stored straight. */
function eachFragment(
  spec: LinearSpec,
  c: MatrixGemmConfig,
  body: (name: string, place: string) => string,
): string[] {
  return count(c.bm / c.sm / c.matrix.m).flatMap((i) =>
    count(c.bn / c.sn / c.matrix.n).map((j) => {
      const { row, col } = fragment(c, i, j);
      const place = `${sliceOf(spec, c)}(${row}) * ${spec.outStride}u + ${spec.outOffset}u + ${col}`;
      return `  if (${row} < rows && ${col} < ${spec.n}u) { ${body(`c${i}_${j}`, place)} }`;
    }),
  );
}

/** Declares the sums, `cDOWN_ACROSS`. A residual of results that are stored straight is where they start, and a bias comes next. */
export function matrixGemmStart(spec: LinearSpec, c: MatrixGemmConfig, layout: MatrixGemmLayout): string[] {
  const down = c.bm / c.sm / c.matrix.m;
  const across = c.bn / c.sn / c.matrix.n;
  const sums = count(down).flatMap((i) => count(across).map((j) => `  var c${i}_${j} = Sum();`));
  if (!layout.direct) return sums;
  const loaded = (name: string, place: string): string =>
    `${name} = subgroupMatrixLoad<Sum, row_major>(&residual, ${place}, ${spec.outStride}u);`;
  return [
    ...sums,
    ...(spec.residual === null ? [] : eachFragment(spec, c, loaded)),
    ...(spec.bias ? biasLines(spec, c, layout) : []),
  ];
}

/**
 * Adds the bias to all sums, whose elements cannot be reached, as a product: of ones with what the bias is in two halves, which together are
 * it but for 2⁻²² of it. They lie where the tiles will.
 */
function biasLines(spec: LinearSpec, c: MatrixGemmConfig, { component }: MatrixGemmLayout): string[] {
  const { matrix, bm, bn, sm, sn } = c;
  const { m, n, k } = matrix;
  const threads = sm * sn * c.subgroupSize;
  const wide = k / 4;
  const ones = bn * wide;
  const zeros = `vec4<${component}>()`;
  return [
    `  for (var e = lid; e < ${ones + m * wide}u; e += ${threads}u) {`,
    `    var v = ${zeros};`,
    `    if (e % ${wide}u == 0u) {`,
    `      let feature = min(n0 + e / ${wide}u, ${spec.n - 1}u);`,
    `      let high = ${component}(clamp(bias[feature], -65504.0, 65504.0));`,
    `      v[0] = select(high, ${component}(1.0), e >= ${ones}u);`,
    `      v[1] = select(${component}(clamp(bias[feature] - f32(high), -65504.0, 65504.0)), ${component}(1.0), e >= ${ones}u);`,
    '    }',
    `    ${TILES}[e] = v;`,
    '  }',
    '  workgroupBarrier();',
    '  {',
    `    let a0 = subgroupMatrixLoad<Left, row_major>(&${TILES}, ${ones}u, ${wide}u);`,
    ...count(bn / sn / n).flatMap((j) => [
      `    let b${j} = subgroupMatrixLoad<Right, col_major>(&${TILES}, ${j * n * wide}u + subN * ${(bn / sn) * wide}u, ${wide}u);`,
      ...count(bm / sm / m).map(
        (i) => `    c${i}_${j} = subgroupMatrixMultiplyAccumulate(a0, b${j}, c${i}_${j});`,
      ),
    ]),
    '  }',
    '  workgroupBarrier();',
  ];
}

/** From the sums to `out`. */
export function matrixGemmEnd(spec: LinearSpec, c: MatrixGemmConfig, layout: MatrixGemmLayout): string[] {
  if (layout.direct)
    return eachFragment(
      spec,
      c,
      (name, place) => `subgroupMatrixStore<row_major>(&out, ${place}, ${name}, ${spec.outStride}u);`,
    );
  const { matrix, bm, bn, sm, sn, sk, loaders = 1 } = c;
  const { ri, rj, endStride, component } = layout;
  const threads = matrixGemmThreads(c);
  const features = outCols(spec);
  const featuresPerTile = spec.glu === null ? bn : bn / 2;
  const rows = ri * matrix.m;
  const area = rows * endStride;
  /** Floats in an element of the tiles, and one of them. */
  const per = component === 'f16' ? 2 : 4;
  const float = (at: string): string => {
    const element = `${TILES}[(${at}) / ${per}u]`;
    return `${component === 'f16' ? `bitcast<vec2<f32>>(${element})` : element}[(${at}) % ${per}u]`;
  };
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  for (let i0 = 0; i0 < bm / sm / matrix.m; i0 += ri) {
    for (let j0 = 0; j0 < bn / sn / matrix.n; j0 += rj) {
      emit('  workgroupBarrier();');
      if (loaders > 1) emit(`  if (sub < ${sm * sn * sk}u) {`);
      for (const i of count(ri))
        for (const j of count(rj)) {
          const within = i * matrix.m * endStride + j * matrix.n;
          emit(
            `  subgroupMatrixStore<row_major>(&${TILES}, sub * ${area / per}u + ${within / per}u, c${i0 + i}_${j0 + j}, ${endStride / per}u);`,
          );
        }
      if (loaders > 1) emit('  }');
      emit('  workgroupBarrier();');
      emit(`  for (var e = lid; e < ${sm * sn * rows * matrix.n}u; e += ${threads}u) {`);
      emit(`    let col = e % ${matrix.n}u;`);
      emit(`    let r = e / ${matrix.n}u % ${rows}u;`);
      emit(`    let part = e / ${matrix.n * rows}u;`);
      emit(`    let row = m0 + part / ${sn}u * ${bm / sm}u + ${i0 * matrix.m}u + r;`);
      emit(
        `    let feature = n0 + part % ${sn}u * ${featuresPerTile / sn}u + ${(j0 / rj) * matrix.n}u + col;`,
      );
      emit(`    let at = part * ${sk * area}u + r * ${endStride}u + col;`);
      const sum = (extra: number): string =>
        count(sk)
          .map((s) => float(`at + ${s * area + extra}u`))
          .join(' + ');
      emit(`    if (row < rows && feature < ${features}u) {`);
      emit(`      var value = ${sum(0)};`);
      const biasAt = spec.stack === undefined ? 'feature' : 'stack_row + feature';
      if (spec.bias) emit(`      value += bias[${biasAt}];`);
      if (spec.glu !== null) {
        emit(`      var up = ${sum(matrix.n)};`);
        if (spec.bias) emit(`      up += bias[${biasAt} + ${features}u];`);
        emit(`      value = ${gatedText(spec.glu, 'value', 'up')};`);
      }
      emit(`      let to = ${sliceOf(spec, c)}row * ${spec.outStride}u + ${spec.outOffset}u + feature;`);
      if (spec.residual !== null) emit('      value += f32(residual[to]);');
      emit(`      out[to] = ${spec.out === 'f16' ? 'half_(value)' : 'value'};`);
      emit('    }');
      emit('  }');
    }
  }
  return lines;
}
