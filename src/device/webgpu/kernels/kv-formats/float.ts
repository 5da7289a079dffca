import type { FloatKv } from '../../../kv.js';
import type { KvCodec } from './codec.js';
import { type KvSideNumbers, readerHead, vectorText } from './side.js';

/** Vectors as they are, four elements in an element of the buffer. */
export const floatCodec: KvCodec<FloatKv> = {
  kind: 'float',
  takes: () => true,
  element: ({ dtype }) => (dtype === 'f32' ? 'vec4<f32>' : 'vec2<u32>'),
  meta: () => null,
  tables: () => new Float32Array(0),
  rotation: () => null,
  codes: null,
  bounded: false,
  readerBytes: () => 0,
  reader({ name, format, headDim }, n) {
    const at = `vector * ${headDim / 4}u + vec`;
    const value = format.dtype === 'f32' ? `${name}[${at}]` : `unpack_four(${name}[${at}])`;
    return { declarations: `${readerHead(name, n)}\n  return ${value};\n}`, prepare: () => '' };
  },
  pairsHeads: false,
  sidesAlike: true,
  storeNeeds: () => ({}),
  store({ format, headDim }, n, { plan, put }) {
    const here = plan.heads === 1 ? '' : 'here && ';
    const store = `if (${here}lid < ${headDim / 4}u) { ${floatStoreText(headDim, format, n, 'lid', put)} }`;
    return { declarations: '', fetch: '', store };
  },
};

/** Statement that stores `v`, elements `4 quad …` of a vector of floats, as KV head `kv` at (`block`, `token_at`). */
export function floatStoreText(
  headDim: number,
  { dtype }: FloatKv,
  n: KvSideNumbers,
  quad: string,
  put: (at: string, value: string) => string,
): string {
  return put(`${vectorText(n)} * ${headDim / 4}u + ${quad}`, dtype === 'f32' ? 'v' : 'pack_four(v)');
}
