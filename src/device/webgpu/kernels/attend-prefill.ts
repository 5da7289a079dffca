/**
 * Attention of prompt tiles on subgroup matrices. Quantised keys and values are dequantised as they are staged;
 * TurboQuant's stay rotated, and so does what this kernel writes then: `turnStage` follows it.
 *
 * The query heads of a GQA group and the tokens of a tile stand under each other as the rows of one matrix, so a
 * staged tile of K or V serves them all. A subgroup owns `matrix.m` of the rows: its queries stay in matrices for the
 * whole walk, and so do its sums of weighted values.
 *
 * The softmax is taken online, and here lies the trouble: a new maximum of a row shrinks the sums so far, but WGSL
 * cannot reach into a matrix. So the maximum in use lags behind: it is raised only when the true one is more than 8
 * (in powers of two) above it, which after the first tiles hardly ever happens. Weights stay below 2⁸ and fit an f16.
 * A raise takes the sums through workgroup memory once.
 *
 * Matrices are loaded and stored at addresses of 16 bytes, and WGSL lays workgroup variables side by side by the size
 * of their elements: so every one of them is a multiple of 16 bytes long, or those after it are read askew.
 *
 * Measured on an H200 against queries loaded again for every tile, V turned in staging and scalar staging: all slower.
 */

