/** The two words of a seed, two's complement: what the device's random numbers are keyed by. */
export function seedWords(seed: number): { readonly low: number; readonly high: number } {
  const bits = BigInt.asUintN(64, BigInt(seed));
  return { low: Number(bits & 0xffff_ffffn), high: Number(bits >> 32n) };
}

/** A seed of 53 random bits: any number a client can hand back exactly. */
export function drawSeed(): number {
  const words = crypto.getRandomValues(new Uint32Array(2));
  return words[0]! + (words[1]! & 0x1f_ffff) * 2 ** 32;
}
