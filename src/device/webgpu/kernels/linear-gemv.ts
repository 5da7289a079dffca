/**
 * GEMV for 1 to 8 rows: memory-bound, so everything serves the stream of weights.
 *
 * A subgroup owns `rowsPerSubgroup` weight rows and walks along K; a lane reads one 16-byte piece of each row and a
 * step ahead of its use. x is staged once a workgroup in workgroup memory, laid out so that the lanes read it
 * without bank conflicts whatever width their piece of the weights has. With `splits` > 1, several subgroups share
 * the rows and take turns along K: small matrices need it to fill a large GPU.
 *
 * RMS norm folds in at no cost: the norm weight is applied while x is staged, and `1 / rms`, a factor of the whole
 * row, once at the end. So does glu: a subgroup takes half its rows from the gate and half from the up. And of one token
 * what is done with q, k and v (linear-gemv-append.ts): a workgroup then owns what is rotated together.
 */

import { mergedText } from './attend-merged.js';
import { appendText } from './linear-gemv-append.js';
import { type GemvConfig, gemvBytes, gemvFits, planGemv, sumsTogether } from './linear-gemv-plan.js';
import { quadStride, stageStride, stepText } from './linear-gemv-step.js';
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
import { type SubgroupSums, subgroupSums } from './subgroup-sums.js';
import { declareTable, fillTable } from './table-numbers.js';

