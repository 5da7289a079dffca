/** What drawings share: colours, the size of text, and how numbers and names are written. */
export const FONT = 12;
/** Width of a character, about. */
export const CHARACTER = 6.7;
/** Tells apart for most kinds of colour vision (Okabe and Ito). */
export const COLOURS = [
  '#0072b2',
  '#d55e00',
  '#009e73',
  '#cc79a7',
  '#7a6a00',
  '#56b4e9',
  '#e69f00',
  '#555555',
] as const;

/** To a tenth of a pixel. */
export function round(value: number): number {
  return Math.round(value * 10) / 10;
}

export function markup(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
