/** Runs of columns put side by side (`columns` of graph.ts). A thread four columns. */

import type { NodeOf, Tensor } from '../../graph.js';
import { type Binding, declareBindings, type Kernel } from '../kernel.js';
import { rowCount, STEP_BINDING } from '../step-buffer.js';

const THREADS = 64;

/** The inputs of a node, each once. They are bound as `x0`, `x1` and so on. */
export function columnsInputs({ parts }: Pick<NodeOf<'columns'>, 'parts'>): readonly Tensor[] {
  return [...new Set(parts.map(({ x }) => x))];
}

export function columnsKernel(node: Pick<NodeOf<'columns'>, 'parts' | 'out'>): Kernel {
  const { parts, out } = node;
  const inputs = columnsInputs(node);
  const read = (_: Tensor, i: number): Binding => ({
    name: `x${i}`,
    access: 'read',
    type: 'array<vec4<f32>>',
  });
  const bindings: Binding[] = [
    STEP_BINDING,
    ...inputs.map(read),
    { name: 'out', access: 'read_write', type: 'array<vec4<f32>>' },
  ];
  const width = out.cols / 4;
  const one = ({ x, from, to, cols, count, fromStep, toStep }: (typeof parts)[number]): string => `
  if (c >= ${to / 4}u) {
    let head = (c - ${to / 4}u) / ${toStep / 4}u;
    let d = (c - ${to / 4}u) % ${toStep / 4}u;
    if (head < ${count}u && d < ${cols / 4}u) {
      value = x${inputs.indexOf(x)}[row * ${x.cols / 4}u + ${from / 4}u + head * ${fromStep / 4}u + d];
    }
  }`;
  const wgsl = `${declareBindings(bindings)}
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lid: u32) {
  let row = wid.y + wid.z * 65535u;
  let c = wid.x * ${THREADS}u + lid;
  if (row >= ${rowCount(out.rows)} || c >= ${width}u) { return; }
  var value = vec4<f32>(0.0);${parts.map(one).join('')}
  out[row * ${width}u + c] = value;
}`;
  return {
    stages: [
      {
        label: `columns ${out.cols}`,
        wgsl,
        bindings,
        workgroups: (counts, to) => {
          const rows = counts[out.rows];
          to[0] = Math.ceil(width / THREADS);
          to[1] = Math.min(rows, 65_535);
          to[2] = Math.ceil(rows / 65_535);
        },
      },
    ],
  };
}
