// Makes src/device/turboquant/codebook-tables.ts: for every head_dim that is a multiple of 8 up to 256 the Lloyd–Max
// codebooks of 2, 3, 4 and 8 bits. Run it without arguments; it prints the distortions and fails where a table is not
// a fixed point. `--check` compares with the committed file instead of writing it.
//
// With t = sin θ the density (1 − t²)^((D−3)/2) dt becomes cos^(D−2) θ dθ, which is smooth to the ends of the interval.
// The mass of a cell is integrated by Gauss–Legendre, its moment is −cos^(D−1) θ / (D−1). Newton's method solves
// c_i = E[t | cell i] for all centroids at once (the derivative is tridiagonal): plain Lloyd iterations would need tens
// of thousands of rounds at 8 bits. The density is log-concave, so there is one solution, and it is symmetric.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const BITS = [2, 3, 4, 8];
const DIMS = Array.from({ length: 32 }, (_, i) => 8 * (i + 1));
const file = fileURLToPath(new URL('../src/device/turboquant/codebook-tables.ts', import.meta.url));

const nodes = gaussLegendre(24);

function gaussLegendre(n) {
  const out = [];
  for (let i = 0; i < n; i++) {
    let x = Math.cos((Math.PI * (i + 0.75)) / (n + 0.5));
    let slope = 0;
    for (let round = 0; round < 100; round++) {
      let [p, before] = [1, 0];
      for (let k = 0; k < n; k++) [p, before] = [((2 * k + 1) * x * p - k * before) / (k + 1), p];
      slope = (n * (x * p - before)) / (x * x - 1);
      const step = p / slope;
      x -= step;
      if (Math.abs(step) < 1e-16) break;
    }
    out.push([x, 2 / ((1 - x * x) * slope * slope)]);
  }
  return out;
}

/** ∫ g(θ) cos^(D−2) θ dθ from a to b, in pieces no wider than half a standard deviation; stops where nothing is left. */
function integrate(dim, a, b, g = () => 1) {
  const width = 0.5 / Math.sqrt(dim);
  const top = Math.cos(a) ** (dim - 2);
  let sum = 0;
  for (let from = a; from < b; from += width) {
    const to = Math.min(b, from + width);
    if (Math.cos(from) ** (dim - 2) < top * 1e-40) break;
    let piece = 0;
    for (const [x, w] of nodes) {
      const theta = (from + to) / 2 + ((to - from) / 2) * x;
      piece += w * g(theta) * Math.cos(theta) ** (dim - 2);
    }
    sum += (piece * (to - from)) / 2;
  }
  return sum;
}

const density = (dim, t) => (1 - t * t) ** ((dim - 3) / 2);
const angle = (t) => Math.asin(Math.min(1, Math.max(0, t)));

/** Mass and mean of each cell of the positive half. */
function cells(dim, c) {
  const h = c.length;
  return c.map((_, i) => {
    const low = i === 0 ? 0 : (c[i - 1] + c[i]) / 2;
    const high = i === h - 1 ? 1 : (c[i] + c[i + 1]) / 2;
    const mass = integrate(dim, angle(low), angle(high));
    const end = i === h - 1 ? 0 : (1 - high * high) ** ((dim - 1) / 2);
    const moment = ((1 - low * low) ** ((dim - 1) / 2) - end) / (dim - 1);
    return { low, high, mass, mean: moment / mass };
  });
}

/** Centroids of least distortion where there are many: spaced as the cube root of the density (Panter and Dite 1951). */
function start(dim, h) {
  const third = (t) => density(dim, t) ** (1 / 3);
  const reach = Math.min(1, 12 / Math.sqrt(dim));
  const steps = 20000;
  const sums = [0];
  for (let i = 0; i < steps; i++) sums.push(sums[i] + third(((i + 0.5) / steps) * reach));
  const total = sums[steps];
  const out = [];
  let at = 0;
  for (let i = 0; i < h; i++) {
    const want = ((i + 0.5) / h) * total;
    while (sums[at + 1] < want) at++;
    out.push(((at + (want - sums[at]) / (sums[at + 1] - sums[at])) / steps) * reach);
  }
  return out;
}

