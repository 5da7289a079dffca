import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LARGE } from '../../../../test/devices/large-gpu.js';
import { Random, worstRow } from '../../../../test/devices/numbers.js';
import { casesOf } from '../../../../test/setup/every-case.js';
import { linearInputs, Q4, shapeOf } from '../../../../test/setup/linear-inputs.js';
import { runKernel } from '../../../../test/setup/run-kernel.js';
import { openTestDevice } from '../../../../test/setup/swiftshader.js';
import type { WebGpuDevice } from '../device.js';
import { type Capabilities, chooseVariant, type Kernel, type LinearShape } from '../kernel.js';
import {
  type LinearChoice,
  linearKernel,
  linearKey,
  linearName,
  linearOrder,
} from '../kernels/linear-choice.js';
import { ruleForLinear } from '../kernels/linear-fast.js';
import { linearVariants } from '../kernels/registry.js';
import { factsOf } from './bench.js';
import { linearCandidates } from './linear-candidates.js';
import { TunedChoices } from './tuned-choices.js';

const SMALL: Capabilities = {
  ...LARGE,
  f16: false,
  matrices: [],
  workgroupBytes: 16384,
  workgroupThreads: 256,
};

describe('candidates of a product', () => {
  const norm = { eps: 1e-6 };
  const shapes = [1, 2, 3, 4, 8, 16, 32, 64, 128, 512, 2048].flatMap((rows) => [
    shapeOf(rows, 4096, 1024, { norm }),
    shapeOf(rows, 1024, 3072, { residual: true }),
    shapeOf(rows, 28672, 4096, { norm, glu: 'silu' }),
    shapeOf(rows, 4096, 14336, { residual: true }),
    shapeOf(rows, 130, 96, { weight: { ...Q4, bits: 3, groupSize: 32 } }),
    shapeOf(rows, 512, 256, { weight: { kind: 'float', dtype: 'bf16' }, bias: true }),
  ]);

  it.each([
    ['a large GPU', LARGE],
    ['a GPU with little workgroup memory and no matrices', SMALL],
  ])('begin with the choice by rule, are told apart by name and fit %s', (_, capabilities) => {
    let most = 0;
    for (const shape of shapes) {
      const candidates = linearCandidates(capabilities, shape);
      const rule = ruleForLinear(capabilities, shape);
      if (rule === null) {
        expect(candidates).toEqual([]);
        continue;
      }
      most = Math.max(most, candidates.length);
      expect(candidates[0]).toEqual({ id: linearName(rule), choice: rule, neutral: true });
      expect(new Set(candidates.map((c) => c.id)).size).toBe(candidates.length);
      const order = linearOrder(capabilities, shape, rule);
      for (const { choice, neutral } of candidates) {
        expect(linearOrder(capabilities, shape, choice) === order).toBe(neutral);
        expect(linearKernel(capabilities, shape, choice).stages.at(-1)!.wgsl).toContain('fn main(');
      }
    }
    expect(most).toBeGreaterThan(10);
  });

  it('offer what measurements point at: x in fewer registers or as bytes at four rows, more and smaller tiles at 512', () => {
    const gateUp = shapeOf(4, 28672, 4096, { norm, glu: 'silu' });
    const memory = (kernel: Kernel): number => {
      const arrays = kernel.stages.at(-1)!.wgsl.matchAll(/var<workgroup> \w+: array<(vec4<)?\w+>?, (\d+)>/g);
      return [...arrays].reduce((sum, [, wide, count]) => sum + Number(count) * (wide ? 16 : 4), 0);
    };
    const lean = linearCandidates(LARGE, gateUp).filter(
      ({ choice }) => choice.family === 'skinny' && memory(linearKernel(LARGE, gateUp, choice)) <= 9 * 1024,
    );
    expect(lean.length).toBeGreaterThan(1);
    const words = linearCandidates(LARGE, gateUp).map(({ choice }) =>
      choice.family === 'resident' ? choice.config.words : 0,
    );
    expect(words).toContain(1);
    const families = linearCandidates(LARGE, gateUp).map(({ choice }) => choice.family);
    expect(families).toContain('dp4a');
    const narrow = shapeOf(512, 1024, 2048, { residual: true });
    const tiles = linearCandidates(LARGE, narrow).map(({ choice, neutral }) => {
      const out: [number, number, number] = [0, 0, 0];
      linearKernel(LARGE, narrow, choice).stages.at(-1)!.workgroups(factsOf(512), out);
      return neutral ? out[0] * out[1] : 0;
    });
    expect(Math.max(...tiles)).toBeGreaterThanOrEqual(256);
  });

  it('are what programs take once they are adopted, for their shape alone', () => {
    const shape = shapeOf(4, 28672, 4096, { norm, glu: 'silu' });
    const labelOf = (capabilities: Capabilities, of: LinearShape) => {
      const variant = chooseVariant(linearVariants, capabilities, of)!;
      return `${variant.name} ${variant.build(capabilities, of).stages.at(-1)!.label}`;
    };
    const before = new Map(shapes.map((s) => [linearKey(s), labelOf(LARGE, s)]));
    const candidates = linearCandidates(LARGE, shape);
    const families = new Set(candidates.map(({ choice }) => choice.family));
    expect([...families].sort()).toEqual(['dp4a', 'gemv', 'resident', 'skinny']);
    for (const family of families) {
      const { choice } = candidates.findLast((c) => c.choice.family === family)!;
      const choices = new TunedChoices();
      choices.adoptLinear(linearKey(shape), choice);
      const tuned = { ...LARGE, tuned: choices };
      const { label } = linearKernel(LARGE, shape, choice).stages.at(-1)!;
      expect(labelOf(tuned, shape)).toBe(`${family} ${label}`);
      expect(labelOf(tuned, { ...shape, rowKind: 'outputs' })).toBe(`${family} ${label}`);
      for (const other of shapes.filter((s) => linearKey(s) !== linearKey(shape)))
        expect(labelOf(tuned, other)).toBe(before.get(linearKey(other)));
    }
  });

  it('are none where results must not depend on the rows', () => {
    for (const shape of shapes)
      expect(linearCandidates({ ...LARGE, deterministic: true }, shape)).toEqual([]);
  });
});

