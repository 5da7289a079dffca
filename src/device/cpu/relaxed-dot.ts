import { setFlagsFromString } from 'node:v8';

/**
 * `lane 3 of i32x4.relaxed_dot_i8x16_i7x16_add_s(splat(-100), splat(127), splat(7))`, whose operands all are
 * temporaries.
 */
const PROBE = Uint8Array.of(
  ...[0x00, 0x61, 0x73, 0x6d, 0x01, 0x00, 0x00, 0x00, 0x01, 0x05, 0x01, 0x60, 0x00, 0x01, 0x7f],
  ...[0x03, 0x02, 0x01, 0x00, 0x07, 0x09, 0x01, 0x05, 0x63, 0x68, 0x65, 0x63, 0x6b, 0x00, 0x00],
  ...[0x0a, 0x18, 0x01, 0x16, 0x00, 0x41, 0x9c, 0x7f, 0xfd, 0x0f, 0x41, 0xff, 0x00, 0xfd, 0x0f],
  ...[0x41, 0x07, 0xfd, 0x11, 0xfd, 0x93, 0x02, 0xfd, 0x1b, 0x03, 0x0b],
);

/**
 * True if the relaxed dot product, within the range where every implementation must agree, is what it should be.
 *
 * On CPUs with AVX-VNNI the baseline compiler of V8 11.3 (Node 20) may overwrite an operand with the sum before it is
 * used; its optimising compiler is right. So the baseline compiler is switched off where the fault shows: kernels are
 * better compiled well at once anyway.
 */
export function relaxedDotIsExact(): boolean {
  if (probe(7)) return true;
  setFlagsFromString('--no-liftoff');
  // Another number: the code of equal modules is shared.
  return probe(8);
}

function probe(start: number): boolean {
  const bytes = PROBE.slice();
  bytes[PROBE.indexOf(0x07, PROBE.indexOf(0x41))] = start;
  const { exports } = new WebAssembly.Instance(new WebAssembly.Module(bytes));
  return (exports as { check(): number }).check() === start - 4 * 100 * 127;
}
