/** An f32 as a WGSL literal, exact. */
export function f32Literal(value: number): string {
  const rounded = Math.fround(value);
  const text = String(rounded);
  return /[.e]/.test(text) ? `${text}f` : `${text}.0f`;
}