function lloydMax(dim, bits) {
  const h = 2 ** (bits - 1);
  let c = start(dim, h);
  let worst = Number.POSITIVE_INFINITY;
  for (let round = 0; round < 60 && worst > 1e-13; round++) {
    const cell = cells(dim, c);
    const below = new Float64Array(h);
    const middle = new Float64Array(h);
    const above = new Float64Array(h);
    const residual = new Float64Array(h);
    cell.forEach(({ low, high, mass, mean }, i) => {
      const fromLow = i === 0 ? 0 : (density(dim, low) * (mean - low)) / mass / 2;
      const fromHigh = i === h - 1 ? 0 : (density(dim, high) * (high - mean)) / mass / 2;
      residual[i] = c[i] - mean;
      below[i] = -fromLow;
      above[i] = -fromHigh;
      middle[i] = 1 - fromLow - fromHigh;
    });
    worst = residual.reduce((most, r) => Math.max(most, Math.abs(r)), 0) * Math.sqrt(dim);
    const step = tridiagonal(below, middle, above, residual);
    let factor = 1;
    let next = c;
    do {
      next = c.map((value, i) => value - factor * step[i]);
      factor /= 2;
    } while (next.some((value, i) => value <= (i === 0 ? 0 : next[i - 1]) || value >= 1));
    c = next;
  }
  const error = Math.max(...cells(dim, c).map(({ mean }, i) => Math.abs(c[i] - mean))) * Math.sqrt(dim);
  if (!(error < 1e-10)) throw new Error(`${dim} at ${bits} bits is off by ${error}`);
  return c;
}

function tridiagonal(below, middle, above, right) {
  const n = right.length;
  const a = [...middle];
  const x = [...right];
  for (let i = 1; i < n; i++) {
    const factor = below[i] / a[i - 1];
    a[i] -= factor * above[i - 1];
    x[i] -= factor * x[i - 1];
  }
  for (let i = n - 1; i >= 0; i--) x[i] = (x[i] - (i + 1 < n ? above[i] * x[i + 1] : 0)) / a[i];
  return x;
}

/** D · E[(t − c(t))²]: the mean squared error of a unit vector. */
function distortion(dim, c) {
  const total = integrate(dim, 0, Math.PI / 2);
  let sum = 0;
  cells(dim, c).forEach(({ low, high }, i) => {
    sum += integrate(
      dim,
      angle(low),
      i === c.length - 1 ? Math.PI / 2 : angle(high),
      (theta) => (Math.sin(theta) - c[i]) ** 2,
    );
  });
  return (dim * sum) / total;
}

const lines = DIMS.map((dim) => {
  const tables = BITS.map((bits) => lloydMax(dim, bits));
  console.log(dim, ...tables.map((c) => distortion(dim, c).toExponential(4)));
  const bytes = new DataView(new ArrayBuffer(4 * tables.flat().length));
  tables.flat().forEach((value, i) => {
    bytes.setFloat32(4 * i, value, true);
  });
  const text = Buffer.from(bytes.buffer).toString('base64');
  return `  ${dim}:\n    '${text}',`;
});
const source = `/** Made by scripts/make-codebooks.mjs; see codebooks.ts. For each head_dim: positive centroids of 2, 3, 4 and 8 bits, f32. */
// biome-ignore format: one line for each table
export const CODEBOOK_TABLES: Readonly<Record<number, string>> = {
${lines.join('\n')}
};
`;
if (process.argv.includes('--check')) {
  if (readFileSync(file, 'utf8') !== source)
    throw new Error('codebook-tables.ts is not what this script makes');
} else writeFileSync(file, source);
