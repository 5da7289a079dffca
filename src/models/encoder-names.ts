/** Tensors of encoders by the names that families use: BERT's, ModernBERT's and nomic-bert's, with or without what stands before them. */

/** Below a layer. */
const IN_LAYERS: readonly (readonly [RegExp, string])[] = [
  [/^attention\.self\.(query|key|value)\./, 'self_attn.$1.'],
  [/^attention\.output\.dense\./, 'self_attn.o_proj.'],
  [/^(attention\.output\.LayerNorm|post_attention_layernorm|norm1)\./, 'attention_norm.'],
  [/^intermediate\.dense\./, 'mlp.up_proj.'],
  [/^(output\.dense|mlp\.Wo|mlp\.fc2)\./, 'mlp.down_proj.'],
  [/^(output\.LayerNorm|post_mlp_layernorm|norm2)\./, 'output_norm.'],
  [/^(attn|self_attn)\.Wqkv\./, 'self_attn.Wqkv.'],
  [/^attn\.(Wo|out_proj)\./, 'self_attn.o_proj.'],
  [/^mlp\.fc11\./, 'mlp.up_proj.'],
  [/^mlp\.fc12\./, 'mlp.gate_proj.'],
];
const PROJECTIONS: Readonly<Record<string, string>> = { query: 'q_proj', key: 'k_proj', value: 'v_proj' };

/** What such a checkpoint has. */
const SIGN = /(^|\.)embeddings\.(word|tok)_embeddings\.weight$/;

/**
 * The family's name of each tensor that has another; undefined where the checkpoint is no encoder's.
 * @example encoderNames(['bert.embeddings.word_embeddings.weight'])?.get('model.embed_tokens.weight')
 */
export function encoderNames(names: readonly string[]): ReadonlyMap<string, string> | undefined {
  const sign = names.find((name) => SIGN.test(name));
  if (sign === undefined) return undefined;
  const prefix = sign.slice(0, sign.lastIndexOf('embeddings.', sign.indexOf('_embeddings')));
  const aliases = new Map<string, string>();
  for (const name of names) {
    if (!name.startsWith(prefix)) continue;
    const own = inFamily(name.slice(prefix.length));
    if (own !== name) aliases.set(own, name);
  }
  return aliases;
}

function inFamily(name: string): string {
  const modern = name.replace(/\.gamma$/, '.weight').replace(/\.beta$/, '.bias');
  const layer = /^(?:encoder\.)?layers?\.(\d+)\.(.*)$/.exec(modern);
  if (layer !== null) {
    const [, index, inner] = layer as unknown as [string, string, string];
    const found = IN_LAYERS.find(([pattern]) => pattern.test(inner));
    const own = found === undefined ? inner : inner.replace(found[0], found[1]);
    const spelled = own.replace(
      /^self_attn\.(query|key|value)\./,
      (_, part: string) => `self_attn.${PROJECTIONS[part]}.`,
    );
    return `model.layers.${index}.${spelled}`;
  }
  return modern
    .replace(/^embeddings\.(word|tok)_embeddings\./, 'model.embed_tokens.')
    .replace(/^emb_ln\./, 'model.embeddings.LayerNorm.')
    .replace(/^embeddings\./, 'model.embeddings.')
    .replace(/^final_norm\./, 'model.norm.');
}
