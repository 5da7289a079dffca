/** Gathers rows of a table, one launch for each shard of it. */

import { FEATURE_TOKEN } from '../../feature-slab.js';
import { type Binding, declareBindings, type Kernel } from '../kernel.js';
import { STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { rowMetaWords, rowWords, type ShardLayout } from '../weights-layout.js';
import { f32Literal } from './f32-literal.js';
import { pieceOf, pieceValue, readMeta, readPiece } from './unpack.js';

export interface EmbedShape {
  /** Rows of the shard, and the first of them in the table. */
  readonly n: number;
  readonly rowStart: number;
  /** Rows of the whole table. */
  readonly tableRows: number;
  readonly k: number;
  readonly layout: ShardLayout;
  readonly scale: number;
  /** Rows of the feature slab, and numbers from one to the next; null where tokens name none. */
  readonly features: { readonly rows: number; readonly cols: number } | null;
  /** The row of the table for tokens that name rows of a slab; null where they have none. */
  readonly featureRow: number | null;
}

/** The first shard's launch also writes zeros for ids that the table does not have, and rows of the feature slab. */
export function embedKernel(shape: EmbedShape): Kernel {
  const { n, rowStart, tableRows, k, layout } = shape;
  const piece = pieceOf(layout);
  const vectors = piece.cols / 4;
  const stride = Math.ceil(k / 4);
  const pieces = Math.ceil(k / piece.cols);
  const bindings: Binding[] = [
    STEP_BINDING,
    { name: 'last_token', access: 'read', type: 'array<u32>' },
    { name: 'codes', access: 'read', type: 'array<u32>' },
  ];
  if (layout.kind !== 'float') bindings.push({ name: 'metas', access: 'read', type: 'array<u32>' });
  const features = rowStart === 0 ? shape.features : null;
  if (features !== null) bindings.push({ name: 'features', access: 'read', type: 'array<vec4<f32>>' });
  bindings.push({ name: 'out', access: 'read_write', type: 'array<vec4<f32>>' });
  const scale = f32Literal(shape.scale);
  const writes = (value: (v: number) => string): string =>
    Array.from({ length: vectors }, (_, v) => {
      const inside = `p * ${vectors}u + ${v}u < ${stride}u`;
      return `if (${inside}) { out[token * ${stride}u + p * ${vectors}u + ${v}u] = ${value(v)}; }`;
    }).join('\n');
  const value = (v: number): string => `${pieceValue(layout, v)} * ${scale}`;
  const place = { row: 'row', piece: 'p', pieces: `${pieces}u`, metaWords: `${rowMetaWords(layout, k)}u` };
  const { featureRow } = shape;
  const beside = featureRow === null ? '' : `\n  if (given >= ${FEATURE_TOKEN}) { id = ${featureRow}u; }`;
  const featured =
    features === null
      ? beside
      : `
  if (given >= ${FEATURE_TOKEN} && id - ${FEATURE_TOKEN}u < ${features.rows}u) {
    let slab_row = (id - ${FEATURE_TOKEN}u) * ${features.cols / 4}u;
    ${writes((v) => `features[slab_row + p * ${vectors}u + ${v}u]`)}
    return;
  }`;
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let token = wid.y + wid.z * 65535u;
  let p = wid.x * 64u + lid;
  if (token >= step[0].x || p >= ${pieces}u) { return; }
  let given = bitcast<i32>(step_token(token).x);
  var id = bitcast<u32>(given);
  if (given < 0) { id = last_token[u32(-(given + 1))]; }${featured}
  if (id >= ${tableRows}u) {
    ${rowStart === 0 ? writes(() => 'vec4<f32>(0.0)') : ''}
    return;
  }
  if (id < ${rowStart}u || id >= ${rowStart + n}u) { return; }
  let row = id - ${rowStart}u;
  ${readMeta(layout, place)}
  ${readPiece(layout, `row * ${rowWords(layout, k)}u + p * ${piece.words}u`)}
  ${writes(value)}
}`;
  return {
    stages: [
      {
        label: `embed [${n}, ${k}]`,
        wgsl,
        bindings,
        workgroups: (facts, out) => {
          out[0] = Math.ceil(pieces / 64);
          out[1] = Math.min(facts.tokens, 65535);
          out[2] = Math.ceil(facts.tokens / 65535);
        },
      },
    ],
  };
}
