/**
 * Norm and rotate q and k, append k and v to the cache, give q; queries are rotated as the keys are, once, here.
 * One workgroup a (token, head), or two heads side by side where those of K or V share a word: a head of up to 256 fits into 64 threads of
 * four elements each, a wider one into 128.
 */

import { kvFormatName } from '../../kv.js';
import { type Binding, declareBindings, type Kernel, Params } from '../kernel.js';
import type { RopeAppendShape } from '../shapes.js';
import { STEP_BINDING, STEP_ROTARY_WGSL, STEP_WGSL } from '../step-buffer.js';
import {
  axesWgsl,
  growthText,
  headNormText,
  rotatedText,
  rotationWgsl,
  shownText,
  vectorTurnText,
} from './head-turn.js';
import { KV_WGSL, sideNumbers, sideType, storedSide } from './kv-format.js';
import type { StoreText } from './kv-formats/codec.js';
import { codecOf } from './kv-formats/list.js';
import { type KvSideSpec, signsText, tableWord } from './kv-formats/side.js';
import { headFirst, headStoreText } from './kv-head.js';
import { rotateOneText } from './kv-rotate.js';
import { rowsName, rowsSkipped, sideOf } from './kv-rows.js';
import { ownArray, storeLanes, storePlan, storeText, storeVariables, storeWgsl } from './kv-store.js';
import { type SplitKSums, splitKText } from './linear-split-k.js';
import { GROUPS_PARAMETER } from './rolled.js';

/** Where a side's float tail is bound. */
export const tailRole = (name: 'keys' | 'values'): 'tailKeys' | 'tailValues' =>
  name === 'keys' ? 'tailKeys' : 'tailValues';

/**
 * Roles: step, qkv, tables, headNorms (q then k, with norms; scales of keys, of queries and the centre of keys, with a centre), rope (fine then coarse, with rope), out, keys, values:
 * with the uniform no more than any WebGPU device binds. Where q, k and v lie in slices of K (`sums`), these, and the bias if
 * there is one, take the place of qkv. Of a float tail it has keys and values alone, which go to tailKeys and tailValues as floats,
 * rotated as the shape's formats are; keys and values are bound where these have tables for that, and out is not.
 */
