/** Norms that a product leaves for the next one, resolved with buffers that are names: which products do, and who reads what. */
import { describe, expect, it } from 'vitest';

import { LARGE } from '../../../test/devices/large-gpu.js';
import { type Recorded, record } from '../../../test/devices/run.js';
import { bucketOf, resourcesOf, vector, weights } from '../../../test/setup/named-buffers.js';
import type { NodeOf, Tensor } from '../graph.js';
import type { Ops } from '../ops.js';
import type { LinearShape } from './kernel.js';
import { linearKey } from './kernels/linear-choice.js';
import { ruleForLinear } from './kernels/linear-fast.js';
import type { MatrixGemmConfig } from './kernels/linear-matrix-plan.js';
import { fusionOf, linearWork } from './linear-work.js';
import type { GpuMatrix, GpuVector } from './matrix.js';
import { resolveNode } from './resolve.js';
import { normsOn } from './resolve-linear.js';
import type { Bound } from './resources.js';
import { TunedChoices } from './tuning/tuned-choices.js';

const HIDDEN = 1024;
const INNER = 3072;
const EPS = 1e-6;

const normed = (ops: Ops, x: Tensor): Tensor => ops.rmsNorm(x, vector(x.cols), EPS);
/** A gated MLP with its norm and residual. */
function mlp(ops: Ops, x: Tensor, of: Tensor = normed(ops, x), down = weights(HIDDEN, INNER)): Tensor {
  return ops.linear(ops.glu(ops.linear(of, weights(2 * INNER, HIDDEN)), 'silu'), down, x);
}

/**
 * Resolves a whole step and walks its launches: whoever reads `scratchHalves` finds there the halves of its own x, normed as it would
 * have them, from all rows of as many numbers as it reads. Answers with the labels of all launches.
 */
function walked(recorded: Recorded<unknown>, rows: number, capabilities = LARGE): string[] {
  const r = resourcesOf(recorded, capabilities);
  const bucket = bucketOf(rows);
  const labels: string[] = [];
  let left = 'nothing';
  const content = (x: GPUBuffer | undefined, norm: GPUBuffer | undefined, cols: number): string =>
    `${x!.label}, ${norm === undefined ? 'as it is' : `normed by ${norm.label}`}, ${cols}`;
  const readAndLeft = (bound: Bound, wanted: string): void => {
    for (const stage of bound.kernel.stages) {
      labels.push(stage.label);
      const of = (role: string) => stage.bindings.find(({ name }) => name === role);
      const halves = of('scratchHalves');
      if (halves?.access === 'read') expect(left, stage.label).toBe(wanted);
      if (halves?.access !== 'read_write') continue;
      const { x, norm, out, outNorm } = bound.buffers;
      const cols = Number(/\[(\d+)\]$/.exec(stage.label)![1]);
      expect(bound.kernel.scratch!.scratchHalves).toBeGreaterThanOrEqual(rows * cols * 2);
      if (of('outNorm') !== undefined) {
        expect(of('out')!.access).toBe('read_write');
        left = content(out, outNorm, cols);
      } else left = content(x, of('norm') && norm, cols);
    }
  };
  for (const node of recorded.graph.nodes)
    for (const bound of resolveNode(node, bucket, r)) {
      if (node.op !== 'linear') expect(JSON.stringify(bound.kernel)).not.toContain('scratchHalves');
      if (node.op !== 'linear') continue;
      const { norm } = fusionOf(node, bucket, r);
      const gain = norm === null ? undefined : (norm.weight as GpuVector).buffer;
      readAndLeft(bound, content(r.tensor((norm ?? node).x), gain, node.x.cols));
    }
  return labels;
}
const fused = (labels: readonly string[]): number =>
  labels.filter((label) => /^split-k \d+, rms-norm to halves/.test(label)).length;
const count = (labels: readonly string[], what: RegExp): number =>
  labels.filter((label) => what.test(label)).length;

