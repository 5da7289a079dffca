/**
 * Stores what float-start blocks hold into other blocks, in the formats of a layer: for each (from, to) of `pairs`. A side that
 * is kept in the float-start format anyway is copied within its buffer.
 */

import type { AttentionShape } from '../../graph.js';
import type { FloatKv, KvFormat } from '../../kv.js';
import { type Binding, declareBindings, Params, type Stage } from '../kernel.js';
import { cacheType, KV_WGSL, readerText, sideNumbers, sideType, storedSide } from './kv-format.js';
import type { KvSideSpec } from './kv-formats/side.js';
import { kvLayout } from './kv-layout.js';
import { storeLanes, storePlan, storeText, storeVariables, storeWgsl } from './kv-store.js';
import { GROUPS_PARAMETER } from './rolled.js';

export interface ConvertShape {
  readonly kvHeads: AttentionShape['kvHeads'];
  readonly headDim: AttentionShape['headDim'];
  readonly valueDim?: number;
  readonly blockTokens: number;
  readonly key: KvFormat;
  readonly value: KvFormat;
  readonly floatStart: FloatKv;
  /** Blocks of the buffers that are written. */
  readonly keyBlocks: number;
  readonly valueBlocks: number;
  /** Id of the first float-start block, for a side whose float-start blocks have a buffer of their own; null where they do not. */
  readonly floatStartKeys: number | null;
  readonly floatStartValues: number | null;
}

/** Roles: pairs, keys; values where they are stored; floatStartKeys, floatStartValues where those have buffers. Dispatched over (units, tokens, pairs). */
export function convertStage(shape: ConvertShape): Stage & { readonly units: number } {
  const { kvHeads, headDim, blockTokens, floatStart } = shape;
  const p = new Params();
  const shared = { kvHeads: p.u32(kvHeads), blockTokens: p.u32(blockTokens) };
  const place = { headDim, kvHeads, blockTokens };
  const bindings: Binding[] = [{ name: 'pairs', access: 'read', type: 'array<u32>' }];
  const latent = shape.valueDim !== undefined;
  const formats = latent ? [shape.key] : [shape.key, shape.value];
  const plan = storePlan(formats, headDim);
  const lanes = storeLanes(plan);
  const sideText = (name: 'keys' | 'values') => {
    const format = name === 'keys' ? shape.key : shape.value;
    const blocks = name === 'keys' ? shape.keyBlocks : shape.valueBlocks;
    const from = name === 'keys' ? shape.floatStartKeys : shape.floatStartValues;
    const side: KvSideSpec = storedSide({
      name,
      format,
      headDim,
      layout: kvLayout(format, { ...place, blocks }),
    });
    bindings.push({ name, access: 'read_write', type: sideType(side) });
    const source = from === null ? name : name === 'keys' ? 'floatStartKeys' : 'floatStartValues';
    if (from !== null) bindings.push({ name: source, access: 'read', type: cacheType(floatStart) });
    const reader = readerText(
      { name: source, format: floatStart, headDim, layout: kvLayout(floatStart, { ...place, blocks: 0 }) },
      { ...shared, metaAt: '0u', tablesAt: '0u' },
    );
    return { reader, store: storeText(side, sideNumbers(p, side, shared), plan, null), from: from ?? 0 };
  };
  const keys = sideText('keys');
  const values = latent ? null : sideText('values');
  // A workgroup has a head, or two.
  const units = Math.ceil(kvHeads / plan.heads);
  bindings.push(p.binding);
  const branch = ({ reader, store, from }: ReturnType<typeof sideText>, unit: string): string => `
    ${plan.heads === 1 ? `let kv = ${unit};` : `let kv = (${unit}) * 2u + half_;\n    let here = kv < ${kvHeads}u;`}
    ${store.fetch}
    var v = vec4<f32>(0.0);
    if (${plan.heads === 1 ? '' : 'here && '}lid < ${headDim / 4}u) { v = ${reader.four(`pairs[wid.z * 2u] - ${from}u`, 'kv', 'token_at', 'lid')}; }
    ${store.store}`;
  const wgsl = `${declareBindings(bindings)}
${KV_WGSL}
${storeWgsl(plan, formats)}
${keys.reader.declarations}
${values?.reader.declarations ?? ''}
${keys.store.declarations}
${values?.store.declarations ?? ''}
@compute @workgroup_size(${plan.threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, ${GROUPS_PARAMETER},
        ${lanes.parameter}) {
  ${lanes.text}
  ${storeVariables(plan, formats)}
  let token_at = wid.y;
  let block = pairs[wid.z * 2u + 1u];
  ${
    values === null
      ? branch(keys, 'wid.x')
      : `if (wid.x < ${units}u) {${branch(keys, 'wid.x')}
  } else {${branch(values, `wid.x - ${units}u`)}
  }`
  }
}`;
  return {
    label: `kv convert ${kvHeads}×${headDim}${latent ? ' latents' : ''}`,
    wgsl,
    bindings,
    params: p.words,
    units: (latent ? 1 : 2) * units,
    workgroups: () => {},
  };
}
