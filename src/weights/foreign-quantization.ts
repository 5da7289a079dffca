/**
 * Formats of other quantisers, told by the tensors that lie beside a weight. Their config.json mostly names the method,
 * which {@link parseQuantization} refuses; many published folders say it in a file of the tool's own, or nowhere.
 */

import type { KvantError } from '../errors.js';
import { unsupported } from './affine.js';

/** What a tensor's name ends in, with the format that writes it; the more telling first. */
const ENDINGS: readonly (readonly [ending: RegExp, format: string])[] = [
  [/\.g_idx$/, 'GPTQ'],
  [/\.qweight$/, 'AWQ or GPTQ'],
  [/\.weight_packed$/, 'compressed-tensors'],
  [/\.weight_scale_2$/, 'FP4 of ModelOpt (nvfp4)'],
  [/\.weight_scale_inv$/, 'FP8 in blocks'],
  [/\.weight\.(quant_state\.\w+|absmax|nested_absmax|quant_map)$/, 'bitsandbytes (4 bits)'],
  [/\.(weight\.)?SCB$/, 'bitsandbytes (8 bits)'],
  [/\.weight_scale$/, 'FP8 or INT8 with a scale'],
  [/\.W_q$/, 'HQQ'],
  [/\.q_weight$/, 'EXL2'],
  [/\.trellis$/, 'EXL3'],
  [/\.codebooks$/, 'AQLM'],
  [/\.Qidxs$/, 'QuIP#'],
  [/\.weight\._(data|scale|shift)$/, 'quanto'],
  [/[.:]_?weight_qdata$/, 'torchao'],
];

/**
 * @param names of all tensors
 * @returns the refusal, undefined where nothing of another quantiser is there
 */
export function foreignQuantization(names: Iterable<string>, where: string): KvantError | undefined {
  let found = ENDINGS.length;
  let example = '';
  for (const name of names) {
    const at = ENDINGS.findIndex(([ending]) => ending.test(name));
    if (at < 0 || at >= found) continue;
    found = at;
    example = name;
  }
  const format = ENDINGS[found]?.[1];
  if (format === undefined) return undefined;
  return unsupported(`the quantisation ${format} (a tensor is ${JSON.stringify(example)})`, where);
}
