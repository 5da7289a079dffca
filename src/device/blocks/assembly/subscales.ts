// Scales of 6 bits, to a byte each.

/** Eight scales and eight minima in 12 bytes, to pairs. */
export function sixBitPairs(from: usize, to: usize): void {
  for (let g: usize = 0; g < 4; g++) {
    const scale = load<u8>(from + g);
    const minimum = load<u8>(from + g, 4);
    const both = load<u8>(from + g, 8);
    store<u8>(to + (g << 1), scale & 63);
    store<u8>(to + (g << 1), minimum & 63, 1);
    store<u8>(to + (g << 1), (both & 15) | ((scale >> 6) << 4), 8);
    store<u8>(to + (g << 1), (both >> 4) | ((minimum >> 6) << 4), 9);
  }
}

/** Sixteen that count from 32, in 12 bytes: nibbles, then pairs of bits. */
export function centredSixBits(from: usize, to: usize): void {
  for (let g: usize = 0; g < 16; g++) {
    const nibble = g < 8 ? load<u8>(from + g) & 15 : load<u8>(from + g - 8) >> 4;
    const pair = (load<u8>(from + (g & 3), 8) >> <u8>((g >> 2) << 1)) & 3;
    store<u8>(to + g, (nibble | (pair << 4)) - 32);
  }
}

/** Eight that count from 32: 16 bits of pairs, then four bytes of nibbles. */
export function iq4Scales(from: usize, to: usize): void {
  for (let g: usize = 0; g < 8; g++) {
    const nibble = (load<u8>(from + (g >> 1), 2) >> <u8>((g & 1) << 2)) & 15;
    const pair = (load<u8>(from + (g >> 2)) >> <u8>((g & 3) << 1)) & 3;
    store<u8>(to + g, (nibble | (pair << 4)) - 32);
  }
}
