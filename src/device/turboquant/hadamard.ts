/**
 * Hadamard matrices of the orders that Sylvester's doubling does not maxTopK: 12, 20 and 28, after R. Paley, "On
 * orthogonal matrices", J. Math. Phys. 12 (1933).
 */

export const PALEY_ORDERS = [12, 20, 28] as const;
export type PaleyOrder = (typeof PALEY_ORDERS)[number];

/** `[order, order]` row-major, entries ±1, `H Hᵀ = order · I`. */
export function paleyHadamard(order: PaleyOrder): Float32Array {
  return order === 28 ? paleySecond(13) : paleyFirst(order - 1);
}

/** Order q + 1 for a prime q ≡ 3 mod 4: `I + S`, S the skew matrix of quadratic characters with its border. */
function paleyFirst(q: number): Float32Array {
  const order = q + 1;
  const matrix = borderedCharacters(q, -1);
  for (let i = 0; i < order; i++) matrix[i * order + i] = 1;
  return matrix;
}

/** Order 2(q + 1) for a prime q ≡ 1 mod 4: `C ⊗ [[1, 1], [1, −1]] + I ⊗ [[1, −1], [−1, −1]]`, C symmetric. */
function paleySecond(q: number): Float32Array {
  const half = q + 1;
  const order = 2 * half;
  const core = borderedCharacters(q, 1);
  const matrix = new Float32Array(order * order);
  for (let i = 0; i < half; i++) {
    for (let j = 0; j < half; j++) {
      const c = core[i * half + j]!;
      const [a, b, d] = i === j ? [1, -1, -1] : [c, c, -c];
      matrix[2 * i * order + 2 * j] = a;
      matrix[2 * i * order + 2 * j + 1] = b;
      matrix[(2 * i + 1) * order + 2 * j] = b;
      matrix[(2 * i + 1) * order + 2 * j + 1] = d;
    }
  }
  return matrix;
}

/** `[[0, 1ᵀ], [left · 1, Q]]` with `Q[i, j] = χ(i − j)`, χ the quadratic character mod q. */
function borderedCharacters(q: number, left: 1 | -1): Float32Array {
  const order = q + 1;
  const squares = new Set(Array.from({ length: q - 1 }, (_, i) => ((i + 1) * (i + 1)) % q));
  const matrix = new Float32Array(order * order);
  for (let i = 0; i < q; i++) {
    matrix[i + 1] = 1;
    matrix[(i + 1) * order] = left;
    for (let j = 0; j < q; j++) {
      if (i !== j) matrix[(i + 1) * order + j + 1] = squares.has((i - j + q) % q) ? 1 : -1;
    }
  }
  return matrix;
}
