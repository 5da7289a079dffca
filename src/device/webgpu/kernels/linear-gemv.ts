/**
 * GEMV for 1 to 8 rows: memory-bound, so everything serves the stream of weights.
 *
 * A subgroup owns `rowsPerSubgroup` weight rows and walks along K; a lane reads one 16-byte piece of each row and a
 * step ahead of its use. x is staged once a workgroup in workgroup memory, laid out so that the lanes read it
 * without bank conflicts whatever width their piece of the weights has. With `splits` > 1, several subgroups share
 * the rows and take turns along K: small matrices need it to fill a large GPU.
 *
 * RMS norm folds in at no cost: the norm weight is applied while x is staged, and `1 / rms`, a factor of the whole
 * row, once at the end. So does glu: a subgroup takes half its rows from the gate and half from the up.
 */

import { mergedText } from './attend-merged.js';
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
import { floatCodes, unpackCodes, usedIn } from './linear-unpack.js';

export interface GemvConfig {
  /** Lanes of a subgroup: must be the device's one and only size. */
  readonly subgroupSize: number;
  readonly subgroups: number;
  readonly rowsPerSubgroup: number;
  /** Subgroups that share the rows along K. Divides `subgroups`. */
  readonly splits: number;
  /** Bytes of workgroup memory the kernel may take. */
  readonly workgroupBytes: number;
}

interface Piece {
  /** Columns a lane takes in one step. */
  readonly cols: number;
  /** u32 words that hold them. */
  readonly words: number;
  /** Words fetched by one load: element type of the codes buffer. */
  readonly vector: 1 | 2 | 4;
}

/** The widest piece of a row a lane can load whose columns share a group. */
function pieceOf(spec: LinearSpec, maxCols: number): Piece {
  const { weight } = spec;
  if (weight.kind === 'float') {
    const perWord = weight.dtype === 'f32' ? 1 : 2;
    return { cols: perWord * 4, words: 4, vector: 4 };
  }
  if (weight.bits === 3 || weight.bits === 5 || weight.bits === 6)
    return { cols: 32, words: weight.bits, vector: 1 };
  const perWord = 32 / weight.bits;
  for (const vector of [4, 2] as const) {
    const cols = perWord * vector;
    if (cols <= 32 && cols <= maxCols) return { cols, words: vector, vector };
  }
  return { cols: perWord, words: 1, vector: 1 };
}

function workgroupBytesOf(spec: LinearSpec, config: GemvConfig, piece: Piece, steps: number): number {
  const stage = spec.rows * steps * (piece.cols / 4) * (config.subgroupSize + 1) * 16;
  return stage + reduceBytes(spec, config);
}

function reduceBytes(spec: LinearSpec, config: GemvConfig): number {
  const sums = config.subgroups * config.rowsPerSubgroup * spec.rows * 4;
  const squares = spec.norm === null ? 0 : config.subgroups * spec.rows * 4;
  return sums + squares;
}

interface GemvPlan {
  readonly piece: Piece;
  /** Steps of the whole row, each `subgroupSize · piece.cols` columns. */
  readonly steps: number;
  /** Steps staged at once. */
  readonly chunk: number;
}

function planGemv(spec: LinearSpec, config: GemvConfig): GemvPlan | null {
  const { splits } = config;
  for (const maxCols of [32, 16, 8, 4]) {
    const piece = pieceOf(spec, maxCols);
    if (piece.cols > maxCols && maxCols !== 4) continue;
    const perStep = config.subgroupSize * piece.cols;
    const steps = Math.ceil(spec.k / perStep / splits) * splits;
    // A split that would walk over nothing but padding is a waste a smaller piece may avoid.
    if (splits > 1 && (steps - splits) * perStep + perStep > spec.k && maxCols > 4 && piece.vector > 1)
      continue;
    for (let chunk = steps; chunk >= splits; chunk = Math.ceil(chunk / 2 / splits) * splits) {
      if (workgroupBytesOf(spec, config, piece, chunk) <= config.workgroupBytes)
        return { piece, steps, chunk };
      if (chunk === splits) break;
    }
  }
  return null;
}

