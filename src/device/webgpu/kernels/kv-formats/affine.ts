import type { AffineKv } from '../../../kv.js';
import { affineGroups } from '../../../kv-formats/affine.js';
import { rolledBound } from '../rolled.js';
import { codesRoom, streamCodesText, streamWordText } from './code-stream.js';
import type { KvCodec } from './codec.js';
import { type KvSideNumbers, readerHead, vectorText } from './side.js';

/** Expression: the word of scale and bias of a group of a (block, KV head, token). */
function scaleWord(
  n: KvSideNumbers,
  groups: number,
  block: string,
  kv: string,
  token: string,
  group: string,
): string {
  return `${n.metaAt} + ((${block} * ${n.kvHeads} + ${kv}) * ${n.blockTokens} + ${token}) * ${groups}u + ${group}`;
}

export const affineCodec: KvCodec<AffineKv> = {
  kind: 'affine',
  takes: (_, headDim) => headDim % 8 === 0 && headDim <= 256,
  element: () => 'u32',
  meta: (format, headDim, kvHeads) => ({ groups: affineGroups(format, headDim), metaHeads: kvHeads }),
  tables: () => new Float32Array(0),
  rotation: () => null,
  codes: 'scaled',
  bounded: false,
  readerBytes: () => 0,
  reader({ name, format, layout }, n) {
    const vectors = format.groupSize / 4;
    return {
      declarations: `${readerHead(name, n)}
  let first = vector * ${layout.words}u;
  var codes: vec4<u32>;
  ${streamCodesText(name, format.bits)}
  let affine = unpack2x16float(${name}[${scaleWord(n, layout.groups, 'block', 'kv', 'token', `vec / ${vectors}u`)}]);
  return fma(vec4<f32>(codes), vec4<f32>(affine.x), vec4<f32>(affine.y));
}`,
      prepare: () => '',
    };
  },
  pairsHeads: false,
  sidesAlike: true,
  storeNeeds: () => ({ codes: true, range: true }),
  store({ name, format, headDim, layout }, n, { plan, put }) {
    const { lanes, own } = plan;
    const vectors = headDim / 4;
    const here = plan.heads === 1 ? '' : 'here && ';
    const members = format.groupSize / 4;
    const most = 2 ** format.bits - 1;
    const [lows, highs] = [`lows_${own}`, `highs_${own}`];
    return {
      declarations: streamWordText(name, format.bits, own, codesRoom(lanes)),
      fetch: '',
      store: `{
      let x = finite_(v);
      let real = lid < ${vectors}u;
      ${lows}[lid] = select(3.0e38, min(min(x.x, x.y), min(x.z, x.w)), real);
      ${highs}[lid] = select(-3.0e38, max(max(x.x, x.y), max(x.z, x.w)), real);
      for (var level = 0u; level < ${rolledBound(Math.log2(members))}; level++) {
        let half = ${members / 2}u >> level;
        workgroupBarrier();
        if (lid % ${members}u < half) {
          ${lows}[lid] = min(${lows}[lid], ${lows}[lid + half]);
          ${highs}[lid] = max(${highs}[lid], ${highs}[lid + half]);
        }
      }
      workgroupBarrier();
      let leader = lid / ${members}u * ${members}u;
      let low = ${lows}[leader];
      let stored = to_half(vec4<f32>((${highs}[leader] - low) / ${most}.0, low, 0.0, 0.0));
      let affine = stored.x | (stored.y << 16u);
      let back = unpack2x16float(affine);
      let at = clamp(round((x - vec4<f32>(back.y)) / back.x), vec4<f32>(0.0), vec4<f32>(${most}.0));
      let codes = select(vec4<u32>(0u), vec4<u32>(at), vec4<bool>(real && back.x > 0.0));
      for (var e = 0u; e < 4u; e++) { codes_${own}[lid * 4u + e] = codes[e]; }
      if (${here}real && lid == leader) { ${put(scaleWord(n, layout.groups, 'block', 'kv', 'token_at', `lid / ${members}u`), 'affine')} }
      workgroupBarrier();
      for (var j = lid; ${here}j < ${layout.words}u; j += ${lanes}u) {
        ${put(`${vectorText(n)} * ${layout.words}u + j`, `${name}_word(j, groups)`)}
      }
    }`,
    };
  },
};
