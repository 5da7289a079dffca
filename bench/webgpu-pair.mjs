// Gate and up of a few rows, and the product behind them, all their launches as a layer makes them: with the bytes of what goes between
// made in a launch of their own, and handed on (linear-handed.ts). Sizes of both products by turns; rounds walk over more
// weights than caches hold, every launch waiting for the one before. Results are compared before anything is timed.
//
//   node bench/webgpu-pair.mjs [--shapes llama-8b] [--rows 2,4,8] [--rounds 15] [--mb 512] [--seconds 120]
//       [--up '[[8,1,4,16,2,0]]'] [--down '[[4,2,2,14,7,4]]']
//
// A size is [lanes along K, pieces, weight rows of a lane, subgroups, those that share rows, turns in which x is staged]; `+` marks
// the one that is chosen by rule, which is always among them. Figures are µs of a layer's pair, norm to residual: least and
// median of the rounds. Needs a build.

import { built, countdown, option } from './options.mjs';
import { Arena, Bench, capabilitiesOf, normals, openDevice, relativeError } from './webgpu-harness.mjs';
import { codeBytes, metaBytes } from './webgpu-linear.mjs';

const load = (name) => built(`device/webgpu/kernels/${name}.js`);
const { linearFits, linearKernel } = await load('linear-choice');
const { dp4aPlanes, ruleForLinear } = await load('linear-fast');
const { formHanded } = await load('linear-handed');

const left = countdown(Number(option('--seconds', '120')));
const rounds = Number(option('--rounds', '15'));
const MB = 2 ** 20;
const mb = Number(option('--mb', '512'));
const SHAPES = {
  'qwen3-0.6b': { hidden: 1024, inner: 3072, layers: 28 },
  'qwen3-8b': { hidden: 4096, inner: 12288, layers: 36 },
  'qwen2.5-7b': { hidden: 3584, inner: 18944, layers: 28 },
  'llama-3b': { hidden: 3072, inner: 8192, layers: 28 },
  'llama-8b': { hidden: 4096, inner: 14336, layers: 32 },
};
/** Those that make 64 features or more to a workgroup, and a few that stand beside the rules'. */
const UPS = [
  [8, 1, 4, 16, 2, 0],
  [8, 1, 4, 8, 2, 0],
  [8, 1, 4, 8, 1, 1],
  [8, 1, 4, 8, 1, 4],
  [8, 1, 4, 16, 1, 1],
  [8, 1, 2, 16, 1, 1],
];
const DOWNS = [
  [4, 1, 2, 14, 7, 4],
  [4, 2, 2, 8, 8, 0],
];

const bench = new Bench(await openDevice());
const { features, device } = bench;
const { subgroupSize, workgroupBytes } = features;
const capabilities = { ...capabilitiesOf(bench), matrices: [] };
console.log(
  `${bench.info.description || bench.info.device}: ${features.timestamps ? 'timestamps' : 'wall time'}`,
);
const arenas = {
  codes: new Arena(bench, mb * MB, { seed: 1 }),
  metas: new Arena(bench, (mb / 8) * MB, { seed: 2, and: 0x03ff03ff, or: 0xa4001c00 }),
};
const weight = { kind: 'affine', bits: 4, groupSize: 64, meta: 'f16' };
const align = (n) => Math.ceil(n / 256) * 256;

/** The stages of a kernel as the harness takes them. */
const staged = ({ stages }, rows) =>
  stages.map(({ label, wgsl, bindings, workgroups }) => {
    const out = [0, 0, 0];
    workgroups({ tokens: rows, outputs: rows }, out);
    const writes = bindings.filter(({ access }) => access === 'read_write').map(({ name }) => name);
    return { label, wgsl, workgroups: out, bindings: bindings.map(({ name }) => name), writes };
  });

const median = (list) => list.toSorted((a, b) => a - b)[list.length >> 1];

