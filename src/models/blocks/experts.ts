/**
 * A mixture of experts in the place of an MLP: a router gives each token to a few of many gated MLPs, whose results are weighed and
 * added up. Beside them a shared one may see every token.
 *
 * Publishers store experts in three ways, and all are read: each matrix by itself (`experts.3.up_proj.weight`), gate, up and down of all
 * experts as three stacks (MLX: `switch_mlp.up_proj.weight`), or two, gate beside up (`experts.gate_up_proj`).
 */

import type { Vector } from '../../device/device.js';
import type { Activation, ExpertActivation, RouteSpec, Tensor } from '../../device/graph.js';
import type { ExpertStack, StackedRows } from '../layout.js';
import type { LayerLayout, LayerPart } from './layout-builder.js';
import type { Layer } from './stack.js';

/** What an expert's matrices are called. */
export interface ExpertNames {
  /** What all of it stands below: `mlp`. */
  readonly block: string;
  /** In full. Default: `gate` below the block. */
  readonly router?: string;
  /** Default: `gate_proj`, `up_proj` and `down_proj`. */
  readonly matrices?: readonly [gate: string, up: string, down: string];
  /** Where stacks of gate, up and down (0, 1, 2) are, below `layers.N.`, and the rows of an expert in them. Default: as MLX and the hub have them. */
  readonly stacks?: (matrix: 0 | 1 | 2, expert: number, sizes: StackSizes) => readonly StackedRows[];
  /** There is no gate: gate and up, of one name, are the same rows, which are held twice. With `relu` an expert is then one of relu². Default false. */
  readonly ungated?: boolean;
  /** The router and all matrices have biases. Default: none has. */
  readonly biased?: boolean;
}

export interface StackSizes {
  readonly experts: number;
  /** Of the matrix, in one expert. */
  readonly rows: number;
}

export interface ExpertSizes {
  readonly experts: number;
  /** Experts that a token is given to. */
  readonly chosen: number;
  readonly intermediateSize: number;
}

const MLX_NAMES = ['gate_proj', 'up_proj', 'down_proj'] as const;

/** The router, and the experts as two stacks. `routedSize`: columns that the router reads, where they are not the experts'. */
export function expertWeights(
  at: LayerLayout,
  hiddenSize: number,
  { experts, chosen, intermediateSize }: ExpertSizes,
  names: ExpertNames,
  routedSize = hiddenSize,
): void {
  const { block, router = `${block}.gate`, matrices = MLX_NAMES, stacks, biased: bias = false } = names;
  const { ungated = false } = names;
  at.matrix('mlp', 'router', routedSize, [{ tensor: router, rows: experts, bias }], { float: true });
  const stack: ExpertStack = { count: experts, chosen };
  const within = stacks ?? stacksOf(`${block}.switch_mlp`, `${block}.experts`);
  const part = (expert: number, name: 0 | 1 | 2, rows: number): LayerPart => ({
    tensor: `${block}.experts.${expert}.${matrices[name]}`,
    rows,
    bias,
    within: within(name, expert, { experts, rows }),
  });
  const all = Array.from({ length: experts }, (_, expert) => expert);
  at.matrix(
    'experts',
    'expert-gate-up',
    hiddenSize,
    all.flatMap((expert) => [
      part(expert, 0, intermediateSize),
      { ...part(expert, 1, intermediateSize), ...(ungated && { again: true }) },
    ]),
    { experts: stack },
  );
  at.matrix(
    'experts',
    'expert-down',
    intermediateSize,
    all.map((expert) => part(expert, 2, hiddenSize)),
    { experts: stack },
  );
}