import type { AffineKv, KvFormat } from '../../kv.js';
import type { Binding, MatrixConfig, Stage } from '../kernel.js';
import { declareBindings, f32Literal } from '../kernel.js';
import { ATTENTION_TILE, STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import type { AttendShape } from './attend.js';
import { partBindings, partText } from './attend-parts.js';
import { byteCentre, bytesText, byteUnit, hasBytes } from './attend-planes.js';
import { LOWEST } from './attend-reduce.js';
import { cacheType, type KvSideSpec, type ReaderText, readerText } from './kv-format.js';
import { rowsSkipped, sideOf } from './kv-rows.js';
import { HALVES_TEXT } from './linear-spec.js';

export interface PrefillConfig {
  readonly matrix: MatrixConfig;
  readonly subgroupSize: number;
  /** Positions staged at once: a multiple of the matrix. */
  readonly keys: number;
  /** Most query rows of a workgroup. */
  readonly rows: number;
  readonly workgroupBytes: number;
}

/** Dims of a piece of codes. */
const CODES = 32;

/** Floats are fetched in pieces of eight halves; codes in pieces of CODES, or word by word where they are not bytes. */
function typeOf(format: KvFormat, coded: KvSideSpec | null): string {
  if (format.kind === 'float') return 'array<vec4<u32>>';
  const width = coded === null ? 1 : widthOf(coded);
  return width === 1 ? cacheType(format) : `array<vec${width}<u32>>`;
}

/** Words of codes in a load. */
function widthOf({ layout, headDim }: KvSideSpec): 1 | 2 | 4 {
  const words = (layout.words * CODES) / headDim;
  return words % 4 === 0 ? 4 : words % 2 === 0 ? 2 : 1;
}

export interface PrefillPlan {
  readonly component: 'f16' | 'f32';
  readonly group: number;
  readonly rows: number;
  /** Workgroups that the rows of a tile take, for one KV head. */
  readonly rowBlocks: number;
  readonly subs: number;
  readonly stride: number;
  readonly scoreStride: number;
  readonly weightStride: number;
  readonly bytes: number;
}

export function planPrefill(shape: AttendShape, c: PrefillConfig): PrefillPlan {
  const group = shape.heads / shape.kvHeads;
  const component = c.matrix.component === 'f32' ? 'f32' : 'f16';
  const size = component === 'f16' ? 2 : 4;
  const rows = Math.min(c.rows, group * ATTENTION_TILE);
  const pad = 16 / size;
  const stride = shape.headDim + pad;
  const scoreStride = c.keys + 4;
  const weightStride = c.keys + pad;
  const books = [shape.key, shape.value].reduce(
    (sum, f) => sum + (f.kind === 'turboquant' ? 2 ** f.bits * 4 : 0),
    0,
  );
  const bytes =
    (Math.max(c.keys, rows) * stride + rows * weightStride) * size +
    rows * scoreStride * 4 +
    rows * 12 +
    16 +
    books;
  const rowBlocks = (group * ATTENTION_TILE) / rows;
  return {
    component,
    group,
    rows,
    rowBlocks,
    subs: rows / c.matrix.m,
    stride,
    scoreStride,
    weightStride,
    bytes,
  };
}

export function prefillFits(shape: AttendShape, c: PrefillConfig): boolean {
  const { key, value, headDim } = shape;
  const { matrix, keys, subgroupSize } = c;
  const { rows, subs, bytes, group } = planPrefill(shape, c);
  const threads = subs * subgroupSize;
  return (
    [key, value].every((f) => f.kind !== 'float' || f.dtype === 'f16') &&
    matrix.result === 'f32' &&
    (matrix.component === 'f16' || matrix.component === 'f32') &&
    headDim % 8 === 0 &&
    (matrix.component === 'f32' || (matrix.n % 8 === 0 && matrix.k % 8 === 0)) &&
    headDim % matrix.k === 0 &&
    headDim % keys === 0 &&
    headDim % matrix.n === 0 &&
    keys % matrix.n === 0 &&
    keys % matrix.k === 0 &&
    rows % matrix.m === 0 &&
    (group * ATTENTION_TILE) % rows === 0 &&
    threads <= 1024 &&
    (threads <= rows ? rows % threads === 0 : threads % rows === 0 && keys % (threads / rows) === 0) &&
    bytes <= c.workgroupBytes
  );
}

/** Codes that are fetched a tile ahead, as floats are, and made halves 32 at a time. */
function piecesOf(shape: AttendShape, c: PrefillConfig, name: 'keys' | 'values'): KvSideSpec | null {
  const side = sideOf(name, shape);
  const { component, subs } = planPrefill(shape, c);
  const each = (c.keys * shape.headDim) / CODES / (subs * c.subgroupSize);
  const { format } = side;
  const whole =
    hasBytes(format) &&
    (format.kind !== 'affine' || shape.headDim % format.groupSize === 0) &&
    shape.headDim % CODES === 0;
  return whole && component === 'f16' && each >= 1 && Number.isInteger(each) ? side : null;
}

/** How other codes are read; null for f16 and for those. */
function readerOf(shape: AttendShape, c: PrefillConfig, name: 'keys' | 'values'): ReaderText | null {
  const side = sideOf(name, shape);
  if (side.format.kind === 'float' || piecesOf(shape, c, name) !== null) return null;
  const { metaAt, tablesAt } = side.layout;
  return readerText(side, {
    kvHeads: `${shape.kvHeads}u`,
    blockTokens: `${shape.blockTokens}u`,
    metaAt: `${metaAt}u`,
    tablesAt: `${tablesAt}u`,
  });
}

/**
 * Roles: step, q, keys, values, tables, and out; or, where a tile's positions are walked in parts (attend-parts.ts),
 * scratchPartSums and scratchPartTops.
 */
export function prefillStage(shape: AttendShape, c: PrefillConfig, parts = false): Stage {
  const { heads, kvHeads, headDim, blockTokens, maxBlocksPerSlot, window, softcap } = shape;
  const { matrix, keys, subgroupSize: lanes } = c;
  const { component, group, rows, rowBlocks, subs, stride, scoreStride, weightStride } = planPrefill(
    shape,
    c,
  );
  const threads = subs * lanes;
  const quad = `vec4<${component}>`;
  const readers = { keys: readerOf(shape, c, 'keys'), values: readerOf(shape, c, 'values') };
  const coded = { keys: piecesOf(shape, c, 'keys'), values: piecesOf(shape, c, 'values') };
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'q', access: 'read', type: coded.keys === null ? 'array<vec4<f32>>' : 'array<f32>' },
    { name: 'keys', access: 'read', type: typeOf(shape.key, coded.keys) },
    { name: 'values', access: 'read', type: typeOf(shape.value, coded.values) },
    { name: 'tables', access: 'read', type: 'array<u32>' },
    ...(parts
      ? partBindings('read_write')
      : [{ name: 'out', access: 'read_write', type: 'array<f32>' } as const]),
  ];
  const sides = [coded.keys, coded.values].flatMap((side) => (side === null ? [] : [side]));
  const bases = { keys: shape.rows.keyBase, values: shape.rows.valueBase };
  const count = (length: number): number[] => Array.from({ length }, (_, i) => i);
  const lines: string[] = [];
  const emit = (text: string): void => {
    lines.push(text);
  };
  const dims = headDim / matrix.n;
  /** Elements of a vector of what is staged: 16 bytes. */
  const unit = component === 'f16' ? 8 : 4;
  const pieces = (keys * headDim) / 8;
  const perThread = Math.ceil(pieces / threads);
  const ownKeys = threads <= rows ? keys : keys / (threads / rows);
  const rowLanes = Math.max(1, threads / rows);
  const rowTurns = Math.max(1, rows / threads);
  const scaleText = softcap === null ? f32Literal(shape.scale * Math.LOG2E) : f32Literal(shape.scale);
  const low = (p: string): string => `(max(${p}, ${(window ?? 1) - 1}u) - ${(window ?? 1) - 1}u)`;

  const block = (side: 'keys' | 'values', t: string): string =>
    `(tables[slot * ${maxBlocksPerSlot}u + ${t} / ${blockTokens}u] - ${bases[side]}u)`;
  /** A position that some row here sees: `t`, or the nearest to it. What lies before may be another sequence's by now. */
  const seenAt = (t: string): string =>
    window === null ? `min(${t}, last)` : `clamp(${t}, low_first, last)`;
  /** Codes in pieces: how many a thread takes, and the order in which their dims are staged. */
  const turns = (keys * headDim) / CODES / threads;

  const pieceOf = (i: number): string => `let u = lid + ${i * threads}u;`;
  /** Neighbours take a dim of 32 of neighbouring positions each, so that they store to banks of their own. */
  const tokenOf = `u % ${keys}u`;
  const runOf = (side: KvSideSpec): number => {
    const { words } = bytesText(side.format as AffineKv, headDim, CODES, 'x', () => '0u');
    return words[0]!.dims[1] - words[0]!.dims[0];
  };
  /** The dim that column `at` of a staged vector holds. */
  const dimOf = (name: 'keys' | 'values', at: string): string => {
    const side = coded[name];
    if (side === null) return at;
    const run = runOf(side);
    const w = `(${at}) % ${CODES}u / 4u`;
    const e = `((((${at}) & 1u) << 1u) | (((${at}) >> 1u) & 1u))`;
    return `((${at}) / ${CODES}u * ${CODES}u + ${w} / ${run}u * ${4 * run}u + ${w} % ${run}u + ${e} * ${run}u)`;
  };
  const fetchCodes = (side: KvSideSpec<'keys' | 'values'>, base: string): void => {
    const { layout, format } = side;
    const words = (layout.words * CODES) / headDim;
    for (const i of count(turns)) {
      emit(
        `  { ${pieceOf(i)} let t = ${seenAt(`${base} + ${tokenOf}`)}; let part = u / ${keys}u; let from_block = ${block(side.name, 't')};`,
      );
      emit(
        `    let vector = (from_block * ${kvHeads}u + kv) * ${blockTokens}u + t % ${blockTokens}u; let a = vector * ${layout.words}u + part * ${words}u;`,
      );
      const width = widthOf(side);
      for (const w of count(words / width))
        emit(`    ${side.name}_code${i}_${w} = ${side.name}[a / ${width}u + ${w}u];`);
      const at =
        format.kind === 'affine'
          ? `${layout.metaAt}u + vector * ${layout.groups}u + part / ${format.groupSize / CODES}u`
          : `${layout.metaAt}u + (from_block * ${layout.metaHeads}u + kv / 2u) * ${blockTokens}u + t % ${blockTokens}u`;
      emit(
        `    let at = ${at}; ${side.name}_meta${i} = ${side.name}${width === 1 ? '[at]' : `[at / ${width}u][at % ${width}u]`}; }`,
      );
    }
  };
  /**
   * Bytes become halves by their bits: 0x6400 is 1024, and counts from there. One rounding each, as if by f32: a norm
   * is given as a half and what is left of it.
   */
  const stageCodes = (side: KvSideSpec): void => {
    const { format } = side;
    if (!hasBytes(format)) return;
    const centre = byteCentre(format);
    const width = widthOf(side);
    for (const i of count(turns)) {
      const { text, words } = bytesText(format, headDim, CODES, `x${i}`, (w) =>
        width === 1
          ? `${side.name}_code${i}_${w}`
          : `${side.name}_code${i}_${Math.floor(w / width)}.${'xyzw'[w % width]}`,
      );
      emit(`  { ${pieceOf(i)}\n${text}`);
      emit(
        `    let to = ${tokenOf} * ${stride / 8}u + u / ${keys}u * ${CODES / 8}u; let pair = unpack2x16float(${side.name}_meta${i});`,
      );
      if (format.kind === 'affine') {
        emit('    let scale = vec2<f16>(f16(pair.x)); let bias = vec2<f16>(f16(pair.y));');
      } else {
        emit(
          `    let norm = select(pair.x, pair.y, (kv & 1u) == 1u) * ${f32Literal(128 * byteUnit(format, headDim))}; let most = f16(norm); let scale = vec2<f16>(most); let rest = vec2<f16>(f16(norm - f32(most)));`,
        );
      }
      const half = (name: string, odd: number): string => {
        const w = odd === 0 ? name : `(${name} >> 8u)`;
        if (format.kind === 'affine') {
          // Codes of 8 bits come less 128.
          const bits =
            centre === 0 ? `(${w} & 0x00ff00ffu) | 0x64006400u` : `(${w} & 0x00ff00ffu) ^ 0x64806480u`;
          return `clamp(fma(bitcast<vec2<f16>>(${bits}) - vec2<f16>(1024.0h), scale, bias), vec2<f16>(-65504.0h), vec2<f16>(65504.0h))`;
        }
        const n = `fma(bitcast<vec2<f16>>((${w} & 0x00ff00ffu) ^ 0x64806480u), vec2<f16>(0.0078125h), vec2<f16>(-9.0h))`;
        return `turbo_(${n}, scale, rest)`;
      };
      for (const v of count(CODES / 8)) {
        const four = [0, 1].flatMap((h) => [0, 1].map((odd) => half(words[2 * v + h]!.name, odd)));
        emit(`    staged[to + ${v}u] = vec4<u32>(${four.map((h) => `bitcast<u32>(${h})`).join(', ')});`);
      }
      emit('  }');
    }
  };
  const fetch = (buffer: 'keys' | 'values', base: string): void => {
    const side = coded[buffer];
    if (side !== null) fetchCodes(side as KvSideSpec<'keys' | 'values'>, base);
    if (side !== null || readers[buffer] !== null) return;
    for (const i of count(perThread)) {
      emit(
        `  { let u = ${(i + 1) * threads > pieces ? `min(lid + ${i * threads}u, ${pieces - 1}u)` : `lid + ${i * threads}u`}; let t = ${seenAt(`${base} + u / ${headDim / 8}u`)};`,
      );
      emit(
        `    piece${i} = ${buffer}[((${block(buffer, 't')} * ${kvHeads}u + kv) * ${blockTokens}u + t % ${blockTokens}u) * ${headDim / 8}u + u % ${headDim / 8}u]; }`,
      );
    }
  };
  /** A position beyond the last, or before the first, repeats it: its weight is zero, and what is stored there is finite or this row's own. */
  const stage = (side: 'keys' | 'values'): void => {
    const reader = readers[side];
    const codes = coded[side];
    if (codes !== null) {
      stageCodes(codes);
      return;
    }
    if (reader !== null) {
      for (const i of count(perThread)) {
        emit(
          `  ${(i + 1) * threads > pieces ? `if (lid + ${i * threads}u < ${pieces}u) ` : ''}{ let u = lid + ${i * threads}u; let to = (u / ${headDim / 8}u * ${stride}u + u % ${headDim / 8}u * 8u) / ${unit}u;`,
        );
        emit(
          `    let t = ${seenAt(`base + u / ${headDim / 8}u`)}; let from_block = ${block(side, 't')}; let vec = u % ${headDim / 8}u * 2u;`,
        );
        const value = [0, 1].map((h) => {
          const four = reader.four('from_block', 'kv', `t % ${blockTokens}u`, `vec + ${h}u`);
          // TurboQuant's norms are halves and its centroids below 1: nothing an f16 could not hold.
          const fits = shape[side === 'keys' ? 'key' : 'value'].kind === 'turboquant';
          return fits ? four : `clamp(${four}, vec4<f32>(-65504.0), vec4<f32>(65504.0))`;
        });
        if (component === 'f16')
          emit(
            `    staged[to] = vec4<u32>(${value.map((v) => `bitcast<vec2<u32>>(vec4<f16>(${v}))`).join(', ')}); }`,
          );
        else emit(`    staged[to] = ${value[0]}; staged[to + 1u] = ${value[1]}; }`);
      }
      return;
    }
    for (const i of count(perThread)) {
      emit(
        `  ${(i + 1) * threads > pieces ? `if (lid + ${i * threads}u < ${pieces}u) ` : ''}{ let u = lid + ${i * threads}u; let to = (u / ${headDim / 8}u * ${stride}u + u % ${headDim / 8}u * 8u) / ${unit}u;`,
      );
      if (component === 'f16') emit(`    staged[to] = piece${i};`);
      else
        for (const [h, a, b] of [
          [0, 'x', 'y'],
          [1, 'z', 'w'],
        ] as const)
          emit(
            `    staged[to + ${h}u] = vec4<f32>(unpack2x16float(piece${i}.${a}), unpack2x16float(piece${i}.${b}));`,
          );
      emit('  }');
    }
  };

  emit('enable subgroups;');
  if (component === 'f16') emit('enable f16;');
  emit(`enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
${declareBindings(bindings)}
${STEP_WGSL}
${readers.keys?.declarations ?? ''}
${readers.values?.declarations ?? ''}
alias Left = subgroup_matrix_left<${component}, ${matrix.k}, ${matrix.m}>;
alias Right = subgroup_matrix_right<${component}, ${matrix.n}, ${matrix.k}>;
alias Sum = subgroup_matrix_result<f32, ${matrix.n}, ${matrix.m}>;
var<workgroup> staged: array<${component === 'f16' ? 'vec4<u32>' : quad}, ${(Math.max(keys, rows) * stride) / unit}>;
var<workgroup> weights: array<${quad}, ${(rows * weightStride) / 4}>;
var<workgroup> scores: array<f32, ${rows * scoreStride}>;
var<workgroup> tops: array<f32, ${rows}>;
var<workgroup> sums: array<f32, ${rows}>;
var<workgroup> shrink: array<f32, ${rows}>;
var<workgroup> raised: array<u32, 4>;
${component === 'f16' ? HALVES_TEXT : ''}
${sides.some((side) => side.format.kind === 'turboquant') ? 'fn turbo_(n: vec2<f16>, norm: vec2<f16>, rest: vec2<f16>) -> vec2<f16> { return fma(n, norm, n * rest); }' : ''}
@compute @workgroup_size(${threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) nwg: vec3<u32>, @builtin(local_invocation_index) lid: u32, @builtin(subgroup_id) sub: u32) {
  let z = wid.z % ${kvHeads * rowBlocks}u;
  let kv = z / ${rowBlocks}u;
  let row_block = z % ${rowBlocks}u;
  let tile_at = wid.x + wid.y * nwg.x;
  if (tile_at >= step[1].y) { return; }
  let tile = step[step[2].z + tile_at];
  let first_token = tile.x;
  let slot = tile.w;
  let p_first = tile.z;
  let row_count = tile.y * ${group}u;
  let row_first = row_block * ${rows}u;
  if (row_first >= row_count) { return; }
  ${rowsSkipped(shape.rows, `${maxBlocksPerSlot}u`, 'slot')}
  ${readers.keys?.prepare(threads) ?? ''}
  ${readers.values?.prepare(threads) ?? ''}
  let last = p_first + (min(row_first + ${rows}u, row_count) - 1u) / ${group}u;
  let low_first = ${window === null ? '0u' : low(`(p_first + row_first / ${group}u)`)};`);
  if (shape.key.kind === 'float' || shape.value.kind === 'float')
    for (const i of count(perThread)) emit(`  var piece${i}: vec4<u32>;`);
  for (const side of sides) {
    const width = widthOf(side);
    const words = (side.layout.words * CODES) / headDim;
    for (const i of count(turns)) {
      for (const w of count(words / width))
        emit(`  var ${side.name}_code${i}_${w}: ${width === 1 ? 'u32' : `vec${width}<u32>`};`);
      emit(`  var ${side.name}_meta${i}: u32;`);
    }
  }

  // Queries, scaled, into the staging area and from there into matrices.
  emit(`  for (var i = lid; i < ${(rows * headDim) / unit}u; i += ${threads}u) {
    let r = i / ${headDim / unit}u;
    let row = row_first + r;
    let start = ((first_token + row / ${group}u) * ${heads}u + kv * ${group}u + row % ${group}u) * ${headDim}u;
    let column = i % ${headDim / unit}u * ${unit}u;`);
  for (const h of count(unit / 4)) {
    const four =
      coded.keys === null
        ? `q[(start + column) / 4u + ${h}u]`
        : `vec4<f32>(${count(4)
            .map((e) => `q[start + ${dimOf('keys', `column + ${h * 4 + e}u`)}]`)
            .join(', ')})`;
    emit(`    var v${h} = vec4<f32>();\n    if (row < row_count) { v${h} = ${four} * ${scaleText}; }`);
  }
  emit(`    staged[r * ${stride / unit}u + i % ${headDim / unit}u] = ${component === 'f16' ? 'vec4<u32>(bitcast<vec2<u32>>(halves_(v0)), bitcast<vec2<u32>>(halves_(v1)))' : 'v0'};
  }
  for (var r = lid; r < ${rows}u; r += ${threads}u) { tops[r] = ${LOWEST}; sums[r] = 0.0; }
  ${parts ? partText(kvHeads * rowBlocks, keys) : `var base = low_first / ${keys}u * ${keys}u;\n  let end = last;`}`);
  fetch('keys', 'base');
  emit('  workgroupBarrier();');
  for (const k of count(headDim / matrix.k))
    emit(
      `  let q${k} = subgroupMatrixLoad<Left, row_major>(&staged, sub * ${(matrix.m * stride) / unit}u + ${(k * matrix.k) / unit}u, ${stride / unit}u);`,
    );
  for (const d of count(dims)) emit(`  var o${d} = Sum();`);
  emit(`  for (; base <= end; base += ${keys}u) {`);
  emit('  workgroupBarrier();');
  stage('keys');
  emit('  if (lid == 0u) { raised[0] = 0u; }');
  emit('  workgroupBarrier();');
  fetch('values', 'base');
  // Scores.
  for (const n of count(keys / matrix.n)) {
    emit('  {');
    emit('    var s = Sum();');
    for (const k of count(headDim / matrix.k)) {
      emit(
        `    let b${k} = subgroupMatrixLoad<Right, col_major>(&staged, ${(n * matrix.n * stride + k * matrix.k) / unit}u, ${stride / unit}u);`,
      );
      emit(`    s = subgroupMatrixMultiplyAccumulate(q${k}, b${k}, s);`);
    }
    emit(
      `    subgroupMatrixStore<row_major>(&scores, sub * ${matrix.m * scoreStride}u + ${n * matrix.n}u, s, ${scoreStride}u);`,
    );
    emit('  }');
  }
  emit('  workgroupBarrier();');
  stage('values');
  // Softmax: `rowLanes` neighbours share a row.
  for (const turn of count(rowTurns)) {
    emit(`  {
    let r = ${rowTurns === 1 ? `lid / ${rowLanes}u` : `lid + ${turn * threads}u`};
    let part = ${rowLanes === 1 ? '0u' : `lid % ${rowLanes}u`};
    let row = row_first + r;
    let p = p_first + row / ${group}u;
    let seen_end = select(0u, p + 1u, row < row_count);
    let source = r * ${scoreStride}u + part * ${ownKeys}u;
    let t0 = base + part * ${ownKeys}u;
    var top = ${LOWEST};`);
    for (const j of count(ownKeys)) {
      emit(`    var s${j} = scores[source + ${j}u];`);
      if (softcap !== null)
        emit(
          `    { let e = exp(clamp(2.0 * s${j} / ${f32Literal(softcap)}, -80.0, 80.0)); s${j} = ${f32Literal(softcap * Math.LOG2E)} * (1.0 - 2.0 / (e + 1.0)); }`,
        );
      const seen = `t0 + ${j}u < seen_end${window === null ? '' : ` && t0 + ${j}u >= ${low('p')}`}`;
      emit(`    s${j} = select(${LOWEST}, s${j}, ${seen});`);
      emit(`    top = max(top, s${j});`);
    }
    for (let step = rowLanes / 2; step >= 1; step /= 2)
      emit(`    top = max(top, subgroupShuffleXor(top, ${step}u));`);
    emit(`    let before = tops[r];
    var used = before;
    var factor = 1.0;
    if (top > before + 8.0) {
      used = top;
      factor = select(0.0, exp2(before - top), before > ${LOWEST});
      if (before > ${LOWEST}) { raised[0] = 1u; }
    }
    var sum = 0.0;`);
    for (let j = 0; j < ownKeys; j += 4) {
      for (let i = j; i < j + 4; i++)
        emit(`    s${i} = select(exp2(s${i} - used), 0.0, s${i} <= ${LOWEST});`);
      emit(`    { let w = ${quad}(${[0, 1, 2, 3].map((i) => (component === 'f16' ? `f16(s${j + i})` : `s${j + i}`)).join(', ')});
      sum += dot(vec4<f32>(w), vec4<f32>(1.0));
      weights[(r * ${weightStride}u + part * ${ownKeys}u + ${j}u) / 4u] = w; }`);
    }
    for (let step = rowLanes / 2; step >= 1; step /= 2) emit(`    sum += subgroupShuffleXor(sum, ${step}u);`);
    emit(`    if (part == 0u) {
      tops[r] = used;
      shrink[r] = factor;
      sums[r] = fma(sums[r], factor, sum);
    }
  }`);
  }
  emit(`  if (workgroupUniformLoad(&raised[0]) != 0u) {`);
  throughScores('shrinking');
  emit('  }');
  // The next keys are on their way while the values multiply.
  fetch('keys', `(base + ${keys}u)`);
  for (const k of count(keys / matrix.k)) {
    emit('  {');
    emit(
      `    let w = subgroupMatrixLoad<Left, row_major>(&weights, sub * ${(matrix.m * weightStride) / 4}u + ${(k * matrix.k) / 4}u, ${weightStride / 4}u);`,
    );
    for (const d of count(dims)) {
      emit(
        `    let v${d} = subgroupMatrixLoad<Right, row_major>(&staged, ${(k * matrix.k * stride + d * matrix.n) / unit}u, ${stride / unit}u);`,
      );
      emit(`    o${d} = subgroupMatrixMultiplyAccumulate(w, v${d}, o${d});`);
    }
    emit('  }');
  }
  emit('  }');
  emit('  workgroupBarrier();');
  throughScores('finishing');
  if (parts)
    emit(
      `  for (var r = lid; r < ${rows}u; r += ${threads}u) { scratchPartTops[part_at * ${rows}u + r] = vec2<f32>(tops[r], sums[r]); }`,
    );
  emit('}');

  /** Takes the sums through `scores`, `keys` dims at a time: multiplied by shrink and back, or divided and out. */
  function throughScores(what: 'shrinking' | 'finishing'): void {
    const perRound = keys / matrix.n;
    for (let d0 = 0; d0 < dims; d0 += perRound) {
      for (const i of count(perRound))
        emit(
          `  subgroupMatrixStore<row_major>(&scores, sub * ${matrix.m * scoreStride}u + ${i * matrix.n}u, o${d0 + i}, ${scoreStride}u);`,
        );
      emit('  workgroupBarrier();');
      emit(`  for (var i = lid; i < ${rows * keys}u; i += ${threads}u) {
    let r = i / ${keys}u;
    let at = r * ${scoreStride}u + i % ${keys}u;`);
      if (what === 'shrinking') emit('    scores[at] *= shrink[r];\n  }\n  workgroupBarrier();');
      else
        emit(`    let row = row_first + r;
    if (row < row_count) {
      ${
        parts
          ? `scratchPartSums[(part_at * ${rows}u + r) * ${headDim}u + ${dimOf('values', `${d0 * matrix.n}u + i % ${keys}u`)}] = scores[at];\n    }\n  }\n  workgroupBarrier();`
          : `out[((first_token + row / ${group}u) * ${heads}u + kv * ${group}u + row % ${group}u) * ${headDim}u + ${dimOf('values', `${d0 * matrix.n}u + i % ${keys}u`)}] =
        select(0.0, scores[at] / sums[r], sums[r] != 0.0);
    }
  }
  workgroupBarrier();`
      }`);
      if (what === 'shrinking') {
        for (const i of count(perRound))
          emit(
            `  o${d0 + i} = subgroupMatrixLoad<Sum, row_major>(&scores, sub * ${matrix.m * scoreStride}u + ${i * matrix.n}u, ${scoreStride}u);`,
          );
        emit('  workgroupBarrier();');
      }
    }
  }

  return {
    label: `attend matrix ${parts ? 'parts ' : ''}${heads}/${kvHeads}×${headDim} r${rows}k${keys}${shape.rows.only === 'young' ? ' young' : ''}`,
    wgsl: lines.join('\n'),
    bindings,
    workgroups: (facts, out) => {
      const y = Math.ceil(facts.tiles / 65535);
      out[0] = y === 0 || facts.tileParts > 1 !== parts ? 0 : Math.ceil(facts.tiles / y);
      out[1] = y;
      out[2] = kvHeads * rowBlocks * facts.tileParts;
    },
  };
}
