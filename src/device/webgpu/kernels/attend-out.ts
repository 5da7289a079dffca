/**
 * Where the kernels that end attention leave a row: as f32 in `out`, or, for a product that multiplies halves, as the halves
 * that a launch of their own would make of it (linear-halves.ts). Places are the same, and the bits.
 *
 * For a dp4a product, the merge of rows that decode leaves the bytes that a launch would make (linear-bytes.ts). Kernels of
 * tiles do not: a step that has some keeps the launch, of all its rows.
 */

import type { AttentionShape } from '../../graph.js';
import type { Binding, LinearShape, Stage } from '../kernel.js';
import type { BytesLayout } from '../shapes.js';
import type { AttendShape } from './attend.js';
import { BYTES_TEXT, HANDED_BYTES, unitsOf, unitsText, unitValues } from './linear-bytes.js';
import { bytesStage } from './linear-dp4a-x.js';
import { HANDED } from './linear-halves.js';
import { HALVES_TEXT } from './linear-spec.js';

export interface AttendOut {
  /** First in the module. */
  readonly enable: string;
  readonly binding: Binding;
  /** Declarations of the module. */
  readonly helper: string;
  /** Statement that leaves `value` at `at`: four dims, or one where cells are of one. */
  readonly store: (at: string, value: string) => string;
}

/** `[tokens, heads, head_dim]` in cells of `dims`. */
export function attendOut({ outHanded = false }: AttendShape, dims: 1 | 4 = 4): AttendOut {
  if (!outHanded) {
    const type = dims === 4 ? 'array<vec4<f32>>' : 'array<f32>';
    return {
      enable: '',
      binding: { name: 'out', access: 'read_write', type },
      helper: '',
      store: (at, value) => `out[${at}] = ${value};`,
    };
  }
  return {
    enable: 'enable f16;\n',
    binding: { name: HANDED, access: 'read_write', type: dims === 4 ? 'array<vec4<f16>>' : 'array<f16>' },
    helper: HALVES_TEXT,
    store: (at, value) =>
      dims === 4
        ? `${HANDED}[${at}] = halves_(${value});`
        : `${HANDED}[${at}] = halves_(vec4<f32>(${value})).x;`,
  };
}

/** Of labels, for people. */
export const outName = ({ outHanded = false }: AttendShape): string => (outHanded ? ' to halves' : '');

/** Bytes that the merge leaves: how they lie, and the lanes of a subgroup. */
export interface LeftBytes {
  readonly layout: BytesLayout;
  readonly lanes: number;
}

/** Whether the numbers of a head are whole pieces: they are one workgroup's. */
export function leavesBytes({ heads, headDim }: AttentionShape, { k, pieces }: BytesLayout): boolean {
  return k === heads * headDim && headDim % (32 * pieces) === 0;
}

export interface HeadBytes {
  readonly bindings: readonly Binding[];
  /** Declarations of the module; before `text`, thread i < head_dim / 4 puts four dims into `made[i]`. */
  readonly helper: string;
  /** Statements, in uniform control flow. They read `row`, whose x is the token, `head`, `heads` and `lid`. */
  readonly text: string;
}

/** What a workgroup that has a head of a token, and a thread or more for four of its dims, leaves them as bytes with. */
export function headBytes({ headDim }: AttentionShape, { layout, lanes }: LeftBytes): HeadBytes {
  const { own } = unitsOf(layout, lanes);
  const items = headDim / 8 / own;
  const values = unitValues(own).map(
    ({ name, vector }) => `let ${name} = made[thread * ${2 * own}u + ${vector}u];`,
  );
  return {
    bindings: [
      { name: HANDED_BYTES.bytes, access: 'read_write', type: 'array<u32>' },
      { name: HANDED_BYTES.terms, access: 'read_write', type: 'array<vec2<f32>>' },
    ],
    helper: `var<workgroup> made: array<vec4<f32>, ${headDim / 4}>;\n${BYTES_TEXT}`,
    text: `workgroupBarrier();
  {
    let row = row.x;
    let thread = min(lid, ${items - 1}u);
    let item = head * ${items}u + thread;
    let here = lid < ${items}u;
    ${values.join('\n    ')}
${unitsText(layout, HANDED_BYTES, lanes)}
  }`,
  };
}

/** The launch that a step with tiles keeps: bytes of what lies in `x`, left where the merge leaves them. */
export function handedBytesStage(
  shape: Pick<LinearShape, 'k' | 'xStride' | 'rowKind'>,
  { layout, lanes }: LeftBytes,
  most: number,
): Stage {
  const stage = bytesStage({ ...shape, norm: null }, layout, lanes, most, HANDED_BYTES);
  return { ...stage, label: `attend tiles to bytes [${shape.k}]` };
}
