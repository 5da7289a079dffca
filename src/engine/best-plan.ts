/** Plans of so many bytes a token, measured: the split that losses foretell, and the same formats in all layers. */

import { type FloatKv, isFloatKv, kvUnusable } from '../device/kv.js';
import { type KvChoice, kvChoiceName, parseKvChoice } from '../kv/formats.js';
import { expectedLoss, type KvLosses } from '../kv/losses.js';
import { kvChoiceBytes } from '../kv/plan-file.js';
import type { KvLayerShape } from '../kv/policy.js';
import { splitKvBytes } from '../kv/split.js';
import { LOSS_FORMATS, type LossMeter } from './kv-losses.js';
import { countFormats } from './kv-plan.js';

export interface WantedPlan {
  /** Of one token in all layers, at most. */
  readonly bytes: number;
  /** Where it is to be written. */
  readonly file?: string;
}

export interface MeasuredPlan {
  readonly name: string;
  readonly choices: readonly KvChoice[];
  readonly bytes: number;
  /** Mean KL from float KV, in nats: measured, and as the losses of sides and layers foretell. */
  readonly kl: number;
  readonly expected: number;
}

export interface MeasuredPlans {
  readonly best: MeasuredPlan;
  /** Least KL first. */
  readonly all: readonly MeasuredPlan[];
}

const F16: FloatKv = { kind: 'float', dtype: 'f16' };
/** Plans of one pair of formats that are measured beside the split. */
const MOST_PAIRS = 2;

/** Errors: `kv-bytes-too-few`; those of the formats and of the device's memory. */
export async function bestPlan(
  meter: LossMeter,
  layers: readonly KvLayerShape[],
  losses: KvLosses,
  { bytes: most }: WantedPlan,
  onPasses: (done: number, total: number) => void = () => {},
  signal?: AbortSignal,
): Promise<MeasuredPlans> {
  const split = splitKvBytes(layers, losses, most, F16);
  const candidates = [split.choices, ...bestPairs(layers, losses, most)];
  const all: MeasuredPlan[] = [];
  for (const choices of candidates) {
    const kvLayerFormats = choices.map(kvChoiceName);
    const kl = await meter.loss({ kvLayerFormats, kvFloatHead: 'auto' }, signal);
    const bytes = kvChoiceBytes(layers, choices);
    const attending = choices.filter((_, layer) => layers[layer]!.state === undefined);
    all.push({ name: countFormats(choices), choices, bytes, kl, expected: expectedLoss(attending, losses)! });
    onPasses(all.length, candidates.length);
  }
  all.sort((a, b) => a.kl - b.kl);
  return { best: all[0]!, all };
}

/** One pair of formats for all layers that can have it, the last one float or not: those that are expected to lose least. */
function bestPairs(
  layers: readonly KvLayerShape[],
  losses: KvLosses,
  most: number,
): readonly (readonly KvChoice[])[] {
  const coded = layers.flatMap(({ state, window }, layer) =>
    state === undefined && window === null ? [layer] : [],
  );
  const last = coded.at(-1);
  const found: { choices: readonly KvChoice[]; loss: number }[] = [];
  for (const key of LOSS_FORMATS)
    for (const value of LOSS_FORMATS)
      for (const skipped of [undefined, last]) {
        const pair = parseKvChoice(`${key}/${value}`);
        const choices = layers.map((shape, layer) => {
          const usable = kvUnusable(pair.key, shape) === undefined;
          return usable && coded.includes(layer) && layer !== skipped ? pair : { key: F16, value: F16 };
        });
        if (choices.every(({ key: of }) => isFloatKv(of)) || kvChoiceBytes(layers, choices) > most) continue;
        const attending = choices.filter((_, layer) => layers[layer]!.state === undefined);
        const loss = expectedLoss(attending, losses);
        if (loss !== undefined) found.push({ choices, loss });
      }
  return found
    .sort((a, b) => a.loss - b.loss)
    .slice(0, MOST_PAIRS)
    .map(({ choices }) => choices);
}