const FAMILIES = ['gemv', 'resident', 'skinny', 'dp4a', 'matrices'] as const;
/** What may be lost, by row and in the norm: x as one byte loses what bytes do. */
const boundOf = ({ family, config }: LinearChoice): number =>
  family === 'dp4a' && config.planes === 1 ? 1e-2 : 2e-4;

describe('candidates on a device', () => {
  let device: WebGpuDevice;
  let raw: GPUDevice;
  beforeAll(async () => {
    ({ device, raw } = await openTestDevice({ minLanes: 4 }));
  });
  afterAll(async () => {
    await device[Symbol.asyncDispose]();
  });

  const shapes = casesOf<[string, LinearShape]>(
    [
      ['one row, a residual', shapeOf(1, 40, 256, { residual: true, weight: { ...Q4, bits: 8 } })],
      ['two rows, a norm and a glu', shapeOf(2, 96, 512, { norm: { eps: 1e-5 }, glu: 'silu' })],
      ['four rows, a residual', shapeOf(4, 48, 256, { residual: true })],
    ],
    [
      ['one row, a norm', shapeOf(1, 48, 512, { norm: { eps: 1e-5 } })],
      ['four rows of 8 bits', shapeOf(4, 40, 256, { weight: { ...Q4, bits: 8 } })],
    ],
  );
  it.each(shapes)('%s: within the bound of float64, and bits of the rule where neutral', async (_, shape) => {
    const capabilities = device.capabilities;
    const all = linearCandidates(capabilities, shape);
    // Families share their code: of each kind of order, some from all over the list.
    const spread = (list: typeof all, count: number) =>
      list.filter((_, i) => i % Math.ceil(list.length / count) === 0);
    const some = [
      ...spread(
        all.filter((c) => c.neutral),
        6,
      ),
      ...FAMILIES.flatMap((family) =>
        spread(
          all.filter((c) => !c.neutral && c.choice.family === family),
          4,
        ),
      ),
    ];
    expect(some[0]).toBe(all[0]);
    expect(some.filter((c) => c.neutral).length).toBeGreaterThan(1);
    expect(some.filter((c) => /resident w1/.test(c.id)).length).toBeGreaterThan(0);
    const { roles, expected } = await linearInputs(device, raw, shape, new Random(7));
    const width = shape.outStride;
    let rule: Float32Array | null = null;
    for (const { id, choice, neutral } of some) {
      raw.queue.writeBuffer(roles.out!, 0, new Float32Array(shape.rows * width).fill(Number.NaN));
      const got = await runKernel(raw, linearKernel(capabilities, shape, choice), shape.rows, roles);
      expect(worstRow(got, expected, shape.rows, width), id).toBeLessThan(boundOf(choice));
      rule ??= got;
      if (neutral) expect(new Uint32Array(got.buffer), id).toEqual(new Uint32Array(rule.buffer));
    }
    for (const [name, buffer] of Object.entries(roles))
      if (name !== 'codes' && name !== 'metas') buffer.destroy();
  });
});
