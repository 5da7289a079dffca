/**
 * The byte alphabet of GPT-2: every byte has one printable character. Printable Latin-1 stands for itself, the
 * other bytes take the characters from U+0100 on, in order.
 */
export function byteAlphabet(): Map<string, number> {
  const alphabet = new Map<string, number>();
  let next = 0x100;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    alphabet.set(String.fromCharCode(printable ? byte : next++), byte);
  }
  return alphabet;
}