for (const name of option('--shapes', 'llama-8b').split(',')) {
  const { hidden, inner, layers } = SHAPES[name];
  for (const rows of option('--rows', '2,4,8').split(',').map(Number)) {
    const base = { rowKind: 'tokens', rows, weight, outOffset: 0, bias: false };
    const up = {
      ...base,
      n: 2 * inner,
      k: hidden,
      xStride: hidden,
      outStride: inner,
      residual: false,
      norm: { eps: 1e-5 },
      glu: 'silu',
    };
    const down = {
      ...base,
      n: hidden,
      k: inner,
      xStride: inner,
      outStride: hidden,
      residual: true,
      norm: null,
      glu: null,
    };
    const planes = dp4aPlanes(weight, rows);
    const nameOf = ({ across, pieces, each, subgroups, splits, chunks }) =>
      [across, pieces, each, subgroups, splits, chunks].join(' ');
    const choicesFor = (shape, sizes) => {
      const rule = ruleForLinear(capabilities, shape);
      const list = sizes.map(([across, pieces, each, subgroups, splits, chunks]) => ({
        family: 'dp4a',
        config: { subgroupSize, across, pieces, each, subgroups, splits, chunks, planes, workgroupBytes },
      }));
      if (rule?.family === 'dp4a') list.unshift(rule);
      const found = new Map();
      for (const choice of list) {
        const text = nameOf(choice.config);
        if (!found.has(text) && linearFits(capabilities, shape, choice))
          found.set(text, { choice, label: `${choice === rule ? '+' : ' '} ${text}` });
      }
      return [...found.values()];
    };
    const jobs = [];
    for (const first of choicesFor(up, JSON.parse(option('--up', JSON.stringify(UPS)))))
      for (const second of choicesFor(down, JSON.parse(option('--down', JSON.stringify(DOWNS))))) {
        const form = formHanded(capabilities, up, down, (shape) =>
          shape === up ? first.choice : second.choice,
        );
        for (const handed of form === null ? [null] : [null, form]) {
          const kernels = [
            linearKernel(capabilities, { ...up, outHanded: handed }, first.choice),
            linearKernel(capabilities, { ...down, xHanded: handed }, second.choice),
          ];
          const label = `up ${first.label.padEnd(15)} down ${second.label.padEnd(15)} ${handed === null ? 'apart ' : 'handed'}`;
          jobs.push({ label, kernels, handed, pair: `${first.label} ${second.label}`, us: [] });
        }
      }
    const shared = {
      x: bench.upload(normals(rows * hidden, 11)),
      norm: bench.upload(normals(hidden, 12).map((v) => 1 + v / 4)),
      residual: bench.upload(normals(rows * hidden, 13)),
      between: bench.buffer(rows * inner * 4),
      out: bench.buffer(rows * hidden * 4),
    };
    for (const { scratch = {} } of jobs.flatMap(({ kernels }) => kernels))
      for (const [role, bytes] of Object.entries(scratch))
        if (!(shared[role]?.size >= bytes)) {
          shared[role]?.destroy();
          shared[role] = bench.buffer(bytes);
        }
    // Both weights of a layer side by side.
    const [codes, metas] = [codeBytes, metaBytes].map((bytes) => [up, down].map((s) => align(bytes(s))));
    const count = Math.max(
      1,
      Math.min(
        layers,
        Math.floor(arenas.codes.bytes / (codes[0] + codes[1])),
        Math.floor(arenas.metas.bytes / (metas[0] + metas[1])),
      ),
    );
    const weights = (i, at) => {
      const part = (arena, sizes) => ({
        buffer: arena.buffer,
        offset: i * (sizes[0] + sizes[1]) + (at === 0 ? 0 : sizes[0]),
        size: sizes[at],
      });
      return { codes: part(arenas.codes, codes), metas: part(arenas.metas, metas) };
    };
    for (const job of jobs) {
      job.compiled = await Promise.all(
        job.kernels.map((kernel) => Promise.all(staged(kernel, rows).map((stage) => bench.compile(stage)))),
      );
      job.launches = Array.from({ length: count }, (_, i) =>
        job.compiled.flatMap((stages, at) =>
          stages.map((compiled) =>
            bench.launch(compiled, {
              ...shared,
              ...weights(i, at),
              ...(at === 0 ? { out: shared.between } : { x: shared.between }),
            }),
          ),
        ),
      );
    }
    const results = new Map();
    for (const job of jobs) {
      // All ones are no number.
      for (const buffer of [shared.between, shared.out])
        device.queue.writeBuffer(buffer, 0, new Uint8Array(buffer.size).fill(0xff));
      bench.run(job.launches[0]);
      const got = await bench.readFloats(shared.out, rows * hidden, 'f32');
      const apart = results.get(job.pair);
      const [first] = results.values();
      job.checked = `${relativeError(got, first ?? got).toExponential(1)} from the first`;
      if (apart === undefined) results.set(job.pair, got);
      else job.checked = got.every((v, i) => v === apart[i]) ? 'same bits' : `OTHER BITS, ${job.checked}`;
    }
    for (let round = 0; round < rounds && left() > 0; round++)
      for (const job of jobs) {
        const all = job.launches.flat();
        const warmMs = round === 0 && job === jobs[0] ? 400 : 0;
        const { us } = await bench.time(all, { targetUs: 1000, samples: 3, warmMs });
        job.us.push((us * all.length) / count);
      }
    console.log(`${name}, ${rows} rows, ${count} layers of weights, ${jobs[0]?.us.length ?? 0} rounds`);
    for (const { label, checked, us, launches } of jobs)
      console.log(
        `  ${label} ${launches[0].length} launches  ${Math.min(...us)
          .toFixed(1)
          .padStart(7)} ${median(us).toFixed(1).padStart(7)} µs  ${checked}`,
      );
    for (const buffer of Object.values(shared)) buffer.destroy();
  }
}
process.exit(0);
