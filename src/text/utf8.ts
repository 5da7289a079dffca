/**
 * How many bytes at the end of `bytes[0 .. length)` are the unfinished start of a UTF-8 sequence (0 to 3).
 *
 * Counts only what may still become a character: `E0 80` is broken already (an overlong form) and is not held
 * back. Ranges of the second byte: The Unicode Standard, table 3-7.
 */
export function incompleteSuffixLength(bytes: Uint8Array, length: number = bytes.length): number {
  const reach = Math.min(3, length);
  for (let back = 1; back <= reach; back++) {
    const lead = bytes[length - back]!;
    if (lead >= 0x80 && lead <= 0xbf) continue;
    const need =
      lead >= 0xc2 && lead <= 0xdf
        ? 2
        : lead >= 0xe0 && lead <= 0xef
          ? 3
          : lead >= 0xf0 && lead <= 0xf4
            ? 4
            : 1;
    if (back >= need) return 0;
    return back === 1 || secondByteFits(lead, bytes[length - back + 1]!) ? back : 0;
  }
  return 0;
}

function secondByteFits(lead: number, second: number): boolean {
  switch (lead) {
    case 0xe0:
      return second >= 0xa0;
    case 0xed:
      return second <= 0x9f;
    case 0xf0:
      return second >= 0x90;
    case 0xf4:
      return second <= 0x8f;
    default:
      return true;
  }
}
