/** Which linear layers carry a bias, as most configurations say it. */

import type { DecoderConfig } from './config.js';
import type { ConfigFields } from './config-fields.js';

/** `attention_bias`: all of attention; the MLP has none. */
export function attentionBias(fields: ConfigFields): DecoderConfig['bias'] {
  const attention = fields.flag('attention_bias', false);
  return { qkv: attention, output: attention, mlp: false };
}

/** `attention_bias`, and `mlp_bias` for the MLP. */
export function attentionAndMlpBias(fields: ConfigFields): DecoderConfig['bias'] {
  return { ...attentionBias(fields), mlp: fields.flag('mlp_bias', false) };
}