export function gemvKernel(spec: LinearSpec, config: GemvConfig): LinearKernel {
  const plan = planGemv(spec, config);
  if (plan === null || !gemvFits(spec, config)) throw new RangeError(`no GEMV for ${spec.n} × ${spec.k}`);
  const { piece, steps, chunk } = plan;
  const { weight, rows: batch, n, k } = spec;
  const { subgroupSize: lanes, subgroups, rowsPerSubgroup: perSub, splits } = config;
  const quantised = weight.kind !== 'float';
  const table = weight.kind === 'lut4' ? weight.table : null;
  const threads = subgroups * lanes;
  const rowGroups = subgroups / splits;
  const features = outCols(spec);
  const perGroup = spec.glu === null ? perSub : perSub / 2;
  const featuresPerWorkgroup = rowGroups * perGroup;
  const quads = piece.cols / 4;
  const stride = quadStride(config);
  const stageRow = stageStride(plan, config);
  const bindings = linearBindings(spec);
  const needsF16 = spec.x === 'f16' || spec.out === 'f16' || spec.residual === 'f16';
  const rowIndex = Array.from({ length: perSub }, (_, r) => r);
  const batchIndex = Array.from({ length: batch }, (_, b) => b);
  const exact = k === steps * lanes * piece.cols;
  const chunks = Math.ceil(steps / chunk);
  const walk = stepText(spec, config, plan);
  const append = spec.append === undefined ? null : appendText(spec, spec.append, config);
  const together = sumsTogether(spec, config)
    ? subgroupSums(
        rowIndex.map((r) => `acc${r}_0`),
        lanes,
      )
    : null;
  const writes = append === null ? (['out'] as const) : (['out', 'keys', 'values'] as const);
  const types = {
    x: spec.x === 'f16' ? 'vec4<f16>' : 'vec4<f32>',
    codes: walk.codes,
    metas: 'u32',
    out: spec.out,
    bias: 'f32',
    residual: spec.residual ?? 'f32',
    norm: 'vec4<f32>',
    step: 'vec4<u32>',
    scratchSums: 'vec4<f32>',
    scratchTops: 'vec2<f32>',
    ...append?.types,
  } as const;
  const wgsl = `${needsF16 ? 'enable f16;\n' : ''}enable subgroups;
${declareBindings(bindings, writes, types)}
var<workgroup> xs: array<vec4<f32>, ${batch * stageRow}>;
var<workgroup> sums: array<f32, ${subgroups * perSub * batch}>;
${spec.norm === null ? '' : `var<workgroup> squares: array<f32, ${subgroups * batch}>;`}
${table === null ? '' : declareTable(table, 'floats')}
${spec.glu === 'gelu' ? ERF_TEXT : ''}
${spec.merge === undefined ? '' : mergedText(spec.merge)}${append?.declarations ?? ''}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let tile = wg.y * groups.x + wg.x;
  let lane = lid & ${lanes - 1}u;
  let sub = lid / ${lanes}u;
  let rowGroup = sub / ${splits}u;
  let split = sub % ${splits}u;
  let first = tile * ${featuresPerWorkgroup}u + rowGroup * ${perGroup}u;${append?.start ?? ''}
${rowIndex
  .map((r) => {
    const up = spec.glu !== null && r >= perGroup;
    const row =
      append?.row(`rowGroup * ${perSub}u + ${r}u`) ??
      `min(first + ${up ? r - perGroup : r}u, ${features - 1}u)${up ? ` + ${features}u` : ''}`;
    const metas = quantised ? `\n  let meta${r} = ${walk.metasAt(`row${r}`)};` : '';
    return `  let row${r} = ${row};\n  let base${r} = ${walk.codesAt(`row${r}`)};${metas}`;
  })
  .join('\n')}
${rowIndex.map((r) => `  ${batchIndex.map((b) => `var acc${r}_${b} = 0.0;`).join(' ')}`).join('\n')}
${walk.declarations}
${walk.first}
${spec.norm === null ? '' : batchIndex.map((b) => `  var sq${b} = 0.0;`).join('\n')}
${table === null ? '' : `  ${fillTable(threads)}`}
${chunks > 1 ? `  for (var chunk = 0u; chunk < ${chunks}u; chunk++) {\n  if (chunk > 0u) { workgroupBarrier(); }` : '  const chunk = 0u;\n  {'}
    for (var j = lid; j < ${(chunk * lanes * piece.cols) / 4}u; j += ${threads}u) {
      let quad = chunk * ${(chunk * lanes * piece.cols) / 4}u + j;
      let to = (j / ${quads * lanes}u * ${quads}u + j % ${quads}u) * ${stride}u + j / ${quads}u % ${lanes}u;
      ${exact && chunks * chunk === steps ? '' : `if (quad < ${k / 4}u) {`}
${spec.norm === null ? '' : `      let gamma = ${append === null ? 'norm' : 'constants'}[quad];`}
${batchIndex
  .map((b) =>
    spec.norm === null
      ? `      xs[to + ${b * stageRow}u] = ${spec.merge === undefined ? `vec4<f32>(x[quad + ${(b * spec.xStride) / 4}u])` : 'merged_(quad)'};`
      : `      { let v = vec4<f32>(x[quad + ${(b * spec.xStride) / 4}u]); sq${b} += dot(v, v); xs[to + ${b * stageRow}u] = v * gamma; }`,
  )
  .join('\n')}
      ${
        exact && chunks * chunk === steps
          ? ''
          : `} else {\n${batchIndex.map((b) => `      xs[to + ${b * stageRow}u] = vec4<f32>();`).join('\n')}\n      }`
      }
    }${append === null ? '' : `\n${chunks > 1 ? `if (chunk == 0u) {\n${append.fetch}\n    }` : append.fetch}`}
    workgroupBarrier();
${walk.loop}
  }${append === null ? '' : `\n${append.keep}`}
${together === null ? subgroupTotals() : together.text}
${spec.norm === null ? '' : batchIndex.map((b) => `  sq${b} = subgroupAdd(sq${b});`).join('\n')}${together === null ? '' : `\n${togetherStores(together)}`}
  if (lane == 0u) {
${together === null ? totalStores() : ''}
${spec.norm === null ? '' : batchIndex.map((b) => `    squares[sub * ${batch}u + ${b}u] = sq${b};`).join('\n')}
  }
  workgroupBarrier();
${append === null ? stores() : append.end(valueLines('j', '0u', '    '))}
}
`;

  function subgroupTotals(): string {
    const lines = rowIndex.flatMap((r) =>
      batchIndex.map((b) => `  acc${r}_${b} = subgroupAdd(acc${r}_${b});`),
    );
    return lines.join('\n');
  }

  function totalStores(): string {
    const lines = rowIndex.flatMap((r) =>
      batchIndex.map(
        (b) =>
          `    sums[(split * ${rowGroups * perSub}u + rowGroup * ${perSub}u + ${r}u) * ${batch}u + ${b}u] = acc${r}_${b};`,
      ),
    );
    return lines.join('\n');
  }

  function togetherStores({ totals, every }: SubgroupSums): string {
    const first = `split * ${rowGroups * perSub}u + rowGroup * ${perSub}u + lane / ${every}u * ${totals.length}u`;
    const lines = totals.map((total, i) => `    sums[${first} + ${i}u] = ${total};`);
    return `  if (lane % ${every}u == 0u) {\n${lines.join('\n')}\n  }`;
  }

  /** Statements that put output `slot` of row `b` into \`value\`, before bias. */
  function valueLines(slot: string, b: string, pad: string): string {
    const lines: string[] = [];
    if (spec.norm !== null) {
      const parts = Array.from({ length: subgroups }, (_, s) => `squares[${s * batch}u + ${b}]`);
      lines.push(`let inverse = inverseSqrt((${parts.join(' + ')}) / ${k}.0 + ${floatText(spec.norm.eps)});`);
    }
    lines.push(sumLine('value', slot, b));
    return lines.map((line) => `${pad}${line}`).join('\n');
  }

  function sumLine(name: string, slot: string, b: string): string {
    const parts = Array.from(
      { length: splits },
      (_, s) => `sums[(${slot} + ${s * rowGroups * perSub}u) * ${batch}u + ${b}]`,
    );
    return `var ${name} = ${parts.join(' + ')};${spec.norm === null ? '' : ` ${name} *= inverse;`}`;
  }

  function stores(): string {
    return `  for (var j = lid; j < ${featuresPerWorkgroup * batch}u; j += ${threads}u) {
    let b = j / ${featuresPerWorkgroup}u;
    let f = j % ${featuresPerWorkgroup}u;
    let feature = tile * ${featuresPerWorkgroup}u + f;
    if (feature < ${features}u) {
      let slot = f / ${perGroup}u * ${perSub}u + f % ${perGroup}u;
${epilogue()}
    }
  }`;
  }

  function epilogue(): string {
    const lines: string[] = [];
    if (spec.bias) lines.push('value += bias[feature];');
    if (spec.glu !== null) {
      lines.push(sumLine('up', `(slot + ${perGroup}u)`, 'b'));
      if (spec.bias) lines.push(`up += bias[feature + ${features}u];`);
      lines.push(`value = ${gatedText(spec.glu, 'value', 'up')};`);
    }
    const at = `b * ${spec.outStride}u + ${spec.outOffset}u + feature`;
    if (spec.residual !== null) lines.push(`value += f32(residual[${at}]);`);
    lines.push(`out[${at}] = ${spec.out === 'f16' ? 'f16(clamp(value, -65504.0, 65504.0))' : 'value'};`);
    return [valueLines('slot', 'b', '      '), ...lines.map((line) => `      ${line}`)].join('\n');
  }

  const tiles = Math.ceil(features / featuresPerWorkgroup);
  const across = Math.min(tiles, 32768);
  return {
    label: `${spec.merge === undefined ? '' : 'attend merged, '}${append === null ? '' : 'q k v appended, '}gemv-${weightName(weight)}-${n}x${k}-b${batch}-s${subgroups}r${perSub}k${splits}`,
    wgsl,
    bindings,
    writes,
    types,
    workgroups: [across, Math.ceil(tiles / across), 1],
    threads,
    workgroupBytes: gemvBytes(spec, config, plan),
  };
}
