/**
 * Causal convolution by channel (`short-conv` of graph.ts): a thread a token and four channels, and a second launch that takes the
 * newest inputs into the state when all have read it. A sum goes from the oldest tap on, whatever was computed in which step.
 */

import type { NodeOf } from '../../graph.js';
import { stateBytes } from '../../state.js';
import { type Binding, declareBindings, type Kernel, type Stage } from '../kernel.js';
import type { LayerState } from '../layer-caches.js';
import { STEP_BINDING, STEP_WGSL } from '../step-buffer.js';
import { activationWgsl } from './elementwise.js';

const THREADS = 64;
const MAX_Y = 65535;

const F32X4 = 'array<vec4<f32>>';
const read = (name: string, type: string = F32X4): Binding => ({ name, access: 'read', type });

export function shortConvKernel(
  {
    x,
    from,
    taps,
    gated,
    activation,
    bias,
    out,
  }: Pick<NodeOf<'short-conv'>, 'x' | 'from' | 'taps' | 'gated' | 'activation' | 'bias' | 'out'>,
  { shape, maxBlocksPerSlot }: Pick<LayerState, 'shape' | 'maxBlocksPerSlot'>,
): Kernel {
  const channels = out.cols / 4;
  const width = Math.ceil(x.cols / 4);
  const helpers = `${STEP_WGSL}
fn state_at(slot: u32) -> u32 { return tables[slot * ${maxBlocksPerSlot}u] * ${stateBytes(shape) / 16}u; }
fn input_of(token: u32, c: u32) -> vec4<f32> {
  let at = token * ${width}u + ${from / 4}u + c;
  return ${gated ? `x[at] * x[at + ${2 * channels}u]` : 'x[at]'};
}`;
  const label = `short-conv ${taps} taps [${out.cols}]`;
  const tables = read('tables', 'array<u32>');
  const sums: readonly Binding[] = [
    STEP_BINDING,
    read('x'),
    read('weight'),
    ...(bias === null ? [] : [read('bias')]),
    tables,
    read('state'),
    { name: 'out', access: 'read_write', type: F32X4 },
  ];
  const act = activation === null ? '' : 'sum = vec4<f32>(act(sum.x), act(sum.y), act(sum.z), act(sum.w));';
  const convolve: Stage = {
    label,
    bindings: sums,
    wgsl: `${declareBindings(sums)}
${helpers}
${activation === null ? '' : activationWgsl(activation)}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let token = wid.y + wid.z * ${MAX_Y}u;
  let c = wid.x * ${THREADS}u + lid;
  if (token >= step[0].x || c >= ${channels}u) { return; }
  let own = step_token(token);
  let states = state_at(own.y);
  var sum = ${bias === null ? 'vec4<f32>(0.0)' : 'bias[c]'};
  for (var j = 0u; j < ${taps}u; j++) {
    let back = ${taps - 1}u - j;
    if (back > own.z) { continue; }
    // Tokens of a sequence lie together, and no other has its slot.
    var u: vec4<f32>;
    var here = token >= back;
    if (here) { here = step_token(token - back).y == own.y; }
    if (here) { u = input_of(token - back, c); }
    else {
      // How many of the sequence are before this one in the step: the newest of the state is just before them.
      var before = 0u;
      while (before < back && token > before && step_token(token - before - 1u).y == own.y) { before++; }
      u = state[states + (${taps - 1}u + before - back) * ${channels}u + c];
    }
    sum = fma(weight[j * ${channels}u + c], u, sum);
  }
  ${act}
  out[token * ${channels}u + c] = ${gated ? `sum * x[token * ${width}u + ${from / 4 + channels}u + c]` : 'sum'};
}`,
    workgroups: ({ tokens }, to) => {
      to[0] = Math.ceil(channels / THREADS);
      to[1] = Math.min(tokens, MAX_Y);
      to[2] = Math.ceil(tokens / MAX_Y);
    },
  };
  const keeps: readonly Binding[] = [
    STEP_BINDING,
    read('x'),
    tables,
    { name: 'state', access: 'read_write', type: F32X4 },
  ];
  const keep: Stage = {
    label: `${label}, state`,
    bindings: keeps,
    wgsl: `${declareBindings(keeps)}
${helpers}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let c = wid.x * ${THREADS}u + lid;
  if (wid.y >= step[0].z || c >= ${channels}u) { return; }
  let own = step_sequence(wid.y);
  let states = state_at(own.w);
  for (var j = 0u; j < ${taps - 1}u; j++) {
    // Place j of the new state is input length + j − (taps − 1) of the step, or place length + j of the old state.
    let at = own.y + j;
    var u = vec4<f32>(0.0);
    if (at >= ${taps - 1}u) { u = input_of(own.x + at - ${taps - 1}u, c); }
    else if (own.z > 0u) { u = state[states + at * ${channels}u + c]; }
    state[states + j * ${channels}u + c] = u;
  }
}`,
    workgroups: ({ sequences }, to) => {
      to[0] = Math.ceil(channels / THREADS);
      to[1] = sequences;
      to[2] = 1;
    },
  };
  return { stages: [convolve, keep] };
}
