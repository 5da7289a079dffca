import type { FloatKv } from '../../kv.js';
import { KIND_F16, KIND_F32, SIDE_KIND } from '../kv-layout.js';
import type { CpuKvCodec } from './codec.js';

/** Vectors as they are (assembly/kv.ts). */
export const floatCodec: CpuKvCodec<FloatKv> = {
  kind: 'float',
  takes: () => true,
  packings: {},
  assembly: null,
  groups: () => 0,
  describe: ({ dtype }, _side, _headDim, put) => put(SIDE_KIND, dtype === 'f16' ? KIND_F16 : KIND_F32),
};
