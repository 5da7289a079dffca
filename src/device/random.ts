/**
 * The random numbers of the sampler. Every device computes exactly these bits, so a draw depends on
 * (seed, choice, position, token id) alone: not on the row, the batch, the device or the order of arrival.
 *
 * The mixer is `pcg4d` (Jarzynski and Olano, "Hash Functions for GPU Rendering", JCGT 9(3), 2020).
 */

/** One 32-bit word for (seed, choice, position, token). All arguments are u32. */
export function randomWord(
  seedLow: number,
  seedHigh: number,
  choice: number,
  position: number,
  token: number,
): number {
  const m = 1664525;
  const a = 1013904223;
  // Two rounds of pcg4d would be wasteful: the row's three words are folded first, the token enters last.
  let x = (Math.imul(seedLow, m) + a) >>> 0;
  let y = (Math.imul(seedHigh ^ Math.imul(choice, 0x9e3779b9), m) + a) >>> 0;
  let z = (Math.imul(position, m) + a) >>> 0;
  let w = (Math.imul(token, m) + a) >>> 0;
  x = (x + Math.imul(y, w)) >>> 0;
  y = (y + Math.imul(z, x)) >>> 0;
  z = (z + Math.imul(x, y)) >>> 0;
  w = (w + Math.imul(y, z)) >>> 0;
  x = (x ^ (x >>> 16)) >>> 0;
  y = (y ^ (y >>> 16)) >>> 0;
  z = (z ^ (z >>> 16)) >>> 0;
  w = (w ^ (w >>> 16)) >>> 0;
  x = (x + Math.imul(y, w)) >>> 0;
  y = (y + Math.imul(z, x)) >>> 0;
  z = (z + Math.imul(x, y)) >>> 0;
  w = (w + Math.imul(y, z)) >>> 0;
  return w;
}

/** Uniform in (0, 1), never 0 or 1: the top 23 bits of the word plus a half, over 2²³; exact in f32. */
export function uniformFromWord(word: number): number {
  return ((word >>> 9) + 0.5) / 8388608;
}

/** The Gumbel noise of a token: `−ln(−ln u)`. The draw is the argmax of `logit / temperature + noise`. */
export function gumbelFromWord(word: number): number {
  return -Math.log(-Math.log(uniformFromWord(word)));
}