describe('a product whose result goes through a norm to the next product', () => {
  const two = record((ops) => {
    const x = ops.input('tokens', HIDDEN);
    return { y: ops.keep(mlp(ops, mlp(ops, mlp(ops, x)))) };
  });

  it.each([
    [1, 0],
    [4, 0],
    [8, 0],
    // So few rows of a small model have tiles enough along K.
    [16, 0],
    [17, 2],
    [32, 2],
    [64, 2],
    [512, 0],
  ])('of %i rows norms it where slices of K are put together: %i of two', (rows, pairs) => {
    const labels = walked(two, rows);
    const splitK = count(labels, /^split-k/);
    expect(fused(labels)).toBe(pairs);
    // The last has no norm behind it, and the first norm no product before it.
    expect(splitK).toBe(pairs === 0 ? 0 : 3);
    if (rows <= 8) return;
    expect(count(labels, /^rms-norm to halves/)).toBe(3 - pairs);
    expect(labels).toHaveLength(3 * 2 + splitK + 3 - pairs);
  });

  it('binds the weights of the norm, and writes the stream that others read', () => {
    const r = resourcesOf(two);
    const linears = two.graph.nodes.filter((node) => node.op === 'linear');
    const norms = two.graph.nodes.filter((node) => node.op === 'rms-norm');
    const [down] = resolveNode(linears[1]!, bucketOf(32), r);
    expect(normsOn(linears[1], bucketOf(32), r)).toEqual({ norm: norms[1], form: 'halves' });
    expect(down!.buffers.outNorm).toBe((norms[1]!.weight as GpuVector).buffer);
    expect(down!.buffers.out).toBe(r.tensor(linears[1]!.out));
    expect(normsOn(linears[5], bucketOf(32), r)).toBeNull();
    expect(normsOn(undefined, bucketOf(32), r)).toBeNull();
  });

  it('does so with a bias, and without a residual', () => {
    const biased = record((ops) => {
      const x = ops.input('tokens', HIDDEN);
      const y = mlp(ops, x, undefined, weights(HIDDEN, INNER, [0], true));
      const z = ops.linear(normed(ops, y), weights(HIDDEN, HIDDEN));
      return { y: ops.keep(mlp(ops, z)) };
    });
    const labels = walked(biased, 32);
    expect(fused(labels)).toBe(2);
  });

  it('does not where a kernel would not see whole rows, nor where one of the readers takes no halves', () => {
    const pair = (producer: GpuMatrix, consumer: GpuMatrix) =>
      record((ops) => {
        const x = ops.input('tokens', INNER);
        return { y: ops.keep(ops.linear(normed(ops, ops.linear(x, producer)), consumer)) };
      });
    const whole = weights(HIDDEN, INNER);
    const fusedOf = (producer: GpuMatrix, consumer: GpuMatrix, capabilities = LARGE): number =>
      fused(walked(pair(producer, consumer), 32, capabilities));
    expect(fusedOf(whole, weights(2048, HIDDEN))).toBe(1);
    // Both of two shards read what is left once.
    expect(fusedOf(whole, weights(2048, HIDDEN, [0, 512]))).toBe(1);
    expect(fusedOf(weights(HIDDEN, INNER, [0, 512]), weights(2048, HIDDEN))).toBe(0);
    expect(fusedOf(whole, weights(2048, HIDDEN), { ...LARGE, f16: false })).toBe(0);
    expect(fusedOf(whole, weights(2048, HIDDEN), { ...LARGE, deterministic: true })).toBe(0);
    // Four outputs to a thread, or no slices.
    expect(fusedOf(weights(1088, INNER), weights(2048, 1088))).toBe(1);
    expect(fusedOf(weights(1090, INNER), weights(2048, 1090))).toBe(0);
  });

  it('does not where the norm is wanted by itself, or twice, or of outputs alone', () => {
    const behind = (build: (ops: Ops, y: Tensor) => Tensor[]) =>
      walked(
        record((ops) => {
          const y = mlp(ops, ops.input('tokens', HIDDEN));
          for (const z of build(ops, y)) ops.keep(z);
        }),
        32,
      );
    const linear = (ops: Ops, of: Tensor): Tensor => ops.linear(of, weights(2048, HIDDEN));
    expect(fused(behind((ops, y) => [linear(ops, normed(ops, y))]))).toBe(1);
    // The stream is read by whoever will, and kept.
    expect(fused(behind((ops, y) => [y, ops.add(linear(ops, normed(ops, y)), linear(ops, y))]))).toBe(1);
    const kept = behind((ops, y) => {
      const of = normed(ops, y);
      return [of, linear(ops, of)];
    });
    expect([fused(kept), count(kept, /^rms-norm to halves/)]).toEqual([0, 1]);
    const shared = behind((ops, y) => {
      const of = normed(ops, y);
      return [linear(ops, of), linear(ops, of)];
    });
    expect(fused(shared)).toBe(0);
    expect(fused(behind((ops, y) => [linear(ops, normed(ops, ops.selectOutputs(y)))]))).toBe(0);
    expect(fused(behind((ops, y) => [linear(ops, normed(ops, ops.add(y, y)))]))).toBe(0);
  });

  it('leaves it for the very next product alone: any other would write over it', () => {
    const between = record((ops) => {
      const y = mlp(ops, ops.input('tokens', HIDDEN));
      const other = ops.linear(y, weights(HIDDEN, HIDDEN));
      return { z: ops.keep(ops.linear(normed(ops, y), weights(2048, HIDDEN))), other: ops.keep(other) };
    });
    expect(fused(walked(between, 32))).toBe(0);
    // Attention and an MLP side by side, each with a norm of its own: the first has it handed, the other makes its own.
    const beside = record((ops) => {
      const y = mlp(ops, ops.input('tokens', HIDDEN));
      const [one, two] = [normed(ops, y), normed(ops, y)];
      const a = ops.linear(ops.linear(one, weights(2048, HIDDEN)), weights(HIDDEN, 2048), y);
      return { z: ops.keep(mlp(ops, a, two)) };
    });
    const labels = walked(beside, 32);
    expect(fused(labels)).toBe(1);
    expect(count(labels, /^rms-norm to halves/)).toBe(2);
  });

  it('follows what either product was tuned to', () => {
    const linears = two.graph.nodes.filter((node): node is NodeOf<'linear'> => node.op === 'linear');
    const shapeOf = (node: NodeOf<'linear'>): LinearShape =>
      linearWork(node, bucketOf(32), resourcesOf(two))[0]!.shape;
    const down = shapeOf(linears[1]!);
    const rule = ruleForLinear(LARGE, down);
    if (rule?.family !== 'matrices') throw new Error('matrices are wanted');
    const { splitK: _, ...config } = rule.config;
    const tunedTo = (sizes: MatrixGemmConfig): string[] => {
      const tuned = new TunedChoices();
      tuned.adoptLinear(linearKey(down), { family: 'matrices', config: sizes });
      return walked(two, 32, { ...LARGE, tuned });
    };
    expect(fused(tunedTo({ ...config, splitK: 2 }))).toBe(2);
    const without = tunedTo(config);
    expect(fused(without)).toBe(0);
    // What is not in slices costs no launch more: that of the norm is there again, that of the slices is not.
    expect(without).toHaveLength(9);
    expect(walked(two, 32)).toHaveLength(9 + 1);
  });
});
