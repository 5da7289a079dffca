// The device, what was asked for and what is found: one for all parts of the benchmark.

import { writeFileSync } from 'node:fs';
import { args, countdown, option } from '../options.mjs';
import { Bench, openDevice } from '../webgpu-harness.mjs';

export const seconds = Number(option('--seconds', '300'));
const jsonPath = option('--json', null);
export const quick = args.includes('--quick');
export const left = countdown(seconds);

const opened = await openDevice();
export const bench = new Bench(opened);
export const { features } = bench;
export const lanes = features.subgroupSize;
export const report = { device: opened.info, features, ceilings: {}, checks: [], times: [] };
export const save = () => jsonPath && writeFileSync(jsonPath, JSON.stringify(report, null, 1));
console.log(
  `${opened.info.device} ${opened.info.description}, f16 ${features.f16}, subgroups of ${lanes}, workgroup memory ${features.workgroupBytes}`,
);
if (lanes === 0) throw new Error('subgroups of one size are needed');

export const affine = (bits, groupSize = 64) => ({ kind: 'affine', bits, groupSize });
export const turbo = (bits) => ({ kind: 'turboquant', bits });
export const F16 = { kind: 'float', dtype: 'f16' };
export const F32 = { kind: 'float', dtype: 'f32' };
export const BLOCK = 32;
export const count = (n) => Array.from({ length: n }, (_, i) => i);
