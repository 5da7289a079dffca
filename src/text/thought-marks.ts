/** What stands about the thoughts at the start of an answer, by family. */

/** Plain data: it crosses threads. */
export interface ThoughtMarks {
  readonly open: string;
  readonly close: string;
  /** What of these, and of `behind`, may be tokens. Default the marks themselves. */
  readonly tokens?: readonly string[];
  /** What ends a block that has grown too long. Default `close`. */
  readonly end?: string;
  /** What has to follow `close`. Default: white space at most. */
  readonly behind?: string;
  /** What templates have in the place of `open` that make it of parts. */
  readonly made?: readonly string[];
}

/** Whether thoughts come before an answer: the prompt has begun them, or the model may. */
export interface Thoughts {
  readonly state: 'open' | 'allowed';
  readonly marks: ThoughtMarks;
}

export const tokensOf = ({ open, close, tokens }: ThoughtMarks): readonly string[] => tokens ?? [open, close];

/** Of most models. */
export const THINK: ThoughtMarks = { open: '<think>', close: '</think>', end: '\n</think>\n\n' };

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
  // Hy3; its preview has <think>.
  {
    open: '<think:opensource>',
    close: '</think:opensource>',
    made: ['<think{}>', ':opensource'],
  },
  // Gemma 4.
  { open: '<|channel>thought', close: '<channel|>', tokens: ['<|channel>', '<channel|>'] },
];

/** The marks that a template knows of. */
export const marksIn = (template: string): ThoughtMarks | undefined =>
  THOUGHT_MARKS.find(
    ({ open, made }) => template.includes(open) || made?.every((part) => template.includes(part)),
  );

/**
 * The marks of a block that a prompt has opened.
 * @example openedIn('assistant\n<think>\n')?.close // '</think>'
 */
export function openedIn(promptEnd: string): ThoughtMarks | undefined {
  const end = promptEnd.trimEnd();
  return THOUGHT_MARKS.find(({ open }) => end.endsWith(open));
}