/** Whether the kernel exists for this spec: shapes divide and x fits. */
export function gemvFits(spec: LinearSpec, config: GemvConfig): boolean {
  const { subgroups, rowsPerSubgroup, splits, subgroupSize } = config;
  if (spec.weight.kind === 'affine' && spec.weight.meta === 'f32') return false;
  if (spec.k % 32 !== 0 || subgroups % splits !== 0) return false;
  if (spec.glu !== null && (rowsPerSubgroup % 2 !== 0 || spec.n % 2 !== 0 || spec.residual !== null))
    return false;
  if (spec.merge !== undefined && (spec.rows !== 1 || spec.norm !== null)) return false;
  if ((subgroupSize & (subgroupSize - 1)) !== 0 || spec.rows < 1 || spec.rows > 8) return false;
  return planGemv(spec, config) !== null;
}

/**
 * The order of the sums, as text: equal for configs that give the same bits. A lane adds piece after piece, whoever owns
 * the row and however x is staged; squares of the norm are shared out over all threads.
 */
export function gemvOrder(spec: LinearSpec, config: GemvConfig): string {
  const plan = planGemv(spec, config);
  if (plan === null) return 'none';
  const order = `c${plan.piece.cols} k${config.splits}`;
  if (spec.norm === null) return order;
  const threads = config.subgroups * config.subgroupSize;
  const staged = (plan.chunk * config.subgroupSize * plan.piece.cols) / 4;
  return `${order} n${threads}${plan.chunk === plan.steps || staged % threads === 0 ? '' : `/${staged}`}`;
}

