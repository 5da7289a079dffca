// The pairs of formats that are timed.

import { affine, F16, turbo } from './context.mjs';

export const formats = {
  f16: [F16, F16],
  affine8: [affine(8), affine(8)],
  affine4: [affine(4), affine(4)],
  turbo4: [turbo(4), turbo(4)],
  'turbo3.5': [turbo(3), turbo(4)],
};
