// Products with stacks of experts in formats of four bits beside affine 4, in the sizes of gpt-oss: pairs of a few rows, tiles of many. Each is
// checked against float64 where that is quick, then timed over routes that take all experts in turn.
//
//   node bench/webgpu-experts.mjs [--format mxfp4,nvfp4,iq4_nl] [--rows 1,4,512] [--sizes 32,4,2880,2880] [--seconds 200] [--check]
//
// Sizes are experts, those of a row, columns, and columns between gate-up and down; of large ones it is only checked that all numbers are finite
// (`--check --sizes 8,2,256,256` compares). The rate is that of the bytes of the pairs' experts, each as often as it is chosen. Needs a build.

import { args, built, countdown, option } from './options.mjs';
import { compiledStages, FORMATS, metasOf, rowOf, words } from './webgpu-blocks.mjs';
import { Arena, Bench, capabilitiesOf, normals, openDevice, relativeError } from './webgpu-harness.mjs';

const load = (name) => built(`device/webgpu/${name}.js`);
const { expertsDownKernel, expertsUpKernel, routeStride } = await load('kernels/experts');
const tilesOf = await load('kernels/experts-tiles');
const { weightBytes } = await load('kernels/linear-spec');
const { pieceOf } = await load('kernels/unpack');
const { rowMetaWords, rowWords } = await load('weights-layout');

const seconds = Number(option('--seconds', '200'));
const left = countdown(seconds);

const opened = await openDevice();
const bench = new Bench(opened);
const capabilities = capabilitiesOf(opened);
const [count, k, cols, inner] = option('--sizes', '32,4,2880,2880').split(',').map(Number);
const MB = 2 ** 20;
const arena = new Arena(bench, Math.ceil((count * 2 * inner * cols) / 2 / MB) * MB, { seed: 1 });
const ROUTES = 8;

function stackOf(weight, n, columns) {
  const metaWords = rowMetaWords(weight, columns);
  const data = new Uint32Array(n * metaWords);
  for (let r = 0; r < n; r++) data.set(metasOf(weight, columns), r * metaWords);
  const size = n * rowWords(weight, columns) * 4;
  return {
    bound: { codes: { buffer: arena.buffer, offset: 0, size }, metas: bench.upload(data) },
    row: (r, out) =>
      rowOf(
        weight,
        columns,
        arena,
        rowWords(weight, columns),
        data.subarray(r * metaWords, (r + 1) * metaWords),
        r,
        out,
      ),
  };
}

/** Rows of `rows` choices of k different experts with weights; all experts in turn, whatever the rows. */
function routeOf(rows, first) {
  const stride = routeStride(k);
  const data = new Float32Array(rows * stride);
  for (let r = 0; r < rows; r++) {
    const chosen = words(k, (i) => ((first + r) * k + i) % count).sort((a, b) => a - b);
    for (const [i, e] of chosen.entries()) {
      data[r * stride + i] = e;
      data[r * stride + k + i] = 1 / k;
    }
  }
  return data;
}

const silu = (v) => v / (1 + Math.exp(-v));
function check(ups, downs, x, route, got, rows) {
  const [ours, wanted] = [[], []];
  const features = [0, 1, 17, cols >> 1, cols - 1];
  const weightsOf = new Float64Array(Math.max(cols, inner));
  for (const r of new Set([0, rows - 1])) {
    const total = features.map(() => 0);
    for (let i = 0; i < k; i++) {
      const expert = route[r * routeStride(k) + i];
      const hidden = new Float64Array(inner);
      const dot = (stack, at, from, length) => {
        stack.row(at, weightsOf);
        let sum = 0;
        for (let c = 0; c < length; c++) sum += weightsOf[c] * from(c);
        return sum;
      };
      const own = (c) => x[r * cols + c];
      for (let f = 0; f < inner; f++)
        hidden[f] =
          silu(dot(ups, expert * 2 * inner + f, own, cols)) *
          dot(ups, (expert * 2 + 1) * inner + f, own, cols);
      features.forEach((f, j) => {
        total[j] +=
          route[r * routeStride(k) + k + i] * dot(downs, expert * cols + f, (c) => hidden[c], inner);
      });
    }
    features.forEach((f, j) => {
      ours.push(got[r * cols + f]);
      wanted.push(total[j]);
    });
  }
  return relativeError(ours, wanted);
}

