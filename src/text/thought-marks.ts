/** What stands about the thoughts at the start of an answer, by family. */

export interface ThoughtMarks {
  readonly open: string;
  readonly close: string;
}

/** Of most models. */
export const THINK: ThoughtMarks = { open: '<think>', close: '</think>' };

export const THOUGHT_MARKS: readonly ThoughtMarks[] = [
  THINK,
  // Seed-OSS.
  { open: '<seed:think>', close: '</seed:think>' },
  // Magistral, Ministral 3.
  { open: '[THINK]', close: '[/THINK]' },
  // Cohere 2.
  { open: '<|START_THINKING|>', close: '<|END_THINKING|>' },
  // Apertus.
  { open: '<|inner_prefix|>', close: '<|inner_suffix|>' },
];

/**
 * The marks of a block that a prompt has opened.
 * @example openedIn('assistant\n<think>\n')?.close // '</think>'
 */
export function openedIn(promptEnd: string): ThoughtMarks | undefined {
  const end = promptEnd.trimEnd();
  return THOUGHT_MARKS.find(({ open }) => end.endsWith(open));
}