export function ropeAppendKernel(shape: RopeAppendShape, sums: SplitKSums | null = null): Kernel {
  const { heads, kvHeads, headDim, rope, normEps, rows, normAfter = false, queryGrowth = null } = shape;
  const centred = shape.centred === true;
  /** V is a view of K: there is none in a row of qkv, and none is stored. */
  const latent = shape.valueDim !== undefined;
  /** Heads of K and of V in a row of qkv. */
  const others = shape.queriesOnly === true ? '0u' : latent ? 'kv_heads' : '2u * kv_heads';
  const p = new Params();
  const text = {
    heads: p.u32(heads),
    kvHeads: p.u32(kvHeads),
    vectors: p.u32(headDim / 4),
    maxBlocks: p.u32(shape.maxBlocksPerSlot),
    pairs: p.u32(rope === null ? 0 : rope.dims / 2),
    headDim: p.f32(headDim),
    eps: p.f32(normEps ?? 0),
    beta: p.f32(queryGrowth?.beta ?? 0),
    every: p.u32(queryGrowth?.every ?? 0),
  };
  const tail = rows.only === 'tail' ? rows.tail! : null;
  const stored_ = (name: 'keys' | 'values') =>
    tail === null ? storedSide(sideOf(name, shape)) : sideOf(name, shape);
  const keys = stored_('keys') as KvSideSpec<'keys'>;
  const values = stored_('values') as KvSideSpec<'values'>;
  const shared = { kvHeads: text.kvHeads, blockTokens: `${shape.blockTokens}u` };
  const keyNumbers = sideNumbers(p, keys, shared);
  const valueNumbers = sideNumbers(p, values, shared);
  const formats = latent ? [shape.key] : [shape.key, shape.value];
  const plan = storePlan(formats, headDim);
  const whole = `whole${plan.own}`;
  const wide = Math.max(64, plan.lanes);
  // Of one format they have one text.
  const alike =
    !latent && codecOf(shape.key).sidesAlike && kvFormatName(shape.key) === kvFormatName(shape.value);
  const of = (value: string, key: string): string => (value === key ? key : `select(${key}, ${value}, is_v)`);
  const storeBoth = alike
    ? storeText(
        { ...keys, name: 'cache' },
        { ...keyNumbers, metaAt: of(valueNumbers.metaAt, keyNumbers.metaAt) },
        plan,
        'token.z',
        (at, value) =>
          `{ let to = ${at}; let word = ${value}; if (is_v) { values[to] = word; } else { keys[to] = word; } }`,
      )
    : null;
  const storeKey = storeBoth ?? storeText(keys, keyNumbers, plan, 'token.z');
  const storeValue = storeBoth ?? storeText(values, valueNumbers, plan, 'token.z');
  const given =
    sums === null
      ? null
      : splitKText('qkv_at', sums, p.u32((sums.rows * (heads + 2 * kvHeads) * headDim) / 4));
  /** Vector `lid` of a head of the row. */
  const fetch = (head: string): string =>
    given === null
      ? `qkv[(before + ${head}) * vectors + lid]`
      : `qkv_at(before * vectors, (${head}) * vectors + lid)`;
  const bindings: Binding[] = [
    p.binding,
    STEP_BINDING,
    ...(given?.bindings ?? [{ name: 'qkv', access: 'read', type: 'array<vec4<f32>>' } as const]),
    { name: 'tables', access: 'read', type: 'array<u32>' },
  ];
  if (normEps !== null || centred)
    bindings.push({ name: 'headNorms', access: 'read', type: 'array<vec4<f32>>' });
  const vectorTurn =
    rope !== null && rope.axes === undefined && rope.style === 'half' && rope.dims % 8 === 0
      ? vectorTurnText(text.pairs, 'token.z', '!is_v', whole)
      : null;
  if (rope !== null)
    bindings.push({
      name: 'rope',
      access: 'read',
      type: vectorTurn === null ? 'array<vec2<f32>>' : 'array<vec4<f32>>',
    });
  if (tail === null) {
    bindings.push({ name: 'out', access: 'read_write', type: 'array<vec4<f32>>' });
    bindings.push({ name: 'keys', access: 'read_write', type: sideType(keys) });
    if (!latent) bindings.push({ name: 'values', access: 'read_write', type: sideType(values) });
  } else
    for (const side of latent ? [keys] : [keys, values]) {
      if (codecOf(side.format).rotation(side.format, headDim) !== null)
        bindings.push({ name: side.name, access: 'read', type: sideType(side) });
      bindings.push({ name: tailRole(side.name), access: 'read_write', type: 'array<u32>' });
    }
  const norm =
    normEps === null
      ? ''
      : `
    let squares = total_(dot(v, v), lid, groups);
    if (!is_v && active_) {
      ${headNormText('squares', text.headDim, text.eps, 'headNorms[select(vectors, 0u, head < heads) + lid]')}
    }`;
  const rotate =
    rope === null
      ? ''
      : (vectorTurn?.rotated ??
        `
    ${shownText('lid', whole)}
    workgroupBarrier();
    if (!is_v && active_) {
      ${rotatedText('lid', text.pairs, (pair) => `angle_of(${pair}, ${rope.axes === undefined ? 'token.z' : `places[axis_of(${pair})]`})`)}
    }
    workgroupBarrier();`);
  const grow = queryGrowth === null ? '' : `v = v * ${growthText('token.z', text.beta, text.every)};`;
  const centreAt = normEps === null ? '0u' : '2u * vectors';
  /** Vector `lid` of a part of the centre: scales of keys, of queries, what is taken off keys. */
  const centre = (part: number, kv: string): string =>
    `headNorms[${centreAt} + (${part}u * kv_heads + ${kv}) * vectors + lid]`;
  const scaleQuery = centred ? `if (active_) { v = v * ${centre(1, `(head / (heads / kv_heads))`)}; }` : '';
  const centreKey = centred
    ? `if (!is_q && !is_v && active_) { v = v * ${centre(0, '(head - heads)')} - ${centre(2, '(head - heads)')}; }`
    : '';
  const rotation = codecOf(shape.key).rotation(shape.key, headDim);
  const turn =
    rotation === null
      ? null
      : rotateOneText({
          name: 'queries',
          headDim,
          value: 'v * signs',
          array: `turned${plan.own}`,
          matrix: (i) => tableWord(keys, keyNumbers, `${rotation}u + ${i}`),
          inverse: false,
        });
  const turnQuery =
    turn === null
      ? ''
      : `${turn.transform}
      v = ${turn.value};`;
  const apart = ({ store }: StoreText, base: string, before: string, where: string): string =>
    `else ${where}{
      let kv = head - heads${before};
      let block = entry - ${base};
      ${store}
    }`;
  const [keyBase, valueBase] = [`${rows.keyBase}u`, `${rows.valueBase}u`];
  const stored = alike
    ? [apart(storeKey, of(valueBase, keyBase), ' - select(0u, kv_heads, is_v)', '')]
    : latent
      ? [apart(storeKey, keyBase, '', '')]
      : [apart(storeValue, valueBase, ' - kv_heads', 'if (is_v) '), apart(storeKey, keyBase, '', '')];
  const { head } = rows;
  /** Of a head's positions the side that is float anyway is stored as ever. */
  const beforeHead = (
    side: typeof keys | typeof values,
    numbers: typeof keyNumbers,
    { store }: StoreText,
    base: string,
  ): string => {
    const first = headFirst(side.name, head!);
    if (first === null) return `let block = entry - ${base}; ${store}`;
    return `let block = entry - ${(rows.border - first) >>> 0}u;
      ${headStoreText(side, head!, numbers, { array: `turned${plan.own}`, active: `${plan.heads === 1 ? '' : 'here && '}lid < vectors` })}`;
  };
  const stores =
    head === undefined
      ? stored
      : [
          `else if (token.z < ${head.tokens}u) {
    ${latent ? '' : `if (is_v) { let kv = head - heads - kv_heads; ${beforeHead(values, valueNumbers, storeText(values, valueNumbers, plan, 'token.z'), valueBase)} } else`}
    { let kv = head - heads; ${beforeHead(keys, keyNumbers, storeText(keys, keyNumbers, plan, 'token.z'), keyBase)} }
  }`,
          ...stored,
        ];
  const newest = (side: typeof keys | typeof values, numbers: typeof keyNumbers): string =>
    headStoreText(side, tail!, numbers, {
      array: `turned${plan.own}`,
      active: `${plan.heads === 1 ? '' : 'here && '}lid < vectors`,
      to: tailRole(side.name),
    });
  const newestStores = (): string => `{
    let block = entry;
    ${latent ? '' : `if (is_v) { let kv = head - heads - kv_heads; ${newest(values, valueNumbers)} } else`}
    { let kv = head - heads; ${newest(keys, keyNumbers)} }
  }`;
  const lanes = storeLanes(plan);
  const sides = shape.queriesOnly === true ? 0 : latent ? 1 : 2;
  const queryUnits = Math.ceil(heads / plan.heads);
  // Of a tail there are no units of queries.
  const unit = tail === null ? 'wid.x' : `(wid.x + ${plan.heads === 1 ? 'heads' : 'q_units'})`;
  const units =
    plan.heads === 1
      ? `let is_q = ${unit} < heads;
  let is_v = ${unit} >= heads + kv_heads;
  let head = ${unit};
  let active_ = lid < vectors;`
      : `let q_units = (heads + 1u) / 2u;
  let kv_units = (kv_heads + 1u) / 2u;
  let is_q = ${unit} < q_units;
  let is_v = ${unit} >= q_units + kv_units;
  var of_kind = ${unit} * 2u + half_;
  var head = of_kind;
  if (!is_q) {
    of_kind -= 2u * (q_units + select(0u, kv_units, is_v));
    head = heads + select(0u, kv_heads, is_v) + of_kind;
  }
  let here = of_kind < select(kv_heads, heads, is_q);
  let active_ = here && lid < vectors;`;
  const ofQueries = turn === null ? '' : `if (is_q) { signs = ${signsText(keys, keyNumbers)}; }`;
  const ofKeys =
    storeKey.fetch === '' ? '' : `if (${turn === null ? '!is_q && ' : ''}!is_v) { ${storeKey.fetch} }`;
  const tables =
    tail !== null
      ? []
      : [
          latent || storeValue.fetch === '' ? '' : `if (is_v) { ${storeValue.fetch} }`,
          [ofQueries, ofKeys].filter(Boolean).join(' else '),
        ].filter(Boolean);
  const wgsl = `${declareBindings(bindings)}
${STEP_WGSL}
${KV_WGSL}
${storeWgsl(plan, formats)}
${rope === null ? '' : ownArray(plan, 'whole', vectorTurn === null ? `array<f32, ${4 * wide}>` : `array<vec4<f32>, ${wide}>`)}
${rope === null || vectorTurn !== null ? '' : rotationWgsl(rope.style, text.pairs, whole)}
${rope?.axes === undefined ? '' : `${STEP_ROTARY_WGSL}${axesWgsl(rope.axes)}\n`}${given?.wgsl ?? ''}
${tail !== null ? '' : storeKey.declarations}
${tail !== null || alike || latent ? '' : storeValue.declarations}
@compute @workgroup_size(${plan.threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, ${GROUPS_PARAMETER},
        ${lanes.parameter}) {
  ${lanes.text}
  let heads = ${text.heads};
  let kv_heads = ${text.kvHeads};
  let vectors = ${text.vectors};
  let row = wid.y + wid.z * 65535u;
  if (row >= step[0].x) { return; }
  // Queries first, then keys, then values.
  ${units}
  // On its way while the token's place in the cache is looked up.
  let before = row * (heads + ${others});
  var v = vec4<f32>(0.0);
  if (active_) { v = ${fetch('head')}; }
  ${tables.length === 0 ? '' : `${storeVariables(plan, formats)}\n  ${tables.join('\n  ')}`}
  let token = step_token(row);${rope?.axes === undefined ? '' : '\n  let places = step_rotary(row);'}
  ${rowsSkipped(rows, text.maxBlocks, 'token.y')}
  let entry = tables[token.y * ${text.maxBlocks} + token.z / ${shape.blockTokens}u];
  let token_at = token.z % ${shape.blockTokens}u;
  ${vectorTurn?.angles ?? ''}
  ${normAfter ? rotate : norm}
  ${normAfter ? norm : rotate}
  ${centreKey}
  ${
    tail !== null
      ? newestStores()
      : `if (is_q) {
    ${grow}
    ${scaleQuery}
    ${turnQuery}
    if (active_) { out[(row * heads + head) * vectors + lid] = v; }
  } ${stores.join(' ')}`
  }
}`;
  const workgroups = (tail === null ? queryUnits : 0) + sides * Math.ceil(kvHeads / plan.heads);
  return {
    stages: [
      {
        label: `rope-append ${heads}/${kvHeads}×${headDim}${latent ? ' latents' : ''}${rowsName(rows)}${sums === null ? '' : ` of split-k ${sums.splitK}`}`,
        wgsl,
        bindings,
        params: p.words,
        workgroups: (facts, out) => {
          out[0] = workgroups;
          out[1] = Math.min(facts.tokens, 65535);
          out[2] = Math.ceil(facts.tokens / 65535);
        },
      },
    ],
  };
}