export function gemvKernel(spec: LinearSpec, config: GemvConfig): LinearKernel {
  const plan = planGemv(spec, config);
  if (plan === null || !gemvFits(spec, config)) throw new RangeError(`no GEMV for ${spec.n} × ${spec.k}`);
  const { piece, steps, chunk } = plan;
  const { weight, rows: batch, n, k } = spec;
  const { subgroupSize: lanes, subgroups, rowsPerSubgroup: perSub, splits } = config;
  const affine = weight.kind === 'affine' ? weight : null;
  const threads = subgroups * lanes;
  const rowGroups = subgroups / splits;
  const features = outCols(spec);
  const perGroup = spec.glu === null ? perSub : perSub / 2;
  const featuresPerWorkgroup = rowGroups * perGroup;
  const quads = piece.cols / 4;
  const stride = lanes + 1;
  const stageRow = chunk * quads * stride;
  const bindings = linearBindings(spec);
  const wordsPerRow =
    affine === null
      ? (k * (weight.kind === 'float' && weight.dtype === 'f32' ? 32 : 16)) / 32
      : (k * affine.bits) / 32;
  const loadsPerRow = wordsPerRow / piece.vector;
  const needsF16 = spec.x === 'f16' || spec.out === 'f16' || spec.residual === 'f16';
  const vector = piece.vector === 1 ? 'u32' : `vec${piece.vector}<u32>`;
  const loads = piece.words / piece.vector;
  const rowIndex = Array.from({ length: perSub }, (_, r) => r);
  const batchIndex = Array.from({ length: batch }, (_, b) => b);
  const pieces = k / piece.cols;
  const exact = k === steps * lanes * piece.cols;

  // --- loads of one step, into variables w<slot><row>_<i> and m<slot><row>
  const declare = (slot: string): string =>
    rowIndex
      .map((r) => {
        const words = Array.from({ length: loads }, (_, i) => `var w${slot}${r}_${i}: ${vector};`).join(' ');
        return `  ${words}${affine === null ? '' : ` var m${slot}${r}: u32;`}`;
      })
      .join('\n');
  const load = (slot: string, step: string, pad: string): string => {
    const lines = [`${pad}{`];
    const at = `(${step}) * ${lanes}u + lane`;
    lines.push(`${pad}  let p = ${exact ? at : `min(${at}, ${pieces - 1}u)`};`);
    for (const r of rowIndex) {
      for (let i = 0; i < loads; i++) {
        const from = loads === 1 ? `base${r} + p` : `base${r} + p * ${loads}u + ${i}u`;
        lines.push(`${pad}  w${slot}${r}_${i} = codes[${from}];`);
      }
    }
    if (affine !== null) {
      lines.push(`${pad}  let g = p / ${affine.groupSize / piece.cols}u;`);
      for (const r of rowIndex) lines.push(`${pad}  m${slot}${r} = metas[meta${r} + g];`);
    }
    lines.push(`${pad}}`);
    return lines.join('\n');
  };

  // --- arithmetic of one step
  const compute = (slot: string, pad: string): string => {
    const lines: string[] = [];
    const perLoad = Math.max(4, affine === null ? piece.cols : Math.min(8, 32 / affine.bits));
    // Columns are taken in runs small enough for x of the whole batch to stay in registers.
    const run = affine !== null && 32 % affine.bits !== 0 ? 8 : Math.min(piece.cols, perLoad);
    const word = (r: number, i: number): string => {
      const name = `w${slot}${r}_${Math.floor(i / piece.vector)}`;
      return piece.vector === 1 ? name : `${name}.${'xyzw'[i % piece.vector]}`;
    };
    const unpacked = rowIndex.map((r) => {
      const words = Array.from({ length: piece.words }, (_, i) => word(r, i));
      return affine === null ? floatCodes(weight, words) : unpackCodes(affine.bits, words, `t${r}`);
    });
    if (affine !== null) {
      for (const r of rowIndex) for (const b of batchIndex) lines.push(`var d${r}_${b} = 0.0;`);
      for (const b of batchIndex) lines.push(`var c_${b} = 0.0; var s_${b} = 0.0;`);
    }
    for (let first = 0; first < piece.cols; first += run) {
      lines.push('{');
      const offsets = new Map<number, number[]>();
      for (let j = 0; j < run; j++) {
        const offset = unpacked[0]!.codes[first + j]!.offset;
        offsets.set(offset, [...(offsets.get(offset) ?? []), j]);
      }
      for (const b of batchIndex) {
        for (let q = 0; q < run / 4; q++)
          lines.push(`  let x${b}_${q} = xs[at + ${b * stageRow + (first / 4 + q) * stride}u];`);
        if (affine !== null) {
          const sums: string[] = [];
          for (const [offset, columns] of offsets) {
            const sum = `o${b}_${offset}`;
            lines.push(`  let ${sum} = ${columns.map((j) => xOf(b, j)).join(' + ')};`);
            lines.push(`  c_${b} = fma(${sum}, ${offset}.0, c_${b});`);
            sums.push(sum);
          }
          lines.push(`  s_${b} += ${sums.join(' + ')};`);
        }
      }
      for (const r of rowIndex) {
        const { codes, lines: lets } = unpacked[r]!;
        for (const text of lets) if (usedIn(text, codes, first, run)) lines.push(`  ${text}`);
        for (let j = 0; j < run; j++) {
          const value = codes[first + j]!.text;
          if (batch === 1) {
            const into = affine === null ? `acc${r}_0` : `d${r}_0`;
            lines.push(`  ${into} = fma(${value}, ${xOf(0, j)}, ${into});`);
            continue;
          }
          lines.push(`  let v${r}_${j} = ${value};`);
          for (const b of batchIndex) {
            const into = affine === null ? `acc${r}_${b}` : `d${r}_${b}`;
            lines.push(`  ${into} = fma(v${r}_${j}, ${xOf(b, j)}, ${into});`);
          }
        }
      }
      lines.push('}');
    }
    if (affine !== null) {
      for (const r of rowIndex) {
        lines.push(
          affine.meta === 'f16'
            ? `let sb${r} = unpack2x16float(m${slot}${r});`
            : `let sb${r} = vec2<f32>(bitcast<f32>(m${slot}${r} << 16u), bitcast<f32>(m${slot}${r} & 0xffff0000u));`,
        );
        for (const b of batchIndex)
          lines.push(
            `acc${r}_${b} = fma(sb${r}.x, d${r}_${b} - c_${b}, fma(sb${r}.y, s_${b}, acc${r}_${b}));`,
          );
      }
    }
    return lines.map((line) => `${pad}${line}`).join('\n');
  };

  const chunks = Math.ceil(steps / chunk);
  const types = {
    x: spec.x === 'f16' ? 'vec4<f16>' : 'vec4<f32>',
    codes: vector,
    metas: 'u32',
    out: spec.out,
    bias: 'f32',
    residual: spec.residual ?? 'f32',
    norm: 'vec4<f32>',
    step: 'vec4<u32>',
    scratchSums: 'vec4<f32>',
    scratchTops: 'vec2<f32>',
  } as const;
  const turns = chunk / splits;
  const wgsl = `${needsF16 ? 'enable f16;\n' : ''}enable subgroups;
${declareBindings(bindings, ['out'], types)}
var<workgroup> xs: array<vec4<f32>, ${batch * stageRow}>;
var<workgroup> sums: array<f32, ${subgroups * perSub * batch}>;
${spec.norm === null ? '' : `var<workgroup> squares: array<f32, ${subgroups * batch}>;`}
${spec.glu === 'gelu' ? ERF_TEXT : ''}
${spec.merge === undefined ? '' : mergedText(spec.merge)}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wg: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let tile = wg.y * groups.x + wg.x;
  let lane = lid & ${lanes - 1}u;
  let sub = lid / ${lanes}u;
  let rowGroup = sub / ${splits}u;
  let split = sub % ${splits}u;
  let first = tile * ${featuresPerWorkgroup}u + rowGroup * ${perGroup}u;
${rowIndex
  .map((r) => {
    const up = spec.glu !== null && r >= perGroup;
    const row = `min(first + ${up ? r - perGroup : r}u, ${features - 1}u)${up ? ` + ${features}u` : ''}`;
    return `  let row${r} = ${row};\n  let base${r} = row${r} * ${loadsPerRow}u;${
      affine === null ? '' : `\n  let meta${r} = row${r} * ${k / affine.groupSize}u;`
    }`;
  })
  .join('\n')}
${rowIndex.map((r) => `  ${batchIndex.map((b) => `var acc${r}_${b} = 0.0;`).join(' ')}`).join('\n')}
${declare('a')}
${steps > splits ? declare('b') : ''}
${load('a', 'split', '  ')}
${spec.norm === null ? '' : batchIndex.map((b) => `  var sq${b} = 0.0;`).join('\n')}
${chunks > 1 ? `  for (var chunk = 0u; chunk < ${chunks}u; chunk++) {\n  if (chunk > 0u) { workgroupBarrier(); }` : '  const chunk = 0u;\n  {'}
    for (var j = lid; j < ${(chunk * lanes * piece.cols) / 4}u; j += ${threads}u) {
      let quad = chunk * ${(chunk * lanes * piece.cols) / 4}u + j;
      let to = (j / ${quads * lanes}u * ${quads}u + j % ${quads}u) * ${stride}u + j / ${quads}u % ${lanes}u;
      ${exact && chunks * chunk === steps ? '' : `if (quad < ${k / 4}u) {`}
${spec.norm === null ? '' : '      let gamma = norm[quad];'}
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
    }
    workgroupBarrier();
${stepLoop()}
  }
${rowIndex
  .map((r) => batchIndex.map((b) => `  acc${r}_${b} = subgroupAdd(acc${r}_${b});`).join('\n'))
  .join('\n')}
${spec.norm === null ? '' : batchIndex.map((b) => `  sq${b} = subgroupAdd(sq${b});`).join('\n')}
  if (lane == 0u) {
${rowIndex
  .map((r) =>
    batchIndex
      .map(
        (b) =>
          `    sums[(split * ${rowGroups * perSub}u + rowGroup * ${perSub}u + ${r}u) * ${batch}u + ${b}u] = acc${r}_${b};`,
      )
      .join('\n'),
  )
  .join('\n')}
${spec.norm === null ? '' : batchIndex.map((b) => `    squares[sub * ${batch}u + ${b}u] = sq${b};`).join('\n')}
  }
  workgroupBarrier();
  for (var j = lid; j < ${featuresPerWorkgroup * batch}u; j += ${threads}u) {
    let b = j / ${featuresPerWorkgroup}u;
    let f = j % ${featuresPerWorkgroup}u;
    let feature = tile * ${featuresPerWorkgroup}u + f;
    if (feature < ${features}u) {
      let slot = f / ${perGroup}u * ${perSub}u + f % ${perGroup}u;
${epilogue()}
    }
  }
}
`;

  function stepLoop(): string {
    if (turns === 1 && chunks === 1)
      return `    {\n      let at = split * ${quads * stride}u + lane;\n${compute('a', '      ')}\n    }`;
    const last = steps / splits - 1;
    return `    for (var t = 0u; t < ${turns}u; t++) {
      let turn = chunk * ${turns}u + t;
${chunks * turns > last + 1 ? `      if (turn > ${last}u) { break; }` : ''}
${load('b', `min(turn + 1u, ${last}u) * ${splits}u + split`, '      ')}
      let at = (t * ${splits}u + split) * ${quads * stride}u + lane;
${compute('a', '      ')}
${rowIndex
  .map(
    (r) =>
      `      ${Array.from({ length: loads }, (_, i) => `wa${r}_${i} = wb${r}_${i};`).join(' ')}${
        affine === null ? '' : ` ma${r} = mb${r};`
      }`,
  )
  .join('\n')}
    }`;
  }

  function epilogue(): string {
    const lines: string[] = [];
    const sum = (name: string, slot: string): string => {
      const parts = Array.from(
        { length: splits },
        (_, s) => `sums[(${slot} + ${s * rowGroups * perSub}u) * ${batch}u + b]`,
      );
      return `var ${name} = ${parts.join(' + ')};`;
    };
    if (spec.norm !== null) {
      const parts = Array.from({ length: subgroups }, (_, s) => `squares[${s * batch}u + b]`);
      lines.push(`let inverse = inverseSqrt((${parts.join(' + ')}) / ${k}.0 + ${floatText(spec.norm.eps)});`);
    }
    const scaled = (name: string): string => (spec.norm === null ? '' : ` ${name} *= inverse;`);
    lines.push(`${sum('value', 'slot')}${scaled('value')}`);
    if (spec.bias) lines.push('value += bias[feature];');
    if (spec.glu !== null) {
      lines.push(`${sum('up', `(slot + ${perGroup}u)`)}${scaled('up')}`);
      if (spec.bias) lines.push(`up += bias[feature + ${features}u];`);
      lines.push(`value = ${activationText(spec.glu, 'value')} * up;`);
    }
    const at = `b * ${spec.outStride}u + ${spec.outOffset}u + feature`;
    if (spec.residual !== null) lines.push(`value += f32(residual[${at}]);`);
    lines.push(`out[${at}] = ${spec.out === 'f16' ? 'f16(clamp(value, -65504.0, 65504.0))' : 'value'};`);
    return lines.map((line) => `      ${line}`).join('\n');
  }

  const tiles = Math.ceil(features / featuresPerWorkgroup);
  const across = Math.min(tiles, 32768);
  return {
    label: `${spec.merge === undefined ? '' : 'attend merged, '}gemv-${weightName(weight)}-${n}x${k}-b${batch}-s${subgroups}r${perSub}k${splits}`,
    wgsl,
    bindings,
    writes: ['out'],
    types,
    workgroups: [across, Math.ceil(tiles / across), 1],
    threads,
    workgroupBytes: workgroupBytesOf(spec, config, piece, chunk),
  };
}

function xOf(b: number, j: number): string {
  return `x${b}_${j >> 2}.${'xyzw'[j & 3]}`;
}