let wrong = 0;
/** What is timed when all formats are on the GPU: the host takes seconds for one's scales, in which an idle GPU lowers its clocks. */
const cases = [];
const ROUNDS = 4;
const base = new Map();
for (const name of ['affine 4', ...option('--format', 'mxfp4,nvfp4,iq4_nl').split(',')]) {
  const weight = FORMATS[name];
  const ups = stackOf(weight, count * 2 * inner, cols);
  const downs = stackOf(weight, count * cols, inner);
  const shard = { first: 0, end: count, layout: weight, bias: false };
  for (const rows of option('--rows', '1,4,512').split(',').map(Number)) {
    if (left() < 5) break;
    const shape = {
      rowKind: 'tokens',
      rows,
      k,
      cols,
      inner,
      outCols: cols,
      activation: 'silu',
      pieceCols: pieceOf(weight).cols,
      workgroupBytes: capabilities.workgroupBytes,
    };
    const tiles = tilesOf.chooseExpertTiles(capabilities, shape, count, [shard], [shard]);
    const parts =
      tiles === null
        ? [
            [expertsUpKernel(shape, shard), ups],
            [expertsDownKernel(shape, shard, false, false), downs],
          ]
        : [
            [tilesOf.expertTilesStart(capabilities, shape, tiles), ups],
            [tilesOf.expertTilesUp(shape, shard, tiles), ups],
            [tilesOf.expertTilesDown(shape, shard, tiles), downs],
            [tilesOf.expertTilesEnd(shape, tiles, false), downs],
          ];
    const x = normals(rows * cols, 77);
    const held = {
      x: bench.upload(x),
      out: bench.buffer(rows * cols * 4),
      step: bench.upload(new Uint32Array([rows, rows, rows, 0])),
    };
    for (const [{ scratch = {} }] of parts)
      for (const [role, size] of Object.entries(scratch)) held[role] ??= bench.buffer(size);
    const stages = [];
    for (const [kernel, stack] of parts)
      for (const stage of await compiledStages(bench, kernel, {
        tokens: rows,
        outputs: rows,
        sequences: rows,
      }))
        stages.push([stage, stack]);
    const routes = words(ROUTES, (i) => routeOf(rows, i * rows));
    const launches = routes.map((route) => {
      const buffer = bench.upload(route);
      return stages.map(([stage, stack]) => bench.launch(stage, { ...held, ...stack.bound, route: buffer }));
    });
    bench.run(launches[0]);
    const got = await bench.readFloats(held.out, rows * cols, 'f32');
    // The reference of large sizes takes minutes.
    const error =
      count * inner * cols > 2 ** 20
        ? got.every(Number.isFinite)
          ? 0
          : 1
        : check(ups, downs, x, routes[0], got, rows);
    const good = error < 5e-3;
    if (!good) wrong++;
    const each = weightBytes(2 * inner, cols, weight) + weightBytes(cols, inner, weight);
    const experts = Math.min(rows * k, tiles === null ? Number.POSITIVE_INFINITY : count);
    cases.push({
      name,
      rows,
      launches: launches.flat(),
      stages: stages.length,
      bytes: each * experts,
      us: [],
    });
    console.log(
      `${name} ×${rows} ${tiles === null ? 'pairs' : 'tiles'}: ${good ? 'right' : 'WRONG'} (${error.toExponential(1)})`,
    );
  }
}
// In turns, for the clocks of a GPU change by themselves.
for (let round = 0; round < ROUNDS && !args.includes('--check'); round++)
  for (const one of cases) {
    const { us } = await bench.time(one.launches, {
      targetUs: 3000,
      samples: 5,
      warmMs: round === 0 ? 200 : 30,
    });
    one.us.push(us * one.stages);
  }
for (const { name, rows, bytes, us } of args.includes('--check') ? [] : cases) {
  const rate = bytes / Math.min(...us) / 1000;
  if (name === 'affine 4') base.set(rows, rate);
  const all = us.map((v) => v.toFixed(1)).join(', ');
  console.log(
    `${name} ×${rows}: ${all} µs, at best ${rate.toFixed(0)} GB/s, ${(rate / base.get(rows)).toFixed(2)} of affine 4`,
  );
}
console.log(wrong === 0 ? 'all right' : `${wrong} WRONG`);
process.exit(wrong === 0 ? 0 : 1);
