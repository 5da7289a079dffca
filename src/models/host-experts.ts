/** Which experts stay in host memory where the rest of a model is on a GPU: those of its first layers. */

import type { DeviceInfo } from '../device/device.js';
import { KvantError } from '../errors.js';
import type { ModelFacts } from './facts.js';
import type { WeightLayout } from './layout.js';

/**
 * The keys of the stacks of experts in the first `count` layers.
 *
 * @throws KvantError `invalid-option`: there are fewer layers, or none of them has experts
 */
export function hostMatrices(
  { matrices }: WeightLayout,
  { layers }: Pick<ModelFacts, 'layers'>,
  count: number,
): ReadonlySet<string> {
  if (count === 0) return new Set();
  const experts = matrices.filter(({ kind }) => kind === 'experts');
  if (experts.length === 0)
    throw unusable(count, 'the model has no experts', 'Leave it out: all of it is computed for every token.');
  if (count > layers)
    throw unusable(count, `the model has ${layers} layers`, `Give a number of layers up to ${layers}.`);
  // The group of a layer is the one behind that of the embedding and of the layers before it.
  const kept = experts.filter(({ group }) => group <= count);
  const first = Math.min(...experts.map(({ group }) => group));
  if (kept.length === 0)
    throw unusable(
      count,
      `its first layer with experts is layer ${first}, counted from 1`,
      `Give ${first} or more.`,
    );
  return new Set(kept.map(({ key }) => key));
}

/** @throws KvantError `invalid-option` where the device keeps no experts in host memory */
export function checkHostExperts({ hostExperts = false, kind }: DeviceInfo, count: number): void {
  if (count === 0 || hostExperts) return;
  throw unusable(
    count,
    kind === 'cpu' ? 'all of the model is on the CPU already' : 'the device has no host beside it',
    'Leave it out, or run on a GPU (--device webgpu).',
  );
}

function unusable(count: number, why: string, fix: string): KvantError {
  return new KvantError(
    'invalid-option',
    `cpuExperts is ${count}: the experts of so many layers were to be computed on the CPU; ${why}.`,
    { kind: 'invalid-request', where: 'cpuExperts', fix },
  );
}