/** Three stacks below `apart` (MLX), or two below `joined`, gate beside up, as rows or as columns. */
export function stacksOf(apart: string, joined: string): NonNullable<ExpertNames['stacks']> {
  return (name, expert, { experts: stack, rows }) => {
    const one = { stack, rows: stack * rows, first: expert * rows };
    const beside =
      name === 2
        ? { name: `${joined}.down_proj`, ...one }
        : {
            name: `${joined}.gate_up_proj`,
            stack,
            rows: 2 * stack * rows,
            first: (2 * expert + name) * rows,
          };
    return [
      { name: `${apart}.${MLX_NAMES[name]}.weight`, ...one },
      beside,
      // Qwen3-VL-MoE. Which of the two it is, its shape says.
      { ...beside, transposed: true },
    ];
  };
}

/** What is added to scores where experts are chosen. `tensor`: its name in full. */
export function routerBias(at: LayerLayout, tensor: string, shape: readonly number[]): void {
  at.vector('router-bias', [{ name: tensor, shape }]);
}

export interface RouteOptions extends Omit<RouteSpec, 'k' | 'bias' | 'expertScales'> {
  /** The layer has a {@link routerBias}. */
  readonly bias: boolean;
}

/** What differs from layer to layer, and what few families have. */
export interface MixedOptions {
  /** Default: nothing is added. */
  readonly sum?: Tensor | null;
  /** What the router reads. Default: what the experts do. */
  readonly routed?: Tensor;
  readonly expertScales?: Vector | null;
}

/** `sum + Σ weight · expert(normed)` over the experts chosen for each token. */
export function mixed(
  at: Layer,
  normed: Tensor,
  { experts, chosen }: Pick<ExpertSizes, 'experts' | 'chosen'>,
  { bias, ...rule }: RouteOptions,
  activation: ExpertActivation,
  { sum = null, routed = normed, expertScales = null }: MixedOptions = {},
): Tensor {
  const logits = at.ops.linear(routed, at.matrix('router'), null, true);
  const biases = bias ? at.vector('router-bias') : null;
  const route = at.ops.route(logits, { ...rule, k: chosen, bias: biases, expertScales });
  return at.ops.experts(normed, route, {
    count: experts,
    gateUp: at.matrix('expert-gate-up'),
    down: at.matrix('expert-down'),
    activation,
    residual: sum,
  });
}

/** `<block>.{gate,up,down}_proj` of an expert that sees every token. `gate`: the name of what it is weighed by, null for nothing. */
export function sharedExpertWeights(
  at: LayerLayout,
  hiddenSize: number,
  intermediateSize: number,
  block: string,
  gate: string | null = null,
): void {
  const stack = gate === null ? {} : { experts: { count: 1, chosen: 1 } };
  const [gateName, up, down] = MLX_NAMES.map((name) => `${block}.${name}`) as [string, string, string];
  at.matrix(
    'mlp',
    'shared-gate-up',
    hiddenSize,
    [
      { tensor: gateName, rows: intermediateSize },
      { tensor: up, rows: intermediateSize },
    ],
    stack,
  );
  at.matrix('mlp', 'shared-down', intermediateSize, [{ tensor: down, rows: hiddenSize }], stack);
  if (gate !== null)
    at.matrix('mlp', 'shared-gate', hiddenSize, [{ tensor: gate, rows: 1 }], { float: true });
}

/** `sum + shared(normed)`. */
export function shared(at: Layer, normed: Tensor, sum: Tensor, activation: Activation): Tensor {
  return at.linear(at.ops.glu(at.linear(normed, 'shared-gate-up'), activation), 'shared-down', sum);
}

/** `sum + σ(gate · normed) · shared(normed)`: one expert to whom every token is given with that weight. */
export function gatedShared(at: Layer, normed: Tensor, sum: Tensor, activation: Activation): Tensor {
  const logit = at.ops.linear(normed, at.matrix('shared-gate'), null, true);
  const rule = { k: 1, score: 'sigmoid', bias: null, groups: null, normalise: null, scale: 1 } as const;
  return at.ops.experts(normed, at.ops.route(logit, rule), {
    count: 1,
    gateUp: at.matrix('shared-gate-up'),
    down: at.matrix('shared-down'),
    activation,
    residual: sum,
  });
}
