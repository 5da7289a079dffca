import type { Capabilities } from '../../src/device/webgpu/kernel.js';
import type { LinearChoice } from '../../src/device/webgpu/kernels/linear-choice.js';
import type { Dp4aConfig } from '../../src/device/webgpu/kernels/linear-dp4a-plan.js';

/** Of a dp4a product, but for what the device has. */
export type Dp4aSizes = Omit<Dp4aConfig, 'subgroupSize' | 'workgroupBytes'>;

/**
 * Sizes for subgroups of four lanes, as a choice of as many lanes in all on a device that has more of them; or for subgroups of
 * `lanes`, which are emulated.
 */
export function dp4aChoice(
  { workgroupBytes, subgroupMaxSize }: Pick<Capabilities, 'workgroupBytes' | 'subgroupMaxSize'>,
  sizes: Dp4aSizes,
  lanes?: number,
): Extract<LinearChoice, { family: 'dp4a' }> {
  const fewer = Math.max(sizes.splits, (sizes.subgroups * 4) / subgroupMaxSize);
  const subgroups = lanes === undefined ? fewer : sizes.subgroups;
  const subgroupSize = lanes ?? subgroupMaxSize;
  return { family: 'dp4a', config: { ...sizes, subgroups, subgroupSize, workgroupBytes } };
}

/** How far from float64 rows may be whose x has so many bytes: what one byte loses of the products of a glu, of which some are far larger than most. */
export const dp4aBound = (planes: 1 | 2): number => (planes === 1 ? 2e-2 : 2e-4);
