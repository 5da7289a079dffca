/** What devices do with the adapters that a step names: check that they hold them. */

import { KvantError } from '../errors.js';
import type { StepInputs } from './step.js';

/** Adapters that a device of ours holds: neither loads any yet. */
export const HELD_ADAPTERS = 0;

/** Errors: `invalid-step`, for a sequence that names an adapter other than the `held` ones. */
export function checkAdapters({ seqAdapter, sequenceCount }: StepInputs, held: number): void {
  for (let s = 0; s < sequenceCount; s++)
    if (seqAdapter[s]! > held)
      throw new KvantError(
        'invalid-step',
        `Step: sequence ${s} names adapter ${seqAdapter[s]}; the device holds ${held}.`,
        {
          where: 'submit',
          fix: 'This is a fault of the caller: 0 is no adapter, others are those that DeviceInfo.adapters counts.',
        },
      );
}
