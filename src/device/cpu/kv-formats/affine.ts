import type { AffineKv } from '../../kv.js';
import { affineGroups } from '../../kv-formats/affine.js';
import { f32Word } from '../command.js';
import {
  FORMAT_A2,
  FORMAT_A3,
  FORMAT_A4,
  FORMAT_A5,
  FORMAT_A6,
  FORMAT_A8,
  SIDE_BITS,
  SIDE_CENTRE,
  SIDE_FORMAT,
  SIDE_GROUP,
  SIDE_MOST,
  SIDE_UNIT,
} from '../kv-layout.js';
import type { CpuKvCodec } from './codec.js';
import { affine2, affine3, affine4, affine5, affine6, affine8 } from './packings.js';

const NUMBERS = { 2: FORMAT_A2, 3: FORMAT_A3, 4: FORMAT_A4, 5: FORMAT_A5, 6: FORMAT_A6, 8: FORMAT_A8 };

export const affineCodec: CpuKvCodec<AffineKv> = {
  kind: 'affine',
  takes: (_, headDim) => headDim % 16 === 0 && headDim <= 256,
  packings: { A8: affine8, A4: affine4, A2: affine2, A6: affine6, A3: affine3, A5: affine5 },
  assembly: { file: 'kv-affine', code: 'codeAffine', meta: 'metaAffine' },
  groups: affineGroups,
  describe({ bits, groupSize }, _side, _headDim, put) {
    put(SIDE_BITS, bits);
    put(SIDE_GROUP, groupSize);
    put(SIDE_FORMAT, NUMBERS[bits]);
    put(SIDE_CENTRE, 2 ** (bits - 1));
    put(SIDE_UNIT, f32Word(1));
    put(SIDE_MOST, f32Word(32767));
  },
};
